// SPDX-License-Identifier: Apache-2.0
//
// The 1,797 hand-written digits of E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine
// Learning Repository (CC BY 4.0): reading them, shuffling them, and dealing them out to ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace digits {

inline constexpr size_t pixels_per_sample = 64;
inline constexpr int32_t classes = 10;
inline constexpr int32_t brightest = 16;

// `labels.size()` samples; sample i has pixels [64 * i, 64 * (i + 1)), each 0..1.
struct Samples {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  size_t size() const { return labels.size(); }
};

// Reads lines of 64 pixels (0..16) and a label (0..9), separated by commas, from a file that may be gzip-compressed.
// Throws std::runtime_error naming the file, the line and what was expected there.
Samples read(const std::string& path);

// Where the set is: build and installation both have bin/PROGRAM and share/tutti/digits.csv.gz.
std::string default_path();

// A Fisher-Yates shuffle: the same seed gives the same order everywhere.
void shuffle(Samples& samples, uint64_t seed);

// Takes the last `n` samples off `samples` and returns them. Requires n <= samples.size().
Samples hold_out(Samples& samples, size_t n);

// Samples dealt to `nranks` ranks. Rows are rank after rank, `groups * part` rows for each; of each group a rank has
// `part` rows. Where the samples run out, rows are padding: weight 0, everything else 0. Real rows have weight 1.
struct Dealt {
  size_t groups = 0;
  size_t part = 0;
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  std::vector<float> weights;
};

// Group g is the samples [g * group, (g + 1) * group) whatever nranks is; each group is cut into `nranks` contiguous
// parts of ceil(group / nranks) rows. So the parts of one group, rank after rank, are the group in order with its
// padding at the end. Requires group > 0, nranks > 0.
Dealt deal(const Samples& samples, size_t group, uint32_t nranks);

}  // namespace digits
