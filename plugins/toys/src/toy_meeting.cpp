// SPDX-License-Identifier: Apache-2.0
//
// meeting/1 for ranks that are threads of one process: whoever names the same place meets there. The place "3@NAME" is
// for 3 ranks and numbers them as they come; any other place is for ranks that know their numbers.
#include <tutti/plugin/meeting.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace {

using tutti::sdk::Error;

// The state that the ranks of one meeting share.
struct Table {
  std::mutex mutex;
  std::condition_variable moved;
  uint32_t nranks = 0, came = 0, brought = 0, took = 0;
  uint64_t round = 0;
  bool aborted = false;
  std::vector<char> bytes;
};

struct Room {
  std::shared_ptr<Table> table;
  uint32_t rank = 0;
  std::chrono::nanoseconds timeout{};
};

std::mutex mutex;
std::map<std::string, std::shared_ptr<Table>>& tables() {
  static auto& all = *new std::map<std::string, std::shared_ptr<Table>>();
  return all;
}

std::unique_ptr<Room> join(const tutti_meeting_config& config, uint32_t* nranks) {
  const std::string_view place = config.place;
  uint32_t numbered = 0;
  const auto [end, code] = std::from_chars(place.data(), place.data() + place.size(), numbered);
  const bool numbers = code == std::errc() && end != place.data() + place.size() && *end == '@' && numbered > 0;
  if (!numbers && !config.nranks)
    throw Error(TUTTI_INVALID_ARGUMENT, "the place \"" + std::string(place) +
                                            "\" numbers no ranks: expected N@NAME, or rank and nranks in the config");
  auto room = std::make_unique<Room>();
  room->timeout = std::chrono::nanoseconds(config.timeout_ns);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Table>& table = tables()[std::string(place)];
  if (!table) table = std::make_shared<Table>();
  if (!table->nranks) table->nranks = config.nranks ? config.nranks : numbered;
  room->table = table;
  *nranks = table->nranks;
  room->rank = config.nranks ? config.rank : table->came;
  if (config.nranks && config.nranks != table->nranks)
    throw Error(TUTTI_MISMATCH, "this rank says " + std::to_string(config.nranks) + " ranks, others say " +
                                    std::to_string(table->nranks));
  if (++table->came == table->nranks) tables().erase(std::string(place));  // free for another meeting
  return room;
}

tutti_status open(void*, const tutti_meeting_config* config, tutti_room** room, uint32_t* rank, uint32_t* nranks) {
  return tutti::sdk::guard([&] {
    auto made = join(tutti::sdk::accepted(config), nranks);
    *rank = made->rank;
    *room = reinterpret_cast<tutti_room*>(made.release());
  });
}

// Each round has two halves: all bring their bytes, then all take everybody's.
void gather(Room& room, const void* mine, uint64_t bytes, void* all) {
  Table& t = *room.table;
  std::unique_lock lock(t.mutex);
  const auto await = [&](auto&& done) {
    if (!t.moved.wait_for(lock, room.timeout, [&] { return t.aborted || done(); }))
      throw Error(TUTTI_TIMEOUT, std::to_string(t.brought) + " of " + std::to_string(t.nranks) + " ranks have come");
    if (t.aborted) throw Error(TUTTI_ABORTED, "a rank has given the meeting up");
  };
  await([&] { return t.took == 0; });
  const uint64_t round = t.round;
  if (t.brought == 0) t.bytes.assign(bytes * t.nranks, 0);
  if (t.bytes.size() != bytes * t.nranks) throw Error(TUTTI_MISMATCH, "the ranks gather different numbers of bytes");
  std::memcpy(t.bytes.data() + room.rank * bytes, mine, bytes);
  if (++t.brought == t.nranks) ++t.round;
  t.moved.notify_all();
  await([&] { return t.round != round; });
  std::memcpy(all, t.bytes.data(), t.bytes.size());
  if (++t.took == t.nranks) t.took = t.brought = 0;
  t.moved.notify_all();
}

constexpr tutti_meeting meeting{
    sizeof(tutti_meeting),
    0,
    nullptr,
    "toy",
    "threads of one process that name the same place",
    open,
    [](tutti_room* room, const void* mine, uint64_t bytes, void* all) {
      return tutti::sdk::guard([&] { gather(*reinterpret_cast<Room*>(room), mine, bytes, all); });
    },
    [](tutti_room* room) {
      Table& table = *reinterpret_cast<Room*>(room)->table;
      const std::lock_guard lock(table.mutex);
      table.aborted = true;
      table.moved.notify_all();
    },
    [](tutti_room* room) { delete reinterpret_cast<Room*>(room); }};

}  // namespace

TUTTI_PLUGIN(toy_meeting, "toy-meeting", "0.1.0", "Tutti", "Apache-2.0", "a sample of meeting/1",
             {TUTTI_MEETING_ID, &meeting});
