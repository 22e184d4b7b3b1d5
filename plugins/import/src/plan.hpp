// SPDX-License-Identifier: Apache-2.0
//
// A plan: what a file says that the ranks of one collective do, in the terms of the file. Thread blocks run side by
// side; the operations of one run in order. Memory is cells, each of one chunk: those of the input, of the output and
// of scratch.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <cstdint>
#include <string>
#include <tutti/sdk/words.hpp>
#include <vector>

namespace tutti::plans {

enum class Buffer : uint8_t { in, out, scratch };
constexpr char letter(Buffer buffer) { return buffer == Buffer::in ? 'i' : buffer == Buffer::out ? 'o' : 's'; }

// `first` and the cells behind it; an operation says how many there are.
struct Cells {
  Buffer buffer = Buffer::in;
  uint32_t first = 0;
};

enum class Kind : uint8_t {
  nop,
  // Messages as MSCCL has them. A send never waits: what is sent lies in a queue until it is received.
  send,            // src to `peer` on the channel
  receive,         // the next that `peer` sent on the channel, into dst
  receive_reduce,  // dst = src op the next that `peer` sent
  // Memory of peers as MSCCL++ has it.
  put,         // `peer`'s dst = src
  get,         // dst = `peer`'s src
  get_reduce,  // dst = the only source op `peer`'s src
  // Memory of the rank alone.
  copy,    // dst = src
  reduce,  // dst = the sources, in their order
  // Order.
  signal,   // counts up at `peer`, by `object`
  wait,     // counts down what `peer` counted up
  barrier,  // of `count` thread blocks of the rank
  acquire,  // a semaphore of the rank
  release
};

constexpr uint32_t nobody = UINT32_MAX;

struct Op {
  Kind kind = Kind::nop;
  bool reads_packets = false;   // it waits until src, or the sources but the first, were written as packets
  bool writes_packets = false;  // dst
  uint32_t line = 0;            // of the file
  uint32_t step = 0;            // its number in the file, from 0 on in its thread block
  uint32_t peer = 0;
  uint32_t channel = 0;  // of messages; a local operation has that of its thread block
  uint32_t object = 0;   // that orders: the number of a pair's channel, a barrier, a semaphore
  uint32_t count = 0;    // cells
  Cells dst, src;
  std::vector<Cells> sources;      // reduce, get_reduce
  uint32_t after_thread = nobody;  // it starts when this operation of another thread block has ended
  uint32_t after_op = 0;
};

// A thread block.
struct Thread {
  uint32_t rank = 0;
  uint32_t id = 0;  // in its rank
  uint32_t line = 0;
  std::vector<Op> ops;
};

struct Plan {
  std::string file;  // as the user named it
  std::string name;
  uint32_t collective = 0;
  uint32_t ranks = 0;
  uint32_t pieces = 0;  // chunks of a block
  bool in_place = false, out_of_place = false;
  uint64_t least_bytes = 0, most_bytes = 0;       // of the call; most_bytes 0: any
  std::vector<uint32_t> scratch;                  // cells, by rank
  std::vector<uint32_t> lines;                    // where each rank begins, by rank
  std::vector<std::vector<uint32_t>> semaphores;  // by rank: their first counts; none: no rank has any
  std::vector<Thread> threads;                    // those of rank 0, of rank 1 ...
};

// As much of a text as an error shows.
inline std::string shown(const std::string& text) {
  constexpr size_t longest = 40;
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

// An error with its place: "plan.xml:12: gpu 1, tb 0, step 3: ...".
template <typename... Args>
sdk::Error wrong(const std::string& file, uint64_t line, fmt::format_string<const Args&...> format,
                 const Args&... args) {
  return sdk::error(TUTTI_INVALID_ARGUMENT, "{}:{}: {}", file, line, fmt::format(format, args...));
}
inline std::string place(const Thread& thread, const Op& op) {
  return fmt::format("gpu {}, tb {}, step {}", thread.rank, thread.id, op.step);
}
template <typename... Args>
sdk::Error wrong(const Plan& plan, const Thread& thread, const Op& op, fmt::format_string<const Args&...> format,
                 const Args&... args) {
  return wrong(plan.file, op.line, "{}: {}", place(thread, op), fmt::format(format, args...));
}

// Limits, so that a file cannot take a machine's memory.
struct Limits {
  static constexpr uint64_t file_bytes = 64u << 20;
  static constexpr uint32_t ranks = 1024;
  static constexpr uint32_t threads = 4096;        // thread blocks of all ranks
  static constexpr uint32_t cells = 1u << 18;      // of one buffer of a rank
  static constexpr uint64_t all_cells = 1u << 22;  // of all ranks
  static constexpr uint64_t ops = 1u << 20;        // of all ranks
  static constexpr uint64_t chunks = 1u << 22;     // that all operations move together
  static constexpr uint32_t channels = 64;
  static constexpr uint64_t verify_work = uint64_t{1} << 31;  // operations * thread blocks
};

}  // namespace tutti::plans
