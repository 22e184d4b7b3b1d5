// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_spoke.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "bootstrap/authentication.hpp"
#include "bootstrap/frame_stream.hpp"
#include "bootstrap/tcp_guest.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

constexpr size_t kReadTurn = 4 << 20;
// How long rank 0 may take to say who is missing, after a deadline has passed.
constexpr std::chrono::milliseconds kWhoLimit(1000);
constexpr std::chrono::milliseconds kLastWords(200);
constexpr std::chrono::milliseconds kFirstPause(10), kLongestPause(200);
// How long one of several addresses is tried at first; each round doubles it.
constexpr std::chrono::milliseconds kFirstAttempt(2000), kLongestAttempt(30000);

// Nothing will come of this attempt; another may succeed.
struct Discouraged {
  std::string problem;
};

// Waits for the stream to have bytes, room for what is unsent, or an end.
void wait_for(FrameStream& stream, int timeout_ms) {
  pollfd waiting = {stream.fd(), static_cast<short>(POLLIN | (stream.unsent() ? POLLOUT : 0)), 0};
  ::poll(&waiting, 1, timeout_ms);
}

Failure read_error(const Frame& frame) {
  WireReader reader(frame.payload, "error frame");
  const auto status = static_cast<tutti_status>(reader.u32());
  return Failure(status < 0 ? status : TUTTI_INTERNAL, reader.text());
}

// The spoke's side of one handshake, blocking until `limit`.
class Introduction {
 public:
  Introduction(const TcpSpokeConfig& config, const HubPlace& place, const SocketAddress& address, const Deadline& limit)
      : config_(config), place_(place), address_(address), limit_(limit) {}

  // A stream to a hub that knows the secret and has welcomed this rank. Throws Discouraged, or Failure when all
  // further attempts are futile.
  FrameStream run() {
    std::string problem;
    Descriptor socket = connect_to(address_, limit_.poll_ms(1 << 30), problem);
    if (!socket) throw Discouraged{problem};
    FrameStream stream(std::move(socket));
    prove(stream);
    const Hello hello{place_.job, config_.rank, config_.nranks, this_process()};
    stream.put(FrameKind::hello, encode_hello(hello));
    std::optional<Frame> answer;
    while (!(answer = stream.next(kMaxHello * 4))) await(stream, 1, "its welcome");
    if (answer->kind == FrameKind::error) {
      Failure refusal = read_error(*answer);
      refusal.text = me() + "refused by rank 0: " + refusal.text;
      if (config_.retry_refusals) throw Discouraged{refusal.text};
      throw refusal;
    }
    if (answer->kind != FrameKind::welcome) hopeless({TUTTI_MISMATCH, me() + at() + " did not answer with a welcome"});
    return stream;
  }

 private:
  std::string me() const { return "rank " + std::to_string(config_.rank) + ": bootstrap: "; }
  std::string at() const { return "the process at " + address_.text(); }

  [[noreturn]] void hopeless(const Failure& failure) const {
    if (config_.lenient) throw Discouraged{failure.text};
    throw failure;
  }

  // Reads until `bytes` more than now are there: exactly what the handshake has at this point, never more.
  void await(FrameStream& stream, size_t bytes, const char* what) {
    const size_t target = stream.buffered() + bytes;
    while (true) {
      stream.flush();
      stream.fill(target - stream.buffered());
      if (stream.buffered() >= target) return;
      if (stream.ended()) throw Discouraged{at() + " went away before " + what + ": " + stream.end()};
      if (limit_.passed()) throw Discouraged{at() + " accepted the connection but did not send " + what + " in time"};
      wait_for(stream, limit_.poll_ms(1000));
    }
  }

  void prove(FrameStream& stream) {
    const std::string nonce = random_bytes(kNonceBytes);
    stream.put(std::make_shared<const std::string>(meeting_prefix() + nonce));
    await(stream, kPrefixBytes, "its part of the handshake");
    const std::string problem = prefix_problem(*stream.take(kPrefixBytes));
    if (!problem.empty()) hopeless({TUTTI_MISMATCH, me() + at() + " is not rank 0 of this job: " + problem});
    await(stream, kNonceBytes + kProofBytes, "its proof");
    const std::string hub_nonce = *stream.take(kNonceBytes);
    if (!equal_proof(*stream.take(kProofBytes), hub_proof(place_.secret, nonce, hub_nonce)))
      hopeless({TUTTI_MISMATCH, me() + at() + " does not know this rank's secret" +
                                    (place_.secret.empty() ? " (this rank has none)" : "") +
                                    ": give all ranks of the job the same TUTTI_SECRET, and each job its own port"});
    stream.put(std::make_shared<const std::string>(spoke_proof(place_.secret, nonce, hub_nonce)));
  }

  const TcpSpokeConfig& config_;
  const HubPlace& place_;
  const SocketAddress& address_;
  const Deadline& limit_;
};

struct Joined {
  FrameStream stream;
  std::string secret;
};

Joined find_hub(const TcpSpokeConfig& config, const Deadline& deadline) {
  auto pause = kFirstPause;
  auto attempt = kFirstAttempt;
  std::string where = "rank 0", problem;
  while (true) {
    const auto place = config.place(problem);
    if (place) where = place->text;
    const bool patient = place && place->addresses.size() == 1 && !config.lenient;
    for (size_t i = 0; place && i < place->addresses.size() && !(i > 0 && deadline.passed()); ++i) try {
        const Deadline limit = patient ? deadline : deadline.sooner(attempt);
        return {Introduction(config, *place, place->addresses[i], limit).run(), place->secret};
      } catch (const Discouraged& why) {
        problem = why.problem;
      }
    if (deadline.passed())
      throw Failure(TUTTI_TIMEOUT, "rank " + std::to_string(config.rank) + ": bootstrap: rank 0 was not met at " +
                                       where + " within " + deadline.text() + "; last attempt: " + problem +
                                       "; is rank 0 running, and is that port open?");
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
    pause = std::min(pause * 2, kLongestPause);
    if (place) attempt = std::min(attempt * 2, kLongestAttempt);
  }
}

class TcpSpoke final : public Bootstrap {
 public:
  TcpSpoke(const TcpSpokeConfig& config, Joined joined, const Deadline& deadline)
      : Bootstrap(config.rank, config.nranks, std::move(joined.secret)), stream_(std::move(joined.stream)) {
    epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN;
    if (!epoll_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream_->fd(), &event) != 0)
      throw Failure(TUTTI_SYSTEM, me() + "epoll: " + std::strerror(errno));
    await(FrameKind::start, deadline, "the meeting");
  }

  ~TcpSpoke() override {
    try {
      if (!announced_ && stream_) stream_->put(FrameKind::goodbye, "");
      flush(Deadline(kLastWords));
    } catch (...) {  // rank 0 then sees an end without a goodbye
    }
  }

  std::optional<std::pair<uint32_t, std::string>> poll_failure() override {
    pump();
    return failure_;
  }

  int wait_fd() const override { return epoll_.get(); }

  void announce_failure(const std::string& reason) noexcept override try {
    if (stream_) stream_->put(FrameKind::failure, WireWriter().u32(rank_).text(reason).take());
    announced_ = true;
    flush(Deadline(kLastWords));
  } catch (...) {
  }

 protected:
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
      return lose(0, "it broke the bootstrap protocol: " + failure.text);
    }
    if (!stream_->ended()) return;
    if (hub_left_)
      stream_.reset();
    else
      lose(0, "its control connection ended without a goodbye: " + stream_->end());
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

  void lose(uint32_t rank, const std::string& reason) {
    if (!failure_) failure_.emplace(rank, reason);
    stream_.reset();
  }

  Frame await(FrameKind kind, const Deadline& deadline, const char* doing) {
    while (true) {
      if (auto frame = pick(kind)) return std::move(*frame);
      if (deadline.passed()) return ask_who(kind, deadline, doing);
      if (stream_) wait_for(*stream_, deadline.poll_ms(1000));
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
    if (failure_)
      throw Failure(TUTTI_PEER_FAILED,
                    me() + "rank " + std::to_string(failure_->first) + " is lost: " + failure_->second);
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
  Descriptor epoll_;                   // stays a valid descriptor to poll when the stream is gone
  std::deque<Frame> inbox_;
  std::string missing_;
  uint64_t sequence_ = 0;
  bool hub_left_ = false;
  bool announced_ = false;
  std::optional<std::pair<uint32_t, std::string>> failure_;
};

}  // namespace

std::unique_ptr<Bootstrap> join_hub(TcpSpokeConfig config, const Deadline& deadline) {
  return std::make_unique<TcpSpoke>(config, find_hub(config, deadline), deadline);
}

}  // namespace tutti::core
