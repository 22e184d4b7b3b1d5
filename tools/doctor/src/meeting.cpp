// SPDX-License-Identifier: Apache-2.0
#include "meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <tutti/tutti.hpp>

#include "pairs.hpp"
#include "pieces.hpp"
#include "reach.hpp"
#include "texts/texts.hpp"

namespace doctor {
namespace {

using Json = nlohmann::json;

constexpr int questions = 8;

// A rank that does not move for so long ends the meeting on all of them. The others may wait meanwhile for the slowest
// in trying addresses and pairs.
constexpr uint64_t patience_ns = 60'000'000'000;

// The way to a host, told by its first rank.
struct Invitation {
  uint64_t token = 0;
  uint16_t port = 0;  // 0: it cannot listen
  std::vector<std::string> addresses;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Invitation, token, port, addresses)

// The first rank of each host.
std::vector<uint32_t> first_ranks(const tutti::Communicator& world) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world.nranks(); ++rank)
    if (world.host(rank).local_rank == 0) ranks.push_back(rank);
  return ranks;
}

// Without rank 0, which is the first one.
std::vector<uint32_t> others(const std::vector<uint32_t>& first) { return {first.begin() + 1, first.end()}; }

Invitation invite(std::unique_ptr<Listener>* listener, Facts* facts) {
  Invitation mine;
  try {
    *listener = std::make_unique<Listener>(
        facts->process.settings.contains("TUTTI_TCP_PORTS") ? facts->process.settings.at("TUTTI_TCP_PORTS") : "");
  } catch (const std::runtime_error& e) {
    facts->faults.push_back(e.what());
    return mine;
  }
  mine.token = (*listener)->token();
  mine.port = (*listener)->port();
  mine.addresses = own_addresses();
  return mine;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Collective. The invitations of the first ranks, in their order, at these ranks; nothing at the others.
std::vector<Invitation> exchange(const tutti::Communicator& world, const std::vector<uint32_t>& first,
                                 const std::optional<Invitation>& mine) {
  const std::vector<std::string> texts = gather(world, mine ? text_of(*mine) : "");
  if (!mine) return {};
  Json all = Json::array();
  for (const uint32_t rank : first)
    if (!texts.empty()) all.push_back(Json::parse(texts[rank]));
  return Json::parse(tell(world, text_of(all), others(first))).get<std::vector<Invitation>>();
}

std::vector<Link> try_hosts(uint32_t rank, const std::vector<uint32_t>& first, const std::vector<Invitation>& all) {
  std::vector<Target> targets;
  std::vector<Link> tried, silent;  // tried: one for each target
  for (size_t i = 0; i < first.size(); ++i) {
    const uint32_t peer = first[i];
    if (peer == rank) continue;
    const Invitation& to = all[i];
    const size_t before = targets.size();
    for (const std::string& address : to.port != 0 ? to.addresses : std::vector<std::string>()) {
      targets.push_back({address, to.port, to.token, ""});
      tried.push_back({rank, peer, address + ":" + std::to_string(to.port), ""});
    }
    if (targets.size() == before) silent.push_back({rank, peer, "HOST:0", "it tells no address and port"});
  }
  reach(targets);
  for (size_t i = 0; i < targets.size(); ++i) tried[i].problem = targets[i].problem;
  tried.insert(tried.end(), silent.begin(), silent.end());
  return tried;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Rank 0 asks a host's first rank for its time; of several answers the fastest is the most exact.
Clock ask_time(const tutti::Communicator& world, uint32_t peer) {
  Clock best{peer, 0, 1e9};
  double theirs = 0;
  for (int k = 0; k < questions; ++k) {
    const double asked = now();
    world.send(std::span<const double>(&asked, 1), peer);
    world.receive(std::span<double>(&theirs, 1), peer);
    const double answered = now(), uncertainty = (answered - asked) / 2;
    if (uncertainty < best.uncertainty) best = {peer, theirs - (asked + answered) / 2, uncertainty};
  }
  return best;
}

void answer_time(const tutti::Communicator& world) {
  double question = 0;
  for (int k = 0; k < questions; ++k) {
    world.receive(std::span<double>(&question, 1), 0);
    const double answer = now();
    world.send(std::span<const double>(&answer, 1), 0);
  }
}

// Collective. Each rank sends a byte to the next one of its host: a transport that is refused there shows.
void greet_neighbours(const tutti::Communicator& world) {
  std::vector<uint32_t> host;  // its ranks
  for (uint32_t rank = 0; rank < world.nranks(); ++rank)
    if (world.host(rank).host == world.host().host) host.push_back(rank);
  if (host.size() < 2) return;
  const size_t mine = world.host().local_rank, ranks = host.size();
  uint8_t out = 0, in = 0;
  const tutti_message both[] = {{&out, 1, TUTTI_UINT8, host[(mine + 1) % ranks], 0, TUTTI_SEND},
                                {&in, 1, TUTTI_UINT8, host[(mine + ranks - 1) % ranks], 0, TUTTI_RECEIVE}};
  world.run([&](tutti_comm* comm, tutti_request** request) {
    return tutti_exchange(comm, both, std::size(both), nullptr, request);
  });
}

tutti::Communicator make_world() {
  tutti_comm_config config = tutti::Communicator::defaults();
  config.timeout_ns = patience_ns;
  return tutti::Communicator(config);
}

// The report of a rank to rank 0.
struct Report {
  Facts facts;
  std::vector<Link> links;
  std::vector<Pair> pairs;
  std::string pair_failure;
  std::vector<std::string> refusals;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, facts, links, pairs, pair_failure, refusals)

// Collective. The reports of all ranks, in rank 0's job.
void collect(const tutti::Communicator& world, const Report& mine, Job* job) {
  for (const std::string& text : gather(world, text_of(mine))) {
    Report one = Json::parse(text).get<Report>();
    job->ranks.push_back(std::move(one.facts));
    job->links.insert(job->links.end(), one.links.begin(), one.links.end());
    job->pairs.insert(job->pairs.end(), one.pairs.begin(), one.pairs.end());
    if (job->pair_failure.empty()) job->pair_failure = one.pair_failure;
    texts::add_refusals(job->refusals, one.refusals);
  }
}

const std::string arrived_word = "arrived";

bool all_arrived(const Job& job) {
  return job.pair_failure.empty() &&
         std::ranges::all_of(job.pairs, [](const Pair& pair) { return pair.arrived == Pair::large_bytes; });
}

// Over several hosts: tries the others' addresses, compares clocks and sends large messages. No message between hosts
// but those of the check of pairs is larger than a piece.
void try_others(const tutti::Communicator& world, const std::vector<uint32_t>& first, Report* mine, Job* job) {
  const uint32_t rank = world.rank();
  const bool leads = world.host().local_rank == 0;
  std::unique_ptr<Listener> listener;
  const std::vector<Invitation> all =
      exchange(world, first, leads ? std::optional(invite(&listener, &mine->facts)) : std::nullopt);
  if (leads) mine->links = try_hosts(rank, first, all);
  for (const uint32_t peer : others(first)) {
    if (rank == 0) job->clocks.push_back(ask_time(world, peer));
    if (rank == peer) answer_time(world);
  }
  PairCheck check(world, first);
  if (leads) mine->pairs = check.run();
  mine->refusals = check.refusals();
  mine->pair_failure = check.failure();
  collect(world, *mine, job);
  // Listeners serve until all have tried, and messages of pairs are under way until all have their results.
  if (leads && tell(world, rank == 0 && all_arrived(*job) ? arrived_word : "", others(first)) == arrived_word)
    check.end();
}

std::optional<Job> meet(Facts& facts) {
  const tutti::Communicator world = make_world();
  facts.rank = world.rank();
  facts.nranks = world.nranks();
  facts.host_number = world.host().host;
  Job job;
  Report mine{facts, {}, {}, "", {}};
  if (world.host().hosts > 1)
    try_others(world, first_ranks(world), &mine, &job);
  else
    collect(world, mine, &job);
  try {
    greet_neighbours(world);
    job.topology = world.nranks() > 1 ? topology_text(world) : "";
    for (const std::string& text : gather(world, fmt::format("{}", fmt::join(texts::refusals(job.topology), "\n"))))
      texts::add_refusals(job.refusals, texts::split(text, '\n'));
  } catch (const tutti::Error& e) {  // what has been found stays
    job.failure = e.what();
  }
  return world.rank() == 0 ? std::optional(std::move(job)) : std::nullopt;
}

}  // namespace

std::optional<Job> examine(Facts mine) {
  try {
    return meet(mine);
  } catch (const std::exception& e) {
    Job alone;
    alone.ranks.push_back(std::move(mine));
    alone.failure = e.what();
    return alone;
  }
}

}  // namespace doctor
