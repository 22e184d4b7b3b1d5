// SPDX-License-Identifier: Apache-2.0
//
// Two ranks over chaos over shared memory (viewed) and over the template (posted): what the contract allows changes
// neither bytes nor order; what it forbids happens as the script says.
#include <cstring>
#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_chaos, tutti_plugin_entry_shm, tutti_plugin_entry_template;

const tutti_plugin_entry_table& tutti_test::plugin_under_test() { return tutti_plugin_entry_chaos; }

namespace {

using namespace tutti_test;

std::map<std::string, std::string>& settings() {
  static const bool wrappable = [] {
    host().table.find_interface = [](void*, const char* plugin, const char* id) -> const void* {
      if (std::strcmp(plugin, "shm") == 0) return tutti_plugin_entry_shm.get_interface(id, 0);
      if (std::strcmp(plugin, "template") == 0) return tutti_plugin_entry_template.get_interface(id, 0);
      return nullptr;
    };
    for (const auto* entry : {&tutti_plugin_entry_shm, &tutti_plugin_entry_template}) entry->init(&host().table);
    return true;
  }();
  (void)wrappable;
  return host().settings;
}
std::string all_logs() {
  std::string all;
  for (const std::string& line : host().log) all += line + "\n";
  return all;
}

// The wrapped plugin is found once per process: each of the two has a program run of its own (CMakeLists.txt).
std::string over() {
  const char* name = getenv("CHAOS_TEST_OVER");
  return name ? name : "shm";
}

tutti_status query() {
  tutti_transport_caps caps{};
  return tutti_test::query(&caps);
}

struct Pair {
  explicit Pair(const std::string& script) {
    settings() = {{"TUTTI_CHAOS_OVER", over()}, {"TUTTI_CHAOS", script}, {"TUTTI_CHAOS_SEED", "7"}};
    host().log.clear();
    EXPECT_EQ(query(), TUTTI_OK) << Host::error;
    view = static_cast<const tutti_view*>(table().get_interface(table().self, TUTTI_VIEW_ID));
    a = std::make_unique<Rank>(0);
    b = std::make_unique<Rank>(1);
  }
  Pair& joined() {
    join(*a, *b);
    return *this;
  }
  bool drive(const std::function<bool()>& until, double seconds = 20) {
    return tutti_test::drive({a.get(), b.get()}, until, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
  }
  // Sends from rank 0, by view where there is one.
  bool send(uint32_t lane, const std::string& text) {
    if (!view) {
      sent.push_back(text);
      const bool taken = a->send(1, lane, sent.back().data(), text.size(), ++next_cookie) == TUTTI_OK;
      if (!taken) sent.pop_back();
      return taken;
    }
    void* room = view->try_reserve(a->link(1), lane, text.size());
    if (room) std::memcpy(room, text.data(), text.size());
    if (room) view->commit(a->link(1), lane, text.size());
    return room;
  }
  // Takes a message at rank 1; false: none yet.
  bool receive(uint32_t lane, uint64_t expected, std::string* text) {
    if (view) {
      uint64_t bytes = 0;
      const void* message = view->try_receive(b->link(0), lane, &bytes);
      if (!message) return false;
      text->assign(static_cast<const char*>(message), bytes);
      view->release(b->link(0), lane);
      return true;
    }
    auto& [asked, buffer, cookie] = receiving[lane];
    if (!asked) {
      buffer.assign(expected, '?');
      cookie = ++next_cookie;
      asked = b->receive(0, lane, buffer.data(), expected, cookie) == TUTTI_OK;
    }
    const auto ended = b->ended.find(cookie);
    if (ended == b->ended.end()) return false;
    asked = false;
    *text = ended->second.status == TUTTI_OK ? buffer : "status " + std::to_string(ended->second.status);
    return true;
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
  const tutti_view* view = nullptr;
  std::unique_ptr<Rank> a, b;
  std::deque<std::string> sent;
  std::map<uint32_t, Receiving> receiving;
  uint64_t next_cookie = 100;
};

class Allowed : public testing::TestWithParam<const char*> {};

TEST_P(Allowed, BytesAndOrderOfEachLaneStay) {
  Pair pair(GetParam());
  pair.joined();
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
      if (table().send_control(pair.a->link(1), number.data(), number.size()) == TUTTI_OK) ++controls;
    }
    return all && pair.b->controls.size() == messages;
  })) << GetParam();
  for (uint32_t i = 0; i < pair.b->controls.size(); ++i) EXPECT_EQ(pair.b->controls[i], std::to_string(i));
  if (!pair.view) {
    EXPECT_TRUE(pair.drive([&] { return pair.a->ended.size() == lanes * messages; })) << "a SEND did not complete";
  }
  pair.a->close();
  pair.b->close();
  if (*GetParam()) {
    EXPECT_NE(all_logs().find("faults that struck: "), std::string::npos) << all_logs();
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Allowed,
                         testing::Values("", "delay:p=0.5,us=300", "reorder:p=0.5,polls=20", "partial:p=0.7,times=5",
                                         "short", "short:times=0", "short:p=0.8,times=20", "slow:us=30,rank=1",
                                         "delay:pair=1,us=20000", "delay:p=0.2;reorder:p=0.3;partial:p=0.3;short:p=0.3",
                                         "random"),
                         [](const auto& each) { return std::to_string(each.index); });

TEST(Forbidden, AMessageIsLost) {
  Pair pair("lose:after=1");
  pair.joined();
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.3), (std::vector<std::string>{"one", "six"}));
  EXPECT_NE(all_logs().find("rank 0: fault lose strikes at a message of 3 bytes to rank 1 on lane 2"),
            std::string::npos)
      << all_logs();
}

TEST(Forbidden, AMessageComesTwice) {
  Pair pair("duplicate:after=1");
  pair.joined();
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.3), (std::vector<std::string>{"one", "two", "two", "six"}));
}

TEST(Forbidden, OneBitIsChanged) {
  Pair pair("corrupt:after=1");
  pair.joined();
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
  pair.joined();
  for (const char* text : {"a", "b", "c"}) EXPECT_EQ(table().send_control(pair.a->link(1), text, 1), TUTTI_OK);
  pair.drive([&] { return pair.b->controls.size() == 4; }, 0.3);
  EXPECT_EQ(pair.b->controls, (std::vector<std::string>{"a", "c", "c"}));
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.2), (std::vector<std::string>{"one", "two", "six"}));
}

TEST(Forbidden, AnEndpointStopsUntilItIsAborted) {
  Pair pair("stop:after=1,rank=0");
  pair.joined();
  EXPECT_EQ(pair.exchange({"one", "two", "six"}, 0.3), (std::vector<std::string>{"one"}));
  EXPECT_EQ(pair.a->receive(1, 0, nullptr, 0, 9), TUTTI_AGAIN);
  EXPECT_EQ(table().abort(pair.a->endpoint), TUTTI_OK);
  EXPECT_EQ(pair.a->receive(1, 0, nullptr, 0, 9), TUTTI_ABORTED);
}

TEST(Forbidden, BothEndsLearnOfADisconnection) {
  Pair pair("disconnect:after=1,rank=0");
  pair.joined();
  pair.exchange({"one", "two", "six"}, 0.3);
  EXPECT_NE(pair.a->failures[1].find("chaos disconnected rank 0 from rank 1 on purpose"), std::string::npos);
  EXPECT_NE(pair.b->failures[0], "") << "the other end noticed nothing";
}

TEST(Forbidden, BetweenADisconnectionAndItsRecordNothingIsAnError) {
  Pair pair("disconnect:rank=0");
  pair.joined();
  EXPECT_FALSE(pair.send(2, "one"));
  EXPECT_EQ(pair.a->receive(1, 0, nullptr, 0, 1), TUTTI_AGAIN);
  EXPECT_EQ(table().send_control(pair.a->link(1), "x", 1), TUTTI_AGAIN);
  EXPECT_TRUE(pair.drive([&] { return pair.a->failures.contains(1); }));
  EXPECT_EQ(pair.a->receive(1, 0, nullptr, 0, 1), TUTTI_PEER_FAILED);
  EXPECT_EQ(table().send_control(pair.a->link(1), "x", 1), TUTTI_PEER_FAILED);
}

TEST(PairMessages, MayBeLateOrLost) {
  {
    Pair pair("delay:pair=1,rank=1,us=10000000");  // the dice give some seconds
    EXPECT_FALSE(pair.drive([&] { return pair.a->connect(1) == TUTTI_OK; }, 0.2));
  }
  Pair pair("lose:pair=1,rank=1");
  EXPECT_FALSE(pair.drive([&] { return pair.a->connect(1) == TUTTI_OK; }, 0.2));
  EXPECT_NE(all_logs().find("rank 1: fault lose strikes at a pair message of"), std::string::npos) << all_logs();
}

TEST(Settings, AreCheckedAndTold) {
  settings() = {};
  EXPECT_EQ(query(), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("TUTTI_CHAOS_OVER is not set"), std::string::npos) << Host::error;
  settings() = {{"TUTTI_CHAOS_OVER", over()}, {"TUTTI_CHAOS", "delay:us=x"}};
  EXPECT_EQ(query(), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("TUTTI_CHAOS, line 1, character 10"), std::string::npos) << Host::error;
  settings()["TUTTI_CHAOS"] = "file:/nowhere/at/all";
  EXPECT_EQ(query(), TUTTI_NOT_FOUND);
  settings()["TUTTI_CHAOS"] = "random";
  settings()["TUTTI_CHAOS_SEED"] = "many";
  EXPECT_EQ(query(), TUTTI_INVALID_ARGUMENT);
  settings()["TUTTI_CHAOS_SEED"] = "42";
  host().log.clear();
  EXPECT_EQ(query(), TUTTI_OK) << Host::error;
  EXPECT_EQ(query(), TUTTI_OK);
  EXPECT_EQ(all_logs().find("TUTTI_CHAOS_SEED=42"), all_logs().rfind("TUTTI_CHAOS_SEED=42"))
      << "said once: " << all_logs();
  EXPECT_NE(all_logs().find("over " + over() + ", TUTTI_CHAOS_SEED=42, faults: "), std::string::npos) << all_logs();
}

}  // namespace
