// SPDX-License-Identifier: Apache-2.0
#include "base/failure.hpp"

#include <tutti/tutti.h>

const char* tutti_status_text(tutti_status status) {
  constexpr struct {
    tutti_status status;
    const char* text;
  } texts[] = {
      {TUTTI_OK, "ok"},
      {TUTTI_AGAIN, "not yet"},
      {TUTTI_INVALID_ARGUMENT, "invalid argument"},
      {TUTTI_NOT_SUPPORTED, "not supported"},
      {TUTTI_NOT_FOUND, "not found"},
      {TUTTI_NO_RESOURCES, "no resources"},
      {TUTTI_TIMEOUT, "timed out"},
      {TUTTI_PEER_FAILED, "peer failed"},
      {TUTTI_ABORTED, "aborted"},
      {TUTTI_MISMATCH, "mismatch between ranks"},
      {TUTTI_SYSTEM, "system error"},
      {TUTTI_INVALID_USAGE, "invalid usage"},
      {TUTTI_INTERNAL, "internal error"},
  };
  for (const auto& one : texts)
    if (one.status == status) return one.text;
  return "unknown status";
}
