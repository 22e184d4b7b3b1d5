// SPDX-License-Identifier: Apache-2.0
//
// Sends, receives and groups of them, and what an application asks about a request.
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <tutti/sized.hpp>
#include <vector>

#include "api/arguments.hpp"
#include "api/guards.hpp"
#include "engine/p2p/transfer.hpp"

namespace tutti::core::api {
namespace {

// A group while its messages are checked. Its memory is the thread's, for its next group.
struct Batch {
  Communicator& communicator;
  const char* each;  // begins the texts of failures
  void* stream = nullptr;
  std::vector<Transfer>& transfers;
  DeviceMemory where{};  // of those on a device
  Batch(Communicator& of, const char* name, void* on) : communicator(of), each(name), stream(on), transfers(kept()) {
    transfers.clear();
  }
  void require_apart() const {
    static thread_local std::vector<const Transfer*> sorted;
    core::require_apart(transfers, sorted);
  }
  tutti_status begin(const char* name, const tutti_options& options, tutti_request** request,
                     std::span<const tutti_message> plain = {}) const {
    return communicator.calls().exchange(name, transfers, {{}, nullptr, nullptr, stream}, options, request, plain);
  }

 private:
  static std::vector<Transfer>& kept() {
    static thread_local std::vector<Transfer> memory;
    return memory;
  }
};

void add(Batch& group, const tutti_message& m) {
  Communicator& c = group.communicator;
  const char* each = group.each;
  const uint64_t bytes = size_of(each, m.count, m.dtype, 1);
  check_pointer(each, "data", m.data, bytes, TUTTI_UINT8);
  if (m.direction != TUTTI_SEND && m.direction != TUTTI_RECEIVE)
    invalid(fmt::format("{}: direction is {}, expected TUTTI_SEND or TUTTI_RECEIVE", each, m.direction));
  if (std::ranges::any_of(m.reserved, [](uint64_t word) { return word != 0; }))
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("{}: reserved is not 0: zero a tutti_message before filling it", each));
  check_rank(each, "peer", m.peer, c.nranks());
  const DeviceMemory found = locate(c, each, "data", {m.data, bytes}, {}, group.stream);
  if (bytes && group.where && found != group.where)
    invalid(fmt::format("{}: data is memory of {}, but of {} before: all have to be on one", each, describe(found),
                        describe(group.where)));
  if (found) group.where = found;
  group.transfers.push_back(Transfer::of(m.direction == TUTTI_SEND, m.peer, m.tag, m.data, bytes));
  group.transfers.back().on_stream = static_cast<bool>(found);
}

tutti_status transfer(tutti_comm* comm, bool sending, void* data, uint64_t count, uint32_t dtype, uint32_t peer,
                      uint32_t tag, const tutti_options* given, tutti_request** request) {
  return jointly(comm, [&](Communicator& c) {
    const char* name = sending ? "send" : "receive";
    const tutti_options options = checked_plain_call(name, given, request, no_collective);
    Batch group{c, name, options.stream};
    add(group, {data, count, dtype, peer, tag, sending ? TUTTI_SEND : TUTTI_RECEIVE, {}});
    if (peer == c.rank() && !c.calls().group())
      invalid(
          fmt::format("{}: peer is {}, this rank itself: copy instead, or use tutti_exchange or a group", name, peer));
    return group.begin(name, options, request);
  });
}

// The envelope as given. Throws Failure.
tutti_envelope checked_envelope(const char* call, const Communicator& c, const tutti_envelope* given) {
  require(call, tutti::judge_size(given));
  const tutti_envelope envelope = tutti::known_part(*given);
  if (envelope.flags & ~uint32_t{TUTTI_ANY_PEER | TUTTI_ANY_TAG})
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("{}: envelope.flags is {:#x}, expected TUTTI_ANY_PEER, TUTTI_ANY_TAG, both or neither",
                              call, envelope.flags));
  if (envelope.flags & TUTTI_ANY_PEER) return envelope;
  check_rank(call, "envelope.peer", envelope.peer, c.nranks());
  if (envelope.peer == c.rank())
    invalid(
        fmt::format("{}: envelope.peer is {}, this rank itself, which sends only within a group", call, envelope.peer));
  return envelope;
}

tutti_status receive_any(tutti_comm* comm, void* data, uint64_t count, uint32_t dtype, tutti_envelope* envelope,
                         const tutti_options* given, tutti_request** request) {
  return jointly(comm, [&](Communicator& c) {
    const char* name = "receive_any";
    const tutti_options options = checked_plain_call(name, given, request, no_collective);
    const tutti_envelope wanted = checked_envelope(name, c, envelope);
    if (wanted.flags & TUTTI_ANY_PEER && c.nranks() == 1)
      invalid(fmt::format("{}: there is no other rank that could send", name));
    const bool anyone = wanted.flags & TUTTI_ANY_PEER;
    Batch group{c, name, options.stream};
    add(group, {data, count, dtype, anyone ? 0 : wanted.peer, wanted.tag, TUTTI_RECEIVE, {}});
    if (group.where)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("{}: data is memory of {}: only host memory can be received from any "
                                "rank or with any tag",
                                name, describe(group.where)));
    Transfer& receive = group.transfers.back();
    if (anyone) receive.peer = UINT32_MAX;
    receive.any_peer = anyone;
    receive.any_tag = wanted.flags & TUTTI_ANY_TAG;
    receive.envelope = envelope;
    return group.begin(name, options, request);
  });
}

tutti_status exchange(tutti_comm* comm, const tutti_message* messages, uint64_t n, const tutti_options* given,
                      tutti_request** request) {
  return jointly(comm, [&](Communicator& c) {
    const bool plain = messages && !given && !request;
    if (plain)
      if (const auto status = c.calls().repeat({messages, n})) return *status;
    const tutti_options options = checked_plain_call("exchange", given, request, no_collective);
    if (n && !messages) invalid(fmt::format("exchange: messages is NULL, expected {}", n));
    Batch group{c, "exchange: messages", options.stream};
    for (uint64_t i = 0; i < n; ++i) try {
        add(group, messages[i]);
      } catch (const Failure& failure) {  // which one it is
        std::string text = failure.text;
        if (text.starts_with(group.each)) text.erase(0, std::strlen(group.each) + 2);
        throw Failure(failure.status, fmt::format("{}[{}]: {}", group.each, i, text));
      }
    if (group.where && std::ranges::any_of(group.transfers, [](const Transfer& t) { return t.bytes && !t.on_stream; }))
      invalid(
          fmt::format("exchange: some data is host memory, some of {}: all has to be on one", describe(group.where)));
    group.require_apart();
    return group.begin("exchange", options, request, {messages, plain ? n : 0});
  });
}

}  // namespace
}  // namespace tutti::core::api

using namespace tutti::core::api;
using tutti::core::Communicator;

extern "C" {

tutti_status tutti_send(tutti_comm* comm, const void* data, uint64_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                        const tutti_options* options, tutti_request** request) {
  return transfer(comm, true, const_cast<void*>(data), count, dtype, peer, tag, options, request);
}
tutti_status tutti_receive(tutti_comm* comm, void* data, uint64_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                           const tutti_options* options, tutti_request** request) {
  return transfer(comm, false, data, count, dtype, peer, tag, options, request);
}
tutti_status tutti_receive_any(tutti_comm* comm, void* data, uint64_t count, uint32_t dtype, tutti_envelope* envelope,
                               const tutti_options* options, tutti_request** request) {
  return receive_any(comm, data, count, dtype, envelope, options, request);
}
tutti_status tutti_probe(tutti_comm* comm, tutti_envelope* envelope, uint64_t timeout_ns) {
  return guarded(comm, [&](Communicator& c) {
    tutti_envelope wanted = checked_envelope("probe", c, envelope);
    const tutti_status status = c.waits().probe(wanted, timeout_ns);
    if (status == TUTTI_OK) {
      envelope->peer = wanted.peer;
      envelope->tag = wanted.tag;
      envelope->bytes = wanted.bytes;
    }
    return status;
  });
}
tutti_status tutti_exchange(tutti_comm* comm, const tutti_message* messages, uint64_t n, const tutti_options* options,
                            tutti_request** request) {
  return exchange(comm, messages, n, options, request);
}

tutti_status tutti_request_test(tutti_request* request) {
  return about(request, [&](Communicator& c) { return c.waits().test(*request); });
}
tutti_status tutti_request_wait(tutti_request* request) { return tutti_request_wait_for(request, UINT64_MAX); }
tutti_status tutti_request_wait_for(tutti_request* request, uint64_t timeout_ns) {
  return about(request, [&](Communicator& c) { return c.waits().wait(*request, timeout_ns); });
}
const char* tutti_request_error(const tutti_request* request) {
  if (!request) return "";
  const bool complete = request->complete.load(std::memory_order_acquire);
  const bool alone = complete && !request->pool->alive.load(std::memory_order_acquire);  // the communicator has ended
  if (!alone && request->comm->forked()) return forked_words;
  return complete ? request->error.c_str() : "";
}
tutti_status tutti_request_start(tutti_request* request) {
  if (!request) return TUTTI_INVALID_ARGUMENT;
  if (!request->pool->alive.load(std::memory_order_acquire)) return TUTTI_INVALID_USAGE;
  try {
    if (request->comm->forked()) throw tutti::core::Failure(TUTTI_INVALID_USAGE, forked_words);
    request->comm->calls().start(*request);
    return TUTTI_OK;
  } catch (const std::exception& problem) {
    return report(*request->comm, problem);
  }
}
void tutti_request_free(tutti_request* request) {
  if (!request) return;
  // In a forked child it stays pending for ever, and nothing there looks at it any more.
  if (!request->complete.load(std::memory_order_acquire)) tutti_request_wait(request);
  if (request->persistent)
    about(request, [&](Communicator& c) {
      c.calls().release(*request);
      return TUTTI_OK;
    });
  request->pool->give_back(*request);  // a complete one no longer needs its communicator, which may be gone
}

}  // extern "C"
