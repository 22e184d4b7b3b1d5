// SPDX-License-Identifier: Apache-2.0
//
// A blocking call on host memory takes no lock and allocates nothing once its shape has been called before, whatever
// its size and whether its memory is registered or not. Likewise sends, receives and groups; what is kept for messages
// in flight grows with the most of them that there were at a time. With requests calls allocate nothing. Counted are
// operator new and pthread_mutex_lock (std::mutex) of the calling thread.
#include <dlfcn.h>
#include <pthread.h>
#include <tutti/tutti.h>

#include <array>
#include <cstring>

#include "../../../tests/harness/first_uses.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/replaced_new.hpp"

namespace {

thread_local bool counting = false;
thread_local uint64_t allocations = 0, locks = 0;

}  // namespace

void tutti::test::note_allocation() {
  if (counting) ++allocations;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const Lock lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (counting) ++locks;
  return lock(mutex);
}
#endif

namespace tutti::test {
namespace {

// Frees what tutti_mem_alloc made.
struct Registered {
  explicit Registered(uint64_t bytes) { EXPECT_EQ(tutti_mem_alloc(bytes, &address), TUTTI_OK); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() { tutti_mem_free(address); }
  void* address = nullptr;
};

constexpr std::array<uint64_t, 4> sizes{8, 8192, 65536, 1 << 20};
constexpr int rounds = 8;  // so that each shape comes by in each window

// Counts that differ from those of the call before, and so from the table that the plan is bound to.
void call_with_unequal_blocks(Communicator& comm, const void* in, void* out, uint64_t bytes) {
  const std::array<uint64_t, 2> counts{bytes / 8, bytes / 4}, of_block{counts[comm.rank()], counts[comm.rank()]};
  ASSERT_EQ(tutti_all_gather_v(comm.handle(), in, out, counts.data(), nullptr, TUTTI_UINT8, nullptr, nullptr),
            TUTTI_OK);
  ASSERT_EQ(
      tutti_reduce_scatter_v(comm.handle(), in, out, counts.data(), nullptr, TUTTI_UINT8, TUTTI_SUM, nullptr, nullptr),
      TUTTI_OK);
  ASSERT_EQ(tutti_all_to_all_v(comm.handle(), in, counts.data(), nullptr, out, of_block.data(), nullptr, TUTTI_UINT8,
                               nullptr, nullptr),
            TUTTI_OK);
}

// Numbers that travel as codes.
void call_with_codes(Communicator& comm, const void* in, void* out, uint64_t bytes) {
  tutti_options options{sizeof options};
  options.wire = TUTTI_WIRE_FLOAT8;
  ASSERT_EQ(tutti_all_reduce(comm.handle(), in, out, bytes / 4, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), TUTTI_OK);
  const std::array<uint64_t, 2> counts{bytes / 8, bytes / 16};
  options.wire = TUTTI_WIRE_FLOAT16;
  ASSERT_EQ(tutti_reduce_scatter_v(comm.handle(), in, out, counts.data(), nullptr, TUTTI_FLOAT32, TUTTI_AVG, &options,
                                   nullptr),
            TUTTI_OK);
}

// Several shapes in turn, an odd number of calls in each round: no window and no cache of the last call sees one shape
// only.
void call_all(Communicator& comm, void* in, void* out) {
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(tutti_barrier(comm.handle(), nullptr, nullptr), TUTTI_OK);
    for (const uint64_t bytes : sizes) {
      ASSERT_EQ(tutti_all_reduce(comm.handle(), in, out, bytes / 8, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr),
                TUTTI_OK);
      ASSERT_EQ(tutti_broadcast(comm.handle(), in, out, bytes, TUTTI_UINT8, 0, nullptr, nullptr), TUTTI_OK);
      call_with_unequal_blocks(comm, in, out, bytes);
      call_with_codes(comm, in, out, bytes);
    }
  }
}

// Collective. `work` comes to allocate nothing and, where that is asked for, to take no lock. Some attempts cost something:
// a wait that sleeps has locks of its own, and some paths are taken for the first time late, by chance.
template <typename Work>
void expect_free(Communicator& comm, const char* what, bool of_locks, Work&& work) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    work();
    comm.barrier();
    hear_first_uses(comm.handle());
    allocations = locks = 0;
    counting = true;
    work();
    counting = false;
    const int64_t mine = allocations || (of_locks && locks);
    int64_t all = 0;
    ASSERT_EQ(tutti_all_reduce(comm.handle(), &mine, &all, 1, TUTTI_INT64, TUTTI_MAX, nullptr, nullptr), TUTTI_OK);
    comm.barrier();
    if (!all) return;
  }
  FAIL() << what << " cost " << allocations << " allocations and " << locks << " locks in the last of many attempts";
}

// The text of the algorithms is in one place, and another one each time.
void call_with_options(Communicator& comm, const void* in, void* out) {
  char algorithms[16];
  tutti_options options{sizeof options};
  options.algorithms = algorithms;
  for (uint64_t i = 0; i < rounds * 3; ++i) {
    std::strcpy(algorithms, i % 3 == 0 ? "ring" : i % 3 == 1 ? "tree" : "^ring,tree");
    options.tag = i;
    ASSERT_EQ(tutti_all_reduce(comm.handle(), in, out, 1024, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK);
  }
}

void expect_free_calls(Communicator& comm, void* in, void* out) {
  expect_free(comm, "collectives", true, [&] { call_all(comm, in, out); });
  expect_free(comm, "collectives with options", true, [&] { call_with_options(comm, in, out); });
}

TEST(CallCost, TheCountersCount) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  allocations = locks = 0;
  counting = true;
  delete ::new (::operator new(sizeof(int))) int;
  void* memory = nullptr;
  EXPECT_EQ(tutti_mem_alloc(4096, &memory), TUTTI_OK);  // the process's table has a lock, and a node for each range
  counting = false;
  EXPECT_GE(allocations, 2u);
  EXPECT_GE(locks, 1u);
  EXPECT_EQ(tutti_mem_free(memory), TUTTI_OK);
}

TEST(CallCost, OrdinaryMemory) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<std::byte> in(sizes.back()), out(sizes.back());
              expect_free_calls(comm, in.data(), out.data());
            },
            {"shm"});
}

TEST(CallCost, RegisteredMemory) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  run_ranks(2,
            [](Communicator& comm) {
              const Registered in(sizes.back()), out(sizes.back());
              expect_free_calls(comm, in.address, out.address);
            },
            {"shm"});
}

// One step reduces the contributions of all. Ranks that share processors sleep, which takes locks.
TEST(CallCost, ExactSumsOfManyRanks) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  run_ranks(17,
            [](Communicator& comm) {
              std::vector<float> in(8192, 1), out(8192);
              const auto reduce = [&] {
                for (int i = 0; i < rounds; ++i) {
                  comm.barrier();  // see call_all
                  for (const uint64_t count : {1u, 100u, 8192u})
                    ASSERT_EQ(tutti_all_reduce(comm.handle(), in.data(), out.data(), count, TUTTI_FLOAT32, TUTTI_SUM,
                                               nullptr, nullptr),
                              TUTTI_OK);
                }
              };
              expect_free(comm, "exact sums", false, reduce);
            },
            {.transports = "shm", .flags = TUTTI_COMM_EXACT_SUMS});
}

constexpr std::array<uint64_t, 5> message_sizes{0, 8, 200, 8192, 300'000};
constexpr uint64_t most_message = message_sizes.back();
constexpr uint32_t group_size = 24;  // messages of a group, each way

// Two ranks. Rank 0 sends first.
struct Messages {
  Communicator& comm;
  uint32_t peer = 1 - comm.rank();
  std::vector<std::byte> out = std::vector<std::byte>(most_message);
  std::vector<std::byte> in = std::vector<std::byte>(most_message * group_size);
  std::array<tutti_message, 2 * group_size> group{};

  explicit Messages(Communicator& on) : comm(on) {
    for (uint32_t i = 0; i < group_size; ++i) {
      const uint64_t bytes = message_sizes[i % message_sizes.size()];
      group[i] = {in.data() + i * most_message, bytes, TUTTI_UINT8, peer, i % 7, TUTTI_RECEIVE};
      group[group_size + i] = {out.data(), bytes, TUTTI_UINT8, peer, i % 7, TUTTI_SEND};
    }
  }
  tutti_status send(uint64_t bytes, tutti_request** request) {
    return tutti_send(comm.handle(), out.data(), bytes, TUTTI_UINT8, peer, 3, nullptr, request);
  }
  tutti_status receive(uint64_t bytes, tutti_request** request) {
    return tutti_receive(comm.handle(), in.data(), bytes, TUTTI_UINT8, peer, 3, nullptr, request);
  }
  tutti_status exchange(tutti_request** request) {
    return tutti_exchange(comm.handle(), group.data(), group.size(), nullptr, request);
  }
  // As many sends as can be without their receives.
  void fill() {
    constexpr uint32_t most_unmatched = 64;
    for (const bool sends : {comm.rank() == 0, comm.rank() == 1}) {
      for (uint32_t i = 0; sends && i < most_unmatched; ++i) ASSERT_EQ(send(8, nullptr), TUTTI_OK);
      comm.barrier();
      for (uint32_t i = 0; !sends && i < most_unmatched; ++i) ASSERT_EQ(receive(8, nullptr), TUTTI_OK);
      comm.barrier();
    }
  }
  void block() {
    for (int i = 0; i < rounds; ++i) {
      for (const uint64_t bytes : message_sizes)
        for (const bool sends : {comm.rank() == 0, comm.rank() == 1})
          ASSERT_EQ(sends ? send(bytes, nullptr) : receive(bytes, nullptr), TUTTI_OK) << bytes;
      ASSERT_EQ(exchange(nullptr), TUTTI_OK);
    }
  }
  void ask() {
    std::array<tutti_request*, 3 * message_sizes.size()> requests{};
    for (int i = 0; i < rounds; ++i) {
      size_t n = 0;
      for (const uint64_t bytes : message_sizes) ASSERT_EQ(send(bytes, &requests[n++]), TUTTI_OK);
      for (const uint64_t bytes : message_sizes) ASSERT_EQ(receive(bytes, &requests[n++]), TUTTI_OK);
      ASSERT_EQ(exchange(&requests[n++]), TUTTI_OK);
      for (size_t k = 0; k < n; ++k) {
        ASSERT_EQ(tutti_request_wait(requests[k]), TUTTI_OK);
        tutti_request_free(requests[k]);
      }
    }
  }
};

void expect_free_messages(Communicator& comm) {
  Messages messages(comm);
  messages.fill();
  expect_free(comm, "sends, receives and groups", true, [&] { messages.block(); });
  // With requests under way the communicator is locked.
  expect_free(comm, "calls with requests", false, [&] { messages.ask(); });
}

// A request that was freed serves a later call.
void ask_all(Communicator& comm, void* in, void* out) {
  std::array<tutti_request*, sizes.size()> requests{};
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(tutti_barrier(comm.handle(), nullptr, nullptr), TUTTI_OK);  // see call_all
    for (size_t k = 0; k < sizes.size(); ++k)
      ASSERT_EQ(tutti_all_reduce(comm.handle(), in, out, sizes[k] / 8, TUTTI_INT64, TUTTI_SUM, nullptr, &requests[k]),
                TUTTI_OK);
    for (tutti_request* request : requests) {
      ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
      tutti_request_free(request);
    }
  }
}

TEST(CallCost, CollectivesWithRequests) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<std::byte> in(sizes.back()), out(sizes.back());
              expect_free(comm, "calls with requests", false, [&] { ask_all(comm, in.data(), out.data()); });
            },
            {"shm"});
}

// Two shapes and a message to and fro, started in turn.
void expect_free_starts(Communicator& comm) {
  Messages(comm).fill();
  std::vector<int64_t> in(8192), out(8192);
  const uint32_t other = 1 - comm.rank();
  const std::vector<tutti_message> swap{{in.data(), 1000, TUTTI_INT64, other, 1, TUTTI_SEND, {}},
                                        {out.data(), 1000, TUTTI_INT64, other, 1, TUTTI_RECEIVE, {}}};
  tutti_options options{sizeof options};
  options.flags = TUTTI_PERSISTENT;
  std::array<tutti_request*, 3> requests{};
  ASSERT_EQ(tutti_all_reduce(comm.handle(), in.data(), out.data(), 1, TUTTI_INT64, TUTTI_SUM, &options, &requests[0]),
            TUTTI_OK);
  ASSERT_EQ(
      tutti_all_reduce(comm.handle(), in.data(), out.data(), 8192, TUTTI_INT64, TUTTI_SUM, &options, &requests[1]),
      TUTTI_OK);
  ASSERT_EQ(tutti_exchange(comm.handle(), swap.data(), swap.size(), &options, &requests[2]), TUTTI_OK);
  const auto start_all = [&] {
    for (int i = 0; i < 2 * rounds; ++i) {
      for (tutti_request* request : requests) {
        ASSERT_EQ(tutti_request_start(request), TUTTI_OK);
        ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
      }
      comm.barrier();  // never more messages in flight than before
    }
  };
  expect_free(comm, "starts", false, start_all);
  for (tutti_request* request : requests) tutti_request_free(request);
}

TEST(CallCost, PersistentRequests) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  run_ranks(2, expect_free_starts, {"shm"});
}

TEST(CallCost, SendsReceivesAndGroups) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  run_ranks(2, expect_free_messages, {"shm"});
}

}  // namespace
}  // namespace tutti::test
