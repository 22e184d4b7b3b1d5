// SPDX-License-Identifier: Apache-2.0
//
// Windows: memory that all ranks of a communicator have registered together (tutti_comm_register). Streams of other
// processes of the host read it in place, without slots. Exports and imports happen once, when the ranks register, so a
// call needs no message to decide that it uses windows: each rank looks at its own buffers.
//
// A call uses windows when the buffers that every rank passes to it lie in windows. They lie at the same offset of the
// same window on all ranks, so a rank knows where its peers' buffers are. Which bytes of which buffer a peer's message
// carries depends on the plan alone: the ranks tell each other in the first call of a shape (StreamRunner::settle).
//
// Two flags order a message. One side waits for a flag and resets it; the other side sets it:
//
//   sender     empty = 0, full = 1; before it overwrites what it sends, and at the operation's end: wait empty = 1
//   receiver   wait full = 1, full = 0, read in place, empty = 1
//
// The library's scratch is read in the same way. It is exchanged when it grows.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/window.hpp"
#include "stream/channel_opening.hpp"
#include "stream/device_gate.hpp"
#include "stream/mapped_memory.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {

// Where a call's buffers lie in windows. A buffer that the call's rule does not ask for has no window.
struct WindowPlaces {
  struct Place {
    const tutti_window* window = nullptr;
    uint64_t offset = 0;
  };
  Place in, out;
  bool any() const { return in.window || out.window; }
  uint64_t hash() const;  // the same on all ranks of a right call; 0: the call uses no windows
};
// The buffers, 1 << TUTTI_BUFFER_*, that every rank of such a call has and that decide whether it uses windows. 0: such
// a call never does.
uint32_t deciding_buffers(const Shape& shape);

// One message of a plan whose bytes the receiver reads in place. Travels between ranks: plain data.
struct WindowMessage {
  uint32_t peer = 0, lane = 0, number = 0;
  uint32_t buffer = 0;  // TUTTI_BUFFER_*, of the sender
  uint64_t offset = 0, bytes = 0;
  bool operator==(const WindowMessage&) const = default;
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
  struct Place {
    uint32_t rank = 0;
    const Topology* topology = nullptr;
    MemoryExchange* exchange = nullptr;
    EarlyNotices* early = nullptr;
    uint32_t lanes = 0;
    DeviceGate::User* gate = nullptr;
  };
  explicit Windows(Place place) : place_(place) {}
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // How streams of different processes reach each other here.
  static StreamWay way() { return {UINT64_MAX, most_messages}; }

  // Waits until its argument says true, or throws.
  using Until = std::function<void(const std::function<bool()>&)>;
  // Collective: exports the window to the other ranks and imports theirs. Returns "", or why this rank cannot; the
  // ranks then agree (the caller's part), and one that could calls drop().
  std::string share(tutti_window& window, const Until& until);
  void drop(tutti_window& window, const Until& until);

  // Collective in the same way: makes scratch of `bytes` (0: this rank keeps what it has) and exchanges it. Nothing
  // changes until adopt_scratch(). `shared`: all ranks could.
  std::string offer_scratch(const DeviceMemory& where, uint64_t bytes, const Until& until);
  void adopt_scratch(bool shared, const Until& until);
  // The scratch that a peer has offered last.
  uint64_t offered_bytes(uint32_t peer) const;
  // All ranks have come to a meeting after adopt_scratch(): former scratch is not mapped any more.
  void release_former();
  uint64_t scratch_bytes() const { return scratch_.bytes; }
  std::byte* scratch() const { return scratch_.own; }
  // Graphs have addresses of the present scratch: it stays, here and in the mappings of peers.
  void keep_scratch() { keeps_ = true; }

  // A plan's flags may be waited for from now on.
  void use(const StreamPlan& plan);
  // Of message `number` along that way of the plan's traffic, in a call whose buffers are at these places.
  StreamSlot slot(const StreamPlan& plan, const WindowPlaces& places, uint32_t way, uint64_t number) const;
  // Counts what an operation carries.
  void count(const StreamPlan& plan);
  // Has a stream come further since the last call?
  bool moved();
  // Gives streams whatever they wait for.
  void let_go();
  // Is memory of others mapped?
  bool has_imports() const { return !imports_.empty(); }
  // Unmaps it: no call will follow. To be called where the device may be waited for, as are the two below.
  void close();
  // Releases this rank's scratch: nobody maps it.
  void release_scratch();
  bool has_scratch() const { return scratch_.own || next_.own || !former_.empty(); }

  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  const std::map<uint32_t, Traffic>& traffic() const { return traffic_; }

 private:
  using Buffer = std::pair<uint32_t, uint64_t>;  // owner, buffer id
  struct Import {
    void* base = nullptr;
    uint32_t uses = 0;
  };
  struct Scratch {
    std::byte* own = nullptr;
    uint64_t bytes = 0;
    std::vector<std::byte*> bases;  // by rank
    std::vector<Buffer> imports;
  };
  struct Letter {
    uint32_t to = 0;
    ChannelNotice notice;
    std::vector<std::shared_ptr<Descriptor>> descriptors;
  };
  bool is_remote(uint32_t peer) const { return !place_.topology->same_process(place_.rank, peer); }
  std::string exchange(const DeviceMemory& where, std::byte* address, const Until& until,
                       std::vector<std::byte*>* bases, std::vector<Buffer>* imports);
  void write_letters(const DeviceMemory& where, const std::byte* address);
  bool read_letters();
  std::byte* import(const DeviceMemory& where, MemoryExchange::Received& letter, std::vector<Buffer>* imports);
  void close_imports(std::vector<Buffer>& imports);
  // Runs what may wait for the whole device, once that may be.
  void synchronise(const Until& until, const std::function<void()>& body);
  uint32_t* flag(uint32_t from, uint32_t to, uint32_t lane, uint64_t number, bool full) const;

  Place place_;
  DeviceTables tables_;
  std::shared_ptr<Descriptor> flags_file_;
  std::optional<MappedMemory> flags_;  // [from][to][lane][number]{empty, full}, for all ranks of the communicator
  std::vector<Letter> letters_;        // not sent yet
  std::map<uint32_t, MemoryExchange::Received> heard_;
  std::map<Buffer, Import> imports_;
  std::map<uint64_t, std::vector<Buffer>> windows_;  // window id, what it imported
  Scratch scratch_, next_;
  std::vector<std::byte*> former_;
  std::vector<Scratch> kept_;
  bool keeps_ = false;
  std::vector<uint64_t> awaited_;  // flags, by their index
  uint64_t seen_ = 0;              // what they held
  std::map<uint32_t, Traffic> traffic_;
};

}  // namespace tutti::core
