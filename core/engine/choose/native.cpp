// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/native.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cstring>
#include <tutti/base/bits.hpp>
#include <utility>

#include "base/failure.hpp"
#include "base/wire.hpp"
#include "engine/choose/shape.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

tutti_native_call call_of(const Shape& shape, const void* in, void* out) {
  return {sizeof(tutti_native_call), shape.collective, shape.dtype, shape.op, shape.root,
          in ? shape.in_place : 0,   shape.count,      in,          out};
}

// A rank's word while a group is made.
struct Doing {
  enum : uint32_t { gathers, is_done, failed } what = gathers;
  std::string text;  // that it gathers, or why it failed

  static void fields(auto& wire, auto& doing) { wire(doing.what, RawBytes(doing.text)); }
};

// The gathers while one group is made. All ranks see the same words, so all come to the same end, also where one leaves
// create early.
class Making {
 public:
  explicit Making(const Gather& gather) : gather_(gather) {}

  static tutti_status all_gather(void* oob, const void* mine, uint64_t bytes, void* all) {
    auto& self = *static_cast<Making*>(oob);
    try {
      const std::vector<Doing> ranks = self.exchange({Doing::gathers, {static_cast<const char*>(mine), bytes}});
      for (size_t r = 0; r < ranks.size() && self.failure_.empty(); ++r)
        if (ranks[r].text.size() != bytes)
          self.failure_ =
              fmt::format("rank {} gathers {} bytes, rank 0 {}", r, ranks[r].text.size(), ranks[0].text.size());
      if (!self.failure_.empty()) return TUTTI_ABORTED;
      for (size_t r = 0; r < ranks.size(); ++r)
        std::memcpy(static_cast<char*>(all) + r * bytes, ranks[r].text.data(), bytes);
      return TUTTI_OK;
    } catch (...) {
      self.broken_ = std::current_exception();
      return TUTTI_ABORTED;
    }
  }

  // Why the group is not there on all ranks; "" when it is. `own`: why it is not on this one.
  std::string end(const std::string& own) {
    if (broken_) std::rethrow_exception(broken_);
    if (failure_.empty()) exchange({own.empty() ? Doing::is_done : Doing::failed, own});
    return failure_;
  }

 private:
  std::vector<Doing> exchange(const Doing& mine) {
    auto ranks = decode_all<Doing>(gather_(encode(mine)), "word on a group");
    for (size_t r = 0; r < ranks.size() && failure_.empty(); ++r) {
      const auto theirs = ranks[r].what, first = ranks[0].what;
      if (theirs == Doing::failed) failure_ = fmt::format("rank {}: {}", r, printable(ranks[r].text, longest_message));
      if (theirs != first && theirs != Doing::failed && first != Doing::failed)
        failure_ = fmt::format("ranks 0 and {} call all_gather a different number of times", r);
    }
    return ranks;
  }

  const Gather& gather_;
  std::string failure_;
  std::exception_ptr broken_;  // the gather itself
};

}  // namespace

std::string NativeGroup::refuses(const Shape& shape, double* seconds) const {
  if (!has_bit(api_->collectives, shape.collective))
    return fmt::format("it does no {}", collective_name(shape.collective));
  const tutti_native_call call = call_of(shape, nullptr, nullptr);
  uint64_t nanoseconds = 0;
  const tutti_status status = api_->supports(group_, &call, &nanoseconds);
  *seconds = static_cast<double>(nanoseconds) * 1e-9;
  if (status == TUTTI_OK) return {};
  const std::string why = take_plugin_error();
  return why.empty() ? "it does not support this call and gives no reason" : why;
}

tutti_native_operation* NativeGroup::start(const Shape& shape, const void* in, void* out) const {
  tutti_native_call call = call_of(shape, in, out);
  call.in_place = shape.in_place;
  tutti_native_operation* operation = nullptr;
  if (const tutti_status status = api_->start(group_, &call, &operation); status < 0)
    throw Failure(status, fmt::format("collective {}: {}", name(), take_plugin_error()));
  return operation;
}

bool NativeGroup::test(tutti_native_operation* operation) const {
  const tutti_status status = api_->test(operation);
  if (status < 0) throw Failure(status, fmt::format("collective {}: {}", name(), take_plugin_error()));
  return status == TUTTI_OK;
}

std::vector<std::unique_ptr<NativeGroup>> make_native_groups(const std::vector<const tutti_collective*>& plugins,
                                                             tutti_native_config config, const Gather& gather) {
  std::vector<std::unique_ptr<NativeGroup>> groups;
  for (const tutti_collective* api : plugins) {
    Making making(gather);
    config.oob = &making;
    config.all_gather = Making::all_gather;
    tutti_native_group* made = nullptr;
    std::string own;
    if (api->create(api->self, &config, &made) < 0) own = take_plugin_error(), made = nullptr;
    if (!made && own.empty()) own = "create failed and gives no reason";
    auto group = made ? std::make_unique<NativeGroup>(api, made) : nullptr;
    if (const std::string why = making.end(own); why.empty())
      groups.push_back(std::move(group));
    else
      log(TUTTI_LOG_INFO, config.name, fmt::format("collective {} is left out: {}", api->name, why));
  }
  return groups;
}

}  // namespace tutti::core
