// SPDX-License-Identifier: Apache-2.0
//
// Collectives between processes of one host whose streams read each other's buffers where they are, without slots: of
// device memory that the application has registered, and of the library's scratch. All ranks settle in the call that an
// operation goes that way (direct_board.hpp); where one of them cannot, all use slots.
//
// What a rank reads is mapped at the first operation that needs it, while nothing of the communicator is pending on the
// device, and stays mapped until its owner withdraws it. It is known by its owner and buffer id, which differ for any
// two allocations, so nothing stale is ever read.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/channel_opening.hpp"
#include "engine/direct_board.hpp"
#include "engine/stream_channel.hpp"
#include "engine/stream_plan.hpp"

namespace tutti::core {

class DirectMemory {
 public:
  static constexpr const char* carrier = "direct";
  static constexpr uint64_t least_bytes = 1 << 20;  // of a call's block: below, slots are as good
  struct Place {
    uint32_t rank = 0;
    const Topology* topology = nullptr;
    MemoryExchange* exchange = nullptr;
    EarlyNotices* early = nullptr;
    std::shared_ptr<DirectBoard> board;
  };
  explicit DirectMemory(Place place) : place_(std::move(place)) {}
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;
  // Nothing of the communicator is pending on the device. What peers still map of scratch after a second is kept until
  // the process ends.
  ~DirectMemory();

  // How streams of different processes reach each other here.
  static StreamWay way() { return {UINT64_MAX, DirectBoard::most_messages}; }

  // A call of this rank, as the device sees its buffers.
  struct Call {
    DeviceTables tables;
    uint32_t device = 0;
    const StreamPlan* plan = nullptr;  // nullptr: there is none, for the reason in `refusal`
    const void* in = nullptr;
    const void* out = nullptr;
    const void* scratch = nullptr;
    std::string refusal;    // why this rank cannot; "": it can, for all that is known
    bool recorded = false;  // for replays, which read what is mapped now
  };
  using Until = std::function<void(const std::function<bool()>&)>;
  // Meets all ranks of the communicator: "" when the call goes directly, else whose refusal it was and why. `until`
  // waits until its argument says true, or throws; `idle` until nothing of the communicator is pending on the device.
  std::string agree(Call call, const Until& until, const std::function<void()>& idle);
  // Of the call that goes directly: for what this rank sends `data` is nullptr, it is read where it is.
  StreamSlot slot(uint32_t peer, uint32_t lane, bool outgoing, uint64_t number) const;
  // That call is in the stream, or never will be.
  void settled() { busy_ = false; }

  // Unmaps what others withdraw. Nothing is pending on the device. Cheap when there is nothing to do.
  void heed();
  // The scratch that was handed out grows: it is released when nobody maps it any more. False: it was not handed out.
  bool retire_scratch(const DeviceTables& tables, void* scratch);
  // No call will follow: unmaps what is of others.
  void close();
  // Having closed: does nobody map this rank's scratch any more? Waits for that at most a second.
  bool is_scratch_free() const;
  // Has a stream come further since the last call?
  bool moved();
  // Gives streams whatever they wait for.
  void let_go();

  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  const std::map<uint32_t, Traffic>& traffic() const { return traffic_; }

 private:
  using Buffer = std::pair<uint32_t, uint64_t>;  // owner, buffer id
  struct Import {
    void* base = nullptr;
    uint64_t bytes = 0;
    bool scratch = false;
  };
  struct Letter {
    uint32_t to = 0;
    ChannelNotice notice;
    Descriptor memory;
  };
  bool is_remote(uint32_t peer) const { return !place_.topology->same_process(place_.rank, peer); }
  void offer(const Call& call, const std::function<void()>& idle);
  void take(const Call& call, const Until& until, const std::function<void()>& idle);
  void hand_out(const Call& call, uint32_t peer, uint64_t buffer_id, const void* address, bool scratch);
  bool hear(const Buffer& wanted);
  void map(const Call& call, const Buffer& buffer);
  void unmap(const Buffer& buffer);
  void release_retired();
  void send_letters();
  void for_each_awaited(const std::function<void(uint32_t* word)>& visit) const;

  Place place_;
  DeviceTables tables_;
  std::optional<MappedMemory> words_;
  std::list<Letter> letters_;  // not sent yet
  std::map<Buffer, MemoryExchange::Received> heard_;
  std::map<Buffer, Import> imports_;
  std::map<Buffer, std::string> refused_;                             // what could not be mapped, and why
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, void*> places_;  // peer, lane, number: what the call reads
  bool busy_ = false;                                                 // places_ are in use
  bool scratch_out_ = false;                                          // the scratch of this rank was handed out
  std::vector<void*> retired_;                                        // former scratch that was handed out
  bool retired_unmapped_ = false;                                     // nobody maps it any more
  bool recorded_ = false;  // replays read former scratch, too: it stays mapped
  uint64_t seen_ = 0;      // what the words held
  std::map<uint32_t, Traffic> traffic_;
};

}  // namespace tutti::core
