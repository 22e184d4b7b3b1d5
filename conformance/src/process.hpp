// SPDX-License-Identifier: Apache-2.0
//
// One worker process of a job: started, given orders, listened to, and ended without fail together with all that it
// started itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::conformance {

class Process {
 public:
  // Starts `program` as a worker with the environment, in a network namespace of `ip netns` unless that is "". Throws
  // std::runtime_error.
  Process(const std::string& program, const std::vector<std::string>& environment, const std::string& netns = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  // Kills what is left of its process group.
  ~Process();

  // False when the process does not listen any more.
  bool order(const std::string& line);
  void end_orders();
  int answers() const { return answers_; }
  // Reads what has come. False at the end of the answers.
  bool read_answers();
  std::optional<std::string> next_answer();

  // Waits at most so long for its end. Afterwards ended() and how() tell.
  bool wait(int milliseconds);
  bool ended() const { return ended_; }
  bool ended_well() const;
  // "was killed by signal 11 (Segmentation fault)", "exited with status 3".
  std::string how() const;
  // Kills what is left of its process group, itself included; how many processes besides itself there were.
  int kill_group();
  // The last lines that it wrote to its standard output and error; "" when there are none.
  std::string output_tail() const;

 private:
  void exec(const std::string& program, const std::vector<std::string>& environment, const std::string& netns,
            int orders, int answers) const;

  pid_t pid_ = -1;
  int orders_ = -1, answers_ = -1, output_ = -1;
  std::string pending_;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace tutti::conformance
