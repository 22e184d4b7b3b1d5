// SPDX-License-Identifier: Apache-2.0
#include "comm/configuration.hpp"

#include <fmt/format.h>

#include "base/failure.hpp"
#include "base/settings.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t default_windows = 4, default_lanes = 4, most_windows = 64, most_lanes = 64;
constexpr uint64_t default_scratch_limit = uint64_t{1} << 30;

uint32_t bounded(uint32_t value, uint32_t fallback, uint32_t most, const char* what) {
  if (value > most)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("tutti_comm_config.{} is {}, expected at most {}", what, value, most));
  return value ? value : fallback;
}

std::string text_or(const char* given, SettingName name) { return given ? given : setting(name).value_or(""); }

uint64_t time_or(uint64_t given, SettingName name) { return given ? given : seconds_setting(name); }

uint32_t known_flags(const tutti_comm_config& config) {
  if (config.flags & ~uint32_t{TUTTI_COMM_PROGRESS_THREAD | TUTTI_COMM_JOIN | TUTTI_COMM_CHECK_CALLS |
                               TUTTI_COMM_CANONICAL_ORDER | TUTTI_COMM_EXACT_SUMS})
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("tutti_comm_config.flags is {:#x}: unknown flags are set", config.flags));
  return config.flags;
}

// TUTTI_ORDER, where no flag says it.
Order order_or_setting(uint32_t flags) {
  const bool canonical = flags & TUTTI_COMM_CANONICAL_ORDER, exact = flags & TUTTI_COMM_EXACT_SUMS;
  if (canonical && exact)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  "tutti_comm_config.flags has TUTTI_COMM_CANONICAL_ORDER and TUTTI_COMM_EXACT_SUMS: expected one");
  if (canonical || exact) return exact ? Order::exact : Order::canonical;
  const std::string text = setting("TUTTI_ORDER").value_or("free");
  for (const Order order : {Order::free, Order::canonical, Order::exact})
    if (text == order_name(order)) return order;
  throw Failure(TUTTI_INVALID_ARGUMENT,
                fmt::format("TUTTI_ORDER=\"{}\": expected canonical (the same bits whatever algorithm reduces), exact "
                            "(sums rounded once) or free",
                            text));
}

// TUTTI_WRAP. TUTTI_CHECKSUM=1 is short for checksum as the innermost.
std::string wrap_setting() {
  const std::string list = setting("TUTTI_WRAP").value_or("");
  if (!flag_setting("TUTTI_CHECKSUM") || ("," + list + ",").find(",checksum,") != list.npos) return list;
  return list.empty() ? "checksum" : "checksum," + list;
}

}  // namespace

Configuration::Configuration(const tutti_comm_config& config)
    : name(config.name ? config.name : "world"),
      windows(bounded(config.windows, default_windows, most_windows, "windows")),
      lanes(bounded(config.lanes, default_lanes, most_lanes, "lanes")),
      scratch_limit(config.scratch_limit ? config.scratch_limit : default_scratch_limit),
      connect_timeout_ns(time_or(config.connect_timeout_ns, "TUTTI_CONNECT_TIMEOUT")),
      connect_timeout_source(config.connect_timeout_ns          ? "the communicator's connect timeout"
                             : setting("TUTTI_CONNECT_TIMEOUT") ? "TUTTI_CONNECT_TIMEOUT"
                                                                : "the default of TUTTI_CONNECT_TIMEOUT"),
      timeout{time_or(config.timeout_ns, "TUTTI_TIMEOUT"), config.timeout_ns ? "the communicator's timeout"
                                                                : setting("TUTTI_TIMEOUT")
                                                                    ? "TUTTI_TIMEOUT"
                                                                    : "the default of TUTTI_TIMEOUT"},
      progress_thread((known_flags(config) & TUTTI_COMM_PROGRESS_THREAD) != 0),
      joins((config.flags & TUTTI_COMM_JOIN) != 0),
      checks_calls((config.flags & TUTTI_COMM_CHECK_CALLS) || flag_setting("TUTTI_CHECK")),
      verifies(flag_setting("TUTTI_VERIFY")),
      order(order_or_setting(config.flags)),
      traffic_class(static_cast<uint32_t>(number_setting("TUTTI_TRAFFIC_CLASS"))),
      transports(text_or(config.transports, "TUTTI_TRANSPORT")),
      algorithms(text_or(config.algorithms, "TUTTI_ALGO")),
      selector(setting("TUTTI_SELECTOR").value_or("")),
      wrappers(wrap_setting()),
      tuning_file(setting("TUTTI_TUNING").value_or("")),
      device(text_or(config.device, "TUTTI_DEVICE")),
      device_source(config.device ? "tutti_comm_config.device" : "TUTTI_DEVICE"),
      rendezvous(text_or(config.rendezvous, "TUTTI_RENDEZVOUS")),
      rank(config.rank),
      nranks(config.nranks),
      all_gather(config.all_gather),
      all_gather_context(config.all_gather_context) {}

}  // namespace tutti::core
