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
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
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

inline tutti_transport_caps caps() {
  tutti_transport_caps c{};
  c.struct_size = sizeof c;
  EXPECT_EQ(table().query(table().self, &c), TUTTI_OK) << Host::error;
  return c;
}

struct Shape {
  uint32_t nranks = 2;
  uint32_t lanes = 4;
  std::string secret = "the job's secret";
  uint64_t communicator = 7;
};

struct Ended {
  tutti_status status;
  uint64_t bytes;
};

// One rank with its endpoint. Completions gather in maps and lists.
class Rank {
 public:
  explicit Rank(uint32_t rank, Shape shape = {}) : rank_(rank), links_(shape.nranks) {
    open_status = table().open_domain(table().self, &domain_);
    if (open_status != TUTTI_OK) return;
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = rank;
    config.nranks = shape.nranks;
    config.lanes = shape.lanes;
    config.name = "test";
    config.secret = reinterpret_cast<const uint8_t*>(shape.secret.data());
    config.secret_bytes = shape.secret.size();
    config.communicator_id = shape.communicator;
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
  std::string address() const {
    std::string blob(4096, '\0');
    uint64_t bytes = blob.size();
    EXPECT_EQ(table().get_address(endpoint, blob.data(), &bytes), TUTTI_OK) << Host::error;
    blob.resize(bytes);
    return blob;
  }
  tutti_status connect(uint32_t peer, const std::string& blob) {
    const tutti_status status = table().connect(endpoint, peer, blob.data(), blob.size(), &links_[peer]);
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
  // Posts one transfer; TUTTI_AGAIN when it was refused for now.
  tutti_status post(const tutti_transfer& t) {
    uint32_t accepted = 0;
    const tutti_status status = table().post(endpoint, &t, 1, &accepted);
    if (status < 0) error = Host::error;
    return status != TUTTI_OK ? status : accepted == 1 ? TUTTI_OK : TUTTI_AGAIN;
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
                               tutti_region* region) {
    tutti_transfer t = transfer(links_[peer], kind, lane, data, bytes, cookie);
    t.region = region;
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
  void progress(uint32_t capacity = 8) {
    std::vector<tutti_completion> batch(capacity);
    uint32_t n = 0;
    ASSERT_EQ(table().progress(endpoint, batch.data(), capacity, &n), TUTTI_OK) << Host::error;
    ASSERT_LE(n, capacity);
    for (uint32_t i = 0; i < n; ++i) {
      const tutti_completion& c = batch[i];
      if (c.kind == TUTTI_COMPLETION_TRANSFER) {
        ASSERT_TRUE(ended.emplace(c.cookie, Ended{c.status, c.bytes}).second)
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

  tutti_status open_status = TUTTI_OK;
  tutti_endpoint* endpoint = nullptr;
  std::map<uint64_t, Ended> ended;
  std::vector<uint64_t> order;
  std::vector<std::string> controls;
  std::map<uint32_t, std::string> failures;
  std::string error;

 private:
  uint32_t rank_;
  tutti_domain* domain_ = nullptr;
  std::vector<tutti_link*> links_;
};

// Progresses ranks in turns until something holds; false after the limit.
inline bool drive(std::vector<Rank*> ranks, const std::function<bool()>& until,
                  std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!until()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (Rank* r : ranks) r->progress();
    if (testing::Test::HasFatalFailure()) return false;
    std::this_thread::yield();
  }
  return true;
}

// Connects `a` (rank a_rank) with `b`; both call connect.
inline void join(Rank& a, uint32_t a_rank, Rank& b, uint32_t b_rank) {
  const std::string at_a = a.address(), at_b = b.address();
  tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
  ASSERT_TRUE(drive({&a, &b}, [&] {
    if (sa == TUTTI_AGAIN) sa = a.connect(b_rank, at_b);
    if (sb == TUTTI_AGAIN) sb = b.connect(a_rank, at_a);
    return sa != TUTTI_AGAIN && sb != TUTTI_AGAIN;
  }));
  ASSERT_EQ(sa, TUTTI_OK) << a.error;
  ASSERT_EQ(sb, TUTTI_OK) << b.error;
}

// Bytes that look random, told apart by `seed`.
inline std::vector<unsigned char> pattern(size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  unsigned x = seed * 2654435761u + 1;
  for (auto& c : data) c = static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24);
  return data;
}

}  // namespace tutti_test
