// SPDX-License-Identifier: Apache-2.0
//
// An interposer that changes nothing is the wrapped transport; a hook sees what passes; what cannot be wrapped is
// refused. Over shared memory, which has view/1 and wait_fd/1, over the template, which has neither, and over the
// template with rails/1.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tutti/sdk/interposer.hpp>
#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_shm, tutti_plugin_entry_template;

namespace {

using namespace tutti_test;
using tutti::sdk::Interposer;

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
tutti_rails rails{sizeof(tutti_rails), 0,
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

const void* find_interface(void*, const char* plugin, const char* id) {
  const std::string name = plugin;
  if (name == "shm") return tutti_plugin_entry_shm.get_interface(id, 0);
  if (name == "template") return tutti_plugin_entry_template.get_interface(id, 0);
  if (name == "railed") return railed();
  return name == "itself" ? &under_test->table() : nullptr;
}

// Counts what passes; else changes nothing.
struct Watching : Interposer {
  explicit Watching(std::string plugin) : Interposer("watching", "counts what passes"), over(std::move(plugin)) {
    under_test = this;
    host().table.find_interface = find_interface;
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
    tutti_status post(const tutti_transfer& transfer) override {
      const tutti_status status = Endpoint::post(transfer);
      static_cast<Watching&>(transport()).posts += status == TUTTI_OK;
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

struct Pair {
  Pair() { join(a, b); }
  bool drive(const std::function<bool()>& until) { return tutti_test::drive({&a, &b}, until); }
  Rank a{0}, b{1};
};

class Wrapped : public testing::TestWithParam<const char*> {};

TEST_P(Wrapped, PostsControlAndFailuresPass) {
  Watching watching(GetParam());
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(move(pair.a, pair.b, 2, 12));
  EXPECT_EQ(watching.posts, 2u);

  EXPECT_EQ(table().send_control(pair.a.link(1), "hello", 5), TUTTI_OK);
  EXPECT_TRUE(pair.drive([&] { return !pair.b.controls.empty(); }));
  EXPECT_EQ(pair.b.controls[0], "hello");
  EXPECT_EQ(watching.controls, 1u);

  EXPECT_EQ(pair.a.send(1, 99, nullptr, 0, 9), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(pair.a.error.find("lane"), std::string::npos) << "the wrapped transport's own words: " << pair.a.error;

  EXPECT_EQ(table().fail_peer(pair.a.endpoint, 1), TUTTI_OK);
  EXPECT_EQ(pair.a.send(1, 0, nullptr, 0, 10), TUTTI_PEER_FAILED);
}

TEST_P(Wrapped, ManyTransfersKeepOrderAndBackPressure) {
  Watching watching(GetParam());
  Pair pair;
  std::vector<uint32_t> out(100);
  std::iota(out.begin(), out.end(), 0u);
  uint32_t sent = 0, received = 0;
  std::vector<uint32_t> in(out.size(), ~0u);
  EXPECT_TRUE(pair.drive([&] {
    tutti_status status = TUTTI_OK;
    while (sent < out.size() && (status = pair.a.send(1, sent % 4, &out[sent], 4, sent)) == TUTTI_OK) ++sent;
    EXPECT_GE(status, TUTTI_OK) << pair.a.error;
    while (received < in.size() && pair.b.receive(0, received % 4, &in[received], 4, received) == TUTTI_OK) ++received;
    return pair.b.ended.size() == in.size();
  }));
  EXPECT_EQ(in, out);
}

INSTANTIATE_TEST_SUITE_P(Over, Wrapped, testing::Values("shm", "template"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Interposer, ViewsRegionsAndSleepArePassedOn) {
  Watching watching("shm");
  const tutti_transport& t = watching.table();
  Pair pair;
  const auto* view = static_cast<const tutti_view*>(t.get_interface(t.self, TUTTI_VIEW_ID));
  const auto* wait = &wait_table();
  ASSERT_TRUE(view && wait && view->send_region && view->released);
  int32_t fd = -1;
  ASSERT_EQ(wait->get_fd(pair.b.endpoint, &fd), TUTTI_OK);
  EXPECT_TRUE(pair.drive([&] { return wait->arm(pair.b.endpoint) == TUTTI_OK; }));

  void* room = nullptr;
  EXPECT_TRUE(pair.drive([&] { return (room = view->try_reserve(pair.a.link(1), 1, 6)) != nullptr; }));
  std::memcpy(room, "viewed", 6);
  view->set_mark(pair.a.link(1), 1, 0x8765'4321);
  view->commit(pair.a.link(1), 1, 6);
  EXPECT_EQ(watching.commits, 1u);
  pollfd waiting{fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1) << "the sleeper was not woken";
  wait->disarm(pair.b.endpoint);
  uint64_t bytes = 0;
  const void* data = nullptr;
  EXPECT_TRUE(pair.drive([&] { return (data = view->try_receive(pair.b.link(0), 1, &bytes)) != nullptr; }));
  EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), "viewed");
  EXPECT_EQ(view->get_mark(pair.b.link(0), 1), 0x8765'4321u);
  view->release(pair.b.link(0), 1);

  const int memory_fd = memfd_create("interposer", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memory_fd, 8192), 0);
  ASSERT_EQ(fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  auto* memory = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0));
  std::memcpy(memory + 4096, "by reference", 12);
  tutti_region* region = pair.a.register_memory(memory, 8192, TUTTI_MEMORY_HOST, memory_fd);
  ASSERT_TRUE(region) << pair.a.error;
  uint64_t ticket = 0;
  tutti_status sent = TUTTI_AGAIN;
  EXPECT_TRUE(pair.drive(
      [&] { return (sent = view->send_region(pair.a.link(1), 0, region, 4096, 12, &ticket)) != TUTTI_AGAIN; }));
  ASSERT_EQ(sent, TUTTI_OK);
  EXPECT_TRUE(pair.drive([&] { return (data = view->try_receive(pair.b.link(0), 0, &bytes)) != nullptr; }));
  EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), "by reference");
  view->release(pair.b.link(0), 0);
  EXPECT_TRUE(pair.drive([&] { return view->released(pair.a.link(1), 0) > ticket; }));
  pair.a.deregister(region);
  munmap(memory, 8192);
  close(memory_fd);
}

TEST(Interposer, OffersOnlyWhatTheWrappedOneHas) {
  Watching watching("template");
  const tutti_transport& t = watching.table();
  EXPECT_EQ(caps().reach, uint32_t{TUTTI_REACH_PROCESS});
  for (const char* id : {TUTTI_VIEW_ID, TUTTI_WAIT_FD_ID, TUTTI_RAILS_ID, "tutti.unheard/1"})
    EXPECT_EQ(t.get_interface(t.self, id), nullptr) << id;
  Pair pair;
  EXPECT_FALSE(TUTTI_HAS(tutti_transport, &t, register_memory));
  EXPECT_FALSE(TUTTI_HAS(tutti_transport, &t, deregister_memory));
}

TEST(Interposer, RailsArePassedOn) {
  Watching watching("railed");
  const tutti_transport& t = watching.table();
  Pair pair;
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
  EXPECT_EQ(table->of_endpoint(pair.b.endpoint, &sink), TUTTI_OK);
  EXPECT_EQ(name, "of the endpoint");
  EXPECT_EQ(asked_endpoint, tutti::sdk::from_handle<Interposer::Endpoint>(pair.b.endpoint).inner());
}

TEST(Interposer, RefusesWhatItCannotWrap) {
  tutti_domain_config given{};
  given.struct_size = sizeof given;
  tutti_domain* domain = nullptr;
  Watching nobody("nobody");
  EXPECT_EQ(nobody.table().open_domain(nobody.table().self, &given, &domain), TUTTI_NOT_FOUND);
  EXPECT_NE(Host::error.find("\"nobody\""), std::string::npos) << Host::error;
  Watching itself("itself");
  EXPECT_EQ(itself.table().open_domain(itself.table().self, &given, &domain), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("itself"), std::string::npos) << Host::error;
}

}  // namespace

// The interposer that was made last, with the plugins that it may wrap.
const tutti_plugin_entry_table& tutti_test::plugin_under_test() {
  static const tutti_plugin_entry_table entry = [] {
    tutti_plugin_entry_table made = tutti_plugin_entry_template;
    made.init = [](const tutti_host* given) {
      tutti::sdk::host = given;
      tutti_plugin_entry_shm.init(given);
      return tutti_plugin_entry_template.init(given);
    };
    made.get_interface = [](const char*, uint32_t) -> const void* { return &under_test->table(); };
    return made;
  }();
  return entry;
}
