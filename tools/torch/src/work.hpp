// SPDX-License-Identifier: Apache-2.0
//
// torch's handle of an operation.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <chrono>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "buffer.hpp"
#include "engine.hpp"

namespace tutti::torch {

class Work final : public c10d::Work {
 public:
  // `number`: counts the group's collectives, or its messages. `timeout`: the call's; 0: the communicator's.
  struct Facts {
    uint64_t number;
    std::chrono::milliseconds timeout;
    std::shared_ptr<tutti_envelope> source;  // of a receive from any rank
  };
  // `in`: for torch's profiler, if it is on; else std::nullopt.
  Work(int rank, c10d::OpType type, const std::optional<std::vector<at::Tensor>>& in, at::TensorList out,
       std::shared_ptr<Engine> engine, OperationPtr operation, Facts facts);
  ~Work() override { stop_profiling(); }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  // Throws the operation's error, or Error TUTTI_TIMEOUT when the time has passed: the operation goes on.
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Its value is an int, a c10d::WorkResult. It never fails.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds, of an operation that began after enableCollectivesTiming and has ended.
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return facts_.number; }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  std::chrono::milliseconds getTimeout() const override { return facts_.timeout; }
#endif

 private:
  void stop_profiling();

  const bool profiled_;
  const c10::SmallVector<at::Tensor, 1> out_;
  const std::shared_ptr<Engine> engine_;
  const OperationPtr operation_;
  const Facts facts_;
  c10::intrusive_ptr<c10::ivalue::Future> future_, result_;  // mutex_ guards them
};

}  // namespace tutti::torch
