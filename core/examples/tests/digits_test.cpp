// SPDX-License-Identifier: Apache-2.0
#include "digits.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

// A file that is there for one test.
class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("tutti-digits-" + std::to_string(getpid()))) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A line of 64 times `pixel` and `label`.
std::string line(const std::string& pixel, const std::string& label) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += pixel + ",";
  return text + label + "\n";
}

void expect_error(const std::string& text, const std::string& part) {
  const File file(text);
  try {
    digits::read(file.path());
    FAIL() << "was read: " << text.substr(0, 200);
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// Samples that can be told apart: sample i has pixels i and label i % 10.
digits::Samples numbered(size_t n) {
  digits::Samples samples;
  for (size_t i = 0; i < n; ++i) {
    samples.pixels.insert(samples.pixels.end(), digits::pixels_per_sample, static_cast<float>(i));
    samples.labels.push_back(static_cast<int32_t>(i % 10));
  }
  return samples;
}

TEST(Digits, ReadsTheSet) {
  const digits::Samples samples = digits::read(DIGITS_FILE);
  ASSERT_EQ(samples.size(), 1797u);
  ASSERT_EQ(samples.pixels.size(), 1797u * 64);
  std::array<int, 10> count{};
  for (const int32_t label : samples.labels) ++count.at(static_cast<size_t>(label));
  EXPECT_EQ(count, (std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
  EXPECT_EQ(samples.pixels[2], 5 / 16.0f);
  EXPECT_EQ(*std::ranges::min_element(samples.pixels), 0.0f);
  EXPECT_EQ(*std::ranges::max_element(samples.pixels), 1.0f);
}

TEST(Digits, ReadsPlainTextWithOrWithoutLastNewline) {
  const std::string two = line("16", "9") + line("0", "0");
  EXPECT_EQ(digits::read(File(two).path()).labels, (std::vector<int32_t>{9, 0}));
  EXPECT_EQ(digits::read(File(two.substr(0, two.size() - 1)).path()).labels, (std::vector<int32_t>{9, 0}));
  EXPECT_EQ(digits::read(File("").path()).size(), 0u);
}

TEST(Digits, SaysWhatIsWrong) {
  expect_error(line("17", "0"), "line 1: field 1 should be a whole number from 0 to 16, found \"17\"");
  expect_error(line("1", "0") + line("2", "10"), "line 2: field 65 should be a whole number from 0 to 9, found \"10\"");
  expect_error(line("-1", "0"), "found \"-1\"");
  expect_error(line("1.5", "0"), "breaks off after field 1");
  expect_error(line("", "0"), "found \"\"");
  expect_error(line("99999999999999999999", "0"), "found \"99999999999999999999\"");
  expect_error("1,2,3\n", "breaks off after field 3");
  expect_error(line("1", "0,1"), "more than 64 pixels");
  expect_error(line("1", "0") + "\n" + line("1", "0"), "line 2");
  EXPECT_THROW(digits::read("/does/not/exist"), std::runtime_error);
  EXPECT_THROW(digits::read(std::filesystem::temp_directory_path()), std::runtime_error);
}

TEST(Digits, NoticesATruncatedOrDamagedGzipFile) {
  std::ifstream file(DIGITS_FILE, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  expect_error(bytes.substr(0, bytes.size() / 2), "cannot read the digits");
  expect_error(bytes.substr(0, bytes.size() - 4), "cannot read the digits");
  bytes[bytes.size() - 6] ^= 1;  // the checksum
  expect_error(bytes, "cannot read the digits");
}

TEST(Digits, ShuffleKeepsRowsTogetherAndIsReproducible) {
  const digits::Samples ordered = numbered(50);
  digits::Samples a = ordered, b = ordered, c = ordered;
  digits::shuffle(a, 1);
  digits::shuffle(b, 1);
  digits::shuffle(c, 2);
  EXPECT_EQ(a.pixels, b.pixels);
  EXPECT_NE(a.pixels, ordered.pixels);
  EXPECT_NE(a.pixels, c.pixels);
  std::vector<bool> seen(50);
  for (size_t i = 0; i < 50; ++i) {
    const float value = a.pixels[64 * i];
    seen[static_cast<size_t>(value)] = true;
    EXPECT_EQ(a.labels[i], static_cast<int32_t>(value) % 10);
    EXPECT_EQ(std::count(a.pixels.begin() + 64 * i, a.pixels.begin() + 64 * (i + 1), value), 64);
  }
  EXPECT_EQ(std::ranges::count(seen, true), 50);
}

TEST(Digits, HoldOutTakesTheLast) {
  digits::Samples samples = numbered(10);
  const digits::Samples held = digits::hold_out(samples, 3);
  EXPECT_EQ(held.labels, (std::vector<int32_t>{7, 8, 9}));
  EXPECT_EQ(held.pixels.front(), 7);
  EXPECT_EQ(samples.size(), 7u);
  EXPECT_EQ(samples.pixels.size(), 7u * 64);
}

// Every group is the same samples in order, rank after rank, with its padding at the end, for any number of ranks.
TEST(Digits, DealKeepsGroupsWhateverTheNumberOfRanks) {
  const size_t n = 23, group = 10;
  for (const uint32_t nranks : {1u, 2u, 3u, 4u, 7u, 10u, 13u}) {
    const digits::Dealt dealt = digits::deal(numbered(n), group, nranks);
    ASSERT_EQ(dealt.groups, 3u);
    ASSERT_EQ(dealt.labels.size(), dealt.groups * dealt.part * nranks);
    for (size_t g = 0; g < dealt.groups; ++g) {
      std::vector<float> real;
      bool padding = false;
      for (uint32_t rank = 0; rank < nranks; ++rank)
        for (size_t i = 0; i < dealt.part; ++i) {
          const size_t row = (rank * dealt.groups + g) * dealt.part + i;
          if (dealt.weights[row] == 0) {
            padding = true;
            EXPECT_EQ(dealt.pixels[64 * row + 63], 0.0f);
            continue;
          }
          EXPECT_FALSE(padding) << nranks << " ranks, group " << g;
          real.push_back(dealt.pixels[64 * row + 63]);
          EXPECT_EQ(dealt.labels[row], static_cast<int32_t>(real.back()) % 10);
        }
      std::vector<float> expected;
      for (size_t i = g * group; i < std::min(n, (g + 1) * group); ++i) expected.push_back(static_cast<float>(i));
      EXPECT_EQ(real, expected) << nranks << " ranks, group " << g;
    }
  }
}

}  // namespace
