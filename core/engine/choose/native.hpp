// SPDX-License-Identifier: Apache-2.0
//
// Collectives that a plugin carries out by itself (tutti/plugin/collective.h).
#pragma once

#include <tutti/plugin/collective.h>

#include <memory>
#include <string>
#include <vector>

#include "base/wire.hpp"

namespace tutti::core {

struct Shape;

// One rank's part of a plugin's group for one communicator.
class NativeGroup {
 public:
  NativeGroup(const tutti_collective* api, tutti_native_group* group) : api_(api), group_(group) {}
  NativeGroup(const NativeGroup&) = delete;
  NativeGroup& operator=(const NativeGroup&) = delete;
  ~NativeGroup() { api_->destroy(group_); }

  const char* name() const { return api_->name; }
  // Why it does not serve the call; "" when it does, in so many seconds.
  std::string refuses(const Shape& shape, double* seconds) const;
  // Throws Failure.
  tutti_native_operation* start(const Shape& shape, const void* in, void* out) const;
  // True: complete. Throws Failure; the operation has ended then, too.
  bool test(tutti_native_operation* operation) const;
  // Ends the operations under way: test frees each.
  void abort() const { api_->abort(group_); }

 private:
  const tutti_collective* api_;
  tutti_native_group* group_;
};

// Collective: asks each plugin for its group. One that fails on a rank is left out on all, with a line in the log.
// `config` lacks what belongs to all_gather.
std::vector<std::unique_ptr<NativeGroup>> make_native_groups(const std::vector<const tutti_collective*>& plugins,
                                                             tutti_native_config config, const Gather& gather);

}  // namespace tutti::core
