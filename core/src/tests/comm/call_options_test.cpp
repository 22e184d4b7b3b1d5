// SPDX-License-Identifier: Apache-2.0
//
// The options of one call: its algorithms, its order and its tag, on host memory. Ranks as threads. Ranks that differ
// in them: call_check_test has every pair; here is what the error says.
#include <cstdio>
#include <map>
#include <string>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using Calls = std::map<std::string, uint64_t>;  // by algorithm
Calls served(const Communicator& world, const std::string& collective = "all_reduce") {
  Calls calls;
  for (const tutti_service& row : world.services())
    if (row.collective == collective && row.calls) calls[row.algorithm] += row.calls;
  return calls;
}

void sum(const Communicator& world, const Options& options) {
  std::vector<int64_t> in(100, world.rank() + 1), out(100);
  world.all_reduce(in, out, Op::sum, options);
  const int64_t n = world.nranks();
  EXPECT_EQ(out, std::vector<int64_t>(100, n * (n + 1) / 2));
}

// ---- Algorithms.

TEST(CallAlgorithms, ServeTheirCallInPlaceOfTheCommunicators) {
  for (const char* transports : {"shm", "tcp"})
    run_ranks(3,
              [](Communicator& world) {
                for (int round = 0; round < 2; ++round) {
                  sum(world, {.algorithms = "ring"});
                  sum(world, {});
                  sum(world, {.algorithms = "^tree,ring,double_tree"});
                  sum(world, {.algorithms = ""});
                }
                const Calls calls = served(world);
                EXPECT_EQ(calls.at("ring"), 2u);
                EXPECT_EQ(calls.at("tree"), 4u) << "the communicator's";
                EXPECT_EQ(calls.size(), 3u);
              },
              {.transports = transports, .algorithms = "all_reduce:tree"});
}

// The text is the caller's memory, which has another name the next time.
TEST(CallAlgorithms, AreReadAtEachCall) {
  run_ranks(2, [](Communicator& world) {
    char name[16];
    for (int round = 0; round < 3; ++round)
      for (const char* one : {"ring", "tree", "direct"}) {
        std::snprintf(name, sizeof name, "%s", one);
        sum(world, {.algorithms = name});
      }
    EXPECT_EQ(served(world), (Calls{{"ring", 3}, {"tree", 3}, {"direct", 3}}));
  });
}

TEST(CallAlgorithms, MayHaveParametersAndServeEveryCollective) {
  run_ranks(4, [](Communicator& world) {
    std::vector<int32_t> in(16, static_cast<int32_t>(world.rank())), out(16);
    for (const char* algorithms : {"bruck:4", "bruck:2", "pairwise"}) {
      world.all_to_all(in, out, {.algorithms = algorithms});
      for (int32_t i = 0; i < 16; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], i / 4) << algorithms;
    }
    world.barrier({.algorithms = "doubling"});
    std::vector<int32_t> mine(1 + world.rank(), 7), all(10);
    world.all_gather_v(mine, all, {std::vector<uint64_t>{1, 2, 3, 4}}, {.algorithms = "ring"});
    EXPECT_EQ(all, std::vector<int32_t>(10, 7));
    EXPECT_EQ(served(world, "all_to_all"), (Calls{{"bruck", 2}, {"pairwise", 1}}));
    EXPECT_EQ(served(world, "barrier"), (Calls{{"doubling", 1}}));
    EXPECT_EQ(served(world, "all_gather_v"), (Calls{{"ring", 1}}));
  });
}

TEST(CallAlgorithms, AreRefusedWithTheNamesThereAre) {
  struct Wrong {
    const char* algorithms;
    tutti_status status;
    std::vector<std::string> words;
  };
  const Wrong wrong[] = {
      {"rings", TUTTI_NOT_FOUND, {"all_reduce: options.algorithms=\"rings\": ", "rings", "tree"}},
      {"ring,", TUTTI_INVALID_ARGUMENT, {"all_reduce: options.algorithms=\"ring,\": a name is empty"}},
      {"ring,^tree", TUTTI_INVALID_ARGUMENT, {"\"^tree\" has a ^ of its own"}},
      {"^ring:4", TUTTI_INVALID_ARGUMENT, {"options.algorithms=\"^ring:4\" rules ring out and has parameters"}},
      {"bruck",
       TUTTI_NOT_SUPPORTED,
       {"bruck: it does no all_reduce", "ring: options.algorithms=\"bruck\" rules it out"}}};
  run_ranks(2, [&](Communicator& world) {
    for (const Wrong& one : wrong) {
      const Failed failed = failure_of([&] { sum(world, {.algorithms = one.algorithms}); });
      EXPECT_EQ(failed.status, one.status) << failed.text;
      for (const std::string& word : one.words) EXPECT_TRUE(says(failed.text, word)) << word << " in " << failed.text;
    }
    sum(world, {});
  });
}

TEST(CallAlgorithms, MeetTheOrderOfTheCall) {
  run_ranks(3, [](Communicator& world) {
    float x = 1, y = 0;
    const auto reduce = [&](const char* algorithms) {
      world.all_reduce<float>({&x, 1}, {&y, 1}, Op::sum, {.algorithms = algorithms, .order = Order::canonical});
    };
    reduce("^ring");
    EXPECT_EQ(y, 3);
    const Failed failed = failure_of([&] { reduce("ring"); });
    EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED);
    EXPECT_TRUE(says(failed.text, "ring: its operands are not in the canonical order")) << failed.text;
  });
}

// ---- Persistent requests and groups.

TEST(CallOptions, OfPersistentRequestsHoldForEachStart) {
  run_ranks(2, [](Communicator& world) {
    std::vector<int64_t> in(100, 1), out(100);
    Request request = world.async().all_reduce(in, out, Op::sum, {.persistent = true, .algorithms = "ring", .tag = 5});
    for (int64_t k = 1; k <= 3; ++k) {
      in.assign(100, k);
      request.start();
      request.wait();
      EXPECT_EQ(out, std::vector<int64_t>(100, 2 * k));
      sum(world, {.algorithms = "tree"});
    }
    EXPECT_EQ(served(world), (Calls{{"ring", 3}, {"tree", 3}}));
  });
}

// Small calls travel as one where all options are equal.
TEST(CallOptions, OfGroupedCallsCount) {
  run_ranks(2, [](Communicator& world) {
    constexpr size_t calls = 8;
    const Options options[calls] = {{.algorithms = "ring"},
                                    {.algorithms = "tree"},
                                    {.algorithms = "ring"},
                                    {.tag = 1},
                                    {.tag = 2},
                                    {.tag = 1},
                                    {},
                                    {}};
    std::vector<int64_t> in(calls, world.rank()), out(calls);
    world.group([&] {
      for (size_t i = 0; i < calls; ++i)
        world.all_reduce(std::span<const int64_t>(&in[i], 1), std::span(&out[i], 1), Op::sum, options[i]);
    });
    EXPECT_EQ(out, std::vector<int64_t>(calls, 1));
    const Calls all = served(world);
    uint64_t n = 0;
    for (const auto& [algorithm, of_it] : all) n += of_it;
    EXPECT_EQ(n, 5u) << "ring, tree, tag 1, tag 2, none";
    EXPECT_GE(all.at("ring"), 1u);
    EXPECT_GE(all.at("tree"), 1u);
  });
}

// ---- Refusals.

TEST(CallOptions, AreRefusedWhereTheyMeanNothing) {
  run_ranks(2, [](Communicator& world) {
    float x = 0;
    const uint32_t peer = 1 - world.rank();
    struct Field {
      const char* name;
      Options options;
    };
    const Field fields[] = {
        {"algorithms", {.algorithms = "ring"}}, {"order", {.order = Order::free}}, {"tag", {.tag = 7}}};
    const auto refused = [&](const char* call, const Field& field, const std::function<void()>& body) {
      const Failed failed = failure_of(body);
      EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT) << call << " " << field.name;
      EXPECT_TRUE(says(failed.text, std::string(call) + ": options." + field.name + " is ")) << failed.text;
    };
    for (const Field& field : fields) {
      refused("send", field, [&] { world.send<float>({&x, 1}, peer, 0, field.options); });
      refused("receive", field, [&] { world.receive<float>({&x, 1}, peer, 0, field.options); });
      refused("exchange", field, [&] { world.exchange({}, field.options); });
      refused("group_end", field, [&] { world.group([] {}, field.options); });
    }
    refused("broadcast", fields[1], [&] { world.broadcast<float>({&x, 1}, 0, fields[1].options); });
    world.barrier();
  });
}

// An application that was built before they existed: its struct ends behind `stream`.
TEST(CallOptions, AreNoneInTheShorterStructOfOldApplications) {
  run_ranks(2, [](Communicator& world) {
    tutti_options options{};
    options.struct_size = offsetof(tutti_options, algorithms);
    ASSERT_EQ(options.struct_size, 24u);
    options.algorithms = reinterpret_cast<const char*>(uintptr_t{1});  // is not read
    options.order = options.wire = 99;
    options.tag = world.rank();
    int64_t in = 1, out = 0;
    EXPECT_EQ(tutti_all_reduce(world.handle(), &in, &out, 1, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(world.handle());
    EXPECT_EQ(out, 2);
  });
}

// ---- Ranks that differ.

struct Differing {
  const char* name;
  Options of_rank_0, of_others;
  std::string words;           // in checked mode, which blames rank 1
  std::string either = words;  // in any mode, whichever rank finds it
};

const Differing differing[] = {
    {"tags",
     {.tag = 7},
     {.tag = 8},
     "rank 1 called all_reduce(100 x int64, sum, tag 8) as operation #2, rank 0 called "
     "all_reduce(100 x int64, sum, tag 7): all ranks must make the same calls",
     "all_reduce(100 x int64, sum, tag 8)"},
    {"a tag and none", {.tag = 7}, {}, "all_reduce(100 x int64, sum, tag 7)"},
    {"algorithms",
     {.algorithms = "ring"},
     {.algorithms = "tree"},
     "rank 1 called all_reduce(100 x int64, sum) as operation #2, rank 0 called "
     "all_reduce(100 x int64, sum) with other algorithms (tutti_options.algorithms)",
     "called all_reduce(100 x int64, sum) with other algorithms (tutti_options.algorithms)"},
    {"algorithms that come to the same", {.algorithms = "ring"}, {.algorithms = "=ring"}, "with other algorithms"}};

TEST(CallOptions, ThatDifferAreNamedInCheckedMode) {
  for (const Differing& one : differing)
    run_ranks(3,
              [&](Communicator& world) {
                const Options& options = world.rank() ? one.of_others : one.of_rank_0;
                sum(world, {});
                sum(world, {.tag = 1});
                const Failed failed = failure_of([&] { sum(world, options); });
                EXPECT_EQ(failed.status, TUTTI_MISMATCH) << one.name;
                EXPECT_TRUE(says(failed.text, one.words)) << one.name << ": " << failed.text;
              },
              {.flags = TUTTI_COMM_CHECK_CALLS});
}

// The marks of the messages tell them apart, also where all plans have been used before.
TEST(CallOptions, ThatDifferAreMismatchesInAnyMode) {
  for (const Differing& one : differing)
    for (const char* transports : {"shm", "tcp"})
      run_ranks(2,
                [&](Communicator& world) {
                  const Options& options = world.rank() ? one.of_others : one.of_rank_0;
                  for (const Options* both : {&one.of_others, &one.of_rank_0}) sum(world, *both);
                  const Failed failed = failure_of([&] {
                    std::vector<int64_t> data(100, 1);
                    world.all_reduce(data, data, Op::sum, options);
                  });
                  EXPECT_EQ(failed.status, TUTTI_MISMATCH) << one.name << ": " << failed.text;
                  EXPECT_TRUE(says(failed.text, one.either)) << one.name << ": " << failed.text;
                },
                {.transports = transports});
}

}  // namespace
}  // namespace tutti::test
