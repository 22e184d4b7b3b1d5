// SPDX-License-Identifier: Apache-2.0
//
// For sweeps over everything that moves host memory: each collective by each algorithm that serves ranks of one host,
// and messages, over shm and tcp. A call is made out of place, with buffers that the test supplies.
#pragma once

#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <numeric>

#include "algorithms.hpp"
#include "call_collective.hpp"
#include "ranks.hpp"
#include "sanitized.hpp"

namespace tutti::test {

struct EveryCall {
  std::string transport;
  uint32_t collective;    // 0: messages
  std::string algorithm;  // of messages: how they are sent
  uint32_t nranks;

  std::string name() const {
    return transport + "_" + (collective ? collective_name(collective) : "messages") + "_" + algorithm;
  }
  // For tutti_comm_config.algorithms; "": all.
  std::string choice() const {
    return collective ? std::string(collective_name(collective)) + ":" + algorithm : std::string();
  }
};

inline std::vector<EveryCall> every_call() {
  std::vector<EveryCall> all;
  for (const char* transport : {"shm", "tcp"}) {
    for (const tutti_algorithm* algorithm : thinned(list_algorithms()))
      for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
        for (const uint32_t n : {3u, 4u, 2u})
          if ((algorithm->collectives >> c & 1) && serves_one_host(*algorithm, c, n)) {
            all.push_back({transport, c, algorithm->name, n});
            break;
          }
    for (const char* way : {"exchange", "send"}) all.push_back({transport, 0, way, 3});
  }
  return all;
}

// One call, on one rank, of int64 elements that tell rank, block and place apart.
struct Made {
  Communicator& comm;
  const EveryCall& what;
  uint64_t count;  // of each block; unequal blocks have some elements more
  uint32_t root;

  uint32_t n() const { return comm.nranks(); }
  uint32_t rank() const { return comm.rank(); }
  bool is(const char* way) const { return !what.collective && what.algorithm == way; }

  // The sizes of the blocks of IN (TUTTI_BUFFER_IN) or OUT; none: the buffer does not exist on this rank.
  std::vector<uint64_t> blocks(uint32_t buffer) const {
    if (is("exchange")) return {count};
    if (is("send")) return std::vector<uint64_t>(buffer == TUTTI_BUFFER_IN ? rank() + 1 < n() : rank() > 0, count);
    std::vector<uint64_t> sizes(block_count(what.collective, n(), root, rank(), buffer), count);
    if (!has_unequal_blocks(what.collective)) return sizes;
    for (uint32_t b = 0; b < sizes.size(); ++b) {
      const uint32_t other = sizes.size() == n() ? b : rank();
      sizes[b] += what.collective != TUTTI_ALL_TO_ALL_V ? other
                  : buffer == TUTTI_BUFFER_IN           ? 2 * rank() + b
                                                        : 2 * b + rank();
    }
    return sizes;
  }
  uint64_t elements(uint32_t buffer) const {
    const auto sizes = blocks(buffer);
    return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  }
  static int64_t given(uint32_t rank, uint32_t block, uint64_t i) {
    return static_cast<int64_t>((rank + 1) * 1'000'003 + block * 10'007 + i * 7 + i % 13);
  }
  int64_t expected(uint32_t block, uint64_t i) const {
    int64_t sum = 0;
    switch (equal_form(what.collective)) {
      case 0:
        return given((rank() + n() - 1) % n(), 0, i);
      case TUTTI_BROADCAST:
        return given(root, 0, i);
      case TUTTI_GATHER:
      case TUTTI_ALL_GATHER:
        return given(block, 0, i);
      case TUTTI_SCATTER:
        return given(root, rank(), i);
      case TUTTI_ALL_TO_ALL:
        return given(block, rank(), i);
      case TUTTI_REDUCE_SCATTER:
        block = rank();
        [[fallthrough]];
      default:
        for (uint32_t r = 0; r < contributors(what.collective, n(), rank()); ++r) sum += given(r, block, i);
        return sum;
    }
  }

  void fill(int64_t* in) const {
    const auto sizes = blocks(TUTTI_BUFFER_IN);
    for (uint32_t b = 0; b < sizes.size(); ++b)
      for (uint64_t i = 0; i < sizes[b]; ++i) *in++ = given(rank(), b, i);
  }
  // A test failure where the call does not succeed, or its result is not the reference's.
  void carry_out(const int64_t* in, int64_t* out) const {
    if (const tutti_status status = status_of(in, out); status != TUTTI_OK) {
      ADD_FAILURE() << told() << tutti_status_text(status) << ": " << tutti_comm_error(comm.handle());
      return;
    }
    const auto sizes = blocks(TUTTI_BUFFER_OUT);
    for (uint32_t b = 0; b < sizes.size(); ++b)
      for (uint64_t i = 0; i < sizes[b]; ++i, ++out)
        if (*out != expected(b, i)) {
          ADD_FAILURE() << told() << "element " << i << " of block " << b << " is " << *out << ", expected "
                        << expected(b, i);
          return;  // the rest is as wrong
        }
  }

 private:
  std::string told() const {
    return what.name() + ", rank " + std::to_string(rank()) + " of " + std::to_string(n()) + ", count " +
           std::to_string(count) + ", root " + std::to_string(root) + ": ";
  }
  tutti_status status_of(const int64_t* in, int64_t* out) const {
    tutti_comm* const c = comm.handle();
    constexpr uint32_t t = TUTTI_INT64;
    const auto ins = blocks(TUTTI_BUFFER_IN), outs = blocks(TUTTI_BUFFER_OUT);
    switch (what.collective) {
      case 0:
        return is("exchange") ? exchange(in, out) : hand_on(in, out);
      case TUTTI_GATHER_V:
        return tutti_gather_v(c, in, ins[0], out, outs.data(), nullptr, t, root, nullptr, nullptr);
      case TUTTI_ALL_GATHER_V:
        return tutti_all_gather_v(c, in, out, outs.data(), nullptr, t, nullptr, nullptr);
      case TUTTI_SCATTER_V:
        return tutti_scatter_v(c, in, ins.data(), nullptr, out, outs[0], t, root, nullptr, nullptr);
      case TUTTI_REDUCE_SCATTER_V:
        return tutti_reduce_scatter_v(c, in, out, ins.data(), nullptr, t, TUTTI_SUM, nullptr, nullptr);
      case TUTTI_ALL_TO_ALL_V:
        return tutti_all_to_all_v(c, in, ins.data(), nullptr, out, outs.data(), nullptr, t, nullptr, nullptr);
      default:
        return call_collective<int64_t>(c, what.collective, in, out, count, root);
    }
  }
  // A ring of messages under way at once.
  tutti_status exchange(const int64_t* in, int64_t* out) const {
    const tutti_message messages[] = {
        {const_cast<int64_t*>(in), count, TUTTI_INT64, (rank() + 1) % n(), 0, TUTTI_SEND, {}},
        {out, count, TUTTI_INT64, (rank() + n() - 1) % n(), 0, TUTTI_RECEIVE, {}}};
    return tutti_exchange(comm.handle(), messages, std::size(messages), nullptr, nullptr);
  }
  // A line of messages, one after the other.
  tutti_status hand_on(const int64_t* in, int64_t* out) const {
    tutti_status status = TUTTI_OK;
    if (out) status = tutti_receive(comm.handle(), out, count, TUTTI_INT64, rank() - 1, 0, nullptr, nullptr);
    if (in && status == TUTTI_OK)
      status = tutti_send(comm.handle(), in, count, TUTTI_INT64, rank() + 1, 0, nullptr, nullptr);
    return status;
  }
};

}  // namespace tutti::test
