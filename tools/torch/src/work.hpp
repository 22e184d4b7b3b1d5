// SPDX-License-Identifier: Apache-2.0
//
// torch's handle of an operation.
#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "buffer.hpp"
#include "engine.hpp"

namespace tutti::torch {

class Work final : public c10d::Work {
 public:
  // `title` is for torch's profiler. `source`: the envelope of a receive from any rank.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& in, std::vector<at::Tensor> out,
       std::shared_ptr<Engine> engine, OperationPtr operation, std::shared_ptr<tutti_envelope> source);
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

 private:
  void stop_profiling();

  const std::vector<at::Tensor> out_;
  const std::shared_ptr<Engine> engine_;
  const OperationPtr operation_;
  const std::shared_ptr<tutti_envelope> source_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // mutex_ guards it
};

}  // namespace tutti::torch
