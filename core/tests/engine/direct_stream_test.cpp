// SPDX-License-Identifier: Apache-2.0
//
// Collectives whose streams read registered device memory of other processes where it is. Device memory is private to
// streams: a host that touched it would end the process.
#include <signal.h>

#include <atomic>
#include <fstream>
#include <map>
#include <memory>

#include "stream_ranks.hpp"

namespace tutti::test {
namespace {

constexpr uint64_t least = (1 << 20) / sizeof(int64_t);  // elements of a block that is read directly

void hide_memory(uint32_t = 0) { setenv("TUTTI_SIMULATED_PRIVATE", "1", 1); }

// Device memory with a host side that its stream copies to and from.
class Data {
 public:
  Data(Stream& stream, uint64_t count, bool registered = true)
      : stream_(stream), host(count), device(stream.make<int64_t>(count)) {
    EXPECT_EQ(tables_.memory->map_host(nullptr, host.data(), bytes(), &seen_), TUTTI_OK);
    if (registered) enlist();
  }
  // The communicator's other ranks have nothing pending that waits for this one.
  ~Data() {
    if (registered_) delist();
    EXPECT_EQ(tables_.memory->unmap_host(nullptr, host.data()), TUTTI_OK);
    stream_.free(device);
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  uint64_t bytes() const { return host.size() * sizeof(int64_t); }
  void enlist() {
    EXPECT_EQ(tutti_mem_register(device, bytes(), -1, 0), TUTTI_OK);
    registered_ = true;
  }
  // A second is not always enough for a peer on a busy machine.
  void delist() {
    tutti_status status = TUTTI_TIMEOUT;
    for (int k = 0; k < 60 && status == TUTTI_TIMEOUT; ++k) status = tutti_mem_deregister(device);
    EXPECT_EQ(status, TUTTI_OK);
    registered_ = false;
  }
  void up() { copy(device, seen_); }
  void down() { copy(seen_, device); }

 private:
  void copy(void* to, const void* from) {
    tutti_command command{};
    command.kind = TUTTI_COMMAND_COPY;
    command.sources = 1;
    command.src = &from;
    command.dst = to;
    command.count = bytes();
    ASSERT_EQ(tables_.executor->enqueue(nullptr, stream_.handle, &command, 1), TUTTI_OK);
  }
  tutti::DeviceTables tables_ = tutti::test::device();
  Stream& stream_;
  void* seen_ = nullptr;
  bool registered_ = false;

 public:
  std::vector<int64_t> host;
  int64_t* device;
};

int64_t sum_of(uint32_t n, uint64_t i) {
  int64_t sum = 0;
  for (uint32_t r = 0; r < n; ++r) sum += value(r, i);
  return sum;
}

// One all-reduce out of place.
void reduce_once(tutti_comm* comm, uint32_t rank, Stream& s, Data& in, Data& out) {
  for (uint64_t i = 0; i < in.host.size(); ++i) in.host[i] = value(rank, i);
  in.up();
  const tutti_options options = on(s);
  ASSERT_EQ(tutti_all_reduce(comm, in.device, out.device, in.host.size(), TUTTI_INT64, TUTTI_SUM, &options, nullptr),
            TUTTI_OK)
      << tutti_comm_error(comm);
  out.down();
  ASSERT_TRUE(s.finish());
  for (uint64_t i = 0; i < out.host.size(); ++i) ASSERT_EQ(out.host[i], sum_of(tutti_comm_nranks(comm), i)) << i;
}
void reduce_once(tutti_comm* comm, uint32_t rank, uint64_t count, bool registered = true) {
  Stream s;
  Data in(s, count, registered), out(s, count, registered);
  reduce_once(comm, rank, s, in, out);
  // Peers still read.
  ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
}

std::string logged(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

// How many pieces of device memory this process has mapped, its own and others'.
size_t mappings() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += line.find("tutti-simulated-device") != std::string::npos;
  return count;
}
// Progress threads unmap when they come to it.
void expect_mappings_at_most(size_t count, const std::string& when) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (mappings() > count && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LE(mappings(), count) << when;
}

// All collectives, out of place and in place, many in a row without waiting, with the data of each changing.
void all_collectives(tutti_comm* comm, uint32_t rank, uint64_t count, int rounds) {
  const uint32_t n = tutti_comm_nranks(comm);
  Stream s;
  const tutti_options options = on(s);
  Data in(s, count * n), sum(s, count * n), all(s, count * n), part(s, count), swap(s, count * n), cast(s, count),
      at_root(s, count * n), collected(s, count * n), piece(s, count);
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
    ok(tutti_scatter(comm, in.device, piece.device, count, TUTTI_INT64, root, &options, nullptr));
    ok(tutti_all_reduce(comm, sum.device, sum.device, count * n, TUTTI_INT64, TUTTI_SUM, &options, nullptr));
    if (round + 1 < rounds) continue;
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
                                    TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_GATHER, TUTTI_SCATTER})
    EXPECT_EQ(served(comm, collective), "simulated+direct") << collective;
  EXPECT_FALSE(sent(comm).contains("mapped"));
  ok(tutti_barrier(comm, nullptr, nullptr));
}

TEST(DirectStream, AllCollectivesOfProcesses) {
  for (const uint32_t n : {2u, 3u})
    run_processes(
        n, 1, [](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, least + 11, 3); }, "", hide_memory);
}

TEST(DirectStream, AllCollectivesOfThreadsAndProcesses) {
  run_processes(5, 2, [](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, least, 2); }, "", hide_memory);
}

TEST(DirectStream, EveryAlgorithm) {
  for (const tutti_algorithm* algorithm : tutti::list_algorithms()) {
    const uint32_t n = serves(*algorithm, 3) ? 3 : 4;
    if (!serves(*algorithm, n)) continue;
    SCOPED_TRACE(only(*algorithm));
    run_processes(
        n, 1, [](tutti_comm* comm, uint32_t rank) { all_collectives(comm, rank, least, 1); }, only(*algorithm),
        hide_memory);
  }
}

TEST(DirectStream, CarriesEveryByteOnce) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, 300000);
        EXPECT_EQ(sent(comm), (std::map<std::string, uint64_t>{{"direct", 300000 * sizeof(int64_t)}}))
            << "half of it twice";
      },
      "all_reduce:ring", hide_memory);
}

// Scratch that peers read grows, again and again: each size is given back before the next but one is made.
TEST(DirectStream, ScratchGrows) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        size_t after_three = 0;
        for (uint64_t k = 1; k <= 6; ++k) {
          if (k == 4) {
            ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
            after_three = mappings();
          }
          const uint64_t count = least * k;
          Stream s;
          Data in(s, count * 3), out(s, count);
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
          EXPECT_EQ(served(comm, TUTTI_REDUCE_SCATTER), "simulated+direct");
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        }
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        expect_mappings_at_most(after_three, "those of former scratch are gone");
      },
      "reduce_scatter:ring",
      [](uint32_t) {
        hide_memory();
        // The last call's buffers have 24 MiB, the scratches of the last two sizes 11; with all others it would be 45.
        setenv("TUTTI_SIMULATED_MEMORY", std::to_string(40 << 20).c_str(), 1);
      });
}

// One rank's buffers are not registered: all use slots. When it has registered them nobody does.
TEST(DirectStream, AllRanksAgree) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(s, least, rank != 1), out(s, least, rank != 1);
        const std::string log = logged([&] {
          for (int call = 0; call < 3; ++call) reduce_once(comm, rank, s, in, out);
        });
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        EXPECT_FALSE(sent(comm).contains("direct"));
        const std::string why =
            "are not read directly: rank 1: a buffer of 1048576 bytes is not registered (tutti_mem_register)";
        EXPECT_EQ(log.find(why) != std::string::npos, rank != 1) << log;
        if (rank == 1) {
          in.enlist();
          out.enlist();
        }
        reduce_once(comm, rank, s, in, out);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
      },
      "",
      [](uint32_t) {
        hide_memory();
        setenv("TUTTI_LOG", "info", 1);
      });
}

TEST(DirectStream, SmallCallsUseSlots) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        const std::string log = logged([&] { reduce_once(comm, rank, least - 1); });
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        EXPECT_NE(log.find("blocks of less than 1048576 bytes go through slots"), std::string::npos) << log;
        reduce_once(comm, rank, least);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
      },
      "",
      [](uint32_t) {
        hide_memory();
        setenv("TUTTI_LOG", "info", 1);
      });
}

// Part of a registered allocation is as good as all of it; what reaches beyond is not registered.
TEST(DirectStream, PartsOfABuffer) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data data(s, 3 * least, false);
        int64_t* part = data.device + least / 2;
        ASSERT_EQ(tutti_mem_register(part, 2 * least * sizeof *part, -1, 0), TUTTI_OK);
        const tutti_options options = on(s);
        const auto reduce = [&](uint64_t from) {
          for (uint64_t i = 0; i < data.host.size(); ++i) data.host[i] = value(rank, i);
          data.up();
          ASSERT_EQ(tutti_all_reduce(comm, data.device + from, data.device + from, least, TUTTI_INT64, TUTTI_SUM,
                                     &options, nullptr),
                    TUTTI_OK);
          data.down();
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < data.host.size(); ++i)
            ASSERT_EQ(data.host[i], i >= from && i < from + least ? sum_of(2, i) : value(rank, i)) << i;
        };
        reduce(least);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
        reduce(2 * least);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        reduce(0);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        reduce(3 * least / 2);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        while (tutti_mem_deregister(part) == TUTTI_TIMEOUT) {
        }
      },
      "", hide_memory);
}

TEST(DirectStream, WrongRegistrationsAreRefused) {
  run_processes(1, 1, [](tutti_comm*, uint32_t) {
    Stream s;
    auto* data = s.make<int64_t>(1000);
    EXPECT_EQ(tutti_mem_register(data, 8001, -1, 0), TUTTI_INVALID_ARGUMENT) << "more than there is";
    EXPECT_EQ(tutti_mem_register(data + 500, 4001, -1, 0), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_mem_register(data, 0, -1, 0), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_mem_register(data, 8000, 0, 0), TUTTI_INVALID_ARGUMENT) << "a descriptor";
    EXPECT_EQ(tutti_mem_register(data, 8000, -1, 8), TUTTI_INVALID_ARGUMENT) << "an offset";
    EXPECT_EQ(tutti_mem_deregister(data), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_mem_register(data, 4000, -1, 0), TUTTI_OK);
    EXPECT_EQ(tutti_mem_register(data + 499, 8, -1, 0), TUTTI_INVALID_ARGUMENT) << "overlaps";
    EXPECT_EQ(tutti_mem_register(data + 500, 4000, -1, 0), TUTTI_OK);
    EXPECT_EQ(tutti_mem_deregister(data + 1), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_mem_deregister(data), TUTTI_OK);
    EXPECT_EQ(tutti_mem_deregister(data + 500), TUTTI_OK);
    s.free(data);
    EXPECT_EQ(tutti_mem_register(data, 8000, -1, 0), TUTTI_INVALID_ARGUMENT) << "freed";
  });
}

// Deregistered memory is unmapped by whoever had mapped it, and may be registered again.
TEST(DirectStream, DeregisteringUnmaps) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(s, least), out(s, least);
        const size_t own = mappings();
        for (int round = 0; round < 3; ++round) {
          reduce_once(comm, rank, s, in, out);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
          EXPECT_GT(mappings(), own);
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
          in.delist();
          out.delist();
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
          expect_mappings_at_most(own, "round " + std::to_string(round));
          in.enlist();
          out.enlist();
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        }
      },
      "all_reduce:ring", hide_memory);
}

// Each call has buffers of its own, which are gone before the next; each is another memory to those who map it.
TEST(DirectStream, BuffersComeAndGo) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        for (int round = 0; round < 12; ++round) {
          reduce_once(comm, rank, least + static_cast<uint64_t>(round) % 3);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
        }
      },
      "", hide_memory);
}

// A peer whose streams wait for this process cannot unmap now: deregistering says so, in time, and succeeds later.
TEST(DirectStream, DeregisteringWhileAPeerWaits) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(s, least), out(s, least);
        reduce_once(comm, rank, s, in, out);
        const tutti_options options = on(s);
        auto* small = s.make<int64_t>(1);
        const auto reduce_small = [&] {
          ASSERT_EQ(tutti_all_reduce(comm, small, small, 1, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        reduce_small();
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        if (rank == 0) {
          ASSERT_EQ(tutti_receive(comm, nullptr, 0, TUTTI_INT8, 1, 0, nullptr, nullptr), TUTTI_OK);
          const std::string log = logged([&] { EXPECT_EQ(tutti_mem_deregister(in.device), TUTTI_TIMEOUT); });
          EXPECT_NE(log.find("is still mapped by the processes of ranks 1,"), std::string::npos) << log;
          EXPECT_EQ(tutti_mem_register(in.device, in.bytes(), -1, 0), TUTTI_INVALID_ARGUMENT);
        }
        reduce_small();
        if (rank == 1) {
          ASSERT_EQ(tutti_send(comm, nullptr, 0, TUTTI_INT8, 0, 0, nullptr, nullptr), TUTTI_OK);
        }
        ASSERT_TRUE(s.finish());
        if (rank == 0) in.delist();
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        s.free(small);
      },
      "all_reduce:ring", hide_memory);
}

// Nobody is asked any more when the communicator is gone; another one maps anew.
TEST(DirectStream, CommunicatorsComeAndGo) {
  const std::string folder = "/tmp/tutti-direct-test-" + std::to_string(getpid()) + "-";
  run_processes(
      2, 1,
      [&](tutti_comm* outer, uint32_t rank) {
        Stream s;
        Data in(s, least), out(s, least);
        const size_t own = mappings();
        for (int round = 0; round < 3; ++round) {
          const std::string meeting = folder + std::to_string(round);
          std::filesystem::create_directories(meeting);
          tutti_comm* comm = make_comm("file:" + meeting, rank, 2, "");
          ASSERT_NE(comm, nullptr);
          reduce_once(comm, rank, s, in, out);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+direct");
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
          expect_mappings_at_most(own, "round " + std::to_string(round));
        }
        ASSERT_EQ(tutti_barrier(outer, nullptr, nullptr), TUTTI_OK);
      },
      "", hide_memory);
  for (int round = 0; round < 3; ++round) std::filesystem::remove_all(folder + std::to_string(round));
}

// A rank that maps nothing of another device: all use slots, and the log says whose refusal it was.
TEST(DirectStream, ARefusedMappingIsEverybodys) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s(rank);
        Data in(s, least), out(s, least);
        for (int call = 0; call < 2; ++call) {
          const std::string log = logged([&] { reduce_once(comm, rank, s, in, out); });
          EXPECT_FALSE(sent(comm).contains("direct"));
          if (call == 0) {
            EXPECT_NE(log.find("are not read directly: rank 1: memory of rank 0 cannot be mapped"), std::string::npos)
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

TEST(DirectStream, ARefusedExportIsEverybodys) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        const std::string log = logged([&] { reduce_once(comm, rank, least); });
        EXPECT_FALSE(sent(comm).contains("direct"));
        EXPECT_NE(log.find("are not read directly: rank 1: device simulated: "), std::string::npos) << log;
      },
      "all_reduce:ring",
      [](uint32_t rank) {
        hide_memory();
        setenv("TUTTI_LOG", "info", 1);
        if (rank == 1) setenv("TUTTI_SIMULATED_EXPORTS", "0", 1);
      });
}

TEST(DirectStream, MoreMessagesThanTheBoardHolds) {
  run_processes(
      18, 9,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, least);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE).find("direct"), std::string::npos);
        EXPECT_FALSE(sent(comm).contains("direct"));
      },
      "all_reduce:ring", hide_memory);
}

TEST(DirectStream, OtherHostsAndNamedTransportsHaveNoBoard) {
  const auto told = [](const std::string& why) {
    return [why](tutti_comm* comm, uint32_t rank) {
      const std::string log = logged([&] { reduce_once(comm, rank, least); });
      EXPECT_FALSE(sent(comm).contains("direct"));
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

// What the application has put into the stream before may take as long as it likes, also where the call waits for it.
TEST(DirectStream, NoDeadlineForTheApplicationsWork) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(s, least), out(s, least);
        reduce_once(comm, rank, s, in, out);
        auto* small = s.make<int64_t>(1);
        const auto reduce_small = [&] {
          const tutti_options options = on(s);
          ASSERT_EQ(tutti_all_reduce(comm, small, small, 1, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        reduce_small();
        ASSERT_TRUE(s.finish());
        void* seen = nullptr;
        std::vector<uint32_t> word(1024);
        ASSERT_EQ(device().memory->map_host(nullptr, word.data(), 4096, &seen), TUTTI_OK);
        tutti_command wait{};
        wait.kind = TUTTI_COMMAND_WAIT;
        wait.word = static_cast<uint32_t*>(seen);
        wait.value = 1;
        if (rank == 0) {
          ASSERT_EQ(device().executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
        }
        reduce_small();
        // A buffer that the peer has not been given: the call waits until nothing is pending.
        Data fresh(s, least);
        std::thread application([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(2500));
          std::atomic_ref(word[0]).store(1);
        });
        const tutti_options options = on(s, rank == 0 ? 1'000'000'000 : 0);
        EXPECT_EQ(tutti_all_reduce(comm, fresh.device, out.device, least, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                  TUTTI_OK)
            << tutti_comm_error(comm);
        application.join();
        ASSERT_TRUE(s.finish());
        EXPECT_EQ(served(comm), "simulated+direct");
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        EXPECT_EQ(device().memory->unmap_host(nullptr, word.data()), TUTTI_OK);
        s.free(small);
      },
      "all_reduce:ring", hide_memory);
}

// The ranks meet in the call: who stays away is named.
TEST(DirectStream, ARankThatStaysAwayIsNamed) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(s, least), out(s, least);
        reduce_once(comm, rank, s, in, out);
        tutti_options options = on(s);
        options.timeout_ns = 1'000'000'000;
        if (rank == 0) {
          EXPECT_EQ(tutti_all_reduce(comm, in.device, out.device, least, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                    TUTTI_TIMEOUT);
          const std::string text = tutti_comm_error(comm);
          EXPECT_NE(text.find("rank 1 has not entered operation #1: its last was #0, all_reduce(131072 x int64, sum)"),
                    text.npos)
              << text;
        }
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_TIMEOUT);
        EXPECT_TRUE(s.finish());
      },
      "", hide_memory);
}

// A rank whose stream does not come to the call, since it waits for `word`, keeps its peers' streams waiting: `then`
// ends it.
void in_the_middle(const std::function<void(tutti_comm*, std::atomic_ref<uint32_t> word)>& then,
                   const std::string& told, tutti_status expected) {
  char folder[] = "/tmp/tutti-direct-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  hide_memory();
  const pid_t ends = fork();
  if (ends == 0) {
    tutti_comm* comm = make_comm(where, 1, 2, "");
    Stream s;
    Data in(s, least), out(s, least);
    reduce_once(comm, 1, s, in, out);
    void* seen = nullptr;
    std::vector<uint32_t> word(1024);
    EXPECT_EQ(device().memory->map_host(nullptr, word.data(), 4096, &seen), TUTTI_OK);
    tutti_command wait{};
    wait.kind = TUTTI_COMMAND_WAIT;
    wait.word = static_cast<uint32_t*>(seen);
    wait.value = 1;
    EXPECT_EQ(device().executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
    const tutti_options options = on(s);
    EXPECT_EQ(tutti_all_reduce(comm, in.device, out.device, least, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    then(comm, std::atomic_ref(word[0]));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const pid_t survives = fork();
  if (survives == 0) {
    tutti_comm* comm = make_comm(where, 0, 2, "");
    {
      Stream s;
      Data in(s, least), out(s, least);
      reduce_once(comm, 0, s, in, out);
      const tutti_options options = on(s);
      const tutti_status status =
          tutti_all_reduce(comm, in.device, out.device, least, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
      EXPECT_TRUE(status == TUTTI_OK || status == expected) << tutti_comm_error(comm);
      EXPECT_TRUE(s.finish(30)) << "the stream still waits";
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(tutti_comm_async_error(comm), expected);
      EXPECT_LT(tutti_barrier(comm, nullptr, nullptr), 0);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(told), std::string::npos) << tutti_comm_error(comm);
      // The buffers are given back: the other's process is gone, or its streams were let go.
    }
    tutti_comm_destroy(comm);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(survives, &status, 0);
  EXPECT_EQ(status, 0);
  waitpid(ends, &status, 0);
  EXPECT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
  std::filesystem::remove_all(folder);
}

TEST(DirectStream, AKilledRankDoesNotHoldUpTheStream) {
  in_the_middle([](tutti_comm*, std::atomic_ref<uint32_t>) { raise(SIGKILL); }, "rank 1", TUTTI_PEER_FAILED);
}

TEST(DirectStream, AnAbortLetsStreamsGo) {
  in_the_middle(
      [](tutti_comm* comm, std::atomic_ref<uint32_t> word) {
        std::thread application([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          word.store(1);
        });
        tutti_comm_abort(comm, "changed its mind");
        application.join();
      },
      "changed its mind", TUTTI_ABORTED);
}

}  // namespace
}  // namespace tutti::test
