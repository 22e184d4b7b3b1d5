// SPDX-License-Identifier: Apache-2.0
//
// hang_rank RENDEZVOUS RANK NRANKS WORD...: one rank of a job that hangs as it is told to. Words, in order:
//
//   all_reduce reduce barrier   the collective
//   all_reduce:TAG              ... with a tag
//   exact:TAG float16:TAG       ... a sum in the exact order, or in that wire format
//   buckets:N                   a step of two gradient buckets, of which this rank marks the first N and awaits them
//   receive:PEER                waits for a message that nobody sends
//   receive_any                 ... from any rank, with any tag
//   a.WORD b.WORD               the same in one of two duplicates of the communicator
//   p.WORD                      ... in a part of it, without rank 0
//   +WORD                       in a thread
//   others                      first of all, on all ranks: makes these other communicators
//   fails                       an all_reduce that is expected to fail, then idle
//   loop                        collectives for ever
//   idle                        outside of the library for ever
//
// Prints "ready" once it is about to carry out its last word.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/gradients.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace hang {

// Exported, so that reports of waits can name it.
[[gnu::noinline]] void carry_out(tutti::Communicator& comm, const std::string& word) {
  std::vector<float> data(1000, 1);
  if (word == "all_reduce") comm.all_reduce<float>(data, data, tutti::Op::max);
  if (word.starts_with("all_reduce:"))
    comm.all_reduce<float>(data, data, tutti::Op::max, {.tag = std::stoull(word.substr(11))});
  if (word.starts_with("exact:"))
    comm.all_reduce<float>(data, data, tutti::Op::sum,
                           {.order = tutti::Order::exact, .tag = std::stoull(word.substr(6))});
  if (word.starts_with("float16:"))
    comm.all_reduce<float>(data, data, tutti::Op::sum,
                           {.wire = tutti::Wire::float16, .tag = std::stoull(word.substr(8))});
  if (word.starts_with("buckets:")) {
    const std::vector<tutti_tensor> tensors{tutti::tensor(data.size()), tutti::tensor(data.size())};
    tutti::Gradients gradients(comm, tensors, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    std::vector<float> other(data);
    gradients.ready(0, data);
    if (word == "buckets:2") gradients.ready(1, other);
    while (!gradients.test()) {
    }
    pause();
  }
  if (word == "fails") try {
      comm.all_reduce<float>(data, data, tutti::Op::max);
      throw std::logic_error("the all_reduce did not fail");
    } catch (const tutti::Error&) {
      pause();
    }
  if (word == "reduce") comm.reduce<float>(data, data, tutti::Op::max, 1);
  if (word == "barrier") comm.barrier();
  if (word == "receive_any") {
    tutti_envelope envelope = tutti::any_message();
    comm.receive_any(data, envelope);
  }
  if (word.starts_with("receive:")) comm.receive<float>(data, static_cast<uint32_t>(std::stoul(word.substr(8))), 7);
  while (word == "loop") {
    comm.all_reduce<float>(data, data, tutti::Op::max);
    usleep(1000);
  }
  while (word == "idle") pause();
}

}  // namespace hang

using hang::carry_out;

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 4, argv + argc);
  tutti_comm_config config{sizeof(tutti_comm_config)};
  config.rendezvous = argv[1];
  config.rank = static_cast<uint32_t>(std::stoul(argv[2]));
  config.nranks = static_cast<uint32_t>(std::stoul(argv[3]));
  config.name = "hanging";
  std::map<char, tutti::Communicator> comms;
  tutti::Communicator& whole = comms.emplace('w', config).first->second;
  if (argv[4] == std::string("others")) {
    comms.emplace('a', whole.duplicate());
    comms.emplace('b', whole.duplicate());
    comms.emplace('p', *whole.split(whole.rank() ? 1 : 0));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i + 1 == words.size()) {
      std::puts("ready");
      std::fflush(stdout);
    }
    std::string word = words[i];
    const bool in_thread = word.starts_with("+");
    if (in_thread) word.erase(0, 1);
    tutti::Communicator* comm = &whole;
    if (word.size() > 2 && word[1] == '.') {
      comm = &comms.at(word[0]);
      word.erase(0, 2);
    }
    if (in_thread)
      threads.emplace_back([comm, word] { carry_out(*comm, word); });
    else
      carry_out(*comm, word);
  }
  for (std::thread& thread : threads) thread.join();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
