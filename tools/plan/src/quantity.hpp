// SPDX-License-Identifier: Apache-2.0
//
// Times, bandwidths and sizes as people write them: "1.5 us", "25 GB/s", "200 Gbit/s", "64 KiB", "1M".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::plan {

std::optional<double> parse_seconds(const std::string& text);
std::optional<double> parse_bandwidth(const std::string& text);  // bytes per second
std::optional<uint64_t> parse_bytes(const std::string& text);

std::string seconds_text(double seconds);  // "12.3 us"
std::string bytes_text(double bytes);      // "1.5 GB", "64 KiB" where it is a whole number of those
std::string short_size(uint64_t bytes);    // "64K"

}  // namespace tutti::plan
