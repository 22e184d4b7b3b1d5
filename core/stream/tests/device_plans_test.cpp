// SPDX-License-Identifier: Apache-2.0
//
// Plans of calls on device memory: their proof at first use (TUTTI_VERIFY), and what reports and explanations say of
// them.
#include "../../tests/harness/unequal_streams.hpp"
#include "../../tests/harness/window_data.hpp"

namespace tutti::test {
namespace {

// Each rank gets its own contribution alone.
tutti_status keep_own(void*, const tutti_query* q, const tutti_schedule_sink* sink) {
  if (q->flags & TUTTI_QUERY_IN_PLACE) return TUTTI_OK;
  tutti_step step{};
  step.kind = TUTTI_STEP_COPY;
  step.flags = q->collective == TUTTI_ALL_REDUCE ? TUTTI_STEP_LOAD | TUTTI_STEP_FINAL : 0;
  step.dependency_lane = TUTTI_NO_DEPENDENCY;
  step.src = {TUTTI_BUFFER_IN, 0, 1, 0};
  step.dst = {TUTTI_BUFFER_OUT, q->collective == TUTTI_ALL_REDUCE ? 0 : q->rank, 1, 0};
  return sink->add_step(sink->self, 0, &step, nullptr);
}
const tutti_algorithm own{sizeof own,
                          0,
                          nullptr,
                          "own",
                          "for tests",
                          uint64_t{1} << TUTTI_ALL_REDUCE | uint64_t{1} << TUTTI_ALL_GATHER_V,
                          [](void*, const tutti_query*) -> tutti_status { return TUTTI_OK; },
                          keep_own,
                          0};
constexpr const char *all_own = "all_reduce:own;all_gather_v:own", *none_own = "all_reduce:^own;all_gather_v:^own";

Problem problem_of(uint32_t collective, uint32_t nranks) {
  Problem problem;
  problem.collective = collective;
  problem.nranks = nranks;
  problem.lanes = 4;
  problem.hosts.assign(nranks, 0);
  return problem;
}

class DevicePlans : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const tutti_plugin_info info{sizeof info, 0, "own", "1.0.0", "Tutti", "Apache-2.0", "for tests"};
    static const tutti_plugin_entry_table entry{
        sizeof entry,
        TUTTI_ABI_MAJOR,
        TUTTI_ABI_MINOR,
        0,
        &info,
        [](const tutti_host*) { return tutti_status{TUTTI_OK}; },
        [](const char* id, uint32_t index) -> const void* {
          return std::strcmp(id, TUTTI_ALGORITHM_ID) == 0 && index == 0 ? &own : nullptr;
        }};
    ASSERT_EQ(tutti_plugin_register(&entry), TUTTI_OK);
  }
  void TearDown() override { unsetenv("TUTTI_VERIFY"); }
};

// Rank 0 makes a call, and the others one of the host's that is right: all hear the same.
void expect_refusal(tutti_comm* comm, uint32_t rank, uint32_t collective, const std::function<tutti_status()>& call) {
  const std::string words = "TUTTI_VERIFY: algorithm own is wrong: " +
                            verify_algorithm(own, problem_of(collective, tutti_comm_nranks(comm))).error;
  EXPECT_EQ(rank == 0 ? call() : tutti_barrier(comm, nullptr, nullptr), TUTTI_INTERNAL);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find("rank 0 failed: " + words), std::string::npos)
      << "rank " << rank << ": expected " << words << ", got " << tutti_comm_error(comm);
}

tutti_status reduce(tutti_comm* comm, const void* in, void* out, const tutti_options* options) {
  return tutti_all_reduce(comm, in, out, 100, TUTTI_INT64, TUTTI_SUM, options, nullptr);
}

TEST_F(DevicePlans, AWrongAlgorithmIsRefusedAsOnTheHost) {
  setenv("TUTTI_VERIFY", "1", 1);
  const Body on_host = [](tutti_comm* comm, uint32_t rank) {
    int64_t in[100] = {}, out[100];
    expect_refusal(comm, rank, TUTTI_ALL_REDUCE, [&] { return reduce(comm, in, out, nullptr); });
  };
  const auto in_stream = [](bool in_place) {
    return [in_place](tutti_comm* comm, uint32_t rank) {
      Stream s;
      auto *in = s.make<int64_t>(100), *out = s.make<int64_t>(100);
      const tutti_options options = on(s);
      expect_refusal(comm, rank, TUTTI_ALL_REDUCE, [&] { return reduce(comm, in_place ? out : in, out, &options); });
      s.free(in);
      s.free(out);
    };
  };
  const Body unequal = [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    UnequalCall call(s, comm, TUTTI_ALL_GATHER_V, [](uint32_t, uint32_t to) { return 10 + to; });
    expect_refusal(comm, rank, TUTTI_ALL_GATHER_V, [&] { return call.issue(on(s)); });
  };
  const Body in_windows = [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const Data in(comm, s, 100), out(comm, s, 100);
    const tutti_options options = on(s);
    expect_refusal(comm, rank, TUTTI_ALL_REDUCE, [&] { return reduce(comm, in.device, out.device, &options); });
  };
  for (const uint32_t per_process : {1u, 2u})
    for (const Body& body : {on_host, Body(in_stream(false)), Body(in_stream(true)), unequal, in_windows})
      run_processes(2, per_process, body, all_own);
}

TEST_F(DevicePlans, RightAlgorithmsAreProvedAndServe) {
  setenv("TUTTI_VERIFY", "1", 1);
  const Body everything = [](tutti_comm* comm, uint32_t rank) {
    for (const uint64_t count : {7u, 5000u}) check_all(comm, rank, count, nullptr);
    Stream s;
    for (const uint32_t collective : unequal_collectives)
      for (const bool in_place : {false, true}) {
        UnequalCall call(
            s, comm, collective, [](uint32_t from, uint32_t to) { return 3 * from + to; }, in_place);
        call.fill(0);
        ASSERT_EQ(call.issue(on(s)), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        call.check();
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
      }
  };
  for (const uint32_t per_process : {1u, 3u}) run_processes(3, per_process, everything, none_own);
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, 1000);
        EXPECT_EQ(served(comm), "simulated+window");
      },
      none_own);
}

// ---- Reports

tutti_plan_facts facts_of(tutti_comm* comm, uint32_t collective) {
  tutti_plan_facts facts{sizeof(tutti_plan_facts)};
  EXPECT_EQ(tutti_comm_plan(comm, collective, &facts), TUTTI_OK) << tutti_comm_error(comm);
  return facts;
}

// The hash of the schedule that the algorithm of the last call gives this rank.
uint64_t expected_hash(tutti_comm* comm, uint32_t collective, bool in_place = false) {
  Problem problem = problem_of(collective, tutti_comm_nranks(comm));
  problem.in_place.assign(problem.nranks, in_place);
  std::string error;
  Schedule schedule;
  const tutti_algorithm* algorithm = find_algorithm(facts_of(comm, collective).algorithm, &error);
  EXPECT_NE(algorithm, nullptr) << error;
  EXPECT_EQ(build_schedule(*algorithm, make_query(problem, tutti_comm_rank(comm)), &schedule, &error), TUTTI_OK);
  return schedule_hash(schedule);
}

TEST_F(DevicePlans, FactsAreThoseOfTheLastCall) {
  const auto check = [](bool many_slices) {
    return [many_slices](tutti_comm* comm, uint32_t) {
      Stream s;
      const tutti_options options = on(s);
      constexpr uint64_t count = 8 * mib;  // chunks that half of the slots do not hold
      auto *in = s.make<int64_t>(count), *out = s.make<int64_t>(count);
      const auto call = [&](const int64_t* from) {
        ASSERT_EQ(tutti_all_reduce(comm, from, out, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        const tutti_plan_facts facts = facts_of(comm, TUTTI_ALL_REDUCE);
        EXPECT_STREQ(facts.algorithm, "ring");
        EXPECT_EQ(facts.schedule_hash, expected_hash(comm, TUTTI_ALL_REDUCE, from == out)) << (from == out);
        EXPECT_EQ(facts.slices > 1, many_slices) << facts.slices;
      };
      call(in);
      call(out);
      UnequalCall unequal(s, comm, TUTTI_ALL_GATHER_V, [](uint32_t, uint32_t to) { return 10 + to; });
      ASSERT_EQ(unequal.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      EXPECT_EQ(facts_of(comm, TUTTI_ALL_GATHER_V).schedule_hash, expected_hash(comm, TUTTI_ALL_GATHER_V));
      EXPECT_EQ(facts_of(comm, TUTTI_ALL_GATHER_V).slices, 1u);
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
      s.free(in);
      s.free(out);
    };
  };
  run_processes(2, 2, check(false), "all_reduce:ring;all_gather_v:^own");
  run_processes(2, 1, check(true), "all_reduce:ring;all_gather_v:^own");
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, 8 * mib);
        const tutti_plan_facts facts = facts_of(comm, TUTTI_ALL_REDUCE);
        EXPECT_EQ(served(comm), "simulated+window");
        EXPECT_EQ(facts.schedule_hash, expected_hash(comm, TUTTI_ALL_REDUCE));
        EXPECT_EQ(facts.slices, 1u);
      },
      "all_reduce:ring");
}

// Calls of all kinds one after the other, of one shape.
TEST_F(DevicePlans, FactsFollowTheKindOfCall) {
  run_processes(
      2, 2,
      [](tutti_comm* comm, uint32_t) {
        Stream s;
        auto *in = s.make<int64_t>(100), *out = s.make<int64_t>(100);
        int64_t host[100] = {};
        tutti_request* kept[2];
        for (const bool on_device : {false, true}) {
          tutti_options options = on(s);
          if (!on_device) options.stream = nullptr;
          options.flags = TUTTI_PERSISTENT;
          ASSERT_EQ(tutti_all_reduce(comm, on_device ? in : host, on_device ? out : host, 100, TUTTI_INT64, TUTTI_SUM,
                                     &options, &kept[on_device]),
                    TUTTI_OK)
              << tutti_comm_error(comm);
        }
        const auto start = [&](bool on_device) {
          ASSERT_EQ(tutti_request_start(kept[on_device]), TUTTI_OK) << tutti_comm_error(comm);
          ASSERT_EQ(tutti_request_wait(kept[on_device]), TUTTI_OK) << tutti_comm_error(comm);
        };
        const tutti_options options = on(s);
        for (int round = 0; round < 3; ++round) {
          ASSERT_EQ(reduce(comm, host, host, nullptr), TUTTI_OK) << tutti_comm_error(comm);
          EXPECT_EQ(served(comm), "shm") << round;
          start(true);
          EXPECT_EQ(served(comm), "simulated") << round;
          ASSERT_EQ(reduce(comm, host, host, nullptr), TUTTI_OK) << tutti_comm_error(comm);
          EXPECT_EQ(served(comm), "shm") << "after a start in a stream, round " << round;
          ASSERT_EQ(reduce(comm, in, out, &options), TUTTI_OK) << tutti_comm_error(comm);
          EXPECT_EQ(served(comm), "simulated") << round;
          start(false);
          EXPECT_EQ(served(comm), "shm") << round;
        }
        ASSERT_TRUE(s.finish());
        for (tutti_request* request : kept) tutti_request_free(request);
        s.free(in);
        s.free(out);
      },
      none_own);
}

// ---- Explanations

std::string explained(tutti_comm* comm, uint64_t count) {
  std::string text(16384, '\0');
  uint64_t bytes = text.size();
  EXPECT_EQ(tutti_comm_explain(comm, TUTTI_ALL_REDUCE, count, TUTTI_INT64, text.data(), &bytes), TUTTI_OK)
      << tutti_comm_error(comm);
  text.resize(bytes - 1);
  return text;
}

// The algorithm of the line that says so.
std::string chosen_in(const std::string& table) {
  const size_t chosen = table.find("chosen: the lowest predicted time");
  const size_t line = table.rfind('\n', chosen) + 1;
  EXPECT_NE(chosen, std::string::npos) << table;
  const size_t begin = table.find_first_not_of(' ', line);
  return chosen == std::string::npos ? "none" : table.substr(begin, table.find(' ', begin) - begin);
}

TEST_F(DevicePlans, AreExplainedBesideThoseOfTheHost) {
  run_processes(
      3, 3,
      [](tutti_comm* comm, uint32_t) {
        Stream s;
        const tutti_options options = on(s);
        for (const uint64_t count : {uint64_t{1}, 4 * mib}) {
          const std::string text = explained(comm, count);
          const size_t second = text.find("all_reduce of ", 1);
          ASSERT_NE(second, std::string::npos) << text;
          const std::string host = text.substr(0, second), device = text.substr(second);
          EXPECT_NE(host.find(" in host memory, 3 ranks on 1 hosts\n"), std::string::npos) << text;
          EXPECT_NE(device.find(" in device memory, 3 ranks on 1 hosts\n"), std::string::npos) << text;
          auto* data = s.make<int64_t>(count);
          std::vector<int64_t> own(count);
          const auto reduce = [&](void* where, const tutti_options* how) {
            ASSERT_EQ(tutti_all_reduce(comm, where, where, count, TUTTI_INT64, TUTTI_SUM, how, nullptr), TUTTI_OK);
          };
          reduce(own.data(), nullptr);
          EXPECT_EQ(chosen_in(host), facts_of(comm, TUTTI_ALL_REDUCE).algorithm) << text;
          reduce(data, &options);
          EXPECT_EQ(chosen_in(device), facts_of(comm, TUTTI_ALL_REDUCE).algorithm) << text;
          ASSERT_TRUE(s.finish());
          s.free(data);
        }
      },
      none_own);
}

TEST_F(DevicePlans, WithoutADeviceTheHostAloneIsExplained) {
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.rendezvous = "local:explain";
  config.nranks = 1;
  config.device = "none";
  tutti_comm* comm = nullptr;
  ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
  EXPECT_NE(explained(comm, 1000).find("in host memory"), std::string::npos);
  EXPECT_EQ(explained(comm, 1000).find("in device memory"), std::string::npos) << explained(comm, 1000);
  EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
}

}  // namespace
}  // namespace tutti::test
