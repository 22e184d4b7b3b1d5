// SPDX-License-Identifier: Apache-2.0
//
// Comms and what is under way on them. A pair of ranks has two comms in each direction: one carries frames, which are
// copied at both ends and always received; the other carries the bytes of long messages, each of which the receiver has
// asked for. The oldest request of a comm is tested first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tutti/sdk/ring.hpp>
#include <vector>

#include "memory.hpp"

namespace tutti::nccl {

// A comm that is closed, with its registrations, when it goes.
class Comm {
 public:
  Comm() = default;
  Comm(Network& network, std::shared_ptr<Context> context, std::shared_ptr<Registrations> registrations, void* comm,
       bool sends)
      : network_(&network),
        context_(std::move(context)),
        registrations_(std::move(registrations)),
        comm_(comm),
        sends_(sends) {}
  Comm(Comm&& other) noexcept { *this = std::move(other); }
  Comm& operator=(Comm&& other) noexcept;
  ~Comm() { close(); }

  void* get() const { return comm_; }
  bool is_open() const { return comm_ != nullptr; }
  void close() noexcept;
  Network& network() const { return *network_; }
  void* handle(const Region& region) const { return registrations_->handle(region, comm_); }

 private:
  Network* network_ = nullptr;
  std::shared_ptr<Context> context_;
  std::shared_ptr<Registrations> registrations_;
  void* comm_ = nullptr;
  bool sends_ = false;
};

// Rooms of equal size in registered memory, made when they are first needed.
class Rooms {
 public:
  Rooms(size_t n, uint64_t bytes) : n_(n), bytes_(bytes) {}
  // To be called before their comm is closed.
  char* room(size_t i) {
    if (!memory_) make();
    return region_.address + i * bytes_;
  }
  const Region& region() const { return region_; }
  size_t n() const { return n_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void make();
  const size_t n_;
  const uint64_t bytes_;
  std::unique_ptr<char[]> memory_;
  Region region_;
};

// The SEND that is over when something has left: its lane, and its number on that lane.
struct Ticket {
  uint32_t lane = UINT32_MAX;  // UINT32_MAX: there is none
  uint32_t index = 0;
};

// Room for the sizes of a group, and for a plugin that writes more than it should.
inline constexpr size_t kSizes = 64;

// Frames of at most `frame_bytes`, in order.
class FrameSender {
 public:
  static constexpr size_t kRooms = 8;
  FrameSender(Comm comm, uint64_t frame_bytes)
      : comm_(std::move(comm)), rooms_(std::make_unique<Rooms>(kRooms, frame_bytes)) {}
  // Room for one more frame, or nullptr.
  char* room() { return filled_ - done_ < kRooms ? rooms_->room(filled_ % kRooms) : nullptr; }
  void commit(uint64_t bytes, Ticket ticket) { slots_[filled_++ % kRooms] = {bytes, ticket, nullptr}; }
  // Begins what can be begun. Returns the ticket of a frame that has left; nothing when there is none.
  std::optional<Ticket> advance();
  bool is_idle() const { return filled_ == done_; }
  // The frames that have not left.
  uint32_t left() const { return filled_ - done_; }
  // Does the plugin take no more, though no request is under way? The peer has no receive for the next frame.
  bool is_stuck() const { return begun_ == done_ && begun_ != filled_; }
  // Closes the comm, once the requests are done that are under way.
  void close() noexcept;
  Comm& comm() { return comm_; }
  const Comm& comm() const { return comm_; }

 private:
  struct Slot {
    uint64_t bytes;
    Ticket ticket;
    void* request;
  };
  Comm comm_;
  std::unique_ptr<Rooms> rooms_;
  std::array<Slot, kRooms> slots_{};
  uint32_t filled_ = 0, begun_ = 0, done_ = 0;
};

class FrameReceiver {
 public:
  static constexpr size_t kRooms = 8;
  FrameReceiver(Comm comm, uint64_t frame_bytes)
      : comm_(std::move(comm)), rooms_(std::make_unique<Rooms>(kRooms, frame_bytes)) {}
  // Begins a receive for each free room.
  void post();
  // The next frame, until release(); nothing when there is none.
  std::optional<std::string_view> receive();
  void release() { ++done_; }
  // No frame is expected any more.
  void stop() { stopped_ = true; }
  // Closes the comm, once the requests are done that are under way.
  void close() noexcept;
  Comm& comm() { return comm_; }
  const Comm& comm() const { return comm_; }

 private:
  Comm comm_;
  std::unique_ptr<Rooms> rooms_;
  std::array<void*, kRooms> requests_{};
  uint32_t begun_ = 0, done_ = 0;
  bool stopped_ = false;
};

// A transfer of the core.
struct Posted {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
  uint32_t mark = 0;
  const Region* region = nullptr;
};
// The bytes of a message, of which the receiver knows the tag.
struct Bulk {
  Posted transfer;
  Ticket ticket;
  uint32_t number = 0;  // of its lane's messages
  int tag = 0;
};

// Messages that leave from the core's memory if it is registered, else from a room that they are copied to.
class BulkSender {
 public:
  static constexpr size_t kRooms = 4;
  BulkSender(Comm comm, uint64_t fragment_bytes)
      : comm_(std::move(comm)), rooms_(kRooms, fragment_bytes), most_(max_requests(comm_.network().version())) {}
  void push(const Bulk& bulk) { waiting_.push(bulk); }
  std::optional<Bulk> advance();  // one that has left
  bool is_idle() const { return waiting_.empty() && begun_.empty(); }
  Comm& comm() { return comm_; }
  const Comm& comm() const { return comm_; }

 private:
  struct Begun {
    Bulk bulk;
    void* request;
    bool in_room;
  };
  bool begin(const Bulk& bulk);
  Comm comm_;
  Rooms rooms_;
  const size_t most_;
  sdk::Ring<Bulk> waiting_;
  sdk::Ring<Begun> begun_;
  Network::Patience patience_;
  size_t next_room_ = 0, rooms_taken_ = 0;
};

class BulkReceiver {
 public:
  static constexpr size_t kRooms = 4;
  // At most `group` receives have one request.
  BulkReceiver(Comm comm, uint64_t fragment_bytes, uint32_t group)
      : comm_(std::move(comm)),
        rooms_(kRooms, fragment_bytes),
        most_(max_requests(comm_.network().version())),
        group_(std::min<uint32_t>(group, kMostInGroup)) {}
  // Its tag is set here.
  void push(const Bulk& bulk) { waiting_.push(bulk); }
  // Begins receives. `begun(bulk)` is called for each, whose sender may now send.
  template <typename Begun>
  void begin(Begun&& begun) {
    while (!waiting_.empty() && begin_group())
      for (const Bulk& bulk : groups_[groups_.size() - 1].bulks) begun(bulk);
  }
  // The bulks of a request that is over; empty when there is none. Throws Error where a size is wrong.
  std::vector<Bulk> advance();
  bool is_idle() const { return waiting_.empty() && groups_.empty(); }
  Comm& comm() { return comm_; }
  const Comm& comm() const { return comm_; }

 private:
  static constexpr uint32_t kMostInGroup = 8;
  struct Group {
    std::vector<Bulk> bulks;
    std::vector<char*> rooms;  // of those that are copied out of one
    void* request = nullptr;
  };
  bool begin_group();
  Comm comm_;
  Rooms rooms_;
  const size_t most_;
  const uint32_t group_;
  sdk::Ring<Bulk> waiting_;
  sdk::Ring<Group> groups_;
  Network::Patience patience_;
  std::vector<Network::Piece> pieces_;
  size_t next_room_ = 0, rooms_taken_ = 0;
  uint32_t next_tag_ = 0;
};

}  // namespace tutti::nccl
