// SPDX-License-Identifier: Apache-2.0
//
// Windows: memory that all ranks of a communicator have registered together (tutti_comm_register). Streams of other
// processes of the host read it in place, without slots. Exports and imports happen once, when the ranks register, so a
// call needs no message to decide that it uses windows: each rank looks at its own buffers.
//
// A call uses windows when the buffers that every rank passes to it lie in windows. They lie at the same offset of the
// same window on all ranks, so a rank knows where its peers' buffers are. Which bytes of which buffer a peer's message
// carries depends on the plan alone: the ranks tell each other in the first call of a shape (StreamPlans::agree).
//
// Two flags order a message. One side waits for a flag and resets it; the other side sets it:
//
//   sender     empty = 0, full = 1; before it overwrites what it sends, and at the operation's end: wait empty = 1
//   receiver   wait full = 1, full = 0, read in place, empty = 1
//
// The library's scratch is read in the same way. A rank shares it when it grows.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/fabric/window.hpp"
#include "stream/device_gate.hpp"
#include "stream/peer_memory.hpp"
#include "stream/stream_channel.hpp"
#include "stream/stream_plan.hpp"
#include "stream/streams.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

// Where a call's buffers lie in windows. A buffer that the call's rule does not ask for has no window.
struct WindowPlaces {
  struct WindowOffset {
    const tutti_window* window = nullptr;
    uint64_t offset = 0;
  };
  WindowOffset in, out;
  bool any() const { return in.window || out.window; }
  uint64_t hash() const;  // the same on all ranks of a right call; 0: the call uses no windows
};
// The buffers, 1 << TUTTI_BUFFER_*, that every rank of such a call has and that decide whether it uses windows. 0: such
// a call never does.
uint32_t deciding_buffers(const Shape& shape);

// One message of a plan whose bytes the receiver reads in place. Travels between ranks.
struct WindowMessage {
  uint32_t peer = 0, lane = 0, number = 0;
  uint32_t buffer = 0;  // TUTTI_BUFFER_*, of the sender
  uint64_t offset = 0, bytes = 0;
  bool operator==(const WindowMessage&) const = default;
  static void fields(auto& wire, auto& message) {
    wire(message.peer, message.lane, message.number, Field("buffer", message.buffer, 0, TUTTI_BUFFER_SCRATCH),
         message.offset, message.bytes);
  }
};
// The messages that a plan receives: by the place of their way in the plan's traffic, and by number.
struct WindowTable {
  std::vector<std::vector<WindowMessage>> incoming;
};
// The messages that a rank's plan sends to other processes. Throws Failure where windows cannot carry them.
std::vector<WindowMessage> window_messages(const StreamPlan& plan, const Topology& topology, uint32_t rank);

// A rank's end of the windows of one communicator on its device. The owner serialises all calls.
class Windows {
 public:
  static constexpr const char* carrier = "window";
  static constexpr uint32_t most_messages = 32;  // of an operation along one way (peer, lane, direction)
  Windows(const StreamSetup& setup, PeerMemory& memory, DeviceGate::User& gate);
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // How streams of different processes reach each other here.
  static StreamWay way() { return {UINT64_MAX, most_messages}; }

  // Waits until its argument says true, or throws.
  using Until = Streams::Until;
  // Collective: exports the window to the other ranks and imports theirs. Returns "", or why this rank cannot; the
  // ranks then agree (the caller's part), and one that could calls drop().
  std::string share(tutti_window& window, const Until& until);
  void drop(tutti_window& window, const Until& until);

  // Collective in the same way: the ranks whose scratch grows, to `bytes` by rank (0: it stays), make and share it.
  // Nothing changes until adopt_scratch(). `shared`: all ranks could.
  std::string offer_scratch(const std::vector<uint64_t>& bytes, const Until& until);
  void adopt_scratch(bool shared, const Until& until);
  // The scratch that a peer has offered last.
  uint64_t offered_bytes(uint32_t peer) const { return (next_.of[peer] ? next_ : scratch_).of[peer].bytes; }
  uint64_t scratch_bytes() const { return scratch_.bytes; }
  std::byte* scratch() const { return scratch_.own; }
  // Graphs have addresses of the present scratch: it stays, here and in the mappings of peers.
  void keep_scratch() { keeps_ = true; }

  // Makes the channel of a way of a plan's traffic, or has it serve as many messages as that way has.
  StreamChannel& open(const StreamTraffic& way, std::unique_ptr<StreamChannel>& channel) const;
  // Message `number` along that way of the plan's traffic, in a call whose buffers are at these places. nullptr: it is
  // outgoing, or empty.
  void* data(const StreamPlan& plan, const WindowPlaces& places, uint32_t way, uint64_t number) const;
  // No call will follow, the device has come to its end, and there are no channels any more: unmaps memory of others,
  // and takes back this rank's.
  void close();
  // Releases what was taken back and no peer has mapped any more.
  void release_pending() {
    if (!memory_.all_released()) gate_.try_run([this] { memory_.release_pending(); });
  }
  // Is there anything to do for close()?
  bool is_open() const { return exchanges_ > 0; }

 private:
  // Memory that ranks share with all others: `of` is by rank what this rank has mapped.
  struct Shared {
    std::byte* own = nullptr;  // that the device has allocated
    uint64_t bytes = 0;
    std::vector<PeerRegion> shares;
    std::vector<PeerRegion> of;
  };
  std::string exchange(std::byte* address, const std::vector<uint64_t>& bytes, const std::string& refusal,
                       const Until& until, Shared* made);
  bool is_decided(uint32_t peer);
  bool open_flags(uint32_t peer, uint32_t number, PeerRegion& coming);
  void synchronise(const Until& until, const std::function<void()>& body);
  void close(std::vector<PeerRegion>& mappings);
  void take_back(Shared& shared);

  const StreamSetup& setup_;
  PeerMemory& memory_;
  DeviceGate::User& gate_;
  std::vector<uint32_t> remote_;        // ranks of other processes
  uint32_t exchanges_ = 0;              // so far; the same on all ranks
  std::vector<PeerRegion> flags_;       // by rank
  std::map<uint64_t, Shared> windows_;  // by the window's id
  Shared scratch_, next_;
  std::vector<Shared> kept_;
  bool keeps_ = false;
};

// One way of the messages that are read in place: message k of each operation has place k.
class WindowChannel final : public StreamChannel {
 public:
  // The `way`-th of those between two ranks, whose flags these are.
  WindowChannel(const PeerRegion& flags, bool outgoing, uint64_t way) : StreamChannel(flags.peer, outgoing) {
    const uint64_t offset = way * flags_bytes(Windows::most_messages);
    init(nullptr, flags.host + offset, flags.device + offset, 0);
  }
  void reserve(uint64_t messages) { places_ = std::max(places_, messages); }
  void announce(uint64_t bytes, uint64_t, std::optional<uint64_t>) override { bytes_ += bytes; }
  const char* carrier() const override { return Windows::carrier; }
};

}  // namespace tutti::core
