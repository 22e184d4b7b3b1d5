// SPDX-License-Identifier: Apache-2.0
//
// Groups made of a group, and other members for it. All of them meet over a store as the ranks of every group do, and
// have communicators of their own: no rank that is gone, and none that stays out, is waited for.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <variant>

#include "process_group.hpp"
#include "signals.hpp"

namespace tutti::torch {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

StorePtr part_of(const StorePtr& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

template <typename Ranks>
std::string ranks_of(const Ranks& ranks) {
  return c10::str(ranks.size() == 1 ? "rank " : "ranks ", c10::Join(", ", ranks));
}

template <typename Rank>
void check_ranks(const std::string& teller, const std::vector<Rank>& ranks, int size) {
  std::set<Rank> seen;
  for (const Rank rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < size, teller, "got rank ", rank, ", expected ranks of this group, 0 to ", size - 1);
    TORCH_CHECK(seen.insert(rank).second, teller, "got rank ", rank, " twice, expected each rank once");
  }
}

// The options that torch hands to a group that is made of another one.
std::string name_by(const OptionsPtr& options, const std::string& otherwise) {
  return options && !options->group_name.empty() ? "group " + options->group_name : otherwise;
}

}  // namespace

c10::intrusive_ptr<ProcessGroup> make_group(const StorePtr& store, int rank, int size, milliseconds timeout,
                                            const std::string& name) {
  return c10::make_intrusive<ProcessGroup>(store, rank, size, timeout, name, meet(*store, rank, size, timeout, name));
}

c10::intrusive_ptr<ProcessGroup> make_deferred_group(const StorePtr& store, int rank, int size, milliseconds timeout,
                                                     const std::string& name) {
  auto none = std::make_shared<Engine>(nullptr, name + " has no members yet: call reconfigure first");
  return c10::make_intrusive<ProcessGroup>(store, rank, size, timeout, name, std::move(none));
}

std::string ProcessGroup::teller(const char* name) const {
  return c10::str("tutti: rank ", getRank(), ": ", name_, ": ", name, ": ");
}

// ---- Groups made of this one -------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Backend> ProcessGroup::split(const StorePtr& store, const std::vector<int>& ranks,
                                                      const OptionsPtr& options) {
  const std::string who = teller("split");
  TORCH_CHECK(store, who, "got no store, expected one that all ranks of the new group have");
  check_ranks(who, ranks, getSize());
  const auto at = std::find(ranks.begin(), ranks.end(), getRank());
  if (at == ranks.end()) return nullptr;
  const Unlocked unlocked;
  return make_group(store, static_cast<int>(at - ranks.begin()), static_cast<int>(ranks.size()),
                    options ? options->timeout : milliseconds(timeout_), name_by(options, name_ + "'s split"));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::merge(const StorePtr& store, const OptionsPtr& options, const int& rank,
                                                      const int& size) {
  const std::string who = teller("merge");
  TORCH_CHECK(store, who, "got no store, expected one that all ranks of the new group have");
  TORCH_CHECK(rank >= 0 && rank < size, who, "this rank would be rank ", rank, " of ", size, ", expected 0 to ",
              size - 1, ": the store was used by a merge before, or more ranks than ", size,
              " have come; take a store, or a ", "PrefixStore, that is new");
  const Unlocked unlocked;
  return make_group(store, rank, size, options ? options->timeout : milliseconds(timeout_),
                    name_by(options, name_ + "'s merge"));
}

// The excluded ranks name the meeting: ranks that exclude others do not meet these, and each names who did not come.
c10::intrusive_ptr<c10d::Backend> ProcessGroup::shrink(const std::vector<int64_t>& excluded, int flags,
                                                       const OptionsPtr& options) {
  const std::string who = teller("shrink");
  check_ranks(who, excluded, getSize());
  TORCH_CHECK(!excluded.empty(), who, "no rank is excluded, expected at least one");
  TORCH_CHECK(std::find(excluded.begin(), excluded.end(), getRank()) == excluded.end(), who, "this rank is excluded, ",
              "expected a call of the others alone");
  TORCH_CHECK(flags == 0 || flags == 1, who, "got the flags ", flags,
              ", expected 0 (SHRINK_DEFAULT: what is under way ",
              "goes on to its end) or 1 (SHRINK_ABORT: it is aborted)");
  const Unlocked unlocked;
  std::vector<int64_t> gone = excluded;
  std::sort(gone.begin(), gone.end());
  const auto before = std::lower_bound(gone.begin(), gone.end(), getRank()) - gone.begin();
  const std::string without = " without " + ranks_of(gone);
  const std::string reason = c10::str("rank ", getRank(), " shrank ", name_, ": it goes on", without);
  if (flags == 1)
    end_by(reason);
  else
    wait_with_signals(UINT64_MAX, [this](uint64_t slice) { return engine_->drain(slice); });
  auto group = make_group(part_of(store_, c10::str("shrink/", c10::Join(",", gone))),
                          getRank() - static_cast<int>(before), getSize() - static_cast<int>(gone.size()),
                          options ? options->timeout : milliseconds(timeout_), name_by(options, name_ + without));
  engine_->close(reason);
  return group;
}

// ---- Other members -----------------------------------------------------------------------------------------

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10::intrusive_ptr<c10d::Work> ProcessGroup::reconfigure(const c10d::ReconfigureOptions& options) {
  using Handles = std::vector<c10d::ReconfigureHandle>;
  const std::string who = teller("reconfigure");
  Handles members;
  if (const auto* ordered = std::get_if<Handles>(&options.handles)) {
    members = *ordered;
  } else {
    const auto& any = std::get<std::unordered_set<c10d::ReconfigureHandle>>(options.handles);
    members.assign(any.begin(), any.end());
    std::sort(members.begin(), members.end());  // on all ranks alike
  }
  const auto at = std::find(members.begin(), members.end(), handle_);
  TORCH_CHECK(at != members.end(), who, "this group's handle, ", handle_, ", is not among the ", members.size(),
              " handles, expected those of all members: call get_reconfigure_handle on each");
  const std::set<std::string> distinct(members.begin(), members.end());
  TORCH_CHECK(distinct.size() == members.size(), who, "got ", members.size(), " handles of ", distinct.size(),
              " members, expected each once");
  TORCH_CHECK(!reconfigures_.exchange(true), who, "another thread is in reconfigure, expected one at a time");
  struct Leave {
    std::atomic<bool>& inside;
    ~Leave() { inside.store(false); }
  } const leave{reconfigures_};

  const Unlocked unlocked;
  const StorePtr place = part_of(store_, c10::str("reconfigure/", options.uuid));
  const std::string mine = c10::str(std::hash<std::string>()(c10::Join(" ", members)));
  TORCH_CHECK(used_uuids_.insert(options.uuid).second && place->compareSet("members", "", mine) == mine, who,
              "the uuid ", options.uuid,
              " was already used, by a call before or with other handles, or the handles in another order; ",
              "expected a fresh one, the same on all members");
  // Other members may still need what this rank has sent. So a group in which nothing is under way here ends only
  // when all have come.
  const std::shared_ptr<Engine> before = engine_.now();
  const auto rank = static_cast<int>(at - members.begin()), size = static_cast<int>(members.size());
  const std::string reason =
      c10::str("rank ", getRank(), " reconfigured ", name_, ": it goes on with ", size, " members");
  if (!before->drain(0)) end_by(reason);
  const std::shared_ptr<Engine> engine =
      meet(*place, rank, size, timeout_, name_, options.timeout.value_or(milliseconds(0)));
  watch(*engine);
  rank_ = rank;
  size_ = size;
  engine_.replace(engine);
  before->close(reason);
  return work_of_all(rank, {});
}
#endif

void ProcessGroup::abort() { end_by("the program called abort()"); }

// With what is under way, on all ranks.
void ProcessGroup::end_by(const std::string& reason) {
  const Unlocked unlocked;
  const std::shared_ptr<Engine> engine = engine_.now();
  engine->about_to_abort();
  forget_batches();
  engine->close(reason);
}

// ---- Hooks -------------------------------------------------------------------------------------------------

void ProcessGroup::watch(Engine& engine) const {
  if (timed_.load()) engine.time_operations();
  engine.on_break([hooks = hooks_] { hooks->call(); });
}

void AbortHooks::set(int64_t id, Hook hook) {
  auto last = std::make_shared<const Hook>(std::move(hook));
  const std::lock_guard lock(mutex_);
  hooks_[id].swap(last);
}

void AbortHooks::remove(int64_t id) {
  std::shared_ptr<const Hook> last;
  const std::lock_guard lock(mutex_);
  if (const auto at = hooks_.find(id); at != hooks_.end()) {
    last = std::move(at->second);
    hooks_.erase(at);
  }
}

// A hook that throws does not keep the others, and the abort, from going on.
void AbortHooks::call() const {
  std::map<int64_t, std::shared_ptr<const Hook>> hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks = hooks_;
  }
  for (const auto& [id, hook] : hooks) {
    try {
      (*hook)();
    } catch (const std::exception& problem) {
      TORCH_WARN("tutti: abort hook ", id, " failed: ", problem.what());
    }
  }
}

}  // namespace tutti::torch
