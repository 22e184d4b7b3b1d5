// SPDX-License-Identifier: Apache-2.0
//
// The text that nccl-tests prints, to the column, on standard output.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "result.hpp"

namespace perf {

void print_command(const Options& options);
// `threads`: the ranks are threads of this process.
void print_ranks(const Setting& setting, bool threads);
void print_setting(const Options& options, const Setting& setting);
void print_columns(const Collective& collective);
void print_row(const Options& options, const Row& row);
// The limit of a device's memory alone, and the row's share of it.
void print_bound(const Row& row, double bound_us);
void print_end(uint64_t wrong, std::optional<double> average_bus_bandwidth);
void print_rails(const std::vector<Rail>& rails);
// The algorithms and transports of rank 0's calls on a device. The way of device memory is decided call by call.
void print_services(const std::vector<tutti_service>& rows, const std::string& device);
void print_traffic(const std::vector<tutti_link_traffic>& rows);

// `value` with two decimals in `width` characters, with fewer when it is large.
std::string fit_number(double value, int width);

}  // namespace perf
