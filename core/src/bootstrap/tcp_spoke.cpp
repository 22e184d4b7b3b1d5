// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_spoke.hpp"

#include <poll.h>

#include <deque>
#include <thread>

#include "bootstrap/frame_stream.hpp"
#include "bootstrap/introduction.hpp"
#include "bootstrap/tcp_guest.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

constexpr size_t kReadTurn = 4 << 20;
// How long rank 0 may take to say who is missing, after a deadline has passed.
constexpr std::chrono::milliseconds kWhoLimit(1000);
constexpr std::chrono::milliseconds kLastWords(200);
// How often, in milliseconds, a gather asks the control plane whether a rank is lost.
constexpr int kControlLook = 50;
constexpr std::chrono::milliseconds kFirstPause(10), kLongestPause(200);
// How long one of several addresses is tried at first; each round doubles it.
constexpr std::chrono::milliseconds kFirstAttempt(2000), kLongestAttempt(30000);

struct Joined {
  FrameStream stream;
  Welcome welcome;
  std::string secret;
};

Joined find_hub(const TcpSpokeConfig& config, const Deadline& deadline) {
  auto pause = kFirstPause;
  auto attempt = kFirstAttempt;
  std::string where = config.where, problem;
  while (true) {
    const auto place = config.place(problem);
    if (place) where = place->text;
    const bool patient = place && place->addresses.size() == 1 && !config.lenient;
    for (size_t i = 0; place && i < place->addresses.size() && !(i > 0 && deadline.passed()); ++i) try {
        const Deadline limit = patient ? deadline : deadline.sooner(attempt);
        const Caller caller{config.rank,    config.nranks,         0,         place->secret, place->job,
                            config.lenient, config.retry_refusals, config.tls};
        auto [stream, welcome] = introduce(caller, place->addresses[i], limit, deadline);
        return {std::move(stream), welcome, place->secret};
      } catch (const Discouraged& why) {
        problem = why.problem;
      }
    if (const std::string why = config.hopeless ? config.hopeless() : ""; !why.empty())
      throw Failure(TUTTI_PEER_FAILED, "rank " + std::to_string(config.rank) + ": bootstrap: " + why);
    if (deadline.passed())
      throw Failure(TUTTI_TIMEOUT, (config.rank == kAnyRank ? "a newcomer" : "rank " + std::to_string(config.rank)) +
                                       ": bootstrap: rank 0 was not met at " + where + " within " + deadline.text() +
                                       "; last attempt: " + problem + "; is rank 0 running, and is that port open?");
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
    pause = std::min(pause * 2, kLongestPause);
    if (place) attempt = std::min(attempt * 2, kLongestAttempt);
  }
}

class TcpSpoke final : public Bootstrap {
 public:
  TcpSpoke(Joined joined, const Deadline& deadline)
      : Bootstrap(joined.welcome.rank, joined.welcome.nranks, std::move(joined.secret)),
        stream_(std::move(joined.stream)) {
    address_ = SocketAddress::local_of(stream_->fd());
    await(FrameKind::start, deadline, "the meeting");
  }

  ~TcpSpoke() override {
    try {
      if (!announced_ && stream_) stream_->put(FrameKind::goodbye, "");
      flush(Deadline(kLastWords));
    } catch (...) {  // rank 0 then sees an end without a goodbye
    }
  }

 protected:
  std::string meeting_problem() override {
    pump();
    return failure_ ? lost().text : "";
  }

  SocketAddress meeting_address() const override { return address_; }

  void end_meeting(tutti_status, const std::string& reason) noexcept override try {
    if (stream_) stream_->put(FrameKind::failure, WireWriter().u32(rank_).text(reason).take());
    announced_ = true;
    flush(Deadline(kLastWords));
  } catch (...) {
  }

  std::vector<std::string> exchange(const std::string& mine, std::chrono::nanoseconds timeout) override {
    const Deadline deadline(timeout);
    if (stream_) stream_->put(FrameKind::gather, WireWriter().u64(sequence_).raw(mine).take());
    const Frame frame = await(FrameKind::result, deadline, "all_gather");
    WireReader reader(frame.payload, "result");
    const uint64_t sequence = reader.u64();
    if (sequence != sequence_)
      throw Failure(TUTTI_INTERNAL, me() + "rank 0 sent the result of all_gather " + std::to_string(sequence) +
                                        " instead of " + std::to_string(sequence_));
    ++sequence_;
    std::vector<std::string> all(nranks_);
    for (auto& bytes : all) bytes = reader.text();
    reader.end();
    return all;
  }

 private:
  // Reads what is there and sorts it: notices are noted, the rest waits in inbox_.
  void pump() {
    if (!stream_) return;
    try {
      stream_->flush();
      stream_->fill(kReadTurn);
      const uint64_t limit = nranks_ * (kMaxContribution + 8) + 8;
      while (const auto frame = stream_->next(limit)) take(*frame);
    } catch (const Failure& failure) {
      return lose(0, "broke the bootstrap protocol: " + failure.text);
    }
    if (!stream_->ended()) return;
    if (hub_left_)
      stream_.reset();
    else
      lose(0, "died: it ended its connection to rank " + std::to_string(rank_) + " without a goodbye (" +
                  stream_->end() + ")");
  }

  void take(const Frame& frame) {
    switch (frame.kind) {
      case FrameKind::failure: {
        WireReader reader(frame.payload, "failure notice");
        const uint32_t rank = reader.u32();
        if (!failure_) failure_.emplace(rank, reader.text());
        return;
      }
      case FrameKind::goodbye:
        hub_left_ = true;
        return;
      case FrameKind::start:
      case FrameKind::result:
      case FrameKind::missing:
      case FrameKind::error:
        inbox_.push_back(frame);
        return;
      default:
        throw Failure(TUTTI_MISMATCH, "it sent frame " + std::to_string(static_cast<uint32_t>(frame.kind)) +
                                          ", which rank 0 never sends");
    }
  }

  Failure lost() const {
    if (!failure_) return Failure(TUTTI_PEER_FAILED, "a rank is lost");  // the control plane knows which
    return Failure(TUTTI_PEER_FAILED, "rank " + std::to_string(failure_->first) + " " + failure_->second);
  }

  void lose(uint32_t rank, const std::string& reason) {
    if (!failure_) failure_.emplace(rank, reason);
    stream_.reset();
  }

  Frame await(FrameKind kind, const Deadline& deadline, const char* doing) {
    while (true) {
      if (auto frame = pick(kind)) return std::move(*frame);
      if (deadline.passed()) return ask_who(kind, deadline, doing);
      if (stream_) wait_for(*stream_, deadline.poll_ms(kControlLook));
    }
  }

  // The wanted frame when it is there; throws when it can no longer come.
  std::optional<Frame> pick(FrameKind kind) {
    pump();
    while (!inbox_.empty()) {
      Frame frame = std::move(inbox_.front());
      inbox_.pop_front();
      if (frame.kind == kind) return frame;
      if (frame.kind == FrameKind::error) throw read_error(frame);
      if (frame.kind == FrameKind::missing) missing_ = frame.payload;
    }
    if (failure_ || control_->failed()) throw lost();
    if (hub_left_) throw Failure(TUTTI_PEER_FAILED, me() + "rank 0 has left while others wait for it");
    return std::nullopt;
  }

  // The deadline has passed: rank 0 knows whom everybody waits for.
  Frame ask_who(FrameKind kind, const Deadline& deadline, const std::string& doing) {
    missing_.clear();
    stream_->put(FrameKind::who, "");
    const Deadline limit(kWhoLimit);
    while (missing_.empty() && !limit.passed()) {
      if (auto frame = pick(kind)) return std::move(*frame);
      if (missing_.empty()) wait_for(*stream_, limit.poll_ms(100));
    }
    if (missing_.empty()) missing_ = "rank 0 did not arrive (it does not answer either)";
    // The others learn from this rank's last words what it has waited for, and not just of its end.
    end_meeting(TUTTI_TIMEOUT, "gave up: " + doing + " timed out after " + deadline.text() + ": " + missing_);
    throw Failure(TUTTI_TIMEOUT, me() + doing + " timed out after " + deadline.text() + ": " + missing_);
  }

  void flush(const Deadline& deadline) {
    if (!stream_) return;
    for (stream_->flush(); stream_->unsent() && !deadline.passed(); stream_->flush()) {
      pollfd waiting = {stream_->fd(), POLLOUT, 0};
      ::poll(&waiting, 1, deadline.poll_ms(100));
    }
  }

  std::optional<FrameStream> stream_;  // to rank 0, while connected
  SocketAddress address_;
  std::deque<Frame> inbox_;
  std::string missing_;
  uint64_t sequence_ = 0;
  bool hub_left_ = false;
  bool announced_ = false;
  std::optional<std::pair<uint32_t, std::string>> failure_;
};

}  // namespace

std::unique_ptr<Bootstrap> join_hub(TcpSpokeConfig config, const Deadline& deadline) {
  return std::make_unique<TcpSpoke>(find_hub(config, deadline), deadline);
}

}  // namespace tutti::core
