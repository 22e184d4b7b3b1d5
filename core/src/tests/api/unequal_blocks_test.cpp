// SPDX-License-Identifier: Apache-2.0
//
// Collectives with unequal blocks by every algorithm that offers them, against a naive reference: counts of zero, one
// rank that has all, displacements with gaps and out of order, in place, counts that change from call to call, several
// calls in flight. And what is wrong in their arguments.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <functional>
#include <numeric>

#include "../../../tests/harness/algorithms.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

// How many elements rank `from` has for rank `to`, in call number `turn`; of other collectives than all_to_all_v the
// block of rank `to` for `from` 0.
using Sizes = std::function<uint64_t(uint32_t from, uint32_t to, uint32_t n)>;

struct Pattern {
  const char* name;
  Sizes sizes;
};
const Pattern patterns[] = {
    {"equal", [](uint32_t, uint32_t, uint32_t) { return 5; }},
    {"growing", [](uint32_t from, uint32_t to, uint32_t) { return 3 * from + to + 1; }},
    {"some empty", [](uint32_t from, uint32_t to, uint32_t) { return (from + to) % 2 ? 0 : 7 + to; }},
    {"one has all", [](uint32_t, uint32_t to, uint32_t n) { return to == n - 1 ? 1000 : 0; }},
    {"none", [](uint32_t, uint32_t, uint32_t) { return 0; }},
    {"large", [](uint32_t from, uint32_t to, uint32_t) { return to % 2 ? 100'000 + from : 30'001; }},
};

int64_t value(uint32_t from, uint32_t block, uint64_t i) { return from * 1'000'000'007 + block * 10'007 + i; }

enum class Places { packed, gaps, backwards };

// A buffer of blocks, with what lies between them.
struct Blocks {
  std::vector<uint64_t> counts, displacements;
  std::vector<int64_t> data;

  Blocks(std::vector<uint64_t> given, Places places) : counts(std::move(given)), displacements(counts.size()) {
    const uint64_t gap = places == Places::packed ? 0 : 3;
    uint64_t at = gap;
    for (size_t i = 0; i < counts.size(); ++i) {
      const size_t b = places == Places::backwards ? counts.size() - 1 - i : i;
      displacements[b] = at;
      at += counts[b] + gap;
    }
    data.assign(at, -77);
  }
  int64_t* block(size_t b) { return data.data() + displacements[b]; }
};

struct Call {
  Communicator& comm;
  uint32_t collective, root;
  const Sizes& sizes;
  Places places;
  bool in_place;

  uint32_t n() const { return comm.nranks(); }
  uint32_t rank() const { return comm.rank(); }
  uint64_t size(uint32_t from, uint32_t to) const {
    return sizes(collective == TUTTI_ALL_TO_ALL_V ? from : 0, to, n());
  }
  std::vector<uint64_t> counts(uint32_t buffer) const {
    std::vector<uint64_t> list;
    const uint32_t blocks = block_count(collective, n(), root, rank(), buffer);
    for (uint32_t b = 0; b < blocks; ++b) {
      const uint32_t other = blocks == n() ? b : rank();
      list.push_back(collective != TUTTI_ALL_TO_ALL_V ? size(0, other)
                     : buffer == TUTTI_BUFFER_IN      ? size(rank(), b)
                                                      : size(b, rank()));
    }
    return list;
  }
  // Element i of block b of IN at a rank, and of OUT here in the end.
  int64_t given(uint32_t at, uint32_t b, uint64_t i) const {
    return value(at, collective == TUTTI_GATHER_V || collective == TUTTI_ALL_GATHER_V ? 0 : b, i);
  }
  int64_t expected(uint32_t b, uint64_t i) const {
    int64_t sum = 0;
    switch (collective) {
      case TUTTI_SCATTER_V:
        return given(root, rank(), i);
      case TUTTI_REDUCE_SCATTER_V:
        for (uint32_t r = 0; r < n(); ++r) sum += given(r, rank(), i);
        return sum;
      case TUTTI_ALL_TO_ALL_V:
        return given(b, rank(), i);
      default:
        return given(b, 0, i);
    }
  }
};

struct Pending {
  Blocks in, out;
  tutti_request* request = nullptr;
};

tutti_status start(const Call& c, const void* in, void* out, Pending& p, bool asynchronous) {
  tutti_comm* const comm = c.comm.handle();
  tutti_request** const request = asynchronous ? &p.request : nullptr;
  const bool packed = c.places == Places::packed;
  const uint64_t *ic = p.in.counts.data(), *oc = p.out.counts.data();
  const uint64_t *id = packed ? nullptr : p.in.displacements.data(),
                 *od = packed ? nullptr : p.out.displacements.data();
  switch (c.collective) {
    case TUTTI_ALL_GATHER_V:
      return tutti_all_gather_v(comm, in, out, oc, od, TUTTI_INT64, nullptr, request);
    case TUTTI_REDUCE_SCATTER_V:
      return tutti_reduce_scatter_v(comm, in, out, ic, id, TUTTI_INT64, TUTTI_SUM, nullptr, request);
    case TUTTI_ALL_TO_ALL_V:
      return tutti_all_to_all_v(comm, in, ic, id, out, oc, od, TUTTI_INT64, nullptr, request);
    case TUTTI_GATHER_V:
      return tutti_gather_v(comm, in, *ic, out, oc, od, TUTTI_INT64, c.root, nullptr, request);
    default:
      return tutti_scatter_v(comm, in, ic, id, out, *oc, TUTTI_INT64, c.root, nullptr, request);
  }
}

// Begins a call, or carries it out.
void begin(const Call& c, Pending& p, bool asynchronous) {
  for (uint32_t b = 0; b < p.in.counts.size(); ++b)
    for (uint64_t i = 0; i < p.in.counts[b]; ++i) p.in.block(b)[i] = c.given(c.rank(), b, i);
  int64_t *in = p.in.data.data(), *out = p.out.data.data();
  const bool one_in = c.collective == TUTTI_GATHER_V || c.collective == TUTTI_ALL_GATHER_V;
  const bool one_out = c.collective == TUTTI_SCATTER_V || c.collective == TUTTI_REDUCE_SCATTER_V;
  if (one_in) in = p.in.block(0);
  if (one_out) out = p.out.block(0);
  if (c.in_place && !p.in.counts.empty() && !p.out.counts.empty()) {
    if (one_out) {
      out = p.in.block(c.rank());
    } else {
      std::copy_n(in, p.in.counts[0], p.out.block(c.rank()));
      in = p.out.block(c.rank());
    }
  }
  ASSERT_EQ(start(c, in, out, p, asynchronous), TUTTI_OK) << tutti_comm_error(c.comm.handle());
  if (one_out && out != p.out.block(0) && !asynchronous) std::copy_n(out, p.out.counts[0], p.out.block(0));
}

void check(const Call& c, Pending& p) {
  Blocks expected(p.out.counts, c.places);
  for (uint32_t b = 0; b < p.out.counts.size(); ++b)
    for (uint64_t i = 0; i < p.out.counts[b]; ++i) expected.block(b)[i] = c.expected(b, i);
  if (c.in_place && (c.collective == TUTTI_GATHER_V || c.collective == TUTTI_ALL_GATHER_V) && !p.out.counts.empty())
    std::copy_n(p.out.block(c.rank()), p.out.counts[c.rank()], expected.block(c.rank()));
  EXPECT_EQ(p.out.data, expected.data) << "rank " << c.rank() << ", root " << c.root;
}

void carry_out(const Call& c) {
  Pending p{{c.counts(TUTTI_BUFFER_IN), c.places}, {c.counts(TUTTI_BUFFER_OUT), c.places}};
  begin(c, p, false);
  check(c, p);
}

struct Case {
  uint32_t collective;
  std::string algorithm, transport;
  const tutti_algorithm* way = nullptr;
};

// Those that serve four ranks on one host.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* transport : {"shm", "tcp"})
    for (const tutti_algorithm* algorithm :
         transport == std::string("shm") ? list_algorithms() : thinned(list_algorithms()))
      for (uint32_t c = TUTTI_GATHER_V; c <= TUTTI_ALL_TO_ALL_V; ++c)
        if ((algorithm->collectives >> c & 1) && serves_one_host(*algorithm, c, 4))
          cases.push_back({c, algorithm->name, transport, algorithm});
  return cases;
}

class Unequal : public testing::TestWithParam<Case> {};

TEST_P(Unequal, GiveTheReferencesResult) {
  const auto& [collective, algorithm, transport, way] = GetParam();
  const std::string choice = std::string(collective_name(collective)) + ":" + algorithm;
  const std::vector<uint32_t> sizes = sanitized ? std::vector<uint32_t>{1, 3, 4} : std::vector<uint32_t>{1, 2, 3, 4, 5};
  for (const uint32_t n : sizes) {
    if (!serves_one_host(*way, collective, n)) continue;
    run_ranks(n,
              [&](Communicator& comm) {
                for (const Pattern& pattern : patterns)
                  for (const Places places : {Places::packed, Places::gaps, Places::backwards})
                    for (const bool in_place : {false, true})
                      for (uint32_t root = 0; root < (has_root(collective) ? n : 1); ++root) {
                        if (in_place && collective == TUTTI_ALL_TO_ALL_V) continue;
                        SCOPED_TRACE(std::string(pattern.name) + (in_place ? ", in place" : ""));
                        carry_out({comm, collective, root, pattern.sizes, places, in_place});
                      }
              },
              {transport.c_str(), choice.c_str()});
  }
}

// Calls in flight have tables of their own; their plans serve later calls.
TEST_P(Unequal, SeveralInFlight) {
  const auto& [collective, algorithm, transport, way] = GetParam();
  const std::string choice = std::string(collective_name(collective)) + ":" + algorithm;
  run_ranks(serves_one_host(*way, collective, 3) ? 3 : 4,
            [&, collective = collective](Communicator& comm) {
              for (int round = 0; round < 3; ++round) {
                std::vector<Call> calls;
                std::vector<Pending> pending;
                for (const Pattern& pattern : patterns) {
                  calls.push_back({comm, collective, 0, pattern.sizes, Places::gaps, false});
                  const Call& c = calls.back();
                  pending.push_back({{c.counts(TUTTI_BUFFER_IN), c.places}, {c.counts(TUTTI_BUFFER_OUT), c.places}});
                }
                for (size_t i = 0; i < calls.size(); ++i) begin(calls[i], pending[i], true);
                for (size_t i = 0; i < calls.size(); ++i) {
                  EXPECT_EQ(tutti_request_wait(pending[i].request), TUTTI_OK);
                  tutti_request_free(pending[i].request);
                  check(calls[i], pending[i]);
                }
              }
            },
            {transport.c_str(), choice.c_str()});
}

INSTANTIATE_TEST_SUITE_P(All, Unequal, testing::ValuesIn(all_cases()), [](const testing::TestParamInfo<Case>& of) {
  return std::string(collective_name(of.param.collective)) + "_" + of.param.algorithm + "_" + of.param.transport;
});

TEST(UnequalBlocks, AreProvedAtFirstUse) {
  ASSERT_EQ(setenv("TUTTI_VERIFY", "1", 1), 0);
  run_ranks(3, [](Communicator& comm) {
    for (uint32_t c = TUTTI_GATHER_V; c <= TUTTI_ALL_TO_ALL_V; ++c)
      carry_out({comm, c, 0, patterns[1].sizes, Places::packed, false});
  });
  unsetenv("TUTTI_VERIFY");
}

// ---- Wrong arguments.

struct Wrong {
  const char* what;
  std::function<tutti_status(tutti_comm*)> call;
  const char* says;
};

TEST(UnequalBlocks, WrongArgumentsAreNamed) {
  static float a[64], b[64];
  static const uint64_t counts[] = {3, 4}, huge[] = {1, UINT64_MAX}, far[] = {0, UINT64_MAX - 1}, close[] = {0, 2};
  static const uint64_t much[] = {uint64_t{1} << 59, uint64_t{1} << 60}, zeros[] = {0, 0};
  const auto gather = [](tutti_comm* c, const void* in, void* out, const uint64_t* n, const uint64_t* at) {
    return tutti_all_gather_v(c, in, out, n, at, TUTTI_FLOAT32, nullptr, nullptr);
  };
  const Wrong wrongs[] = {
      {"no counts", [&](tutti_comm* c) { return gather(c, a, b, nullptr, nullptr); },
       "all_gather_v: counts is NULL, expected an array of 2 numbers, one for each rank"},
      {"count", [&](tutti_comm* c) { return gather(c, a, b, huge, nullptr); },
       "block 1 of out, 18446744073709551615 elements of 4 bytes from element 1 on behind 1 others, is more than can "
       "be"},
      {"sum", [&](tutti_comm* c) { return gather(c, a, b, much, zeros); },
       "behind 576460752303423488 others, is more than can be addressed"},
      {"displacement", [&](tutti_comm* c) { return gather(c, a, b, counts, far); }, "is more than can be addressed"},
      {"out overlaps", [&](tutti_comm* c) { return gather(c, a, b, counts, close); },
       "all_gather_v: block 0 of out (3 elements from element 0 on) and block 1 of out (4 elements from element 2 on) "
       "overlap: each element of out is written once"},
      {"in overlaps out", [&](tutti_comm* c) { return gather(c, b + 1, b, counts, nullptr); },
       "all_gather_v: in overlaps block 0 of out (3 elements from element 0 on); in place means in == out + "
       "displacements[rank]"},
      {"no in", [&](tutti_comm* c) { return gather(c, nullptr, b, counts, nullptr); }, "in is NULL"},
      {"no out", [&](tutti_comm* c) { return gather(c, a, nullptr, counts, nullptr); },
       "out is NULL, expected a buffer of 28 bytes"},
      {"type", [](tutti_comm* c) { return tutti_all_gather_v(c, a, b, counts, nullptr, 99, nullptr, nullptr); },
       "99 is not a data type"},
      {"operator",
       [](tutti_comm* c) {
         return tutti_reduce_scatter_v(c, a, b, counts, nullptr, TUTTI_FLOAT32, 99, nullptr, nullptr);
       },
       "99 is not an operator"},
      {"operator of another type",
       [](tutti_comm* c) {
         return tutti_reduce_scatter_v(c, a, b, counts, nullptr, TUTTI_FLOAT32, TUTTI_LAND, nullptr, nullptr);
       },
       "operator land is not defined for float32"},
      {"out in another block",
       [](tutti_comm* c) {
         return tutti_reduce_scatter_v(c, a, a + 1, counts, nullptr, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
       },
       "reduce_scatter_v: out overlaps block 0 of in (3 elements from element 0 on); in place means out == in + "
       "displacements[rank]"},
      {"out in place, and in a block of another rank",
       [](tutti_comm* c) {
         return tutti_reduce_scatter_v(c, a, a, counts, zeros, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
       },
       "reduce_scatter_v: out overlaps block "},
      {"no in_counts",
       [](tutti_comm* c) {
         return tutti_all_to_all_v(c, a, nullptr, nullptr, b, counts, nullptr, TUTTI_FLOAT32, nullptr, nullptr);
       },
       "all_to_all_v: in_counts is NULL"},
      {"no out_counts",
       [](tutti_comm* c) {
         return tutti_all_to_all_v(c, a, counts, nullptr, b, nullptr, nullptr, TUTTI_FLOAT32, nullptr, nullptr);
       },
       "all_to_all_v: out_counts is NULL"},
      {"all_to_all_v in place",
       [](tutti_comm* c) {
         return tutti_all_to_all_v(c, a, counts, nullptr, a, counts, nullptr, TUTTI_FLOAT32, nullptr, nullptr);
       },
       "all_to_all_v: block 0 of in (3 elements from element 0 on) overlaps block 0 of out (3 elements from element 0 "
       "on); "
       "it has no form in place"},
      {"own block",
       [](tutti_comm* c) {
         static const uint64_t others[] = {5, 6};
         return tutti_all_to_all_v(c, a, counts, nullptr, b, others, nullptr, TUTTI_FLOAT32, nullptr, nullptr);
       },
       ": both must be equal: they are the block of rank "},
      {"the root's own block",
       [](tutti_comm* c) {
         return tutti_gather_v(c, a, 9, b, counts, nullptr, TUTTI_FLOAT32, tutti_comm_rank(c), nullptr, nullptr);
       },
       "gather_v: count is 9, but counts["},
      {"the root's counts",
       [](tutti_comm* c) {
         return tutti_scatter_v(c, a, nullptr, nullptr, b, 3, TUTTI_FLOAT32, tutti_comm_rank(c), nullptr, nullptr);
       },
       "scatter_v: counts is NULL, expected an array of 2 numbers, one for each rank"},
      {"root",
       [](tutti_comm* c) { return tutti_gather_v(c, a, 3, b, counts, nullptr, TUTTI_FLOAT32, 2, nullptr, nullptr); },
       "gather_v: root is 2, expected less than 2 ranks"},
  };
  run_ranks(2, [&](Communicator& comm) {
    for (const Wrong& wrong : wrongs) {
      EXPECT_EQ(wrong.call(comm.handle()), TUTTI_INVALID_ARGUMENT) << wrong.what;
      const std::string text = tutti_comm_error(comm.handle());
      EXPECT_NE(text.find(wrong.says), std::string::npos) << wrong.what << ": " << text;
    }
    carry_out({comm, TUTTI_ALL_GATHER_V, 0, patterns[1].sizes, Places::packed, false});  // it is usable
  });
}

// ---- Counts that do not fit.

Failed outcome_of(Communicator& comm, const std::function<tutti_status(tutti_comm*)>& call) {
  const tutti_status status = call(comm.handle());
  return {status, status < 0 ? tutti_comm_error(comm.handle()) : ""};
}

struct Differing {
  const char* name;
  std::function<tutti_status(tutti_comm*, uint32_t rank, const int64_t* in, int64_t* out)> call;
  const char* says;  // in checked mode, on all ranks
  bool both_send;    // no end of a message is empty: found without checked mode, too
};
constexpr uint64_t two[] = {2, 2, 2}, other[] = {2, 2, 3}, less[] = {2, 0, 2};
const Differing differing[] = {
    {"all_gather_v",
     [](tutti_comm* c, uint32_t rank, const int64_t* in, int64_t* out) {
       return tutti_all_gather_v(c, in, out, rank == 1 ? other : two, nullptr, TUTTI_INT64, nullptr, nullptr);
     },
     "rank 1 called all_gather_v(7 x int64) as operation #1, rank 0 called all_gather_v(6 x int64)", true},
    {"all_gather_v with the same sum",
     [](tutti_comm* c, uint32_t rank, const int64_t* in, int64_t* out) {
       static constexpr uint64_t moved[] = {2, 3, 1};
       return tutti_all_gather_v(c, in, out, rank == 2 ? moved : two, nullptr, TUTTI_INT64, nullptr, nullptr);
     },
     "rank 2 called all_gather_v(6 x int64) as operation #1 with other counts than rank 0 did", true},
    {"all_to_all_v",
     [](tutti_comm* c, uint32_t rank, const int64_t* in, int64_t* out) {
       return tutti_all_to_all_v(c, in, rank == 1 ? other : two, nullptr, out, two, nullptr, TUTTI_INT64, nullptr,
                                 nullptr);
     },
     "rank 2 expects 2 elements from rank 1 in all_to_all_v(int64), operation #1, but rank 1 sends 3: the two ends",
     true},
    {"all_to_all_v, nothing sent",
     [](tutti_comm* c, uint32_t rank, const int64_t* in, int64_t* out) {
       return tutti_all_to_all_v(c, in, rank == 0 ? less : two, nullptr, out, two, nullptr, TUTTI_INT64, nullptr,
                                 nullptr);
     },
     "rank 1 expects 2 elements from rank 0 in all_to_all_v(int64), operation #1, but rank 0 sends 0", false},
    {"gather_v",
     [](tutti_comm* c, uint32_t rank, const int64_t* in, int64_t* out) {
       return tutti_gather_v(c, in, rank == 2 ? 5 : 2, out, two, nullptr, TUTTI_INT64, 0, nullptr, nullptr);
     },
     "rank 0 expects 2 elements from rank 2 in gather_v(int64, root 0), operation #1, but rank 2 sends 5", true},
    {"scatter_v",
     [](tutti_comm* c, uint32_t rank, const int64_t* in, int64_t* out) {
       return tutti_scatter_v(c, in, two, nullptr, out, rank == 2 ? 5 : 2, TUTTI_INT64, 0, nullptr, nullptr);
     },
     "rank 2 expects 5 elements from rank 0 in scatter_v(int64, root 0), operation #1, but rank 0 sends 2", true},
};

TEST(UnequalBlocks, CheckedModeNamesBothRanksAndCounts) {
  for (const char* transport : {"shm", "tcp"})
    for (const Differing& d : differing)
      run_ranks(3,
                [&](Communicator& comm) {
                  carry_out({comm, TUTTI_ALL_TO_ALL_V, 0, patterns[2].sizes, Places::gaps, false});
                  const std::vector<int64_t> in(16, 1);
                  std::vector<int64_t> out(16, -77);
                  const Failed failed =
                      outcome_of(comm, [&](tutti_comm* c) { return d.call(c, comm.rank(), in.data(), out.data()); });
                  EXPECT_EQ(failed.status, TUTTI_MISMATCH) << d.name;
                  EXPECT_NE(failed.text.find(d.says), std::string::npos) << d.name << ": " << failed.text;
                  EXPECT_EQ(out, std::vector<int64_t>(16, -77)) << d.name;
                },
                {transport, nullptr, TUTTI_COMM_CHECK_CALLS});
}

TEST(UnequalBlocks, CheckedModeLetsCallsThrough) {
  run_ranks(4,
            [](Communicator& comm) {
              for (const Pattern& pattern : patterns)
                for (uint32_t c = TUTTI_GATHER_V; c <= TUTTI_ALL_TO_ALL_V; ++c)
                  carry_out({comm, c, has_root(c) ? 1u : 0u, pattern.sizes, Places::backwards, false});
            },
            {"shm", nullptr, TUTTI_COMM_CHECK_CALLS});
}

// Without checked mode at least the rank that gets a message of another size fails, and tells the others.
TEST(UnequalBlocks, SizesThatDifferAreFound) {
  for (const char* transport : {"shm", "tcp"})
    for (const Differing& d : differing) {
      if (!d.both_send) continue;
      std::atomic<int> mismatches{0};
      run_ranks(3,
                [&](Communicator& comm) {
                  const std::vector<int64_t> in(16, 1);
                  std::vector<int64_t> out(16, -77);
                  const auto call = [&](tutti_comm* c) { return d.call(c, comm.rank(), in.data(), out.data()); };
                  mismatches += outcome_of(comm, call).status == TUTTI_MISMATCH;
                },
                {transport, nullptr, 0, 5'000'000'000});
      EXPECT_GT(mismatches, 0) << d.name << " over " << transport;
    }
}

// Buffers whose blocks lie between each other's do not overlap.
TEST(UnequalBlocks, MayBeInterleaved) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<int> both(8, -1);
    const uint32_t rank = comm.rank();
    for (int i : {0, 1, 4, 5}) both[i] = static_cast<int>(100 * rank) + i;
    const uint64_t pairs[] = {2, 2}, in_at[] = {0, 4}, out_at[] = {2, 6};
    ASSERT_EQ(tutti_all_to_all_v(comm.handle(), both.data(), pairs, in_at, both.data(), pairs, out_at, TUTTI_INT32,
                                 nullptr, nullptr),
              TUTTI_OK)
        << tutti_comm_error(comm.handle());
    const int mine = rank ? 4 : 0;
    EXPECT_EQ(both[2], mine);
    EXPECT_EQ(both[7], 100 + mine + 1);
  });
}

}  // namespace
}  // namespace tutti::test
