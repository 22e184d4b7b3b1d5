// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <stdexcept>

namespace {
constexpr double loss_tolerance = 1e-5;

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}
}  // namespace

void print_services(const tutti::Communicator& world) {
  std::printf("\nWhat served rank %u's calls:\n%-16s %-24s %-12s %8s %14s %10s\n", world.rank(), "collective",
              "algorithm", "transport", "calls", "bytes", "ms");
  for (const tutti_service& row : world.services())
    std::printf("%-16s %-24s %-12s %8llu %14llu %10.2f\n", row.collective, *row.algorithm ? row.algorithm : "-",
                *row.transports ? row.transports : "-", static_cast<unsigned long long>(row.calls),
                static_cast<unsigned long long>(row.bytes), static_cast<double>(row.time_ns) * 1e-6);
}

void require_transport(const tutti::Communicator& world, const std::string& transport) {
  const auto rows = world.services();
  if (rows.empty()) throw std::runtime_error("no collective was counted at all, expected some over " + transport);
  for (const tutti_service& row : rows)
    if (row.transports != transport)
      throw std::runtime_error(std::string(row.collective) + " was served by \"" + row.transports + "\", expected \"" +
                               transport + "\" (--expect-transport)");
}

void write_loss(const std::string& path, double loss) {
  errno = 0;
  std::ofstream file(path);
  file << number(loss) << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write the loss file \"" + path + "\": " + std::strerror(errno));
}

double read_loss(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  double loss = 0;
  std::string rest;
  if (!file) throw std::runtime_error("cannot open the loss file \"" + path + "\": " + std::strerror(errno));
  if (!(file >> loss) || file >> rest)
    throw std::runtime_error("the loss file \"" + path + "\" should hold one number, as --loss-file writes it");
  return loss;
}

void require_loss(double loss, double expected, const std::string& path) {
  const double difference = std::abs(loss - expected) / std::abs(expected);
  // Written so that a NaN fails.
  if (!(difference <= loss_tolerance))
    throw std::runtime_error("the final loss is " + number(loss) + ", but \"" + path + "\" says " + number(expected) +
                             ": a relative difference of " + number(difference) + ", at most 1e-5 was expected");
  std::printf("final loss agrees with %s: relative difference %.1e\n", path.c_str(), difference);
}
