// SPDX-License-Identifier: Apache-2.0
//
// Calls with unequal blocks on device memory, compared with what they have to give.
#pragma once

#include <algorithm>
#include <memory>

#include "stream_ranks.hpp"

namespace tutti::test {

// How many elements rank `from` has for rank `to`; of other collectives than all_to_all_v block `to` for `from` 0.
using Sizes = std::function<uint64_t(uint32_t from, uint32_t to)>;

inline constexpr uint32_t unequal_collectives[] = {TUTTI_ALL_GATHER_V, TUTTI_REDUCE_SCATTER_V, TUTTI_ALL_TO_ALL_V,
                                                   TUTTI_GATHER_V, TUTTI_SCATTER_V};

// A call of a rank, with buffers of its own in which blocks lie in reverse order and apart from each other.
class UnequalCall {
 public:
  static constexpr uint64_t gap = 3;

  UnequalCall(Stream& stream, tutti_comm* comm, uint32_t collective, Sizes sizes, bool in_place = false)
      : s_(stream),
        comm_(comm),
        collective_(collective),
        n_(tutti_comm_nranks(comm)),
        rank_(tutti_comm_rank(comm)),
        root_(n_ / 2),
        sizes_(std::move(sizes)),
        in_(side(TUTTI_BUFFER_IN)),
        out_(side(TUTTI_BUFFER_OUT)) {
    if (!in_place || in_.counts.empty() || out_.counts.empty() || collective == TUTTI_ALL_TO_ALL_V) return;
    Side& one = in_.counts.size() < out_.counts.size() ? in_ : out_;
    Side& all = &one == &in_ ? out_ : in_;
    if (in_.counts.size() == out_.counts.size()) return;  // one rank
    s_.free(one.data);
    one.data = all.data + all.begins[rank_];
    one.begins[0] = 0;
    one.own = false;
  }
  ~UnequalCall() {
    for (const Side* one : {&in_, &out_})
      if (one->own) s_.free(one->data);
  }
  UnequalCall(const UnequalCall&) = delete;
  UnequalCall& operator=(const UnequalCall&) = delete;

  // Other data each round.
  void fill(int round) {
    round_ = round;
    std::fill_n(out_.data, out_.own ? out_.elements : 0, untouched);
    if (in_.own) std::fill_n(in_.data, in_.elements, untouched);
    for (size_t b = 0; b < in_.counts.size(); ++b)
      for (uint64_t i = 0; i < in_.counts[b]; ++i) in_.data[in_.begins[b] + i] = given(rank_, b, i);
  }
  tutti_status issue(const tutti_options& options, tutti_request** request = nullptr) {
    const void* in = in_.data + (in_.counts.size() == 1 ? in_.begins[0] : 0);
    void* out = out_.data + (out_.counts.size() == 1 ? out_.begins[0] : 0);
    switch (collective_) {
      case TUTTI_ALL_GATHER_V:
        return tutti_all_gather_v(comm_, in, out_.data, out_.counts.data(), out_.begins.data(), TUTTI_INT64, &options,
                                  request);
      case TUTTI_REDUCE_SCATTER_V:
        return tutti_reduce_scatter_v(comm_, in_.data, out, in_.counts.data(), in_.begins.data(), TUTTI_INT64,
                                      TUTTI_SUM, &options, request);
      case TUTTI_ALL_TO_ALL_V:
        return tutti_all_to_all_v(comm_, in_.data, in_.counts.data(), in_.begins.data(), out_.data, out_.counts.data(),
                                  out_.begins.data(), TUTTI_INT64, &options, request);
      case TUTTI_GATHER_V:
        return tutti_gather_v(comm_, in, in_.counts[0], out_.data, out_.counts.data(), out_.begins.data(), TUTTI_INT64,
                              root_, &options, request);
      default:
        return tutti_scatter_v(comm_, in_.data, in_.counts.data(), in_.begins.data(), out, out_.counts[0], TUTTI_INT64,
                               root_, &options, request);
    }
  }
  // Once the stream is done: all of OUT, what lies between the blocks, too, and IN where it is not OUT.
  void check() const {
    std::vector<int64_t> expected(out_.elements, untouched);
    for (size_t b = 0; b < out_.counts.size(); ++b)
      for (uint64_t i = 0; i < out_.counts[b]; ++i) expected[out_.begins[b] + i] = wanted(b, i);
    if (out_.own && in_.own)
      for (uint64_t e = 0; e < out_.elements; ++e) ASSERT_EQ(out_.data[e], expected[e]) << text() << " at " << e;
    else
      for (size_t b = 0; b < out_.counts.size(); ++b)
        for (uint64_t i = 0; i < out_.counts[b]; ++i)
          ASSERT_EQ(out_.data[out_.begins[b] + i], wanted(b, i)) << text() << " in place, block " << b << " at " << i;
    for (size_t b = 0; in_.own && out_.own && b < in_.counts.size(); ++b)
      for (uint64_t i = 0; i < in_.counts[b]; ++i)
        ASSERT_EQ(in_.data[in_.begins[b] + i], given(rank_, b, i)) << text() << " has written IN";
  }

 private:
  static constexpr int64_t untouched = -77;
  struct Side {
    std::vector<uint64_t> counts, begins;
    uint64_t elements = 0;
    int64_t* data = nullptr;
    bool own = true;
  };

  Side side(uint32_t buffer) {
    Side made;
    const uint32_t blocks = block_count(collective_, n_, root_, rank_, buffer);
    for (uint32_t b = 0; b < blocks; ++b) {
      const uint32_t other = blocks == n_ ? b : rank_;
      made.counts.push_back(collective_ != TUTTI_ALL_TO_ALL_V ? sizes_(0, other)
                            : buffer == TUTTI_BUFFER_IN       ? sizes_(rank_, b)
                                                              : sizes_(b, rank_));
    }
    made.begins.resize(blocks);
    made.elements = gap;
    for (uint32_t b = blocks; b-- > 0;) {
      made.begins[b] = made.elements;
      made.elements += made.counts[b] + gap;
    }
    made.data = s_.make<int64_t>(made.elements);
    return made;
  }
  // Element i of block b of IN at a rank, and of OUT here in the end.
  int64_t given(uint32_t at, size_t b, uint64_t i) const {
    const bool one = collective_ == TUTTI_GATHER_V || collective_ == TUTTI_ALL_GATHER_V;
    return value(at, i) + static_cast<int64_t>(one ? 0 : 31 * b) + 17 * round_;
  }
  int64_t wanted(size_t b, uint64_t i) const {
    const auto from = static_cast<uint32_t>(b);
    if (collective_ == TUTTI_SCATTER_V) return given(root_, rank_, i);
    if (collective_ != TUTTI_REDUCE_SCATTER_V) return given(from, rank_, i);
    int64_t sum = 0;
    for (uint32_t r = 0; r < n_; ++r) sum += given(r, rank_, i);
    return sum;
  }
  std::string text() const {
    return std::string(collective_name(collective_)) + " of rank " + std::to_string(rank_) + " of " +
           std::to_string(n_) + ", round " + std::to_string(round_);
  }

  Stream& s_;
  tutti_comm* comm_;
  uint32_t collective_, n_, rank_, root_;
  Sizes sizes_;
  Side in_, out_;
  int round_ = 0;
};

// Sizes that change from turn to turn: growing, every other one empty, one rank has all, none, large. `large`: the most
// elements of a block.
inline Sizes sizes_of(uint32_t turn, uint32_t n, uint64_t large) {
  return [=](uint32_t from, uint32_t to) -> uint64_t {
    switch (turn % 6) {
      case 0:
        return 3 * from + to + 1;
      case 1:
        return (from + to) % 2 ? 0 : 7 + to;
      case 2:
        return to == n - 1 ? 1000 : 0;
      case 3:
        return 0;
      case 4:
        return to % 2 ? large : large / 3 + from;
      default:
        return to + 2 + turn;
    }
  };
}

// All collectives in several turns with other counts each, which come back, out of place and in place; nothing is
// waited for in between.
inline void check_unequal(tutti_comm* comm, uint64_t large, uint32_t turns = 14,
                          const std::vector<uint32_t>& collectives = {std::begin(unequal_collectives),
                                                                      std::end(unequal_collectives)}) {
  const uint32_t n = tutti_comm_nranks(comm);
  Stream s;
  const tutti_options options = on(s);
  std::vector<std::unique_ptr<UnequalCall>> calls;
  for (uint32_t turn = 0; turn < turns; ++turn)
    for (const uint32_t collective : collectives) {
      // Memory is allocated where nothing is pending.
      calls.push_back(std::make_unique<UnequalCall>(s, comm, collective, sizes_of(turn % 7, n, large), turn % 3 == 1));
      calls.back()->fill(static_cast<int>(turn));
    }
  for (const auto& call : calls) ASSERT_EQ(call->issue(options), TUTTI_OK) << tutti_comm_error(comm);
  ASSERT_TRUE(s.finish()) << tutti_comm_error(comm);
  ASSERT_EQ(tutti_comm_async_error(comm), TUTTI_OK);
  for (const auto& call : calls) {
    call->check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace tutti::test
