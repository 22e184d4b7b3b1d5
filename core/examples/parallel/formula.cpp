// SPDX-License-Identifier: Apache-2.0
#include "formula.hpp"

#include <cstdio>

#include "ranks.hpp"

namespace training {
namespace {

// `times` (n-1)/n of D.
Formula shares_of(const char* collective, const std::string& what, const char* text, double times, size_t numbers,
                  const tutti::Communicator& comm) {
  const double n = comm.nranks();
  const uint64_t data = numbers * sizeof(double);
  return {std::string(collective) + " of " + what, text, data, times * static_cast<double>(data) * (n - 1) / n};
}

}  // namespace

Formula all_reduce_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  return shares_of("all_reduce", what, "2 D (n-1)/n", 2, numbers, comm);
}
Formula reduce_scatter_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  return shares_of("reduce_scatter", what, "D (n-1)/n", 1, numbers, comm);
}
Formula all_gather_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  return shares_of("all_gather", what, "D (n-1)/n", 1, numbers, comm);
}
Formula all_to_all_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  Formula formula = shares_of("all_to_all_v", what, "D (n-1)/n", 1, numbers, comm);
  formula.least = false;
  return formula;
}
Formula messages_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  const uint64_t data = numbers * sizeof(double);
  return {"messages: " + what, "D/n", data, static_cast<double>(data) / comm.nranks()};
}

void print_sent(const std::vector<Formula>& formulas, double counted) {
  std::printf("a step sends, mean of the ranks      formula           D bytes        bytes\n");
  double least = 0, expected = 0;
  for (const Formula& formula : formulas) {
    std::printf("  %-34s %-13s %11llu %12.0f%s\n", formula.what.c_str(), formula.text.c_str(),
                static_cast<unsigned long long>(formula.data), formula.bytes, formula.least ? "" : "  (about)");
    expected += formula.bytes;
    least += formula.least ? formula.bytes : 0;
  }
  std::printf("  %-34s %38.0f\n  %-34s %38.0f", "by the formulas", expected, "counted by the library", counted);
  if (expected > 0) std::printf("  %.2f times", counted / expected);
  std::printf("\n");
  ranks::require(counted >= least - 0.5, "fewer bytes were counted than any algorithm sends");
}

}  // namespace training
