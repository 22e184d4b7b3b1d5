// SPDX-License-Identifier: Apache-2.0
//
// An interposer that changes nothing is the wrapped transport; a hook sees what passes; what cannot be wrapped is
// refused. Over shared memory, which has view/1 and wait_fd/1, over the template, which has neither, and over the
// template with rails/1.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <tutti/plugin/entry.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <tutti/sdk/interposer.hpp>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_shm, tutti_plugin_entry_template;

namespace {

using tutti::sdk::Interposer;

std::string last_error;
Interposer* under_test = nullptr;

// rails/1 that tells one rail, named after whom it was asked for.
const void* asked_self = nullptr;
const tutti_endpoint* asked_endpoint = nullptr;
void tell_rail(const tutti_rail_sink* sink, const char* name) {
  tutti_rail rail{};
  rail.struct_size = sizeof rail;
  rail.name = name;
  sink->rail(sink->self, &rail);
}
tutti_rails rails{sizeof(tutti_rails), TUTTI_RAILS_STAMP,
                  [](void* self, const tutti_rail_sink* sink) -> tutti_status {
                    asked_self = self;
                    tell_rail(sink, "of the host");
                    return TUTTI_OK;
                  },
                  nullptr};
tutti_status rails_of_endpoint(tutti_endpoint* endpoint, const tutti_rail_sink* sink) {
  asked_endpoint = endpoint;
  tell_rail(sink, "of the endpoint");
  return TUTTI_OK;
}
const tutti_transport* railed() {
  static const tutti_transport table = [] {
    tutti_transport t =
        *static_cast<const tutti_transport*>(tutti_plugin_entry_template.get_interface(TUTTI_TRANSPORT_ID, 0));
    t.get_interface = [](void*, const char* id) -> const void* {
      return std::string_view(id) == TUTTI_RAILS_ID ? &rails : nullptr;
    };
    return t;
  }();
  return &table;
}

const tutti_host* host() {
  static const tutti_host table = [] {
    tutti_host host{};
    host.struct_size = sizeof host;
    host.abi_major = TUTTI_ABI_MAJOR;
    host.log = [](void*, const tutti_log_record*) {};
    host.get_config = [](void*, const char*) -> const char* { return nullptr; };
    host.set_error = [](void*, tutti_status, const char* text) { last_error = text; };
    host.find_interface = [](void*, const char* plugin, const char* id) -> const void* {
      const std::string name = plugin;
      if (name == "shm") return tutti_plugin_entry_shm.get_interface(id, 0);
      if (name == "template") return tutti_plugin_entry_template.get_interface(id, 0);
      if (name == "railed") return railed();
      if (name == "itself") return &under_test->table();
      return nullptr;
    };
    return host;
  }();
  return &table;
}

// Counts what passes; else changes nothing.
struct Watching : Interposer {
  explicit Watching(std::string plugin) : Interposer("watching", "counts what passes"), over(std::move(plugin)) {
    under_test = this;
    tutti::sdk::host = host();
    tutti_plugin_entry_shm.init(host());
    tutti_plugin_entry_template.init(host());
  }
  std::string wrapped() override { return over; }
  struct WatchedLink : Link {
    using Link::Link;
    void commit(uint32_t lane, uint64_t bytes) noexcept override {
      ++static_cast<Watching&>(endpoint.transport()).commits;
      Link::commit(lane, bytes);
    }
    tutti_status send_control(const void* data, uint64_t bytes) override {
      ++static_cast<Watching&>(endpoint.transport()).controls;
      return Link::send_control(data, bytes);
    }
  };
  struct WatchedEndpoint : Endpoint {
    using Endpoint::Endpoint;
    tutti_status post(const tutti_transfer* transfers, uint32_t n, uint32_t* accepted) override {
      const tutti_status status = Endpoint::post(transfers, n, accepted);
      static_cast<Watching&>(transport()).posts += *accepted;
      return status;
    }
  };
  std::unique_ptr<Link> make_link(Endpoint& at, uint32_t peer, tutti_link* to) override {
    return std::make_unique<WatchedLink>(at, peer, to);
  }
  std::unique_ptr<Endpoint> make_endpoint(Domain& domain, const tutti_endpoint_config& config,
                                          tutti_endpoint* of) override {
    return std::make_unique<WatchedEndpoint>(domain, config, of);
  }
  std::string over;
  uint32_t commits = 0, controls = 0, posts = 0;
};

// Two ranks of one thread, connected.
struct Pair {
  explicit Pair(const tutti_transport& table) : t(table) {
    for (uint32_t rank : {0u, 1u}) {
      EXPECT_EQ(t.open_domain(t.self, &domain[rank]), TUTTI_OK) << last_error;
      const tutti_endpoint_config config{sizeof config, rank, 2, 4, "test", nullptr, 0, 99};
      EXPECT_EQ(t.open_endpoint(domain[rank], &config, &endpoint[rank]), TUTTI_OK) << last_error;
    }
    char address[2][4096];
    uint64_t bytes[2] = {4096, 4096};
    for (int rank : {0, 1}) EXPECT_EQ(t.get_address(endpoint[rank], address[rank], &bytes[rank]), TUTTI_OK);
    drive([&] {
      bool all = true;
      for (uint32_t rank : {0u, 1u})
        all &= t.connect(endpoint[rank], 1 - rank, address[1 - rank], bytes[1 - rank], &link[rank]) == TUTTI_OK;
      return all;
    });
  }
  ~Pair() {
    for (int rank : {0, 1}) {
      t.close_endpoint(endpoint[rank]);
      t.close_domain(domain[rank]);
    }
  }
  void drive(const std::function<bool()>& until) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!until()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      for (int rank : {0, 1}) {
        tutti_completion batch[8];
        uint32_t n = 0;
        ASSERT_EQ(t.progress(endpoint[rank], batch, 8, &n), TUTTI_OK) << last_error;
        for (uint32_t i = 0; i < n; ++i) {
          seen[rank].push_back(batch[i]);
          if (batch[i].kind == TUTTI_COMPLETION_CONTROL)
            text[rank].assign(static_cast<const char*>(batch[i].data), batch[i].bytes);
        }
      }
    }
  }
  uint32_t post(int rank, std::vector<tutti_transfer> batch) {
    uint32_t accepted = 0;
    status = t.post(endpoint[rank], batch.data(), static_cast<uint32_t>(batch.size()), &accepted);
    return accepted;
  }
  tutti_transfer transfer(int rank, uint16_t kind, uint32_t lane, void* data, uint64_t bytes, uint64_t cookie) {
    tutti_transfer x{};
    x.link = link[rank], x.kind = kind, x.lane = lane, x.data = data, x.bytes = bytes, x.cookie = cookie;
    return x;
  }
  const tutti_transport& t;
  tutti_domain* domain[2] = {};
  tutti_endpoint* endpoint[2] = {};
  tutti_link* link[2] = {};
  std::vector<tutti_completion> seen[2];
  std::string text[2];
  tutti_status status = TUTTI_OK;
};

class Wrapped : public testing::TestWithParam<const char*> {};

TEST_P(Wrapped, PostsControlAndFailuresPass) {
  Watching watching(GetParam());
  Pair pair(watching.table());
  std::string out = "over another", in(out.size(), '?');
  EXPECT_EQ(pair.post(1, {pair.transfer(1, TUTTI_TRANSFER_RECV, 2, in.data(), in.size(), 7)}), 1u);
  EXPECT_EQ(pair.post(0, {pair.transfer(0, TUTTI_TRANSFER_SEND, 2, out.data(), out.size(), 8)}), 1u);
  pair.drive([&] { return pair.seen[0].size() == 1 && pair.seen[1].size() == 1; });
  EXPECT_EQ(in, out);
  EXPECT_EQ(pair.seen[1][0].cookie, 7u);
  EXPECT_EQ(pair.seen[0][0].cookie, 8u);
  EXPECT_EQ(watching.posts, 2u);

  EXPECT_EQ(watching.table().send_control(pair.link[0], "hello", 5), TUTTI_OK);
  pair.drive([&] { return !pair.text[1].empty(); });
  EXPECT_EQ(pair.text[1], "hello");
  EXPECT_EQ(watching.controls, 1u);

  last_error.clear();
  EXPECT_EQ(pair.post(0, {pair.transfer(0, TUTTI_TRANSFER_SEND, 99, out.data(), out.size(), 9)}), 0u);
  EXPECT_EQ(pair.status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("lane"), std::string::npos) << "the wrapped transport's own words: " << last_error;

  EXPECT_EQ(watching.table().fail_peer(pair.endpoint[0], 1), TUTTI_OK);
  EXPECT_EQ(pair.post(0, {pair.transfer(0, TUTTI_TRANSFER_SEND, 0, out.data(), out.size(), 10)}), 0u);
  EXPECT_EQ(pair.status, TUTTI_PEER_FAILED);
}

TEST_P(Wrapped, LargeBatchesKeepOrderAndBackPressure) {
  Watching watching(GetParam());
  Pair pair(watching.table());
  std::vector<uint32_t> out(100);
  std::vector<tutti_transfer> batch;
  for (uint32_t i = 0; i < out.size(); ++i) {
    out[i] = i;
    batch.push_back(pair.transfer(0, TUTTI_TRANSFER_SEND, i % 4, &out[i], sizeof out[i], i + 1));
  }
  uint32_t sent = 0, received = 0;
  std::vector<uint32_t> in(out.size(), ~0u);
  pair.drive([&] {
    if (sent < batch.size()) sent += pair.post(0, {batch.begin() + sent, batch.end()});
    while (received < in.size() &&
           pair.post(1, {pair.transfer(1, TUTTI_TRANSFER_RECV, received % 4, &in[received], 4, received + 1)}))
      ++received;
    return pair.seen[1].size() == in.size();
  });
  EXPECT_EQ(in, out);
}

INSTANTIATE_TEST_SUITE_P(Over, Wrapped, testing::Values("shm", "template"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Interposer, ViewsRegionsAndSleepArePassedOn) {
  Watching watching("shm");
  const tutti_transport& t = watching.table();
  Pair pair(t);
  const auto* view = static_cast<const tutti_view*>(t.get_interface(t.self, TUTTI_VIEW_ID));
  const auto* wait = static_cast<const tutti_wait_fd*>(t.get_interface(t.self, TUTTI_WAIT_FD_ID));
  ASSERT_TRUE(view && wait && view->send_region && view->released);
  int32_t fd = -1;
  ASSERT_EQ(wait->get_fd(pair.endpoint[1], &fd), TUTTI_OK);
  pair.drive([&] { return wait->arm(pair.endpoint[1]) == TUTTI_OK; });

  void* room = nullptr;
  pair.drive([&] { return (room = view->try_reserve(pair.link[0], 1, 6)) != nullptr; });
  std::memcpy(room, "viewed", 6);
  view->commit(pair.link[0], 1, 6);
  EXPECT_EQ(watching.commits, 1u);
  pollfd waiting{fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1) << "the sleeper was not woken";
  wait->disarm(pair.endpoint[1]);
  uint64_t bytes = 0;
  const void* data = nullptr;
  pair.drive([&] { return (data = view->try_receive(pair.link[1], 1, &bytes)) != nullptr; });
  EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), "viewed");
  view->release(pair.link[1], 1);

  const int memory_fd = memfd_create("interposer", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memory_fd, 8192), 0);
  ASSERT_EQ(fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  auto* memory = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0));
  std::memcpy(memory + 4096, "by reference", 12);
  const tutti_memory described{sizeof described, TUTTI_MEMORY_HOST, memory, 8192, memory_fd, 0, 0};
  tutti_region* region = nullptr;
  ASSERT_EQ(t.register_memory(pair.domain[0], &described, &region), TUTTI_OK) << last_error;
  uint64_t ticket = 0;
  tutti_status sent = TUTTI_AGAIN;
  pair.drive([&] { return (sent = view->send_region(pair.link[0], 0, region, 4096, 12, &ticket)) != TUTTI_AGAIN; });
  ASSERT_EQ(sent, TUTTI_OK) << last_error;
  pair.drive([&] { return (data = view->try_receive(pair.link[1], 0, &bytes)) != nullptr; });
  EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), "by reference");
  view->release(pair.link[1], 0);
  pair.drive([&] { return view->released(pair.link[0], 0) > ticket; });
  EXPECT_EQ(t.deregister_memory(pair.domain[0], region), TUTTI_OK);
  munmap(memory, 8192);
  close(memory_fd);
}

TEST(Interposer, OffersOnlyWhatTheWrappedOneHas) {
  Watching watching("template");
  const tutti_transport& t = watching.table();
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  EXPECT_EQ(t.query(t.self, &caps), TUTTI_OK);
  EXPECT_EQ(caps.reach, uint32_t{TUTTI_REACH_PROCESS});
  for (const char* id : {TUTTI_VIEW_ID, TUTTI_WAIT_FD_ID, TUTTI_RAILS_ID, "tutti.unheard/1"})
    EXPECT_EQ(t.get_interface(t.self, id), nullptr) << id;
  Pair pair(t);
  EXPECT_FALSE(TUTTI_HAS(tutti_transport, &t, register_memory));
  EXPECT_FALSE(TUTTI_HAS(tutti_transport, &t, deregister_memory));
}

TEST(Interposer, RailsArePassedOn) {
  Watching watching("railed");
  const tutti_transport& t = watching.table();
  Pair pair(t);
  std::string name;
  const tutti_rail_sink sink{sizeof sink, 0, &name,
                             [](void* self, const tutti_rail* rail) { *static_cast<std::string*>(self) = rail->name; }};
  rails.of_endpoint = nullptr;
  const auto* table = static_cast<const tutti_rails*>(t.get_interface(t.self, TUTTI_RAILS_ID));
  ASSERT_NE(table, nullptr);
  EXPECT_FALSE(TUTTI_HAS(tutti_rails, table, of_endpoint));
  EXPECT_EQ(table->of_host(t.self, &sink), TUTTI_OK);
  EXPECT_EQ(name, "of the host");
  EXPECT_EQ(asked_self, railed()->self);

  rails.of_endpoint = rails_of_endpoint;
  table = static_cast<const tutti_rails*>(t.get_interface(t.self, TUTTI_RAILS_ID));
  ASSERT_TRUE(TUTTI_HAS(tutti_rails, table, of_endpoint));
  EXPECT_EQ(table->of_endpoint(pair.endpoint[1], &sink), TUTTI_OK);
  EXPECT_EQ(name, "of the endpoint");
  EXPECT_EQ(asked_endpoint, tutti::sdk::from_handle<Interposer::Endpoint>(pair.endpoint[1]).inner());
}

TEST(Interposer, RefusesWhatItCannotWrap) {
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  Watching nobody("nobody");
  EXPECT_EQ(nobody.table().query(nobody.table().self, &caps), TUTTI_NOT_FOUND);
  EXPECT_NE(last_error.find("\"nobody\""), std::string::npos) << last_error;
  Watching itself("itself");
  EXPECT_EQ(itself.table().query(itself.table().self, &caps), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("itself"), std::string::npos) << last_error;
}

}  // namespace
