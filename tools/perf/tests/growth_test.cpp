// SPDX-License-Identifier: Apache-2.0
//
// What `tutti-perf growth` needs no job for: the fit, the command line, the costs that records of ranks make.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "growth/exponent.hpp"
#include "growth/record.hpp"
#include "options.hpp"

namespace perf {
namespace {

std::vector<GrowthPoint> powers(std::vector<uint32_t> sizes, double factor, double exponent) {
  std::vector<GrowthPoint> points;
  for (const uint32_t n : sizes) points.push_back({n, factor * std::pow(n, exponent)});
  return points;
}

TEST(GrowthExponent, OfAPower) {
  for (const double exponent : {-1.0, 0.0, 0.5, 1.0, 2.0, 3.0})
    EXPECT_NEAR(growth_exponent(powers({2, 4, 8, 16, 100}, 7.5, exponent)).value(), exponent, 1e-9);
}

TEST(GrowthExponent, OfTheUpperHalfAlone) {
  std::vector<GrowthPoint> points = powers({2, 4, 8, 16, 32}, 1, 2);
  points[0].value = points[1].value = 1e6;
  EXPECT_NEAR(growth_exponent(points).value(), 2, 1e-9);
  points[2].value *= 2;  // the third of five counts
  EXPECT_NEAR(growth_exponent(points).value(), 1.5, 1e-9);
}

TEST(GrowthExponent, ByLeastSquares) {
  // In log2: (1, 0), (2, 0), (3, 3), of which the line of least squares has the slope 1.5.
  EXPECT_NEAR(growth_exponent(std::vector<GrowthPoint>{{1, 9}, {1, 9}, {2, 1}, {4, 1}, {8, 8}}).value(), 1.5, 1e-9);
}

TEST(GrowthExponent, NeedsTwoPoints) {
  EXPECT_FALSE(growth_exponent({}));
  EXPECT_FALSE(growth_exponent(powers({2}, 1, 1)));
  EXPECT_FALSE(growth_exponent(powers({2, 4}, 1, 1)));  // of which the upper half is one
  EXPECT_TRUE(growth_exponent(powers({2, 4, 8}, 1, 1)));
  EXPECT_FALSE(growth_exponent(std::vector<GrowthPoint>{{2, 1}, {8, 1}, {8, 2}}));
}

TEST(GrowthExponent, LeavesOutWhatHasNoLogarithm) {
  for (const double bad : {0.0, -4.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    std::vector<GrowthPoint> points = powers({2, 4, 8, 16, 32}, 3, 1);
    points[3].value = bad;
    EXPECT_NEAR(growth_exponent(points).value(), 1, 1e-9) << bad;
    points[4].value = bad;
    EXPECT_FALSE(growth_exponent(points)) << bad;
  }
}

TEST(ExpectedValue, ContinuesTheLastTwoPoints) {
  EXPECT_FALSE(expected_value({}, 8));
  EXPECT_NEAR(expected_value(powers({4}, 5, 1), 8).value(), 40, 1e-9);
  EXPECT_NEAR(expected_value(powers({2, 4, 8}, 1, 2), 16).value(), 256, 1e-9);
  EXPECT_NEAR(expected_value(std::vector<GrowthPoint>{{2, 100}, {4, 10}, {8, 10}}, 64).value(), 10, 1e-9);
}

TEST(CostOf, RecordsOfTwoRanks) {
  std::vector<RankRecord> ranks(2);
  for (size_t rank = 0; rank < 2; ++rank)
    for (size_t phase = 0; phase < phases; ++phase) {
      ranks[rank].begin[phase] = std::chrono::milliseconds(phase * 100 + rank);  // rank 1 a ms later
      ranks[rank].end[phase] = std::chrono::milliseconds(phase * 100 + rank + 5);
    }
  ranks[0].at[static_cast<size_t>(Moment::before)] = {1000, 4, 1};
  ranks[0].at[static_cast<size_t>(Moment::used)] = {1600, 24, 3};
  ranks[0].at[static_cast<size_t>(Moment::family)] = {1700, 28, 3};
  ranks[0].at[static_cast<size_t>(Moment::parts)] = {1820, 58, 3};
  const GrowthCost cost = cost_of(ranks, 4);
  EXPECT_NEAR(cost.create_ms, 6, 1e-9);
  EXPECT_NEAR(cost.next_call_us, 6000, 1e-6);
  EXPECT_NEAR(cost.next_split_ms, 2, 1e-9);  // three of them
  EXPECT_NEAR(cost.part_first_call_ms, 2, 1e-9);
  EXPECT_NEAR(cost.part_destroy_ms, 1.5, 1e-9);  // four of them
  EXPECT_NEAR(cost.memory_kib, 300, 1e-9);
  EXPECT_NEAR(cost.descriptors, 10, 1e-9);
  EXPECT_NEAR(cost.threads, 1, 1e-9);
  EXPECT_NEAR(cost.family_descriptors, 2, 1e-9);
  EXPECT_NEAR(cost.part_memory_kib, 20, 1e-9);
  EXPECT_NEAR(cost.part_descriptors, 5, 1e-9);
  EXPECT_NEAR(cost.most_descriptors, 58, 1e-9);
  EXPECT_NEAR(cost.job_memory_kib, 1820, 1e-9);
}

TEST(Record, FirstFailureCounts) {
  JobRecord* record = JobRecord::make(3);
  EXPECT_EQ(record->ranks().size(), 3u);
  EXPECT_EQ(record->error(), "");
  record->fail(std::string(5000, 'a'));
  record->fail("b");
  EXPECT_EQ(record->error(), std::string(2047, 'a'));
  JobRecord::release(record);
}

TEST(Record, NumbersOfFiles) {
  EXPECT_GT(number_behind("MemTotal:", "/proc/meminfo"), 1000);
  EXPECT_EQ(number_behind("NoSuchWord:", "/proc/meminfo"), 0);
  EXPECT_EQ(number_behind("MemTotal:", "/no/such/file"), 0);
}

TEST(Record, ResourcesOfThisProcess) {
  const Resources now = resources_now();
  EXPECT_GT(now.memory_kib, 100);
  EXPECT_GE(now.descriptors, 3);
  EXPECT_GE(now.threads, 1);
}

std::optional<Options> parse(std::vector<std::string> words, int* status, std::string* error = nullptr) {
  words.insert(words.begin(), {"tutti-perf", "growth"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStderr();
  auto options = parse_options(static_cast<int>(words.size()), argv.data(), status);
  const std::string text = testing::internal::GetCapturedStderr();
  if (error) *error = text;
  return options;
}

class GrowthOptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TUTTI_WORLD_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"})
      unsetenv(name);
  }
};

TEST_F(GrowthOptionsTest, Defaults) {
  int status = 1;
  const auto options = parse({}, &status);
  ASSERT_TRUE(options && options->growth);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(options->growth->sizes, (std::vector<uint32_t>{2, 4, 8, 16, 32, 64, 128, 256, 512}));
  EXPECT_EQ(options->growth->threads, (std::vector<bool>{true, false}));
  EXPECT_EQ(options->growth->rounds, 3u);
  EXPECT_EQ(options->growth->splits, 4u);
  EXPECT_EQ(options->growth->limit_s, 60);
}

TEST_F(GrowthOptionsTest, SizesAscendEachOnce) {
  int status = 1;
  const auto options = parse({"--ranks", "16,2,4096,2", "--as", "processes", "--limit", "0.5"}, &status);
  ASSERT_TRUE(options && options->growth);
  EXPECT_EQ(options->growth->sizes, (std::vector<uint32_t>{2, 16, 4096}));
  EXPECT_EQ(options->growth->threads, (std::vector<bool>{false}));
  EXPECT_EQ(options->growth->limit_s, 0.5);
}

TEST_F(GrowthOptionsTest, Refusals) {
  const struct {
    std::vector<std::string> words;
    const char* reason;
  } cases[] = {
      {{"--ranks", "1,2"}, "--ranks 1,2: expected whole numbers from 2 to 4096 with commas between them, got \"1\""},
      {{"--ranks", "4097"}, "from 2 to 4096 with commas between them, got \"4097\""},
      {{"--ranks", "2,,4"}, "got \"\""},
      {{"--ranks", "2:8"}, "got \"2:8\""},
      {{"--ranks", ""}, "--ranks: expected numbers of ranks, got nothing"},
      {{"--as", "fibers"}, "--as fibers: known are threads, processes, both"},
      {{"--limit", "0"}, "--limit"},
      {{"--limit", "nan"}, "--limit"},
      {{"--splits", "1"}, "--splits"},
      {{"-n", "0"}, "--rounds"},
      {{"buckets", "gpt2"}, "buckets"},
      {{"--threads", "2"}, "--threads"},
  };
  for (const auto& one : cases) {
    int status = 0;
    std::string error;
    EXPECT_FALSE(parse(one.words, &status, &error)) << one.words[0];
    EXPECT_EQ(status, 2) << one.words[0];
    EXPECT_NE(error.find(one.reason), error.npos) << one.words[0] << ": " << error;
  }
}

TEST_F(GrowthOptionsTest, RefusesALauncher) {
  int status = 0;
  std::string error;
  setenv("WORLD_SIZE", "3", 1);
  EXPECT_FALSE(parse({}, &status, &error));
  EXPECT_EQ(status, 2);
  EXPECT_NE(error.find("growth starts its ranks itself, but WORLD_SIZE tells of 3 processes: start it once, without a "
                       "launcher"),
            error.npos)
      << error;
  setenv("WORLD_SIZE", "1", 1);
  EXPECT_TRUE(parse({}, &status));
  unsetenv("WORLD_SIZE");
}

}  // namespace
}  // namespace perf
