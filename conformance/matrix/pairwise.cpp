// SPDX-License-Identifier: Apache-2.0
#include "matrix/pairwise.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace tutti::conformance {
namespace {

constexpr uint32_t unset = UINT32_MAX;

class Cover {
 public:
  Cover(const Factors& factors, const Allowed& allowed, uint64_t seed)
      : factors_(factors), allowed_(allowed), random_(seed), base_(factors.size()) {
    for (size_t f = 0; f < factors.size(); ++f) {
      base_[f] = values_;
      values_ += factors[f];
    }
    open_.assign(static_cast<size_t>(values_) * values_, false);
    for_each_pair([&](uint32_t a, uint32_t va, uint32_t b, uint32_t vb) {
      if (allowed_(a, va, b, vb)) open_[pair(a, va, b, vb)] = true;
    });
  }

  std::vector<std::vector<uint32_t>> rows() {
    std::vector<std::vector<uint32_t>> all;
    for_each_pair([&](uint32_t a, uint32_t va, uint32_t b, uint32_t vb) {
      if (!open_[pair(a, va, b, vb)]) return;
      std::vector<uint32_t> row(factors_.size(), unset);
      row[a] = va;
      row[b] = vb;
      open_[pair(a, va, b, vb)] = false;  // met by this row, or by none
      if (!complete(row)) return;
      event(row);
      all.push_back(std::move(row));
    });
    return all;
  }

 private:
  template <typename Visit>
  void for_each_pair(Visit visit) {
    for (uint32_t a = 0; a < factors_.size(); ++a)
      for (uint32_t b = a + 1; b < factors_.size(); ++b)
        for (uint32_t va = 0; va < factors_[a]; ++va)
          for (uint32_t vb = 0; vb < factors_[b]; ++vb) visit(a, va, b, vb);
  }
  size_t pair(uint32_t a, uint32_t va, uint32_t b, uint32_t vb) const {
    return static_cast<size_t>(base_[a] + va) * values_ + base_[b] + vb;
  }
  bool open(uint32_t a, uint32_t va, uint32_t b, uint32_t vb) const {
    return a < b ? open_[pair(a, va, b, vb)] : open_[pair(b, vb, a, va)];
  }
  bool fits(const std::vector<uint32_t>& row, uint32_t f, uint32_t value) const {
    for (uint32_t other = 0; other < row.size(); ++other) {
      if (other == f || row[other] == unset) continue;
      if (!(other < f ? allowed_(other, row[other], f, value) : allowed_(f, value, other, row[other]))) return false;
    }
    return true;
  }
  uint64_t gain(const std::vector<uint32_t>& row, uint32_t f, uint32_t value) const {
    uint64_t gained = 0;
    for (uint32_t other = 0; other < row.size(); ++other)
      if (other != f && row[other] != unset && open(f, value, other, row[other])) ++gained;
    return gained;
  }

  // Fills what is unset, factor 0 first, by the value that meets most open pairs. False when no value fits.
  bool complete(std::vector<uint32_t>& row) {
    std::vector<uint32_t> order(factors_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin() + 1, order.end(), random_);
    return fill(row, order, 0);
  }
  bool fill(std::vector<uint32_t>& row, const std::vector<uint32_t>& order, size_t at) {
    if (at == order.size()) return true;
    const uint32_t f = order[at];
    if (row[f] != unset) return fits(row, f, row[f]) && fill(row, order, at + 1);
    std::vector<std::pair<uint64_t, uint32_t>> choices;
    for (uint32_t value = 0; value < factors_[f]; ++value)
      if (fits(row, f, value)) choices.emplace_back(gain(row, f, value), value);
    std::shuffle(choices.begin(), choices.end(), random_);
    std::stable_sort(choices.begin(), choices.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
    for (const auto& [gained, value] : choices) {
      row[f] = value;
      if (fill(row, order, at + 1)) return true;
    }
    row[f] = unset;
    return false;
  }
  void event(const std::vector<uint32_t>& row) {
    for (uint32_t a = 0; a < row.size(); ++a)
      for (uint32_t b = a + 1; b < row.size(); ++b) open_[pair(a, row[a], b, row[b])] = false;
  }

  const Factors& factors_;
  const Allowed& allowed_;
  std::mt19937_64 random_;
  std::vector<uint32_t> base_;
  uint32_t values_ = 0;
  std::vector<bool> open_;
};

}  // namespace

std::vector<std::vector<uint32_t>> cover_pairs(const Factors& factors, const Allowed& allowed, uint64_t seed) {
  return Cover(factors, allowed, seed).rows();
}

}  // namespace tutti::conformance
