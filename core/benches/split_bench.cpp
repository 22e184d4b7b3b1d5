// SPDX-License-Identifier: Apache-2.0
//
// split_bench [COMMUNICATORS [USED]]: splits the job's communicator so often, uses so many of the parts, and prints on
// rank 0 what one costs: time, memory, descriptors, threads. Started by tuttirun.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

size_t entries(const char* folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

double resident_kb() {
  constexpr double page_kb = 4;
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident) * page_kb;
}

// Prints what each of `n` steps took since it was made, and what the process has more than then.
class Row {
 public:
  explicit Row(bool prints) : prints_(prints) {}
  void print(const char* what, size_t n) const {
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin_).count();
    if (!prints_ || n == 0) return;
    std::printf("%-28s %8zu %10.1f us each %8.1f KiB each %6ld descriptors %4ld threads\n", what, n,
                us / static_cast<double>(n), (resident_kb() - kb_) / static_cast<double>(n), more("fd", descriptors_),
                more("task", threads_));
  }

 private:
  static long more(const char* of, size_t before) {
    return static_cast<long>(entries((std::string("/proc/self/") + of).c_str())) - static_cast<long>(before);
  }
  bool prints_;
  double kb_ = resident_kb();
  size_t descriptors_ = entries("/proc/self/fd"), threads_ = entries("/proc/self/task");
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

int main(int argc, char** argv) try {
  const size_t n = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
  const size_t used = std::min(n, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 100);
  const tutti::Communicator world;
  world.barrier();
  const Row first(world.rank() == 0);
  std::vector<tutti::Communicator> parts;
  parts.push_back(world.duplicate());
  first.print("first split, with meeting", 1);
  const Row splits(world.rank() == 0);
  for (size_t i = 0; i < n; ++i) parts.push_back(std::move(*world.split(i % 3 ? 0 : world.rank() % 2)));
  splits.print("split", n);
  std::vector<float> data(10, 1);
  for (const char* call : {"first all_reduce of 40 bytes", "next all_reduce"}) {
    const Row calls(world.rank() == 0);
    for (size_t i = 0; i < used; ++i) parts[i].all_reduce(data, data, tutti::Op::max);
    calls.print(call, used);
  }
  const Row ends(world.rank() == 0);
  parts.clear();
  ends.print("destroy", n + 1);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "split_bench: %s\n", e.what());
  return 1;
}
