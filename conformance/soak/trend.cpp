// SPDX-License-Identifier: Apache-2.0
#include "soak/trend.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::conformance {

double Trend::least(size_t begin, size_t end) const {
  return *std::min_element(values_.begin() + static_cast<std::ptrdiff_t>(begin),
                           values_.begin() + static_cast<std::ptrdiff_t>(end));
}

std::string Trend::growth() const {
  if (!known()) return {};
  const size_t third = values_.size() / 3;
  const double early = least(third, values_.size() - third), late = least(values_.size() - third, values_.size());
  if (late - early <= allowance_ + share_ * early) return {};
  return fmt::format(
      "{} grow: at least {:.1f} {} in the second third of the time, at least {:.1f} in the last; {:.1f} more is noise",
      name_, early, unit_, late, allowance_ + share_ * early);
}

}  // namespace tutti::conformance
