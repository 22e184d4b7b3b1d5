// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.hpp"

#include <cstdio>
#include <cstdlib>

#include "bootstrap/callback_meeting.hpp"
#include "bootstrap/control_mesh.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/folder_meeting.hpp"
#include "bootstrap/local_meeting.hpp"
#include "bootstrap/tcp_meeting.hpp"
#include "bootstrap/unique_id.hpp"

namespace tutti::core {

namespace {

// Of a rank that has nobody to tell.
class LonePlane final : public ControlPlane {
 public:
  using ControlPlane::ControlPlane;

 protected:
  void spread(NoticeKind, std::string_view) override {}
  void reply(uint32_t, uint64_t, std::string_view) override {}
};

}  // namespace

Bootstrap::Bootstrap(uint32_t rank, uint32_t nranks, std::string secret)
    : rank_(rank), nranks_(nranks), secret_(std::move(secret)), control_(std::make_shared<LonePlane>(rank, nranks)) {}

Bootstrap::~Bootstrap() { control_->leave(false); }

std::vector<std::string> Bootstrap::all_gather(const std::string& mine, std::chrono::nanoseconds timeout) {
  if (!broken_.empty()) throw Failure(TUTTI_INVALID_USAGE, me() + "all_gather after one that failed: " + broken_);
  if (mine.size() > kMaxContribution)
    throw Failure(TUTTI_INVALID_ARGUMENT, me() + "all_gather of " + std::to_string(mine.size()) +
                                              " bytes from this rank; at most " + std::to_string(kMaxContribution) +
                                              " are allowed");
  try {
    std::vector<std::string> all = exchange(mine, timeout);
    // Who hands the bytes on is not trusted with what this rank itself has said.
    if (all.size() != nranks_ || all[rank_] != mine)
      throw Failure(TUTTI_MISMATCH, me() + "all_gather gave back other bytes than this rank gave");
    return all;
  } catch (const Failure& failure) {
    broken_ = failure.text;
    if (failure.status != TUTTI_PEER_FAILED) throw;
    // The meeting sees connections end; the control plane mostly knows more, if not at once.
    constexpr std::chrono::milliseconds patience(200);
    const auto cause = control_->await_cause(patience);
    if (!cause) throw;
    broken_ = cause->text();
    throw Failure(cause->status, broken_);
  } catch (const std::exception& failure) {
    broken_ = failure.what();
    throw;
  }
}

std::string Bootstrap::address() const {
  const SocketAddress seen = meeting_address();
  if (seen.family() == AF_UNSPEC) return "";
  const std::string text = seen.text(), address = text.substr(0, text.rfind(':'));
  return address.starts_with('[') ? address.substr(1, address.size() - 2) : address;
}

std::string Bootstrap::next_place() const { return make_unique_id(); }

void Bootstrap::announce_failure(tutti_status status, const std::string& reason) noexcept {
  control_->announce(rank_, status, reason);
  end_meeting(status, reason);
}

std::unique_ptr<Bootstrap> with_control(std::unique_ptr<Bootstrap> bootstrap, const Rendezvous& rendezvous,
                                        std::chrono::nanoseconds timeout) {
  Bootstrap& b = *bootstrap;
  if (b.nranks_ == 1) return bootstrap;
  ControlMeshConfig config;
  config.rank = b.rank_;
  config.nranks = b.nranks_;
  config.secret = b.secret_;
  config.address = b.meeting_address();
  config.everywhere = !b.secret_.empty();
  config.handshake_limit = rendezvous.handshake_limit;
  config.tls = rendezvous.tls;
  config.log = rendezvous.log;
  config.all_gather = [&](const std::string& mine) { return b.all_gather(mine, timeout); };
  config.meeting_problem = [&] { return b.meeting_problem(); };
  try {
    b.control_ = make_control_mesh(config, timeout);
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    b.end_meeting(failure.status, "cannot link the control plane: " + failure.text);
    throw failure;
  }
  return bootstrap;
}

namespace {

void check_identity(const Rendezvous& meeting) {
  if (meeting.nranks == -1)
    throw Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: the rendezvous \"" + meeting.where +
                                              "\" needs a rank and a number of ranks from the caller, and has none");
  if (meeting.nranks < 1 || meeting.nranks > kMaxRanks)
    throw Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: a world of " + std::to_string(meeting.nranks) +
                                              " ranks was asked for; 1 to " + std::to_string(kMaxRanks) +
                                              " are possible");
  if (meeting.rank < 0 || meeting.rank >= meeting.nranks)
    throw Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: rank " + std::to_string(meeting.rank) +
                                              " was given, in a world of " + std::to_string(meeting.nranks) +
                                              " ranks; ranks are 0 to " + std::to_string(meeting.nranks - 1));
}

bool starts_with(const std::string& text, std::string_view start) { return text.compare(0, start.size(), start) == 0; }

std::unique_ptr<Bootstrap> alone(std::string secret) {
  return meet_locally("", 0, 1, std::move(secret), std::chrono::nanoseconds(0));
}

}  // namespace

std::unique_ptr<Bootstrap> make_bootstrap(const Rendezvous& rendezvous, std::chrono::nanoseconds timeout) {
  Rendezvous meeting = rendezvous;
  if (!meeting.environment) meeting.environment = [](const char* name) -> const char* { return std::getenv(name); };
  if (!meeting.log)
    meeting.log = [](uint32_t level, const std::string& text) {
      if (level <= TUTTI_LOG_WARN) std::fprintf(stderr, "tutti: %s\n", text.c_str());
    };
  if (!meeting.tls) meeting.tls = Tls::make(meeting.environment);

  if (meeting.all_gather != nullptr) {
    check_identity(meeting);
    return with_control(meet_by_callback(meeting), meeting, timeout);
  }
  if (meeting.joins) {
    if (!starts_with(meeting.where, "id:") || meeting.rank != -1)
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    "bootstrap: who joins needs the id:... that the others were given by tutti_comm_invite as its "
                    "rendezvous, and neither rank nor nranks; the rendezvous is \"" +
                        meeting.where.substr(0, 16) + "\"");
    return with_control(meet_by_id(meeting, timeout), meeting, timeout);
  }
  if (starts_with(meeting.where, "local:")) {
    check_identity(meeting);
    return meet_locally(meeting.where.substr(6), static_cast<uint32_t>(meeting.rank),
                        static_cast<uint32_t>(meeting.nranks), "", timeout);
  }

  const bool launched = meeting.where.empty() || meeting.where == "env";
  const bool need_identity = meeting.rank == -1 && meeting.nranks == -1;
  if (!need_identity) {
    check_identity(meeting);
    if (launched && meeting.nranks > 1)
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    "bootstrap: rank " + std::to_string(meeting.rank) + " of " + std::to_string(meeting.nranks) +
                        " was given together with the environment's rendezvous, which tells "
                        "the rank itself: leave both out, or give tcp://, id:, file: or local:");
  }
  const Environment environment = read_environment(meeting.environment, need_identity);
  if (need_identity) {
    meeting.rank = environment.rank;
    meeting.nranks = environment.nranks;
  }
  if (launched) {
    meeting.where = environment.rendezvous;
    // No address is needed to meet oneself.
    if (meeting.nranks == 1 && !starts_with(meeting.where, "id:")) return alone(environment.secret);
    if (meeting.where.empty())
      return with_control(meet_by_tcp(meeting, place_of_launcher(environment), environment, timeout), meeting, timeout);
  }
  if (starts_with(meeting.where, "tcp://")) {
    TcpPlace place{parse_host_port(std::string_view(meeting.where).substr(6), "rendezvous"), "the rendezvous", ""};
    if (meeting.nranks == 1) return alone(environment.secret);
    return with_control(meet_by_tcp(meeting, place, environment, timeout), meeting, timeout);
  }
  if (starts_with(meeting.where, "id:")) return with_control(meet_by_id(meeting, timeout), meeting, timeout);
  if (starts_with(meeting.where, "file:")) {
    if (meeting.nranks == 1) return alone(environment.secret);
    return with_control(meet_in_folder(meeting, meeting.where.substr(5), environment, timeout), meeting, timeout);
  }
  throw Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: the rendezvous \"" + meeting.where +
                                            "\" is none of env, tcp://HOST:PORT, id:..., file:/FOLDER, local:NAME");
}

}  // namespace tutti::core
