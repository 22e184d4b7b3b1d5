// SPDX-License-Identifier: Apache-2.0
//
// A call of a collective, as the ranks compare it: all of it must be equal on all ranks.
#pragma once

#include <tutti/flight_record.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/wire.hpp"

namespace tutti::core {

// Instead of a collective: the rank destroys the communicator.
constexpr uint32_t call_destroy = 0;

struct Call {
  uint64_t sequence = 0;  // in the communicator's order of collectives
  uint64_t count = 0;
  uint64_t plan = 0;  // hash of how it is carried out: algorithm, cuts, slices
  uint32_t op = 0;    // 0: the collective has none
  uint32_t root = 0;  // 0 as well where there is none
  uint16_t collective = call_destroy;
  uint16_t dtype = 0;
  uint8_t order = 0;  // of a reduction TUTTI_ORDER_CANONICAL or TUTTI_ORDER_EXACT; else 0
  uint8_t wire = 0;   // TUTTI_WIRE_*
  uint16_t algorithms = 0;  // a hash of tutti_options.algorithms; 0: there are none
  uint64_t tag = 0;         // tutti_options.tag
  // Of an operator of the application its name: its number is the rank's own.
  std::array<char, 24> op_name_text{};
  bool operator==(const Call&) const = default;

  static void fields(auto& wire, auto& call) {
    std::string name(call.op_name_text.data(), strnlen(call.op_name_text.data(), call.op_name_text.size()));
    wire(call.sequence, call.count, call.plan, call.op, call.root, call.collective, call.dtype, call.order,
         call.wire, call.algorithms, call.tag, Field("operator", name, 0, call.op_name_text.size() - 1));
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(call)>>)
      name.copy(call.op_name_text.data(), name.size());
  }
};
static_assert(sizeof(Call) == 72);

// A call of another communicator that a rank made before one.
struct EarlierCall {
  uint64_t communicator = 0;  // 0: none
  uint64_t sequence = 0;
};
// Of as many communicators, whose last calls before it are the latest.
using EarlierCalls = std::array<EarlierCall, 4>;

// A hash of all that must be equal on all ranks, but for the number: in two parts, since calls of one plan differ in
// their tags alone.
inline uint64_t identity_without_tag(const Call& call) {
  const auto name =
      std::bit_cast<std::array<uint64_t, sizeof(Call::op_name_text) / sizeof(uint64_t)>>(call.op_name_text);
  const uint64_t kind = call.collective | uint64_t{call.dtype} << 8 | uint64_t{call.op} << 16 |
                        uint64_t{call.order} << 32 | uint64_t{call.wire} << 40 | uint64_t{call.algorithms} << 48;
  // Odd numbers without a pattern; the products do not wait for each other.
  return call.count * 0x9e3779b97f4a7c15u + call.plan * 0xc2b2ae3d27d4eb4fu + kind * 0x165667b19e3779f9u +
         call.root * 0x27d4eb2f165667c5u + name[0] * 0xd6e8feb86659fd93u + name[1] * 0xa0761d6478bd642fu +
         name[2] * 0xe7037ed1a0b428dbu;
}
inline uint64_t identity_of(uint64_t without_tag, uint64_t tag) {
  uint64_t sum = without_tag + tag * 0x9fb21c651e98df25u;
  sum ^= sum >> 32;
  return sum * 0x8ebc6af09c88c6e3u;
}

// The part of a record that all calls of one plan have in common.
struct RecordedCall {
  RecordedCall() = default;
  RecordedCall(const Call& call, bool in_place, uint32_t service, uint64_t slices);
  using OpName = std::array<uint64_t, sizeof(Call::op_name_text) / sizeof(uint64_t)>;
  tutti_flight_operation operation{};
  uint64_t identity = 0;  // identity_without_tag
  OpName op_name{};       // of an operator of the application; the file has no room for it
};

// Call::op of operators of the application, as the flight record keeps it: commutative or not.
enum : uint32_t { call_user_op = TUTTI_FLIGHT_USER_OP, call_ordered_user_op = TUTTI_FLIGHT_ORDERED_USER_OP };
// The longest name of one.
constexpr size_t most_op_name = sizeof(Call::op_name_text) - 1;
void name_user_op(Call& call, const std::string& name, bool commutative);

// "all_reduce(1000 x float32, sum)", "reduce(1000 x float32, sum, root 2, tag 7)", "barrier()"
std::string call_text(const Call& call);
// Behind the texts of two calls: that their algorithms differ, which the texts do not say; "": they do not.
const char* other_algorithms(const Call& call, const Call& other);
// "all_reduce #3", "all_reduce #3, tag 7"
std::string call_name(const Call& call);

// A call of which only two ranks know a block's size, with such a pair that disagrees: `peer` sends so many elements to
// the rank, which expects others.
Call with_count_difference(const Call& call, uint32_t peer, uint64_t sent, uint64_t expected);

// A call of `culprit` differs from that of another rank.
struct CallDifference {
  uint32_t culprit = 0;
  std::string reason;  // goes on after "rank 3 " and names the other rank too
};
// The text for two different calls of one sequence; `rank` becomes the culprit.
CallDifference difference_of(uint32_t rank, const Call& call, uint32_t other_rank, const Call& other);

}  // namespace tutti::core
