// SPDX-License-Identifier: Apache-2.0
//
// The calls of communicators in C++ (tutti.hpp) with blocks of unequal sizes.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/calls.hpp>

namespace tutti {

// The blocks of a buffer, one for each rank: its count and the element at which it begins. Without displacements the
// blocks lie one after another. The arrays must live until the call has returned.
struct Blocks {
  Blocks() = default;  // of a rank that does not have the buffer
  template <typename Counts>
  requires std::convertible_to<const Counts&, std::span<const uint64_t>> Blocks(const Counts& sizes,
                                                                                std::span<const uint64_t> begins = {})
      : counts(sizes), displacements(begins) {}

  std::span<const uint64_t> counts, displacements;
};

namespace detail {

// The calls of Calls<Self> with unequal blocks. Every buffer must contain all of its blocks.
template <typename Self>
class UnequalCalls {
 public:
  // All ranks' `in` to all ranks' `out`. The counts of `blocks` are the same on all ranks.
  template <Elements In, Elements Out>
  auto all_gather_v(In&& in, Out&& out, const Blocks& blocks, const Options& options = {}) const {
    require_call<In, Out>();
    const auto from = span_of(in);
    const auto to = span_of(out);
    const char* const name = "all_gather_v";
    fits(name, "out", to.size(), blocks);
    one(name, "in", from.size(), blocks);
    const COptions given(name, options);
    return self().run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_gather_v(c, from.data(), to.data(), blocks.counts.data(), begins(blocks),
                                dtype_of<value_t<Out>>(), given.get(), r);
    });
  }

  // The k-th block of all ranks' `in`, combined, to rank k's `out`.
  template <Elements In, Elements Out>
  auto reduce_scatter_v(In&& in, const Blocks& blocks, Out&& out, Op op, const Options& options = {}) const {
    require_call<In, Out>();
    const auto from = span_of(in);
    const auto to = span_of(out);
    const char* const name = "reduce_scatter_v";
    fits(name, "in", from.size(), blocks);
    one(name, "out", to.size(), blocks);
    const COptions given(name, options);
    return self().run([&](tutti_comm* c, tutti_request** r) {
      return tutti_reduce_scatter_v(c, from.data(), to.data(), blocks.counts.data(), begins(blocks),
                                    dtype_of<value_t<Out>>(), static_cast<uint32_t>(op), given.get(), r);
    });
  }

  // The k-th block of rank i's `in` to the i-th block of rank k's `out`.
  template <Elements In, Elements Out>
  auto all_to_all_v(In&& in, const Blocks& in_blocks, Out&& out, const Blocks& out_blocks,
                    const Options& options = {}) const {
    require_call<In, Out>();
    const auto from = span_of(in);
    const auto to = span_of(out);
    const char* const name = "all_to_all_v";
    fits(name, "in", from.size(), in_blocks);
    fits(name, "out", to.size(), out_blocks);
    const COptions given(name, options);
    return self().run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_to_all_v(c, from.data(), in_blocks.counts.data(), begins(in_blocks), to.data(),
                                out_blocks.counts.data(), begins(out_blocks), dtype_of<value_t<Out>>(), given.get(), r);
    });
  }

  // All ranks' `in` to root's `out`. `blocks` and `out` are root's; other ranks pass {} and an empty range.
  template <Elements In, Elements Out>
  auto gather_v(In&& in, Out&& out, const Blocks& blocks, uint32_t root, const Options& options = {}) const {
    require_call<In, Out>();
    const auto from = span_of(in);
    const auto to = span_of(out);
    const char* const name = "gather_v";
    if (rank() == root) fits(name, "out", to.size(), blocks);
    const COptions given(name, options);
    return self().run([&](tutti_comm* c, tutti_request** r) {
      return tutti_gather_v(c, from.data(), from.size(), to.data(), blocks.counts.data(), begins(blocks),
                            dtype_of<value_t<Out>>(), root, given.get(), r);
    });
  }

  // The k-th block of root's `in` to rank k's `out`. `in` and `blocks` are root's.
  template <Elements In, Elements Out>
  auto scatter_v(In&& in, const Blocks& blocks, Out&& out, uint32_t root, const Options& options = {}) const {
    require_call<In, Out>();
    const auto from = span_of(in);
    const auto to = span_of(out);
    const char* const name = "scatter_v";
    if (rank() == root) fits(name, "in", from.size(), blocks);
    const COptions given(name, options);
    return self().run([&](tutti_comm* c, tutti_request** r) {
      return tutti_scatter_v(c, from.data(), blocks.counts.data(), begins(blocks), to.data(), to.size(),
                             dtype_of<value_t<Out>>(), root, given.get(), r);
    });
  }

 private:
  template <Elements In, Elements Out>
  static constexpr void require_call() {
    require_pair<In, Out>();
    static_assert(!Self::returns_requests || outlives_call<In>,
                  "tutti: in is a temporary: the request would read it after its end");
  }
  uint32_t rank() const { return tutti_comm_rank(self().handle()); }
  uint32_t nranks() const { return tutti_comm_nranks(self().handle()); }
  const Self& self() const { return static_cast<const Self&>(*this); }
  static const uint64_t* begins(const Blocks& blocks) {
    return blocks.displacements.empty() ? nullptr : blocks.displacements.data();
  }
  [[noreturn]] static void refuse(const char* call, const std::string& text) {
    throw Error(TUTTI_INVALID_ARGUMENT, std::string(call) + ": " + text);
  }
  // A block for each rank, within a buffer of `size` elements.
  void fits(const char* call, const char* buffer, size_t size, const Blocks& blocks) const {
    const std::string of = std::string(" of ") + buffer;
    const auto array = [&](const char* what, size_t has) {
      refuse(call, std::to_string(has) + " " + what + of + " for " + std::to_string(nranks()) + " ranks");
    };
    if (blocks.counts.size() != nranks()) array("counts", blocks.counts.size());
    if (!blocks.displacements.empty() && blocks.displacements.size() != nranks())
      array("displacements", blocks.displacements.size());
    uint64_t at = 0;
    for (size_t b = 0; b < blocks.counts.size(); ++b) {
      const uint64_t begin = blocks.displacements.empty() ? at : blocks.displacements[b];
      if (!blocks.counts[b]) continue;
      if (begin > size || blocks.counts[b] > size - begin)
        refuse(call, "block " + std::to_string(b) + of + ", " + std::to_string(blocks.counts[b]) +
                         " elements from element " + std::to_string(begin) + " on, does not lie within its " +
                         std::to_string(size) + " elements");
      at = begin + blocks.counts[b];
    }
  }
  // The buffer that is this rank's block.
  void one(const char* call, const char* buffer, size_t size, const Blocks& blocks) const {
    if (const uint64_t count = blocks.counts[rank()]; size != count)
      refuse(call, std::string(buffer) + " has " + std::to_string(size) + " elements, but this rank's count is " +
                       std::to_string(count));
  }
};

}  // namespace detail
}  // namespace tutti
