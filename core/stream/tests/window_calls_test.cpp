// SPDX-License-Identifier: Apache-2.0
//
// Collectives whose buffers lie in windows: streams of other processes read them in place.
#include <map>

#include "../../tests/harness/sanitized.hpp"
#include "../../tests/harness/window_data.hpp"

namespace tutti::test {
namespace {

// All collectives, out of place and in place, many in a row without waiting, with the data of each changing.
void all_collectives(tutti_comm* comm, uint32_t rank, uint64_t count, int rounds) {
  const uint32_t n = tutti_comm_nranks(comm);
  Stream s;
  const tutti_options options = on(s);
  Data in(comm, s, count * n), sum(comm, s, count * n), all(comm, s, count * n), part(comm, s, count),
      swap(comm, s, count * n), cast(comm, s, count), at_root(comm, s, count * n), collected(comm, s, count * n),
      piece(comm, s, count);
  const auto ok = [&](tutti_status status) { ASSERT_EQ(status, TUTTI_OK) << tutti_comm_error(comm); };
  for (uint64_t i = 0; i < count * n; ++i) in.host[i] = value(rank, i);
  in.up();
  for (int round = 0; round < rounds; ++round) {
    const uint32_t root = static_cast<uint32_t>(round + 1) % n;
    for (uint64_t i = 0; i < count; ++i) cast.host[i] = rank == root ? value(77, i) : -1;
    cast.up();
    ok(tutti_all_reduce(comm, in.device, sum.device, count * n, TUTTI_INT64, TUTTI_SUM, &options, nullptr));
    ok(tutti_all_gather(comm, in.device, all.device, count, TUTTI_INT64, &options, nullptr));
    ok(tutti_reduce_scatter(comm, in.device, part.device, count, TUTTI_INT64, TUTTI_MAX, &options, nullptr));
    ok(tutti_all_to_all(comm, in.device, swap.device, count, TUTTI_INT64, &options, nullptr));
    ok(tutti_broadcast(comm, cast.device, cast.device, count, TUTTI_INT64, root, &options, nullptr));
    ok(tutti_reduce(comm, in.device, at_root.device, count * n, TUTTI_INT64, TUTTI_SUM, root, &options, nullptr));
    ok(tutti_gather(comm, in.device, collected.device, count, TUTTI_INT64, root, &options, nullptr));
    ok(tutti_all_reduce(comm, sum.device, sum.device, count * n, TUTTI_INT64, TUTTI_SUM, &options, nullptr));
    if (round + 1 < rounds) continue;
    EXPECT_FALSE(sent(comm).contains("mapped"));
    ok(tutti_scatter(comm, in.device, piece.device, count, TUTTI_INT64, root, &options, nullptr));
    for (Data* data : {&sum, &all, &part, &swap, &cast, &at_root, &collected, &piece}) data->down();
    ASSERT_TRUE(s.finish());
    for (uint64_t i = 0; i < count * n; ++i) {
      const auto from = static_cast<uint32_t>(i / count);
      ASSERT_EQ(sum.host[i], sum_of(n, i) * n) << "all_reduce at " << i;
      ASSERT_EQ(all.host[i], value(from, i % count)) << "all_gather at " << i;
      ASSERT_EQ(swap.host[i], value(from, rank * count + i % count)) << "all_to_all at " << i;
      if (rank != root) continue;
      ASSERT_EQ(at_root.host[i], sum_of(n, i)) << "reduce at " << i;
      ASSERT_EQ(collected.host[i], value(from, i % count)) << "gather at " << i;
    }
    for (uint64_t i = 0; i < count; ++i) {
      int64_t most = INT64_MIN;
      for (uint32_t r = 0; r < n; ++r) most = std::max(most, value(r, rank * count + i));
      ASSERT_EQ(part.host[i], most) << "reduce_scatter at " << i;
      ASSERT_EQ(cast.host[i], value(77, i)) << "broadcast at " << i;
      ASSERT_EQ(piece.host[i], value(root, rank * count + i)) << "scatter at " << i;
    }
  }
  for (const uint32_t collective : {TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL,
                                    TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_GATHER})
    EXPECT_EQ(served(comm, collective), "simulated+window") << collective;
  EXPECT_EQ(served(comm, TUTTI_SCATTER).find("window"), std::string::npos) << "the others read what only its root has";
  ok(tutti_barrier(comm, nullptr, nullptr));
}

TEST(WindowCalls, AllCollectivesOfProcesses) {
  for (const uint32_t n : {2u, 3u})
    run_processes(
        n, 1, [](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, mib + 11, 3); }, "", hide_memory);
}

TEST(WindowCalls, AllCollectivesOfAnySize) {
  for (const uint64_t count : {1, 300, 20'000})
    run_processes(
        3, 1, [=](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, count, 3); }, "", hide_memory);
}

TEST(WindowCalls, AllCollectivesOfThreadsAndProcesses) {
  run_processes(
      5, 2, [](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, mib, 2); }, "", hide_memory);
}

TEST(WindowCalls, EveryAlgorithm) {
  for (const tutti_algorithm* algorithm : thinned(tutti::list_algorithms())) {
    const uint32_t n = serves(*algorithm, 3) ? 3 : 4;
    if (!serves(*algorithm, n)) continue;
    SCOPED_TRACE(only(*algorithm));
    run_processes(
        n, 1, [](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, mib, 1); }, only(*algorithm),
        hide_memory);
  }
}

TEST(WindowCalls, CarriesEveryByteOnce) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, 300000);
        EXPECT_EQ(sent(comm), (std::map<std::string, uint64_t>{{"window", 300000 * sizeof(int64_t)}}))
            << "half of it twice";
      },
      "all_reduce:ring", hide_memory);
}

// Scratch that peers read grows, again and again: each size is given back before the next but one is made.
TEST(WindowCalls, ScratchGrows) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        size_t after_three = 0;
        for (uint64_t k = 1; k <= 6; ++k) {
          if (k == 4) {
            ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
            after_three = mappings();
          }
          const uint64_t count = mib * k;
          Stream s;
          Data in(comm, s, count * 3), out(comm, s, count);
          for (uint64_t i = 0; i < count * 3; ++i) in.host[i] = value(rank, i);
          in.up();
          const tutti_options options = on(s);
          for (int call = 0; call < 2; ++call)
            ASSERT_EQ(
                tutti_reduce_scatter(comm, in.device, out.device, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                TUTTI_OK)
                << tutti_comm_error(comm);
          out.down();
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(out.host[i], sum_of(3, rank * count + i));
          EXPECT_EQ(served(comm, TUTTI_REDUCE_SCATTER), "simulated+window");
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        }
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        EXPECT_LE(mappings(), after_three) << "those of former scratch are gone";
      },
      "reduce_scatter:ring",
      [](uint32_t) {
        hide_memory();
        // The last call's buffers have 24 MiB, the scratches of the last two sizes 11; with all others it would be 45.
        setenv("TUTTI_SIMULATED_MEMORY", std::to_string(40 << 20).c_str(), 1);
      });
}

// Nothing is registered: all use slots. When all have registered nobody does.
TEST(WindowCalls, OnlyWhatIsRegistered) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(comm, s, mib, false), out(comm, s, mib, false);
        for (int call = 0; call < 3; ++call) reduce_once(comm, rank, s, in, out);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        EXPECT_FALSE(sent(comm).contains("window"));
        in.enlist();
        reduce_once(comm, rank, s, in, out);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped") << "of the input alone";
        out.enlist();
        reduce_once(comm, rank, s, in, out);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window");
        const uint64_t before = sent(comm)["mapped"];
        reduce_once(comm, rank, s, in, out);
        EXPECT_EQ(sent(comm)["mapped"], before);
      },
      "", hide_memory);
}

TEST(WindowCalls, SmallCallsAsWell) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        for (const uint64_t count : {uint64_t{1}, uint64_t{7}, mib}) {
          reduce_once(comm, rank, count);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window") << count;
        }
        EXPECT_FALSE(sent(comm).contains("mapped"));
      },
      "", hide_memory);
}

// On devices of their own a small call in windows is one launch.
TEST(WindowCalls, SmallCallsAreOneLaunch) {
  const OnDevices each;
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s(rank);
        Data in(comm, s, 50), out(comm, s, 50);
        for (int call = 0; call < 3; ++call) reduce_once(comm, rank, s, in, out);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window+fused");
      },
      "",
      [](uint32_t) {
        hide_memory();
        setenv("TUTTI_SIMULATED_DEVICES", "3", 1);
      });
}

// Out of place only the root of a broadcast has the input: it need not lie in a window.
TEST(WindowCalls, ABroadcastsInputNeedNotBeInAWindow) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s, other;
        Data in(comm, s, mib, false), out(comm, s, mib);
        for (uint32_t call = 0; call < 6; ++call) {
          const uint32_t root = call % 3;
          const tutti_options options = on(call % 2 ? other : s);
          for (uint64_t i = 0; i < mib; ++i) in.host[i] = value(call, i);
          in.up();
          ASSERT_TRUE(s.finish());
          ASSERT_EQ(tutti_broadcast(comm, rank == root ? in.device : nullptr, out.device, mib, TUTTI_INT64, root,
                                    &options, nullptr),
                    TUTTI_OK)
              << tutti_comm_error(comm);
          ASSERT_TRUE(other.finish());
          out.down();
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < mib; ++i) ASSERT_EQ(out.host[i], value(call, i)) << call << ", " << i;
          EXPECT_EQ(served(comm, TUTTI_BROADCAST), "simulated+window");
        }
      },
      "", hide_memory);
}

// The root of a reduce and of a gather may be in place or not, from call to call.
TEST(WindowCalls, ARootMayBeInPlace) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        const tutti_options options = on(s);
        Data in(comm, s, mib), out(comm, s, mib);
        for (uint32_t call = 0; call < 4; ++call) {
          const bool in_place = call % 2 == 0;
          for (uint64_t i = 0; i < mib; ++i) in.host[i] = value(rank, i) + call;
          in.up();
          int64_t* const to = rank != 1 ? nullptr : in_place ? in.device : out.device;
          ASSERT_EQ(tutti_reduce(comm, in.device, to, mib, TUTTI_INT64, TUTTI_SUM, 1, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
          Data& result = in_place ? in : out;
          result.down();
          ASSERT_TRUE(s.finish());
          EXPECT_EQ(served(comm, TUTTI_REDUCE), "simulated+window");
          for (uint64_t i = 0; rank == 1 && i < mib; ++i)
            ASSERT_EQ(result.host[i], sum_of(3, i) + 3 * call) << call << ", " << i;
        }
      },
      "", hide_memory);
}

// Part of a registered allocation is as good as all of it; what reaches beyond is not registered.
TEST(WindowCalls, PartsOfABuffer) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data data(comm, s, 3 * mib, false);
        int64_t* part = data.device + mib / 2;
        tutti_window* window = nullptr;
        ASSERT_EQ(tutti_comm_register(comm, part, 2 * mib * sizeof *part, nullptr, &window), TUTTI_OK);
        const tutti_options options = on(s);
        const auto reduce = [&](uint64_t from) {
          for (uint64_t i = 0; i < data.host.size(); ++i) data.host[i] = value(rank, i);
          data.up();
          ASSERT_EQ(tutti_all_reduce(comm, data.device + from, data.device + from, mib, TUTTI_INT64, TUTTI_SUM,
                                     &options, nullptr),
                    TUTTI_OK);
          data.down();
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < data.host.size(); ++i)
            ASSERT_EQ(data.host[i], i >= from && i < from + mib ? sum_of(2, i) : value(rank, i)) << i;
        };
        reduce(mib);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window");
        reduce(2 * mib);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        reduce(0);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        reduce(3 * mib / 2);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window");
        EXPECT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      },
      "", hide_memory);
}

// Deregistered memory is unmapped by whoever had mapped it, and may be registered again.
TEST(WindowCalls, DeregisteringUnmaps) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(comm, s, mib, false), out(comm, s, mib, false);
        reduce_once(comm, rank, s, in, out);
        const size_t own = mappings();
        in.enlist();
        out.enlist();
        for (int round = 0; round < 3; ++round) {
          reduce_once(comm, rank, s, in, out);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window");
          EXPECT_GT(mappings(), own);
          in.delist();
          out.delist();
          EXPECT_LE(mappings(), own) << "round " << round;
          in.enlist();
          out.enlist();
        }
      },
      "all_reduce:ring", hide_memory);
}

// Each call has buffers of its own, which are gone before the next; each is another memory to those who map it.
TEST(WindowCalls, BuffersComeAndGo) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        for (int round = 0; round < 12; ++round) {
          reduce_once(comm, rank, mib + static_cast<uint64_t>(round) % 3);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window");
        }
      },
      "", hide_memory);
}

// Windows go with their communicator; another one maps anew.
TEST(WindowCalls, CommunicatorsComeAndGo) {
  const std::string folder = "/tmp/tutti-window-test-" + std::to_string(getpid()) + "-";
  run_processes(
      2, 1,
      [&](tutti_comm* outer, uint32_t rank) {
        Stream s;
        Data in(outer, s, mib, false), out(outer, s, mib, false);
        const size_t own = mappings();
        for (int round = 0; round < 3; ++round) {
          const std::string meeting = folder + std::to_string(round);
          std::filesystem::create_directories(meeting);
          tutti_comm* comm = make_comm("file:" + meeting, rank, 2, "");
          ASSERT_NE(comm, nullptr);
          in.enlist(comm);
          out.enlist(comm);
          reduce_once(comm, rank, s, in, out);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+window");
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
          EXPECT_LE(mappings(), own) << "round " << round;
          in.window = out.window = nullptr;
        }
        ASSERT_EQ(tutti_barrier(outer, nullptr, nullptr), TUTTI_OK);
      },
      "", hide_memory);
  for (int round = 0; round < 3; ++round) std::filesystem::remove_all(folder + std::to_string(round));
}

// A rank that maps nothing of another device: all use slots, and the log says whose refusal it was.
TEST(WindowCalls, ARefusedMappingIsEverybodys) {
  const OnDevices each;
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s(rank);
        Data in(comm, s, mib), out(comm, s, mib);
        for (int call = 0; call < 2; ++call) {
          const std::string log = logged([&] { reduce_once(comm, rank, s, in, out); });
          EXPECT_FALSE(sent(comm).contains("window"));
          if (call == 0) {
            EXPECT_NE(log.find("are not read in place: rank 1: memory of rank 0 cannot be mapped"), std::string::npos)
                << log;
          }
        }
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
      },
      "all_reduce:ring",
      [](uint32_t rank) {
        hide_memory();
        setenv("TUTTI_LOG", "info", 1);
        if (rank == 1) setenv("TUTTI_SIMULATED_PEERS", "0", 1);
      });
}

TEST(WindowCalls, ARefusedExportIsEverybodys) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        const std::string log = logged([&] { reduce_once(comm, rank, mib); });
        EXPECT_FALSE(sent(comm).contains("window"));
        EXPECT_NE(log.find("are not read in place: rank 1: device simulated: "), std::string::npos) << log;
      },
      "all_reduce:ring",
      [](uint32_t rank) {
        hide_memory();
        setenv("TUTTI_LOG", "info", 1);
        if (rank == 1) setenv("TUTTI_SIMULATED_EXPORTS", "0", 1);
      });
}

TEST(WindowCalls, MoreMessagesThanThereAreFlags) {
  run_processes(
      18, 9,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, mib);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE).find("window"), std::string::npos);
        EXPECT_FALSE(sent(comm).contains("window"));
      },
      "all_reduce:ring", hide_memory);
}

TEST(WindowCalls, OtherHostsAndNamedTransportsHaveNoWindows) {
  const auto told = [](const std::string& why) {
    return [why](tutti_comm* comm, uint32_t rank) {
      const std::string log = logged([&] { reduce_once(comm, rank, mib); });
      EXPECT_FALSE(sent(comm).contains("window"));
      EXPECT_NE(log.find(why), std::string::npos) << log;
    };
  };
  run_processes(2, 1, told("ranks are on several hosts"), "", [](uint32_t rank) {
    setenv("TUTTI_LOG", "info", 1);
    setenv("TUTTI_HOST_ID", rank ? "here" : "there", 1);
  });
  run_processes(2, 1, told("TUTTI_TRANSPORT=\"shm\" carries everything"), "", [](uint32_t) {
    setenv("TUTTI_LOG", "info", 1);
    setenv("TUTTI_TRANSPORT", "shm", 1);
  });
}

}  // namespace
}  // namespace tutti::test
