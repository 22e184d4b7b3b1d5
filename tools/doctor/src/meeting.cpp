// SPDX-License-Identifier: Apache-2.0
#include "meeting.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <sstream>
#include <tutti/tutti.hpp>

#include "reach.hpp"

namespace doctor {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;

constexpr int questions = 8;

// The way to a host, told by its first rank. Exchanged as bytes.
struct Invitation {
  uint64_t token = 0;
  uint32_t port = 0;         // 0: not a first rank, or it cannot listen
  char addresses[500] = {};  // separated by spaces
};

// The first rank of each host.
std::vector<uint32_t> first_ranks(const tutti::Communicator& world) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world.nranks(); ++rank)
    if (world.host(rank).local_rank == 0) ranks.push_back(rank);
  return ranks;
}

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
  std::string text;
  for (const std::string& address : own_addresses())
    if (text.size() + address.size() + 2 < sizeof mine.addresses) text += address + " ";
  std::memcpy(mine.addresses, text.data(), text.size());
  return mine;
}

std::vector<Invitation> exchange(const tutti::Communicator& world, const Invitation& mine) {
  std::vector<Invitation> all(world.nranks());
  world.all_gather<uint8_t>({reinterpret_cast<const uint8_t*>(&mine), sizeof mine},
                            {reinterpret_cast<uint8_t*>(all.data()), all.size() * sizeof mine});
  return all;
}

std::vector<Link> try_hosts(uint32_t rank, const std::vector<uint32_t>& first, const std::vector<Invitation>& all) {
  std::vector<Target> targets;
  std::vector<Link> tried, silent;  // tried: one for each target
  for (const uint32_t peer : first) {
    if (peer == rank) continue;
    const Invitation& to = all[peer];
    std::istringstream addresses(std::string(to.addresses, strnlen(to.addresses, sizeof to.addresses)));
    const size_t before = targets.size();
    for (std::string address; to.port != 0 && addresses >> address;) {
      targets.push_back({address, static_cast<uint16_t>(to.port), to.token, ""});
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

// Texts of all ranks, at rank 0.
std::vector<std::string> gather(const tutti::Communicator& world, const std::string& text) {
  const uint64_t mine = text.size();
  std::vector<uint64_t> sizes(world.nranks());
  world.all_gather<uint64_t>({&mine, 1}, sizes);
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += size;
  const bool root = world.rank() == 0;
  Bytes all(root ? total : 0);
  const std::span<const uint8_t> out(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  world.gather_v(out, all, root ? tutti::Blocks(sizes) : tutti::Blocks(), 0);
  std::vector<std::string> texts;
  uint64_t begin = 0;
  for (size_t rank = 0; root && rank < sizes.size(); begin += sizes[rank++])
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + begin, sizes[rank]);
  return texts;
}

std::string topology(const tutti::Communicator& world) {
  std::string text(1 << 16, '\0');
  uint64_t bytes = text.size();
  if (tutti_comm_topology(world.handle(), text.data(), &bytes) < 0 || bytes > text.size() || bytes == 0) return "";
  text.resize(bytes - 1);
  return text;
}

std::optional<Job> meet(Facts& mine) {
  const tutti::Communicator world;
  mine.rank = world.rank();
  mine.nranks = world.nranks();
  mine.host_number = world.host().host;
  Job job;
  if (mine.nranks == 1) {
    job.ranks.push_back(mine);
    return job;
  }
  const std::vector<uint32_t> first = first_ranks(world);
  const bool leads = world.host().local_rank == 0;
  std::unique_ptr<Listener> listener;
  std::vector<Link> links;
  if (first.size() > 1) {
    const std::vector<Invitation> all = exchange(world, leads ? invite(&listener, &mine) : Invitation{});
    if (leads) links = try_hosts(mine.rank, first, all);
  }
  for (const uint32_t peer : first) {
    if (mine.rank == 0 && peer != 0) job.clocks.push_back(ask_time(world, peer));
    if (mine.rank == peer && peer != 0) answer_time(world);
  }
  for (const std::string& text :
       gather(world, Json{{"facts", mine}, {"links", links}}.dump(-1, ' ', false, Json::error_handler_t::replace))) {
    const Json one = Json::parse(text);
    job.ranks.push_back(one.at("facts").get<Facts>());
    for (const Json& link : one.at("links")) job.links.push_back(link.get<Link>());
  }
  job.topology = topology(world);
  world.barrier();  // listeners serve until all have tried
  return mine.rank == 0 ? std::optional(std::move(job)) : std::nullopt;
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
