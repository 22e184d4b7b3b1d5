// SPDX-License-Identifier: Apache-2.0
//
// What `tutti-perf buckets` needs no communicator for: models, the command line, gradients.
#include <gtest/gtest.h>
#include <tutti/plugin/types.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "buckets/gradient_data.hpp"
#include "buckets/model.hpp"
#include "element.hpp"
#include "options.hpp"

namespace perf {
namespace {

std::optional<Options> parse(std::vector<std::string> words, int* status) {
  words.insert(words.begin(), {"tutti-perf", "buckets"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return parse_options(static_cast<int>(words.size()), argv.data(), status);
}

const std::string header = "name,shape,dtype,ready_us\n";

TEST(Model, HasParameters) {
  const auto found = parse_parameters("# a comment\n\n" + header + "a,64x3x7x7,float32,20\r\nb,5,bfloat16,0", "m.csv");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "a");
  EXPECT_EQ(found[0].count, 64u * 3 * 7 * 7);
  EXPECT_EQ(found[0].dtype, uint32_t{TUTTI_FLOAT32});
  EXPECT_EQ(found[0].ready_us, 20u);
  EXPECT_EQ(found[1].bytes(), 10u);
  const Model model{"m", found};
  EXPECT_EQ(model.bytes(), 64u * 3 * 7 * 7 * 4 + 10);
  EXPECT_EQ(model.compute_us(), 20u);
}

TEST(Model, FaultsNameTheLine) {
  const struct {
    std::string text, words;
  } faults[] = {
      {"name,shape\n",
       "m.csv line 1: expected the names of the columns, name,shape,dtype,ready_us; got \"name,shape\""},
      {header + "a,5,float32\n", "m.csv line 2: expected name,shape,dtype,ready_us, as in "},
      {header + "a,5,float32,1,\n", "m.csv line 2: expected name,shape"},
      {header + ",5,float32,1\n", "m.csv line 2: expected name,shape"},
      {header + "# comment\na,5x,float32,1\n", "m.csv line 3: shape \"5x\": expected whole numbers of at least 1"},
      {header + "a,5 x 3,float32,1\n", "line 2: shape \"5 x 3\""},
      {header + "a,0,float32,1\n", "line 2: shape \"0\""},
      {header + "a,-4,float32,1\n", "line 2: shape \"-4\""},
      {header + "a,1099511627776x2,float32,1\n", "line 2: shape \"1099511627776x2\": more than 2^40 elements"},
      {header + "a,99999999999999999999,float32,1\n", "line 2: shape \"99999999999999999999\""},
      {header + "a,5,int32,1\n", "line 2: dtype \"int32\": known are float16, bfloat16, float32, float64"},
      {header + "a,5,fp32,1\n", "line 2: dtype \"fp32\""},
      {header + "a,5,float32,1.5\n", "line 2: ready_us \"1.5\": expected whole microseconds, at most an hour"},
      {header + "a,5,float32,3600000001\n", "line 2: ready_us \"3600000001\""},
      {header + std::string(100, '\x01') + "\n", "\"" + std::string(60, '?') + "\"..."},
      {header, "m.csv: it has no parameter"},
      {"", "m.csv: it has no parameter"},
      {header + "a,5,float32,0\n", "m.csv: every ready_us is 0"},
  };
  for (const auto& [text, words] : faults) try {
      parse_parameters(text, "m.csv");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what() << "\nfor " << text;
    }
}

// The published sizes of the networks.
TEST(Model, ThoseOfTheFolderAreComplete) {
  const struct {
    const char* name;
    size_t parameters;
    uint64_t elements;
  } models[] = {{"resnet50", 161, 25557032}, {"gpt2", 148, 124439808}};
  for (const auto& [name, parameters, elements] : models) {
    const Model model = read_model(std::string(MODELS) + "/" + name + ".csv");
    EXPECT_EQ(model.parameters.size(), parameters) << name;
    EXPECT_EQ(model.bytes(), elements * 4) << name;
    EXPECT_EQ(model.compute_us(), 100'000u) << name;
  }
}

TEST(BucketOptions, Defaults) {
  int status = 1;
  const auto options = parse({std::string(MODELS) + "/resnet50.csv"}, &status);
  ASSERT_TRUE(options && options->buckets);
  EXPECT_EQ(status, 0);
  const BucketOptions& buckets = *options->buckets;
  EXPECT_EQ(buckets.wires,
            (std::vector{tutti::Wire::plain, tutti::Wire::float16, tutti::Wire::bfloat16, tutti::Wire::float8}));
  EXPECT_EQ(buckets.threads, (std::vector<bool>{false, true}));
  EXPECT_EQ(buckets.compute_us, 100'000);
  EXPECT_EQ(buckets.steps, 5u);
}

TEST(BucketOptions, WhatIsGiven) {
  int status = 1;
  const auto options = parse({std::string(MODELS) + "/gpt2.csv", "--wire", "float8,plain,float8", "--advance", "thread",
                              "--compute", "2.5", "--bucket-bytes", "4M", "--feedback", "-n", "3", "--threads", "2"},
                             &status);
  ASSERT_TRUE(options && options->buckets);
  const BucketOptions& buckets = *options->buckets;
  EXPECT_EQ(buckets.wires, (std::vector{tutti::Wire::float8, tutti::Wire::plain}));
  EXPECT_EQ(buckets.threads, (std::vector<bool>{true}));
  EXPECT_EQ(buckets.compute_us, 2500);
  EXPECT_EQ(buckets.bucket_bytes, 4u << 20);
  EXPECT_TRUE(buckets.feedback);
  EXPECT_EQ(buckets.steps, 3u);
  EXPECT_EQ(options->threads, 2u);
}

TEST(BucketOptions, WrongOnesAreRefused) {
  const std::string model = std::string(MODELS) + "/gpt2.csv";
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"no-such-model"},
                                                       {"./no-such-file.csv"},
                                                       {model, "another"},
                                                       {model, "--wire", "fp16"},
                                                       {model, "--wire", ""},
                                                       {model, "--advance", "me"},
                                                       {model, "--compute", "-1"},
                                                       {model, "--compute", "soon"},
                                                       {model, "--compute", "nan"},
                                                       {model, "--bucket-bytes", "0"},
                                                       {model, "--first-bucket-bytes", "1Q"},
                                                       {model, "--feedback", "--wire", "plain"},
                                                       {model, "-n", "0"},
                                                       {model, "--plot", "x.svg"},
                                                       {model, "-o", "sum"}};
  for (const auto& words : wrong) {
    int status = 0;
    EXPECT_FALSE(parse(words, &status)) << testing::PrintToString(words);
    EXPECT_EQ(status, 2) << testing::PrintToString(words);
  }
}

// Element i of `rank`.
template <typename T>
std::vector<double> gradient(const GradientPattern& pattern, uint32_t rank, uint64_t count) {
  std::vector<T> elements(count);
  fill_gradient(pattern, rank, count, elements.data());
  std::vector<double> values;
  for (const T element : elements) values.push_back(FloatTraits<T>::value(element));
  return values;
}

constexpr uint64_t elements = 600;

TEST(GradientData, MeansAreKnown) {
  for (const uint32_t nranks : {1u, 2u, 3u, 5u, 64u}) {
    const GradientPattern pattern{7, 3, nranks, TUTTI_FLOAT32};
    std::vector<float> mean(elements);
    for (uint32_t rank = 0; rank < nranks; ++rank) {
      const auto mine = gradient<float>(pattern, rank, elements);
      EXPECT_EQ(mine, gradient<Half>({7, 3, nranks, TUTTI_FLOAT16}, rank, elements));
      EXPECT_EQ(mine, gradient<Bfloat16>({7, 3, nranks, TUTTI_BFLOAT16}, rank, elements));
      EXPECT_EQ(mine, gradient<double>({7, 3, nranks, TUTTI_FLOAT64}, rank, elements));
      for (uint64_t i = 0; i < elements; ++i) {
        EXPECT_EQ(Float8E4M3::from(mine[i]).value(), mine[i]);  // exact in blocks of float8, too
        mean[i] += static_cast<float>(mine[i] / nranks);
      }
    }
    for (float& number : mean) number = std::round(number);
    EXPECT_EQ(check_mean(pattern, elements, mean.data()).count, 0u) << nranks;
    mean[11] = -mean[11];
    const WrongMeans wrong = check_mean(pattern, elements, mean.data());
    EXPECT_EQ(wrong.count, 1u);
    EXPECT_EQ(wrong.first, 11u);
    EXPECT_EQ(wrong.got, -wrong.expected);
  }
}

// One rank's contribution in place of another's, and that of another tensor, step or place, give other means.
TEST(GradientData, MistakesShow) {
  constexpr uint32_t nranks = 4;
  const GradientPattern pattern{7, 3, nranks, TUTTI_FLOAT64};
  const auto sum_without = [&](uint32_t lost, uint32_t doubled) {
    std::vector<double> mean(elements);
    for (uint32_t rank = 0; rank < nranks; ++rank) {
      const auto mine = gradient<double>(pattern, rank == lost ? doubled : rank, elements);
      for (uint64_t i = 0; i < elements; ++i) mean[i] += mine[i] / nranks;
    }
    return check_mean(pattern, elements, mean.data()).count;
  };
  EXPECT_EQ(sum_without(2, 2), 0u);
  for (uint32_t lost = 0; lost < nranks; ++lost)
    for (uint32_t doubled = 0; doubled < nranks; ++doubled)
      if (lost != doubled) {
        EXPECT_GT(sum_without(lost, doubled), elements / 4) << lost << " " << doubled;
      }
  const auto means = gradient<double>({7, 3, 1, TUTTI_FLOAT64}, 0, elements + 1);
  EXPECT_EQ(check_mean(pattern, elements, means.data()).count, 0u);
  EXPECT_GT(check_mean(pattern, elements, means.data() + 1).count, elements / 4);
  EXPECT_GT(check_mean({8, 3, nranks, TUTTI_FLOAT64}, elements, means.data()).count, elements / 4);
  EXPECT_GT(check_mean({7, 4, nranks, TUTTI_FLOAT64}, elements, means.data()).count, elements / 4);
}

TEST(GradientData, SumsOfSoManyRanksAreExact) {
  EXPECT_EQ(most_exact_ranks(TUTTI_BFLOAT16), 249u);
  EXPECT_EQ(most_exact_ranks(TUTTI_FLOAT16), 2041u);
  EXPECT_GT(most_exact_ranks(TUTTI_FLOAT32), 1'000'000u);
}

}  // namespace
}  // namespace perf
