// SPDX-License-Identifier: Apache-2.0
#include "family.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace tutti::conformance::contract {

enum Trouble : uint32_t { none, is_broken, is_not_offered, cannot_run };

// Everything that the processes share; a new anonymous mapping is all zeros.
struct Family::Shared {
  std::atomic<uint32_t> met[most];  // how many meetings a rank has come to
  std::atomic<uint32_t> dying[most];
  std::atomic<pid_t> pids[most];
  SharedMail::Pages mail;
  std::atomic<uint32_t> trouble;  // the first child's
  char clause[16];
  char text[3000];

  void tell(uint32_t kind, const std::string& of, const std::string& what) {
    std::strncpy(clause, of.c_str(), sizeof clause - 1);
    std::strncpy(text, what.c_str(), sizeof text - 1);
    trouble.store(kind);
  }
};

Family::Shared* Family::share(uint32_t n) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || n > most) throw CannotRun{"no shared memory for the ranks' processes"};
  return static_cast<Shared*>(memory);
}

Family::Family(Bench& bench, uint32_t n) : bench_(bench), n_(n), shared_(share(n)), mail_(shared_->mail) {
  shared_->pids[0] = getpid();
}

Family::~Family() {
  for (uint32_t rank = 1; rank < n_; ++rank)
    if (const pid_t child = shared_->pids[rank]; child > 0) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  munmap(shared_, sizeof(Shared));
}

void Family::run(Bench& bench, uint32_t n, const std::function<void(Family&, uint32_t)>& body) {
  Family family(bench, n);
  for (uint32_t rank = 1; rank < n; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw CannotRun{"fork failed"};
    if (child == 0) family.run_child(rank, body);
    family.shared_->pids[rank] = child;
  }
  try {
    body(family, 0);
  } catch (...) {
    family.rethrow_child();  // whoever said it first knows best
    throw;
  }
  for (uint32_t rank = 1; rank < n; ++rank) {
    int status = 0;
    if (family.shared_->pids[rank] > 0) waitpid(family.shared_->pids[rank], &status, 0);
    family.shared_->pids[rank] = 0;
    family.rethrow_child();
    if (!family.shared_->dying[rank] && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) _exit(1);  // it has spoken
  }
}

void Family::run_child(uint32_t rank, const std::function<void(Family&, uint32_t)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  me_ = rank;
  shared_->pids[rank] = getpid();
  try {
    body(*this, rank);
  } catch (const Broken& b) {
    shared_->tell(is_broken, b.clause(), fmt::format("(in the process of rank {}) {}", rank, b.what()));
  } catch (const NotOffered& n) {
    shared_->tell(is_not_offered, "", n.reason);
  } catch (const CannotRun& c) {
    shared_->tell(cannot_run, "", c.reason);
  } catch (const std::exception& e) {
    shared_->tell(cannot_run, "", e.what());
  }
  _exit(0);
}

void Family::rethrow_child() {
  const std::string clause = shared_->clause, text = shared_->text;
  switch (shared_->trouble.load()) {
    case is_broken:
      throw Broken(clause, text);
    case is_not_offered:
      throw NotOffered{text};
    case cannot_run:
      throw CannotRun{text};
    default:
      return;
  }
}

void Family::meet(Stage* progressing) {
  const uint32_t meeting = ++meetings_;
  shared_->met[me_] = meeting;
  const auto begin = std::chrono::steady_clock::now();
  for (uint32_t rank = 0; rank < n_; ++rank)
    while (shared_->met[rank] < meeting && !shared_->dying[rank]) {
      if (progressing) progressing->progress();
      std::this_thread::yield();
      if (shared_->trouble) {
        if (me_ == 0) rethrow_child();
        _exit(0);
      }
      if (me_ == 0 && rank > 0 && waitpid(shared_->pids[rank], nullptr, WNOHANG) > 0) {
        shared_->pids[rank] = 0;
        rethrow_child();
        if (shared_->met[rank] >= meeting) break;  // it was here and has ended
        _exit(1);                                  // it died of a signal and has said so
      }
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(60))
        throw CannotRun{fmt::format("rank {}'s process does not come to meeting {}", rank, meeting)};
    }
}

void Family::expect_death(uint32_t rank) { shared_->dying[rank] = 1; }
pid_t Family::pid(uint32_t rank) const { return shared_->pids[rank]; }

void Family::open_unconnected(Stage& stage, uint32_t rank, uint32_t lanes) {
  RankOptions options;
  options.rank = rank;
  options.nranks = n_;
  options.lanes = lanes;
  options.communicator = bench_.seed * 1009 + 17;
  options.mail = &mail_;
  stage.ranks.push_back(std::make_unique<Rank>(bench_, options));
  meet(&stage);
}

void Family::open(Stage& stage, uint32_t rank, uint32_t lanes) {
  open_unconnected(stage, rank, lanes);
  uint32_t missing = 0;
  stage.until(
      [&] {
        missing = 0;
        for (uint32_t peer = 0; peer < n_; ++peer) {
          if (peer == rank || stage[0].links[peer]) continue;
          const tutti_status status = stage[0].connect(peer);
          require(status >= 0, bench_.caps().reach >= TUTTI_REACH_HOST ? "T-37" : "T-5",
                  "reach says that ranks of different processes can connect; connect to rank {} returned {}: {}", peer,
                  status_text(status), last_error());
          missing += status != TUTTI_OK;
        }
        return missing == 0;
      },
      "T-37",
      [&] { return fmt::format("rank {}: {} connections to other processes do not come about", rank, missing); });
  meet(&stage);
}

}  // namespace tutti::conformance::contract
