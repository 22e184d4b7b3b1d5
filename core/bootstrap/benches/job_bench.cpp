// SPDX-License-Identifier: Apache-2.0
//
// job_bench [--processes | --model] [NRANKS ...]: makes a job of so many ranks on this host over TCP, lets it
// all_gather and ends it. Prints how long each phase takes from the last rank that completes the one before to the last
// that completes it, and the most that one rank sends and receives. --model: no sockets, only what ranks would send.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "traffic_model.hpp"

using namespace tutti::core;

namespace {

constexpr char kSecret[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
constexpr std::chrono::seconds kTimeout(300);

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Phases {
  double created = 0, gathered = 0, again = 0, ended = 0;
  Traffic begin, gather, end;
};

Rendezvous meeting_of(uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = "tcp://127.0.0.1:47113";
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.environment = [](const char* name) { return std::strcmp(name, "TUTTI_SECRET") == 0 ? kSecret : nullptr; };
  meeting.log = [](uint32_t, const std::string&) {};
  return meeting;
}

Phases run(uint32_t rank, uint32_t nranks) {
  Phases at;
  auto bootstrap = make_bootstrap(meeting_of(rank, nranks), kTimeout);
  at.created = seconds();
  at.begin = bootstrap->control().traffic();
  const std::string mine(64, static_cast<char>('a' + rank % 26));
  bootstrap->all_gather(mine, kTimeout);
  at.gathered = seconds();
  at.gather = bootstrap->control().traffic() - at.begin;
  bootstrap->all_gather(mine, kTimeout);
  at.again = seconds();
  const Traffic before = bootstrap->control().traffic();
  bootstrap->leave_together();
  at.end = bootstrap->control().traffic() - before;
  bootstrap.reset();
  at.ended = seconds();
  return at;
}

// The most that a rank sends or receives; of rank 0 apart where it differs.
void print(const char* phase, const std::vector<Traffic>& ranks) {
  const auto line = [&](const char* who, const Traffic& t) {
    std::printf("        %-7s %-12s sends %9llu bytes in %6llu frames, receives %9llu bytes in %6llu frames\n", phase,
                who, static_cast<unsigned long long>(t.bytes_sent), static_cast<unsigned long long>(t.frames_sent),
                static_cast<unsigned long long>(t.bytes_received), static_cast<unsigned long long>(t.frames_received));
  };
  Traffic most;
  for (size_t r = 1; r < ranks.size(); ++r) {
    most.bytes_sent = std::max(most.bytes_sent, ranks[r].bytes_sent);
    most.frames_sent = std::max(most.frames_sent, ranks[r].frames_sent);
    most.bytes_received = std::max(most.bytes_received, ranks[r].bytes_received);
    most.frames_received = std::max(most.frames_received, ranks[r].frames_received);
  }
  line("rank 0", ranks[0]);
  line("another rank", most);
}

void print(const std::vector<Phases>& ranks) {
  for (const auto& [phase, of] :
       {std::pair("begin", &Phases::begin), std::pair("gather", &Phases::gather), std::pair("end", &Phases::end)}) {
    std::vector<Traffic> all;
    for (const Phases& at : ranks) all.push_back(at.*of);
    print(phase, all);
  }
  std::fflush(stdout);
}

void report(uint32_t nranks, double begin, const std::vector<Phases>& ranks) {
  const auto last = [&](double Phases::*phase) {
    return ranks[std::ranges::max_element(ranks, {}, phase) - ranks.begin()].*phase;
  };
  const double created = last(&Phases::created), gathered = last(&Phases::gathered), again = last(&Phases::again);
  std::printf("%5u ranks: create %8.3f s, first all_gather %8.3f s, another %8.3f s, end %8.3f s\n", nranks,
              created - begin, gathered - created, again - gathered, last(&Phases::ended) - again);
  print(ranks);
}

void as_threads(uint32_t nranks) {
  std::vector<Phases> ranks(nranks);
  std::vector<std::thread> threads;
  std::barrier together(nranks + 1);
  for (uint32_t rank = 0; rank < nranks; ++rank)
    threads.emplace_back([&, rank] {
      together.arrive_and_wait();
      ranks[rank] = run(rank, nranks);
    });
  together.arrive_and_wait();
  const double begin = seconds();
  for (std::thread& thread : threads) thread.join();
  report(nranks, begin, ranks);
}

void as_processes(uint32_t nranks) {
  int pipe[2];
  if (::pipe(pipe) != 0) std::abort();
  const double begin = seconds();
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    if (::fork() != 0) continue;
    const Phases at = run(rank, nranks);
    ::_exit(::write(pipe[1], &at, sizeof at) == sizeof at ? 0 : 1);
  }
  std::vector<Phases> ranks(nranks);
  for (Phases& at : ranks)
    if (::read(pipe[0], &at, sizeof at) != sizeof at) std::abort();
  while (::wait(nullptr) > 0) {
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
  report(nranks, begin, ranks);
}

void as_model(uint32_t nranks) {
  MeshAddress address;
  address.addresses = own_addresses(1);
  address.who = this_process();
  const TrafficModel model(nranks, address, {address.who, std::string(47, 's'), 1}, "");
  std::vector<Phases> ranks(nranks);
  for (const uint32_t r : {0u, 1u, nranks / 2, nranks - 1}) {
    ranks[r].begin = model.begin(r);
    ranks[r].gather = model.gather(r, 64);
    ranks[r].end = model.end(r);
  }
  std::printf("%5u ranks, by the model\n", nranks);
  print(ranks);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string option = argc > 1 && argv[1][0] == '-' ? argv[1] : "";
  const auto run_job = option == "--processes" ? as_processes : option == "--model" ? as_model : as_threads;
  std::vector<uint32_t> sizes;
  for (int i = option.empty() ? 1 : 2; i < argc; ++i) sizes.push_back(static_cast<uint32_t>(std::atoi(argv[i])));
  if (sizes.empty()) sizes = {2, 4, 8, 16, 32, 64, 128, 256, 512};
  for (const uint32_t nranks : sizes) run_job(nranks);
  return 0;
}
