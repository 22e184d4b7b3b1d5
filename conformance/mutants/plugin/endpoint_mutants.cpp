// SPDX-License-Identifier: Apache-2.0
//
// Mutants that err about endpoints: opening, connecting, control messages, failures, memory, threads. faults.cpp
// describes each.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <tutti/sdk/pair_messages.hpp>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

struct ErrorWithoutText : Watching {
  using Watching::Watching;
  tutti_status receive_pair(uint32_t peer, const void* data, uint64_t bytes) override {
    if (bytes == 0) return reached(), TUTTI_INVALID_ARGUMENT;
    return Endpoint::receive_pair(peer, data, bytes);
  }
};
struct ErrorFromAnotherThread : Watching {
  using Watching::Watching;
  tutti_status receive_pair(uint32_t peer, const void* data, uint64_t bytes) override {
    if (bytes > 0) return Endpoint::receive_pair(peer, data, bytes);
    std::thread([] { sdk::report(TUTTI_INVALID_ARGUMENT, "mutant: an empty pair message"); }).join();
    return reached(), TUTTI_INVALID_ARGUMENT;
  }
};
struct LooksUpWhilePosting : Watching {
  using Watching::Watching;
  bool before(tutti_transfer&, tutti_status&) override {
    sdk::host->find_interface(sdk::host->self, "shm", TUTTI_TRANSPORT_ID);
    return reached(), true;
  }
};
struct LogWithNewline : Watching {
  using Watching::Watching;
  tutti_status connect(uint32_t peer, Link** link) override {
    sdk::log(TUTTI_LOG_DEBUG, "mutant: connecting\n");
    return reached(), Endpoint::connect(peer, link);
  }
};

// ---- opening
struct IgnoresTail : Mutant {
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    tutti_endpoint_config cut = config;
    if (cut.struct_size > sizeof cut) cut.struct_size = sizeof cut, reached();
    return Mutant::open_endpoint(domain, cut, endpoint);
  }
};
struct RefusesLongerStructs : Mutant {
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    if (config.struct_size == sizeof config) return Mutant::open_endpoint(domain, config, endpoint);
    reached();
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "mutant: a config of another size");
  }
};
struct QueryOverfills : Mutant {
  tutti_status query(Domain& domain, tutti_transport_caps* caps) override {
    tutti_transport_caps whole{};
    whole.struct_size = sizeof whole;
    const tutti_status status = Mutant::query(domain, &whole);
    if (caps->struct_size < sizeof whole) reached();
    *caps = whole;
    return status;
  }
};
struct KeepsNamePointer : Mutant {
  struct At : Endpoint {
    const char* name;
    At(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) : Endpoint(d, c, inner), name(c.name) {}
    tutti_status connect(uint32_t peer, Link** link) override {
      reached();
      if (*static_cast<const volatile char*>(name) == 0) return TUTTI_AGAIN;
      return Endpoint::connect(peer, link);
    }
  };
  std::unique_ptr<Endpoint> make_endpoint(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) override {
    return std::make_unique<At>(d, c, inner);
  }
};
struct ControlEndsAtZero : Watching {
  using Watching::Watching;
  tutti_status progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Watching::progress(completions, capacity, n);
    for (uint32_t i = 0; i < *n; ++i) {
      if (completions[i].kind != TUTTI_COMPLETION_CONTROL) continue;
      const uint64_t whole = completions[i].bytes;
      completions[i].bytes = strnlen(static_cast<const char*>(completions[i].data), whole);
      if (completions[i].bytes < whole) reached();
    }
    return status;
  }
};
struct AbortsTheFamily : Mutant {
  static inline std::map<uint64_t, std::set<Endpoint*>> families;
  struct At : Endpoint {
    const uint64_t family;
    At(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) : Endpoint(d, c, inner), family(c.family) {
      families[family].insert(this);
    }
    ~At() override { families[family].erase(this); }
    tutti_status abort() override {
      if (family == 0) return Endpoint::abort();
      reached();
      for (Endpoint* each : families[family])
        if (each != this) static_cast<At*>(each)->Endpoint::abort();
      return Endpoint::abort();
    }
  };
  std::unique_ptr<Endpoint> make_endpoint(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) override {
    return std::make_unique<At>(d, c, inner);
  }
};
struct EightLanes : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (t.lane < 8) return true;
    status = sdk::report(TUTTI_INVALID_ARGUMENT, "mutant: there are eight lanes");
    return reached(), false;
  }
};
struct ListensEverywhere : Mutant {
  struct At : Endpoint {
    int socket_ = -1;
    At(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) : Endpoint(d, c, inner) {
      if (!c.address) return;
      const sockaddr_in anywhere{AF_INET, 0, {INADDR_ANY}, {}};
      socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (bind(socket_, reinterpret_cast<const sockaddr*>(&anywhere), sizeof anywhere) == 0 && listen(socket_, 1) == 0)
        reached();
    }
    ~At() override {
      if (socket_ >= 0) close(socket_);
    }
  };
  std::unique_ptr<Endpoint> make_endpoint(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) override {
    return std::make_unique<At>(d, c, inner);
  }
};
struct LeaksDescriptor : Mutant {
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    [[maybe_unused]] const int lost = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return reached(), Mutant::open_endpoint(domain, config, endpoint);
  }
};
struct LeaksMemory : Mutant {
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    [[maybe_unused]] static void* volatile lost;
    lost = std::malloc(2000);
    return reached(), Mutant::open_endpoint(domain, config, endpoint);
  }
};
struct OneCommunicator : Mutant {
  static inline std::map<uint64_t, int> open_now;
  struct At : Endpoint {
    const uint64_t id;
    At(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner)
        : Endpoint(d, c, inner), id(c.communicator_id) {
      ++open_now[id];
    }
    ~At() override {
      if (--open_now[id] == 0) open_now.erase(id);
    }
  };
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    if (open_now.empty() || open_now.contains(config.communicator_id))
      return Mutant::open_endpoint(domain, config, endpoint);
    reached();
    throw sdk::Error(TUTTI_NO_RESOURCES, "mutant: there is a communicator already");
  }
  std::unique_ptr<Endpoint> make_endpoint(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) override {
    return std::make_unique<At>(d, c, inner);
  }
};

// ---- connecting
// The wrapped endpoint sends its pair messages through `altered`.
template <tutti_status (*altered)(const tutti_pair_messages& to, uint32_t peer, const void* data, uint64_t bytes)>
struct AltersPairMessages : Mutant {
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    static std::deque<tutti_pair_messages> tables;
    tables.push_back({sizeof(tutti_pair_messages), 0, const_cast<tutti_pair_messages*>(config.pair),
                      [](void* self, uint32_t peer, const void* data, uint64_t bytes) {
                        return altered(*static_cast<const tutti_pair_messages*>(self), peer, data, bytes);
                      }});
    tutti_endpoint_config own = config;
    if (own.struct_size > sizeof own) return Mutant::open_endpoint(domain, config, endpoint);
    own.pair = &tables.back();
    return Mutant::open_endpoint(domain, own, endpoint);
  }
};
tutti_status forget_refused(const tutti_pair_messages& to, uint32_t peer, const void* data, uint64_t bytes) {
  const tutti_status status = to.send(to.self, peer, data, bytes);
  return status == TUTTI_AGAIN ? (reached(), TUTTI_OK) : status;
}
tutti_status pad(const tutti_pair_messages& to, uint32_t peer, const void* data, uint64_t) {
  char padded[TUTTI_PAIR_BYTES + 1] = {};
  std::memcpy(padded, data, 1);
  return reached(), to.send(to.self, peer, padded, sizeof padded);
}
tutti_status keep_refusals(const tutti_pair_messages& to, uint32_t peer, const void* data, uint64_t bytes) {
  sdk::PairFormat::Head head{};
  if (bytes >= sizeof head) std::memcpy(&head, data, sizeof head);
  return head.status == TUTTI_SYSTEM ? (reached(), TUTTI_OK) : to.send(to.self, peer, data, bytes);
}
struct RefusalIsALoss : Endpoint {
  using Endpoint::Endpoint;
  tutti_status connect(uint32_t peer, Link** link) override {
    const tutti_status status = Endpoint::connect(peer, link);
    if (status != TUTTI_SYSTEM || peer != 0) return status;
    reached();
    return sdk::report(TUTTI_PEER_FAILED, "mutant: rank 0 is lost");
  }
};
struct ServesStrangersFirst : Mutant {
  struct At : Endpoint {
    int listener = -1, visitor = -1;
    At(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) : Endpoint(d, c, inner) {
      const sockaddr_in here{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
      listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (bind(listener, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0) listen(listener, 8);
    }
    ~At() override {
      for (const int socket : {listener, visitor})
        if (socket >= 0) close(socket);
    }
    tutti_status connect(uint32_t peer, Link** link) override {
      if (visitor < 0 && (visitor = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) reached();
      return visitor >= 0 ? tutti_status{TUTTI_AGAIN} : Endpoint::connect(peer, link);
    }
  };
  std::unique_ptr<Endpoint> make_endpoint(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) override {
    return std::make_unique<At>(d, c, inner);
  }
};
struct AnotherLinkEachTime : Endpoint {
  using Endpoint::Endpoint;
  std::vector<std::unique_ptr<Link>> extra;
  tutti_status connect(uint32_t peer, Link** link) override {
    const bool before = this->link(peer) != nullptr;
    const tutti_status status = Endpoint::connect(peer, link);
    if (status == TUTTI_OK && before) {
      extra.push_back(std::make_unique<Link>(*this, peer, (*link)->inner()));
      *link = extra.back().get();
      reached();
    }
    return status;
  }
};
struct PassiveEndSleeps : Endpoint {
  using Endpoint::Endpoint;
  bool called = false;
  tutti_status connect(uint32_t peer, Link** link) override {
    called = true;
    return Endpoint::connect(peer, link);
  }
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    return called ? Endpoint::progress(records, capacity, n) : (reached(), TUTTI_OK);
  }
};
struct TrustsAnyPairMessage : Endpoint {
  using Endpoint::Endpoint;
  tutti_status receive_pair(uint32_t peer, const void* data, uint64_t bytes) override {
    return Endpoint::receive_pair(peer, data, bytes) < 0 ? (reached(), TUTTI_OK) : TUTTI_OK;
  }
};

// ---- control messages
struct ControlSwapped : Link {
  using Link::Link;
  std::string held;
  int count = 0;
  tutti_status send_control(const void* data, uint64_t bytes) override {
    if (!held.empty()) {
      const tutti_status status = Link::send_control(data, bytes);
      if (status == TUTTI_OK && Link::send_control(held.data(), held.size()) == TUTTI_OK) held.clear();
      return status;
    }
    if (++count % 4 || bytes == 0 || bytes > TUTTI_CONTROL_BYTES) return Link::send_control(data, bytes);
    held.assign(static_cast<const char*>(data), bytes);
    return reached(), TUTTI_OK;
  }
};
struct ControlCut : Link {
  using Link::Link;
  tutti_status send_control(const void* data, uint64_t bytes) override {
    if (bytes > 128 && bytes <= TUTTI_CONTROL_BYTES) bytes = 128, reached();
    return Link::send_control(data, bytes);
  }
};
struct ControlDataReused : Watching {
  using Watching::Watching;
  char data[TUTTI_CONTROL_BYTES] = {};
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Watching::progress(records, std::min(capacity, 1u), n);
    if (*n == 1 && records->kind == TUTTI_COMPLETION_CONTROL && records->bytes > 0) {
      std::memcpy(data, records->data, records->bytes);
      records->data = data;
    }
    return status;
  }
  bool before(tutti_transfer&, tutti_status&) override {
    std::memset(data, '?', sizeof data);
    return reached(), true;
  }
};

// ---- failures and closing
struct IgnoresFailPeer : Endpoint {
  using Endpoint::Endpoint;
  tutti_status fail_peer(uint32_t) override { return reached(), TUTTI_OK; }
};
struct FailPeerIsTold : Watching {
  using Watching::Watching;
  tutti_status fail_peer(uint32_t peer) override {
    more.push_back({TUTTI_COMPLETION_PEER_FAILED, TUTTI_PEER_FAILED, peer, 0, 0, 0, "mutant: given up", 0});
    return reached(), Watching::fail_peer(peer);
  }
};
struct AbortForgets : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer&) override {
    return record.status == TUTTI_ABORTED ? (reached(), false) : true;
  }
};
struct DeafToDeath : Watching {
  using Watching::Watching;
  bool given_up = false;
  tutti_status fail_peer(uint32_t peer) override { return given_up = true, Watching::fail_peer(peer); }
  bool told(tutti_completion& record, const tutti_transfer&) override {
    if (record.status != TUTTI_PEER_FAILED || given_up) return true;
    return reached(), false;
  }
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Watching::progress(records, capacity, n);
    const auto lost = [](const tutti_completion& r) { return r.kind == TUTTI_COMPLETION_PEER_FAILED; };
    const auto end = std::remove_if(records, records + *n, lost);
    if (end != records + *n) reached();
    *n = static_cast<uint32_t>(end - records);
    return status;
  }
};
struct DeathIsNotTold : DeafToDeath {
  using DeafToDeath::DeafToDeath;
  bool told(tutti_completion&, const tutti_transfer&) override { return true; }
};
// Small and large SENDs complete when copied into a queue, which closing drops.
struct CloseDropsQueue : Watching {
  using Watching::Watching;
  struct Copy {
    tutti_transfer transfer;
    std::vector<uint8_t> bytes;
  };
  std::deque<Copy> queue;
  uint64_t calls = 0;
  ~CloseDropsQueue() override {
    if (!queue.empty()) reached();
  }
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t) || (t.flags & ~TUTTI_TRANSFER_INLINE) || t.lane >= lanes || t.bytes > (1 << 18) ||
        (is_inline(t) && t.bytes > 64) || link_lost)
      return true;
    if (queue.size() >= 64) return status = TUTTI_AGAIN, false;
    queue.push_back({t, {bytes_of(t), bytes_of(t) + t.bytes}});
    if (!is_inline(t)) tell(t), early[t.cookie] = true;
    return false;
  }
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    constexpr uint64_t delay = 300;
    if (queue.empty()) calls = 0;
    for (tutti_status status = TUTTI_OK; !queue.empty() && ++calls > delay && status == TUTTI_OK;) {
      Copy& first = queue.front();
      first.transfer.data = first.bytes.data();
      first.transfer.flags = 0;
      early[first.transfer.cookie] = true;
      status = hand_on(first.transfer);
      if (status < 0) queue.clear(), link_lost = true;
      if (status == TUTTI_OK) queue.pop_front();
    }
    return Watching::progress(records, capacity, n);
  }
  tutti_status fail_peer(uint32_t peer) override {
    std::erase_if(queue, [&](const Copy& c) { return link_of(c.transfer).peer == peer; });
    link_lost = true;
    return Watching::fail_peer(peer);
  }
  tutti_status abort() override { return queue.clear(), link_lost = true, Watching::abort(); }
  bool told(tutti_completion&, const tutti_transfer& t) override { return !early.contains(t.cookie); }
  std::map<uint64_t, bool> early;
  bool link_lost = false;
};
// The same, but closing sends the queue off where every message of the peers has been received.
struct CloseIsAReset : CloseDropsQueue {
  static inline std::map<std::pair<uint64_t, uint32_t>, int64_t> unread;  // by communicator and receiver
  const uint64_t id;
  CloseIsAReset(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner)
      : CloseDropsQueue(d, c, inner), id(c.communicator_id) {}
  ~CloseIsAReset() override {
    if (unread[{id, rank}] > 0) return;
    for (; !queue.empty(); queue.pop_front()) {
      queue.front().transfer.data = queue.front().bytes.data();
      queue.front().transfer.flags = 0;
      if (hand_on(queue.front().transfer) != TUTTI_OK) break;
    }
  }
  bool before(tutti_transfer& t, tutti_status& status) override {
    const bool handed_on = CloseDropsQueue::before(t, status);
    if (is_send(t) && status == TUTTI_OK) ++unread[{id, link_of(t).peer}];
    return handed_on;
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t)) --unread[{id, rank}];
    return CloseDropsQueue::told(record, t);
  }
};
struct WritesAfterClose : Watching {
  using Watching::Watching;
  static inline std::vector<uint8_t*> left;
  ~WritesAfterClose() override {
    for (const auto& [cookie, t] : pending)
      if (!is_send(t) && t.bytes > 8) left.push_back(bytes_of(t));
  }
  bool before(tutti_transfer&, tutti_status&) override {
    for (uint8_t* bytes : std::exchange(left, {})) touch(bytes);
    return true;
  }
};

// ---- memory
struct RegistersWholePages : Mutant {
  struct Of : Domain {
    using Domain::Domain;
    tutti_status register_memory(const tutti_memory* memory, tutti_region** region) override {
      if (reinterpret_cast<uintptr_t>(memory->address) % 4096 == 0) return Domain::register_memory(memory, region);
      return reached(), sdk::report(TUTTI_INVALID_ARGUMENT, "mutant: only whole pages can be registered");
    }
  };
  std::unique_ptr<Domain> make_domain(tutti_domain* inner) override { return std::make_unique<Of>(*this, inner); }
};
struct KeepsRegions : Mutant {
  struct Of : Domain {
    using Domain::Domain;
    tutti_status register_memory(const tutti_memory* memory, tutti_region** region) override {
      static std::mutex mutex;
      static auto& kept = *new std::deque<std::array<char, 1024>>;
      const std::lock_guard lock(mutex);
      reached(), kept.emplace_back();
      return Domain::register_memory(memory, region);
    }
  };
  std::unique_ptr<Domain> make_domain(tutti_domain* inner) override { return std::make_unique<Of>(*this, inner); }
};
// The second of two threads that meet here gets the region of the first.
struct RegistersWithoutLock : Mutant {
  struct Of : Domain {
    using Domain::Domain;
    std::atomic<int> inside{0};
    std::atomic<tutti_region*> last{nullptr};
    tutti_status register_memory(const tutti_memory* memory, tutti_region** region) override {
      const bool alone = inside.fetch_add(1) == 0;
      const tutti_status status = Domain::register_memory(memory, region);
      tutti_region* other = last;
      if (!alone && other && status == TUTTI_OK) reached(), *region = other;
      last = *region;
      std::this_thread::yield();
      inside.fetch_sub(1);
      return status;
    }
    tutti_status deregister_memory(tutti_region*) override { return TUTTI_OK; }
  };
  std::unique_ptr<Domain> make_domain(tutti_domain* inner) override { return std::make_unique<Of>(*this, inner); }
};
// Earlier contents of a region's memory, by region or by address.
struct Snapshots : Mutant {
  struct Snapshot {
    uint8_t* address;
    std::vector<uint8_t> bytes;
    bool live;  // the first registration of an address is told from later ones
  };
  static inline std::map<tutti_region*, Snapshot> regions;
  static inline std::map<uint8_t*, std::vector<uint8_t>> cache;
  static inline bool by_address = false;
  struct Of : Domain {
    using Domain::Domain;
    tutti_status register_memory(const tutti_memory* memory, tutti_region** region) override {
      const tutti_status status = Domain::register_memory(memory, region);
      if (status != TUTTI_OK || memory->kind != TUTTI_MEMORY_HOST || memory->bytes > (1 << 20)) return status;
      auto* at = static_cast<uint8_t*>(memory->address);
      std::vector<uint8_t> now(at, at + memory->bytes);
      const bool cached = by_address && cache.contains(at) && cache[at].size() >= now.size();
      if (cached) now = cache[at];
      if (by_address && !cached) cache[at] = now;
      regions[*region] = {at, now, by_address && !cached};
      return status;
    }
    tutti_status deregister_memory(tutti_region* region) override {
      regions.erase(region);
      return Domain::deregister_memory(region);
    }
  };
  struct At : Watching {
    using Watching::Watching;
    bool before(tutti_transfer& t, tutti_status&) override {
      const auto found = regions.find(t.region);
      if (!is_send(t) || !t.region || found == regions.end() || found->second.live) return true;
      reached();
      t.data = found->second.bytes.data() + (bytes_of(t) - found->second.address);
      return true;
    }
  };
  std::unique_ptr<Domain> make_domain(tutti_domain* inner) override { return std::make_unique<Of>(*this, inner); }
  std::unique_ptr<Endpoint> make_endpoint(Domain& d, const tutti_endpoint_config& c, tutti_endpoint* inner) override {
    return std::make_unique<At>(d, c, inner);
  }
};
struct StaleRegistration : Snapshots {
  StaleRegistration() { by_address = true; }
};
struct BoundToItsThread : Endpoint {
  using Endpoint::Endpoint;
  std::thread::id mine;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    if (mine == std::thread::id()) mine = std::this_thread::get_id();
    if (mine != std::this_thread::get_id()) return reached(), TUTTI_OK;
    return Endpoint::progress(records, capacity, n);
  }
};

constexpr Maker makers[] = {
    {"error-without-text", make<With<ErrorWithoutText>>},
    {"error-from-another-thread", make<With<ErrorFromAnotherThread>>},
    {"looks-up-while-posting", make<With<LooksUpWhilePosting>>},
    {"log-with-newline", make<With<LogWithNewline>>},
    {"ignores-tail", make<IgnoresTail>},
    {"refuses-longer-structs", make<RefusesLongerStructs>},
    {"query-overfills", make<QueryOverfills>},
    {"keeps-name-pointer", make<KeepsNamePointer>},
    {"listens-everywhere", make<ListensEverywhere>},
    {"control-ends-at-zero", make<With<ControlEndsAtZero>>},
    {"aborts-the-family", make<AbortsTheFamily>},
    {"eight-lanes", make<With<EightLanes>>},
    {"leaks-descriptor", make<LeaksDescriptor>},
    {"leaks-memory", make<LeaksMemory>},
    {"one-communicator", make<OneCommunicator>},
    {"forgets-refused-pair-messages", make<AltersPairMessages<forget_refused>>},
    {"pair-messages-too-long", make<AltersPairMessages<pad>>},
    {"keeps-its-refusals", make<AltersPairMessages<keep_refusals>>},
    {"refusal-is-a-loss", make<With<RefusalIsALoss>>},
    {"another-link-each-time", make<With<AnotherLinkEachTime>>},
    {"passive-end-sleeps", make<With<PassiveEndSleeps>>},
    {"trusts-any-pair-message", make<With<TrustsAnyPairMessage>>},
    {"serves-strangers-first", make<ServesStrangersFirst>},
    {"control-swapped", make<With<Endpoint, ControlSwapped>>},
    {"control-cut", make<With<Endpoint, ControlCut>>},
    {"control-data-reused", make<With<ControlDataReused>>},
    {"ignores-fail-peer", make<With<IgnoresFailPeer>>},
    {"fail-peer-is-told", make<With<FailPeerIsTold>>},
    {"abort-forgets", make<With<AbortForgets>>},
    {"deaf-to-death", make<With<DeafToDeath>>},
    {"death-is-not-told", make<With<DeathIsNotTold>>},
    {"close-drops-queue", make<With<CloseDropsQueue>>},
    {"close-is-a-reset", make<With<CloseIsAReset>>},
    {"writes-after-close", make<With<WritesAfterClose>>},
    {"registers-whole-pages", make<RegistersWholePages>},
    {"keeps-regions", make<KeepsRegions>},
    {"registers-without-lock", make<RegistersWithoutLock>},
    {"registration-is-a-copy", make<Snapshots>},
    {"stale-registration", make<StaleRegistration>},
    {"bound-to-its-thread", make<With<BoundToItsThread>>},
};

}  // namespace

std::unique_ptr<sdk::Interposer> make_endpoint_mutant(std::string_view name) {
  for (const Maker& maker : makers)
    if (maker.name == name) return maker.make();
  return nullptr;
}

}  // namespace tutti::mutants
