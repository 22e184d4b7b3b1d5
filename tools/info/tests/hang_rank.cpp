// SPDX-License-Identifier: Apache-2.0
//
// hang_rank RENDEZVOUS RANK NRANKS WORD...: one rank of a job that hangs as it is told to. Words, in order:
//
//   all_reduce reduce barrier   the collective
//   receive:PEER                waits for a message that nobody sends
//   fails                       an all_reduce that is expected to fail, then idle
//   loop                        collectives for ever
//   idle                        outside of the library for ever
//
// Prints "ready" once it is about to carry out its last word.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 4, argv + argc);
  tutti_comm_config config{sizeof(tutti_comm_config)};
  config.rendezvous = argv[1];
  config.rank = static_cast<uint32_t>(std::stoul(argv[2]));
  config.nranks = static_cast<uint32_t>(std::stoul(argv[3]));
  config.name = "hanging";
  tutti::Communicator comm(config);
  std::vector<float> data(1000, 1);
  for (size_t i = 0; i < words.size(); ++i) {
    if (i + 1 == words.size()) {
      std::puts("ready");
      std::fflush(stdout);
    }
    const std::string& word = words[i];
    if (word == "all_reduce") comm.all_reduce<float>(data, data, tutti::Op::max);
    if (word == "fails") try {
        comm.all_reduce<float>(data, data, tutti::Op::max);
        return 2;
      } catch (const tutti::Error&) {
        pause();
      }
    if (word == "reduce") comm.reduce<float>(data, data, tutti::Op::max, 1);
    if (word == "barrier") comm.barrier();
    if (word.starts_with("receive:")) comm.receive<float>(data, static_cast<uint32_t>(std::stoul(word.substr(8))), 7);
    while (word == "loop") {
      comm.all_reduce<float>(data, data, tutti::Op::max);
      usleep(1000);
    }
    while (word == "idle") pause();
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
