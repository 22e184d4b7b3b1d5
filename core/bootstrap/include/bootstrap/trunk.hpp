// SPDX-License-Identifier: Apache-2.0
//
// One control plane for a family of communicators: those that were split from one, and those that were split from them.
// Each has a branch, a control plane of its own, whose packets travel over the trunk. So another communicator costs no
// meeting, no connection and no thread.
//
// A trunk belongs to no communicator. Its ranks are those of the first one, which met for it, and communicators of the
// family may end in any order. A rank whose last branch has ended tells the others, and goes on to pass on their
// packets until none of them has a branch any more, or its process ends.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace tutti::core {

// Threads: any.
class Trunk final : private ControlListener {
 public:
  // Collective: `bootstrap` is that of ranks which have met for this. Returns when all can take packets of branches.
  // Throws Failure.
  static std::shared_ptr<Trunk> grow(std::unique_ptr<Bootstrap> bootstrap, const Deadline& deadline);
  Trunk(const Trunk&) = delete;
  Trunk& operator=(const Trunk&) = delete;

  uint32_t rank() const { return bootstrap_->rank(); }
  uint32_t nranks() const { return bootstrap_->nranks(); }

  // The branch of `members`, ranks of the trunk, of which the one at `rank` is this one. `number` is the same on all
  // members, and no other branch of theirs has ever had it. No member may send before all have called this: packets for
  // a branch that a rank does not have are dropped. `parent`: of the communicator that is split.
  static std::unique_ptr<Bootstrap> branch(const std::shared_ptr<Trunk>& trunk, uint64_t number,
                                           std::vector<uint32_t> members, uint32_t rank, const Bootstrap& parent);

 private:
  class Branch;
  explicit Trunk(std::unique_ptr<Bootstrap> bootstrap) : bootstrap_(std::move(bootstrap)) {}
  ~Trunk() = default;
  static void retire(Trunk* trunk);

  // ControlListener
  void pair_messages_came() override;
  void rank_died(const Loss& loss) override;

  std::shared_ptr<Branch> find(uint64_t number);
  void carry(const PairMessage& message);

  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Branch>> branches_;
  const std::unique_ptr<Bootstrap> bootstrap_;  // the last: its thread uses the others until it has ended
};

}  // namespace tutti::core
