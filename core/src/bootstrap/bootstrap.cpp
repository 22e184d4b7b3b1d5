// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.hpp"

#include <cstdio>
#include <cstdlib>

#include "bootstrap/callback_meeting.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/folder_meeting.hpp"
#include "bootstrap/local_meeting.hpp"
#include "bootstrap/tcp_meeting.hpp"
#include "bootstrap/unique_id.hpp"

namespace tutti::core {

Bootstrap::~Bootstrap() = default;

std::vector<std::string> Bootstrap::all_gather(const std::string& mine, std::chrono::nanoseconds timeout) {
  if (!broken_.empty()) throw Failure(TUTTI_INVALID_USAGE, me() + "all_gather after one that failed: " + broken_);
  if (mine.size() > kMaxContribution)
    throw Failure(TUTTI_INVALID_ARGUMENT, me() + "all_gather of " + std::to_string(mine.size()) +
                                              " bytes from this rank; at most " + std::to_string(kMaxContribution) +
                                              " are allowed");
  try {
    return exchange(mine, timeout);
  } catch (const std::exception& failure) {
    broken_ = failure.what();
    throw;
  }
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

  if (meeting.all_gather != nullptr) {
    check_identity(meeting);
    return meet_by_callback(meeting);
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
    if (meeting.where.empty()) return meet_by_tcp(meeting, place_of_launcher(environment), environment, timeout);
  }
  if (starts_with(meeting.where, "tcp://")) {
    TcpPlace place{parse_host_port(std::string_view(meeting.where).substr(6), "rendezvous"), "the rendezvous", ""};
    if (meeting.nranks == 1) return alone(environment.secret);
    return meet_by_tcp(meeting, place, environment, timeout);
  }
  if (starts_with(meeting.where, "id:")) return meet_by_id(meeting, timeout);
  if (starts_with(meeting.where, "file:")) {
    if (meeting.nranks == 1) return alone(environment.secret);
    return meet_in_folder(meeting, meeting.where.substr(5), environment, timeout);
  }
  throw Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: the rendezvous \"" + meeting.where +
                                            "\" is none of env, tcp://HOST:PORT, id:..., file:/FOLDER, local:NAME");
}

}  // namespace tutti::core
