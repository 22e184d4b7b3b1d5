// SPDX-License-Identifier: Apache-2.0
#include "greeter.hpp"

#include <algorithm>
#include <cstring>
#include <tutti/sdk/endpoint.hpp>

#include "endpoint.hpp"

namespace tutti::ib {
namespace {

constexpr std::chrono::milliseconds kFirstPause{20}, kLongestPause{500};

std::chrono::milliseconds pause_after(uint32_t tries) {
  return std::min(kLongestPause, kFirstPause * (1 << std::min(tries, 5u)));
}

}  // namespace

Greeter::Greeter(Endpoint& endpoint, uint32_t rank, const uint8_t* secret, uint64_t secret_bytes)
    : endpoint_(endpoint), rank_(rank), shape_(endpoint.shape()), secret_(secret, secret_bytes) {
  fill_random(id_);
}

std::string Greeter::address() const {
  PeerAddress self;
  self.endpoint = id_;
  for (const auto& rail : endpoint_.rails()) self.rails.push_back(rail->describe());
  return self.encode();
}

Greeting Greeter::blank(Greet kind, uint32_t to, const Id& receiver, uint64_t attempt) const {
  Greeting g{};
  g.magic = kMagic;
  g.version = kVersion;
  g.kind = static_cast<uint32_t>(kind);
  g.from = rank_;
  g.to = to;
  g.sender = id_;
  g.receiver = receiver;
  g.shape = shape_;
  g.attempt = attempt;
  return g;
}

// Our own attempts
// -----------------------------------------------------------------------------------------------------

void Greeter::connect(uint32_t peer, std::string_view address) {
  const auto [at, is_new] = meetings_.try_emplace(peer);
  Meeting& meeting = at->second;
  if (meeting.error) {
    const sdk::Error error = *meeting.error;
    meetings_.erase(at);
    throw error;
  }
  if (!is_new) return;
  try {
    meeting.deadline = Clock::now() + endpoint_.settings().connect_timeout;
    meeting.next_try = meeting.deadline;
    meeting.to = PeerAddress::decode(address);
    if (!endpoint_.has_link(peer)) begin(peer, meeting);
  } catch (const sdk::Error& error) {
    meetings_.erase(at);
    throw sdk::Error(error.status(), endpoint_.says("connect to rank " + std::to_string(peer) + ": " + error.what()));
  }
}

void Greeter::begin(uint32_t peer, Meeting& meeting) {
  meeting.pairs = pair_rails(endpoint_.domain().rails(), meeting.to, endpoint_.settings());
  if (meeting.pairs.empty()) throw sdk::Error(TUTTI_NOT_SUPPORTED, no_pair(peer, meeting.to));
  meeting.hello = blank(Greet::kHello, peer, meeting.to.endpoint, uint64_t{random_number()} << 32 | random_number());
  for (const Pairing& pair : meeting.pairs) {
    Rail& rail = *endpoint_.rails()[pair.rail];
    meeting.paths.push_back(endpoint_.make_path(rail, static_cast<uint32_t>(meeting.paths.size())));
    meeting.ways.push_back(rail.make_address(pair.gid_index, pair.peer_gid, meeting.to.rails[pair.peer_rail].lid));
    meeting.hello.offers[meeting.hello.paths++] = meeting.paths.back()->offer(pair);
    endpoint_.log(TUTTI_LOG_DEBUG, "to rank " + std::to_string(peer) + ": " + rail.port().name() + " " +
                                       gid_text(pair.gid) + " -> " + gid_text(pair.peer_gid) + " (" + pair.why + ")");
  }
  hello_again(meeting, Clock::now());
}

std::string Greeter::no_pair(uint32_t, const PeerAddress& to) const {
  std::string own, theirs;
  for (const Port& port : endpoint_.domain().rails())
    for (const Gid& gid : port.gids)
      if (port.offers(gid, endpoint_.settings()))
        own += (own.empty() ? "" : ", ") + port.name() + " " + gid.text() + "/" + std::to_string(gid.prefix);
  for (const PeerRail& rail : to.rails)
    for (const RawGid& gid : rail.gids) theirs += (theirs.empty() ? "" : ", ") + gid_text(gid);
  return "no GID of this rank's rails (" + own + ") suits any of the peer's (" + theirs +
         "): they need one link layer and one address family" +
         (endpoint_.settings().gid_index ? "; TUTTI_IB_GID_INDEX leaves only one to choose from" : "");
}

void Greeter::hello_again(Meeting& meeting, Clock::time_point now) {
  const size_t i = meeting.tries % meeting.pairs.size();
  const Pairing& pair = meeting.pairs[i];
  const PeerRail& there = meeting.to.rails[pair.peer_rail];
  Rail& rail = *endpoint_.rails()[pair.rail];
  Greeting hello = meeting.hello;
  hello.reply_key = rail.describe().key;
  hello.way = static_cast<uint32_t>(i);
  secret_.sign(hello);
  rail.send_greeting(hello, meeting.ways[i].get(), there.greeter, there.key);
  meeting.next_try = now + pause_after(meeting.tries++);
}

void Greeter::fail(uint32_t peer, tutti_status status, const std::string& text) {
  const auto at = meetings_.find(peer);
  if (at == meetings_.end()) return;
  Meeting& meeting = at->second;
  meeting.paths.clear();
  meeting.ways.clear();
  meeting.error = sdk::Error(status, endpoint_.says("connect to rank " + std::to_string(peer) + ": " + text));
}

void Greeter::tick(Clock::time_point now) {
  for (auto& [peer, meeting] : meetings_) {
    if (meeting.error) continue;
    if (now >= meeting.deadline) {
      const std::string limit = std::to_string(endpoint_.settings().connect_timeout.count());
      std::string tried;
      for (const Pairing& p : meeting.pairs)
        tried += (tried.empty() ? "" : ", ") + endpoint_.rails()[p.rail]->port().name() + " " + gid_text(p.gid) +
                 " -> " + gid_text(p.peer_gid);
      fail(peer, TUTTI_TIMEOUT,
           "no answer within " + limit + " s (TUTTI_IB_CONNECT_TIMEOUT), asked " + std::to_string(meeting.tries) +
               " times over " + tried + "; does it still make progress, and is there a way between these addresses?");
    } else if (!meeting.paths.empty() && now >= meeting.next_try) {
      hello_again(meeting, now);
    }
  }
}

std::optional<Clock::time_point> Greeter::next_deadline() const {
  std::optional<Clock::time_point> first;
  for (const auto& [peer, meeting] : meetings_) {
    if (meeting.error) continue;
    const auto next = meeting.paths.empty() ? meeting.deadline : std::min(meeting.deadline, meeting.next_try);
    if (!first || next < *first) first = next;
  }
  return first;
}

// What arrives
// ---------------------------------------------------------------------------------------------------------

void Greeter::turned_away(const std::string& whom) {
  constexpr auto kQuiet = std::chrono::seconds(10);
  const auto now = Clock::now();
  const bool loud = now >= next_warning_;
  if (loud) next_warning_ = now + kQuiet;
  endpoint_.log(loud ? TUTTI_LOG_WARN : TUTTI_LOG_DEBUG, "turned away a greeting: " + whom);
}

void Greeter::on_greeting(Rail& rail, const Greeting& g, uint32_t from_qp) {
  if (g.magic != kMagic || g.version != kVersion)
    return turned_away("its first bytes are not version " + std::to_string(kVersion) + " of the ib transport's");
  if (g.to != rank_ || g.receiver != id_ || g.from >= shape_.nranks || g.from == rank_ || g.paths > kMaxRails)
    return turned_away("it is meant for another endpoint");
  if (!secret_.has_signed(g))
    return turned_away("it says it is rank " + std::to_string(g.from) +
                       " but cannot prove that it knows the job's secret");
  if (g.kind == static_cast<uint32_t>(Greet::kHello))
    on_hello(rail, g, from_qp);
  else
    on_answer(g);
}

void Greeter::on_hello(Rail& rail, const Greeting& hello, uint32_t from_qp) {
  const uint32_t peer = hello.from;
  const auto answer = [&](Greet kind) { reply(rail, blank(kind, peer, hello.sender, hello.attempt), hello, from_qp); };
  if (hello.shape != shape_) {
    meetings_.try_emplace(peer);
    fail(peer, TUTTI_MISMATCH, differences(hello.shape, peer));
    return answer(Greet::kMismatch);
  }
  if (endpoint_.is_given_up(peer)) return answer(Greet::kGivenUp);
  if (endpoint_.has_link(peer)) {
    const auto known = answers_.find(peer);
    if (known != answers_.end() && known->second.attempt == hello.attempt)
      reply(rail, known->second.welcome, hello, from_qp);
    return;
  }
  const auto at = meetings_.find(peer);
  if (at != meetings_.end() && !at->second.paths.empty() && rank_ < peer) return;  // ours counts
  try {
    accept(rail, hello, from_qp);
  } catch (const sdk::Error& error) {
    endpoint_.log(TUTTI_LOG_ERROR, "cannot accept rank " + std::to_string(peer) + ": " + error.what());
    fail(peer, error.status(), error.what());
    answer(error.status() == TUTTI_INVALID_ARGUMENT ? Greet::kWrongPlace : Greet::kNoResources);
  }
}

void Greeter::accept(Rail& rail, const Greeting& hello, uint32_t from_qp) {
  const uint32_t peer = hello.from;
  Greeting welcome = blank(Greet::kWelcome, peer, hello.sender, hello.attempt);
  if (const auto at = meetings_.find(peer); at != meetings_.end()) {
    at->second.paths.clear();  // the rest goes on waiting for the link to get ready
    at->second.ways.clear();
    at->second.error.reset();
  }
  std::vector<std::unique_ptr<Path>> paths;
  for (uint32_t i = 0; i < hello.paths; ++i) {
    const PathOffer& offer = hello.offers[i];
    Pairing pair;
    pair.rail = offer.peer_rail;
    pair.peer_rail = offer.rail;
    pair.gid = offer.peer_gid;
    pair.peer_gid = offer.gid;
    if (offer.peer_rail >= endpoint_.rails().size() || offer.mtu < 1 || offer.mtu > 5)
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "it asks for rail " + std::to_string(offer.peer_rail));
    Rail& own = *endpoint_.rails()[pair.rail];
    const auto& gids = own.port().gids;
    const auto gid = std::find_if(gids.begin(), gids.end(), [&](const Gid& g) { return g.raw == pair.gid; });
    if (gid == gids.end())
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "it looks for " + gid_text(pair.gid) + " at " + own.port().name());
    pair.gid_index = gid->index;
    for (const Gid& g : gids)  // one address may be in the table twice, as RoCE v1 and v2
      if (g.raw == pair.gid && g.roce_v2) pair.gid_index = g.index;
    paths.push_back(endpoint_.make_path(own, i));
    paths.back()->connect(pair, offer);
    welcome.offers[welcome.paths++] = paths.back()->offer(pair);
  }
  if (paths.empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, "it offers no queue pair");
  answers_[peer] = {hello.attempt, welcome};
  endpoint_.establish(peer, std::move(paths), false);
  reply(rail, welcome, hello, from_qp);
}

// Back the way the greeting came.
void Greeter::reply(Rail& rail, Greeting greeting, const Greeting& hello, uint32_t from_qp) {
  if (hello.way >= hello.paths) return;
  const PathOffer& offer = hello.offers[hello.way];
  for (const Gid& gid : rail.port().gids) {
    if (gid.raw != offer.peer_gid || !rail.port().offers(gid, endpoint_.settings())) continue;
    secret_.sign(greeting);
    const AddressHandle& way = endpoint_.keep(rail.make_address(gid.index, offer.gid, offer.lid));
    return rail.send_greeting(greeting, way.get(), from_qp, hello.reply_key);
  }
}

void Greeter::on_answer(const Greeting& g) {
  const auto at = meetings_.find(g.from);
  if (at == meetings_.end() || at->second.paths.empty() || at->second.hello.attempt != g.attempt) return;
  switch (static_cast<Greet>(g.kind)) {
    case Greet::kWelcome:
      return on_welcome(g.from, at->second, g);
    case Greet::kMismatch:
      return fail(g.from, TUTTI_MISMATCH, differences(g.shape, g.from));
    case Greet::kGivenUp:
      return fail(g.from, TUTTI_PEER_FAILED, "it has given this rank up");
    case Greet::kWrongPlace:
      return fail(g.from, TUTTI_PEER_FAILED,
                  "it knows nothing of the rails or GIDs that its address tells of; the address is out of date");
    default:
      return fail(g.from, TUTTI_NO_RESOURCES, "it cannot make queue pairs; its log says why");
  }
}

void Greeter::on_welcome(uint32_t peer, Meeting& meeting, const Greeting& welcome) {
  if (welcome.paths != meeting.paths.size())
    return fail(peer, TUTTI_MISMATCH,
                "it answered with " + std::to_string(welcome.paths) + " queue pairs to " +
                    std::to_string(meeting.paths.size()));
  try {
    for (uint32_t i = 0; i < welcome.paths; ++i) {
      const PathOffer& offer = welcome.offers[i];
      if (offer.mtu < 1 || offer.mtu > 5) throw sdk::Error(TUTTI_MISMATCH, "it answered with a strange MTU");
      meeting.paths[i]->connect(meeting.pairs[i], offer);
    }
  } catch (const sdk::Error& error) {
    return fail(peer, error.status(), error.what());
  }
  std::vector<std::unique_ptr<Path>> paths = std::move(meeting.paths);
  for (AddressHandle& way : meeting.ways) endpoint_.keep(std::move(way));
  meetings_.erase(peer);
  endpoint_.establish(peer, std::move(paths), true);
}

std::string Greeter::differences(const Shape& theirs, uint32_t rank) const {
  return sdk::differences(rank_, rank,
                          {{"the number of ranks", shape_.nranks, theirs.nranks},
                           {"the number of lanes", shape_.lanes, theirs.lanes},
                           {"TUTTI_IB_CREDITS", shape_.credits, theirs.credits},
                           {"TUTTI_IB_EAGER_BYTES", shape_.eager_bytes, theirs.eager_bytes},
                           {"TUTTI_IB_FRAGMENT_BYTES", shape_.fragment_bytes, theirs.fragment_bytes},
                           {"the communicator's id", shape_.communicator, theirs.communicator}});
}

}  // namespace tutti::ib
