// SPDX-License-Identifier: Apache-2.0
//
// The calls of tutti.hpp on ranges of every kind, with options, as single calls, requests and groups.
#include <array>
#include <chrono>
#include <numeric>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kRanks = 3;

// `count` values of a rank: 10 * rank, 10 * rank + 1 ...
template <typename T = int>
std::vector<T> values(uint32_t rank, size_t count) {
  std::vector<T> result;
  for (size_t i = 0; i < count; ++i) result.push_back(T(static_cast<float>(10 * rank + i)));
  return result;
}

TEST(Ranges, EveryCollective) {
  run_ranks(kRanks, [](Communicator& world) {
    const uint32_t rank = world.rank();
    const std::vector<int> mine = values(rank, kRanks);
    std::vector<int> out(kRanks), all(kRanks * kRanks);
    world.all_reduce(mine, out, Op::sum);
    EXPECT_EQ(out, (std::vector{30, 33, 36}));
    world.reduce(mine, out, Op::max, 1);
    EXPECT_TRUE(rank != 1 || out == values(2, kRanks));
    world.all_gather(mine, all);
    std::vector<int> expected = values(0, 3);
    for (uint32_t r : {1u, 2u})
      for (int value : values(r, 3)) expected.push_back(value);
    EXPECT_EQ(all, expected);
    std::vector<int> gathered(rank == 2 ? all.size() : 0);
    world.gather(mine, gathered, 2);
    EXPECT_EQ(gathered, rank == 2 ? expected : std::vector<int>());
    world.scatter(gathered, out, 2);
    EXPECT_EQ(out, mine);
    std::array<int, 1> one{};
    world.reduce_scatter(mine, one, Op::sum);
    EXPECT_EQ(one[0], 30 + 3 * static_cast<int>(rank));
    world.all_to_all(mine, out);
    const int r = static_cast<int>(rank);
    EXPECT_EQ(out, (std::vector{r, 10 + r, 20 + r}));
    world.barrier({.timeout = 50s});
  });
}

// Rank r gives 2 r elements: 10 r, 10 r + 1 ...
TEST(Ranges, UnequalBlocks) {
  run_ranks(kRanks, [](Communicator& world) {
    const uint32_t rank = world.rank();
    const std::vector<int> mine = values(rank, 2 * rank), everything{10, 11, 20, 21, 22, 23};
    const std::vector<uint64_t> counts{0, 2, 4};
    std::vector<int> all(6);
    world.all_gather_v(mine, all, counts);
    EXPECT_EQ(all, everything);
    std::vector<int> gathered(rank == 1 ? 6 : 0), mine_again(2 * rank);
    world.gather_v(mine, gathered, rank == 1 ? Blocks(counts) : Blocks(), 1);
    EXPECT_TRUE(rank != 1 || gathered == everything);
    world.scatter_v(gathered, rank == 1 ? Blocks(counts) : Blocks(), mine_again, 1);
    EXPECT_EQ(mine_again, mine);
    world.async().reduce_scatter_v(all, counts, mine_again, Op::sum).wait();
    for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(mine_again[i], 3 * mine[i]);
    // Each gives its number of elements to each, which keeps two places for them.
    const std::vector<uint64_t> out_counts(kRanks, rank), in_counts{0, 1, 2}, places{0, 2, 4};
    std::vector<int> given{1, 2, 2}, taken(6, -1);
    world.all_to_all_v(given, in_counts, taken, {out_counts, places});
    for (size_t b = 0; b < 3; ++b)
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(taken[2 * b + i], i < rank ? static_cast<int>(rank) : -1);

    const auto says = [](const char* text, auto&& call) {
      const Failed failed = failure_of(call);
      EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
      EXPECT_EQ(failed.text, text);
    };
    const std::vector<uint64_t> two{1, 2}, long_ones{1, 2, 9};
    says("all_gather_v: 2 counts of out for 3 ranks", [&] { world.all_gather_v(mine, all, two); });
    says("all_gather_v: block 2 of out, 9 elements from element 3 on, does not lie within its 6 elements",
         [&] { world.all_gather_v(mine, all, long_ones); });
    says("all_to_all_v: 2 displacements of out for 3 ranks", [&] {
      world.all_to_all_v(given, in_counts, taken, {out_counts, two});
    });
    const std::vector<int> none;
    if (rank)
      says(rank == 1 ? "all_gather_v: in has 0 elements, but this rank's count is 2"
                     : "all_gather_v: in has 0 elements, but this rank's count is 4",
           [&] { world.all_gather_v(none, all, counts); });
  });
}

TEST(Ranges, BroadcastOutOfPlace) {
  run_ranks(kRanks, [](Communicator& world) {
    const std::vector<double> in = values<double>(7, world.rank() == 1 ? 4 : 0);  // the others have none
    std::vector<double> out(4);
    world.broadcast(in, out, 1);
    EXPECT_EQ(out, values<double>(7, 4));
    std::vector<double> data = world.rank() == 0 ? values<double>(3, 4) : out;
    world.async().broadcast(data, 0).wait();
    EXPECT_EQ(data, values<double>(3, 4));
    if (world.rank() == 1) {
      const Failed failed = failure_of([&] { world.broadcast(in, std::span(out).first(3), 1); });
      EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
      EXPECT_EQ(failed.text, "broadcast: the ranges disagree: expected 4 elements, got 3");
    }
  });
}

template <typename T, typename In, typename Out>
void sums_to_six(Communicator& world, In&& in, Out&& out) {
  world.all_reduce(in, out, Op::sum);
  for (size_t i = 0; i < std::size(out); ++i) EXPECT_EQ(std::data(out)[i], T(6.0f));
  world.async().all_reduce(in, out, Op::avg).wait();
  for (size_t i = 0; i < std::size(out); ++i) EXPECT_EQ(std::data(out)[i], T(2.0f));
}

TEST(Ranges, EveryKindOfRangeAndType) {
  run_ranks(kRanks, [](Communicator& world) {
    const auto value = static_cast<float>(world.rank() + 1);
    const std::vector<float16> half(5, float16(value));
    sums_to_six<float16>(world, half, std::vector<float16>(5));
    const std::array<bfloat16, 2> brain{bfloat16(value), bfloat16(value)};
    bfloat16 brain_out[2];
    sums_to_six<bfloat16>(world, brain, brain_out);
    const long long array[3] = {int(value), int(value), int(value)};
    long long array_out[3];
    sums_to_six<long long>(world, array, std::span(array_out));
    Buffer<double> in(100), out(100);
    std::fill(in.begin(), in.end(), value);
    sums_to_six<double>(world, in, out);
    std::string letters(3, static_cast<char>(value));
    sums_to_six<char>(world, letters, std::string(3, '\0'));
    std::vector<float> single(2, value);
    sums_to_six<float>(world, std::span<const float>(single), std::vector<float>(2));
    // A pointer and a count, as a device's memory is given; this communicator has none, so it is the host's.
    const std::vector<float> far(4, value);
    std::vector<float> far_out(4);
    const DeviceSpan<float> to(far_out.data(), far_out.size());
    world.all_reduce(DeviceSpan(far.data(), far.size()), to, Op::sum);
    EXPECT_EQ(far_out, std::vector<float>(4, 6));
    world.all_reduce<float>(far, far_out, Op::avg);  // the type written out
    EXPECT_EQ(far_out, std::vector<float>(4, 2));
    int64_t x = world.rank();
    world.all_reduce<int64_t>({&x, 1}, {&x, 1}, Op::max);
    EXPECT_EQ(x, 2);
  });
}

TEST(Ranges, MessagesAndGroups) {
  run_ranks(kRanks, [](Communicator& world) {
    const uint32_t next = (world.rank() + 1) % kRanks, previous = (world.rank() + kRanks - 1) % kRanks;
    const std::vector<int> mine = values(world.rank(), 1000);
    std::vector<int> got(1000);
    std::array<uint8_t, 1> tagged{}, tag_of{static_cast<uint8_t>(world.rank())};
    world.exchange({send(mine, next), receive(got, previous), send(tag_of, next, 9), receive(tagged, previous, 9)},
                   {.timeout = 50s});
    EXPECT_EQ(got, values(previous, 1000));
    EXPECT_EQ(tagged[0], previous);
    std::vector<tutti_message> group{send(mine, previous), receive(got, next)};
    world.async().exchange(group).wait();
    EXPECT_EQ(got, values(next, 1000));
    Request sent = world.async().send(mine, next);
    world.receive(got, previous);
    sent.wait();
    EXPECT_EQ(got, values(previous, 1000));
  });
}

TEST(Ranges, Options) {
  run_ranks(2, [](Communicator& world) {
    std::vector<float> data(4);
    const Failed failed = failure_of([&] { world.all_reduce(data, data, Op::sum, {.timeout = -5ns}); });
    EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(failed.text, "all_reduce: Options::timeout is -5 ns, expected 0 or more");
    EXPECT_NE(failure_of([&] { world.shrink({.timeout = -1s}); }).text.find("shrink: Options::timeout"),
              std::string::npos);
    Request request = world.async().all_reduce(data, data, Op::sum);
    EXPECT_EQ(failure_of([&] { request.wait_for(-1ms); }).text,
              "tutti::Request::wait_for: time is -1000000 ns, expected 0 or more");
    EXPECT_TRUE(request.wait_for(50s));
    const Failed streamed = failure_of([&] { world.all_reduce(data, data, Op::sum, {.stream = &data}); });
    EXPECT_NE(streamed.text.find("options.stream is set, but "), std::string::npos) << streamed.text;
    EXPECT_EQ(streamed.status, TUTTI_NOT_SUPPORTED);
  });
}

// The deadline of one call, far below the communicator's 60 s.
TEST(Ranges, DeadlineOfOneCall) {
  const VirtualTime time;
  run_ranks(2, [&time](Communicator& world) {
    std::vector<float> data(4);
    world.barrier();
    if (world.rank() == 1) {
      const auto begin = time.passed();
      EXPECT_EQ(failure_of([&] { world.receive(data, 0, 0, {.timeout = 45s}); }).status, TUTTI_TIMEOUT);
      EXPECT_GE(time.passed() - begin, 45s);
      EXPECT_LT(time.passed() - begin, late(45s));
    } else {
      while (world.async_error() == TUTTI_OK) std::this_thread::sleep_for(1ms);
    }
  });
}

}  // namespace
}  // namespace tutti::test
