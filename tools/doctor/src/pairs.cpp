// SPDX-License-Identifier: Apache-2.0
#include "pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "texts/texts.hpp"

namespace doctor {
namespace {

using Steady = std::chrono::steady_clock;

constexpr uint32_t small_tag = 0, large_tag = 1;

bool has_come(std::optional<tutti::Request>& request) {
  try {
    return request && request->test();
  } catch (const tutti::Error&) {  // the communicator broke before
    return false;
  }
}

}  // namespace

// With one other host. Both messages are begun at once: the small one is sent first.
struct PairCheck::Exchange {
  std::vector<uint8_t> small, large;
  std::optional<tutti::Request> small_comes, large_comes;  // nothing: not begun
  tutti::Request small_leaves, large_leaves;
};

PairCheck::PairCheck(const tutti::Communicator& world, const std::vector<uint32_t>& first)
    : rank_(world.rank()), first_(first), sent_(Pair::large_bytes) {
  try {
    const bool leads = std::ranges::count(first, rank_) > 0;
    hosts_ = world.split(leads ? 0 : TUTTI_NO_COLOR, 0, "doctor.hosts");
  } catch (const tutti::Error& e) {
    failure_ = e.what();
  }
}

PairCheck::~PairCheck() {
  if (hosts_ && !ended_) hosts_->abort("some messages of the check have not arrived");
}

void PairCheck::end() {
  for (Exchange& e : exchanges_) {
    e.small_leaves.wait();
    e.large_leaves.wait();
  }
  ended_ = true;
}

std::vector<Pair> PairCheck::run() {
  std::vector<Pair> pairs;
  if (!hosts_) return pairs;
  const auto deadline = Steady::now() + pair_limit;
  try {
    exchanges_.resize(hosts_->nranks());
    for (uint32_t peer = 0; peer < hosts_->nranks(); ++peer) {
      if (peer == hosts_->rank()) continue;
      Exchange& e = exchanges_[peer];
      e.small.resize(Pair::small_bytes);
      e.large.resize(Pair::large_bytes);
      e.small_comes = hosts_->async().receive(e.small, peer, small_tag);
      e.large_comes = hosts_->async().receive(e.large, peer, large_tag);
    }
    const std::span<const uint8_t> large(sent_);
    for (uint32_t peer = 0; peer < hosts_->nranks(); ++peer) {
      if (peer == hosts_->rank()) continue;
      exchanges_[peer].small_leaves = hosts_->async().send(large.first(Pair::small_bytes), peer, small_tag);
      exchanges_[peer].large_leaves = hosts_->async().send(large, peer, large_tag);
    }
    for (Exchange& e : exchanges_)
      if (e.large_comes) e.large_comes->wait_for(std::max(deadline - Steady::now(), Steady::duration::zero()));
  } catch (const tutti::Error& e) {
    failure_ = e.what();
  }
  for (uint32_t peer = 0; peer < exchanges_.size(); ++peer) {
    if (peer == hosts_->rank()) continue;
    Exchange& e = exchanges_[peer];
    const uint64_t arrived = has_come(e.large_comes)   ? Pair::large_bytes
                             : has_come(e.small_comes) ? Pair::small_bytes
                                                       : 0;
    pairs.push_back({first_[peer], rank_, "", arrived});
  }
  for (const tutti_link_traffic& row : hosts_->traffic())
    for (Pair& pair : pairs)
      if (row.peer < first_.size() && pair.from == first_[row.peer]) pair.transport = row.transport;
  return pairs;
}

// The numbers of `hosts_` become the job's.
std::vector<std::string> PairCheck::refusals() const {
  if (!hosts_) return {};
  std::vector<std::string> lines = texts::refusals(topology_text(*hosts_));
  const uint32_t own = hosts_->rank();
  for (std::string& line : lines)
    for (uint32_t peer = 0; peer < hosts_->nranks(); ++peer) {
      const std::string pair = fmt::format("  {} - {}:", std::min(own, peer), std::max(own, peer));
      if (!line.starts_with(pair)) continue;
      line = fmt::format("  {} - {}:", first_[std::min(own, peer)], first_[std::max(own, peer)]) +
             line.substr(pair.size());
      break;
    }
  return lines;
}

std::string topology_text(const tutti::Communicator& comm) {
  std::string text(1 << 16, '\0');
  uint64_t bytes = text.size();
  if (tutti_comm_topology(comm.handle(), text.data(), &bytes) < 0 || bytes > text.size() || bytes == 0) return "";
  text.resize(bytes - 1);
  return text;
}

}  // namespace doctor
