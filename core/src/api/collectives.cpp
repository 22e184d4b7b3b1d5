// SPDX-License-Identifier: Apache-2.0
//
// The collectives with equal blocks; unequal_blocks.cpp has the others.
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include "api/arguments.hpp"
#include "api/guards.hpp"

namespace tutti::core::api {
namespace {

// Which way a collective's buffers may be equal.
enum class InPlace { whole, in_is_block, out_is_block };

struct Collective {
  const char* name;
  InPlace form;
};
constexpr Collective table[] = {
    // by TUTTI_BROADCAST and so on
    {},
    {"broadcast", InPlace::whole},
    {"reduce", InPlace::whole},
    {"all_reduce", InPlace::whole},
    {"gather", InPlace::in_is_block},
    {"all_gather", InPlace::in_is_block},
    {"scatter", InPlace::out_is_block},
    {"reduce_scatter", InPlace::out_is_block},
    {"all_to_all", InPlace::whole},
    {"barrier", InPlace::whole},
    {},  // five with unequal blocks
    {},
    {},
    {},
    {},
    {"scan", InPlace::whole},
    {"exclusive_scan", InPlace::whole},
};
static_assert(sizeof table / sizeof *table == last_collective + 1);

struct Arguments {
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t count = 0;
  uint32_t dtype = 0, op = 0, root = 0;
  const UserOperator* user = nullptr;  // of `op`
};

// Is the call in place? Any other overlap is an error.
bool check_overlap(const Collective& call, const Buffer& in, const Buffer& out, uint64_t block, uint32_t rank) {
  if (!in.bytes || !out.bytes) return false;
  const auto i = reinterpret_cast<uintptr_t>(in.address), o = reinterpret_cast<uintptr_t>(out.address);
  if (i + in.bytes <= o || o + out.bytes <= i) return false;
  const uintptr_t expected_in = call.form == InPlace::in_is_block    ? o + rank * block
                                : call.form == InPlace::out_is_block ? o - rank * block
                                                                     : o;
  if (i == expected_in) return true;
  invalid(fmt::format("{}: in = {} ({} bytes) and out = {} ({} bytes) overlap; in place means {}", call.name,
                      in.address, in.bytes, out.address, out.bytes,
                      call.form == InPlace::in_is_block    ? "in == out + rank * count"
                      : call.form == InPlace::out_is_block ? "out == in + rank * count"
                                                           : "in == out"));
}

// Fills the shape of a collective with buffers; returns where they lie.
DeviceMemory check(Communicator& c, Shape& shape, Arguments& given, void* stream) {
  const uint32_t which = shape.collective;
  const Collective& call = table[which];
  const bool reduces = is_reducing(which);
  check_rank(call.name, "root", given.root, c.nranks());
  if (reduces) given.user = check_op(c, call.name, given.op, given.dtype);
  const uint64_t block = size_of(call.name, given.count, given.dtype, c.nranks());
  const auto bytes = [&](uint32_t buffer) {
    return block * block_count(which, c.nranks(), given.root, c.rank(), buffer);
  };
  const Buffer in{given.in, bytes(TUTTI_BUFFER_IN)}, out{given.out, bytes(TUTTI_BUFFER_OUT)};
  check_pointer(call.name, "in", in.address, in.bytes, given.dtype);
  check_pointer(call.name, "out", out.address, out.bytes, given.dtype);
  shape.in_place = check_overlap(call, in, out, block, c.rank());
  shape.count = given.count;
  shape.dtype = given.dtype;
  shape.op = reduces ? shape_op(given.op, given.user) : 0;
  // The factor's products go where the sum will be, if there is room.
  if (shape.op == op_premul_sum) shape.in_place = call.form == InPlace::whole && out.bytes;
  shape.root = given.root;
  const char* names = in.bytes && out.bytes ? "in and out" : in.bytes ? "in" : "out";
  const DeviceMemory where = locate(c, call.name, names, in, out, stream);
  if (where && reduces) check_op_on_device(call.name, where, given.op, given.dtype);
  return where;
}

tutti_status collective(tutti_comm* comm, uint32_t which, Arguments arguments, const tutti_options* given,
                        tutti_request** request) {
  return guarded(comm, [&](Communicator& c) {
    const char* name = table[which].name;
    const tutti_options options = checked_call(name, given, request);
    Shape shape;
    shape.collective = which;
    const DeviceMemory where =
        which == TUTTI_BARRIER ? locate_stream(c, name, options.stream) : check(c, shape, arguments, options.stream);
    if (!where) return c.collective(shape, {arguments.in, arguments.out, factor_of(arguments.user)}, &options, request);
    return c.in_stream({shape, arguments.in, arguments.out, options.stream}, {}, &options, request);
  });
}

}  // namespace
}  // namespace tutti::core::api

using tutti::core::api::collective;

extern "C" {

tutti_status tutti_broadcast(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                             const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_BROADCAST, {in, out, count, dtype, 0, root}, options, request);
}
tutti_status tutti_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                          uint32_t root, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE, {in, out, count, dtype, op, root}, options, request);
}
tutti_status tutti_all_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_REDUCE, {in, out, count, dtype, op, 0}, options, request);
}
tutti_status tutti_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                          const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_GATHER, {in, out, count, dtype, 0, root}, options, request);
}
tutti_status tutti_all_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_GATHER, {in, out, count, dtype, 0, 0}, options, request);
}
tutti_status tutti_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                           const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_SCATTER, {in, out, count, dtype, 0, root}, options, request);
}
tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE_SCATTER, {in, out, count, dtype, op, 0}, options, request);
}
tutti_status tutti_all_to_all(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_TO_ALL, {in, out, count, dtype, 0, 0}, options, request);
}
tutti_status tutti_scan(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                        const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_SCAN, {in, out, count, dtype, op, 0}, options, request);
}
tutti_status tutti_exclusive_scan(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_EXCLUSIVE_SCAN, {in, out, count, dtype, op, 0}, options, request);
}
tutti_status tutti_barrier(tutti_comm* comm, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_BARRIER, {}, options, request);
}

}  // extern "C"
