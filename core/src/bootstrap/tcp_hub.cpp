// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_hub.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <unordered_map>

#include "bootstrap/frame_stream.hpp"
#include "bootstrap/introduction.hpp"
#include "bootstrap/rank_list.hpp"
#include "bootstrap/socket_address.hpp"
#include "bootstrap/tcp_guest.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

// Connections in the middle of a handshake, beyond one per rank; the oldest gives way to a new one.
constexpr size_t kMaxStrangers = 256;
// How much of one member's bytes is read before others get their turn.
constexpr size_t kReadTurn = 1 << 20;
constexpr std::chrono::milliseconds kLastWords(500);
// How often, in milliseconds, a gather asks the control plane whether a rank is lost.
constexpr int kControlLook = 50;
// How long rank 0 awaits ranks that have not come yet, to tell them that the meeting is over.
constexpr std::chrono::milliseconds kLatecomers(1000);
constexpr uint64_t kMaxFromSpoke = kMaxContribution + 64;

class TcpHub final : public Bootstrap {
 public:
  TcpHub(TcpHubConfig config, const Deadline& deadline)
      : Bootstrap(0, config.nranks, config.secret), config_(std::move(config)), members_(nranks_), given_(nranks_) {
    epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) throw Failure(TUTTI_SYSTEM, me() + "epoll_create1: " + std::strerror(errno));
    watch(config_.listener.get(), EPOLL_CTL_ADD, false);
    meet(deadline);
  }

  ~TcpHub() override {
    try {
      if (!announced_) broadcast(FrameKind::goodbye, "");
      flush_all(Deadline(kLastWords));
    } catch (...) {  // the others then see an end without a goodbye
    }
  }

 protected:
  std::string meeting_problem() override {
    step(0);
    return failure_ ? lost().text : "";
  }

  SocketAddress meeting_address() const override { return config_.address; }

  void end_meeting(tutti_status, const std::string& reason) noexcept override try {
    broadcast(FrameKind::failure, WireWriter().u32(0).text(reason).take());
    announced_ = true;
    flush_all(Deadline(kLastWords));
  } catch (...) {
  }

  std::vector<std::string> exchange(const std::string& mine, std::chrono::nanoseconds timeout) override {
    const Deadline deadline(timeout);
    give(0, mine);
    while (arrived_ < nranks_) {
      if (failure_ || control_->failed()) throw lost();
      for (uint32_t r = 1; r < nranks_; ++r)
        if (members_[r].left && !given_[r])
          give_up(Failure(TUTTI_PEER_FAILED,
                          "bootstrap: rank " + std::to_string(r) + " has left while others wait for it in all_gather"));
      if (deadline.passed()) give_up(Failure(TUTTI_TIMEOUT, "bootstrap: " + missing_text(deadline.text())));
      step(deadline.poll_ms(kControlLook));
    }
    std::vector<std::string> all;
    all.reserve(nranks_);
    WireWriter result;
    result.u64(sequence_++);
    for (auto& bytes : given_) {
      result.text(*bytes);
      all.push_back(std::move(*bytes));
      bytes.reset();
    }
    arrived_ = 0;
    broadcast(FrameKind::result, result.take());
    if (!flush_all(deadline))
      give_up(Failure(TUTTI_TIMEOUT, me() + "all_gather timed out after " + deadline.text() + ": " +
                                         rank_list(unsent()) + " did not take the result"));
    return all;
  }

 private:
  struct Member {
    std::unique_ptr<FrameStream> stream;  // while connected
    std::string who;
    bool left = false;
    bool writing = false;  // epoll watches for room
  };

  // ---- meeting ----

  void meet(const Deadline& deadline) {
    meeting_ = true;
    while (present_ + 1 < nranks_) {
      if (failure_) tell_latecomers(deadline);
      if (deadline.passed()) give_up(Failure(TUTTI_TIMEOUT, me() + missing_text(deadline.text()) + turned_away_text()));
      if (const std::string why = config_.hopeless ? config_.hopeless() : ""; !why.empty())
        give_up(Failure(TUTTI_PEER_FAILED, me() + why));
      step(deadline.poll_ms(kControlLook));
    }
    if (failure_) throw lost();
    meeting_ = false;
    config_.address = SocketAddress::local_of(config_.listener.get());
    config_.listener = Descriptor();
    guests_.clear();
    broadcast(FrameKind::start, "");
    if (!flush_all(deadline))
      give_up(Failure(TUTTI_TIMEOUT, me() + rank_list(unsent()) + " did not take the start within " + deadline.text()));
  }

  // A rank was lost before all had come. Those that are still on their way learn it here, if they come soon.
  [[noreturn]] void tell_latecomers(const Deadline& deadline) {
    const Deadline limit = deadline.sooner(kLatecomers);
    while (told_ + 1 < nranks_ && !limit.passed()) step(limit.poll_ms(20));
    flush_all(Deadline(kLastWords));
    throw lost();
  }

  void accept_all() {
    while (true) {
      Descriptor socket(::accept4(config_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        const int error = errno;
        if (error == EAGAIN || error == EWOULDBLOCK) return;
        if (out_of_resources(error)) {
          if (!guests_.empty()) {
            turn_away(guests_.begin()->first, "there are no descriptors left");
            continue;
          }
          give_up(Failure(TUTTI_NO_RESOURCES, me() + "cannot accept rank " + std::to_string(present_ + 1) + " of " +
                                                  std::to_string(nranks_ - 1) + ": " + std::strerror(error) +
                                                  "; rank 0 needs a descriptor for each rank (ulimit -n)"));
        }
        if (error == EBADF || error == EINVAL || error == ENOTSOCK)
          throw Failure(TUTTI_INTERNAL, me() + "accept: " + std::strerror(error));
        continue;  // that connection ended before it was accepted
      }
      if (guests_.size() >= kMaxStrangers + nranks_) turn_away(guests_.begin()->first, "there are too many of them");
      const int fd = socket.get();
      std::string from = SocketAddress::peer_of(fd).text();
      const uint64_t number = ++guests_seen_;
      guests_.try_emplace(number, std::move(socket), std::move(from), Deadline(config_.handshake_limit),
                          config_.tls.get());
      guest_of_[fd] = number;
      watch(fd, EPOLL_CTL_ADD, false);
    }
  }

  void turn_away(uint64_t number, const std::string& why) {
    const auto found = guests_.find(number);
    const std::string text = found->second.from() + ": " + why;
    // Who was a rank and refused says more than who just went away.
    if (!refused_) last_turned_away_ = text;
    ++turned_away_;
    config_.log(TUTTI_LOG_DEBUG, me() + "turned away " + text);
    guest_of_.erase(found->second.stream().fd());
    guests_.erase(found);
  }

  void talk(uint64_t number) {
    TcpGuest& guest = guests_.at(number);
    switch (guest.advance(config_.secret)) {
      case TcpGuest::State::talking:
        return;
      case TcpGuest::State::turned_away:
        return turn_away(number, guest.why());
      case TcpGuest::State::introduced:
        return admit(number);
    }
  }

  void refuse(uint64_t number, const Failure& why) {
    FrameStream& stream = guests_.at(number).stream();
    stream.put(FrameKind::error, encode_error(why));
    stream.flush();
    refused_ = false;
    turn_away(number, why.text);
    refused_ = true;
  }

  void admit(uint64_t number) {
    TcpGuest& guest = guests_.at(number);
    Hello hello = guest.hello();
    if (hello.rank == kAnyRank) number_newcomer(hello);
    const std::string who = "rank " + std::to_string(hello.rank) + " (" + hello.who + ", " + guest.from() + ")";
    if (hello.job != config_.job)
      return refuse(number,
                    Failure(TUTTI_MISMATCH, "bootstrap: " + who + " is of job \"" + hello.job + "\", rank 0 at " +
                                                config_.place + " of job \"" + config_.job + "\" (TUTTI_JOB)"));
    if (failure_) {
      ++told_;
      return refuse(number, lost());
    }
    if (hello.rank == kAnyRank)
      return refuse(number, Failure(TUTTI_MISMATCH, "bootstrap: the " + std::to_string(config_.newcomers) +
                                                        " newcomers that rank 0 at " + config_.place +
                                                        " awaits are all here; one more (" + hello.who + ") came"));
    std::optional<Failure> contradiction;
    if (hello.nranks != nranks_)
      contradiction.emplace(TUTTI_MISMATCH, "bootstrap: rank 0 (" + this_process() + ") has a world of " +
                                                std::to_string(nranks_) + " ranks, " + who + " one of " +
                                                std::to_string(hello.nranks));
    else if (hello.rank == 0 || hello.rank >= nranks_ || members_[hello.rank].stream || members_[hello.rank].left)
      contradiction.emplace(
          TUTTI_MISMATCH,
          "bootstrap: " + who + " came, but there is already rank " + std::to_string(hello.rank) + " (" +
              (hello.rank == 0 || hello.rank >= nranks_ ? this_process() : members_[hello.rank].who) + ")");
    if (contradiction) {
      refuse(number, *contradiction);
      if (config_.lenient) return;
      give_up(*contradiction);
    }
    Member& member = members_[hello.rank];
    member.stream = std::make_unique<FrameStream>(std::move(guest.stream()));
    member.who = hello.who + ", " + guest.from();
    const int fd = member.stream->fd();
    guests_.erase(number);
    guest_of_.erase(fd);
    rank_of_[fd] = hello.rank;
    ++present_;
    ++told_;
    member.stream->put(FrameKind::welcome, encode_welcome({0, hello.rank, nranks_}));
    push(hello.rank);
    serve(hello.rank);  // what it sent along with its hello is already read
  }

  // Gives whoever joins the first free one of the last ranks; without one it stays kAnyRank and is refused.
  void number_newcomer(Hello& hello) {
    for (uint32_t r = nranks_ - config_.newcomers; r < nranks_; ++r) {
      if (members_[r].stream || members_[r].left) continue;
      hello.rank = r;
      hello.nranks = nranks_;
      return;
    }
  }

  std::string turned_away_text() const {
    if (turned_away_ == 0) return "";
    return "; " + std::to_string(turned_away_) + (turned_away_ == 1 ? " connection was" : " connections were") +
           " turned away, for instance from " + last_turned_away_;
  }

  // ---- members ----

  void give(uint32_t rank, std::string bytes) {
    given_[rank] = std::move(bytes);
    ++arrived_;
  }

  void serve(uint32_t rank) {
    Member& member = members_[rank];
    try {
      member.stream->fill(kReadTurn);
      while (member.stream) {
        const auto frame = member.stream->next(kMaxFromSpoke);
        if (!frame) break;
        take(rank, *frame);
      }
    } catch (const Failure& failure) {
      return lose(rank, "broke the bootstrap protocol: " + failure.text);
    }
    if (!member.stream || !member.stream->ended()) return;
    if (member.left)
      drop(rank);
    else
      lose(rank,
           "died: " + member.who + " ended its connection to rank 0 without a goodbye (" + member.stream->end() + ")");
  }

  void take(uint32_t rank, const Frame& frame) {
    WireReader reader(frame.payload, "frame");
    switch (frame.kind) {
      case FrameKind::gather: {
        const uint64_t sequence = reader.u64();
        if (sequence != sequence_ || given_[rank] || meeting_)
          throw Failure(TUTTI_MISMATCH, "it takes part in all_gather " + std::to_string(sequence) + ", expected is " +
                                            std::to_string(sequence_));
        return give(rank, std::string(reader.rest()));
      }
      case FrameKind::who:
        members_[rank].stream->put(FrameKind::missing, missing_text(""));
        return push(rank);
      case FrameKind::failure: {
        reader.u32();
        return lose(rank, reader.text());
      }
      case FrameKind::goodbye:
        members_[rank].left = true;
        return;
      default:
        throw Failure(TUTTI_MISMATCH, "it sent frame " + std::to_string(static_cast<uint32_t>(frame.kind)) +
                                          ", which only rank 0 sends");
    }
  }

  // Whom the meeting or the all_gather in progress waits for; `after`: how long it has, in the deadline's words.
  std::string missing_text(const std::string& after) const {
    std::vector<uint32_t> missing;
    for (uint32_t r = 0; r < nranks_; ++r)
      if (meeting_ ? r != 0 && !members_[r].stream : !given_[r]) missing.push_back(r);
    if (meeting_)
      return rank_list(missing) + " of " + std::to_string(nranks_) + " did not connect to " + config_.place +
             (after.empty() ? "" : " within " + after);
    return (after.empty() ? "" : "all_gather timed out after " + after + ": ") + rank_list(missing) + " did not arrive";
  }

  Failure lost() const {
    if (!failure_) return Failure(TUTTI_PEER_FAILED, "a rank is lost");  // the control plane knows which
    return Failure(TUTTI_PEER_FAILED, "rank " + std::to_string(failure_->first) + " " + failure_->second);
  }

  void drop(uint32_t rank) {
    rank_of_.erase(members_[rank].stream->fd());
    members_[rank].stream.reset();
    if (meeting_) --present_;
  }

  // The first loss is told to everybody.
  void lose(uint32_t rank, const std::string& reason) {
    drop(rank);
    if (failure_) return;
    failure_.emplace(rank, reason);
    broadcast(FrameKind::failure, WireWriter().u32(rank).text(reason).take());
  }

  [[noreturn]] void give_up(const Failure& why) {
    broadcast(FrameKind::error, encode_error(why));
    flush_all(Deadline(kLastWords));
    throw why;
  }

  // ---- sockets ----

  void watch(int fd, int operation, bool writing) {
    epoll_event event = {};
    event.events = EPOLLIN | (writing ? static_cast<uint32_t>(EPOLLOUT) : 0u);
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
      throw Failure(TUTTI_SYSTEM, me() + "epoll_ctl: " + std::strerror(errno));
  }

  void push(uint32_t rank) {
    Member& member = members_[rank];
    if (!member.stream) return;
    member.stream->flush();
    if (member.stream->unsent() == member.writing) return;
    member.writing = member.stream->unsent();
    watch(member.stream->fd(), EPOLL_CTL_MOD, member.writing);
  }

  void broadcast(FrameKind kind, const std::string& payload) {
    const EncodedFrame frame = encode_frame(kind, payload);
    for (uint32_t r = 1; r < nranks_; ++r)
      if (members_[r].stream && !members_[r].left) {
        members_[r].stream->put(frame);
        push(r);
      }
  }

  std::vector<uint32_t> unsent() const {
    std::vector<uint32_t> ranks;
    for (uint32_t r = 1; r < nranks_; ++r)
      if (members_[r].stream && members_[r].stream->unsent()) ranks.push_back(r);
    return ranks;
  }

  bool flush_all(const Deadline& deadline) {
    while (!unsent().empty()) {
      if (deadline.passed()) return false;
      step(deadline.poll_ms(100));
    }
    return true;
  }

  void step(int timeout_ms) {
    epoll_event events[64];
    const int n = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      if (config_.listener && fd == config_.listener.get()) {
        accept_all();
      } else if (const auto guest = guest_of_.find(fd); guest != guest_of_.end()) {
        talk(guest->second);
      } else if (const auto member = rank_of_.find(fd); member != rank_of_.end()) {
        const uint32_t rank = member->second;
        push(rank);
        serve(rank);
      }
    }
    // Guests are in order of arrival and have equal limits.
    while (!guests_.empty() && guests_.begin()->second.limit().passed())
      turn_away(guests_.begin()->first,
                "it did not finish the handshake within " + guests_.begin()->second.limit().text());
  }

  TcpHubConfig config_;
  Descriptor epoll_;
  std::map<uint64_t, TcpGuest> guests_;  // by order of arrival
  std::unordered_map<int, uint64_t> guest_of_;
  uint64_t guests_seen_ = 0;
  uint64_t turned_away_ = 0;
  bool refused_ = false;  // one of them knew the secret and was refused
  std::string last_turned_away_;
  std::vector<Member> members_;  // [0] is unused
  std::unordered_map<int, uint32_t> rank_of_;
  uint32_t present_ = 0;  // members connected
  uint32_t told_ = 0;     // ranks that came, and know of a loss if there is one
  bool meeting_ = false;
  bool announced_ = false;
  uint64_t sequence_ = 0;  // of the all_gather in progress or next
  std::vector<std::optional<std::string>> given_;
  uint32_t arrived_ = 0;
  std::optional<std::pair<uint32_t, std::string>> failure_;
};

}  // namespace

std::unique_ptr<Bootstrap> open_hub(TcpHubConfig config, const Deadline& deadline) {
  return std::make_unique<TcpHub>(std::move(config), deadline);
}

}  // namespace tutti::core
