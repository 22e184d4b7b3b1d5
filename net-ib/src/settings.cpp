// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <charconv>
#include <tutti/sdk/plugin.hpp>

namespace tutti::ib {

HcaFilter::HcaFilter(const std::string& text) : text_(text) {
  std::string_view rest = text;
  const auto refuse = [&](const std::string& why) {
    return sdk::Error(TUTTI_INVALID_ARGUMENT,
                      "TUTTI_IB_HCA=\"" + text + "\": " + why +
                          "; expected DEVICE[:PORT],... with an optional ^ (leave out) and then "
                          "= (whole names) in front, as in mlx5_0:1,mlx5_1 or ^mlx5_2");
  };
  if (rest.starts_with('^')) excludes_ = true, rest.remove_prefix(1);
  if (rest.starts_with('=')) whole_ = true, rest.remove_prefix(1);
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t colon = item.find(':');
    Item parsed{std::string(item.substr(0, colon)), std::nullopt};
    if (parsed.device.empty()) throw refuse("a device name is empty");
    if (colon != item.npos) {
      const std::string_view digits = item.substr(colon + 1);
      uint32_t port = 0;
      const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
      if (code != std::errc() || end != digits.data() + digits.size() || port == 0 || port > 255)
        throw refuse("\"" + std::string(digits) + "\" is no port number from 1 to 255");
      parsed.port = port;
    }
    items_.push_back(std::move(parsed));
    if (comma == rest.npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::optional<size_t> HcaFilter::admits(const std::string& device, uint32_t port) const {
  if (!is_set()) return 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const bool name_fits = whole_ ? device == item.device : device.starts_with(item.device);
    if (!name_fits || (item.port && *item.port != port)) continue;
    if (excludes_) return std::nullopt;
    return i;
  }
  return excludes_ ? std::optional<size_t>(0) : std::nullopt;
}

Settings Settings::read() {
  Settings s;
  const auto number = [](const char* key, uint64_t fallback, uint64_t low, uint64_t high) {
    return sdk::config_number(key, fallback, low, high);
  };
  if (const auto filter = sdk::config("TUTTI_IB_HCA")) s.hca = HcaFilter(*filter);
  if (sdk::config("TUTTI_IB_GID_INDEX")) s.gid_index = static_cast<uint32_t>(number("TUTTI_IB_GID_INDEX", 0, 0, 65535));
  if (const auto near = sdk::config("TUTTI_IB_NEAR")) s.near = *near;
  s.rails = static_cast<uint32_t>(number("TUTTI_IB_RAILS", kMaxRails, 1, kMaxRails));
  s.pkey_index = static_cast<uint32_t>(number("TUTTI_IB_PKEY", 0, 0, 65535));
  s.traffic_class = static_cast<uint8_t>(number("TUTTI_IB_TC", 0, 0, 255));
  s.service_level = static_cast<uint8_t>(number("TUTTI_IB_SL", 0, 0, 15));
  s.timeout = static_cast<uint8_t>(number("TUTTI_IB_TIMEOUT", 16, 1, 31));
  s.retry_count = static_cast<uint8_t>(number("TUTTI_IB_RETRY_CNT", 6, 0, 7));
  s.credits = static_cast<uint32_t>(number("TUTTI_IB_CREDITS", 32, 16, 1024));
  s.eager_bytes = number("TUTTI_IB_EAGER_BYTES", 8192, 1024, 65536);
  s.fragment_bytes = number("TUTTI_IB_FRAGMENT_BYTES", 1 << 20, 4096, 64 << 20);
  s.stripe_bytes = number("TUTTI_IB_STRIPE_BYTES", 64 << 10, 4096, 64 << 20);
  s.connect_timeout = std::chrono::seconds(number("TUTTI_IB_CONNECT_TIMEOUT", 30, 1, 86400));
  if (s.eager_bytes > s.fragment_bytes)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     "TUTTI_IB_EAGER_BYTES=" + std::to_string(s.eager_bytes) +
                         " is larger than TUTTI_IB_FRAGMENT_BYTES=" + std::to_string(s.fragment_bytes));
  return s;
}

}  // namespace tutti::ib
