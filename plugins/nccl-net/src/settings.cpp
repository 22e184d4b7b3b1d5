// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <tutti/sdk/words.hpp>

#include <tutti/sdk/nccl_net.hpp>

namespace tutti::nccl {
namespace {

constexpr int kMaxDevice = 1023;

std::vector<int> numbers(const std::string& key, const std::string& text) {
  std::vector<int> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto number = sdk::whole_number(text.substr(begin, end - begin), 0, kMaxDevice);
    if (!number) throw sdk::error(TUTTI_INVALID_ARGUMENT, "{}=\"{}\" is not a list of adapters, as 0,1", key, text);
    all.push_back(static_cast<int>(*number));
    begin = end + 1;
  }
  return all;
}

}  // namespace

std::optional<std::string> Settings::network_named() {
  auto named = sdk::config("TUTTI_NCCL_NET");
  if (named && named->empty()) return std::nullopt;
  return named;
}

Settings Settings::read() {
  Settings settings{};
  settings.network = network_named().value_or("");
  if (const auto version = sdk::config_number("TUTTI_NCCL_NET_VERSION", 0, 0, kNewest))
    settings.version = static_cast<int>(version);
  if (settings.version != 0 && settings.version < kOldest)
    throw sdk::error(TUTTI_INVALID_ARGUMENT,
                     "TUTTI_NCCL_NET_VERSION={}: versions {} to {} can be hosted, 0 means the newest", settings.version,
                     kOldest, kNewest);
  if (sdk::config("TUTTI_NCCL_NET_DEVICE"))
    settings.device = static_cast<int>(sdk::config_number("TUTTI_NCCL_NET_DEVICE", 0, 0, kMaxDevice));
  if (const auto fused = sdk::config("TUTTI_NCCL_NET_FUSE")) {
    settings.fused = numbers("TUTTI_NCCL_NET_FUSE", *fused);
    if (settings.device)
      throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_NCCL_NET_DEVICE and TUTTI_NCCL_NET_FUSE are both set: set one");
  }
  settings.eager_bytes = sdk::config_number("TUTTI_NCCL_NET_EAGER_BYTES", 8 << 10, 0, 64 << 10);
  settings.fragment_bytes = sdk::config_number("TUTTI_NCCL_NET_FRAGMENT_BYTES", 512 << 10, 4096, 64 << 20);
  return settings;
}

}  // namespace tutti::nccl
