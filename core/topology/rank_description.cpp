// SPDX-License-Identifier: Apache-2.0
#include "topology/rank_description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tutti::core {
namespace {

constexpr std::string_view hexadecimal = "0123456789abcdef";
constexpr size_t bits_of_digit = 4, most_digits = Processors().size() / bits_of_digit;
static_assert(Processors().size() % bits_of_digit == 0);

// The value of a digit; digit 0 has the first processors.
size_t digit_of(const Processors& processors, size_t digit) {
  size_t value = 0;
  for (size_t bit = bits_of_digit; bit-- > 0;) value = value << 1 | processors[bits_of_digit * digit + bit];
  return value;
}

}  // namespace

// Every rank reads the descriptions of all: whole bitsets are not shifted digit by digit here, nor below.
std::string digits_of(const Processors& processors) {
  if (processors.none()) return "";
  size_t digit = most_digits;
  while (!digit_of(processors, digit - 1)) --digit;
  std::string digits;
  while (digit-- > 0) digits += hexadecimal[digit_of(processors, digit)];
  return digits;
}

const TransportOffer* RankDescription::offer(const std::string& name) const {
  const auto found = std::ranges::find(transports, name, &TransportOffer::name);
  return found == transports.end() ? nullptr : &*found;
}

void RankDescription::complete(const std::string& digits, const Refuse& refuse) {
  processors.reset();
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t value = hexadecimal.find(digits[i]), place = digits.size() - 1 - i;
    if (value == std::string_view::npos) refuse("processors", "hexadecimal digits, a bit for each processor", digits);
    for (size_t bit = 0; bit < bits_of_digit && place < most_digits; ++bit)
      processors[bits_of_digit * place + bit] = value >> bit & 1;
  }
  if (processors.any() && processors.count() != cores)
    refuse("processors", fmt::format("as many processors as \"cores\", {}", cores), digits);
  for (const TransportOffer& one : transports)
    if (offer(one.name) != &one) refuse("transports", "transports of different names", one.name);
}

}  // namespace tutti::core
