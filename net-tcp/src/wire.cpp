// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <algorithm>

namespace tutti::tcp {

std::vector<Where> Offer::addresses() const {
  std::vector<Where> all;
  for (uint64_t i = 0; i < n_listeners; ++i) all.push_back(listeners[i].where());
  return all;
}

std::string Offer::flaw() const {
  const bool is_right = n_listeners > 0 && n_listeners <= kMaxAddresses &&
                        std::all_of(listeners.begin(), listeners.begin() + n_listeners,
                                    [](const Listener& listener) { return listener.port != 0; });
  return is_right ? "" : "it offers " + std::to_string(n_listeners) + " listeners, or one at port 0";
}

}  // namespace tutti::tcp
