// SPDX-License-Identifier: Apache-2.0
//
// One run of a program in fresh processes, watched from outside.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "folder.hpp"
#include "fuzz/player.hpp"
#include "fuzz/program.hpp"
#include "process.hpp"
#include "suites.hpp"

namespace tutti::conformance::fuzz {

struct TrialOptions {
  std::vector<std::string> plugins;
  double patience = 1;
  // TUTTI_TIMEOUT, in seconds beyond the program's sleeps.
  double timeout = 15;
};

struct Verdict {
  // "": all is right. Otherwise wrong, error, stall (a call ended at its deadline), hang (a call did not end), crash,
  // child, leak.
  std::string kind;
  std::string text;
  uint64_t calls = 0;
  bool good() const { return kind.empty(); }
};

class Trial {
 public:
  // Starts the processes.
  Trial(const Program& program, const TrialOptions& options);
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  // Ends what still runs.
  ~Trial() = default;

  // Looks around without waiting; the verdict once there is one.
  std::optional<Verdict> poll();
  // Descriptors that become readable when something has come.
  std::vector<int> descriptors() const;
  const Program& program() const { return program_; }

 private:
  struct Member {
    std::unique_ptr<Process> process;
    bool answered = false, over = false;
  };

  void listen(uint32_t p);
  void take_end(uint32_t p);
  bool may_die(uint32_t p) const;
  void watch();
  std::string standing() const;

  const Program program_;
  const TrialOptions options_;
  const Folder folder_;  // outlives the processes
  std::unique_ptr<Whereabouts> whereabouts_;
  std::vector<Member> members_;
  std::chrono::milliseconds patience_;  // without any thread going on
  std::chrono::steady_clock::time_point deadline_;
  uint64_t last_seen_ = 0;
  std::string kind_, text_;
};

// Runs a program to its verdict.
Verdict try_program(const Program& program, const TrialOptions& options);

// By it the workers find the program in their job's folder.
Suite fuzz_suite();

}  // namespace tutti::conformance::fuzz
