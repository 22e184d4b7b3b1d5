// SPDX-License-Identifier: Apache-2.0
//
// A call of a collective, as the ranks compare it: all of it must be equal on all ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tutti::core {

// Instead of a collective: the rank destroys the communicator.
constexpr uint32_t call_destroy = 0;

struct Call {
  uint64_t sequence = 0;  // in the communicator's order of collectives
  uint64_t count = 0;
  uint64_t plan = 0;  // hash of how it is carried out: algorithm, cuts, slices
  uint32_t collective = call_destroy;
  uint32_t dtype = 0;
  uint32_t op = 0;    // 0: the collective has none
  uint32_t root = 0;  // 0 as well where there is none
  // Of an operator of the application its name: its number is the rank's own.
  std::array<char, 24> op_name_text{};
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 64);

// Call::op of operators of the application, which the flight recorder keeps in a byte: commutative or not.
enum : uint32_t { call_user_op = 254, call_ordered_user_op = 255 };
// The longest name of one.
constexpr size_t most_op_name = sizeof(Call::op_name_text) - 1;
void name_user_op(Call& call, const std::string& name, bool commutative);

// "all_reduce(1000 x float32, sum)", "reduce(1000 x float32, sum, root 2)", "barrier()"
std::string call_text(const Call& call);

// A call of which only two ranks know a block's size, with such a pair that disagrees: `peer` sends so many elements to
// the rank, which expects others.
Call with_count_difference(const Call& call, uint32_t peer, uint64_t sent, uint64_t expected);

// That `culprit` calls something else than another rank does.
struct CallDifference {
  uint32_t culprit = 0;
  std::string reason;  // goes on after "rank 3 " and names the other rank too
};
// The text for two different calls of one sequence; `rank` becomes the culprit.
CallDifference difference_of(uint32_t rank, const Call& call, uint32_t other_rank, const Call& other);

}  // namespace tutti::core
