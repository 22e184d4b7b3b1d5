// SPDX-License-Identifier: Apache-2.0
//
// For unit tests (GoogleTest) of a transport linked into them: a host for the plugin as the core would be one, and
// ranks over the plugin's C tables. Nothing blocks, so one thread can drive several ranks in turns. The test defines
// `inline const tutti_plugin_entry_table& tutti_test::plugin_under_test()`. TUTTI_TEST_LOG=1 prints what the plugin
// logs.
#pragma once

#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <tutti/sdk/time_scale.hpp>
#include <vector>

namespace tutti_test {

const tutti_plugin_entry_table& plugin_under_test();

struct Host {
  std::map<std::string, std::string> settings;
  std::mutex mutex;
  std::vector<std::string> log;
  static inline thread_local std::string error;
  tutti_host table{};

  Host() {
    table.struct_size = sizeof table;
    table.abi_major = TUTTI_ABI_MAJOR;
    table.self = this;
    table.log = [](void* self, const tutti_log_record* record) {
      Host& host = *static_cast<Host*>(self);
      const std::lock_guard lock(host.mutex);
      host.log.push_back(record->text);
      if (std::getenv("TUTTI_TEST_LOG")) std::fprintf(stderr, "%s\n", record->text);
    };
    table.get_config = [](void* self, const char* key) -> const char* {
      Host& host = *static_cast<Host*>(self);
      const auto at = host.settings.find(key);
      return at == host.settings.end() ? nullptr : at->second.c_str();
    };
    table.set_error = [](void*, tutti_status, const char* text) { error = text; };
    table.get_error = [](void*) { return error.c_str(); };
    plugin_under_test().init(&table);
  }
  bool logged(const std::string& part) {
    const std::lock_guard lock(mutex);
    return std::any_of(log.begin(), log.end(), [&](const std::string& l) { return l.find(part) != l.npos; });
  }
};

inline Host& host() {
  static Host the_host;
  return the_host;
}

inline const tutti_transport& table() {
  host();
  return *static_cast<const tutti_transport*>(plugin_under_test().get_interface(TUTTI_TRANSPORT_ID, 0));
}

inline const tutti_wait_fd& wait_table() {
  return *static_cast<const tutti_wait_fd*>(table().get_interface(table().self, TUTTI_WAIT_FD_ID));
}

// Opens a domain and asks for its capabilities.
inline tutti_status query(tutti_transport_caps* caps) {
  *caps = {};
  caps->struct_size = sizeof *caps;
  tutti_domain_config config{};
  config.struct_size = sizeof config;
  tutti_domain* domain = nullptr;
  tutti_status status = table().open_domain(table().self, &config, &domain);
  if (status < 0) return status;
  status = table().query(domain, caps);
  table().close_domain(domain);
  return status;
}

inline tutti_transport_caps caps() {
  tutti_transport_caps c{};
  EXPECT_EQ(query(&c), TUTTI_OK) << Host::error;
  return c;
}

struct Shape {
  uint32_t nranks = 2;
  uint32_t lanes = 4;
  uint64_t communicator = 7;
  std::string address;  // of endpoint_config; "": NULL
  uint64_t timeout_ns = 60'000'000'000;
  uint32_t traffic_class = 0;
  uint32_t device_kind = TUTTI_MEMORY_HOST;
};

// Pair messages under way, by communicator and receiver: what the core's control plane does. Any thread. A test may
// look at them, change them and hold them up.
struct PairMail {
  struct Letter {
    uint32_t from;
    std::string bytes;
  };
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint32_t>, std::deque<Letter>> boxes;
  std::atomic<bool> full{false};  // send answers TUTTI_AGAIN

  static PairMail& job() {
    static PairMail mail;
    return mail;
  }
  bool take(uint64_t communicator, uint32_t to, Letter& letter) {
    const std::lock_guard lock(mutex);
    auto& box = boxes[{communicator, to}];
    if (box.empty()) return false;
    letter = std::move(box.front());
    box.pop_front();
    return true;
  }
  void put(uint64_t communicator, uint32_t to, Letter letter) {
    const std::lock_guard lock(mutex);
    boxes[{communicator, to}].push_back(std::move(letter));
  }
  void forget(uint64_t communicator, uint32_t to) {
    const std::lock_guard lock(mutex);
    boxes.erase({communicator, to});
  }
};

struct Ended {
  tutti_status status;
  uint64_t bytes;
  uint32_t mark;
};

// One rank with its endpoint. Completions gather in maps and lists.
class Rank {
 public:
  explicit Rank(uint32_t rank, Shape shape = {})
      : number(rank), communicator_(shape.communicator), links_(shape.nranks) {
    PairMail::job().forget(communicator_, number);
    pair_.struct_size = sizeof pair_;
    pair_.self = this;
    pair_.send = [](void* self, uint32_t peer, const void* data, uint64_t bytes) -> tutti_status {
      Rank& me = *static_cast<Rank*>(self);
      if (bytes > TUTTI_PAIR_BYTES || peer >= me.links_.size() || peer == me.number) return TUTTI_INVALID_ARGUMENT;
      if (PairMail::job().full) return TUTTI_AGAIN;
      PairMail::job().put(me.communicator_, peer, {me.number, std::string(static_cast<const char*>(data), bytes)});
      return TUTTI_OK;
    };
    tutti_domain_config domain_config{};
    domain_config.struct_size = sizeof domain_config;
    domain_config.device_kind = shape.device_kind;
    open_status = table().open_domain(table().self, &domain_config, &domain_);
    if (open_status != TUTTI_OK) return;
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = rank;
    config.nranks = shape.nranks;
    config.lanes = shape.lanes;
    config.name = "test";
    config.communicator_id = shape.communicator;
    config.pair = &pair_;
    config.address = shape.address.empty() ? nullptr : shape.address.c_str();
    config.timeout_ns = shape.timeout_ns;
    config.traffic_class = shape.traffic_class;
    open_status = table().open_endpoint(domain_, &config, &endpoint);
  }
  ~Rank() { close(); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void close() {
    if (endpoint) table().close_endpoint(endpoint);
    if (domain_) table().close_domain(domain_);
    endpoint = nullptr;
    domain_ = nullptr;
  }
  tutti_status connect(uint32_t peer) {
    const tutti_status status = table().connect(endpoint, peer, &links_[peer]);
    if (status < 0) error = Host::error;
    return status;
  }
  // Hands one pair message to the endpoint.
  tutti_status receive_pair(uint32_t from, const std::string& bytes) {
    const tutti_status status = table().receive_pair(endpoint, from, bytes.data(), bytes.size());
    if (status < 0) error = Host::error;
    return status;
  }
  tutti_link* link(uint32_t peer) { return links_[peer]; }

  static tutti_transfer transfer(tutti_link* link, uint16_t kind, uint32_t lane, const void* data, uint64_t bytes,
                                 uint64_t cookie, uint16_t flags = 0) {
    tutti_transfer t{};
    t.link = link;
    t.lane = lane;
    t.kind = kind;
    t.flags = flags;
    t.data = const_cast<void*>(data);
    t.bytes = bytes;
    t.cookie = cookie;
    return t;
  }
  tutti_status post(const tutti_transfer& t) {
    const tutti_status status = table().post(endpoint, &t);
    if (status < 0) error = Host::error;
    return status;
  }
  tutti_status send(uint32_t peer, uint32_t lane, const void* data, uint64_t bytes, uint64_t cookie,
                    uint16_t flags = 0) {
    return post(transfer(links_[peer], TUTTI_TRANSFER_SEND, lane, data, bytes, cookie, flags));
  }
  tutti_status receive(uint32_t peer, uint32_t lane, void* data, uint64_t bytes, uint64_t cookie) {
    return post(transfer(links_[peer], TUTTI_TRANSFER_RECV, lane, data, bytes, cookie));
  }
  // The same from and into registered memory.
  tutti_status transfer_region(uint16_t kind, uint32_t peer, uint32_t lane, void* data, uint64_t bytes, uint64_t cookie,
                               tutti_region* region, uint32_t mark = 0) {
    tutti_transfer t = transfer(links_[peer], kind, lane, data, bytes, cookie);
    t.region = region;
    t.mark = mark;
    return post(t);
  }
  tutti_region* register_memory(void* data, uint64_t bytes, uint32_t kind = TUTTI_MEMORY_HOST, int fd = -1,
                                uint64_t fd_offset = 0) {
    tutti_memory memory{sizeof memory, kind, data, bytes, fd, 0, fd_offset};
    tutti_region* region = nullptr;
    const tutti_status status = table().register_memory(domain_, &memory, &region);
    if (status < 0) error = Host::error;
    return region;
  }
  void deregister(tutti_region* region) {
    EXPECT_EQ(table().deregister_memory(domain_, region), TUTTI_OK) << Host::error;
  }
  // Also hands over the pair messages that have come.
  void progress(uint32_t capacity = 8) {
    for (PairMail::Letter letter; PairMail::job().take(communicator_, number, letter);)
      if (const tutti_status status = receive_pair(letter.from, letter.bytes); status < 0) pair_status = status;
    std::vector<tutti_completion> batch(capacity);
    uint32_t n = 0;
    ASSERT_EQ(table().progress(endpoint, batch.data(), capacity, &n), TUTTI_OK) << Host::error;
    ASSERT_LE(n, capacity);
    for (uint32_t i = 0; i < n; ++i) {
      const tutti_completion& c = batch[i];
      if (c.kind == TUTTI_COMPLETION_TRANSFER) {
        ASSERT_TRUE(ended.emplace(c.cookie, Ended{c.status, c.bytes, c.mark}).second)
            << "cookie " << c.cookie << " ended twice";
        order.push_back(c.cookie);
      } else if (c.kind == TUTTI_COMPLETION_CONTROL) {
        controls.emplace_back(static_cast<const char*>(c.data), c.bytes);
      } else {
        failures[c.peer] = static_cast<const char*>(c.data);
      }
    }
  }
  bool has(uint64_t cookie, tutti_status status = TUTTI_OK) {
    const auto at = ended.find(cookie);
    return at != ended.end() && at->second.status == status;
  }

  const uint32_t number;
  tutti_status open_status = TUTTI_OK;
  tutti_endpoint* endpoint = nullptr;
  std::map<uint64_t, Ended> ended;
  std::vector<uint64_t> order;
  std::vector<std::string> controls;
  std::map<uint32_t, std::string> failures;
  std::string error;
  tutti_status pair_status = TUTTI_OK;  // the last error of receive_pair

 private:
  const uint64_t communicator_;
  tutti_pair_messages pair_{};
  tutti_domain* domain_ = nullptr;
  std::vector<tutti_link*> links_;
};

// Progresses ranks in turns until something holds; false after the limit.
inline bool drive(std::vector<Rank*> ranks, const std::function<bool()>& until,
                  std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (uint32_t round = 1; !until(); ++round) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (Rank* r : ranks) r->progress();
    if (testing::Test::HasFatalFailure()) return false;
    // For other threads of the test. On a busy core each costs a time slice.
    if (round % 256 == 0) std::this_thread::yield();
  }
  return true;
}

// Bytes that look random, told apart by `seed`.
inline std::vector<unsigned char> pattern(size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  unsigned x = seed * 2654435761u + 1;
  for (auto& c : data) c = static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24);
  return data;
}

// Connects two ranks; both call connect.
inline void join(Rank& a, Rank& b) {
  tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
  ASSERT_TRUE(drive({&a, &b}, [&] {
    if (sa == TUTTI_AGAIN) sa = a.connect(b.number);
    if (sb == TUTTI_AGAIN) sb = b.connect(a.number);
    return sa != TUTTI_AGAIN && sb != TUTTI_AGAIN;
  }));
  ASSERT_EQ(sa, TUTTI_OK) << a.error;
  ASSERT_EQ(sb, TUTTI_OK) << b.error;
}

// Posts a transfer, and progresses the ranks until it is accepted.
inline void post(std::vector<Rank*> ranks, Rank& rank, const tutti_transfer& t) {
  tutti_status status = TUTTI_AGAIN;
  ASSERT_TRUE(drive(std::move(ranks), [&] { return (status = rank.post(t)) != TUTTI_AGAIN; })) << "never accepted";
  ASSERT_EQ(status, TUTTI_OK) << rank.error;
}

// Moves one message between two ranks that are joined, and looks at every byte, at the memory around the RECV's, and at
// both completions. No other transfer of the lane may be pending.
inline void move(Rank& from, Rank& to, uint32_t lane, size_t bytes, uint16_t send_flags = 0) {
  static std::atomic<uint64_t> cookies{uint64_t{1} << 40};
  const uint64_t sent = cookies++, received = cookies++;
  const auto data = pattern(bytes, static_cast<unsigned>(sent));
  std::vector<unsigned char> into(bytes + 2, 0xa5), expected = into;
  std::copy(data.begin(), data.end(), expected.begin() + 1);
  auto copy = data;
  post({&from, &to}, to,
       Rank::transfer(to.link(from.number), TUTTI_TRANSFER_RECV, lane, into.data() + 1, bytes, received));
  post({&from, &to}, from,
       Rank::transfer(from.link(to.number), TUTTI_TRANSFER_SEND, lane, copy.data(), bytes, sent, send_flags));
  const bool is_inline = send_flags & TUTTI_TRANSFER_INLINE;
  if (is_inline) copy.assign(bytes, 0);  // its memory may be overwritten at once
  ASSERT_TRUE(
      drive({&from, &to}, [&] { return to.ended.contains(received) && (is_inline || from.ended.contains(sent)); }))
      << bytes << " bytes on lane " << lane << " from rank " << from.number << " do not arrive";
  ASSERT_TRUE(to.has(received)) << "status " << to.ended[received].status;
  ASSERT_EQ(to.ended[received].bytes, bytes);
  ASSERT_EQ(from.ended.contains(sent), !is_inline) << "only a SEND that is not INLINE has a completion";
  ASSERT_EQ(into, expected) << bytes << " bytes on lane " << lane << " from rank " << from.number << " are wrong";
}

}  // namespace tutti_test
