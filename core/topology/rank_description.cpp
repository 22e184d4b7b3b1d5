// SPDX-License-Identifier: Apache-2.0
#include "topology/rank_description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tutti::core {
namespace {

constexpr std::string_view hexadecimal = "0123456789abcdef";

}  // namespace

std::string digits_of(const Processors& processors) {
  std::string digits;
  if (processors.none()) return digits;  // so too before a description is read, and each rank reads those of all
  for (size_t digit = processors.size() / 4; digit-- > 0;) {
    const auto four = ((processors >> (4 * digit)) & Processors(15)).to_ulong();
    if (four || !digits.empty()) digits += hexadecimal[four];
  }
  return digits;
}

const TransportOffer* RankDescription::offer(const std::string& name) const {
  const auto found = std::ranges::find(transports, name, &TransportOffer::name);
  return found == transports.end() ? nullptr : &*found;
}

void RankDescription::complete(const std::string& digits, const Refuse& refuse) {
  processors.reset();
  for (const char digit : digits) {
    const size_t four = hexadecimal.find(digit);
    if (four == std::string_view::npos) refuse("processors", "hexadecimal digits, a bit for each processor", digits);
    processors = processors << 4 | Processors(four);
  }
  if (processors.any() && processors.count() != cores)
    refuse("processors", fmt::format("as many processors as \"cores\", {}", cores), digits);
  for (const TransportOffer& one : transports)
    if (offer(one.name) != &one) refuse("transports", "transports of different names", one.name);
}

}  // namespace tutti::core
