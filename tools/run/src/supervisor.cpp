// SPDX-License-Identifier: Apache-2.0
#include "supervisor.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace tuttirun {
namespace {

// How long pipes are read after all ranks have ended, when somebody out of reach holds them open.
constexpr std::chrono::milliseconds kDrain(1000);

// A signal that comes sooner than so long after the first one is the same wish: timeout(1) sends two.
constexpr std::chrono::milliseconds kSecondTime(300);

bool ends_a_job(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

std::string name_of(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

// More than the clock can tell is as good as never: three years.
std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(std::min(value, 1e8)));
}

// As in "30 s" and "0.5 s".
std::string short_text(double seconds_) {
  char text[400];  // the largest one has 309 digits
  const auto end = std::to_chars(text, text + sizeof text, seconds_, std::chars_format::fixed).ptr;
  return std::string(text, end) + " s";
}

}  // namespace

Supervisor::Supervisor(const Job& job, const MeetingPlace& place, const NetworkHosts* network, Keeper& keeper,
                       int signals)
    : job_(job), place_(place), network_(network), keeper_(keeper), signals_(signals) {}

Supervisor::~Supervisor() {
  for (Rank& rank : ranks_)
    for (const Stream& stream : rank.streams) ::close(stream.fd);
}

int Supervisor::run() {
  if (job_.timeout > 0) timeout_ = Clock::now() + seconds(job_.timeout);
  if (!start_all()) signal_all(SIGKILL);
  while (!all_ended() || draining()) turn();
  kill_leftovers();
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) end_stream(stream);
    rank.streams.clear();
  }
  drain_until_.reset();
  while ((out_.pending() || err_.pending()) && !output_is_late()) turn();
  if (out_.pending())
    say(std::to_string(out_.waiting()) + " bytes of the ranks' output were not read" +
        (asked_twice_ ? "" : " within " + short_text(job_.grace) + " (--grace)") + " and are lost");
  if (out_.broken() != 0 && !status_) status_ = status_of_lost_output();
  const int survived = status_of_survivors();
  err_.flush();
  return status_.value_or(survived);
}

bool Supervisor::start_all() {
  for (uint32_t r = 0; r < job_.ranks; ++r) try {
      RankStart start{job_.command, environment_of(job_, place_, r), job_.input && r == 0};
      if (network_ != nullptr) {
        start.network_namespace = network_->descriptor(job_.host_of(r));
        start.cores = network_->cores(job_.host_of(r));
      }
      Rank rank{start_rank(start), std::nullopt, {}};
      keeper_.watch_group(rank.process.pid);
      const std::string label = job_.label ? "[" + std::to_string(r) + "] " : "";
      rank.streams.push_back({rank.process.out, LineOutput(label, out_)});
      rank.streams.push_back({rank.process.err, LineOutput(label, err_)});
      ranks_.push_back(std::move(rank));
    } catch (const StartFailure& failure) {
      const bool program = std::string_view(failure.step) == "exec";
      say((program ? "cannot run \"" + job_.command[0] + "\""
                   : "cannot start rank " + std::to_string(r) + ": " + failure.step) +
          ": " + std::strerror(failure.error) +
          (program && failure.error == ENOENT ? "; is its name right, and is it in PATH?" : ""));
      status_ = program && failure.error == ENOENT ? kExitNotFound : kExitCannotRun;
      return false;
    }
  return true;
}

void Supervisor::turn() {
  std::vector<pollfd> polled{{signals_, POLLIN, 0}};
  std::vector<Stream*> streams;
  for (Sink* sink : {&out_, &err_})
    if (sink->pending()) polled.push_back({sink->fd(), POLLOUT, 0});
  const size_t first = polled.size();
  for (Rank& rank : ranks_)
    for (Stream& stream : rank.streams)
      if (!stream.lines.sink().full()) {
        polled.push_back({stream.fd, POLLIN, 0});
        streams.push_back(&stream);
      }
  ::poll(polled.data(), polled.size(), wait_ms());
  for (size_t i = 0; i < streams.size(); ++i)
    if (polled[first + i].revents != 0) read_stream(*streams[i]);
  for (Rank& rank : ranks_)
    rank.streams.erase(
        std::remove_if(rank.streams.begin(), rank.streams.end(), [](const Stream& stream) { return stream.fd < 0; }),
        rank.streams.end());
  read_signals();
  look_for_ends();
  watch_clock();
  out_.flush();
  err_.flush();
  if (out_.broken() != 0 && !status_) end_all(SIGTERM, status_of_lost_output());
}

// A reader that went away, as in `tuttirun ... | head`, is not an error.
int Supervisor::status_of_lost_output() {
  if (out_.broken() == EPIPE) return 128 + SIGPIPE;
  say(std::string("standard output cannot be written: ") + std::strerror(out_.broken()) +
      ": the ranks' output is lost");
  return 1;
}

void Supervisor::read_stream(Stream& stream) {
  char bytes[64 << 10];
  const ssize_t n = ::read(stream.fd, bytes, sizeof bytes);
  if (n > 0) return stream.lines.feed(std::string_view(bytes, static_cast<size_t>(n)));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  end_stream(stream);
}

void Supervisor::end_stream(Stream& stream) {
  stream.lines.finish();
  ::close(stream.fd);
  stream.fd = -1;
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (signal == SIGTSTP) {
      signal_all(SIGSTOP);
      ::raise(SIGSTOP);
      signal_all(SIGCONT);
    } else if (ends_a_job(signal)) {
      const std::string text = name_of(signal) + " received";
      if (all_ended())
        say(text + "; all ranks have ended, and their output waits to be read");
      else
        say(text + " and passed on to all ranks" +
            (kill_at_ ? "" : "; those that have not ended after " + short_text(job_.grace) + " are killed"));
      ask_to_end(signal, 128 + signal);
    } else {
      signal_all(signal);
    }
  }
}

void Supervisor::look_for_ends() {
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].status) continue;
    siginfo_t info = {};
    if (::waitid(P_PID, static_cast<id_t>(ranks_[r].process.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0)
      note_end(r, info.si_code, info.si_status);
  }
  if (!all_ended()) return;
  if (!drain_until_ && reading()) {
    kill_leftovers();
    drain_until_ = Clock::now() + kDrain;
  }
  if (asked_to_end_ && !output_until_) {
    asked_at_ = Clock::now();
    output_until_ = asked_at_ + seconds(job_.grace);
  }
}

void Supervisor::note_end(uint32_t r, int code, int value) {
  Rank& rank = ranks_[r];
  const bool exited = code == CLD_EXITED;
  rank.status = exited ? value : 128 + value;
  if (*rank.status == 0 || status_) return;
  // The rank's last output comes before the verdict.
  for (Stream& stream : rank.streams)
    for (int i = 0; i < 16 && stream.fd >= 0; ++i) {
      pollfd ready = {stream.fd, POLLIN, 0};
      if (::poll(&ready, 1, 0) != 1) break;
      read_stream(stream);
    }
  const std::string how = exited ? "ended with exit status " + std::to_string(value)
                                 : "was killed by " + name_of(value) + " (" + ::sigdescr_np(value) +
                                       (code == CLD_DUMPED ? ", core dumped)" : ")");
  if (job_.survive) return note_loss(r, exited, how);
  uint32_t running = 0;
  for (const Rank& other : ranks_) running += !other.status;
  say("rank " + std::to_string(r) + " (process " + std::to_string(rank.process.pid) + ") " + how +
      (running == 0 ? "" : "; ending the other " + std::to_string(running)));
  end_all(SIGTERM, *rank.status);
}

void Supervisor::note_loss(uint32_t r, bool exited, const std::string& how) {
  std::optional<int>& first = exited ? exited_status_ : killed_status_;
  if (!first) first = ranks_[r].status;
  losses_.push_back("rank " + std::to_string(r) + " " + how);
  uint32_t running = 0;
  for (const Rank& other : ranks_) running += !other.status;
  say("rank " + std::to_string(r) + " (process " + std::to_string(ranks_[r].process.pid) + ") " + how +
      (running == 0 ? "" : "; still running: " + std::to_string(running) + " (--survive)"));
}

// Sums up, where ranks were lost and others went on. A rank that exits with another status than 0 says itself that the
// job failed; one that was killed is a loss which the others have survived if any of them ends with 0.
int Supervisor::status_of_survivors() {
  if (losses_.empty()) return 0;
  const auto good = std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.status == 0; });
  std::string list;
  for (size_t i = 0; i < losses_.size() && i < 16; ++i) list += (i == 0 ? "" : "; ") + losses_[i];
  if (losses_.size() > 16) list += "; and " + std::to_string(losses_.size() - 16) + " more";
  say(std::to_string(good) + " of " + std::to_string(ranks_.size()) + " ranks ended with status 0; " + list);
  if (exited_status_) return *exited_status_;
  return good > 0 ? 0 : killed_status_.value_or(0);
}

void Supervisor::say(const std::string& text) { err_.put("tuttirun: " + text + "\n"); }

void Supervisor::signal_all(int signal) {
  for (const Rank& rank : ranks_)
    if (!rank.status) ::kill(-rank.process.pid, signal);
}

// The first reason decides the exit status.
void Supervisor::end_all(int signal, int status) {
  if (!status_) status_ = status;
  signal_all(signal);
  if (!kill_at_) kill_at_ = Clock::now() + seconds(job_.grace);
}

// By somebody who waits for it: then the ranks' output waits no longer for its reader than --grace, or the next such wish.
void Supervisor::ask_to_end(int signal, int status) {
  asked_to_end_ = true;
  end_all(signal, status);
  if (!all_ended()) return;
  const auto now = Clock::now();
  if (!output_until_) {
    asked_at_ = now;
    output_until_ = now + seconds(job_.grace);
  } else if (now - asked_at_ > kSecondTime) {
    asked_twice_ = true;
    output_until_ = now;
  }
}

void Supervisor::watch_clock() {
  const auto now = Clock::now();
  if (timeout_ && now >= *timeout_) {
    timeout_.reset();
    if (all_ended()) {
      say("the job did not end within " + short_text(job_.timeout) +
          " (--timeout): all ranks have ended, and their output waits to be read");
      return ask_to_end(SIGTERM, kExitTimeout);
    }
    std::string running;
    uint32_t count = 0;
    for (uint32_t r = 0; r < ranks_.size(); ++r)
      if (!ranks_[r].status && ++count <= 16) running += (running.empty() ? "" : ", ") + std::to_string(r);
    if (count > 16) running += " and " + std::to_string(count - 16) + " more";
    say("the job did not end within " + short_text(job_.timeout) + " (--timeout); still running: rank " + running);
    ask_to_end(SIGTERM, kExitTimeout);
  }
  if (all_ended()) return;
  if (kill_at_ && now >= *kill_at_) {
    signal_all(SIGKILL);
    kill_at_ = now + seconds(1);
  }
}

int Supervisor::wait_ms() const {
  auto next = Clock::now() + std::chrono::seconds(60);
  const bool writing = out_.pending() || err_.pending();
  for (const auto& moment : {timeout_, all_ended() ? std::nullopt : kill_at_, writing ? std::nullopt : drain_until_, output_until_})
    if (moment) next = std::min(next, *moment);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::max<long long>(left, 0));
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.status.has_value(); });
}

bool Supervisor::reading() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.streams.empty(); });
}

// Output that is still to be read.
bool Supervisor::draining() const {
  if (drain_until_ && Clock::now() >= *drain_until_ && !out_.pending() && !err_.pending()) return false;
  return reading() && !(output_is_late() && (out_.pending() || err_.pending()));
}

bool Supervisor::output_is_late() const { return output_until_ && Clock::now() >= *output_until_; }

// Processes that the ranks started and left behind in their groups.
void Supervisor::kill_leftovers() {
  for (const Rank& rank : ranks_) ::kill(-rank.process.pid, SIGKILL);
}

}  // namespace tuttirun
