// SPDX-License-Identifier: Apache-2.0
//
// group_bench [CALLS]: so many small sums one after another, with requests, in a group of calls, and in a persistent
// group; prints on rank 0 what they take together. Started by tuttirun.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// The shortest of five rounds of 200, in us.
template <typename Body>
double time_of(const tutti::Communicator& world, Body&& body) {
  constexpr int rounds = 5, times = 200;
  for (int i = 0; i < times / 4; ++i) body();
  double best = 1e300;
  for (int round = 0; round < rounds; ++round) {
    world.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) body();
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / times);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) try {
  const size_t calls = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100;
  const tutti::Communicator world;
  if (world.rank() == 0)
    std::printf("%zu all_reduce of each size, us together\n%8s %10s %10s %10s %17s\n", calls, "bytes", "in turn",
                "requests", "group", "persistent group");
  for (const size_t each : {size_t{1}, size_t{16}, size_t{128}, size_t{1024}}) {
    std::vector<double> in(calls * each, 1), out(calls * each);
    const auto make = [&](const auto& face, size_t i) {
      return face.all_reduce(std::span<const double>(in).subspan(i * each, each),
                             std::span(out).subspan(i * each, each), tutti::Op::sum);
    };
    const auto make_all = [&] {
      for (size_t i = 0; i < calls; ++i) make(world, i);
    };
    const double in_turn = time_of(world, make_all);
    const double asked = time_of(world, [&] {
      std::vector<tutti::Request> requests;
      for (size_t i = 0; i < calls; ++i) requests.push_back(make(world.async(), i));
      for (tutti::Request& request : requests) request.wait();
    });
    const double grouped = time_of(world, [&] { world.group(make_all); });
    tutti::Request again = world.async().group(make_all, {.persistent = true});
    const double persistent = time_of(world, [&] {
      again.start();
      again.wait();
    });
    if (world.rank() == 0)
      std::printf("%8zu %10.1f %10.1f %10.1f %17.1f\n", each * sizeof(double), in_turn, asked, grouped, persistent);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "group_bench: %s\n", e.what());
  return 1;
}
