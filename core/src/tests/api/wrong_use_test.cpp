// SPDX-License-Identifier: Apache-2.0
//
// Wrong use that reaches beyond one call: a rank that cannot take part, handles after their end, in forked children and
// in two threads at once, limits of the system, and what children inherit. Each is an error that says so, in time, on
// every rank that it concerns.
#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds soon(60);  // the deadlines are not shorter

Failed create(const tutti_comm_config& config) {
  return failure_of([&] { Communicator comm(config); });
}

struct Unfit {
  const char* what;
  const char* transports;
  const char* algorithms;
  const char* says;
};

constexpr Unfit unfit[] = {
    {"unknown transport", "pigeon", nullptr, "there is no transport \"pigeon\"; there are:"},
    {"unknown transport to leave out", "^pigeon", nullptr, "there is no transport \"pigeon\"; there are:"},
    {"no name", ",", nullptr, "TUTTI_TRANSPORT=\",\": a name is empty; expected \"a,b\" (these)"},
    {"an empty name", "shm,,tcp", nullptr, "a name is empty"},
    {"nothing left out", "^", nullptr, "a name is empty"},
    {"a name twice", "shm,shm", nullptr, "shm is named twice"},
    {"one named and one left out", "shm,^tcp", nullptr, "TUTTI_TRANSPORT=\"shm,^tcp\": \"^tcp\" has a ^ of its own"},
    {"a ^ for each", "^shm,^tcp", nullptr, "\"^tcp\" has a ^ of its own"},
    {"unknown algorithm", nullptr, "all_reduce:magic", "there is no algorithm \"magic\"; there are:"},
    {"unknown collective", nullptr, "all_shuffle:ring", "collectives: broadcast"},
    {"an algorithm and one left out", nullptr, "all_reduce:ring,^tree", "all_reduce=\"ring,^tree\": \"^tree\" has a ^"},
};

// One rank's mistake: all hear of it at once, and from whom.
TEST(WrongUse, ARankThatCannotTakePartTellsTheOthers) {
  for (const Unfit& wrong : unfit) {
    const std::string place = fresh_place();
    const auto start = Clock::now();
    Failed failed[3];
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        tutti_comm_config config = config_of(place, rank, 3);
        if (rank == 1) config.transports = wrong.transports;
        if (rank == 1) config.algorithms = wrong.algorithms;
        failed[rank] = create(config);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_LT(Clock::now() - start, soon) << wrong.what;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_LT(failed[rank].status, 0) << wrong.what;
      EXPECT_NE(failed[rank].text.find(wrong.says), std::string::npos)
          << wrong.what << ", rank " << rank << ": " << failed[rank].text;
      EXPECT_TRUE(rank == 1 || failed[rank].text.find("rank 1") != std::string::npos)
          << wrong.what << ", rank " << rank << ": " << failed[rank].text;
    }
  }
}

TEST(WrongUse, TransportsCanBeLeftOut) {
  std::string all = "^";
  for (const tutti_transport* transport : list_transports())
    if (std::string(transport->name) != "shm") all += (all.size() > 1 ? "," : "") + std::string(transport->name);
  run_ranks(2,
            [](Communicator& comm) {
              int32_t x = 1;
              comm.all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::sum);
              EXPECT_EQ(x, 2);
              for (const auto& row : comm.traffic()) EXPECT_STREQ(row.transport, "shm");
            },
            {all.c_str()});
}

TEST(WrongUse, AHandleAfterItsEndIsAnError) {
  const std::string place = fresh_place();
  tutti_comm_config config = config_of(place, 0, 1);
  tutti_comm* comm = nullptr;
  ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
  ASSERT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
  float x = 0;
  EXPECT_EQ(tutti_all_reduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr), TUTTI_INVALID_USAGE);
  EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_INVALID_USAGE);
  EXPECT_EQ(tutti_comm_abort(comm, "late"), TUTTI_INVALID_USAGE);
  EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_INVALID_USAGE);
  EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_INVALID_USAGE);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find("was destroyed"), std::string::npos);
}

TEST(WrongUse, AForkedChildHasNoPart) {
  run_ranks(2, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      const pid_t child = fork();
      if (child == 0) {
        float x = 0;
        tutti_comm* handle = comm.handle();
        const bool refused =
            tutti_all_reduce(handle, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr) == TUTTI_INVALID_USAGE &&
            std::strstr(tutti_comm_error(handle), "forked") && tutti_comm_destroy(handle) == TUTTI_INVALID_USAGE;
        _exit(refused ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    comm.barrier();  // the parent goes on as before
  });
}

// A thread that the child does not have may hold any of the library's locks when the process is forked.
TEST(WrongUse, AForkedChildWaitsForNoLock) {
  run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 0) {
      std::atomic<bool> stop{false};
      std::vector<float> in(1000, 1.0f), out(1000);
      tutti_request* request = nullptr;
      ASSERT_EQ(tutti_all_reduce(comm.handle(), in.data(), out.data(), in.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                                 &request),
                TUTTI_OK);
      // It never completes meanwhile, so this thread is in and out of the engine's lock all the time.
      std::thread waits([&] {
        while (!stop) tutti_request_wait_for(request, 1'000'000);
      });
      for (int k = 0; k < 50; ++k) {
        const pid_t child = fork();
        if (child == 0) {
          alarm(60);
          float x = 0;
          const tutti_status refused[] = {tutti_barrier(comm.handle(), nullptr, nullptr),
                                          tutti_send(comm.handle(), &x, 1, TUTTI_FLOAT32, 1, 0, nullptr, nullptr),
                                          tutti_request_wait_for(request, 1'000'000),
                                          tutti_comm_abort(comm.handle(), "by a child"),
                                          tutti_comm_destroy(comm.handle())};
          int wrong = 0;
          for (const tutti_status status : refused) wrong += status != TUTTI_INVALID_USAGE;
          _exit(wrong);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
      }
      stop = true;
      waits.join();
      comm.send<float>({in.data(), 1}, 1);
      EXPECT_EQ(tutti_request_wait(request), TUTTI_OK);
      tutti_request_free(request);
    } else {
      float x = 0;
      comm.receive<float>({&x, 1}, 0);
      std::vector<float> in(1000, 1.0f), out(1000);
      comm.all_reduce<float>(in, out, Op::sum);
    }
  });
}

// The parent has an operation under way: its child must neither wait for it nor move its bytes.
TEST(WrongUse, AForkedChildLeavesItsParentsRequestsAlone) {
  for (const char* transports : {"shm", "tcp"})
    run_ranks(2,
              [](Communicator& comm) {
                std::vector<float> in(1 << 20, 1.0f), out(in.size());
                comm.barrier();
                tutti_request* request = nullptr;
                ASSERT_EQ(tutti_all_reduce(comm.handle(), in.data(), out.data(), in.size(), TUTTI_FLOAT32, TUTTI_SUM,
                                           nullptr, &request),
                          TUTTI_OK);
                if (comm.rank() == 0) {
                  const pid_t child = fork();
                  if (child == 0) {
                    uint32_t lost[2];
                    uint64_t n = 2;
                    const tutti_status refused[] = {tutti_request_test(request),
                                                    tutti_request_wait(request),
                                                    tutti_request_wait_for(request, 1'000'000),
                                                    tutti_comm_abort(comm.handle(), "by a child"),
                                                    tutti_comm_revoke(comm.handle(), "by a child"),
                                                    tutti_comm_lost(comm.handle(), lost, &n),
                                                    tutti_comm_async_error(comm.handle()),
                                                    tutti_request_start(request),
                                                    tutti_comm_destroy(comm.handle())};
                    int wrong = 0;
                    for (const tutti_status status : refused) wrong += status != TUTTI_INVALID_USAGE;
                    wrong += !std::strstr(tutti_request_error(request), "forked") ||
                             !std::strstr(tutti_request_error(request), "may only exec or exit");
                    tutti_request_free(request);
                    _exit(wrong);
                  }
                  int status = -1;
                  ASSERT_EQ(waitpid(child, &status, 0), child);
                  EXPECT_EQ(status, 0);
                }
                ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
                tutti_request_free(request);
                for (const float x : out) ASSERT_EQ(x, 2.0f);
                comm.all_reduce<float>(in, out, Op::sum);
                for (const float x : out) ASSERT_EQ(x, 2.0f);
              },
              {transports});
}

TEST(WrongUse, TwoThreadsAtOnceAreTold) {
  std::atomic<bool> over{false};
  run_ranks(2, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) {  // until then rank 0 is inside
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return comm.barrier();
    }
    std::thread intruder([&] {
      float x = 0;
      tutti_status status = TUTTI_OK;
      const auto end = Clock::now() + soon;
      // At first the owner may not be inside yet; with a message of nobody a second send would harm nothing.
      while (status == TUTTI_OK && Clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        status = tutti_comm_explain(comm.handle(), 99, 1, TUTTI_FLOAT32, nullptr, nullptr) == TUTTI_INVALID_ARGUMENT
                     ? tutti_send(comm.handle(), &x, 1, TUTTI_FLOAT32, 1, 7, nullptr, nullptr)
                     : TUTTI_INTERNAL;
      }
      EXPECT_EQ(status, TUTTI_INVALID_USAGE);
      EXPECT_NE(std::string(tutti_comm_error(comm.handle())).find("another thread is inside"), std::string::npos);
      over = true;
    });
    comm.barrier();
    intruder.join();
  });
}

// In a process of its own, with a limit: what went wrong, or "" when nothing did.
std::string in_child(int limit, rlim_t value, const std::function<std::string()>& body) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    rlimit bound{value, value};
    std::string text = "no limit could be set";
    if (setrlimit(limit, &bound) == 0) text = body();
    (void)!write(pipes[1], text.data(), text.size());
    _exit(0);
  }
  close(pipes[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = read(pipes[0], bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(n));
  close(pipes[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  return text;
}

// Two thread-ranks that make a communicator and send each other a little; what went wrong at each.
std::string two_ranks() {
  const std::string place = fresh_place();
  std::string errors[2];
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        tutti_comm_config config = config_of(place, rank, 2);
        config.timeout_ns = config.connect_timeout_ns = 10'000'000'000;
        Communicator comm(config);
        comm.barrier();
      } catch (const std::exception& e) {
        errors[rank] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors[0] + "\n" + errors[1];
}

TEST(WrongUse, RunningOutOfDescriptorsIsAnError) {
  if (sanitized) GTEST_SKIP() << "sanitizers need threads after fork";
  list_transports();  // plugins are loaded before the limit
  for (const rlim_t most : {12u, 16u}) {
    const std::string text = in_child(RLIMIT_NOFILE, most, two_ranks);
    EXPECT_NE(text.find("Too many open files (ulimit -n)"), std::string::npos) << most << " descriptors: " << text;
  }
}

TEST(WrongUse, ALimitOnFilesIsNoSignal) {
  if (sanitized) GTEST_SKIP() << "sanitizers need threads after fork";
  list_transports();
  EXPECT_EQ(in_child(RLIMIT_FSIZE, 16384, two_ranks), "\n") << "tcp serves ranks that may not share memory";
  const std::string text = in_child(RLIMIT_FSIZE, 16384, [] {
    void* address = nullptr;
    const tutti_status status = tutti_mem_alloc(1 << 20, &address);
    if (status == TUTTI_OK) std::memset(address, 1, 1 << 20);
    return std::to_string(status) + std::to_string(tutti_mem_free(address));
  });
  EXPECT_EQ(text, "00");
}

// A program that a rank starts has none of Tutti's descriptors, so none of its sockets and memory.
TEST(WrongUse, ChildrenInheritNoDescriptors) {
  int before = 0;
  const auto inherited = [] {
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", "exit $(ls /proc/self/fd | wc -l)", nullptr);
      _exit(255);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  before = inherited();
  for (const char* transports : {"shm", "tcp"})
    run_ranks(2,
              [&](Communicator& comm) {
                void* memory = nullptr;
                ASSERT_EQ(tutti_mem_alloc(1 << 16, &memory), TUTTI_OK);
                comm.barrier();
                EXPECT_TRUE(comm.rank() != 0 || inherited() == before);
                comm.barrier();
                tutti_mem_free(memory);
              },
              {transports});
}

// A beginner's mistakes: a size that was never set, and sends that wait for each other.
TEST(WrongUse, AForgottenSizeIsNamed) {
  const Failed failed = create(tutti_comm_config{});
  EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(failed.text.find("tutti_comm_config.struct_size is 0: it was not set"), std::string::npos) << failed.text;
  const tutti_comm_config zeroed{};
  tutti_comm* comm = nullptr;
  testing::internal::CaptureStderr();
  EXPECT_EQ(tutti_comm_create(&zeroed, &comm), TUTTI_INVALID_ARGUMENT);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("api: tutti_comm_create: tutti_comm_config.struct_size is 0, expected at least"),
            std::string::npos)
      << log;
}

TEST(WrongUse, SendsThatWaitForEachOtherAreToldOfGroups) {
  for (const char* transports : {"shm", "tcp"})
    for (const uint32_t n : {2u, 3u}) {
      const VirtualTime time;
      run_ranks(n,
                [&](Communicator& comm) {
                  const std::vector<int32_t> data(1 << 20);
                  const uint32_t next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
                  const Failed failed = failure_of([&] { comm.send(data, next, 5); });
                  EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
                  for (const std::string& words : {"send to rank " + std::to_string(next) + " with tag 5",
                                                   "rank " + std::to_string(previous) +
                                                       " sends to this rank too, with tag 5, and no receive was issued",
                                                   std::string("one group (tutti_exchange)")})
                    EXPECT_NE(failed.text.find(words), std::string::npos) << failed.text;
                },
                {transports, nullptr, 0, default_timeout});
      EXPECT_GE(time.passed(), std::chrono::seconds(600));
      EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
    }
}

// A send that nobody answers, without such a send: no hint.
TEST(WrongUse, ASendAloneIsNotToldOfGroups) {
  const VirtualTime time;
  run_ranks(2,
            [&](Communicator& comm) {
              const std::vector<int32_t> data(1 << 20);
              if (comm.rank() == 0) {
                const Failed failed = failure_of([&] { comm.send(data, 1); });
                EXPECT_EQ(failed.text.find("tutti_exchange"), std::string::npos) << failed.text;
                EXPECT_NE(failed.text.find("waits for the other side's receive"), std::string::npos) << failed.text;
              } else {
                while (comm.async_error() == TUTTI_OK) std::this_thread::sleep_for(std::chrono::milliseconds(5));
              }
            },
            {nullptr, nullptr, 0, default_timeout});
  EXPECT_GE(time.passed(), std::chrono::seconds(600));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
}

}  // namespace
}  // namespace tutti::test
