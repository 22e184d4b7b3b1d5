// SPDX-License-Identifier: Apache-2.0
//
// One rank of a walk: its endpoints of all communicators, its steps, and what follows them.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "walk_endpoint.hpp"

namespace tutti::conformance::contract {

// A domain of a walk, for as long as endpoints of it are open.
class WalkDomain {
 public:
  explicit WalkDomain(Bench& bench);
  ~WalkDomain();
  WalkDomain(const WalkDomain&) = delete;
  WalkDomain& operator=(const WalkDomain&) = delete;
  tutti_domain* get() const { return domain_; }

 private:
  Bench& bench_;
  tutti_domain* domain_ = nullptr;
};
// The domain of all ranks of this process; nullptr where the walk wants others.
std::shared_ptr<WalkDomain> domain_of_process(Bench& bench, const Walk& walk);

class Walker {
 public:
  Walker(Bench& bench, const Walk& walk, World& world, uint32_t rank, std::shared_ptr<WalkDomain> of_process);
  Walker(const Walker&) = delete;
  Walker& operator=(const Walker&) = delete;
  void play(const Step& step);
  // After the steps: goes on a little. True: this rank is done. Throws Broken when nothing goes on any more.
  bool advance();

 private:
  // Ranks come to each stage together. All but the last are left when its work is done and all have come to it.
  enum Stage : uint32_t { walking, levelling, winding_up, closing, done };

  WalkEndpoint& endpoint(uint32_t communicator);
  bool work();
  void enter(Stage stage);
  double patience() const;  // seconds without news after which it complains
  void complain() const;
  Bench& bench_;
  const Walk& walk_;
  World& world_;
  const uint32_t rank_;
  std::mt19937_64 random_;
  std::shared_ptr<WalkDomain> domain_;  // nullptr: each endpoint has its own
  std::vector<std::unique_ptr<WalkEndpoint>> endpoints_;  // by communicator
  Stage stage_ = walking;
  bool worked_ = false;
  uint32_t idle_ = 0;
  Stillness stillness_;
};

}  // namespace tutti::conformance::contract
