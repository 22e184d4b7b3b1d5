// SPDX-License-Identifier: Apache-2.0
//
// NCCL's debug function, and the one place where errors become NCCL's results.
#pragma once

#include <string>
#include <tutti/sdk/words.hpp>

#include <tutti/sdk/nccl_net.hpp>

namespace tutti::nccl::serve {

// From now on texts go to NCCL's debug function. Also gives the SDK its host: settings come from the environment.
void use_logger(Logger logger);
void say(LogLevel level, const std::string& text) noexcept;

// The error of a transport's function that has just returned `status` on this thread, with the transport's reason.
sdk::Error transport_error(tutti_status status, const std::string& transport, const char* function);

// The result for a status: ncclRemoteError for a peer that is gone or silent, ncclInvalidUsage for what a user can
// change, ncclSystemError for what the system refused, ncclInternalError for defects.
Result result_of(tutti_status status);

// Runs the body of a function of the table. An error becomes a result, with a warning that has its text.
template <typename Body>
Result guarded(const char* function, Body&& body) noexcept {
  const auto failed = [&](tutti_status status, const char* text) {
    say(kLogWarn, std::string("tutti: ") + function + ": " + text);
    return result_of(status);
  };
  try {
    body();
    return Result::kSuccess;
  } catch (const sdk::Error& e) {
    return failed(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return failed(TUTTI_NO_RESOURCES, "out of memory");
  } catch (const std::exception& e) {
    return failed(TUTTI_INTERNAL, e.what());
  }
}

}  // namespace tutti::nccl::serve
