// SPDX-License-Identifier: Apache-2.0
//
// An elastic job: a rank dies, the others go on without it, a new process takes its place.
//
// Run it by itself: it starts four ranks. The ranks add numbers. Rank 2 kills itself in the third round. The survivors
// are told so by their next call, shrink, invite one newcomer, which rank 0 starts with the id, and grow to four ranks
// again. Some may have ended the round before and some not: they agree on the earliest, and do it again.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr int kRounds = 6;

// One round: everybody gives 1. The sum is the number of ranks that took part.
int add_up(const tutti::Communicator& comm) {
  std::vector<int32_t> data(1000, 1);
  comm.all_reduce(data, data, tutti::Op::sum);
  return data[0];
}

// The earliest round that somebody has still to do.
int agree_on_round(const tutti::Communicator& comm, int round) {
  comm.all_reduce<int32_t>({&round, 1}, {&round, 1}, tutti::Op::min);
  return round;
}

// Starts this program again, as a newcomer.
void start_newcomer(const std::string& id) {
  const pid_t child = fork();
  if (child != 0) return;
  setenv("ELASTIC_JOIN", id.c_str(), 1);
  execl("/proc/self/exe", "elastic", static_cast<char*>(nullptr));
  _exit(127);
}

tutti::Communicator go_on(const tutti::Communicator& broken) {
  tutti::Communicator survivors = broken.shrink();
  std::printf("rank %u: %s\n", broken.rank(), broken.error_text().c_str());
  std::printf("rank %u: goes on as rank %u of %u\n", broken.rank(), survivors.rank(), survivors.nranks());
  const std::string id = survivors.invite();
  if (survivors.rank() == 0) start_newcomer(id);
  return survivors.grow(id, 1);
}

// A newcomer has no round of its own.
void work(tutti::Communicator comm, int round, bool victim) {
  for (bool agreed = false; !agreed || round < kRounds;) try {
      if (!agreed) round = agree_on_round(comm, round);
      agreed = true;
      if (victim && round == 3) raise(SIGKILL);
      const int ranks = add_up(comm);
      if (comm.rank() == 0) std::printf("round %d: %d ranks\n", round, ranks);
      ++round;
    } catch (const tutti::Error&) {
      comm = go_on(comm);
      agreed = false;
    }
}

int rank_main() {
  if (const char* id = std::getenv("ELASTIC_JOIN")) {
    tutti::Communicator grown = tutti::Communicator::join(id);
    std::printf("the newcomer is rank %u of %u\n", grown.rank(), grown.nranks());
    work(std::move(grown), kRounds, false);
    return 0;
  }
  tutti::Communicator world;
  const bool victim = world.nranks() > 2 && world.rank() == 2;
  work(std::move(world), 0, victim);
  while (wait(nullptr) > 0) {
  }
  return 0;
}

}  // namespace

int main() try {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (std::getenv("TUTTI_RANK") || std::getenv("RANK") || std::getenv("ELASTIC_JOIN")) return rank_main();
  std::string folder = "/tmp/elastic-XXXXXX";
  if (!mkdtemp(folder.data())) return 1;
  constexpr int kRanks = 4;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (fork() != 0) continue;
    setenv("TUTTI_RANK", std::to_string(rank).c_str(), 1);
    setenv("TUTTI_WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    setenv("TUTTI_RENDEZVOUS", ("file:" + folder).c_str(), 1);
    execl("/proc/self/exe", "elastic", static_cast<char*>(nullptr));
    _exit(127);
  }
  int good = 0, status = 0;
  while (wait(&status) > 0) good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  rmdir(folder.c_str());
  std::printf("%d of %d ranks ended well\n", good, kRanks);
  return good == kRanks - 1 ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
