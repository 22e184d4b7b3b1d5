// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "environment.hpp"
#include "job.hpp"
#include "keeper.hpp"
#include "line_output.hpp"
#include "network_hosts.hpp"
#include "rank_process.hpp"

namespace tuttirun {

// Starts a job's ranks and looks after them until all have ended: passes on output and signals, ends all when one
// fails. One thread, one poll(2).
class Supervisor {
 public:
  // `network` may be null. `signals`: a signalfd of kForwarded, kStop and SIGCHLD, which are blocked.
  Supervisor(const Job& job, const MeetingPlace& place, const NetworkHosts* network, Keeper& keeper, int signals);
  ~Supervisor();

  // The exit status of tuttirun.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream {
    int fd;
    LineOutput lines;
  };
  struct Rank {
    RankProcess process;
    std::optional<int> status;  // as a shell would tell it; not reaped before the end, so that its pid stays its own
    std::deque<Stream> streams;
  };

  bool start_all();
  void turn();
  void read_signals();
  void look_for_ends();
  void note_end(uint32_t rank, int code, int value);
  void note_loss(uint32_t rank, bool exited, const std::string& how);
  int status_of_survivors();
  void read_stream(Stream& stream);
  void end_stream(Stream& stream);
  void say(const std::string& text);
  void signal_all(int signal);
  void end_all(int signal, int status);
  void ask_to_end(int signal, int status);
  int status_of_lost_output();
  void watch_clock();
  int wait_ms() const;
  bool all_ended() const;
  bool reading() const;
  bool draining() const;
  bool output_is_late() const;
  void kill_leftovers();

  const Job& job_;
  const MeetingPlace& place_;
  const NetworkHosts* network_;
  Keeper& keeper_;
  int signals_;
  Sink out_{1}, err_{2};
  std::deque<Rank> ranks_;
  std::optional<int> status_;  // decided by the first failure
  // Where the others go on: what failed, and the first statuses of ranks that exited and of ranks that were killed.
  std::vector<std::string> losses_;
  std::optional<int> exited_status_, killed_status_;
  bool asked_to_end_ = false, asked_twice_ = false;  // by signals or --timeout; the second time after all ranks have ended
  Clock::time_point asked_at_;
  std::optional<Clock::time_point> timeout_, kill_at_, drain_until_, output_until_;
};

}  // namespace tuttirun
