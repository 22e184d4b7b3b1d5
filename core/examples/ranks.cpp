// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <CLI/CLI.hpp>
#include <exception>
#include <thread>

namespace ranks {
namespace {

// One rank's life. The program's exit status: 0, or 1 after a message; the other ranks are then told why and fail too.
int run_rank(const std::string& program, const std::function<tutti::Communicator()>& join, const Body& body) {
  try {
    const tutti::Communicator world = join();
    try {
      body(world);
      return 0;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s: rank %u: %s\n", program.c_str(), world.rank(), e.what());
      world.abort(e.what());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), e.what());
  }
  return 1;
}

}  // namespace

void print_in_order(const tutti::Communicator& world, const std::string& text) {
  const std::vector<uint64_t> mine{text.size()};
  std::vector<uint64_t> sizes(world.rank() == 0 ? world.nranks() : 0);
  world.gather(mine, sizes, 0);
  if (world.rank() != 0) {
    if (!text.empty()) world.send(text, 0);
    return;
  }
  std::string all = text;
  for (uint32_t peer = 1; peer < world.nranks(); ++peer) {
    std::string received(sizes[peer], '\0');
    if (!received.empty()) world.receive(received, peer);
    all += received;
  }
  std::fputs(all.c_str(), stdout);
  std::fflush(stdout);
}

int run(int argc, char** argv, const std::string& program, const std::string& about, const Body& body, Number* option,
        Flag* flag) {
  CLI::App app{about, program};
  std::vector<uint32_t> thread_counts;
  app.add_option("--threads", thread_counts,
                 "Run as N ranks that are threads of this process, without a launcher; several: one after another")
      ->check(CLI::Range(1u, 64u))
      ->type_name("N");
  if (option)
    app.add_option(option->name, option->value, option->about)->check(CLI::Range(1u, 100000u))->capture_default_str();
  if (flag) app.add_flag(flag->name, flag->value, flag->about);
  CLI11_PARSE(app, argc, argv);
  if (thread_counts.empty())
    return run_rank(
        program, [] { return tutti::Communicator(); }, body);
  for (const uint32_t n : thread_counts) {
    const std::string meeting = "local:" + program + "-" + std::to_string(n);
    std::vector<int> status(n, 1);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < n; ++rank)
      threads.emplace_back([&, rank] {
        status[rank] = run_rank(
            program, [&] { return tutti::Communicator(meeting, rank, n); }, body);
      });
    for (std::thread& thread : threads) thread.join();
    for (const int s : status)
      if (s != 0) return s;
  }
  return 0;
}

}  // namespace ranks
