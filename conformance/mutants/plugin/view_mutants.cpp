// SPDX-License-Identifier: Apache-2.0
//
// Mutants of view/1 and wait_fd/1. faults.cpp describes each.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

struct ViewMoves : Link {
  using Link::Link;
  std::deque<std::vector<uint8_t>> shown;
  const void* try_receive(uint32_t lane, uint64_t* bytes) noexcept override {
    const auto* at = static_cast<const uint8_t*>(Link::try_receive(lane, bytes));
    if (!at || *bytes == 0) return at;
    shown.emplace_back(at, at + *bytes);
    return reached(), shown.back().data();
  }
};
// One buffer per lane: the next message is copied over the one that is being read.
struct ViewReused : Link {
  using Link::Link;
  struct Shown {
    std::vector<uint8_t> buffer;
    uint64_t bytes = 0;
    bool holds = false;
  };
  std::map<uint32_t, Shown> lanes;
  const void* try_receive(uint32_t lane, uint64_t* bytes) noexcept override {
    Shown& s = lanes[lane];
    uint64_t n = 0;
    if (!s.holds) {
      const auto* at = static_cast<const uint8_t*>(Link::try_receive(lane, &n));
      if (!at) return nullptr;
      s.buffer.resize(1 << 16);
      std::memcpy(s.buffer.data(), at, n);
      s.bytes = n, s.holds = true;
      endpoint_lanes().push_back(this);
    }
    *bytes = s.bytes;
    return s.buffer.data();
  }
  void release(uint32_t lane) noexcept override {
    if (std::exchange(lanes[lane].holds, false)) Link::release(lane);
  }
  // The sender, in the same process, writes over what is shown.
  void commit(uint32_t lane, uint64_t bytes) noexcept override {
    Link::commit(lane, bytes);
    for (ViewReused* other : endpoint_lanes())
      if (other->endpoint.rank == peer && other->peer == endpoint.rank && other->lanes[lane].holds && bytes > 0)
        reached(), other->lanes[lane].buffer[0] ^= 0xff;
  }
  static std::vector<ViewReused*>& endpoint_lanes() {
    static std::vector<ViewReused*> all;
    return all;
  }
  ~ViewReused() override { std::erase(endpoint_lanes(), this); }
};
struct ViewOfNothing : Link {
  using Link::Link;
  const void* try_receive(uint32_t lane, uint64_t* bytes) noexcept override {
    const void* at = Link::try_receive(lane, bytes);
    return at && *bytes == 0 ? (reached(), nullptr) : at;
  }
};
struct ReserveUnaligned : Link {
  using Link::Link;
  std::map<uint32_t, std::vector<uint8_t>> rooms;
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept override {
    if (bytes < 64) return rooms.erase(lane), Link::try_reserve(lane, bytes);
    if (!Link::try_reserve(lane, bytes)) return nullptr;
    auto& room = rooms[lane];
    if (room.size() < bytes + 128) room.resize(bytes + 128);
    return reached(), room.data() + 8 + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64);
  }
  void commit(uint32_t lane, uint64_t bytes) noexcept override {
    if (const auto room = rooms.find(lane); room != rooms.end())
      std::memcpy(Link::try_reserve(lane, bytes),
                  room->second.data() + 8 + (64 - reinterpret_cast<uintptr_t>(room->second.data()) % 64), bytes);
    Link::commit(lane, bytes);
  }
};
struct SentBeforeCommit : Link {
  using Link::Link;
  std::map<uint32_t, uint8_t*> rooms;
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept override {
    if (bytes <= 64) return Link::try_reserve(lane, bytes);
    auto& room = rooms[lane];
    if (!room) {
      room = static_cast<uint8_t*>(Link::try_reserve(lane, bytes));
      if (room) reached(), Link::commit(lane, bytes);
    }
    return room;
  }
  void commit(uint32_t lane, uint64_t bytes) noexcept override {
    if (rooms[lane])
      rooms[lane] = nullptr;
    else
      Link::commit(lane, bytes);
  }
};
struct CreditLost : Link {
  using Link::Link;
  std::map<uint32_t, int> sent;
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept override {
    return sent[lane] < 100 ? Link::try_reserve(lane, bytes) : (reached(), nullptr);
  }
  void commit(uint32_t lane, uint64_t bytes) noexcept override {
    ++sent[lane];
    Link::commit(lane, bytes);
  }
};
struct PostedLanes : Watching {
  using Watching::Watching;
  std::map<std::pair<uint32_t, uint32_t>, bool> posted;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (is_send(t)) posted[{link_of(t).peer, t.lane}] = true;
    return true;
  }
};
struct ViewOrPost : Link {
  using Link::Link;
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept override {
    if (static_cast<PostedLanes&>(endpoint).posted[{peer, lane}]) return reached(), nullptr;
    return Link::try_reserve(lane, bytes);
  }
};
struct ReleasedTooSoon : Link {
  using Link::Link;
  uint64_t last = 0;
  tutti_status send_region(uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                           uint64_t* ticket) noexcept override {
    const tutti_status status = Link::send_region(lane, region, offset, bytes, ticket);
    if (status == TUTTI_OK) last = *ticket + 1, reached();
    return status;
  }
  uint64_t released(uint32_t) noexcept override { return last; }
};
struct RoomOverrun : Link {
  using Link::Link;
  const void* try_receive_into(uint32_t lane, void* room, uint64_t* bytes) noexcept override {
    const uint64_t fits = *bytes;
    const void* at = Link::try_receive(lane, bytes);
    if (at && *bytes > fits) reached(), std::memcpy(room, at, fits);
    return at;
  }
};
struct OneMarkForAllLanes : Link {
  using Link::Link;
  void set_mark(uint32_t, uint32_t mark) noexcept override {
    reached();
    for (uint32_t lane = 0; lane < endpoint.lanes; ++lane) Link::set_mark(lane, mark);
  }
};
struct MarkOfTheFirst : Link {
  using Link::Link;
  std::map<uint32_t, uint32_t> first;
  uint32_t get_mark(uint32_t lane) noexcept override {
    return reached(), first.emplace(lane, Link::get_mark(lane)).first->second;
  }
};
struct GivenUp : Endpoint {
  using Endpoint::Endpoint;
  bool given_up = false;
  tutti_status fail_peer(uint32_t peer) override { return given_up = true, Endpoint::fail_peer(peer); }
};
struct ReserveAfterFailure : Link {
  using Link::Link;
  uint8_t room[64];
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept override {
    if (static_cast<GivenUp&>(endpoint).given_up && bytes <= sizeof room) return reached(), room;
    return Link::try_reserve(lane, bytes);
  }
};

// ---- sleeping
struct DescriptorEachTime : Endpoint {
  using Endpoint::Endpoint;
  tutti_status get_fd(int32_t* fd) override {
    const tutti_status status = Endpoint::get_fd(fd);
    if (status == TUTTI_OK) *fd = dup(*fd), reached();
    return status;
  }
};
struct OwnDescriptor : Endpoint {
  using Endpoint::Endpoint;
  int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), both = -1;
  ~OwnDescriptor() override {
    close(event);
    if (both >= 0) close(both);
  }
  void ring() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event, &one, sizeof one);
  }
  // A descriptor that is readable when the wrapped one or our own is.
  tutti_status get_fd(int32_t* fd) override {
    int32_t inner = -1;
    const tutti_status status = Endpoint::get_fd(&inner);
    if (status != TUTTI_OK) return status;
    if (both < 0) {
      both = epoll_create1(EPOLL_CLOEXEC);
      epoll_event on{EPOLLIN, {}};
      epoll_ctl(both, EPOLL_CTL_ADD, inner, &on);
      epoll_ctl(both, EPOLL_CTL_ADD, event, &on);
    }
    *fd = both;
    return TUTTI_OK;
  }
};
struct NeverReadable : OwnDescriptor {
  using OwnDescriptor::OwnDescriptor;
  tutti_status get_fd(int32_t* fd) override { return *fd = event, reached(), TUTTI_OK; }
};
struct DeafToRoom : OwnDescriptor {
  using OwnDescriptor::OwnDescriptor;
  bool refused = false;
  int32_t inner = -1;
  tutti_status post(const tutti_transfer& transfer) override {
    const tutti_status status = OwnDescriptor::post(transfer);
    refused = status == TUTTI_AGAIN;
    return status;
  }
  void listen(int operation) {
    epoll_event on{EPOLLIN, {}};
    if (inner < 0) Endpoint::get_fd(&inner);
    if (both >= 0) epoll_ctl(both, operation, inner, &on);
  }
  tutti_status arm() override {
    const tutti_status status = Endpoint::arm();
    if (status == TUTTI_OK && refused) listen(EPOLL_CTL_DEL), reached();
    return status;
  }
  void disarm() noexcept override {
    listen(EPOLL_CTL_ADD);
    Endpoint::disarm();
  }
};
struct ArmForgets : Endpoint {
  using Endpoint::Endpoint;
  tutti_status arm() override {
    const tutti_status status = Endpoint::arm();
    if (status == TUTTI_AGAIN) reached();
    return status == TUTTI_AGAIN ? TUTTI_OK : status;
  }
};
// What comes between its look at the queue and its end is slept through.
struct ArmLooksFirst : Endpoint {
  using Endpoint::Endpoint;
  // What comes within a short time after the look at the queue wakes nobody. With nothing in that time it is whole.
  tutti_status arm() override {
    const tutti_status looked = Endpoint::arm();
    if (looked != TUTTI_OK) return looked;
    usleep(20);  // others run meanwhile, even where there is one core for all
    int32_t fd = -1;
    if (get_fd(&fd) != TUTTI_OK) return looked;
    pollfd poll_fd{fd, POLLIN, 0};
    if (poll(&poll_fd, 1, 0) > 0) reached(), Endpoint::disarm();
    return TUTTI_OK;
  }
};
struct AlwaysReadable : OwnDescriptor {
  using OwnDescriptor::OwnDescriptor;
  tutti_status arm() override {
    const tutti_status status = Endpoint::arm();
    if (status == TUTTI_OK) ring(), reached();
    return status;
  }
};
struct DisarmForgets : OwnDescriptor {
  using OwnDescriptor::OwnDescriptor;
  void disarm() noexcept override {
    ring(), reached();
    Endpoint::disarm();
  }
};

constexpr Maker makers[] = {
    {"view-moves", make<With<Endpoint, ViewMoves>>},
    {"view-reused", make<With<Endpoint, ViewReused>>},
    {"view-of-nothing", make<With<Endpoint, ViewOfNothing>>},
    {"reserve-unaligned", make<With<Endpoint, ReserveUnaligned>>},
    {"sent-before-commit", make<With<Endpoint, SentBeforeCommit>>},
    {"credit-lost", make<With<Endpoint, CreditLost>>},
    {"view-or-post", make<With<PostedLanes, ViewOrPost>>},
    {"released-too-soon", make<With<Endpoint, ReleasedTooSoon>>},
    {"reserve-after-failure", make<With<GivenUp, ReserveAfterFailure>>},
    {"room-overrun", make<With<Endpoint, RoomOverrun>>},
    {"one-mark-for-all-lanes", make<With<Endpoint, OneMarkForAllLanes>>},
    {"mark-of-the-first", make<With<Endpoint, MarkOfTheFirst>>},
    {"descriptor-each-time", make<With<DescriptorEachTime>>},
    {"never-readable", make<With<NeverReadable>>},
    {"deaf-to-room", make<With<DeafToRoom>>},
    {"arm-forgets", make<With<ArmForgets>>},
    {"arm-looks-first", make<With<ArmLooksFirst>>},
    {"always-readable", make<With<AlwaysReadable>>},
    {"disarm-forgets", make<With<DisarmForgets>>},
};

}  // namespace

std::unique_ptr<sdk::Interposer> make_view_mutant(std::string_view name) {
  for (const Maker& maker : makers)
    if (maker.name == name) return maker.make();
  return nullptr;
}

}  // namespace tutti::mutants
