// SPDX-License-Identifier: Apache-2.0
//
// torch.distributed's backend "tutti".
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "buffer.hpp"
#include "engine.hpp"

namespace tutti::torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
class GroupRecorder;

// The ranks meet over the store: rank 0 leaves there the id of a communicator of their own. Throws, naming the ranks
// that have not come in time: `within`, or the timeout of the communicator where that is 0.
std::shared_ptr<Engine> meet(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout,
                             const std::string& name, std::chrono::milliseconds within = {});
// A name that no other meeting and no earlier attempt has.
std::string fresh_name();
// Ends what is open in this process, at its end. A reason: an exception has ended the program.
void close_all(const std::string& reason);

// Functions that the program wants called before a communicator ends by an error or an abort, at most once for each
// communicator. Any thread. Python's take the interpreter's lock, so none is copied or called with the mutex held.
class AbortHooks {
 public:
  using Hook = std::function<void()>;
  void set(int64_t id, Hook hook);
  void remove(int64_t id);
  void call() const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Hook>> hooks_;
};

// Every operation takes one tensor (or list) per process. Tensors that are not contiguous go through a copy, and so do
// lists of small ones. The call returns at once; the operation goes on in waits and in the engine's thread.
class ProcessGroup final : public c10d::Backend {
 public:
  // `store`: by which the ranks have met. Groups that are made of this one meet there, too.
  ProcessGroup(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
               const std::string& name, std::shared_ptr<Engine> engine);
  ~ProcessGroup() override;
  const std::string getBackendName() const override { return "tutti"; }

  // ---- Settings and the end: any thread ----
  struct Options final : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override { return c10::make_intrusive<Options>(*this); }
#endif
  };
  using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  OptionsPtr getBackendOptions() override;
  // Of calls that have none of their own, from now on.
  void setTimeout(std::chrono::milliseconds timeout) override;
  void enableCollectivesTiming() override;
  c10d::ErrorType getError() override;
  // As Engine::close. Abort hooks are called before an end with a reason.
  void close(const std::string& reason);
  void shutdown() override { close({}); }
  void abort() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& out, Tensors& in, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  // Several of the two before as one, each of a tensor in one piece.
  WorkPtr allgather_into_tensor_coalesced(Tensors& out, Tensors& in, const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& out, Tensors& in,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_splits,
                        std::vector<int64_t>& in_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& out, Tensors& in, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all) override;
  // All collectives are compared by Tutti itself (TUTTI_CHECK=1).
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_.load(); }

  // ---- Batches (coalesced.cpp). Each call starts at once. A thread's batch ends with one handle of all of its calls.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // ---- Groups made of this one (membership.cpp). They are independent of it, and have communicators of their own.
  bool supportsSplitting() const override { return true; }
  // `ranks` are this group's, in the order of the new one; nullptr for a rank that is not among them.
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const OptionsPtr& options) override;
  // With ranks of other groups that call it with the same store, each with a `rank` of its own below `size`.
  BackendPtr merge(const c10::intrusive_ptr<c10d::Store>& store, const OptionsPtr& options, const int& rank,
                   const int& size) override;
  bool supportsShrinking() const override { return true; }
  // All ranks but the excluded ones call it, and this group ends. flags: 0 waits for what is under way, 1 aborts it.
  BackendPtr shrink(const std::vector<int64_t>& excluded, int flags, const OptionsPtr& options) override;

  // ---- Other members for this group (membership.cpp)
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  // Every member calls it. Calls of other threads meanwhile go to either communicator.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override { hooks_->set(id, std::move(hook)); }
  void unregisterAbortHook(int64_t id) override { hooks_->remove(id); }
#endif
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  WorkPtr gather_into_tensor(at::Tensor& out, at::Tensor& in, const c10d::GatherOptions& options) override;
#endif

 private:
  struct Call {
    const char* name;
    c10d::OpType type;
    Buffer in, out;  // equal: in place
    std::chrono::milliseconds timeout;
    int peer = -1, tag = 0;  // of a message; -1: any rank
    std::shared_ptr<tutti_envelope> envelope = nullptr;
  };
  using Calls = std::vector<Call>;
  using Start = std::function<tutti_status(const Call&, tutti_comm*, tutti_request**, const tutti_options*)>;
  class Launched;
  // Several calls of one collective, each of which `start` makes, as one operation: a group of Tutti's. `results`:
  // those of the handle; without them the call's. `last`: done before its end is known.
  WorkPtr launch(Calls calls, Start start, std::optional<at::TensorList> results = std::nullopt,
                 std::function<void()> last = nullptr);
  WorkPtr launch(Call call, Start start) { return launch(one(std::move(call)), std::move(start)); }
  static Calls one(Call call);
  static void keep_apart(Calls& calls, const std::vector<Place>& own);
  WorkPtr all_reduce(Calls calls, const c10d::ReduceOp& op, at::TensorList results);
  WorkPtr all_gather(Calls calls, at::TensorList results);
  WorkPtr all_gather_lists(Calls calls, at::TensorList results, std::function<void()> last = nullptr);
  WorkPtr reduce_scatter(Calls calls, const c10d::ReduceOp& op, at::TensorList results);
  Place own_part(const at::Tensor& whole, const at::Tensor& part) const;
  void check_parts(const char* name, const Tensors& whole, const Tensors& parts) const;
  WorkPtr exchange_v(Call call, std::vector<uint64_t> in_counts, std::vector<uint64_t> out_counts);
  std::vector<uint64_t> splits(const char* name, const at::Tensor& tensor, const std::vector<int64_t>& sizes) const;
  const at::Tensor& only(const char* name, const Tensors& tensors) const;
  const Tensors& only(const char* name, const std::vector<Tensors>& lists) const;
  uint32_t check_root(const char* name, int64_t root, int64_t tensor = 0) const;
  uint32_t check_peer(const char* name, int peer) const;
  void check_alike(const char* name, const Tensors& list, size_t rank, const at::Tensor& one) const;
  void check_equal(const char* name, const Tensors& list, const at::Tensor& one) const;
  std::vector<int> missing(uint32_t tag, std::chrono::steady_clock::time_point deadline, bool all);

  void record(const Calls& calls, const OperationPtr& operation, std::chrono::milliseconds timeout);
  void remember(const WorkPtr& work);
  void forget_batches();
  void watch(Engine& engine) const;
  void end_by(const std::string& reason);
  // "tutti: rank 1: group 0: shrink: ", before the text of an error.
  std::string teller(const char* name) const;

  CurrentEngine engine_;
  std::atomic<std::chrono::milliseconds> timeout_;
  const std::unique_ptr<GroupRecorder> recorder_;  // nullptr: calls are not recorded (recorder.hpp)
  std::atomic<bool> timed_;
  const std::string name_;
  std::atomic<uint64_t> collectives_{0}, messages_{0};
  uint32_t barriers_ = 0;  // monitored ones

  // The calls of each thread's batch that has begun; none after an abort, until that thread ends it.
  std::mutex batches_mutex_;
  std::map<std::thread::id, std::optional<std::vector<WorkPtr>>> batches_;
  std::atomic<size_t> batches_begun_{0};

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<AbortHooks> hooks_ = std::make_shared<AbortHooks>();
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  const std::string handle_ = fresh_name();
  std::atomic<bool> reconfigures_{false};
  std::set<int64_t> used_uuids_;  // the thread that has set reconfigures_ uses it
#endif
};

// A group whose ranks meet over the store.
c10::intrusive_ptr<ProcessGroup> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout, const std::string& name);
// A group that has no communicator before reconfigure().
c10::intrusive_ptr<ProcessGroup> make_deferred_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                     std::chrono::milliseconds timeout, const std::string& name);
// One handle of several calls, which go on by themselves; it is complete with the last one. Of their errors the first
// in this order counts.
WorkPtr work_of_all(int rank, std::vector<WorkPtr> works);

}  // namespace tutti::torch
