// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <tutti/sdk/text.hpp>
#include <tutti/sdk/words.hpp>

#include "address.hpp"

namespace tutti::nccl::serve {
namespace {

constexpr double kLongest = 1e9;  // seconds

std::chrono::nanoseconds seconds(const char* key, double otherwise) {
  const auto text = sdk::config(key);
  const std::optional<double> value = text ? decimal_number(*text) : otherwise;
  if (!value || !(*value > 0) || *value > kLongest)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "{}=\"{}\" is not a positive number of seconds, at most 1e9", key,
                     text.value_or(""));
  return std::chrono::nanoseconds(static_cast<int64_t>(*value * 1e9));
}

}  // namespace

Settings Settings::read() {
  Settings s;
  s.transport = sdk::config("TUTTI_NCCL_SERVES").value_or("tcp");
  s.address = sdk::config("TUTTI_NCCL_SERVES_ADDRESS").value_or("");
  if (s.transport.empty())
    throw sdk::error(TUTTI_INVALID_ARGUMENT,
                     "TUTTI_NCCL_SERVES is empty: name a transport, as tcp; tutti-info lists those that are here");
  if (s.transport.starts_with("nccl:"))
    throw sdk::error(TUTTI_INVALID_ARGUMENT,
                     "TUTTI_NCCL_SERVES={}: this transport is a network plugin of NCCL itself; let NCCL load it: "
                     "NCCL_NET_PLUGIN={}",
                     s.transport, s.transport.substr(5));
  if (!s.address.empty()) Address(s.address, "TUTTI_NCCL_SERVES_ADDRESS");
  s.connect_timeout = seconds("TUTTI_CONNECT_TIMEOUT", 30);
  s.timeout = seconds("TUTTI_TIMEOUT", 600);
  return s;
}

}  // namespace tutti::nccl::serve
