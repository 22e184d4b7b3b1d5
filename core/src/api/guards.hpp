// SPDX-License-Identifier: Apache-2.0
//
// The frame of every C function: handles in, status out. Every exception becomes a status here.
#pragma once

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <tutti/sized.hpp>
#include <vector>

#include "base/failure.hpp"
#include "comm/communicator.hpp"
#include "comm/communicator_handle.hpp"
#include "registry/host.hpp"

namespace tutti::core::api {

// ---- Arguments.

[[noreturn]] inline void invalid(std::string text) { throw Failure(TUTTI_INVALID_ARGUMENT, std::move(text)); }

// Throws Failure unless a sized struct can be read (judge_size) or filled (judge_offer).
inline void require(const char* call, const SizeVerdict& verdict) {
  if (verdict.status < 0) throw Failure(verdict.status, fmt::format("{}: {}", call, verdict.text));
}

// The options of a call, in full; NULL: all defaults. `flags`: those that are known.
template <typename Options>
Options checked(const char* call, const Options* options, uint32_t flags = 0) {
  if (!options) return {};
  require(call, judge_size(options));
  if (options->flags & ~flags)
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        flags ? fmt::format("{}: options.flags is {:#x}, but only {:#x} are known", call, options->flags, flags)
              : fmt::format("{}: options.flags is {:#x}, but no flag is known: expected 0", call, options->flags));
  return known_part(*options);
}

// The options of a call with a request, in full.
inline tutti_options checked_call(const char* call, const tutti_options* options, tutti_request** request) {
  const tutti_options known = checked(call, options, TUTTI_PERSISTENT);
  if (known.flags & TUTTI_PERSISTENT && !request)
    invalid(
        fmt::format("{}: options.flags has TUTTI_PERSISTENT, but request is NULL: expected where to write the request "
                    "that tutti_request_start starts",
                    call));
  if (known.reserved) invalid(fmt::format("{}: options.reserved is {}, expected 0", call, known.reserved));
  return known;
}

// The same for a call that is no collective, and has none of their fields. `why` ends the text.
inline tutti_options checked_plain_call(const char* call, const tutti_options* options, tutti_request** request,
                                        const char* why) {
  const tutti_options known = checked_call(call, options, request);
  const auto refuse = [&](const char* field, const std::string& value) {
    invalid(fmt::format("{}: options.{} is {}, expected none: {}", call, field, value, why));
  };
  if (known.algorithms) refuse("algorithms", fmt::format("\"{}\"", known.algorithms));
  if (known.order) refuse("order", std::to_string(known.order));
  if (known.tag) refuse("tag", std::to_string(known.tag));
  return known;
}
constexpr const char* no_collective = "only collectives have it, and a send or receive has a tag of its own";

// ---- Functions.

// For calls of the communicator's own thread. nullptr: there is none, or it was destroyed.
inline Communicator* communicator_of(const tutti_comm* comm) {
  return comm ? comm->communicator.load(std::memory_order_acquire) : nullptr;
}

// Keeps the text of what has gone wrong in a call, which begins with the rank.
tutti_status report(Communicator& communicator, const std::exception& problem) noexcept;

// The status of a body that returns one, or nothing.
template <typename Body, typename... Arguments>
tutti_status status_of(Body&& body, Arguments&&... arguments) {
  if constexpr (std::is_void_v<std::invoke_result_t<Body, Arguments...>>) {
    body(std::forward<Arguments>(arguments)...);
    return TUTTI_OK;
  } else {
    return body(std::forward<Arguments>(arguments)...);
  }
}

inline constexpr const char* forked_words =
    "this process was forked after the communicator was made: a child may only exec or exit";

// Runs `body` for a communicator; failures become its error text. In a forked child any lock may be held for ever, by
// a thread that only the parent has: nothing is tried there.
template <typename Body>
tutti_status guarded(const tutti_comm* comm, Body&& body) noexcept {
  Communicator* const found = communicator_of(comm);
  if (!found) return comm ? TUTTI_INVALID_USAGE : TUTTI_INVALID_ARGUMENT;
  try {
    if (comm->forked()) throw Failure(TUTTI_INVALID_USAGE, forked_words);
    return status_of(body, *found);
  } catch (const std::exception& problem) {
    return report(*found, problem);
  }
}

// The same for calls in which other ranks wait for this one. All ranks share a Failure, or the call is wrong on this
// one alone. Anything else, such as a lack of memory, ends the communicator, and the others are told.
template <typename Body>
tutti_status jointly(const tutti_comm* comm, Body&& body) noexcept {
  return guarded(comm, [&](Communicator& c) {
    try {
      return status_of(body, c);
    } catch (const Failure&) {
      throw;
    } catch (const std::exception& problem) {
      c.give_up(problem);
      throw;
    }
  });
}

// For calls that any thread may make at any time, also while another one destroys the communicator.
template <typename Body>
tutti_status pinned(const tutti_comm* comm, Body&& body) noexcept {
  if (!comm) return TUTTI_INVALID_ARGUMENT;
  if (comm->forked()) return TUTTI_INVALID_USAGE;
  try {
    const Pin pin(comm);
    if (!pin.communicator()) return TUTTI_INVALID_USAGE;
    return status_of(body, *pin.communicator());
  } catch (const std::exception&) {
    return TUTTI_NO_RESOURCES;
  }
}

// Asks about a request. One that is complete may have outlived its communicator, which completed it.
template <typename Body>
tutti_status about(tutti_request* request, Body&& body) noexcept {
  if (!request) return TUTTI_INVALID_ARGUMENT;
  if (request->complete.load(std::memory_order_acquire) && !request->pool->alive.load(std::memory_order_acquire))
    return request->status;
  if (request->comm->forked()) return TUTTI_INVALID_USAGE;  // it is the parent's; its locks may be held
  try {
    return body(*request->comm);
  } catch (const std::exception&) {
    return TUTTI_NO_RESOURCES;
  }
}

// For calls without a communicator: there is nowhere to keep the text but the log.
template <typename Body>
tutti_status logged(const char* call, Body&& body) noexcept {
  try {
    body();
    return TUTTI_OK;
  } catch (const Failure& failure) {
    log(TUTTI_LOG_ERROR, call, failure.text);
    return failure.status;
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, call, e.what());
    return TUTTI_NO_RESOURCES;
  }
}

// ---- Results.

tutti_status copy_text(const std::string& text, char* to, uint64_t* bytes);

template <typename Row>
tutti_status copy_rows(const std::vector<Row>& from, Row* to, uint64_t* n) {
  if (!n) return TUTTI_INVALID_ARGUMENT;
  const uint64_t fits = std::min<uint64_t>(*n, from.size());
  if (to) std::copy_n(from.begin(), fits, to);
  *n = from.size();
  return TUTTI_OK;
}

}  // namespace tutti::core::api
