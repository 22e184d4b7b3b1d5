// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.hpp"

#include <cstdio>
#include <cstdlib>
#include <tutti/net/basic_tls.hpp>

#include "base/make_failure.hpp"
#include "bootstrap/environment.hpp"
#include "meeting.hpp"

namespace tutti::core {

namespace {

void check_identity(const Rendezvous& meeting) {
  if (meeting.nranks == -1)
    throw refusal("the rendezvous \"{}\" needs a rank and a number of ranks from the caller, and has none",
                  meeting.where);
  if (meeting.nranks < 1 || meeting.nranks > kMaxRanks)
    throw refusal("a world of {} ranks was asked for; 1 to {} are possible", meeting.nranks, kMaxRanks);
  if (meeting.rank < 0 || meeting.rank >= meeting.nranks)
    throw refusal("rank {} was given, in a world of {} ranks; ranks are 0 to {}", meeting.rank, meeting.nranks,
                  meeting.nranks - 1);
}

// The way to meet at a rendezvous with this prefix.
struct Scheme {
  std::string_view prefix;
  Meet* meet;
};
constexpr Scheme kSchemes[] = {{"tcp://", meet_by_tcp}, {"id:", meet_by_id}, {"file:", meet_in_folder}};

Meet& meeting_at(const std::string& where) {
  for (const auto& [prefix, meet] : kSchemes)
    if (where.starts_with(prefix)) return *meet;
  throw refusal("the rendezvous is \"{}\", expected env, tcp://HOST:PORT, id:..., file:/FOLDER or local:NAME", where);
}

}  // namespace

std::unique_ptr<Bootstrap> make_bootstrap(const Rendezvous& rendezvous, Deadline& deadline) {
  Rendezvous meeting = rendezvous;
  if (!meeting.environment) meeting.environment = [](const char* name) -> const char* { return std::getenv(name); };
  if (!meeting.log)
    meeting.log = [](uint32_t level, const std::string& text) {
      if (level <= TUTTI_LOG_WARN) std::fprintf(stderr, "tutti: %s\n", text.c_str());
    };
  if (!meeting.tls)
    meeting.tls = Tls::make("bootstrap", [&](const char* name) -> std::optional<std::string> {
      const char* value = meeting.environment(name);
      return value ? std::optional<std::string>(value) : std::nullopt;
    });

  if (meeting.all_gather != nullptr) {
    check_identity(meeting);
    return meet_by_callback(meeting, {}, deadline);
  }
  if (meeting.joins) {
    if (!meeting.where.starts_with("id:") || meeting.rank != -1)
      throw refusal(
          "a process that joins needs as its rendezvous the id:... of tutti_comm_invite, and neither rank nor nranks; "
          "the rendezvous is \"{}\"",
          meeting.where.substr(0, 16));
    return meet_by_id(meeting, {}, deadline);
  }
  if (meeting.where.starts_with("local:")) {
    check_identity(meeting);
    return meet_locally(meeting.where.substr(6), static_cast<uint32_t>(meeting.rank),
                        static_cast<uint32_t>(meeting.nranks), "", deadline, meeting.obstacle);
  }

  const bool launched = meeting.where.empty() || meeting.where == "env";
  const bool need_identity = meeting.rank == -1 && meeting.nranks == -1;
  if (!need_identity) check_identity(meeting);
  if (!need_identity && launched && meeting.nranks > 1)
    throw refusal(
        "rank {} of {} was given together with the environment's rendezvous, which sets the rank itself: leave both "
        "out, or give tcp://, id:, file: or local:",
        meeting.rank, meeting.nranks);
  const Environment environment = read_environment(meeting.environment, need_identity);
  if (environment.nranks == 0)
    throw refusal(
        "PMIX_RANK={} is set, and only PMIx knows the world's size: install Tutti's plugin pmix and leave "
        "TUTTI_RENDEZVOUS unset, or set TUTTI_RANK and TUTTI_WORLD_SIZE",
        environment.rank);
  if (need_identity) {
    meeting.rank = environment.rank;
    meeting.nranks = environment.nranks;
  }
  if (launched) meeting.where = environment.rendezvous;
  // No address is needed to meet oneself.
  if (launched && meeting.nranks == 1 && !meeting.where.starts_with("id:")) return meet_nobody(environment.secret);
  Meet& meet = meeting.where.empty() ? meet_by_tcp : meeting_at(meeting.where);
  return meet(meeting, environment, deadline);
}

}  // namespace tutti::core
