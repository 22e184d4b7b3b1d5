// SPDX-License-Identifier: Apache-2.0
//
// Groups of calls.
#include <tutti/tutti.h>

#include "api/guards.hpp"

using namespace tutti::core::api;
using tutti::core::Communicator;

extern "C" {

tutti_status tutti_group_begin(tutti_comm* comm) {
  return guarded(comm, [](Communicator& c) { c.calls().open_group(); });
}
tutti_status tutti_group_end(tutti_comm* comm, const tutti_options* options, tutti_request** request) {
  return jointly(comm, [&](Communicator& c) {
    try {
      const tutti_options known =
          checked_plain_call("group_end", options, request, "the calls of the group have their own");
      if (known.stream)
        invalid("group_end: options.stream is set, expected NULL: the calls of a group have their streams");
      return c.calls().end_group(known, request);
    } catch (const std::exception&) {
      if (c.calls().group()) c.calls().cancel_group();
      throw;
    }
  });
}
tutti_status tutti_group_cancel(tutti_comm* comm) {
  return guarded(comm, [](Communicator& c) { c.calls().cancel_group(); });
}

}  // extern "C"
