// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <gtest/gtest.h>
#include <tutti/schedule.h>

namespace perf {
namespace {

std::optional<Options> parse(std::vector<std::string> words, int* status) {
  words.insert(words.begin(), "tutti-perf");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return parse_options(static_cast<int>(words.size()), argv.data(), status);
}

TEST(ParseSize, BinarySuffixes) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("17"), 17u);
  EXPECT_EQ(parse_size("64K"), 65536u);
  EXPECT_EQ(parse_size("3m"), 3u << 20);
  EXPECT_EQ(parse_size("8G"), uint64_t{8} << 30);
  for (const char* bad : {"", "K", "1KB", "-1", "1.5M", "4x", "99999999999999999999", "99999999999999999G", " 1"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  int status = 1;
  const auto options = parse({"all_reduce"}, &status);
  ASSERT_TRUE(options);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(options->sizes(), std::vector<uint64_t>{32u << 20});
  EXPECT_EQ(options->iterations, 20u);
  EXPECT_EQ(options->warm_up, 5u);
  EXPECT_EQ(options->checks, 1u);
  EXPECT_EQ(options->dtypes.at(0).name, "float");
  EXPECT_EQ(options->ops.at(0).name, "sum");
  EXPECT_EQ(options->root, 0u);
}

TEST(Options, SizesBySteps) {
  int status = 0;
  EXPECT_EQ(parse({"all", "-b", "4", "-e", "64K", "-f", "8"}, &status)->sizes(),
            (std::vector<uint64_t>{4, 32, 256, 2048, 16384}));
  EXPECT_EQ(parse({"all", "-b", "1K", "-e", "4K", "-i", "1K"}, &status)->sizes(),
            (std::vector<uint64_t>{1024, 2048, 3072, 4096}));
  EXPECT_EQ(parse({"all", "-b", "0", "-e", "0"}, &status)->sizes(), (std::vector<uint64_t>{0}));
}

TEST(Options, SkewedBlocks) {
  int status = 0;
  EXPECT_FALSE(parse({"all_to_all_v"}, &status)->skewed);
  EXPECT_TRUE(parse({"all_to_all_v", "--blocks", "skewed"}, &status)->skewed);
  EXPECT_TRUE(parse({"all", "--blocks", "skewed"}, &status)->skewed);
  EXPECT_EQ(parse({"gather_v", "--device", "cuda"}, &status)->device, "cuda");
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"all_reduce", "--blocks", "skewed"},
                                                {"gather_v", "--blocks", "random"}}) {
    EXPECT_FALSE(parse(wrong, &status)) << wrong[0];
    EXPECT_EQ(status, 2);
  }
}

TEST(Options, AllOfEverything) {
  int status = 0;
  const auto options = parse({"all", "-o", "all", "-d", "all", "-r", "all"}, &status);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->collectives.size(), all_collectives().size());
  EXPECT_EQ(options->ops.size(), tutti::all_ops().size());
  EXPECT_EQ(options->dtypes.size(), tutti::all_dtypes().size());
  EXPECT_FALSE(options->root);
}

TEST(Options, WhatIsNotReducedTakesEveryType) {
  int status = 0;
  EXPECT_TRUE(parse({"all_gather", "-d", "bool"}, &status));
  EXPECT_TRUE(parse({"all", "-d", "bool", "-o", "all"}, &status));
}

TEST(Options, WrongOnesAreRefused) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"all_reduce", "--no-such-flag"},
      {"allreduces"},
      {"all", "-b", "x"},
      {"all", "-b", "2K", "-e", "1K"},
      {"all", "-b", "1", "-e", "2", "-f", "1"},
      {"all", "-b", "0", "-e", "2", "-f", "2"},
      {"all", "-b", "1", "-e", "2", "-i", "0"},
      {"all", "-b", "1", "-e", "2", "-i", "1", "-f", "2"},
      {"all", "-n", "0"},
      {"all", "-n", "-3"},
      {"all", "-o", "mulsum"},
      {"all", "-d", "f8e3m4"},
      {"all_reduce", "-d", "bool", "-o", "sum"},
      {"all", "-d", "float", "-o", "bor"},
      {"all", "-r", "-1"},
      {"all", "-r", "first"},
      {"all", "-a", "4"},
      {"all", "--threads", "0"},
      {"all", "--memory", "fast"},
      {"all", "--peer", "gloo=gloo.csv"},
  };
  for (const auto& words : wrong) {
    int status = 0;
    EXPECT_FALSE(parse(words, &status)) << testing::PrintToString(words);
    EXPECT_EQ(status, 2) << testing::PrintToString(words);
  }
}

}  // namespace
}  // namespace perf
