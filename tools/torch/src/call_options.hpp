// SPDX-License-Identifier: Apache-2.0
//
// Options of the collectives that the block of `with tutti.torch.call(...)` calls. They are thread-local information of
// torch's: a backward pass that the block begins has them in autograd's threads, too.
#pragma once

#include <c10/core/ScalarType.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti::torch {

class CallOptions {
 public:
  // Those of the blocks that this thread is in; nullptr: none.
  static std::shared_ptr<const CallOptions> now();
  // A block begins. It has the options of the block around it where it gives none.
  static void enter(const std::optional<std::string>& algorithms, std::optional<uint32_t> order,
                    std::optional<uint32_t> wire, std::optional<uint64_t> tag);
  // The block that began last ends. Nothing where there is none.
  static void leave();

  // Fills in the options of a call of this type, which they outlive. Messages take none; the order is for reductions.
  void fill(c10d::OpType type, tutti_options& options) const;
  // The wire format of a call of this type with such elements. Calls that have none are plain: what a block calls has
  // other types, too, as the counts that DDP exchanges.
  uint32_t wire(c10d::OpType type, at::ScalarType elements) const;

 private:
  class Block;
  std::string algorithms_;
  uint32_t order_ = TUTTI_ORDER_DEFAULT, wire_ = TUTTI_WIRE_PLAIN;
  uint64_t tag_ = 0;
};

}  // namespace tutti::torch
