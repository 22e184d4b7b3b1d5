// SPDX-License-Identifier: Apache-2.0
//
// Every collective on a few numbers, before and after, as int32 and as float32: the worked examples for 2, 3 and 4
// ranks. To see them all: cheat_sheet --threads 2 3 4
#include <chrono>
#include <thread>

#include "ranks.hpp"
#include "worked_examples.hpp"

using tutti::Communicator;

template <typename T>
static std::string show(const std::vector<T>& values, bool letters) {
  if (!letters) return ranks::show(values);
  std::string text;
  for (const T value : values)
    text += std::string(text.empty() ? "" : " ") + static_cast<char>('A' + int(value) / 4) + char('0' + int(value) % 4);
  return text;
}

template <typename T>
static void run_all(const Communicator& world, const std::string& type) {
  for (const WorkedExample<T>& call : worked_examples<T>()) {
    if (call.in.size() != world.nranks()) continue;
    const std::vector<T>& expected = call.out[world.rank()];
    std::vector<T> in = call.in[world.rank()], out(expected.size(), T(-99));
    call.run(world, in, out);
    ranks::print_in_order(world, (world.rank() == 0 ? call.title + (", " + type) + "\n" : "") + "  rank " +
                                     std::to_string(world.rank()) + ": " + show(call.in[world.rank()], call.letters) +
                                     "  ->  " + show(out, call.letters) + "\n");
    ranks::require(out == expected, std::string(call.title) + ": expected " + show(expected, call.letters));
    ranks::require(in == call.in[world.rank()], std::string(call.title) + ": the input was changed");
  }
}

// Nobody leaves before the last has arrived: everybody is in the second barrier at least as long as the last rank
// sleeps, which begins to sleep after all have come to the first one. So no clocks of two ranks are compared.
static void run_barrier(const Communicator& world) {
  const auto start = std::chrono::steady_clock::now();
  const auto late = [](uint32_t rank) { return std::chrono::milliseconds(20 * rank); };
  world.barrier();
  std::this_thread::sleep_for(late(world.rank()));
  world.barrier();
  const auto inside = std::chrono::steady_clock::now() - start;
  char line[80];
  std::snprintf(line, sizeof line, "  rank %u: arrives after %u ms, leaves after %.1f ms\n", world.rank(),
                20 * world.rank(), std::chrono::duration<double, std::milli>(inside).count());
  ranks::print_in_order(world, (world.rank() == 0 ? "barrier\n" : "") + std::string(line));
  ranks::require(inside >= late(world.nranks() - 1), "barrier: left before the last rank arrived");
}

static void cheat_sheet(const Communicator& world) {
  ranks::require(world.nranks() >= 2 && world.nranks() <= 4, "the worked examples are for 2, 3 or 4 ranks, not " +
                                                                 std::to_string(world.nranks()) +
                                                                 ": try --threads 2 3 4, or tuttirun -n 3");
  run_all<int32_t>(world, "int32");
  run_all<float>(world, "float32");
  run_barrier(world);
}

int main(int argc, char** argv) {
  return ranks::run(argc, argv, "cheat_sheet", "Every collective on a few numbers, before and after", cheat_sheet);
}
