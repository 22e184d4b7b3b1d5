// SPDX-License-Identifier: Apache-2.0
//
// Collectives on the memory and in the streams of a real GPU, by an application's own CUDA calls. Each test runs in a
// process of its own with a deadline: a stream that hangs or a context that is lost costs one test. The program itself
// never uses CUDA, so that it may fork.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int skipped = 77;

void expect_cuda(cudaError_t error) { EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// The exit status of `body` in a child: 0, 1 for failed expectations, skipped without a GPU.
int in_child(const std::function<void()>& body, unsigned seconds = 60) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || !devices) {
      std::fprintf(stderr, "no GPU: cudaGetDeviceCount: %s\n", cudaGetErrorString(error));
      std::_Exit(skipped);
    }
    body();
    std::fflush(nullptr);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) ADD_FAILURE() << "ended by signal " << WTERMSIG(status) << " (14: it took too long)";
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

void run(const std::function<void()>& body) {
  const int status = in_child(body);
  if (status == skipped) GTEST_SKIP() << "no GPU, or too few of them";
  EXPECT_EQ(status, 0);
}

using Body = std::function<void(tutti_comm*, uint32_t rank)>;

bool own_gpus = false;  // each rank is bound to the GPU of its number, not all to the first

void run_ranks(const std::string& where, uint32_t first, uint32_t ranks, uint32_t n, const Body& body) {
  std::vector<std::thread> threads;
  for (uint32_t r = first; r < first + ranks; ++r)
    threads.emplace_back([&, r] {
      char error[1024] = "";
      const std::string device = "cuda:" + std::to_string(own_gpus ? r : 0);
      tutti_comm_config config{};
      config.struct_size = sizeof config;
      config.rendezvous = where.c_str();
      config.rank = r;
      config.nranks = n;
      config.timeout_ns = 20'000'000'000;
      config.error = error;
      config.error_bytes = sizeof error;
      config.device = device.c_str();
      tutti_comm* comm = nullptr;
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK) << error;
      body(comm, r);
      tutti_comm_destroy(comm);
    });
  for (std::thread& thread : threads) thread.join();
}

int32_t value(uint32_t rank, uint64_t i, uint32_t round) {
  return static_cast<int32_t>((rank + 1) * 10007 + i % 977 + round * 31);
}
int32_t sum_of(uint32_t n, uint64_t i, uint32_t round) {
  int32_t sum = 0;
  for (uint32_t r = 0; r < n; ++r) sum += value(r, i, round);
  return sum;
}

// A stream, device buffers, and host memory to fill and look at them.
struct Rank {
  explicit Rank(uint64_t n) : count(n), host(n) {
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    expect_cuda(cudaMalloc(&in, n * sizeof *in));
    expect_cuda(cudaMalloc(&out, n * sizeof *out));
  }
  ~Rank() {
    cudaFree(in);
    cudaFree(out);
    cudaStreamDestroy(stream);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  void fill(uint32_t rank, uint32_t round) {
    for (uint64_t i = 0; i < count; ++i) host[i] = value(rank, i, round);
    expect_cuda(cudaMemcpyAsync(in, host.data(), count * sizeof *in, cudaMemcpyHostToDevice, stream));
    expect_cuda(cudaStreamSynchronize(stream));
  }
  tutti_status all_reduce(tutti_comm* comm, void* on) const {
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = on;
    return tutti_all_reduce(comm, in, out, count, TUTTI_INT32, TUTTI_SUM, &options, nullptr);
  }
  void check(uint32_t n, uint32_t round) {
    expect_cuda(cudaMemcpyAsync(host.data(), out, count * sizeof *out, cudaMemcpyDeviceToHost, stream));
    expect_cuda(cudaStreamSynchronize(stream));
    for (uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(host[i], sum_of(n, i, round)) << "at " << i << " of " << count << ", round " << round;
  }
  uint64_t count;
  std::vector<int32_t> host;
  cudaStream_t stream = nullptr;
  int32_t *in = nullptr, *out = nullptr;
};

void all_reduce_rounds(tutti_comm* comm, uint32_t rank, std::initializer_list<uint64_t> counts) {
  const uint32_t n = tutti_comm_nranks(comm);
  for (const uint64_t count : counts) {
    Rank mine(count);
    for (uint32_t round = 0; round < 3; ++round) {
      mine.fill(rank, round);
      ASSERT_EQ(mine.all_reduce(comm, mine.stream), TUTTI_OK) << tutti_comm_error(comm);
      mine.check(n, round);
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(tutti_comm_async_error(comm), TUTTI_OK);
  }
}

// Everyone sends to the next rank and receives from the one before, in a group; then single calls go down the line.
void transfer_rounds(tutti_comm* comm, uint32_t rank, std::initializer_list<uint64_t> counts) {
  const uint32_t n = tutti_comm_nranks(comm), next = (rank + 1) % n, previous = (rank + n - 1) % n;
  for (const uint64_t count : counts) {
    Rank mine(count);
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = mine.stream;
    const auto check = [&](uint32_t from, uint32_t round) {
      expect_cuda(
          cudaMemcpyAsync(mine.host.data(), mine.out, count * sizeof *mine.out, cudaMemcpyDeviceToHost, mine.stream));
      expect_cuda(cudaStreamSynchronize(mine.stream));
      for (uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(mine.host[i], value(from, i, round)) << "at " << i << " of " << count << ", round " << round;
    };
    for (uint32_t round = 0; round < 3; ++round) {
      mine.fill(rank, round);
      const tutti_message messages[] = {{mine.in, count, TUTTI_INT32, next, round, TUTTI_SEND},
                                        {mine.out, count, TUTTI_INT32, previous, round, TUTTI_RECEIVE}};
      ASSERT_EQ(tutti_exchange(comm, messages, 2, &options, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      check(previous, round);
      mine.fill(rank, round + 10);
      if (rank > 0) {
        ASSERT_EQ(tutti_receive(comm, mine.out, count, TUTTI_INT32, previous, 7, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
      }
      if (rank + 1 < n) {
        ASSERT_EQ(tutti_send(comm, rank ? mine.out : mine.in, count, TUTTI_INT32, next, 7, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
      }
      if (rank > 0) check(0, round + 10);
      expect_cuda(cudaStreamSynchronize(mine.stream));
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(tutti_comm_async_error(comm), TUTTI_OK);
  }
}

TEST(CudaCollectives, RanksAsThreads) {
  run([] {
    for (const uint32_t n : {1u, 2u, 4u, 8u})
      run_ranks("local:threads" + std::to_string(n), 0, n, n, [](tutti_comm* comm, uint32_t rank) {
        all_reduce_rounds(comm, rank, {1, 1000, 1'000'003});
        transfer_rounds(comm, rank, {1, 1000, 1'000'003});
      });
  });
}

// All streams of the device in one hardware queue.
TEST(CudaCollectives, SixteenRanksInOneQueue) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  run([] {
    run_ranks("local:sixteen", 0, 16, 16, [](tutti_comm* comm, uint32_t rank) {
      all_reduce_rounds(comm, rank, {5, 100'000});
    });
  });
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

// Registered buffers of several calls in a row, which the other processes read where they are; then other buffers,
// which may come at the same addresses.
void registered_rounds(tutti_comm* comm, uint32_t rank) {
  const uint32_t n = tutti_comm_nranks(comm);
  for (const uint64_t count : {uint64_t{1} << 20, uint64_t{3'000'001}, uint64_t{1} << 20}) {
    Rank mine(count);
    std::vector<tutti_window*> windows;
    for (int32_t* buffer : {mine.in, mine.out})
      ASSERT_EQ(tutti_comm_register(comm, buffer, count * sizeof *buffer, nullptr, &windows.emplace_back()), TUTTI_OK)
          << tutti_comm_error(comm);
    for (uint32_t round = 0; round < 20; ++round) {
      mine.fill(rank, round);
      for (int call = 0; call < 3; ++call)
        ASSERT_EQ(mine.all_reduce(comm, mine.stream), TUTTI_OK) << tutti_comm_error(comm);
      mine.check(n, round);
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    for (tutti_window* window : windows)
      ASSERT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
  }
}

// A rank in each of n processes; `prepare` is called first, and may end the process with `skipped`.
void in_processes(
    uint32_t n, const Body& body, const std::function<void()>& prepare = [] {}) {
  char folder[] = "/tmp/tutti-cuda-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  std::vector<int> status(n);
  std::vector<std::thread> waiting;
  for (uint32_t r = 0; r < n; ++r)
    waiting.emplace_back([&, r] {
      status[r] = in_child([&] {
        prepare();
        run_ranks(where, r, 1, n, body);
      });
    });
  for (std::thread& thread : waiting) thread.join();
  (void)!std::system((std::string("rm -rf ") + folder).c_str());
  if (status[0] == skipped) GTEST_SKIP() << "not on this machine: see above";
  for (const int each : status) EXPECT_EQ(each, 0);
}

// `transport`: named, so that it carries everything; nullptr: processes map each other's memory. `served`: what the
// core says of it.
void processes(uint32_t n, const char* transport, const std::string& served, bool registered = false) {
  const auto body = [&](tutti_comm* comm, uint32_t rank) {
    if (registered) {
      registered_rounds(comm, rank);
    } else {
      all_reduce_rounds(comm, rank, {1, 1000, 3'000'001});
      transfer_rounds(comm, rank, {1, 1000, 3'000'001});
    }
    tutti_plan_facts facts{};
    facts.struct_size = sizeof facts;
    ASSERT_EQ(tutti_comm_plan(comm, TUTTI_ALL_REDUCE, &facts), TUTTI_OK);
    EXPECT_EQ(facts.transports, served);
  };
  in_processes(n, body, [&] {
    if (transport) setenv("TUTTI_TRANSPORT", transport, 1);
  });
}

// Does this machine let a process read memory of another's cudaMalloc? Containers may refuse it. By plain CUDA.
bool memory_can_be_mapped() {
  int there[2], back[2];
  EXPECT_EQ(pipe(there), 0);
  EXPECT_EQ(pipe(back), 0);
  std::thread exporting([&] {
    in_child([&] {
      void* memory = nullptr;
      cudaIpcMemHandle_t handle{};
      char done = 0;
      close(back[1]);
      if (cudaMalloc(&memory, 4 << 20) != cudaSuccess || cudaIpcGetMemHandle(&handle, memory) != cudaSuccess) return;
      (void)!write(there[1], &handle, sizeof handle);
      (void)!read(back[0], &done, 1);
    });
    close(there[1]);
  });
  const bool mapped = in_child([&] {
                        cudaIpcMemHandle_t handle{};
                        void* memory = nullptr;
                        close(there[1]);
                        if (read(there[0], &handle, sizeof handle) != static_cast<ssize_t>(sizeof handle) ||
                            cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
                          std::_Exit(2);
                      }) == 0;
  close(back[1]);
  exporting.join();
  for (const int each : {there[0], back[0]}) close(each);
  return mapped;
}

TEST(CudaCollectives, ProcessesMapEachOther) {
  const bool mapped = memory_can_be_mapped();
  for (const uint32_t n : {2u, 4u}) processes(n, nullptr, mapped ? "cuda+mapped" : "cuda+shm");
  if (!mapped && !HasFailure()) GTEST_SKIP() << "this machine maps no device memory of other processes: it was staged";
}

TEST(CudaCollectives, ProcessesReadRegisteredBuffers) {
  const bool mapped = memory_can_be_mapped();
  for (const uint32_t n : {2u, 3u}) processes(n, nullptr, mapped ? "cuda+window" : "cuda+shm", true);
  if (!mapped && !HasFailure()) GTEST_SKIP() << "this machine maps no device memory of other processes: it was staged";
}

TEST(CudaCollectives, ProcessesThroughTheHost) { processes(2, "shm", "cuda+shm"); }

// Ends the process where there are no two GPUs that read each other's memory and let kernels wait.
void require_two_gpus() {
  int devices = 0, able = 0, limited = 0;
  expect_cuda(cudaGetDeviceCount(&devices));
  if (devices > 1) {
    expect_cuda(cudaDeviceCanAccessPeer(&able, 0, 1));
    for (int device : {0, 1}) {
      int limit = 0;
      expect_cuda(cudaDeviceGetAttribute(&limit, cudaDevAttrKernelExecTimeout, device));
      limited |= limit;
    }
  }
  own_gpus = true;
  if (devices >= 2 && able && !limited) return;
  std::fprintf(stderr, "%d GPUs, peer access %d, limited kernels %d: two GPUs with peer access are needed\n", devices,
               able, limited);
  std::_Exit(skipped);
}

// Two processes, each on a GPU of its own: small calls are one kernel each, which waits by itself.
TEST(CudaCollectives, SmallOnesAreOneLaunchOnGpusOfTheirOwn) {
  const auto body = [](tutti_comm* comm, uint32_t rank) {
    expect_cuda(cudaSetDevice(static_cast<int>(rank)));
    const auto served = [&] {
      tutti_plan_facts facts{};
      facts.struct_size = sizeof facts;
      EXPECT_EQ(tutti_comm_plan(comm, TUTTI_ALL_REDUCE, &facts), TUTTI_OK);
      return std::string(facts.transports);
    };
    for (const uint64_t count : {1, 1000, 5000}) {
      all_reduce_rounds(comm, rank, {count});
      EXPECT_EQ(served(), "cuda+mapped+fused") << count << " elements";
    }
    all_reduce_rounds(comm, rank, {1'000'000});
    EXPECT_EQ(served(), "cuda+mapped");
    Rank small(100);
    small.fill(rank, 1);
    for (int call = 0; call < 2000; ++call)
      ASSERT_EQ(small.all_reduce(comm, small.stream), TUTTI_OK) << tutti_comm_error(comm);
    small.check(2, 1);
  };
  in_processes(2, body, require_two_gpus);
}

// The device waits for more than its queue takes, and work of the application fills it further.
TEST(CudaCollectives, LargeBetweenProcesses) {
  in_processes(2, [](tutti_comm* comm, uint32_t rank) {
    Rank mine(100'000'000);
    mine.fill(rank, 0);
    for (int call = 0; call < 3; ++call)
      ASSERT_EQ(mine.all_reduce(comm, mine.stream), TUTTI_OK) << tutti_comm_error(comm);
    mine.check(2, 0);
    Rank small(10);
    small.fill(rank, 1);
    for (int call = 0; call < 500; ++call)
      ASSERT_EQ(small.all_reduce(comm, small.stream), TUTTI_OK) << tutti_comm_error(comm);
    small.check(2, 1);
  });
}

// Every process captures its own rank's call and replays it with other data each time; then a large one, whose
// registered buffers are read where they are.
TEST(CudaCollectives, ProcessesReplayACapturedGraph) {
  if (!memory_can_be_mapped()) GTEST_SKIP() << "no GPU, or this machine maps no device memory of other processes";
  in_processes(2, [](tutti_comm* comm, uint32_t rank) {
    for (const auto& [count, replays] : {std::pair{uint64_t{3001}, 1000u}, std::pair{uint64_t{1} << 20, 20u}}) {
      Rank mine(count);
      std::vector<tutti_window*> windows;
      for (int32_t* buffer : {mine.in, mine.out})
        ASSERT_EQ(tutti_comm_register(comm, buffer, count * sizeof *buffer, nullptr, &windows.emplace_back()), TUTTI_OK)
            << tutti_comm_error(comm);
      mine.fill(rank, 0);
      ASSERT_EQ(mine.all_reduce(comm, mine.stream), TUTTI_OK) << tutti_comm_error(comm);
      mine.check(2, 0);
      expect_cuda(cudaStreamBeginCapture(mine.stream, cudaStreamCaptureModeThreadLocal));
      EXPECT_EQ(mine.all_reduce(comm, mine.stream), TUTTI_OK) << tutti_comm_error(comm);
      cudaGraph_t graph = nullptr;
      expect_cuda(cudaStreamEndCapture(mine.stream, &graph));
      cudaGraphExec_t executable = nullptr;
      expect_cuda(cudaGraphInstantiate(&executable, graph, 0));
      for (uint32_t round = 1; round <= replays && !testing::Test::HasFailure(); ++round) {
        mine.fill(rank, round);
        expect_cuda(cudaGraphLaunch(executable, mine.stream));
        expect_cuda(cudaStreamSynchronize(mine.stream));
        mine.check(2, round);
      }
      expect_cuda(cudaGraphExecDestroy(executable));
      expect_cuda(cudaGraphDestroy(graph));
      for (tutti_window* window : windows)
        ASSERT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    }
  });
}

TEST(CudaCollectives, DefaultStreams) {
  run([] {
    run_ranks("local:default", 0, 2, 2, [](tutti_comm* comm, uint32_t rank) {
      Rank mine(5000);
      mine.fill(rank, 0);
      ASSERT_EQ(mine.all_reduce(comm, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      expect_cuda(cudaStreamSynchronize(nullptr));
      mine.check(2, 0);
      EXPECT_LT(mine.all_reduce(comm, cudaStreamPerThread), 0);
    });
  });
}

// A collective of four ranks, captured into a graph by one thread and replayed with other data each time.
TEST(CudaCollectives, ACapturedGraphIsReplayed) {
  run([] {
    constexpr uint32_t n = 4, replays = 1000;
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t r = 0; r < n; ++r) ranks.push_back(std::make_unique<Rank>(3001));
    std::vector<cudaEvent_t> events(n);
    for (cudaEvent_t& event : events) expect_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaStream_t origin = ranks[0]->stream;
    std::vector<tutti_comm*> comms(n);
    std::vector<std::thread> threads;
    const auto each_rank = [&](const std::function<void(uint32_t)>& body) {
      for (uint32_t r = 0; r < n; ++r) threads.emplace_back(body, r);
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    };
    each_rank([&](uint32_t r) {
      tutti_comm_config config{};
      config.struct_size = sizeof config;
      config.rendezvous = "local:capture";
      config.rank = r;
      config.nranks = n;
      config.timeout_ns = 20'000'000'000;
      ASSERT_EQ(tutti_comm_create(&config, &comms[r]), TUTTI_OK);
      ranks[r]->fill(r, 0);
      ASSERT_EQ(ranks[r]->all_reduce(comms[r], ranks[r]->stream), TUTTI_OK) << tutti_comm_error(comms[r]);
      ranks[r]->check(n, 0);
    });
    if (testing::Test::HasFailure()) return;
    expect_cuda(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed));
    expect_cuda(cudaEventRecord(events[0], origin));
    for (uint32_t r = 1; r < n; ++r) expect_cuda(cudaStreamWaitEvent(ranks[r]->stream, events[0], 0));
    each_rank([&](uint32_t r) {
      EXPECT_EQ(ranks[r]->all_reduce(comms[r], ranks[r]->stream), TUTTI_OK) << tutti_comm_error(comms[r]);
    });
    for (uint32_t r = 1; r < n; ++r) {
      expect_cuda(cudaEventRecord(events[r], ranks[r]->stream));
      expect_cuda(cudaStreamWaitEvent(origin, events[r], 0));
    }
    cudaGraph_t graph = nullptr;
    expect_cuda(cudaStreamEndCapture(origin, &graph));
    cudaGraphExec_t executable = nullptr;
    expect_cuda(cudaGraphInstantiate(&executable, graph, 0));
    for (uint32_t round = 1; round <= replays && !testing::Test::HasFailure(); ++round) {
      for (uint32_t r = 0; r < n; ++r) ranks[r]->fill(r, round);
      expect_cuda(cudaGraphLaunch(executable, origin));
      expect_cuda(cudaStreamSynchronize(origin));
      for (uint32_t r = 0; r < n; ++r) ranks[r]->check(n, round);
    }
    expect_cuda(cudaGraphExecDestroy(executable));
    expect_cuda(cudaGraphDestroy(graph));
    each_rank([&](uint32_t r) { tutti_comm_destroy(comms[r]); });
  });
}

// Asking about other work, by other threads, must not spoil a capture that forbids it.
TEST(CudaCollectives, CallsBesideACapture) {
  run([] {
    cudaStream_t captured = nullptr;
    expect_cuda(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    Rank first(1000), second(1000);
    first.fill(0, 0);
    second.fill(1, 0);
    expect_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    run_ranks("local:beside", 0, 2, 2, [&](tutti_comm* comm, uint32_t rank) {
      tutti_options options{};
      options.struct_size = sizeof options;
      Rank& mine = rank ? second : first;
      options.stream = mine.stream;
      tutti_request* request = nullptr;
      ASSERT_EQ(tutti_all_reduce(comm, mine.in, mine.out, mine.count, TUTTI_INT32, TUTTI_SUM, &options, &request),
                TUTTI_OK)
          << tutti_comm_error(comm);
      ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
      tutti_request_free(request);
    });
    cudaGraph_t graph = nullptr;
    expect_cuda(cudaStreamEndCapture(captured, &graph));
    first.check(2, 0);
    second.check(2, 0);
  });
}

TEST(CudaCollectives, WrongMemoryIsNamed) {
  run([] {
    run_ranks("local:wrong", 0, 1, 1, [](tutti_comm* comm, uint32_t) {
      Rank mine(100);
      std::vector<int32_t> host(100);
      tutti_options options{};
      options.struct_size = sizeof options;
      options.stream = mine.stream;
      const auto refused = [&](const void* in, void* out) {
        EXPECT_LT(tutti_all_reduce(comm, in, out, 100, TUTTI_INT32, TUTTI_SUM, &options, nullptr), 0);
        return std::string(tutti_comm_error(comm));
      };
      EXPECT_NE(refused(host.data(), host.data()).find("host memory"), std::string::npos) << tutti_comm_error(comm);
      EXPECT_NE(refused(mine.in, host.data()).find("both have to be on one"), std::string::npos)
          << tutti_comm_error(comm);
      int32_t* freed = nullptr;
      expect_cuda(cudaMalloc(&freed, 400));
      expect_cuda(cudaFree(freed));
      EXPECT_FALSE(refused(freed, freed).empty());
      EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_OK) << "nothing was issued";
    });
  });
}

// A process maps another's allocation, and its streams read it.
TEST(CudaCollectives, MemoryIsMappedByAnotherProcess) {
  if (!memory_can_be_mapped()) GTEST_SKIP() << "no GPU, or this machine maps no device memory of other processes";
  constexpr uint64_t count = 1'000'000, offset = 1000;
  int there[2], back[2];
  ASSERT_EQ(pipe(there), 0);
  ASSERT_EQ(pipe(back), 0);
  const auto cuda = [] {
    for (const tutti::DeviceTables& tables : tutti::list_devices())
      if (std::string(tables.memory->name) == "cuda") return tables;
    std::fprintf(stderr, "no plugin brings the device cuda\n");
    std::_Exit(1);
  };
  int exporter = 0, importer = 0;
  std::thread exporting([&] {
    exporter = in_child([&] {
      const tutti::DeviceTables tables = cuda();
      Rank mine(count);
      mine.fill(3, 5);
      tutti_memory_export memory{};
      int32_t fd = -1;
      ASSERT_EQ(tables.memory->export_memory(tables.memory->self, mine.in + offset, &memory, &fd), TUTTI_OK)
          << tutti::take_plugin_error();
      ASSERT_EQ(write(there[1], &memory, sizeof memory), static_cast<ssize_t>(sizeof memory));
      char done = 0;
      ASSERT_EQ(read(back[0], &done, 1), 1);
    });
    close(there[1]);  // whoever waits for it does so no longer
  });
  importer = in_child([&] {
    close(there[1]);
    const tutti::DeviceTables tables = cuda();
    tutti_memory_export memory{};
    ASSERT_EQ(read(there[0], &memory, sizeof memory), static_cast<ssize_t>(sizeof memory));
    void *base = nullptr, *again = nullptr;
    ASSERT_EQ(tables.memory->import_memory(tables.memory->self, 0, &memory, -1, &base), TUTTI_OK)
        << tutti::take_plugin_error();
    ASSERT_EQ(tables.memory->import_memory(tables.memory->self, 0, &memory, -1, &again), TUTTI_OK);
    EXPECT_EQ(base, again);
    Rank mine(count);
    const auto* peer = reinterpret_cast<const int32_t*>(static_cast<const char*>(base) + memory.offset);
    expect_cuda(
        cudaMemcpyAsync(mine.host.data(), peer, (count - offset) * sizeof *peer, cudaMemcpyDefault, mine.stream));
    expect_cuda(cudaStreamSynchronize(mine.stream));
    for (uint64_t i = 0; i < count - offset; ++i) ASSERT_EQ(mine.host[i], value(3, i + offset, 5)) << i;
    EXPECT_EQ(tables.memory->close_import(tables.memory->self, base), TUTTI_OK) << tutti::take_plugin_error();
    EXPECT_EQ(tables.memory->close_import(tables.memory->self, base), TUTTI_OK) << tutti::take_plugin_error();
    EXPECT_EQ(tables.memory->close_import(tables.memory->self, base), TUTTI_INVALID_ARGUMENT);
  });
  ASSERT_EQ(write(back[1], "x", 1), 1);
  exporting.join();
  for (const int each : {there[0], back[0], back[1]}) close(each);
  if (importer == skipped) GTEST_SKIP() << "no GPU";
  EXPECT_EQ(exporter, 0);
  EXPECT_EQ(importer, 0);
}

// The descriptor that adapters register, of the pages of device memory. Which machines make one, the output tells.
TEST(CudaCollectives, DeviceMemoryAsADmaBuf) {
  constexpr uint64_t count = 1'000'000, first = 1000;
  const int status = in_child([] {
    for (const tutti::DeviceTables& tables : tutti::list_devices()) {
      const tutti_device* memory = tables.memory;
      if (std::string(memory->name) != "cuda") continue;
      Rank mine(count);
      int32_t fd = -1;
      uint64_t offset = 0;
      const uint64_t bytes = (count - first) * sizeof *mine.in;
      const tutti_status made = memory->export_dmabuf(memory->self, mine.in + first, bytes, &fd, &offset);
      if (made == TUTTI_NOT_SUPPORTED) {
        std::printf("no dma-bufs: %s\n", tutti::take_plugin_error().c_str());
        std::fflush(stdout);
        std::_Exit(skipped);
      }
      ASSERT_EQ(made, TUTTI_OK) << tutti::take_plugin_error();
      const off_t size = lseek(fd, 0, SEEK_END);
      std::printf("a dma-buf of %lld bytes; the memory lies at offset %llu of it\n", static_cast<long long>(size),
                  static_cast<unsigned long long>(offset));
      if (size >= 0) {
        EXPECT_GE(static_cast<uint64_t>(size), offset + bytes);
      }
      EXPECT_EQ(close(fd), 0);
      int32_t none = -1;
      EXPECT_EQ(memory->export_dmabuf(memory->self, mine.in + first, bytes * 1000, &none, &offset),
                TUTTI_INVALID_ARGUMENT);
      EXPECT_EQ(memory->export_dmabuf(memory->self, mine.host.data(), 4, &none, &offset), TUTTI_INVALID_ARGUMENT);
      mine.fill(0, 0);  // the device goes on
      return;
    }
    ADD_FAILURE() << "no plugin brings the device cuda";
  });
  if (status == skipped) GTEST_SKIP() << "no GPU, or a driver that makes no dma-bufs: see above";
  EXPECT_EQ(status, 0);
}

// A thread without a context that works on the second device makes none on the first.
TEST(CudaCollectives, NoDeviceIsUsedThatNobodyNamed) {
  run([] {
    int devices = 0;
    expect_cuda(cudaGetDeviceCount(&devices));
    if (devices < 2) std::_Exit(skipped);
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    expect_cuda(
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry, 7000, cudaEnableDefault, &found));
    ASSERT_NE(entry, nullptr);
    std::vector<std::byte> host(3 * 4096);
    std::thread([&] {
      for (const tutti::DeviceTables& tables : tutti::list_devices()) {
        const auto [memory, executor] = std::pair(tables.memory, tables.executor);
        if (std::string(memory->name) != "cuda") continue;
        void *stream = nullptr, *seen = nullptr;
        tutti_event* event = nullptr;
        auto* page = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(host.data()) + 4095) / 4096 * 4096);
        ASSERT_EQ(executor->prepare(executor->self, 1), TUTTI_OK) << tutti::take_plugin_error();
        ASSERT_EQ(memory->map_host(memory->self, page, 4096, &seen), TUTTI_OK) << tutti::take_plugin_error();
        ASSERT_EQ(executor->create_stream(executor->self, 1, &stream), TUTTI_OK) << tutti::take_plugin_error();
        ASSERT_EQ(executor->create_event(executor->self, 1, &event), TUTTI_OK) << tutti::take_plugin_error();
        tutti_command command{};
        command.kind = TUTTI_COMMAND_RECORD;
        command.event = event;
        ASSERT_EQ(executor->enqueue(executor->self, stream, &command, 1), TUTTI_OK) << tutti::take_plugin_error();
        EXPECT_GE(executor->query_event(executor->self, event), 0) << tutti::take_plugin_error();
        executor->destroy_event(executor->self, event);
        EXPECT_EQ(executor->destroy_stream(executor->self, stream), TUTTI_OK) << tutti::take_plugin_error();
        EXPECT_EQ(memory->unmap_host(memory->self, page), TUTTI_OK) << tutti::take_plugin_error();
        return;
      }
      ADD_FAILURE() << "no plugin brings the device cuda";
    }).join();
    unsigned flags = 0;
    int active = -1;
    reinterpret_cast<int (*)(int, unsigned*, int*)>(entry)(0, &flags, &active);
    EXPECT_EQ(active, 0) << "device 0 has a context";
  });
}

// An error that the application left behind is not taken for one of ours.
TEST(CudaCollectives, AnErrorOfTheApplicationIsLeftToIt) {
  run([] {
    run_ranks("local:stale", 0, 2, 2, [](tutti_comm* comm, uint32_t rank) {
      Rank mine(100);
      mine.fill(rank, 0);
      EXPECT_NE(cudaMemcpy(nullptr, mine.in, 4, cudaMemcpyDeviceToDevice), cudaSuccess);
      ASSERT_EQ(mine.all_reduce(comm, mine.stream), TUTTI_OK) << tutti_comm_error(comm);
      mine.check(2, 0);
    });
  });
}

}  // namespace
