// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "bootstrap/rank_list.hpp"
#include "make_failure.hpp"
#include "tcp_star.hpp"

namespace tutti::core {
namespace {

// Connections in the middle of a handshake, beyond one per rank; the oldest gives way to a new one.
constexpr size_t kMaxStrangers = 256;
// The interval in milliseconds at which the caller is asked whether all ranks can still come.
constexpr int kObstacleLook = 50;
// After a loss rank 0 waits this long for ranks that have not come yet, to tell them of it.
constexpr std::chrono::milliseconds kLatecomers(1000);
// A failure's text: the longest that a rank says once it was welcomed.
constexpr uint64_t kMaxFromSpoke = 4096 + 64;

class TcpHub final : public TcpStar {
 public:
  TcpHub(const Rendezvous& rendezvous, MeetingPlace place, Descriptor listener, const OpenDoor& door,
         const Deadline& deadline)
      : TcpStar(0, static_cast<uint32_t>(rendezvous.nranks), place.secret, kMaxFromSpoke, rendezvous.log),
        rendezvous_(rendezvous),
        place_(std::move(place)),
        members_(nranks_) {
    address_ = SocketAddress::local_of(listener.get());
    try {
      members_[0].contact = door(secret_, address_);
    } catch (const std::exception& problem) {
      unfit_ = failure_of(problem);
      lose(0, lost(0, "cannot take part in the meeting: " + unfit_->text));
    }
    open_door({std::move(listener), secret_, rendezvous.handshake_limit, kMaxStrangers + nranks_, rendezvous.tls});
    meet(deadline);
  }
  ~TcpHub() override { say_goodbye(); }

 private:
  struct Member {
    std::string who, contact;
    bool left = false;
  };

  void meet(const Deadline& deadline) {
    std::optional<Deadline> latecomers;  // until then ranks that are still on their way learn here of a loss
    while (failure_ ? told_ + 1 < nranks_ : links_.size() + 1 < nranks_) {
      if (failure_ && !latecomers) latecomers = unfit_ ? deadline : deadline.sooner(kLatecomers);
      if (latecomers && latecomers->passed()) break;
      if (deadline.passed())
        give_up(
            make_failure(TUTTI_TIMEOUT, "{}{} within {}{}", me(), missing_text(), deadline.text(), turned_away_text()));
      if (const std::string why = rendezvous_.obstacle ? rendezvous_.obstacle() : ""; !why.empty())
        give_up(Failure(TUTTI_PEER_FAILED, me() + why));
      step(latecomers.value_or(deadline).poll_ms(kObstacleLook));
    }
    if (failure_) {
      flush(Deadline(kLastWords));
      throw unfit_ ? *unfit_ : *failure_;
    }
    close_door();
    const auto contacts_of = [&](uint32_t r) {
      return Contacts{members_[0].contact, members_[(r + 1) % nranks_].contact};
    };
    contacts_ = contacts_of(0);
    for (uint32_t r = 1; r < nranks_; ++r) put(r, FrameKind::contacts, encode(contacts_of(r)));
    if (!flush(deadline))
      give_up(make_failure(TUTTI_TIMEOUT, "{}the meeting timed out after {}: {} did not take what was sent", me(),
                           deadline.text(), rank_list(unsent())));
  }

  [[noreturn]] void give_up(const Failure& why) {
    broadcast(FrameKind::error, encode_error(why));
    flush(Deadline(kLastWords));
    throw why;
  }

  // ---- guests ----

  bool starved(int error) override {
    if (has_guests()) return true;
    give_up(make_failure(TUTTI_NO_RESOURCES,
                         "{}cannot accept rank {} of {}: {}; rank 0 needs a descriptor for each rank (ulimit -n)", me(),
                         links_.size() + 1, nranks_ - 1, std::strerror(error)));
  }

  void turned_away(const std::string& text) override {
    // A rank that was refused gives a better reason than one that only disconnected.
    if (!refused_) last_turned_away_ = text;
    ++turned_away_;
  }

  void turn_down(TcpGuest& guest, const Failure& why) {
    refuse(guest, why);
    refused_ = false;
    turned_away(guest.from() + ": " + why.text);
    refused_ = true;
  }

  void admit(TcpGuest& guest) override {
    Hello hello = guest.hello();
    if (hello.rank == kAnyRank) number_newcomer(hello);
    const std::string who = fmt::format("rank {} ({}, {})", hello.rank, hello.who, guest.from());
    const auto mismatch = [](const std::string& text) { return Failure(TUTTI_MISMATCH, "bootstrap: " + text); };
    if (hello.job != place_.job)
      return turn_down(guest, mismatch(fmt::format("{} is of job \"{}\", rank 0 at {} of job \"{}\" (TUTTI_JOB)", who,
                                                   hello.job, place_.text, place_.job)));
    if (failure_) {
      ++told_;
      return turn_down(guest, *failure_);
    }
    if (hello.rank == kAnyRank)
      return turn_down(guest, mismatch(fmt::format("the {} newcomers that rank 0 at {} awaits are all here; one more "
                                                   "({}) came",
                                                   rendezvous_.newcomers, place_.text, hello.who)));
    if (const std::string why = contradiction(hello, who); !why.empty()) {
      turn_down(guest, mismatch(why));
      if (place_.trust == MeetingPlace::Trust::stale) return;
      give_up(mismatch(why));
    }
    members_[hello.rank] = {hello.who + ", " + guest.from(), hello.contact};
    ++told_;
    if (!hello.problem.empty()) {
      lose(hello.rank, lost(hello.rank, "cannot take part in the meeting: " + hello.problem));
      return refuse(guest, *failure_);
    }
    welcome(guest, 0, hello.rank, nranks_);
  }

  // Why the rank cannot be one of these; "": it can.
  std::string contradiction(const Hello& hello, const std::string& who) const {
    if (hello.nranks != nranks_)
      return fmt::format("rank 0 ({}) has a world of {} ranks, {} one of {}", this_process(), nranks_, who,
                         hello.nranks);
    const bool impossible = hello.rank == 0 || hello.rank >= nranks_;
    if (!impossible && is_free(hello.rank)) return "";
    return fmt::format("{} came, but there is already rank {} ({})", who, hello.rank,
                       impossible ? this_process() : members_[hello.rank].who);
  }

  bool is_free(uint32_t rank) const { return !links_.count(rank) && !members_[rank].left; }

  // Gives a newcomer the first free one of the last ranks. Without one its rank stays kAnyRank, and it is refused.
  void number_newcomer(Hello& hello) {
    for (uint32_t r = nranks_ - rendezvous_.newcomers; r < nranks_; ++r) {
      if (!is_free(r)) continue;
      hello.rank = r;
      hello.nranks = nranks_;
      return;
    }
  }

  std::string turned_away_text() const {
    if (turned_away_ == 0) return "";
    return fmt::format("; {} turned away, for instance from {}",
                       turned_away_ == 1 ? "1 connection was" : fmt::format("{} connections were", turned_away_),
                       last_turned_away_);
  }

  // ---- members ----

  void take(uint32_t rank, const Frame& frame) override {
    switch (frame.kind) {
      case FrameKind::who:
        return put(rank, FrameKind::missing, missing_text());
      case FrameKind::error:
        return lose(rank, {TUTTI_PEER_FAILED, read_error(frame).text});
      case FrameKind::goodbye:
        links_.at(rank).left = members_[rank].left = true;
        return;
      default:
        throw make_failure(TUTTI_MISMATCH, "it sent frame {}, which only rank 0 sends",
                           static_cast<uint32_t>(frame.kind));
    }
  }

  // The ranks for which the meeting waits.
  std::string missing_text() const {
    std::vector<uint32_t> missing;
    for (uint32_t r = 1; r < nranks_; ++r)
      if (!links_.count(r)) missing.push_back(r);
    return fmt::format("{} of {} did not connect to {}", rank_list(missing), nranks_, place_.text);
  }

  void ended(uint32_t rank, const std::string& why, bool broke) override {
    if (!broke && members_[rank].left) return drop(rank);
    lose(rank, lost(rank, broke ? "broke the bootstrap protocol: " + why
                                : fmt::format("died: {} ended its connection to rank 0 without a goodbye ({})",
                                              members_[rank].who, why)));
  }

  // The first loss is told to all ranks.
  void lose(uint32_t rank, const Failure& why) {
    if (links_.count(rank)) drop(rank);
    if (failure_) return;
    failure_ = why;
    broadcast(FrameKind::error, encode_error(why));
  }

  const Rendezvous& rendezvous_;  // while it meets
  const MeetingPlace place_;
  uint64_t turned_away_ = 0;
  bool refused_ = false;  // one of them knew the secret and was refused
  std::string last_turned_away_;
  std::vector<Member> members_;   // by rank
  uint32_t told_ = 0;             // ranks that came, and know of a loss if there is one
  std::optional<Failure> unfit_;  // why this rank cannot take part
};

}  // namespace

std::unique_ptr<Meeting> open_hub(const Rendezvous& rendezvous, MeetingPlace place, Descriptor listener,
                                  const OpenDoor& door, const Deadline& deadline) {
  return std::make_unique<TcpHub>(rendezvous, std::move(place), std::move(listener), door, deadline);
}

}  // namespace tutti::core
