// SPDX-License-Identifier: Apache-2.0
//
// Calls that repeat the last one of their collective take a shorter way: it gives the same results, and finds the same
// errors.
#include <array>
#include <cstring>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

// Calls of one collective that differ from each other in one argument, each made twice in a row and again later.
TEST(RepeatedCalls, EachDifferenceCounts) {
  run_ranks(2,
            [](Communicator& comm) {
              tutti_comm* const c = comm.handle();
              const auto me = static_cast<int32_t>(comm.rank());
              for (int k = 0; k < 3; ++k)
                for (int twice = 0; twice < 2; ++twice) {
                  std::array<int32_t, 2> in{me + 1, me + 10}, out{};
                  ASSERT_EQ(tutti_all_reduce(c, in.data(), out.data(), 1, TUTTI_INT32, TUTTI_SUM, nullptr, nullptr), 0);
                  EXPECT_EQ(out, (std::array{3, 0}));
                  ASSERT_EQ(tutti_all_reduce(c, in.data(), out.data(), 2, TUTTI_INT32, TUTTI_SUM, nullptr, nullptr), 0);
                  EXPECT_EQ(out, (std::array{3, 21}));
                  ASSERT_EQ(tutti_all_reduce(c, in.data(), out.data(), 2, TUTTI_INT32, TUTTI_MAX, nullptr, nullptr), 0);
                  EXPECT_EQ(out, (std::array{2, 11}));
                  ASSERT_EQ(tutti_all_reduce(c, in.data(), in.data(), 2, TUTTI_INT32, TUTTI_MIN, nullptr, nullptr), 0);
                  EXPECT_EQ(in, (std::array{1, 10}));
                  ASSERT_EQ(tutti_broadcast(c, &me, out.data(), 1, TUTTI_INT32, 1, nullptr, nullptr), 0);
                  EXPECT_EQ(out[0], 1);
                  ASSERT_EQ(tutti_broadcast(c, &me, out.data(), 1, TUTTI_INT32, 0, nullptr, nullptr), 0);
                  EXPECT_EQ(out[0], 0);
                  out[me] = me + 5;  // in place on rank 1 alone, where in lies behind out
                  ASSERT_EQ(tutti_all_gather(c, me ? &out[1] : &me, out.data(), 1, TUTTI_INT32, nullptr, nullptr), 0);
                  EXPECT_EQ(out, (std::array{0, 6}));
                }
            },
            {"shm"});
}

// Such a communicator has a way of its own to reduce: an option of one call does not stay for the next one.
TEST(RepeatedCalls, OptionsAreOfOneCall) {
  run_ranks(2,
            [](Communicator& comm) {
              double in = 1, out = 0;
              tutti_options options{sizeof options};
              options.algorithms = "ring";
              options.tag = 5;
              for (int k = 0; k < 4; ++k) {
                const tutti_options* const given = k % 2 ? &options : nullptr;
                ASSERT_EQ(tutti_all_reduce(comm.handle(), &in, &out, 1, TUTTI_FLOAT64, TUTTI_SUM, given, nullptr), 0);
                tutti_plan_facts facts{sizeof facts};
                ASSERT_EQ(tutti_comm_plan(comm.handle(), TUTTI_ALL_REDUCE, &facts), TUTTI_OK);
                EXPECT_EQ(std::strcmp(facts.algorithm, "ring") == 0, k % 2 == 1) << facts.algorithm;
              }
            },
            {"shm"});
}

struct Wrong {
  const char* what;
  const void* in;
  void* out;
  uint64_t count;
  uint32_t dtype, op;
  const char* says;
};

// After good calls a wrong one is refused on its rank as if it were the first.
TEST(RepeatedCalls, AWrongOneIsRefused) {
  run_ranks(2,
            [](Communicator& comm) {
              alignas(8) static thread_local std::array<std::byte, 64> in{}, out{};
              const auto call = [&](const void* from, void* to, uint64_t count, uint32_t dtype, uint32_t op) {
                return tutti_all_reduce(comm.handle(), from, to, count, dtype, op, nullptr, nullptr);
              };
              const std::array<Wrong, 7> all{{
                  {"no in", nullptr, out.data(), 1, TUTTI_FLOAT64, TUTTI_SUM, "all_reduce: in is NULL"},
                  {"no out", in.data(), nullptr, 1, TUTTI_FLOAT64, TUTTI_SUM, "all_reduce: out is NULL"},
                  {"in is not aligned", in.data() + 4, out.data(), 1, TUTTI_FLOAT64, TUTTI_SUM, "is not aligned"},
                  {"out is not aligned", in.data(), out.data() + 1, 1, TUTTI_FLOAT64, TUTTI_SUM, "is not aligned"},
                  {"overlap", in.data(), in.data() + 8, 2, TUTTI_FLOAT64, TUTTI_SUM, "overlap; in place means"},
                  {"no operator", in.data(), out.data(), 1, TUTTI_FLOAT64, 99, "99 is not an operator"},
                  {"no type", in.data(), out.data(), 1, 99, TUTTI_SUM, "99 is not a data type"},
              }};
              for (const Wrong& wrong : all) {
                for (int k = 0; k < 3; ++k)
                  ASSERT_EQ(call(in.data(), out.data(), wrong.count, TUTTI_FLOAT64, TUTTI_SUM), TUTTI_OK);
                EXPECT_EQ(call(wrong.in, wrong.out, wrong.count, wrong.dtype, wrong.op), TUTTI_INVALID_ARGUMENT)
                    << wrong.what;
                EXPECT_NE(std::strstr(tutti_comm_error(comm.handle()), wrong.says), nullptr)
                    << wrong.what << ": " << tutti_comm_error(comm.handle());
              }
            },
            {"shm"});
}

// In a group a call is remembered, and with a request it goes on by itself.
TEST(RepeatedCalls, GroupsAndRequestsAreNoRepetition) {
  run_ranks(2,
            [](Communicator& comm) {
              int64_t in = 1, out = 0, later = 0;
              const auto call = [&](int64_t* to, tutti_request** request) {
                return tutti_all_reduce(comm.handle(), &in, to, 1, TUTTI_INT64, TUTTI_SUM, nullptr, request);
              };
              for (int k = 0; k < 3; ++k) {
                ASSERT_EQ(call(&out, nullptr), TUTTI_OK);
                ASSERT_EQ(tutti_group_begin(comm.handle()), TUTTI_OK);
                later = 0;
                ASSERT_EQ(call(&later, nullptr), TUTTI_OK);
                EXPECT_EQ(later, 0) << "it begins with the group";
                ASSERT_EQ(tutti_group_end(comm.handle(), nullptr, nullptr), TUTTI_OK);
                EXPECT_EQ(later, 2);
                tutti_request* request = nullptr;
                ASSERT_EQ(call(&later, &request), TUTTI_OK);
                ASSERT_EQ(call(&out, nullptr), TUTTI_OK);
                ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
                tutti_request_free(request);
              }
            },
            {"shm"});
}

// Exchanges of two ranks that differ from each other in one field, each made twice in a row and again later; then wrong
// ones.
TEST(RepeatedCalls, AnExchangeHasTheMessagesOfItsOwn) {
  run_ranks(2,
            [](Communicator& comm) {
              const uint32_t me = comm.rank(), other = 1 - me;
              std::array<uint32_t, 4> in{}, out{};
              const auto exchange = [&](uint32_t* from, uint64_t count, uint32_t tag, uint32_t its_tag, uint64_t n) {
                const tutti_message both[] = {{from, count, TUTTI_UINT32, other, tag, TUTTI_SEND, {}},
                                              {out.data(), count, TUTTI_UINT32, other, its_tag, TUTTI_RECEIVE, {}}};
                return tutti_exchange(comm.handle(), both, n, nullptr, nullptr);
              };
              for (uint32_t k = 0; k < 6; ++k) {
                for (uint32_t i = 0; i < in.size(); ++i) in[i] = 100 * k + 10 * me + i;
                const uint32_t theirs = 100 * k + 10 * other;
                out = {};
                ASSERT_EQ(exchange(in.data(), 1, 3, 3, 2), TUTTI_OK);
                EXPECT_EQ(out, (std::array<uint32_t, 4>{theirs, 0, 0, 0}));
                ASSERT_EQ(exchange(in.data(), 2, 3, 3, 2), TUTTI_OK);
                EXPECT_EQ(out, (std::array<uint32_t, 4>{theirs, theirs + 1, 0, 0}));
                ASSERT_EQ(exchange(in.data() + 2, 2, 3, 3, 2), TUTTI_OK);
                EXPECT_EQ(out, (std::array<uint32_t, 4>{theirs + 2, theirs + 3, 0, 0}));
                ASSERT_EQ(exchange(in.data() + 1, 2, 3 + me, 3 + other, 2), TUTTI_OK);
                EXPECT_EQ(out, (std::array<uint32_t, 4>{theirs + 1, theirs + 2, 0, 0}));
                if (me)
                  ASSERT_EQ(exchange(in.data() + 1, 2, 3 + me, 0, 1), TUTTI_OK);  // the first message of both
                else
                  ASSERT_EQ(tutti_receive(comm.handle(), out.data(), 2, TUTTI_UINT32, 1, 4, nullptr, nullptr), 0);
                EXPECT_EQ(exchange(out.data(), 1, 3, 3, 2), TUTTI_INVALID_ARGUMENT) << "they overlap";
                EXPECT_EQ(exchange(nullptr, 1, 3, 3, 2), TUTTI_INVALID_ARGUMENT);
              }
            },
            {"shm"});
}

}  // namespace
}  // namespace tutti::test
