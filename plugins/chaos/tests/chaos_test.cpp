// SPDX-License-Identifier: Apache-2.0
//
// Two ranks over chaos over shared memory (viewed) and over the template (posted): what the contract allows changes
// neither bytes nor order; what it forbids happens as the script says.
#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_chaos, tutti_plugin_entry_shm, tutti_plugin_entry_template;

namespace {

std::map<std::string, std::string>& settings() {
  static std::map<std::string, std::string> map;
  return map;
}
std::string last_error, all_logs;

const tutti_transport& chaos() {
  static const tutti_transport* table = [] {
    static tutti_host host{};
    host.struct_size = sizeof host;
    host.abi_major = TUTTI_ABI_MAJOR;
    host.log = [](void*, const tutti_log_record* record) { all_logs += std::string(record->text) + "\n"; };
    host.get_config = [](void*, const char* key) -> const char* {
      const auto found = settings().find(key);
      return found == settings().end() ? nullptr : found->second.c_str();
    };
    host.set_error = [](void*, tutti_status, const char* text) { last_error = text; };
    host.find_interface = [](void*, const char* plugin, const char* id) -> const void* {
      if (std::strcmp(plugin, "shm") == 0) return tutti_plugin_entry_shm.get_interface(id, 0);
      if (std::strcmp(plugin, "template") == 0) return tutti_plugin_entry_template.get_interface(id, 0);
      return nullptr;
    };
    for (const auto* entry : {&tutti_plugin_entry_chaos, &tutti_plugin_entry_shm, &tutti_plugin_entry_template})
      entry->init(&host);
    return static_cast<const tutti_transport*>(tutti_plugin_entry_chaos.get_interface(TUTTI_TRANSPORT_ID, 0));
  }();
  return *table;
}

// The wrapped plugin is found once per process: each of the two has a program run of its own (CMakeLists.txt).
std::string over() {
  const char* name = getenv("CHAOS_TEST_OVER");
  return name ? name : "shm";
}

tutti_status query() {
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  return chaos().query(chaos().self, &caps);
}

struct Pair {
  explicit Pair(const std::string& script) {
    settings() = {{"TUTTI_CHAOS_OVER", over()}, {"TUTTI_CHAOS", script}, {"TUTTI_CHAOS_SEED", "7"}};
    all_logs.clear();
    EXPECT_EQ(query(), TUTTI_OK) << last_error;
    view = static_cast<const tutti_view*>(t.get_interface(t.self, TUTTI_VIEW_ID));
    for (uint32_t rank : {0u, 1u}) {
      EXPECT_EQ(t.open_domain(t.self, &domain[rank]), TUTTI_OK) << last_error;
      const tutti_endpoint_config config{sizeof config, rank, 2, 4, "test", nullptr, 0, 5};
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
  ~Pair() { close(); }
  void close() {
    for (int rank : {0, 1}) {
      if (endpoint[rank]) t.close_endpoint(endpoint[rank]);
      if (domain[rank]) t.close_domain(domain[rank]);
      endpoint[rank] = nullptr;
      domain[rank] = nullptr;
    }
  }
  bool drive(const std::function<bool()>& until, double seconds = 20) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
    while (!until()) {
      if (std::chrono::steady_clock::now() > end) return false;
      for (int rank : {0, 1}) {
        tutti_completion batch[8];
        uint32_t n = 0;
        EXPECT_EQ(t.progress(endpoint[rank], batch, 8, &n), TUTTI_OK) << last_error;
        for (uint32_t i = 0; i < n; ++i) {
          if (batch[i].kind == TUTTI_COMPLETION_TRANSFER) done[rank].push_back(batch[i]);
          if (batch[i].kind == TUTTI_COMPLETION_CONTROL)
            control[rank].emplace_back(static_cast<const char*>(batch[i].data), batch[i].bytes);
          if (batch[i].kind == TUTTI_COMPLETION_PEER_FAILED) failed[rank] = static_cast<const char*>(batch[i].data);
        }
      }
    }
    return true;
  }
  tutti_status post(int rank, uint16_t kind, uint32_t lane, void* data, uint64_t bytes, uint64_t cookie, bool* taken) {
    tutti_transfer x{};
    x.link = link[rank], x.kind = kind, x.lane = lane, x.data = data, x.bytes = bytes, x.cookie = cookie;
    uint32_t accepted = 0;
    const tutti_status status = t.post(endpoint[rank], &x, 1, &accepted);
    *taken = accepted == 1;
    return status;
  }
  // Sends from rank 0, by view where there is one.
  bool send(uint32_t lane, const std::string& text) {
    if (!view) {
      sent.push_back(text);
      bool taken = false;
      post(0, TUTTI_TRANSFER_SEND, lane, sent.back().data(), text.size(), 1, &taken);
      if (!taken) sent.pop_back();
      return taken;
    }
    void* room = view->try_reserve(link[0], lane, text.size());
    if (room) std::memcpy(room, text.data(), text.size());
    if (room) view->commit(link[0], lane, text.size());
    return room;
  }
  // Takes a message at rank 1; false: none yet.
  bool receive(uint32_t lane, uint64_t expected, std::string* text) {
    if (view) {
      uint64_t bytes = 0;
      const void* message = view->try_receive(link[1], lane, &bytes);
      if (!message) return false;
      text->assign(static_cast<const char*>(message), bytes);
      view->release(link[1], lane);
      return true;
    }
    auto& [asked, buffer, cookie] = receiving[lane];
    if (!asked) {
      buffer.assign(expected, '?');
      cookie = ++next_cookie;
      post(1, TUTTI_TRANSFER_RECV, lane, buffer.data(), expected, cookie, &asked);
    }
    for (const tutti_completion& c : done[1])
      if (c.cookie == cookie) {
        asked = false;
        *text = c.status == TUTTI_OK ? buffer : "status " + std::to_string(c.status);
        return true;
      }
    return false;
  }
  // Sends `texts` on a lane and gives what arrives within a time.
  std::vector<std::string> exchange(const std::vector<std::string>& texts, double seconds) {
    std::vector<std::string> got;
    size_t next = 0;
    drive(
        [&] {
          while (next < texts.size() && send(2, texts[next])) ++next;
          std::string text;
          while (receive(2, texts[0].size(), &text)) got.push_back(text);
          return got.size() > texts.size();  // never: the time decides
        },
        seconds);
    return got;
  }

  struct Receiving {
    bool asked = false;
    std::string buffer;
    uint64_t cookie = 0;
  };
  const tutti_transport& t = chaos();
  const tutti_view* view = nullptr;
  tutti_domain* domain[2] = {};
  tutti_endpoint* endpoint[2] = {};
  tutti_link* link[2] = {};
  std::vector<tutti_completion> done[2];
  std::vector<std::string> control[2];
  std::string failed[2];
  std::deque<std::string> sent;
  std::map<uint32_t, Receiving> receiving;
  uint64_t next_cookie = 100;
};

class Allowed : public testing::TestWithParam<const char*> {};

TEST_P(Allowed, BytesAndOrderOfEachLaneStay) {
  Pair pair(GetParam());
  constexpr uint32_t lanes = 4, messages = 60;
  uint32_t next_out[lanes] = {}, next_in[lanes] = {}, controls = 0;
  const auto text = [](uint32_t lane, uint32_t number) {
    return "message " + std::to_string(1000 + number) + " of lane " + std::to_string(lane);
  };
  EXPECT_TRUE(pair.drive([&] {
    bool all = true;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (next_out[lane] < messages && pair.send(lane, text(lane, next_out[lane]))) ++next_out[lane];
      std::string got;
      if (next_in[lane] < messages && pair.receive(lane, text(lane, 0).size(), &got)) {
        EXPECT_EQ(got, text(lane, next_in[lane]));
        ++next_in[lane];
      }
      all &= next_in[lane] == messages;
    }
    if (controls < messages) {
      const std::string number = std::to_string(controls);
      if (pair.t.send_control(pair.link[0], number.data(), number.size()) == TUTTI_OK) ++controls;
    }
    return all && pair.control[1].size() == messages;
  })) << GetParam();
  for (uint32_t i = 0; i < pair.control[1].size(); ++i) EXPECT_EQ(pair.control[1][i], std::to_string(i));
  if (!pair.view) {
    EXPECT_TRUE(pair.drive([&] { return pair.done[0].size() == lanes * messages; })) << "a SEND did not complete";
  }
  pair.close();
  if (*GetParam()) {
    EXPECT_NE(all_logs.find("faults that struck: "), std::string::npos) << all_logs;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Allowed,
                         testing::Values("", "delay:p=0.5,us=300", "reorder:p=0.5,polls=20", "partial:p=0.7,times=5",
                                         "short:p=0.8", "slow:us=30,rank=1",
                                         "delay:p=0.2;reorder:p=0.3;partial:p=0.3;short:p=0.3", "random"),
                         [](const auto& each) { return std::to_string(each.index); });

TEST(Forbidden, AMessageIsLost) {
  Pair pair("lose:after=1");
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.3), (std::vector<std::string>{"one", "six"}));
  EXPECT_NE(all_logs.find("rank 0: fault lose strikes at a message of 3 bytes to rank 1 on lane 2"), std::string::npos)
      << all_logs;
}

TEST(Forbidden, AMessageComesTwice) {
  Pair pair("duplicate:after=1");
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.3), (std::vector<std::string>{"one", "two", "two", "six"}));
}

TEST(Forbidden, OneBitIsChanged) {
  Pair pair("corrupt:after=1");
  const auto got = pair.exchange({"one", "two", "six"}, 0.3);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0], "one");
  EXPECT_EQ(got[2], "six");
  int bits = 0;
  for (int i = 0; i < 3; ++i) bits += __builtin_popcount(static_cast<unsigned char>(got[1][i] ^ "two"[i]));
  EXPECT_EQ(bits, 1) << got[1];
}

TEST(Forbidden, ControlMessagesAreStruckApart) {
  Pair pair("lose:control=1,after=1;duplicate:control=1,after=1");
  for (const char* text : {"a", "b", "c"}) EXPECT_EQ(pair.t.send_control(pair.link[0], text, 1), TUTTI_OK);
  pair.drive([&] { return pair.control[1].size() == 4; }, 0.3);
  EXPECT_EQ(pair.control[1], (std::vector<std::string>{"a", "c", "c"}));
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.2), (std::vector<std::string>{"one", "two", "six"}));
}

TEST(Forbidden, AnEndpointStopsUntilItIsAborted) {
  Pair pair("stop:after=1,rank=0");
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.3), (std::vector<std::string>{"one"}));
  bool taken = false;
  EXPECT_EQ(pair.post(0, TUTTI_TRANSFER_RECV, 0, nullptr, 0, 9, &taken), TUTTI_OK);
  EXPECT_FALSE(taken);
  EXPECT_EQ(pair.t.abort(pair.endpoint[0]), TUTTI_OK);
  EXPECT_EQ(pair.post(0, TUTTI_TRANSFER_RECV, 0, nullptr, 0, 9, &taken), TUTTI_ABORTED);
}

TEST(Forbidden, BothEndsLearnOfADisconnection) {
  Pair pair("disconnect:after=1,rank=0");
  pair.exchange({"one", "two", "six"}, 0.3);
  EXPECT_NE(pair.failed[0].find("chaos disconnected rank 0 from rank 1 on purpose"), std::string::npos);
  EXPECT_NE(pair.failed[1], "") << "the other end noticed nothing";
}

TEST(Settings, AreCheckedAndTold) {
  settings() = {};
  EXPECT_EQ(query(), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(last_error.find("TUTTI_CHAOS_OVER is not set"), std::string::npos) << last_error;
  settings() = {{"TUTTI_CHAOS_OVER", over()}, {"TUTTI_CHAOS", "delay:us=x"}};
  EXPECT_EQ(query(), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("TUTTI_CHAOS, line 1, character 10"), std::string::npos) << last_error;
  settings()["TUTTI_CHAOS"] = "file:/nowhere/at/all";
  EXPECT_EQ(query(), TUTTI_NOT_FOUND);
  settings()["TUTTI_CHAOS"] = "random";
  settings()["TUTTI_CHAOS_SEED"] = "many";
  EXPECT_EQ(query(), TUTTI_INVALID_ARGUMENT);
  settings()["TUTTI_CHAOS_SEED"] = "42";
  all_logs.clear();
  EXPECT_EQ(query(), TUTTI_OK) << last_error;
  EXPECT_EQ(query(), TUTTI_OK);
  EXPECT_EQ(all_logs.find("TUTTI_CHAOS_SEED=42"), all_logs.rfind("TUTTI_CHAOS_SEED=42")) << "said once: " << all_logs;
  EXPECT_NE(all_logs.find("over " + over() + ", TUTTI_CHAOS_SEED=42, faults: "), std::string::npos) << all_logs;
}

}  // namespace
