// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <tutti/sdk/text.hpp>

namespace tutti::ib {

HcaFilter::HcaFilter(const std::string& text) : text_(text), list_(name_list("TUTTI_IB_HCA", text)) {
  if (!list_.problem.empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, list_.problem);
  for (const std::string& name : list_.names) {
    const size_t colon = std::min(name.find(':'), name.size());
    Item item{name.substr(0, colon), std::nullopt};
    if (colon < name.size()) item.port = sdk::whole_number(std::string_view(name).substr(colon + 1), 1, 255);
    if (item.device.empty() || (colon < name.size() && !item.port))
      throw error(TUTTI_INVALID_ARGUMENT,
                  "TUTTI_IB_HCA=\"{}\": \"{}\" is not DEVICE or DEVICE:PORT with a port from 1 to 255, as in mlx5_0:1",
                  text, name);
    items_.push_back(std::move(item));
  }
}

std::optional<size_t> HcaFilter::admits(const std::string& device, uint32_t port) const {
  if (!is_set()) return 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (!list_.means(item.device, device) || (item.port && *item.port != port)) continue;
    if (list_.excludes) return std::nullopt;
    return i;
  }
  return list_.excludes ? std::optional<size_t>(0) : std::nullopt;
}

Settings Settings::read() {
  Settings s;
  const auto number = []<typename T>(const char* key, T& value, uint64_t low, uint64_t high) {
    value = static_cast<T>(sdk::config_number(key, value, low, high));
  };
  const auto optional = []<typename T>(const char* key, std::optional<T>& value, uint64_t high) {
    if (sdk::config(key)) value = static_cast<T>(sdk::config_number(key, 0, 0, high));
  };
  if (const auto filter = sdk::config("TUTTI_IB_HCA")) s.hca = HcaFilter(*filter);
  if (const auto near = sdk::config("TUTTI_IB_NEAR")) s.near = *near;
  optional("TUTTI_IB_GID_INDEX", s.gid_index, 65535);
  optional("TUTTI_IB_TC", s.traffic_class, 255);
  optional("TUTTI_IB_SL", s.service_level, 15);
  s.peer_memory = access("/sys/module/nvidia_peermem", F_OK) == 0 || access("/sys/module/nv_peer_mem", F_OK) == 0;
  number("TUTTI_IB_PEER_MEMORY", s.peer_memory, 0, 1);
  number("TUTTI_IB_RELAXED_ORDERING", s.relaxed_ordering, 0, 1);
  number("TUTTI_IB_RAILS", s.rails, 1, kMaxRails);
  number("TUTTI_IB_QUEUE_PAIRS", s.queue_pairs, 1, kMaxQueuePairs);
  number("TUTTI_IB_PKEY", s.pkey_index, 0, 65535);
  number("TUTTI_IB_TIMEOUT", s.timeout, 1, 31);
  number("TUTTI_IB_RETRY_CNT", s.retry_count, 0, 7);
  s.recovery = std::chrono::seconds(sdk::config_number("TUTTI_IB_RECOVERY", 20, 0, 3600));
  number("TUTTI_IB_CREDITS", s.credits, 16, 1024);
  number("TUTTI_IB_EAGER_BYTES", s.eager_bytes, 1024, 65536);
  number("TUTTI_IB_FRAGMENT_BYTES", s.fragment_bytes, 4096, 64 << 20);
  number("TUTTI_IB_STRIPE_BYTES", s.stripe_bytes, 4096, 64 << 20);
  if (s.eager_bytes > s.fragment_bytes)
    throw error(TUTTI_INVALID_ARGUMENT, "TUTTI_IB_EAGER_BYTES={} is larger than TUTTI_IB_FRAGMENT_BYTES={}",
                s.eager_bytes, s.fragment_bytes);
  return s;
}

void Settings::prefer_near(const tutti_domain_config& domain) {
  if (!near.empty() || !domain.device_pci) return;
  near = domain.device_pci;
  std::transform(near.begin(), near.end(), near.begin(), to_lower);
  near_is = "device ";
}

}  // namespace tutti::ib
