// SPDX-License-Identifier: Apache-2.0
#include "call_options.hpp"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <string_view>

namespace tutti::torch {
namespace {

constexpr std::string_view kind_name = "TUTTI_CALL_OPTIONS";
constexpr c10::DebugInfoKind kind(&kind_name);

bool reduces(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED:
    case c10d::OpType::REDUCE:
    case c10d::OpType::REDUCE_SCATTER:
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return true;
    default:
      return false;
  }
}

// Does Tutti's call of this type have wire formats?
bool rounds(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::BROADCAST:
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::_ALLGATHER_BASE:
    case c10d::OpType::ALLGATHER_COALESCED:
    case c10d::OpType::_ALLREDUCE_SPARSE:  // gathers the values
      return true;
    default:
      return reduces(type);
  }
}

}  // namespace

// Torch takes information away only in the order in which it came, whatever its kind. So a block that ends while a
// profiler runs that it has begun is marked.
class CallOptions::Block final : public c10::DebugInfoBase {
 public:
  static std::shared_ptr<Block> innermost() {
    auto* const last = static_cast<Block*>(c10::ThreadLocalDebugInfo::get(kind));
    std::shared_ptr<Block> block = last ? last->self_.lock() : nullptr;
    while (block && block->over) block = block->around;
    return block;
  }
  static void push(std::shared_ptr<const CallOptions> options) {
    const auto made = std::make_shared<Block>();
    made->self_ = made;
    made->around = innermost();
    made->options = std::move(options);
    c10::ThreadLocalDebugInfo::_push(kind, made);
  }

  std::shared_ptr<const CallOptions> options;
  std::shared_ptr<Block> around;
  std::atomic<bool> over{false};

 private:
  std::weak_ptr<Block> self_;
};

std::shared_ptr<const CallOptions> CallOptions::now() {
  if (!c10::ThreadLocalDebugInfo::get(kind)) return nullptr;
  const std::shared_ptr<Block> block = Block::innermost();
  return block ? block->options : nullptr;
}

void CallOptions::enter(const std::optional<std::string>& algorithms, std::optional<uint32_t> order,
                        std::optional<uint32_t> wire, std::optional<uint64_t> tag) {
  const auto outer = now();
  const auto options = outer ? std::make_shared<CallOptions>(*outer) : std::make_shared<CallOptions>();
  if (algorithms) options->algorithms_ = *algorithms;
  if (order) options->order_ = *order;
  if (wire) options->wire_ = *wire;
  if (tag) options->tag_ = *tag;
  Block::push(options);
}

void CallOptions::leave() {
  const std::shared_ptr<Block> block = Block::innermost();
  if (!block) return;
  block->over = true;
  try {
    if (c10::ThreadLocalDebugInfo::_peek(kind).get() == block.get()) c10::ThreadLocalDebugInfo::_pop(kind);
  } catch (const c10::Error&) {  // other information has come since, and stays
  }
}

void CallOptions::fill(c10d::OpType type, tutti_options& options) const {
  if (c10d::isP2POp(type)) return;
  if (!algorithms_.empty()) options.algorithms = algorithms_.c_str();
  if (reduces(type)) options.order = order_;
  options.tag = tag_;
}

uint32_t CallOptions::wire(c10d::OpType type, at::ScalarType elements) const {
  return rounds(type) && elements == at::kFloat ? wire_ : uint32_t{TUTTI_WIRE_PLAIN};
}

}  // namespace tutti::torch
