// SPDX-License-Identifier: Apache-2.0
//
// Tuning files: which are refused, what they say at which size, and choices that follow them.
#include "engine/choose/tuning.hpp"

#include <gtest/gtest.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <cstring>
#include <stdexcept>

#include "engine/choose/selector.hpp"
#include "engine/plan/plan.hpp"

namespace tutti::core {
namespace {

// The root sends the block to each rank, `times` times: "once" is predicted to be the faster one.
struct Star {
  tutti_algorithm table{};
  uint64_t times;
  Star(const char* name, uint64_t messages) : times(messages) {
    table.struct_size = sizeof table;
    table.self = this;
    table.name = name;
    table.summary = "for tests";
    table.collectives = uint64_t{1} << TUTTI_BROADCAST;
    table.supports = [](void*, const tutti_query*) -> tutti_status { return TUTTI_OK; };
    table.schedule = [](void* self, const tutti_query* q, const tutti_schedule_sink* sink) -> tutti_status {
      const bool root = q->rank == q->root;
      tutti_step step{};
      step.kind = root ? TUTTI_STEP_SEND : TUTTI_STEP_RECV;
      step.dependency_lane = TUTTI_NO_DEPENDENCY;
      (root ? step.src : step.dst) = {root ? uint32_t{TUTTI_BUFFER_IN} : uint32_t{TUTTI_BUFFER_OUT}, 0, 1, 0};
      for (step.peer = 0; step.peer < q->nranks; ++step.peer)
        for (uint64_t i = 0; i < static_cast<Star*>(self)->times; ++i)
          if (root ? step.peer != q->root : step.peer == q->root)
            if (const tutti_status status = sink->add_step(sink->self, 0, &step, nullptr); status < 0) return status;
      return TUTTI_OK;
    };
  }
};
Star once("once", 1), twice("twice", 2), thrice("thrice", 3);

const void* get_interface(const char* id, uint32_t index) {
  const Star* all[] = {&once, &twice, &thrice};
  return std::strcmp(id, TUTTI_ALGORITHM_ID) == 0 && index < 3 ? &all[index]->table : nullptr;
}

class TuningFile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const tutti_plugin_info info{sizeof info, 0, "stars", "1.0.0", "Tutti", "Apache-2.0", "for tests"};
    static const tutti_plugin_entry_table entry{
        sizeof entry,    TUTTI_ABI_MAJOR,
        TUTTI_ABI_MINOR, 0,
        &info,           [](const tutti_host*) { return tutti_status{TUTTI_OK}; },
        get_interface};
    ASSERT_EQ(tutti_plugin_register(&entry), TUTTI_OK);
  }
};

const std::string good = R"({"tutti_tuning": 1, "host_of_rank": [0, 0], "transports": ["net"], "collectives":
  {"broadcast": [{"block_bytes": 1024, "us": {"once": 9, "twice": 5}},
                 {"block_bytes": 16384, "us": {"once": 36, "twice": 80, "thrice": 37}}]}})";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    Tuning read(text);
  } catch (const std::runtime_error& wrong) {
    return wrong.what();
  }
  return "taken";
}

TEST_F(TuningFile, BadOnesAreRefused) {
  EXPECT_EQ(refusal(good), "taken");
  const std::string at = "collectives.broadcast[1].";
  const struct {
    const char *from, *to;
    std::string said;
  } cases[] = {
      {"{\"tutti_tuning\"", "[\"tutti_tuning\"", "not JSON: "},
      {"\"tutti_tuning\": 1, ", "", "the file: expected an object with \"tutti_tuning\": 1, got {"},
      {"\"tutti_tuning\": 1", "\"tutti_tuning\": 2",
       "tutti_tuning: expected 1, the format that this version reads, got 2"},
      {"\"host_of_rank\": [0, 0], ", "", "host_of_rank is missing"},
      {"\"host_of_rank\": [0, 0]", "\"host_of_rank\": [0, 2]", "host_of_rank[1]: expected a host's number, at most 1"},
      {"\"host_of_rank\": [0, 0]", "\"host_of_rank\": [-1]", "host_of_rank[0]: expected a host's number, at most 0"},
      {"[\"net\"]", "\"net\"", "transports: expected a list of names, got \"net\""},
      {"[\"net\"]", "[\"net\", \"net\"]", "transports: expected names, each once"},
      {"\"transports\"", "\"speed\": 1, \"transports\"", "the file: unknown key speed; known are "},
      {"\"broadcast\"", "\"broadcasts\"", "collectives.broadcasts: there is no such collective"},
      {"\"broadcast\"", "\"gather_v\"", "collectives.gather_v: expected a collective of equal blocks"},
      {"16384", "1024", at + "block_bytes: expected more than 1024: sizes rise, got 1024"},
      {"16384", "-4", at + "block_bytes: expected a whole number, at least 0, got -4"},
      {"\"thrice\": 37", "\"thrice\": -3", at + "us.thrice: expected microseconds from 1e-6 to 1e12, got -3"},
      {"\"thrice\": 37", "\"thrice\": \"3\"", at + "us.thrice: expected microseconds from 1e-6 to 1e12, got \"3\""},
      {"\"thrice\": 37", "\"thrice\": 1e999", "not JSON: "},
      {"\"thrice\": 37", "\"often\": 37", at + "us: there is no algorithm \"often\"; there are: "},
  };
  for (const auto& [from, to, said] : cases) {
    const std::string text = refusal(changed(good, from, to));
    EXPECT_TRUE(text.starts_with(said)) << "expected: " << said << "\ngot:      " << text;
  }
  EXPECT_EQ(refusal(changed(good, "broadcast", "all_reduce")),
            "collectives.all_reduce[0].us: once does no all_reduce: expected an algorithm that does");
  EXPECT_EQ(refusal(std::string(100'000, '[')), "the file: expected at most 16 levels of lists and objects, got more");
  EXPECT_NE(Tuning(good).digest(), Tuning(good + "\n").digest());
}

TEST_F(TuningFile, TimesBetweenTwoSizesAreInterpolated) {
  const Tuning tuning(good);
  const auto us = [&](const char* algorithm, uint64_t bytes) {
    return tuning.seconds(TUTTI_BROADCAST, algorithm, bytes).value_or(-1e-6) * 1e6;
  };
  EXPECT_DOUBLE_EQ(us("once", 1024), 9);
  EXPECT_DOUBLE_EQ(us("once", 16384), 36);
  EXPECT_NEAR(us("once", 4096), 18, 1e-9) << "half way: the square root of 9 * 36";
  EXPECT_NEAR(us("twice", 4096), 20, 1e-9);
  EXPECT_DOUBLE_EQ(us("once", 1023), -1) << "smaller than what was measured";
  EXPECT_DOUBLE_EQ(us("once", 16385), -1) << "larger";
  EXPECT_DOUBLE_EQ(us("thrice", 4096), -1) << "measured at one size only";
  EXPECT_DOUBLE_EQ(us("thrice", 16384), 37);
  EXPECT_FALSE(tuning.seconds(TUTTI_REDUCE, "once", 1024)) << "another collective";
}

Topology ranks_on(const std::vector<const char*>& hosts, const char* transport = "net") {
  std::vector<RankDescription> ranks(hosts.size());
  for (uint32_t r = 0; r < ranks.size(); ++r) {
    ranks[r].host = hosts[r];
    ranks[r].process = r + 1;
    ranks[r].cores = 8;
    ranks[r].transports = {{transport, "1", TUTTI_REACH_NETWORK, "", 64 << 10, 5000, 10'000'000'000}};
  }
  return Topology(ranks);
}

struct Choice {
  Shape shape;
  const Topology topology;
  Selector selector;
  Choice(const std::string& file, Topology ranks, const char* filter = "")
      : topology(std::move(ranks)),
        selector(topology, AlgorithmFilter(filter), {&once.table, &twice.table, &thrice.table}, 2, 1 << 20,
                 {.tuning = std::make_shared<const Tuning>(file)}) {
    shape.collective = TUTTI_BROADCAST;
    shape.dtype = TUTTI_UINT8;
  }
  std::string of(uint64_t bytes, bool on_device = false) {
    shape.count = bytes;
    return selector.choose(shape, on_device).name();
  }
  std::string note(uint64_t bytes) {
    shape.count = bytes;
    return selector.tuning_note(TUTTI_BROADCAST, selector.candidates(shape, false));
  }
};

TEST_F(TuningFile, TheLowestMeasuredTimeIsChosen) {
  Choice choice(good, ranks_on({"a", "a"}));
  EXPECT_EQ(choice.of(1024), "twice") << "predicted to be slower, measured to be faster";
  EXPECT_EQ(choice.of(4096), "once") << "18 us against 20";
  EXPECT_EQ(choice.of(512), "once") << "outside of what was measured predictions count";
  EXPECT_EQ(choice.of(1024, true), "once") << "calls on devices were not measured";
  choice.shape.count = 1024;
  const std::vector<Candidate> all = choice.selector.candidates(choice.shape, false);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_STREQ(all[1].name(), "once");
  EXPECT_STREQ(all[2].name(), "thrice") << "not measured at this size";
  EXPECT_DOUBLE_EQ(*all[0].measured, 5e-6);
  EXPECT_FALSE(all[2].measured);
  EXPECT_EQ(choice.selector.why(all[0], all), "chosen: the lowest measured time");
  EXPECT_EQ(choice.note(1024), "");
  EXPECT_EQ(choice.note(512),
            "TUTTI_TUNING has no effect: no candidate was measured at this size; measured: blocks of 1024 to 16384 bytes "
            "of broadcast");
}

TEST_F(TuningFile, ForcedAlgorithmsStay) {
  EXPECT_EQ(Choice(good, ranks_on({"a", "a"}), "broadcast:once").of(1024), "once");
  EXPECT_EQ(Choice(good, ranks_on({"a", "a"}), "broadcast:once,twice:2").of(1024), "once")
      << "measured without parameters";
}

TEST_F(TuningFile, OtherRanksIgnoreIt) {
  const struct {
    Topology ranks;
    const char* said;
  } cases[] = {{ranks_on({"a", "a", "a"}), "this communicator has 3 ranks on 1 host over net"},
               {ranks_on({"a", "b"}), "this communicator has 2 ranks on 2 hosts over net"},
               {ranks_on({"a", "a"}, "other"), "this communicator has 2 ranks on 1 host over other"}};
  for (const auto& [ranks, said] : cases) {
    Choice choice(good, ranks);
    EXPECT_EQ(choice.of(1024), "once") << said;
    EXPECT_EQ(choice.note(1024),
              std::string("TUTTI_TUNING has no effect: it was measured with 2 ranks on 1 host over net, ") + said);
  }
  Choice in_turn(changed(good, "[0, 0]", "[0, 1, 0, 1]"), ranks_on({"a", "a", "b", "b"}));
  EXPECT_EQ(in_turn.of(1024), "once");
  EXPECT_NE(in_turn.note(1024).find("which are placed differently"), std::string::npos) << in_turn.note(1024);
}

}  // namespace
}  // namespace tutti::core
