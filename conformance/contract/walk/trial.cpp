// SPDX-License-Identifier: Apache-2.0
#include "trial.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "contract/last_words.hpp"
#include "contract/test_settings.hpp"
#include "walker.hpp"

namespace tutti::conformance::contract {
namespace {

struct SharedWorld {
  World* world;
  SharedWorld() {
    void* memory = mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw CannotRun{"no shared memory for the ranks of a walk"};
    world = static_cast<World*>(memory);
  }
  ~SharedWorld() { munmap(world, sizeof(World)); }
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;
};

void play(Walker& walker, const Walk& walk, size_t at) {
  try {
    walker.play(walk.steps[at]);
  } catch (const Broken& b) {
    throw Broken(b.clause(), fmt::format("{} (at step {}: {})", b.what(), at + 1, text(walk.steps[at])));
  }
}

// One rank's steps, in a thread or process of its own. `stop`: another rank has failed. After an exception `walker` is
// still there: its endpoints stay open until the first failure was noted, because peers would see them close.
void walk_alone(std::unique_ptr<Walker>& walker, Bench& bench, const Walk& walk, World& world, uint32_t rank,
                const std::shared_ptr<WalkDomain>& of_process, const std::atomic<bool>& stop) {
  walker = std::make_unique<Walker>(bench, walk, world, rank, of_process);
  for (size_t i = 0; i < walk.steps.size() && !stop; ++i)
    if (walk.steps[i].rank == rank) play(*walker, walk, i);
  while (!stop && !walker->advance()) continue;
}

void walk_in_threads(Bench& bench, const Walk& walk, World& world) {
  bench.caps();
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr trouble;
  const std::shared_ptr<WalkDomain> domain = domain_of_process(bench, walk);
  std::vector<std::unique_ptr<Walker>> walkers(walk.ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < walk.ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        walk_alone(walkers[rank], bench, walk, world, rank, domain, stop);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!trouble) trouble = std::current_exception();
        stop = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (trouble) std::rethrow_exception(trouble);
}

std::string with(const std::string& settings) { return settings.empty() ? "" : " (with " + settings + ")"; }

// In a child process: plays, says what was wrong, and ends.
[[noreturn]] void perform(Bench bench, const Walk& walk, World& world, uint32_t rank, int descriptor, double patience) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  watch_for_signals(descriptor);
  bench.outcome_descriptor = descriptor;
  bench.patience = patience;
  std::unique_ptr<Walker> walker;
  std::string settings;
  try {
    if (walk.settings) settings = draw_settings(bench, walk.settings);
    if (walk.way == Walk::Way::processes && bench.caps().reach == TUTTI_REACH_PROCESS)
      throw NotOffered{"its reach is one process"};
    if (walk.way == Walk::Way::one_thread) walk_in_one_thread(bench, walk);
    if (walk.way == Walk::Way::threads) walk_in_threads(bench, walk, world);
    if (walk.way == Walk::Way::processes)
      walk_alone(walker, bench, walk, world, rank, domain_of_process(bench, walk), false);
    walker.reset();
    require_untouched();
    check_host();
    write_outcome(descriptor, "pass", "", "");
  } catch (const Broken& b) {
    uint32_t none = 0;
    world.first_to_fail.compare_exchange_strong(none, rank + 1);
    write_outcome(descriptor, "fail", b.clause().c_str(), (b.what() + with(settings)).c_str());
  } catch (const NotOffered& n) {
    write_outcome(descriptor, "not_supported", "", n.reason.c_str());
  } catch (const CannotRun& c) {
    write_outcome(descriptor, "not_run", "", c.reason.c_str());
  } catch (const std::exception& e) {
    write_outcome(descriptor, "fail", "", e.what());
  }
  _exit(0);
}

struct Child {
  pid_t pid = 0;
  int descriptor = -1;
  std::string said;
};

Finding parse(const std::string& text) {
  const size_t first = text.find('\n'), second = first == std::string::npos ? first : text.find('\n', first + 1);
  if (second == std::string::npos) return {"crash", "", "a process ended without a word"};
  if (text.substr(0, first) == "pass") return {};
  return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

// The first word of a child that is not "pass". What the others say after it may be a consequence: that it is lost.
Finding listen(std::vector<Child>& children, const World& world, double seconds) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Finding later;
  for (size_t open = children.size(); open > 0;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    std::vector<pollfd> polls;
    for (const Child& child : children) polls.push_back({child.descriptor, POLLIN, 0});
    if (left.count() <= 0 || poll(polls.data(), polls.size(), static_cast<int>(left.count())) == 0) {
      if (!later.verdict.empty()) return later;
      return {"timeout", "", fmt::format("a random walk has not ended after {:.0f} s", seconds)};
    }
    for (size_t i = 0; i < children.size(); ++i) {
      if (!polls[i].revents) continue;
      char part[4096];
      const ssize_t n = read(children[i].descriptor, part, sizeof part);
      if (n > 0) children[i].said.append(part, static_cast<size_t>(n));
      if (n > 0) continue;
      ::close(std::exchange(children[i].descriptor, -1));
      --open;
      if (world.dead[i] && children[i].said.empty()) continue;  // killed on purpose
      Finding finding = parse(children[i].said);
      if (finding.verdict.empty()) continue;
      if (finding.verdict != "fail" || world.first_to_fail == i + 1) return finding;
      if (later.verdict.empty()) later = std::move(finding);
      deadline = std::min(deadline, Clock::now() + std::chrono::seconds(2));
    }
  }
  return later;
}

}  // namespace

void walk_in_one_thread(Bench& bench, const Walk& walk) {
  const SharedWorld shared;
  const std::shared_ptr<WalkDomain> domain = domain_of_process(bench, walk);
  std::vector<std::unique_ptr<Walker>> walkers;
  for (uint32_t rank = 0; rank < walk.ranks; ++rank)
    walkers.push_back(std::make_unique<Walker>(bench, walk, *shared.world, rank, domain));
  for (size_t i = 0; i < walk.steps.size(); ++i) play(*walkers[walk.steps[i].rank], walk, i);
  for (bool done = false; !done;) {
    done = true;
    for (auto& walker : walkers) done &= walker->advance();
  }
}

Finding try_walk(const Bench& bench, const Walk& walk, double patience) {
  const SharedWorld shared;
  std::vector<Child> children(walk.way == Walk::Way::processes ? walk.ranks : 1);
  for (uint32_t rank = 0; rank < children.size(); ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw CannotRun{"pipe failed"};
    children[rank].descriptor = ends[0];
    children[rank].pid = fork();
    if (children[rank].pid < 0) throw CannotRun{"fork failed"};
    if (children[rank].pid == 0) perform(bench, walk, *shared.world, rank, ends[1], patience);
    ::close(ends[1]);
  }
  const Finding finding = listen(children, *shared.world, 40 + 4 * patience);
  for (Child& child : children) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    if (child.descriptor >= 0) ::close(child.descriptor);
  }
  return finding;
}

void shrink_walk(const Bench& bench, Walk& walk, Finding& finding, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  const double patience = std::min(bench.patience, 0.7);  // a step more that is left out is not worth long waits
  const auto out_of_time = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds;
  };
  const auto fails = [&](const Walk& smaller) {
    Finding found = try_walk(bench, smaller, patience);
    if (found.verdict != finding.verdict || found.clause != finding.clause) return false;
    finding = std::move(found);
    walk = smaller;
    return true;
  };
  for (size_t part = std::max<size_t>(walk.steps.size() / 2, 1); !out_of_time(); part = (part + 1) / 2) {
    bool smaller = false;
    for (size_t at = 0; at < walk.steps.size() && !out_of_time();) {
      Walk without = walk;
      const auto first = without.steps.begin() + static_cast<ptrdiff_t>(at);
      without.steps.erase(first, first + static_cast<ptrdiff_t>(std::min(part, without.steps.size() - at)));
      if (fails(without))
        smaller = true;
      else
        at += part;
    }
    if (part == 1 && !smaller) break;
  }
  if (walk.settings && !out_of_time()) {
    Walk without = walk;
    without.settings = 0;
    fails(without);
  }
  for (size_t i = 0; i < walk.steps.size() && !out_of_time(); ++i) {
    if (walk.steps[i].amount == 1) continue;
    Walk less = walk;
    less.steps[i].amount = 1;
    fails(less);
  }
}

void throw_finding(const Finding& finding) {
  if (finding.verdict == "not_supported") throw NotOffered{finding.text};
  if (finding.verdict == "not_run") throw CannotRun{finding.text};
  if (finding.verdict == "fail" && !finding.clause.empty()) throw Broken(finding.clause, finding.text);
  throw std::runtime_error(finding.text);
}

}  // namespace tutti::conformance::contract
