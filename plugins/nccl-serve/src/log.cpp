// SPDX-License-Identifier: Apache-2.0
#include "log.hpp"

#include <tutti/registry.h>

#include <atomic>
#include <cstdlib>

namespace tutti::nccl::serve {
namespace {

constexpr unsigned long kSubsystem = 16;  // of the network, as NCCL_DEBUG_SUBSYS=NET selects it
std::atomic<Logger> logger_in_use{nullptr};

LogLevel nccl_level(uint32_t level) {
  if (level <= TUTTI_LOG_WARN) return kLogWarn;
  return level == TUTTI_LOG_INFO ? kLogInfo : kLogTrace;
}

// The SDK's host in this library. Transports have libtutti's, which logs by TUTTI_LOG.
const tutti_host host_of_sdk{
    sizeof(tutti_host),
    TUTTI_ABI_MAJOR,
    TUTTI_ABI_MINOR,
    0,
    nullptr,
    [](void*, const tutti_log_record* record) { say(nccl_level(record->level), record->text); },
    [](void*, const char* key) -> const char* { return std::getenv(key); },
    [](void*, tutti_status, const char*) {},
    [](void*, const char*, const char*) -> const void* { return nullptr; },
    [](void*, const char*) { return UINT32_MAX; },
    nullptr,
    nullptr};

}  // namespace

void use_logger(Logger logger) {
  logger_in_use = logger;
  static const tutti_status once = sdk::start(&host_of_sdk, "nccl-serve");
  static_cast<void>(once);
}

void say(LogLevel level, const std::string& text) noexcept {
  if (const Logger logger = logger_in_use) logger(level, kSubsystem, "nccl-serve", 0, "%s", text.c_str());
}

sdk::Error transport_error(tutti_status status, const std::string& transport, const char* function) {
  const std::string reason = take_plugin_error();
  return sdk::error(status, "transport {}: {} failed with status {}{}{}", transport, function, status,
                    reason.empty() ? "" : ": ", reason);
}

Result result_of(tutti_status status) {
  switch (status) {
    case TUTTI_PEER_FAILED:
    case TUTTI_TIMEOUT:
      return Result::kRemoteError;
    case TUTTI_NO_RESOURCES:
    case TUTTI_SYSTEM:
      return Result::kSystemError;
    case TUTTI_INVALID_ARGUMENT:
    case TUTTI_NOT_SUPPORTED:
    case TUTTI_NOT_FOUND:
    case TUTTI_MISMATCH:
    case TUTTI_INVALID_USAGE:
      return Result::kInvalidUsage;
    default:
      return Result::kInternalError;
  }
}

}  // namespace tutti::nccl::serve
