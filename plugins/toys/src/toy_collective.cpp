// SPDX-License-Identifier: Apache-2.0
//
// collective/1: sums of int32 (all_reduce) and barriers of ranks that are threads of one process. The ranks put the
// addresses of their buffers on a board; the last one to come to an operation carries it out for all.
#include <tutti/plugin/collective.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace {

using tutti::sdk::Error;

// One operation of all ranks.
struct Sum {
  std::vector<tutti_native_call> calls;
  uint32_t left = 0;  // ranks that have not freed it
  bool done = false;
};

struct Board {
  std::mutex mutex;
  uint32_t nranks = 0;
  std::map<uint64_t, Sum> sums;  // by their number
};

struct Operation;
struct Group {
  std::shared_ptr<Board> board;
  uint32_t rank = 0;
  uint64_t next = 0;  // operation
  bool aborted = false;
};
struct Operation {
  Group* group;
  uint64_t number;
};

void carry_out(Sum& sum) {
  const tutti_native_call& first = sum.calls[0];
  if (first.collective == TUTTI_BARRIER) return;
  std::vector<int32_t> total(first.count);
  for (const tutti_native_call& call : sum.calls)
    for (uint64_t i = 0; i < call.count; ++i)
      total[i] = static_cast<int32_t>(static_cast<uint32_t>(total[i]) +
                                      static_cast<uint32_t>(static_cast<const int32_t*>(call.in)[i]));
  for (const tutti_native_call& call : sum.calls)
    if (call.count) std::memcpy(call.out, total.data(), total.size() * sizeof total[0]);
}

// Rank 0's board, for ranks of its process.
std::unique_ptr<Group> make(const tutti_native_config& config) {
  struct Card {
    int64_t process;
    std::shared_ptr<Board>* board;
  };
  auto group = std::make_unique<Group>();
  group->rank = config.rank;
  if (config.rank == 0) {
    group->board = std::make_shared<Board>();
    group->board->nranks = config.nranks;
  }
  const Card mine{getpid(), &group->board};
  std::vector<Card> cards(config.nranks);
  const auto gather = [&] {
    if (const tutti_status status = config.all_gather(config.oob, &mine, sizeof mine, cards.data()); status < 0)
      throw Error(status, "another rank could not make its group");
  };
  gather();
  for (const Card& card : cards)
    if (card.process != mine.process) throw Error(TUTTI_NOT_SUPPORTED, "its ranks are not all of one process");
  if (config.rank != 0) group->board = *cards[0].board;
  gather();  // before rank 0's card may go
  return group;
}

Group& group_of(tutti_native_group* group) { return *reinterpret_cast<Group*>(group); }

tutti_status create(void*, const tutti_native_config* config, tutti_native_group** group) {
  return tutti::sdk::guard(
      [&] { *group = reinterpret_cast<tutti_native_group*>(make(tutti::sdk::accepted(config)).release()); });
}

tutti_status supports(tutti_native_group*, const tutti_native_call* given, uint64_t* predicted_ns) {
  return tutti::sdk::guard([&] {
    const tutti_native_call call = tutti::sdk::accepted(given);
    const bool sums = call.collective == TUTTI_ALL_REDUCE && call.dtype == TUTTI_INT32 && call.op == TUTTI_SUM;
    if (!sums && call.collective != TUTTI_BARRIER) throw Error(TUTTI_NOT_SUPPORTED, "it sums int32 only");
    *predicted_ns = 1'000'000'000 + call.count;
  });
}

tutti_status start(tutti_native_group* handle, const tutti_native_call* given, tutti_native_operation** operation) {
  return tutti::sdk::guard([&] {
    Group& group = group_of(handle);
    const tutti_native_call call = tutti::sdk::accepted(given);
    if (group.aborted) throw Error(TUTTI_ABORTED, "the group has been aborted");
    auto made = std::make_unique<Operation>(Operation{&group, group.next++});
    const std::lock_guard lock(group.board->mutex);
    Sum& sum = group.board->sums[made->number];
    if (!sum.calls.empty() && (sum.calls[0].collective != call.collective || sum.calls[0].count != call.count))
      throw Error(TUTTI_MISMATCH, "another rank makes another call");
    sum.calls.push_back(call);
    if (sum.calls.size() == group.board->nranks) {
      carry_out(sum);
      sum.left = group.board->nranks;
      sum.done = true;
    }
    *operation = reinterpret_cast<tutti_native_operation*>(made.release());
  });
}

tutti_status test(tutti_native_operation* handle) {
  return tutti::sdk::guard([&]() -> tutti_status {
    auto* const operation = reinterpret_cast<Operation*>(handle);
    Group& group = *operation->group;
    const std::lock_guard lock(group.board->mutex);
    const auto found = group.board->sums.find(operation->number);
    const bool done = !group.aborted && found->second.done;
    if (!done && !group.aborted) return TUTTI_AGAIN;
    if (done && --found->second.left == 0) group.board->sums.erase(found);
    delete operation;
    if (!done) throw Error(TUTTI_ABORTED, "the group has been aborted");
    return TUTTI_OK;
  });
}

constexpr tutti_collective collective{sizeof(tutti_collective),
                                      TUTTI_COLLECTIVE_STAMP,
                                      nullptr,
                                      "toy-sum",
                                      "sums of int32 in memory that the ranks share",
                                      1u << TUTTI_ALL_REDUCE | 1u << TUTTI_BARRIER,
                                      create,
                                      supports,
                                      start,
                                      test,
                                      [](tutti_native_group* handle) {
                                        Group& group = group_of(handle);
                                        const std::lock_guard lock(group.board->mutex);
                                        group.aborted = true;
                                        // No other rank may carry out with this rank's buffers what has not been
                                        // carried out yet.
                                        for (auto& [number, sum] : group.board->sums)
                                          if (!sum.done) sum.calls.assign(0, {});
                                      },
                                      [](tutti_native_group* group) { delete &group_of(group); }};

}  // namespace

TUTTI_PLUGIN(toy_collective, "toy-collective", "0.1.0", "Tutti", "Apache-2.0", "a sample of collective/1",
             {TUTTI_COLLECTIVE_ID, &collective});
