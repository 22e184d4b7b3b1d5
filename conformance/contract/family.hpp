// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes: the case's own process is rank 0, the others are its children, which load the plugin for
// themselves.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stage.hpp"

namespace tutti::conformance::contract {

class Family {
 public:
  // Runs `body` once in each of `n` processes, with its rank. Before the plugin is loaded. An exception of a child is
  // thrown again here. A child that is killed on purpose says so by expect_death first.
  static void run(Bench& bench, uint32_t n, const std::function<void(Family&, uint32_t rank)>& body);

  // All living processes come here before any goes on; gives up after a while (CannotRun).
  void meet(Stage* progressing = nullptr);
  void expect_death(uint32_t rank);  // by any process; that rank meets nobody any more
  pid_t pid(uint32_t rank) const;
  // Opens this process's rank and connects it to all others. The stage's only rank is `rank`.
  void open(Stage& stage, uint32_t rank, uint32_t lanes = 3);
  // Only opens it.
  void open_unconnected(Stage& stage, uint32_t rank, uint32_t lanes = 3);

 private:
  static constexpr uint32_t most = 4;
  struct Shared;
  static Shared* share(uint32_t n);
  Family(Bench& bench, uint32_t n);
  ~Family();
  void run_child(uint32_t rank, const std::function<void(Family&, uint32_t)>& body);
  void rethrow_child();
  Bench& bench_;
  const uint32_t n_;
  Shared* shared_;
  SharedMail mail_;
  uint32_t meetings_ = 0;
  uint32_t me_ = 0;
};

// Throws NotOffered where the transport reaches no other process.
inline void needs_processes(Bench& bench) {
  if (bench.caps().reach < TUTTI_REACH_HOST) throw NotOffered{"its reach is one process"};
}

}  // namespace tutti::conformance::contract
