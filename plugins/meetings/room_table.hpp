// SPDX-License-Identifier: Apache-2.0
//
// The table of meeting/1 of a launcher's protocol. Room is a meeting under way:
//
//   struct Room {
//     static constexpr const char* protocol = "PMIx";  // as errors name it
//     explicit Room(const tutti_meeting_config& config);
//     uint32_t rank() const, nranks() const;
//     void all_gather(const void* mine, uint64_t bytes, void* all);
//     void abort();
//   };
//
// The launcher's names of things are the process's, so a process has one room at a time.
#pragma once

#include <tutti/plugin/meeting.h>

#include <atomic>
#include <memory>
#include <string>
#include <tutti/sdk/plugin.hpp>

namespace tutti::meetings {

template <typename Room>
class RoomTable {
 public:
  static constexpr tutti_meeting of(const char* name, const char* summary) {
    return {sizeof(tutti_meeting), 0, nullptr, name, summary, open, all_gather, abort, close};
  }

 private:
  static inline std::atomic<bool> busy_ = false;  // a room is open

  static std::unique_ptr<Room> join(const tutti_meeting_config& config) {
    if (busy_.exchange(true))
      throw sdk::Error(TUTTI_INVALID_USAGE, std::string("another communicator of this process is meeting by ") +
                                                Room::protocol +
                                                ": make them one after another, in the same order on all ranks");
    try {
      return std::make_unique<Room>(config);
    } catch (...) {
      busy_ = false;
      throw;
    }
  }
  static tutti_status open(void*, const tutti_meeting_config* config, tutti_room** room, uint32_t* rank,
                           uint32_t* nranks) {
    return sdk::guard([&] {
      auto made = join(sdk::accepted(config));
      *rank = made->rank();
      *nranks = made->nranks();
      *room = sdk::to_handle<tutti_room>(made.release());
    });
  }
  static tutti_status all_gather(tutti_room* room, const void* mine, uint64_t bytes, void* all) {
    return sdk::guard([&] { sdk::from_handle<Room>(room).all_gather(mine, bytes, all); });
  }
  static void abort(tutti_room* room) { sdk::from_handle<Room>(room).abort(); }
  static void close(tutti_room* room) {
    delete &sdk::from_handle<Room>(room);
    busy_ = false;
  }
};

}  // namespace tutti::meetings
