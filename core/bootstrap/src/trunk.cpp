// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/trunk.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <list>
#include <thread>
#include <utility>

#include "base/make_failure.hpp"
#include "packet.hpp"

namespace tutti::core {
namespace {

// A rank that ends a branch waits this long for the others to take its last packets.
constexpr std::chrono::seconds kBranchLastWords(1);

// A packet of a branch on the trunk.
struct Carried {
  uint64_t number = 0;     // of the branch
  std::string_view bytes;  // the packet

  static void fields(auto& wire, auto& carried) { wire(carried.number, carried.bytes); }
};

// The trunks of this process that have no branch any more. Each has a thread, which frees it when the others need it no
// longer, or when the process ends.
class Retired {
 public:
  static Retired& process() {
    static Retired& all = *new Retired;
    // Registered after the handlers of OpenSSL, which the trunks use, and so called before them.
    static const int registered = std::atexit([] { all.end(); });
    (void)registered;
    return all;
  }

  void add(ControlPlane& control, std::function<void()> free) {
    const std::lock_guard lock(mutex_);
    std::erase_if(list_, [](One& one) {
      if (one.freed) one.thread.join();
      return one.freed;
    });
    One& one = list_.emplace_back();
    one.control = &control;
    try {
      one.thread = std::thread([this, &one, free] { live(one, free); });
    } catch (const std::exception&) {  // there can be no thread: others have to find another way
      list_.pop_back();
      free();
    }
  }

 private:
  struct One {
    ControlPlane* control = nullptr;  // nullptr: nobody waits for the others any more
    bool freed = false;
    std::thread thread;
  };

  void live(One& one, const std::function<void()>& free) {
    one.control->await_others_gone();
    {
      const std::lock_guard lock(mutex_);
      one.control = nullptr;
    }
    free();
    const std::lock_guard lock(mutex_);
    one.freed = true;
  }
  void end() {
    if (getpid() != owner_) return;  // a forked child, which has none of the threads
    {
      const std::lock_guard lock(mutex_);
      for (One& one : list_)
        if (one.control) one.control->abandon();
    }
    for (One& one : list_) one.thread.join();
  }

  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::list<One> list_;
};

}  // namespace

class Trunk::Branch final : public ControlPlane {
 public:
  Branch(Trunk& trunk, uint64_t number, std::vector<uint32_t> members, uint32_t rank)
      : ControlPlane(rank, static_cast<uint32_t>(members.size())),
        trunk_(trunk),
        number_(number),
        members_(std::move(members)) {}
  ~Branch() override {
    const std::lock_guard lock(trunk_.mutex_);
    trunk_.branches_.erase(number_);
  }

  // Bytes of a rank of the trunk, which is to blame for what they say.
  void take(uint32_t from, std::string_view bytes) noexcept {
    const auto sender = static_cast<uint32_t>(std::ranges::find(members_, from) - members_.begin());
    if (sender == nranks_) return;
    try {
      const Packet packet = decode_packet(bytes, nranks_);
      if (packet.origin != sender)
        throw make_failure(TUTTI_MISMATCH, "it sent a packet in the name of rank {}", packet.origin);
      deliver(packet);
    } catch (const std::exception& problem) {
      announce(sender, TUTTI_PEER_FAILED, std::string("broke the bootstrap protocol: ") + problem.what());
    }
  }
  void rank_died(const Loss& loss) {
    const auto member = static_cast<uint32_t>(std::ranges::find(members_, loss.rank) - members_.begin());
    if (member < nranks_) learn_of_death(member, loss.reason);
  }

  std::string who(uint32_t rank) const override { return trunk_.bootstrap_->control().who(members_[rank]); }

 protected:
  void send(Packet packet) override {
    const std::string bytes = encode(Carried{number_, encode(packet)});
    const bool flood = packet.route == Route::flood;
    for (uint32_t r = flood ? 0 : packet.target; r < (flood ? nranks_ : packet.target + 1); ++r)
      if (r != rank_) trunk_.bootstrap_->control().send_pair(members_[r], bytes);
  }
  void say_goodbye() override {
    const Deadline deadline(kBranchLastWords);
    for (uint32_t r = 0; r < nranks_; ++r)
      if (r != rank_) trunk_.bootstrap_->control().await_taken(members_[r], deadline.left());
  }

 private:
  Trunk& trunk_;
  const uint64_t number_;
  const std::vector<uint32_t> members_;  // by rank: the trunk's
};

std::shared_ptr<Trunk> Trunk::grow(std::unique_ptr<Bootstrap> bootstrap, const Deadline& deadline) {
  std::shared_ptr<Trunk> trunk(new Trunk(std::move(bootstrap)), retire);
  trunk->bootstrap_->control().carry_branches(*trunk);
  trunk->bootstrap_->all_gather("", deadline);
  return trunk;
}

// The last branch of this rank has ended.
void Trunk::retire(Trunk* trunk) {
  trunk->bootstrap_->control().announce_left();
  Retired::process().add(trunk->bootstrap_->control(), [trunk] { delete trunk; });
}

std::unique_ptr<Bootstrap> Trunk::branch(const std::shared_ptr<Trunk>& trunk, uint64_t number,
                                         std::vector<uint32_t> members, uint32_t rank, const Bootstrap& parent) {
  auto branch = std::make_shared<Branch>(*trunk, number, members, rank);
  {
    const std::lock_guard lock(trunk->mutex_);
    trunk->branches_[number] = branch;
  }
  // Earlier deaths; rank_died() tells of later ones.
  for (const Loss& loss : trunk->bootstrap_->control().losses())
    if (loss.gone) branch->rank_died(loss);
  return std::make_unique<Bootstrap>(std::move(branch), parent, trunk);
}

std::shared_ptr<Trunk::Branch> Trunk::find(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = branches_.find(number);
  return found == branches_.end() ? nullptr : found->second.lock();
}

void Trunk::pair_messages_came() {
  for (const PairMessage& message : bootstrap_->control().take_pair_messages()) try {
      carry(message);
    } catch (const std::bad_alloc&) {  // others come behind it
      carry(message);
    }
}

void Trunk::carry(const PairMessage& message) try {
  const auto carried = decode<Carried>(message.bytes, "packet of a branch");
  if (const auto branch = find(carried.number)) branch->take(message.from, carried.bytes);
} catch (const Failure& failure) {
  Loss loss;
  loss.rank = message.from;
  loss.reason = "broke the bootstrap protocol: " + failure.text;
  rank_died(loss);
}

void Trunk::rank_died(const Loss& loss) {
  std::vector<std::shared_ptr<Branch>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, branch] : branches_)
      if (auto alive = branch.lock()) all.push_back(std::move(alive));
  }
  for (const auto& branch : all) branch->rank_died(loss);
}

}  // namespace tutti::core
