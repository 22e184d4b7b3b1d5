// SPDX-License-Identifier: Apache-2.0
#include "walker.hpp"

#include <signal.h>

#include <thread>
#include <utility>

namespace tutti::conformance::contract {

WalkDomain::WalkDomain(Bench& bench) : bench_(bench) {
  const tutti_transport* t = bench.transport();
  tutti_domain_config of{};
  of.struct_size = sizeof of;
  const std::lock_guard lock(control_mutex());
  const tutti_status status = call("open_domain", true, [&] { return t->open_domain(t->self, &of, &domain_); });
  require(status == TUTTI_OK && domain_, "T-3", "open_domain returned {}: {}", status_text(status), last_error());
}

WalkDomain::~WalkDomain() {
  try {
    const std::lock_guard lock(control_mutex());
    plain_call("close_domain", true, [&] { bench_.transport()->close_domain(domain_); });
  } catch (...) {
  }
}

std::shared_ptr<WalkDomain> domain_of_process(Bench& bench, const Walk& walk) {
  return walk.domains == Walk::Domains::of_processes ? std::make_shared<WalkDomain>(bench) : nullptr;
}

Walker::Walker(Bench& bench, const Walk& walk, World& world, uint32_t rank, std::shared_ptr<WalkDomain> of_process)
    : bench_(bench),
      walk_(walk),
      world_(world),
      rank_(rank),
      random_(walk.seed * 7 + rank),
      domain_(std::move(of_process)),
      endpoints_(walk.communicators),
      stillness_(world, walk.ranks) {
  bench.caps();
  if (walk.domains == Walk::Domains::of_ranks) domain_ = std::make_shared<WalkDomain>(bench);
}

WalkEndpoint& Walker::endpoint(uint32_t communicator) {
  auto& one = endpoints_[communicator];
  if (!one) one = std::make_unique<WalkEndpoint>(bench_, walk_, world_, rank_, communicator,
                                              domain_ ? domain_->get() : nullptr);
  return *one;
}

void Walker::play(const Step& step) {
  ++world_.news;
  switch (step.act) {
    case Act::progress:
      for (uint32_t i = 0; i < step.amount; ++i)
        for (auto& one : endpoints_)
          if (one) one->turn(1 + (step.dice + i) % (step.dice % 3 == 0 ? 64 : 4));
      return;
    case Act::sleep:
      if (walk_.sleeps)
        for (auto& one : endpoints_)
          if (one) one->fall_asleep();
      return;
    case Act::die:
      for (auto& communicator : world_.communicators)
        for (uint32_t peer = 0; peer < walk_.ranks; ++peer) communicator.ends[rank_][peer] |= World::died;
      world_.dead[rank_] = 1;
      raise(SIGKILL);
      return;
    default:
      endpoint(step.communicator).play(step);
  }
}

// True: this rank's part of the stage is done.
bool Walker::work() {
  bool all = true, posted = false;
  for (auto& one : endpoints_) {
    if (stage_ == levelling) all &= one->level();
    if (stage_ == winding_up) all &= one->wind_up();
    posted |= one->has_posted();
  }
  if (stage_ == closing) {
    if (idle_ < random_() % 64) return false;  // not all at once
    ++world_.news;
    for (auto& one : endpoints_) one->close();
  }
  if (posted) idle_ = 0, ++world_.news;
  return all;
}

bool Walker::advance() {
  if (stage_ == done) return true;
  ++world_.turns[rank_];
  if (stage_ == walking) {
    for (uint32_t c = 0; c < walk_.communicators; ++c) endpoint(c).let_go_of_views();
    enter(levelling);
  }
  uint32_t records = 0;
  for (auto& one : endpoints_) records += one->turn(1 + random_() % 16);
  ++idle_;
  if (records > 0) idle_ = 0, ++world_.news;
  if (!worked_ && world_.all_reached(walk_.ranks, 2 * stage_ - 1) && (worked_ = work())) {
    world_.stages[rank_] = 2 * stage_;
    ++world_.news;
  }
  if (worked_ && world_.all_reached(walk_.ranks, 2 * stage_)) {
    enter(static_cast<Stage>(stage_ + 1));
    return stage_ == done;
  }
  if (idle_ > 64 && walk_.sleeps && !worked_ && stage_ != closing && random_() % 8 == 0)
    for (auto& one : endpoints_) one->fall_asleep();
  if (walk_.way != Walk::Way::one_thread && idle_ % 64 == 63) std::this_thread::yield();
  if (!worked_ && stillness_.lasts(patience())) complain();
  return false;
}

void Walker::enter(Stage stage) {
  for (auto& one : endpoints_) one->rouse();
  worked_ = false;
  stage_ = stage;
  world_.stages[rank_] = 2 * stage_ - 1;
  ++world_.news;
}

// Processes share the cores with each other and with strangers: on a busy machine one may long have no turn.
double Walker::patience() const { return bench_.patience * (walk_.way == Walk::Way::processes ? 8 : 1); }

void Walker::complain() const {
  std::vector<Missing> all;
  for (const auto& one : endpoints_)
    for (Missing& missing : one->missing()) all.push_back(std::move(missing));
  if (all.empty()) broken("T-11", "rank {}: nothing goes on for {:.1f} s", rank_, patience());
  std::string text;
  for (size_t i = 0; i < all.size() && i < 4; ++i) text += (i ? "; " : "") + all[i].text;
  broken(all[0].clause, "nothing goes on for {:.1f} s: {}", patience(), text);
}

}  // namespace tutti::conformance::contract
