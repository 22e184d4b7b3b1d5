// SPDX-License-Identifier: Apache-2.0
//
// The C boundary: every argument is checked here, and every exception becomes a status here.
#include <fmt/format.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bootstrap/failure.hpp"
#include "engine/communicator.hpp"
#include "engine/direct_buffers.hpp"
#include "engine/host.hpp"
#include "engine/memory.hpp"
#include "engine/registry.hpp"
#include "engine/unknown_settings.hpp"

using tutti::core::Communicator;
using tutti::core::DeviceMemory;
using tutti::core::Failure;
using tutti::core::failure_of;
using tutti::core::Shape;
using tutti::core::Transfer;

namespace {

constexpr uint64_t most_bytes = uint64_t{1} << 62;

// nullptr: there is none, or it was destroyed.
Communicator* communicator_of(const tutti_comm* comm) {
  return comm ? comm->communicator.load(std::memory_order_acquire) : nullptr;
}

// The handles of the communicators that were destroyed last are kept, so that a use after the end is an error and no
// crash; older ones are freed, so that a process that makes them for ever does not grow.
void keep_for_a_while(tutti_comm* comm) {
  constexpr size_t kept = 1024;
  static std::mutex mutex;
  static auto& handles = *new std::deque<std::unique_ptr<tutti_comm>>;
  const std::lock_guard lock(mutex);
  handles.emplace_back(comm);
  if (handles.size() > kept) handles.pop_front();
}

// Runs `body` for a communicator; failures become its error text.
template <typename Body>
tutti_status guarded(tutti_comm* comm, Body&& body) noexcept {
  Communicator* const found = communicator_of(comm);
  if (!found) return comm ? TUTTI_INVALID_USAGE : TUTTI_INVALID_ARGUMENT;
  Communicator& c = *found;
  try {
    return body(c);
  } catch (const Failure& failure) {
    std::string text = failure.text;
    // What begins with a rank says who already.
    if (!text.starts_with("rank ")) text = fmt::format("rank {}: {}: {}", c.rank(), c.name(), text);
    return c.remember(failure.status, std::move(text));
  } catch (const std::bad_alloc&) {
    return c.remember(TUTTI_NO_RESOURCES, fmt::format("rank {}: out of memory", c.rank()));
  } catch (const std::exception& e) {
    return c.remember(TUTTI_INTERNAL, fmt::format("rank {}: {}", c.rank(), e.what()));
  }
}

[[noreturn]] void invalid(std::string text) { throw Failure(TUTTI_INVALID_ARGUMENT, std::move(text)); }

void check_options(const char* call, const tutti_options* options) {
  if (!options) return;
  if (options->struct_size < sizeof(tutti_options))
    invalid(
        fmt::format("{}: options.struct_size is {}, expected {}", call, options->struct_size, sizeof(tutti_options)));
  if (options->flags || options->order || options->priority)
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{}: options.flags, order and priority must be 0", call));
}

[[noreturn]] void stream_without_device(const char* call, const char* why) {
  throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{}: options.stream is set, but {}", call, why));
}

std::string describe(const DeviceMemory& where) {
  return where.tables.memory ? fmt::format("device {} {}", where.tables.memory->name, where.device)
                             : std::string("the host");
}

// Where a collective's buffers lie: all on the host (no tables), or all on one device.
DeviceMemory locate(const char* call, const void* in, uint64_t in_bytes, const void* out, uint64_t out_bytes,
                    bool barrier, void* stream) {
  if (!tutti::core::have_devices()) {
    if (stream) stream_without_device(call, "no device is found on this rank (tutti-info lists plugins)");
    return {};
  }
  if (barrier) return stream ? tutti::core::find_device_of_stream(stream) : DeviceMemory{};
  if (!in_bytes && !out_bytes) return {};
  const DeviceMemory first = tutti::core::find_device(in_bytes ? in : out);
  if (in_bytes && out_bytes) {
    const DeviceMemory second = tutti::core::find_device(out);
    if (first.tables.memory != second.tables.memory || first.device != second.device)
      invalid(fmt::format("{}: in = {} is memory of {}, out = {} of {}: both have to be on one", call, in,
                          describe(first), out, describe(second)));
  }
  if (!first.tables.memory && stream) stream_without_device(call, "the buffers are host memory");
  return first;
}

uint64_t size_of(const char* call, uint64_t count, uint32_t dtype, uint64_t blocks) {
  const uint32_t element = tutti::dtype_bytes(dtype);
  if (!element) invalid(fmt::format("{}: {} is no data type", call, dtype));
  if (count > most_bytes / element / std::max<uint64_t>(blocks, 1))
    invalid(fmt::format("{}: {} elements of {} bytes for {} ranks is more than can be addressed", call, count, element,
                        blocks));
  return count * element;
}

void check_pointer(const char* call, const char* which, const void* pointer, uint64_t bytes, uint32_t dtype) {
  if (bytes == 0) return;
  if (!pointer) invalid(fmt::format("{}: {} is NULL, expected a buffer of {} bytes", call, which, bytes));
  const uint32_t element = tutti::dtype_bytes(dtype);
  if (reinterpret_cast<uintptr_t>(pointer) % element)
    invalid(fmt::format("{}: {} = {} is not aligned to its type {} ({} bytes)", call, which, pointer,
                        tutti::dtype_name(dtype), element));
}

// Which way a collective's buffers may be equal.
enum class InPlace { whole, in_is_block, out_is_block };

struct Call {
  const char* name;
  uint32_t collective;
  InPlace form;
};

constexpr Call calls[] = {
    {},
    {"broadcast", TUTTI_BROADCAST, InPlace::whole},
    {"reduce", TUTTI_REDUCE, InPlace::whole},
    {"all_reduce", TUTTI_ALL_REDUCE, InPlace::whole},
    {"gather", TUTTI_GATHER, InPlace::in_is_block},
    {"all_gather", TUTTI_ALL_GATHER, InPlace::in_is_block},
    {"scatter", TUTTI_SCATTER, InPlace::out_is_block},
    {"reduce_scatter", TUTTI_REDUCE_SCATTER, InPlace::out_is_block},
    {"all_to_all", TUTTI_ALL_TO_ALL, InPlace::whole},
    {"barrier", TUTTI_BARRIER, InPlace::whole},
};

// Is the call in place? Any other overlap is an error.
bool check_overlap(const Call& call, const void* in, uint64_t in_bytes, const void* out, uint64_t out_bytes,
                   uint64_t block, uint32_t rank) {
  if (!in_bytes || !out_bytes) return false;
  const auto i = reinterpret_cast<uintptr_t>(in), o = reinterpret_cast<uintptr_t>(out);
  if (i + in_bytes <= o || o + out_bytes <= i) return false;
  const uintptr_t expected_in = call.form == InPlace::in_is_block    ? o + rank * block
                                : call.form == InPlace::out_is_block ? o - rank * block
                                                                     : o;
  if (i == expected_in) return true;
  invalid(fmt::format("{}: in = {} ({} bytes) and out = {} ({} bytes) overlap; in place means {}", call.name, in,
                      in_bytes, out, out_bytes,
                      call.form == InPlace::in_is_block    ? "in == out + rank * count"
                      : call.form == InPlace::out_is_block ? "out == in + rank * count"
                                                           : "in == out"));
}

tutti_status collective(tutti_comm* comm, uint32_t which, const void* in, void* out, uint64_t count, uint32_t dtype,
                        uint32_t op, uint32_t root, const tutti_options* options, tutti_request** request) {
  return guarded(comm, [&](Communicator& c) {
    const Call& call = calls[which];
    Shape shape;
    shape.collective = which;
    uint64_t in_bytes = 0, out_bytes = 0;
    check_options(call.name, options);
    if (which != TUTTI_BARRIER) {
      if (root >= c.nranks())
        invalid(fmt::format("{}: root is {}, expected less than {} ranks", call.name, root, c.nranks()));
      if (tutti::is_reducing(which) && (op < TUTTI_SUM || op > TUTTI_AVG))
        invalid(fmt::format("{}: {} is no operator", call.name, op));
      const uint64_t block = size_of(call.name, count, dtype, c.nranks());
      in_bytes = block * tutti::block_count(which, c.nranks(), root, c.rank(), TUTTI_BUFFER_IN);
      out_bytes = block * tutti::block_count(which, c.nranks(), root, c.rank(), TUTTI_BUFFER_OUT);
      check_pointer(call.name, "in", in, in_bytes, dtype);
      check_pointer(call.name, "out", out, out_bytes, dtype);
      shape.in_place = check_overlap(call, in, in_bytes, out, out_bytes, block, c.rank());
      shape.count = count;
      shape.dtype = dtype;
      shape.op = tutti::is_reducing(which) ? op : 0;
      shape.root = root;
    }
    const DeviceMemory where =
        locate(call.name, in, in_bytes, out, out_bytes, which == TUTTI_BARRIER, options ? options->stream : nullptr);
    if (where.tables.memory)
      return c.stream_collective({shape, in, out, where, options ? options->stream : nullptr}, options, request);
    return c.collective(shape, in, out, options, request);
  });
}

tutti_status transfer(tutti_comm* comm, bool sending, void* data, uint64_t count, uint32_t dtype, uint32_t peer,
                      uint32_t tag, const tutti_options* options, tutti_request** request) {
  return guarded(comm, [&](Communicator& c) {
    const char* name = sending ? "send" : "receive";
    check_options(name, options);
    const uint64_t bytes = size_of(name, count, dtype, 1);
    void* const stream = options ? options->stream : nullptr;
    check_pointer(name, "data", data, bytes, dtype);
    const DeviceMemory where = locate(name, data, bytes, nullptr, 0, false, stream);
    if (peer >= c.nranks()) invalid(fmt::format("{}: peer is {}, expected less than {} ranks", name, peer, c.nranks()));
    if (peer == c.rank())
      invalid(fmt::format("{}: peer is {}, this rank itself: copy instead, or use tutti_exchange", name, peer));
    if (!where.tables.memory) return c.transfer(sending, data, bytes, peer, tag, options, request);
    std::vector<Transfer> one(1);
    one[0] = Transfer::of(sending, peer, tag, data, bytes);
    one[0].on_stream = true;
    return c.stream_exchange({{}, nullptr, nullptr, where, stream}, std::move(one), options, request);
  });
}

// No receive of a group may overlap anything else of it.
void check_overlaps(const std::vector<Transfer>& transfers) {
  std::vector<const Transfer*> sorted;
  for (const Transfer& transfer : transfers)
    if (transfer.bytes) sorted.push_back(&transfer);
  std::ranges::sort(sorted, {}, &Transfer::data);
  const Transfer *any = nullptr, *received = nullptr;  // of those before, the ones that end last
  const auto later = [](const Transfer* a, const Transfer* b) { return !a || b->data + b->bytes > a->data + a->bytes; };
  for (const Transfer* t : sorted) {
    const Transfer* other = t->sending ? received : any;
    if (other && other->data + other->bytes > t->data)
      invalid(fmt::format("exchange: the {} at {} and the {} at {} overlap", text_of(*other),
                          static_cast<const void*>(other->data), text_of(*t), static_cast<const void*>(t->data)));
    if (later(any, t)) any = t;
    if (!t->sending && later(received, t)) received = t;
  }
}

tutti_status exchange(tutti_comm* comm, const tutti_message* messages, uint64_t n, const tutti_options* options,
                      tutti_request** request) {
  return guarded(comm, [&](Communicator& c) {
    check_options("exchange", options);
    if (n && !messages) invalid(fmt::format("exchange: messages is NULL, expected {}", n));
    void* const stream = options ? options->stream : nullptr;
    std::vector<Transfer> on_host, on_device;
    DeviceMemory where;
    for (uint64_t i = 0; i < n; ++i) {
      const tutti_message& t = messages[i];
      const std::string name = fmt::format("exchange: messages[{}]", i);
      const uint64_t bytes = size_of(name.c_str(), t.count, t.dtype, 1);
      check_pointer(name.c_str(), "data", t.data, bytes, t.dtype);
      if (t.direction != TUTTI_SEND && t.direction != TUTTI_RECEIVE)
        invalid(fmt::format("{}: direction is {}, expected TUTTI_SEND or TUTTI_RECEIVE", name, t.direction));
      if (t.peer >= c.nranks())
        invalid(fmt::format("{}: peer is {}, expected less than {} ranks", name, t.peer, c.nranks()));
      const DeviceMemory found = locate(name.c_str(), t.data, bytes, nullptr, 0, false, stream);
      if (bytes && !on_device.empty() && (found.tables.memory != where.tables.memory || found.device != where.device))
        invalid(fmt::format("{}: data is memory of {}, but of {} before: all have to be on one", name, describe(found),
                            describe(where)));
      if (found.tables.memory) where = found;
      (found.tables.memory ? on_device : on_host)
          .push_back(Transfer::of(t.direction == TUTTI_SEND, t.peer, t.tag, t.data, bytes));
    }
    if (on_device.empty()) {
      check_overlaps(on_host);
      return c.exchange(std::move(on_host), options, request);
    }
    if (std::ranges::any_of(on_host, [](const Transfer& t) { return t.bytes != 0; }))
      invalid(fmt::format("exchange: some data is host memory, some of {}: all has to be on one", describe(where)));
    check_overlaps(on_device);
    for (Transfer& t : on_device) t.on_stream = true;
    // Empty ones have no memory: they are matched on the host meanwhile.
    tutti_request* empty = nullptr;
    if (!on_host.empty()) c.exchange(std::move(on_host), options, &empty);
    const std::unique_ptr<tutti_request, decltype(&tutti_request_free)> owner(empty, tutti_request_free);
    c.stream_exchange({{}, nullptr, nullptr, where, stream}, std::move(on_device), options, request);
    const tutti_status status = empty ? c.wait(*empty, UINT64_MAX) : tutti_status{TUTTI_OK};
    if (status < 0 && request) tutti_request_free(std::exchange(*request, nullptr));
    return status;
  });
}

tutti_status copy_text(const std::string& text, char* to, uint64_t* bytes) {
  if (!bytes) return TUTTI_INVALID_ARGUMENT;
  const uint64_t capacity = *bytes;
  *bytes = text.size() + 1;
  if (to && capacity) {
    const uint64_t n = std::min(capacity - 1, static_cast<uint64_t>(text.size()));
    std::memcpy(to, text.data(), n);
    to[n] = 0;
  }
  return capacity >= *bytes ? TUTTI_OK : TUTTI_NO_RESOURCES;
}

template <typename Row>
tutti_status copy_rows(const std::vector<Row>& from, Row* to, uint64_t* n) {
  if (!n) return TUTTI_INVALID_ARGUMENT;
  const uint64_t fits = std::min<uint64_t>(*n, from.size());
  if (to) std::copy_n(from.begin(), fits, to);
  *n = from.size();
  return TUTTI_OK;
}

void write_id(const std::string& text, tutti_unique_id* id) {
  static_assert(sizeof id->text > tutti::core::kMaxUniqueId);
  std::memset(id->text, 0, sizeof id->text);
  std::memcpy(id->text, text.data(), std::min(text.size(), sizeof id->text - 1));
}

// Asks about a request. One that is complete may have outlived its communicator, which completed it.
template <typename Body>
tutti_status about(tutti_request* request, Body&& body) noexcept {
  if (!request) return TUTTI_INVALID_ARGUMENT;
  if (request->complete.load(std::memory_order_acquire) && !request->alive->load(std::memory_order_acquire))
    return request->status;
  try {
    return body();
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
    tutti::core::log(TUTTI_LOG_ERROR, call, failure.text);
    return failure.status;
  } catch (const std::exception& e) {
    tutti::core::log(TUTTI_LOG_ERROR, call, e.what());
    return TUTTI_NO_RESOURCES;
  }
}

}  // namespace

extern "C" {

const char* tutti_version(void) { return TUTTI_VERSION; }

const char* tutti_status_text(tutti_status status) {
  switch (status) {
    case TUTTI_OK:
      return "ok";
    case TUTTI_AGAIN:
      return "not yet";
    case TUTTI_INVALID_ARGUMENT:
      return "invalid argument";
    case TUTTI_NOT_SUPPORTED:
      return "not supported";
    case TUTTI_NOT_FOUND:
      return "not found";
    case TUTTI_NO_RESOURCES:
      return "no resources";
    case TUTTI_TIMEOUT:
      return "timed out";
    case TUTTI_PEER_FAILED:
      return "peer failed";
    case TUTTI_ABORTED:
      return "aborted";
    case TUTTI_MISMATCH:
      return "mismatch between ranks";
    case TUTTI_SYSTEM:
      return "system error";
    case TUTTI_INVALID_USAGE:
      return "invalid usage";
    case TUTTI_INTERNAL:
      return "internal error";
    default:
      return "unknown status";
  }
}

tutti_status tutti_comm_create(const tutti_comm_config* config, tutti_comm** comm) {
  tutti_comm_config full{};
  full.struct_size = sizeof full;
  const auto fail = [&](tutti_status status, const std::string& text) {
    uint64_t capacity = full.error_bytes;
    if (full.error)
      copy_text(text, full.error, &capacity);
    else
      tutti::core::log(TUTTI_LOG_ERROR, "tutti_comm_create", text);
    return status;
  };
  if (comm) *comm = nullptr;
  if (config) {
    if (config->struct_size < offsetof(tutti_comm_config, connect_timeout_ns))
      return fail(TUTTI_INVALID_ARGUMENT, fmt::format("tutti_comm_create: config.struct_size is {}, expected {}",
                                                      config->struct_size, sizeof full));
    std::memcpy(&full, config, std::min<size_t>(config->struct_size, sizeof full));
    const auto* tail = reinterpret_cast<const uint8_t*>(config);
    for (size_t i = sizeof full; i < config->struct_size; ++i)
      if (tail[i])
        return fail(TUTTI_NOT_SUPPORTED, "tutti_comm_create: config has fields that this version does not know");
  }
  if (!comm) return fail(TUTTI_INVALID_ARGUMENT, "tutti_comm_create: comm is NULL");
  try {
    *comm = new tutti_comm(full);
    tutti::core::warn_of_unknown_settings();
    return TUTTI_OK;
  } catch (const Failure& failure) {
    tutti::core::warn_of_unknown_settings();  // a misspelt one may be the cause
    return fail(failure.status, failure.text);
  } catch (const std::bad_alloc&) {
    return fail(TUTTI_NO_RESOURCES, "tutti_comm_create: out of memory");
  } catch (const std::exception& e) {
    return fail(TUTTI_INTERNAL, fmt::format("tutti_comm_create: {}", e.what()));
  }
}

tutti_status tutti_comm_destroy(tutti_comm* comm) {
  Communicator* const communicator = communicator_of(comm);
  if (!communicator) return comm ? TUTTI_INVALID_USAGE : TUTTI_INVALID_ARGUMENT;
  if (communicator->forked()) return TUTTI_INVALID_USAGE;  // it is the parent's
  tutti_status status = TUTTI_OK;
  try {
    status = communicator->end();
    if (status < 0) comm->last_words += fmt::format("; destroying it failed: {}", communicator->error_text());
  } catch (const std::exception& problem) {
    status = failure_of(problem).status;
  }
  comm->communicator.store(nullptr, std::memory_order_release);
  delete communicator;
  keep_for_a_while(comm);
  return status;
}

tutti_status tutti_comm_abort(tutti_comm* comm, const char* reason) {
  return guarded(comm, [&](Communicator& c) {
    c.abort(fmt::format("aborted: {}", reason ? reason : "no reason given"));
    return tutti_status{TUTTI_OK};
  });
}

tutti_status tutti_comm_revoke(tutti_comm* comm, const char* reason) {
  return guarded(comm, [&](Communicator& c) {
    c.abort(fmt::format("revoked the communicator: {}", reason ? reason : "no reason given"));
    return tutti_status{TUTTI_OK};
  });
}

tutti_status tutti_comm_lost(const tutti_comm* comm, uint32_t* ranks, uint64_t* n) {
  const Communicator* const communicator = communicator_of(comm);
  if (!communicator) return comm ? TUTTI_INVALID_USAGE : TUTTI_INVALID_ARGUMENT;
  try {
    return copy_rows(communicator->lost_ranks(), ranks, n);
  } catch (const std::exception&) {
    return TUTTI_NO_RESOURCES;
  }
}

tutti_status tutti_comm_shrink(tutti_comm* comm, const tutti_options* options, tutti_comm** shrunk) {
  if (shrunk) *shrunk = nullptr;
  return guarded(comm, [&](Communicator& c) {
    check_options("shrink", options);
    if (!shrunk) invalid("shrink: shrunk is NULL");
    *shrunk = c.shrink(options ? options->timeout_ns : 0).release();
    return tutti_status{TUTTI_OK};
  });
}

tutti_status tutti_comm_invite(tutti_comm* comm, const tutti_options* options, tutti_unique_id* id) {
  return guarded(comm, [&](Communicator& c) {
    check_options("invite", options);
    if (!id) invalid("invite: id is NULL");
    write_id(c.invite(options ? options->timeout_ns : 0), id);
    return tutti_status{TUTTI_OK};
  });
}

tutti_status tutti_comm_grow(tutti_comm* comm, const tutti_unique_id* id, uint32_t newcomers,
                             const tutti_options* options, tutti_comm** grown) {
  if (grown) *grown = nullptr;
  return guarded(comm, [&](Communicator& c) {
    check_options("grow", options);
    if (!id || !grown) invalid("grow: id or grown is NULL");
    const std::string text(id->text, strnlen(id->text, sizeof id->text));
    *grown = c.grow(text, newcomers, options ? options->timeout_ns : 0).release();
    return tutti_status{TUTTI_OK};
  });
}

tutti_status tutti_comm_async_error(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->async_error() : comm ? TUTTI_INVALID_USAGE : TUTTI_INVALID_ARGUMENT;
}
const char* tutti_comm_error(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->error_text() : comm ? comm->last_words.c_str() : "the communicator is NULL";
}
uint32_t tutti_comm_rank(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->rank() : 0;
}
uint32_t tutti_comm_nranks(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->nranks() : 0;
}

tutti_status tutti_unique_id_create(tutti_unique_id* id) {
  if (!id) return TUTTI_INVALID_ARGUMENT;
  return logged("tutti_unique_id_create", [&] { write_id(tutti::core::make_unique_id(), id); });
}

tutti_status tutti_broadcast(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                             const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_BROADCAST, in, out, count, dtype, 0, root, options, request);
}
tutti_status tutti_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                          uint32_t root, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE, in, out, count, dtype, op, root, options, request);
}
tutti_status tutti_all_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_REDUCE, in, out, count, dtype, op, 0, options, request);
}
tutti_status tutti_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                          const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_GATHER, in, out, count, dtype, 0, root, options, request);
}
tutti_status tutti_all_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_GATHER, in, out, count, dtype, 0, 0, options, request);
}
tutti_status tutti_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                           const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_SCATTER, in, out, count, dtype, 0, root, options, request);
}
tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE_SCATTER, in, out, count, dtype, op, 0, options, request);
}
tutti_status tutti_all_to_all(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_TO_ALL, in, out, count, dtype, 0, 0, options, request);
}
tutti_status tutti_barrier(tutti_comm* comm, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_BARRIER, nullptr, nullptr, 0, 0, 0, 0, options, request);
}

tutti_status tutti_send(tutti_comm* comm, const void* data, uint64_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                        const tutti_options* options, tutti_request** request) {
  return transfer(comm, true, const_cast<void*>(data), count, dtype, peer, tag, options, request);
}
tutti_status tutti_receive(tutti_comm* comm, void* data, uint64_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                           const tutti_options* options, tutti_request** request) {
  return transfer(comm, false, data, count, dtype, peer, tag, options, request);
}

tutti_status tutti_exchange(tutti_comm* comm, const tutti_message* messages, uint64_t n, const tutti_options* options,
                            tutti_request** request) {
  return exchange(comm, messages, n, options, request);
}

tutti_status tutti_request_test(tutti_request* request) {
  return about(request, [&] { return request->comm->test(*request); });
}
tutti_status tutti_request_wait(tutti_request* request) {
  return about(request, [&] { return request->comm->wait(*request, UINT64_MAX); });
}
tutti_status tutti_request_wait_for(tutti_request* request, uint64_t timeout_ns) {
  return about(request, [&] { return request->comm->wait(*request, timeout_ns); });
}
const char* tutti_request_error(const tutti_request* request) {
  return request && request->complete.load(std::memory_order_acquire) ? request->error.c_str() : "";
}
void tutti_request_free(tutti_request* request) {
  if (!request) return;
  if (!request->complete.load(std::memory_order_acquire)) tutti_request_wait(request);
  delete request;  // a complete one no longer needs its communicator, which may be gone
}

tutti_status tutti_mem_alloc(uint64_t bytes, void** address) {
  if (!address) return TUTTI_INVALID_ARGUMENT;
  return logged("tutti_mem_alloc", [&] { *address = tutti::core::Memory::process().allocate(bytes); });
}
tutti_status tutti_mem_free(void* address) {
  return logged("tutti_mem_free", [&] { tutti::core::Memory::process().release(address); });
}
tutti_status tutti_mem_register(void* address, uint64_t bytes, int32_t fd, uint64_t fd_offset) {
  return logged("tutti_mem_register", [&] {
    const DeviceMemory where = tutti::core::find_device(address);
    if (!where.tables.memory) return tutti::core::Memory::process().add(address, bytes, fd, fd_offset);
    if (fd != -1 || fd_offset)
      invalid(
          fmt::format("tutti_mem_register: {} is memory of device {}: expected fd -1 and fd_offset 0, got {} and {}",
                      address, where.tables.memory->name, fd, fd_offset));
    tutti::core::DirectBuffers::process().add(where.tables, address, bytes);
  });
}
tutti_status tutti_mem_deregister(void* address) {
  return logged("tutti_mem_deregister", [&] {
    if (!tutti::core::DirectBuffers::process().remove(address)) tutti::core::Memory::process().remove(address);
  });
}

tutti_status tutti_comm_services(const tutti_comm* comm, tutti_service* rows, uint64_t* n) {
  return guarded(const_cast<tutti_comm*>(comm), [&](Communicator& c) { return copy_rows(c.services(), rows, n); });
}
tutti_status tutti_comm_traffic(const tutti_comm* comm, tutti_link_traffic* rows, uint64_t* n) {
  return guarded(const_cast<tutti_comm*>(comm), [&](Communicator& c) { return copy_rows(c.traffic(), rows, n); });
}
tutti_status tutti_comm_rails(const tutti_comm* comm, tutti_rail_traffic* rows, uint64_t* n) {
  return guarded(const_cast<tutti_comm*>(comm), [&](Communicator& c) { return copy_rows(c.rails(), rows, n); });
}
tutti_status tutti_comm_plan(const tutti_comm* comm, uint32_t which, tutti_plan_facts* facts) {
  return guarded(const_cast<tutti_comm*>(comm), [&](Communicator& c) {
    if (which < TUTTI_BROADCAST || which > TUTTI_BARRIER) invalid(fmt::format("plan: {} is no collective", which));
    if (!facts || facts->struct_size < sizeof(tutti_plan_facts))
      invalid(fmt::format("plan: facts must have a struct_size of at least {}", sizeof(tutti_plan_facts)));
    const uint32_t capacity = facts->struct_size;
    *facts = c.plan_facts(which);
    facts->struct_size = capacity;
    return tutti_status{TUTTI_OK};
  });
}
tutti_status tutti_comm_explain(tutti_comm* comm, uint32_t which, uint64_t count, uint32_t dtype, char* text,
                                uint64_t* bytes) {
  return guarded(comm, [&](Communicator& c) {
    if (which < TUTTI_BROADCAST || which > TUTTI_BARRIER) invalid(fmt::format("explain: {} is no collective", which));
    if (which != TUTTI_BARRIER) size_of("explain", count, dtype, c.nranks());
    return copy_text(
        c.explain(which, which == TUTTI_BARRIER ? 0 : count, which == TUTTI_BARRIER ? uint32_t{TUTTI_UINT8} : dtype),
        text, bytes);
  });
}
tutti_status tutti_comm_topology(const tutti_comm* comm, char* text, uint64_t* bytes) {
  return guarded(const_cast<tutti_comm*>(comm),
                 [&](Communicator& c) { return copy_text(c.topology_text(), text, bytes); });
}

tutti_status tutti_plugin_register(const tutti_plugin_entry_table* entry) {
  return logged("tutti_plugin_register", [&] {
    std::string error;
    if (const tutti_status status = tutti::core::register_static(entry, &error); status < 0)
      throw Failure(status, error);
  });
}

}  // extern "C"
