// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <tutti/sdk/host_identity.hpp>
#include <tutti/sdk/words.hpp>

#include "congestion.hpp"

namespace tutti::tcp {
namespace {

void read_ports(Settings& settings) {
  const auto text = sdk::config("TUTTI_TCP_PORTS");
  if (!text) return;
  const size_t dash = text->find('-');
  const auto first = sdk::whole_number(text->substr(0, dash), 1, UINT16_MAX);
  const auto last = dash == text->npos ? first : sdk::whole_number(text->substr(dash + 1), 1, UINT16_MAX);
  if (!first || !last)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_PORTS=\"{}\" is not FIRST-LAST with ports from 1 to 65535",
                     *text);
  if (*last < *first) throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_PORTS=\"{}\" ends before it begins", *text);
  settings.first_port = static_cast<uint16_t>(*first);
  settings.last_port = static_cast<uint16_t>(*last);
}

}  // namespace

Settings Settings::read() {
  Settings settings;
  if (const auto interfaces = sdk::config("TUTTI_TCP_INTERFACE")) {
    settings.interfaces = *interfaces;
    if (settings.interfaces.empty())
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_INTERFACE is set but empty: name interfaces, or unset it");
  }
  read_ports(settings);
  settings.sockets = static_cast<uint32_t>(sdk::config_number("TUTTI_TCP_SOCKETS", 1, 1, kMaxSockets));
  settings.fragment_bytes = sdk::config_number("TUTTI_TCP_FRAGMENT_BYTES", 256 << 10, 4096, 64 << 20);
  settings.eager_bytes = sdk::config_number("TUTTI_TCP_EAGER_BYTES", 16 << 10, kInlineBytes, 256 << 10);
  settings.buffer_bytes = sdk::config_number("TUTTI_TCP_BUFFER_BYTES", 4 << 20, 0, 1u << 30);
  settings.keepalive_s = static_cast<uint32_t>(sdk::config_number("TUTTI_TCP_KEEPALIVE", 10, 0, 7200));
  settings.user_timeout_s = static_cast<uint32_t>(sdk::config_number("TUTTI_TCP_USER_TIMEOUT", 0, 0, 86400));
  settings.congestion = choose_congestion(sdk::config("TUTTI_TCP_CONGESTION").value_or("auto"));
  settings.first = static_cast<uint32_t>(sdk::config_number("TUTTI_TCP_TEST_FIRST", 0, 0, UINT32_MAX));
  settings.piece = static_cast<uint32_t>(sdk::config_number("TUTTI_TCP_TEST_PIECE", 0, 0, 1 << 20));
  const auto host = sdk::config("TUTTI_HOST_ID");
  if (host && host->empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_HOST_ID is set but empty");
  settings.host_key = tutti::host_key(host ? host->c_str() : nullptr);
  return settings;
}

}  // namespace tutti::tcp
