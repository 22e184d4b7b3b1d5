// SPDX-License-Identifier: Apache-2.0
//
// The interfaces that are drafts, by their toys (plugins/toys): the registry lists them, and the core uses them where a
// communicator is told to. Memory kinds that the process gives out, by a second device.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tutti/registry.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "../../tests/harness/ranks.hpp"
#include "../../tests/harness/test_device.hpp"
#include "../../tests/harness/virtual_time/virtual_time.hpp"
#include "base/failure.hpp"
#include "engine/choose/native.hpp"
#include "engine/fabric/devices.hpp"
#include "registry/host.hpp"

namespace tutti::test {
namespace {

struct Failed {
  tutti_status status = TUTTI_OK;
  std::string text;
};

// Ranks in threads, each with its own configuration; what failed, by number of thread.
std::vector<Failed> create_ranks(uint32_t n, const std::function<void(tutti_comm_config&, uint32_t)>& configure,
                                 const std::function<void(Communicator&)>& body) {
  std::vector<Failed> failed(n);
  std::vector<std::thread> threads;
  for (uint32_t k = 0; k < n; ++k)
    threads.emplace_back([&, k] {
      tutti_comm_config config{sizeof config};
      config.connect_timeout_ns = 30'000'000'000;
      configure(config, k);
      try {
        Communicator comm(config);
        body(comm);
      } catch (const Error& error) {
        failed[k] = {error.status(), error.what()};
      }
    });
  for (std::thread& thread : threads) thread.join();
  return failed;
}

TEST(Drafts, TheRegistryListsThem) {
  std::set<std::string> others;
  for (const PluginRecord& record : list_plugins())
    if (!record.id.starts_with("meeting-"))  // plugins/meetings, as far as they are built
      others.insert(record.others.begin(), record.others.end());
  EXPECT_EQ(others, (std::set<std::string>{"tutti.collective/1 toy-sum", "tutti.meeting/1 toy", "tutti.rma/1 toy",
                                           "tutti.selector/1 slowest", "tutti.tracer/1 file"}));
}

// ---- meeting/1

void sum_of_ranks(Communicator& comm) {
  std::vector<int64_t> in{comm.rank()}, out(1);
  comm.all_reduce<int64_t>(in, out, Op::sum);
  EXPECT_EQ(out[0], int64_t{comm.nranks()} * (comm.nranks() - 1) / 2);
}

TEST(Meeting, RanksThatKnowTheirNumbersMeetByAPlugin) {
  std::atomic<int> met{0};
  const auto failed = create_ranks(
      3,
      [](tutti_comm_config& config, uint32_t k) {
        config.rendezvous = "plugin:toy:table";
        config.rank = k;
        config.nranks = 3;
      },
      [&](Communicator& comm) { sum_of_ranks(comm), ++met; });
  EXPECT_EQ(met, 3) << failed[0].text << failed[1].text << failed[2].text;
}

TEST(Meeting, APluginMayNumberTheRanks) {
  std::mutex mutex;
  std::set<uint32_t> ranks;
  create_ranks(
      4, [](tutti_comm_config& config, uint32_t) { config.rendezvous = "plugin:toy:4@table"; },
      [&](Communicator& comm) {
        sum_of_ranks(comm);
        EXPECT_EQ(comm.nranks(), 4u);
        const std::lock_guard lock(mutex);
        ranks.insert(comm.rank());
      });
  EXPECT_EQ(ranks, (std::set<uint32_t>{0, 1, 2, 3}));
}

Failed failure_of_one(const char* rendezvous, uint32_t nranks, uint64_t timeout_ns = 60'000'000'000) {
  return create_ranks(
      1,
      [&](tutti_comm_config& config, uint32_t) {
        config.rendezvous = rendezvous;
        config.nranks = nranks;
        config.connect_timeout_ns = timeout_ns;
      },
      [](Communicator&) {})[0];
}

TEST(Meeting, ErrorsHaveThePluginsWords) {
  std::string all;
  for (const tutti_meeting* meeting : list_meetings())
    all += fmt::format("{}{}", all.empty() ? "" : ", ", meeting->name);
  const std::string pigeon = fmt::format("there is no meeting \"pigeon\"; there are: {}", all);
  const std::pair<Failed, std::vector<const char*>> cases[] = {
      {failure_of_one("plugin:pigeon", 1), {pigeon.c_str(), "toy"}},
      {failure_of_one("plugin:toy:nowhere", 0), {"plugin:toy:nowhere", "numbers no ranks: expected N@NAME"}}};
  for (const auto& [failed, words] : cases) {
    EXPECT_LT(failed.status, 0);
    for (const char* word : words) EXPECT_NE(failed.text.find(word), std::string::npos) << failed.text;
  }
}

TEST(Meeting, WhoDoesNotComeIsCounted) {
  const VirtualTime time;
  const Failed failed = failure_of_one("plugin:toy:2@alone", 0, 45'000'000'000);
  EXPECT_GE(time.passed(), std::chrono::seconds(45));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(45)));
  EXPECT_LT(failed.status, 0);
  EXPECT_NE(failed.text.find("meeting toy: 1 of 2 ranks have come"), std::string::npos) << failed.text;
}

// ---- collective/1

tutti_plan_facts facts_of(Communicator& comm, uint32_t collective) {
  tutti_plan_facts facts{sizeof facts};
  EXPECT_EQ(tutti_comm_plan(comm.handle(), collective, &facts), TUTTI_OK) << tutti_comm_error(comm.handle());
  return facts;
}

TEST(Collective, APluginServesTheCallsThatNameIt) {
  test::Setup setup;
  setup.algorithms = "all_reduce:toy-sum;barrier:toy-sum";
  run_ranks(
      3,
      [](Communicator& comm) {
        for (const uint64_t count : {1, 1000, 7}) {
          std::vector<int32_t> in(count, static_cast<int32_t>(comm.rank()) + 1), out(count);
          comm.all_reduce<int32_t>(in, out, Op::sum);
          EXPECT_EQ(out, std::vector<int32_t>(count, 6));
          comm.all_reduce<int32_t>(in, in, Op::sum);
          EXPECT_EQ(in, out) << "in place";
        }
        comm.barrier();
        const tutti_plan_facts facts = facts_of(comm, TUTTI_ALL_REDUCE);
        EXPECT_STREQ(facts.algorithm, "toy-sum");
        EXPECT_STREQ(facts.transports, "native");
        EXPECT_STREQ(facts_of(comm, TUTTI_BARRIER).algorithm, "toy-sum");
        uint64_t calls = 0;
        for (const tutti_service& row : comm.services())
          if (std::string(row.algorithm) == "toy-sum" && std::string(row.transports) == "native") calls += row.calls;
        EXPECT_EQ(calls, 7u);
      },
      setup);
}

TEST(Collective, ManyMayBeUnderWay) {
  test::Setup setup;
  setup.algorithms = "all_reduce:toy-sum";
  run_ranks(
      4,
      [](Communicator& comm) {
        constexpr int n = 20;
        std::vector<std::vector<int32_t>> data;
        for (int k = 0; k < n; ++k) data.emplace_back(100 + k, k + static_cast<int>(comm.rank()));
        std::vector<tutti_request*> requests(n);
        for (int k = 0; k < n; ++k)
          ASSERT_EQ(tutti_all_reduce(comm.handle(), data[k].data(), data[k].data(), data[k].size(), TUTTI_INT32,
                                     TUTTI_SUM, nullptr, &requests[k]),
                    TUTTI_OK);
        for (int k = n; k-- > 0;) {
          EXPECT_EQ(tutti_request_wait(requests[k]), TUTTI_OK);
          tutti_request_free(requests[k]);
          EXPECT_EQ(data[k], std::vector<int32_t>(100 + k, 4 * k + 6));
        }
      },
      setup);
}

TEST(Collective, WhatItRefusesHasItsReason) {
  test::Setup setup;
  setup.algorithms = "all_reduce:toy-sum";
  run_ranks(
      2,
      [](Communicator& comm) {
        std::vector<float> data(4);
        const tutti_status status =
            tutti_all_reduce(comm.handle(), data.data(), data.data(), 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
        EXPECT_EQ(status, TUTTI_NOT_SUPPORTED);
        const std::string text = tutti_comm_error(comm.handle());
        EXPECT_NE(text.find("toy-sum: it sums int32 only"), std::string::npos) << text;
        comm.barrier();
      },
      setup);
}

TEST(Collective, WithoutItsNameTheFasterServes) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<int32_t> data(4);
    comm.all_reduce<int32_t>(data, data, Op::sum);
    EXPECT_STRNE(facts_of(comm, TUTTI_ALL_REDUCE).algorithm, "toy-sum");
  });
}

// One rank never comes: the others' operations end, and the communicator with them.
TEST(Collective, AnAbortEndsWhatIsUnderWay) {
  test::Setup setup;
  setup.algorithms = "all_reduce:toy-sum";
  std::barrier begun(3);
  run_ranks(
      3,
      [&](Communicator& comm) {
        std::vector<int32_t> data(4);
        tutti_request* request = nullptr;
        if (comm.rank() != 2) {
          EXPECT_EQ(
              tutti_all_reduce(comm.handle(), data.data(), data.data(), 4, TUTTI_INT32, TUTTI_SUM, nullptr, &request),
              TUTTI_OK);
        }
        begun.arrive_and_wait();
        if (comm.rank() == 2) return comm.abort("enough");
        EXPECT_EQ(tutti_request_wait(request), TUTTI_ABORTED);
        const std::string text = tutti_request_error(request);
        tutti_request_free(request);
        EXPECT_NE(text.find("enough"), std::string::npos) << text;
        EXPECT_NE(text.find("all_reduce #0 (toy-sum over native)"), std::string::npos) << text;
      },
      setup);
}

// Groups of fake plugins, over a gather between threads. What a rank does in create: gathers `rounds` times, then fails
// where `fails`.
struct Fake {
  int rounds = 1;
  bool fails = false;
  std::atomic<int>* alive = nullptr;
};
std::vector<size_t> groups_of(const std::vector<Fake>& fakes) {
  const auto n = static_cast<uint32_t>(fakes.size());
  std::barrier together(n);
  std::vector<std::string> texts(n);
  std::vector<size_t> made(n);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      tutti_collective api{sizeof api, TUTTI_COLLECTIVE_STAMP};
      Fake fake = fakes[r];
      api.self = &fake;
      api.name = "fake";
      api.create = [](void* self, const tutti_native_config* c, tutti_native_group** group) -> tutti_status {
        const Fake& me = *static_cast<Fake*>(self);
        std::vector<char> all(c->nranks);
        for (int k = 0; k < me.rounds; ++k)
          if (const tutti_status status = c->all_gather(c->oob, "x", 1, all.data()); status < 0) return status;
        if (me.fails) {
          core::host_table()->set_error(nullptr, TUTTI_NO_RESOURCES, "the switch is full");
          return TUTTI_NO_RESOURCES;
        }
        *group = static_cast<tutti_native_group*>(self);
        ++*me.alive;
        return TUTTI_OK;
      };
      api.destroy = [](tutti_native_group* group) { --*static_cast<Fake*>(static_cast<void*>(group))->alive; };
      const tutti_native_config config{sizeof config, r, n, 0, "test", 1, nullptr, nullptr, nullptr};
      made[r] = core::make_native_groups({&api}, config, [&](const std::string& mine) {
                  texts[r] = mine;
                  together.arrive_and_wait();
                  const std::vector<std::string> all = texts;
                  together.arrive_and_wait();
                  return all;
                }).size();
    });
  for (std::thread& thread : threads) thread.join();
  return made;
}

TEST(Collective, AGroupIsOnAllRanksOrOnNone) {
  std::atomic<int> alive{0};
  const Fake good{1, false, &alive};
  const std::vector<size_t> none{0, 0, 0}, all{1, 1, 1};
  EXPECT_EQ(groups_of({good, good, good}), all);
  EXPECT_EQ(groups_of({good, {1, true, &alive}, good}), none) << "fails at the end";
  EXPECT_EQ(groups_of({good, good, {0, true, &alive}}), none) << "fails before it gathers";
  EXPECT_EQ(groups_of({{0, true, &alive}, good, good}), none);
  EXPECT_EQ(groups_of({good, {2, false, &alive}, good}), none) << "gathers once too often";
  EXPECT_EQ(alive, 0) << "a group was not destroyed";
}

// ---- selector/1

TEST(Selector, APluginChooses) {
  setenv("TUTTI_SELECTOR", "slowest", 1);
  run_ranks(3, [](Communicator& comm) {
    std::vector<float> data(1000, 1);
    comm.all_reduce<float>(data, data, Op::sum);
    EXPECT_EQ(data, std::vector<float>(1000, 3));
    // A table has the fastest first: the last that is a candidate is the slowest. There is one for each kind of memory.
    uint64_t bytes = 0;
    tutti_comm_explain(comm.handle(), TUTTI_ALL_REDUCE, 1000, TUTTI_FLOAT32, nullptr, &bytes);
    std::string text(bytes, '\0');
    ASSERT_EQ(tutti_comm_explain(comm.handle(), TUTTI_ALL_REDUCE, 1000, TUTTI_FLOAT32, text.data(), &bytes), TUTTI_OK);
    text.resize(bytes - 1);
    const std::string name = facts_of(comm, TUTTI_ALL_REDUCE).algorithm;
    std::istringstream lines(text);
    bool found = false, on_device = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) {
        EXPECT_TRUE(found && !on_device) << text;
        on_device = true;
        found = false;
      } else if (found) {
        EXPECT_NE(line.find("no candidate"), std::string::npos) << "a slower candidate:\n" << text;
      }
      if (line.find("chosen by the selector slowest") == std::string::npos) continue;
      EXPECT_TRUE(on_device || line.starts_with("  " + name + " ")) << name << "\n" << text;
      found = true;
    }
    EXPECT_TRUE(found) << text;
    // For int32 the slowest candidate is no algorithm.
    std::vector<int32_t> whole(1000, 1);
    comm.all_reduce<int32_t>(whole, whole, Op::sum);
    EXPECT_STREQ(facts_of(comm, TUTTI_ALL_REDUCE).algorithm, "toy-sum");
  });
  setenv("TUTTI_SELECTOR", "oracle", 1);
  const auto failed = create_ranks(
      1,
      [](tutti_comm_config& config, uint32_t) {
        config.rendezvous = "local:oracle";
        config.nranks = 1;
      },
      [](Communicator&) {});
  unsetenv("TUTTI_SELECTOR");
  EXPECT_EQ(failed[0].status, TUTTI_NOT_FOUND);
  EXPECT_NE(failed[0].text.find("TUTTI_SELECTOR=\"oracle\": there is no selector \"oracle\"; there are: slowest"),
            std::string::npos)
      << failed[0].text;
}

// ---- rma/1

struct Key {
  char bytes[TUTTI_RMA_KEY_BYTES];
  uint64_t length = sizeof bytes;
};

tutti_space* space_of(const tutti_rma* rma, uint32_t rank, uint64_t communicator = 5) {
  const tutti_space_config config{sizeof config, rank, 2, 0, communicator};
  tutti_space* space = nullptr;
  EXPECT_EQ(rma->open(rma->self, &config, &space), TUTTI_OK);
  return space;
}

tutti_rma_region* exported(const tutti_rma* rma, tutti_space* space, void* address, uint64_t bytes, Key* key) {
  const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, address, bytes, -1, 0, 0};
  tutti_rma_region* region = nullptr;
  EXPECT_EQ(rma->export_region(space, &memory, &region, key->bytes, &key->length), TUTTI_OK);
  return region;
}

void await(const tutti_rma* rma, tutti_space* space, uint64_t cookie) {
  tutti_rma_completion completion{};
  uint32_t n = 0;
  while (!n) ASSERT_EQ(rma->progress(space, &completion, 1, &n), TUTTI_OK);
  EXPECT_EQ(completion.cookie, cookie);
  EXPECT_EQ(completion.status, TUTTI_OK);
}

// Rank 0 puts numbers into rank 1's memory and signals; rank 1 adds one to each, and rank 0 gets them.
TEST(Rma, PutSignalGet) {
  const tutti_rma* rma = list_rmas().front();
  std::vector<uint64_t> target(1000);
  Key key, answer_key;
  uint64_t unused = 0;
  tutti_space* spaces[2] = {space_of(rma, 0), space_of(rma, 1)};
  tutti_rma_region* region = exported(rma, spaces[1], target.data(), target.size() * 8, &key);
  tutti_rma_region* answers = exported(rma, spaces[0], &unused, 8, &answer_key);
  std::thread other([&] {
    tutti_remote* back = nullptr;
    ASSERT_EQ(rma->import_region(spaces[1], 0, answer_key.bytes, answer_key.length, &back), TUTTI_OK);
    for (uint64_t round = 1; round <= 20; ++round) {
      for (uint64_t value = 0; value < round;) ASSERT_EQ(rma->test_signal(region, &value), TUTTI_OK);
      for (uint64_t& number : target) EXPECT_EQ(number++, round);
      ASSERT_EQ(rma->signal(back, 1), TUTTI_OK);
    }
    EXPECT_EQ(rma->release_region(spaces[1], back), TUTTI_OK);
  });
  tutti_remote* remote = nullptr;
  ASSERT_EQ(rma->import_region(spaces[0], 1, key.bytes, key.length, &remote), TUTTI_OK);
  for (uint64_t round = 1; round <= 20; ++round) {
    const std::vector<uint64_t> numbers(target.size(), round);
    ASSERT_EQ(rma->put(remote, 0, numbers.data(), numbers.size() * 8, round), TUTTI_OK);
    ASSERT_EQ(rma->signal(remote, 1), TUTTI_OK);
    await(rma, spaces[0], round);
    for (uint64_t value = 0; value < round;) ASSERT_EQ(rma->test_signal(answers, &value), TUTTI_OK);
    std::vector<uint64_t> got(10);
    ASSERT_EQ(rma->get(remote, 8 * 990, got.data(), 80, 100 + round), TUTTI_OK);
    await(rma, spaces[0], 100 + round);
    EXPECT_EQ(got, std::vector<uint64_t>(10, round + 1));
  }
  other.join();
  char byte = 0;
  EXPECT_EQ(rma->put(remote, 8000, &byte, 1, 0), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(rma->get(remote, UINT64_MAX, &byte, 1, 0), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(rma->abort(spaces[0]), TUTTI_OK);
  EXPECT_EQ(rma->put(remote, 0, &byte, 1, 0), TUTTI_ABORTED);
  EXPECT_EQ(rma->release_region(spaces[0], remote), TUTTI_OK);
  EXPECT_EQ(rma->withdraw_region(spaces[1], region), TUTTI_OK);
  EXPECT_EQ(rma->withdraw_region(spaces[0], answers), TUTTI_OK);
  // Gone, of another rank, of another communicator, or no key at all.
  EXPECT_EQ(rma->import_region(spaces[0], 1, key.bytes, key.length, &remote), TUTTI_INVALID_ARGUMENT);
  region = exported(rma, spaces[1], target.data(), 8, &(key = {}));
  EXPECT_EQ(rma->import_region(spaces[0], 0, key.bytes, key.length, &remote), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(rma->import_region(spaces[0], 1, key.bytes, 3, &remote), TUTTI_INVALID_ARGUMENT);
  tutti_space* foreign = space_of(rma, 0, 6);
  EXPECT_EQ(rma->import_region(foreign, 1, key.bytes, key.length, &remote), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(rma->withdraw_region(spaces[1], region), TUTTI_OK);
  for (tutti_space* space : {spaces[0], spaces[1], foreign}) rma->close(space);
}

// ---- Kinds of memory

TEST(MemoryKinds, AreGivenOutByName) {
  const auto kind = [](const char* name) { return core::host_table()->memory_kind(nullptr, name); };
  EXPECT_EQ(kind("host"), uint32_t{TUTTI_MEMORY_HOST});
  EXPECT_EQ(kind("cuda"), uint32_t{TUTTI_MEMORY_CUDA});
  EXPECT_EQ(kind("simulated"), uint32_t{TUTTI_MEMORY_SIMULATED});
  EXPECT_EQ(kind("Bad Name"), UINT32_MAX);
  EXPECT_NE(take_plugin_error().find("no device has such a name"), std::string::npos);
  EXPECT_EQ(kind(nullptr), UINT32_MAX);
}

// Two devices at once, of which one has its kind from the process.
TEST(MemoryKinds, ASecondDeviceHasItsOwn) {
  std::set<uint32_t> kinds;
  for (const DeviceTables& tables : list_devices()) {
    if (const std::string_view name = tables.memory->name; name != "simulated" && name != "second") continue;
    void* address = nullptr;
    ASSERT_EQ(tables.memory->allocate(tables.memory->self, 0, 100, &address), TUTTI_OK) << take_plugin_error();
    const core::DeviceMemory where = core::find_device(address);
    ASSERT_EQ(where.tables.memory, tables.memory) << tables.memory->name;
    EXPECT_EQ(core::classify(tables, address).kind, core::caps_of(tables).memory_kind);
    EXPECT_EQ(core::memory_kind(tables.memory->name), core::caps_of(tables).memory_kind);
    kinds.insert(core::caps_of(tables).memory_kind);
    tables.memory->release(tables.memory->self, address);
  }
  EXPECT_EQ(kinds.size(), 2u);
  EXPECT_TRUE(kinds.contains(TUTTI_MEMORY_SIMULATED));
  EXPECT_GE(*kinds.rbegin(), uint32_t{TUTTI_FIRST_NAMED_MEMORY});
}

TEST(MemoryKinds, EndAfterTheLast) {
  const auto kind = [](const std::string& name) { return core::host_table()->memory_kind(nullptr, name.c_str()); };
  std::set<uint32_t> kinds;
  uint32_t k = 0;
  for (;; ++k) {
    const uint32_t made = kind("device-" + std::to_string(k));
    if (made == UINT32_MAX) break;
    EXPECT_TRUE(kinds.insert(made).second) << "given out twice";
    ASSERT_LE(made, uint32_t{TUTTI_LAST_NAMED_MEMORY});
  }
  EXPECT_NE(take_plugin_error().find("all numbers from 16 to 63 are in use"), std::string::npos);
  EXPECT_EQ(*kinds.rbegin(), uint32_t{TUTTI_LAST_NAMED_MEMORY});
  EXPECT_EQ(kind("device-0"), *kinds.begin()) << "the same name has the same number";
}

// ---- What devices reduce

TEST(Reductions, AreRefusedBeforeTheCallWhereADeviceDoesNotClaimThem) {
  const DeviceTables tables = device();
  const auto refused = [&](uint32_t dtype, uint32_t op, bool exact = false) -> std::string {
    try {
      core::require_reduction("all_reduce", tables, dtype, op, exact);
      return {};
    } catch (const core::Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_NOT_SUPPORTED);
      return failure.text;
    }
  };
  EXPECT_EQ(refused(TUTTI_FLOAT32, TUTTI_AVG), "");
  EXPECT_EQ(refused(TUTTI_INT8, TUTTI_MAX), "");
  const std::string words = fmt::format("device {} does not reduce", tables.memory->name);
  EXPECT_NE(refused(63, TUTTI_SUM).find(words), std::string::npos);
  for (const uint32_t beyond : {64u, 128u, 1u << 31}) {  // masks have 64 bits
    EXPECT_NE(refused(TUTTI_FLOAT32 + beyond, TUTTI_SUM).find(words), std::string::npos) << beyond;
    EXPECT_NE(refused(TUTTI_FLOAT32, TUTTI_SUM + beyond).find(words), std::string::npos) << beyond;
  }
  EXPECT_EQ(refused(TUTTI_BFLOAT16, TUTTI_SUM, true), "");
  EXPECT_EQ(refused(TUTTI_INT32, TUTTI_SUM, true),
            fmt::format("all_reduce: device {} has no exact sums of int32: reduce in host memory, or use "
                        "options.order = TUTTI_ORDER_FREE for this call",
                        tables.memory->name));
}

}  // namespace
}  // namespace tutti::test
