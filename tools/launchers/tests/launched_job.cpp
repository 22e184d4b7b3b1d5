// SPDX-License-Identifier: Apache-2.0
//
// The program that the launchers' tests start, with no line for any of them. It makes two communicators, one after the
// other, and rank 0 prints the ranks' mean. An argument: the rank of which that ends before it.
#include <cstdio>
#include <cstdlib>
#include <tutti/tutti.hpp>
#include <vector>

int main(int argc, char** argv) try {
  for (int again = 0; again < 2; ++again) {
    tutti::Communicator world;
    if (argc > 1 && uint32_t(std::atoi(argv[1])) == world.rank()) std::_Exit(3);
    std::vector<float> data(100000, static_cast<float>(world.rank()));
    world.all_reduce(data, data, tutti::Op::avg);
    if (world.rank() == 0 && again == 1) std::printf("%u ranks, mean %.2f\n", world.nranks(), data[99999]);
  }
  return 0;
} catch (const tutti::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
