// SPDX-License-Identifier: Apache-2.0
//
// Opening and closing, again and again.
#include "contract_case.hpp"
#include "usage.hpp"

namespace tutti::conformance::contract {
namespace {

// Two ranks come, connect, exchange something, leave something pending and go.
void one_life(Bench& bench, uint32_t turn) {
  Stage stage(bench);
  for (auto& rank : stage.ranks) rank->failures_expected = true;
  uint64_t words[2] = {turn, 0};
  Posted *send = nullptr, *receive = nullptr;
  stage.until(
      [&] {
        if (!receive) receive = stage[1].post(stage[1].receive(0, 0, &words[1], 8));
        if (!send) send = stage[0].post(stage[0].send(1, 0, &words[0], 8));
        return send && receive && send->done && receive->done;
      },
      "T-3", fmt::format("the {}. pair of endpoints exchanges no message", turn + 1));
  require(words[1] == turn, "T-15", "the {}. pair of endpoints: got {} instead of {}", turn + 1, words[1], turn);
  stage[0].send_control(1, "bye");
  if (turn % 3 == 0) stage[1].post(stage[1].receive(0, 1, &words[1], 8));
  if (turn % 5 == 0 && bench.has_fail_peer()) stage[0].fail_peer(1);
  if (turn % 7 == 0) stage[1].abort();
  if (TUTTI_HAS(tutti_transport, bench.transport(), register_memory)) {
    const tutti_transport* t = bench.transport();
    tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, words, sizeof words, -1, 0, 0};
    tutti_region* region = nullptr;
    call("register_memory", true, [&] { return t->register_memory(stage[0].domain, &memory, &region); });
    if (region) call("deregister_memory", true, [&] { return t->deregister_memory(stage[0].domain, region); });
  }
}

void open_and_close(Bench& bench, uint32_t warm_up, uint32_t lives) {
  uint32_t turn = 0;
  require_no_growth("T-2", "opening, using and closing two endpoints", warm_up, lives, [&](uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) one_life(bench, turn++);
  });
}

void hundred_lives(Bench& bench) { open_and_close(bench, 300, 100); }
void thousand_lives(Bench& bench) { open_and_close(bench, 300, 1000); }

}  // namespace

std::vector<ContractCase> lifetime_cases() {
  return {
      {"open-and-close", "100 lives of two endpoints", {"T-2", "T-3", "T-15", "T-20"}, 150, hundred_lives},
      {"open-and-close-1000", "1,000 lives of two endpoints", {"T-2", "T-3", "T-15", "T-20"}, 600, thousand_lives},
  };
}

}  // namespace tutti::conformance::contract
