// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include <ATen/core/ivalue.h>

#include <utility>

#include "signals.hpp"

namespace tutti::torch {
namespace {

c10d::WorkResult result_of(const std::exception_ptr& failure) {
  if (!failure) return c10d::WorkResult::SUCCESS;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.status == TUTTI_TIMEOUT ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
  } catch (...) {
    return c10d::WorkResult::UNKNOWN;
  }
}

}  // namespace

Work::Work(int rank, c10d::OpType type, const std::optional<std::vector<at::Tensor>>& in, at::TensorList out,
           std::shared_ptr<Engine> engine, OperationPtr operation, Facts facts)
    : c10d::Work(rank, type, in ? operation->name : nullptr, in),
      profiled_(in.has_value()),
      out_(out.begin(), out.end()),
      engine_(std::move(engine)),
      operation_(std::move(operation)),
      facts_(std::move(facts)) {}

void Work::stop_profiling() {
  if (!profiled_) return;
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    callback.swap(recordFunctionEndCallback_);
  }
  if (callback) callback();
}

bool Work::isCompleted() { return engine_->test(*operation_); }

bool Work::isSuccess() const { return operation_->ended.load(std::memory_order_acquire) && !operation_->failure; }

std::exception_ptr Work::exception() const {
  return operation_->ended.load(std::memory_order_acquire) ? operation_->failure : nullptr;
}

int Work::sourceRank() const {
  TORCH_CHECK(facts_.source, operation_->name, ": only a receive from any rank has a source rank");
  TORCH_CHECK(isSuccess(), operation_->name, ": the source rank is known after the end: call wait()");
  return static_cast<int>(facts_.source->peer);
}

std::vector<at::Tensor> Work::result() {
  TORCH_CHECK(operation_->ended.load(std::memory_order_acquire), operation_->name,
              ": the result is there after the end: call wait()");
  return {out_.begin(), out_.end()};
}

bool Work::wait(std::chrono::milliseconds timeout) {
  const uint64_t limit =
      timeout.count() > 0 ? static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count()) : UINT64_MAX;
  if (!wait_with_signals(limit, [this](uint64_t slice) { return engine_->wait(*operation_, slice); }))
    throw Error(TUTTI_TIMEOUT, c10::str(operation_->name, ": rank ", rank_, ": not complete after ", timeout.count(),
                                        " ms; it goes on: wait again, or look for the rank that has not called it"));
  stop_profiling();
  if (operation_->failure) std::rethrow_exception(operation_->failure);
  return true;
}

void Work::abort() { TORCH_CHECK(false, operation_->name, ": one operation cannot be aborted alone"); }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  engine_->tell(operation_, [future = future_, out = std::vector(out_.begin(), out_.end()), ended = operation_] {
    if (ended->failure)
      future->setError(ended->failure);
    else
      future->markCompleted(c10::IValue(out));
  });
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() {
  const std::lock_guard lock(mutex_);
  if (result_) return result_;
  result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  engine_->tell(operation_, [result = result_, ended = operation_] {
    result->markCompleted(c10::IValue(static_cast<int64_t>(result_of(ended->failure))));
  });
  return result_;
}

float Work::getDuration() const {
  TORCH_CHECK(operation_->ended.load(std::memory_order_acquire), operation_->name,
              ": the duration is known after the end: call wait()");
  TORCH_CHECK(operation_->timed, operation_->name,
              ": it was not timed: call the group's _enable_collectives_timing() before it");
  return std::chrono::duration<float, std::milli>(operation_->over - operation_->began).count();
}

}  // namespace tutti::torch
