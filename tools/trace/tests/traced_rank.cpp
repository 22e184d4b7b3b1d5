// SPDX-License-Identifier: Apache-2.0
//
// traced_rank LATE CALLS [tags]: one rank of a job that makes so many all_reduces, before each of which rank LATE
// sleeps for 20 ms; then each rank sends to the next one, and a barrier. LATE "none": no rank sleeps. tags: the
// all_reduces have tags, the last one 1.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 3 && argc != 4) return 2;
  const bool tags = argc == 4;
  tutti::Communicator world;
  const bool late = std::string(argv[1]) == std::to_string(world.rank());
  std::vector<float> data(100'000, 1);
  for (int calls = std::stoi(argv[2]); calls > 0; --calls) {
    if (late) usleep(20'000);
    world.all_reduce<float>(data, data, tutti::Op::max, {.tag = tags ? uint64_t(calls) : 0});
  }
  std::vector<float> from(1000);
  const uint32_t n = world.nranks(), next = (world.rank() + 1) % n, previous = (world.rank() + n - 1) % n;
  tutti::Request receive = world.async().receive<float>(from, previous, 3);
  world.send<float>(std::vector<float>(1000, 2), next, 3);
  receive.wait();
  world.barrier();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
