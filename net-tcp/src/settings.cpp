// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <tutti/sdk/plugin.hpp>

namespace tutti::tcp {
namespace {

uint16_t port_number(std::string_view text, const std::string& whole) {
  uint16_t port = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc() || end != text.data() + text.size() || text.empty() || port == 0)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     "TUTTI_TCP_PORTS=\"" + whole + "\" is not FIRST-LAST with ports from 1 to 65535");
  return port;
}

void read_ports(Settings& settings) {
  const auto text = sdk::config("TUTTI_TCP_PORTS");
  if (!text) return;
  const size_t dash = text->find('-');
  const std::string_view view = *text;
  settings.first_port = port_number(view.substr(0, dash), *text);
  settings.last_port = dash == std::string::npos ? settings.first_port : port_number(view.substr(dash + 1), *text);
  if (settings.last_port < settings.first_port)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_PORTS=\"" + *text + "\" ends before it begins");
}

// All three or none: half a set would be read as safer than it is.
void read_tls(Settings& settings) {
  const std::pair<const char*, std::string*> files[] = {{"TUTTI_TLS_CERTIFICATE", &settings.tls_certificate},
                                                        {"TUTTI_TLS_KEY", &settings.tls_key},
                                                        {"TUTTI_TLS_CA", &settings.tls_ca}};
  const char *set = nullptr, *unset = nullptr;
  for (const auto& [name, file] : files) {
    *file = sdk::config(name).value_or("");
    (file->empty() ? unset : set) = name;
    if (file->empty() && sdk::config(name))
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, std::string(name) + " is set but empty: name a file, or unset it");
  }
  if (set && unset)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, std::string(set) + " is set but " + unset +
                                                 " is not: TLS needs "
                                                 "TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and TUTTI_TLS_CA");
}

// TUTTI_HOST_ID, else boot id + inode of the network namespace: host names and boot ids are the same in all namespaces
// of a machine, but loopback addresses do not reach across.
std::string read_host_key() {
  if (const auto given = sdk::config("TUTTI_HOST_ID")) {
    if (given->empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_HOST_ID is set but empty");
    return *given;
  }
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  struct stat name_space{};
  if (boot_id.empty() || stat("/proc/self/ns/net", &name_space) != 0)
    throw sdk::system_error(
        "cannot tell this host: /proc/sys/kernel/random/boot_id or /proc/self/ns/net is not "
        "readable (TUTTI_HOST_ID, a text that differs between hosts, is another way)",
        errno);
  return boot_id + "/" + std::to_string(name_space.st_ino);
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
  settings.connect_timeout = std::chrono::seconds(sdk::config_number("TUTTI_TCP_CONNECT_TIMEOUT", 30, 1, 86400));
  read_tls(settings);
  settings.host_key = read_host_key();
  return settings;
}

}  // namespace tutti::tcp
