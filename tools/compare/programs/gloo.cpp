// SPDX-License-Identifier: Apache-2.0
//
// The measuring loop over Gloo: TCP between the processes of this host, which meet in the folder COMPARE_MEETING.
// RANK and WORLD_SIZE say who is who. COMPARE_ALGORITHM=bcube: the other all_reduce. --version: the library's.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "loop.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
bool bcube = false;

void add(void* out, const void* a, const void* b, size_t count) { gloo::sum<float>(out, a, b, count); }

// Gloo's reduce_scatter works in place and keeps a plan for one buffer.
int reduce_scatter(const float* in, float* out, size_t count) {
  static std::vector<float> work;
  static std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> plan;
  const size_t all = count * context->size;
  if (work.size() != all) {
    plan.reset();
    work.assign(all, 0);
    plan = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        context, std::vector<float*>{work.data()}, all, std::vector<int>(context->size, static_cast<int>(count)));
  }
  std::memcpy(work.data(), in, all * sizeof(float));
  plan->run();
  std::memcpy(out, work.data(), count * sizeof(float));
  return 0;
}

int run(collective what, const float* given, float* out, size_t count) {
  auto* const in = const_cast<float*>(given);
  const size_t all = count * context->size;
  switch (what) {
    case BROADCAST: {
      gloo::BroadcastOptions options(context);
      options.setOutput(out, count);
      options.setRoot(0);
      gloo::broadcast(options);
      return 0;
    }
    case REDUCE: {
      gloo::ReduceOptions options(context);
      options.setInput(in, count);
      options.setOutput(out, count);
      options.setReduceFunction(add);
      options.setRoot(0);
      gloo::reduce(options);
      return 0;
    }
    case ALL_REDUCE: {
      gloo::AllreduceOptions options(context);
      options.setInput(in, count);
      options.setOutput(out, count);
      options.setReduceFunction(gloo::AllreduceOptions::Func(add));
      options.setAlgorithm(bcube ? gloo::AllreduceOptions::Algorithm::BCUBE : gloo::AllreduceOptions::Algorithm::RING);
      gloo::allreduce(options);
      return 0;
    }
    case GATHER: {
      gloo::GatherOptions options(context);
      options.setInput(in, count);
      if (context->rank == 0) options.setOutput(out, all);
      options.setRoot(0);
      gloo::gather(options);
      return 0;
    }
    case ALL_GATHER: {
      gloo::AllgatherOptions options(context);
      options.setInput(in, count);
      options.setOutput(out, all);
      gloo::allgather(options);
      return 0;
    }
    case SCATTER: {
      gloo::ScatterOptions options(context);
      std::vector<float*> blocks;
      for (int r = 0; r < context->size; ++r) blocks.push_back(in + static_cast<size_t>(r) * count);
      if (context->rank == 0) options.setInputs(blocks, count);
      options.setOutput(out, count);
      options.setRoot(0);
      gloo::scatter(options);
      return 0;
    }
    case REDUCE_SCATTER:
      return (context->size & (context->size - 1)) == 0 ? reduce_scatter(in, out, count) : -1;
    case ALL_TO_ALL: {
      gloo::AlltoallOptions options(context);
      options.setInput(in, all);
      options.setOutput(out, all);
      gloo::alltoall(options);
      return 0;
    }
    case SEND_RECEIVE: {
      const int ranks = context->size, rank = context->rank;
      const auto slot = context->nextSlot();
      const auto from = context->createUnboundBuffer(in, count * sizeof(float));
      const auto to = context->createUnboundBuffer(out, count * sizeof(float));
      from->send((rank + 1) % ranks, slot);
      to->recv((rank + ranks - 1) % ranks, slot);
      from->waitSend();
      to->waitRecv();
      return 0;
    }
    default: {
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
      return 0;
    }
  }
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  if (value) return value;
  std::fprintf(stderr, "compare: %s is not set\n", name);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) try {
  if (asks_version(argc, argv))
    return std::printf("%d.%d.%d\n", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH) < 0;
  limit_time("the start of Gloo", 30);
  const int rank = std::atoi(setting("RANK"));
  const int ranks = std::atoi(setting("WORLD_SIZE"));
  const char* algorithm = std::getenv("COMPARE_ALGORITHM");
  bcube = algorithm && std::strcmp(algorithm, "bcube") == 0;
  gloo::transport::tcp::attr address("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(address);  // its thread may run on any core
  pin(rank);
  gloo::rendezvous::FileStore store(setting("COMPARE_MEETING"));
  context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  library self{};
  self.rank = rank;
  self.nranks = ranks;
  self.run = run;
  self.allocate = ordinary_memory;
  self.release = std::free;
  const int status = measure(&self, argc, argv);
  run(BARRIER, nullptr, nullptr, 0);
  std::fflush(nullptr);
  std::_Exit(status);  // a context that closes makes the slower ranks' last messages an error
} catch (const std::exception& problem) {
  std::fprintf(stderr, "compare: Gloo: %s\n", problem.what());
  return 1;
}
