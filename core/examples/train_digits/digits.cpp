// SPDX-License-Identifier: Apache-2.0
#include "digits.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "split_mix.hpp"

namespace digits {
namespace {

// The whole file, decompressed. zlib passes a file without a gzip header through unchanged.
std::string unpack(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file)
    throw std::runtime_error("cannot open the digits \"" + path +
                             "\": " + (errno ? std::strerror(errno) : "out of memory") + "; name the file with --data");
  std::string text;
  std::array<char, 1 << 16> piece;
  int got = 0;
  while ((got = gzread(file.get(), piece.data(), piece.size())) > 0)
    text.append(piece.data(), static_cast<size_t>(got));
  int code = Z_OK;
  const char* reason = gzerror(file.get(), &code);
  // A truncated gzip stream reads as a short file: only the error code tells.
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
    throw std::runtime_error("cannot read the digits \"" + path +
                             "\": " + (code == Z_ERRNO ? std::strerror(errno) : reason));
  return text;
}

[[noreturn]] void bad_line(const std::string& path, size_t line, const std::string& what) {
  throw std::runtime_error("\"" + path + "\" line " + std::to_string(line) + ": " + what);
}

// The number that begins at `text`, in 0..limit; advances `text` past it.
int32_t number(std::string_view& text, int32_t limit, const std::string& path, size_t line, size_t field) {
  int32_t value = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || value < 0 || value > limit)
    bad_line(path, line,
             "field " + std::to_string(field + 1) + " should be a whole number from 0 to " + std::to_string(limit) +
                 ", found \"" + std::string(text.substr(0, text.find(','))) + "\"");
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

void append_line(Samples& samples, std::string_view text, const std::string& path, size_t line) {
  for (size_t field = 0; field < pixels_per_sample; ++field) {
    samples.pixels.push_back(static_cast<float>(number(text, brightest, path, line, field)) / brightest);
    if (text.empty() || text.front() != ',')
      bad_line(path, line,
               "expected 64 pixels and a label separated by commas, but the line breaks off after field " +
                   std::to_string(field + 1));
    text.remove_prefix(1);
  }
  samples.labels.push_back(number(text, classes - 1, path, line, pixels_per_sample));
  if (!text.empty())
    bad_line(path, line, "more than 64 pixels and a label: \"" + std::string(text.substr(0, 20)) + "\"");
}

}  // namespace

Samples read(const std::string& path) {
  const std::string text = unpack(path);
  Samples samples;
  size_t line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view row = rest.substr(0, end);
    if (row.ends_with('\r')) row.remove_suffix(1);
    append_line(samples, row, path, ++line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return samples;
}

std::string default_path() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "digits.csv.gz";
  return program.parent_path().parent_path() / "share/tutti/digits.csv.gz";
}

void shuffle(Samples& samples, uint64_t seed) {
  SplitMix random(seed);
  for (size_t i = samples.size(); i > 1; --i) {
    const size_t j = random.below(i);
    std::swap(samples.labels[i - 1], samples.labels[j]);
    const auto row = [&](size_t k) {
      return samples.pixels.begin() + static_cast<std::ptrdiff_t>(k * pixels_per_sample);
    };
    if (j != i - 1) std::swap_ranges(row(i - 1), row(i), row(j));
  }
}

Samples hold_out(Samples& samples, size_t n) {
  const size_t keep = samples.size() - n;
  Samples held;
  held.pixels.assign(samples.pixels.begin() + static_cast<std::ptrdiff_t>(keep * pixels_per_sample),
                     samples.pixels.end());
  held.labels.assign(samples.labels.begin() + static_cast<std::ptrdiff_t>(keep), samples.labels.end());
  samples.pixels.resize(keep * pixels_per_sample);
  samples.labels.resize(keep);
  return held;
}

Dealt deal(const Samples& samples, size_t group, uint32_t nranks) {
  Dealt dealt;
  dealt.groups = (samples.size() + group - 1) / group;
  dealt.part = (group + nranks - 1) / nranks;
  const size_t rows = dealt.groups * dealt.part * nranks;
  dealt.pixels.assign(rows * pixels_per_sample, 0.0f);
  dealt.labels.assign(rows, 0);
  dealt.weights.assign(rows, 0.0f);
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t g = i / group;
    const size_t rank = i % group / dealt.part;
    const size_t row = (rank * dealt.groups + g) * dealt.part + i % group % dealt.part;
    std::copy_n(samples.pixels.data() + i * pixels_per_sample, pixels_per_sample,
                dealt.pixels.data() + row * pixels_per_sample);
    dealt.labels[row] = samples.labels[i];
    dealt.weights[row] = 1.0f;
  }
  return dealt;
}

}  // namespace digits
