// SPDX-License-Identifier: Apache-2.0
//
// The checks that several calls share. All throw Failure; `call` begins its text.
#pragma once

#include <cstdint>

#include "comm/communicator.hpp"
#include "engine/fabric/devices.hpp"

namespace tutti::core::api {

// The most that one buffer may have.
constexpr uint64_t most_bytes = uint64_t{1} << 62;

// The bytes of a block of so many elements; so many blocks of them can be addressed.
uint64_t size_of(const char* call, uint64_t count, uint32_t dtype, uint64_t blocks);
// `which`: the argument's name. `dtype`: its alignment is required; elements that only move may lie at any address.
void check_pointer(const char* call, const char* which, const void* pointer, uint64_t bytes, uint32_t dtype);
void check_rank(const char* call, const char* which, uint32_t rank, uint32_t nranks);
// A known operator that is defined for the type: that of the application, or nullptr. An unknown type passes: size_of
// refuses it.
const UserOperator* check_op(const Communicator& communicator, const char* call, uint32_t op, uint32_t dtype);
// The operator as a shape has it.
inline uint32_t shape_op(uint32_t op, const UserOperator* user) { return user && user->factor ? op_premul_sum : op; }
// The order of a reduction by `options.order`; otherwise that field must be 0. Exact sums: free where nothing rounds.
// Throws Failure for operators and types that have none.
Order check_order(const Communicator& communicator, const char* call, uint32_t order, bool reduces, uint32_t op,
                  uint32_t dtype);
// The wire format of a call, whose shape is complete but for it: `wire`, or plain where one rank is alone.
uint32_t check_wire(const Communicator& communicator, const char* call, uint32_t wire, const Shape& shape,
                    const DeviceMemory& where);
// The device reduces by it.
void check_op_on_device(const char* call, const DeviceMemory& where, uint32_t op, uint32_t dtype, Order order);
void check_collective(const char* call, uint32_t collective);

struct Buffer {
  const void* address = nullptr;
  uint64_t bytes = 0;
};
// Where the buffers of a call lie: all on the host (no tables), or all on the communicator's device. See
// tutti_comm_config for what is asked for. `names`: of the buffers, for messages.
DeviceMemory locate(Communicator& communicator, const char* call, const char* names, const Buffer& in,
                    const Buffer& out, void* stream);
// A call without buffers has its device from its stream.
DeviceMemory locate_stream(const Communicator& communicator, const char* call, void* stream);

}  // namespace tutti::core::api
