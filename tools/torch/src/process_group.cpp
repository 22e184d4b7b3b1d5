// SPDX-License-Identifier: Apache-2.0
#include "process_group.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "call_options.hpp"
#include "recorder.hpp"
#include "signals.hpp"
#include "work.hpp"

namespace tutti::torch {
namespace {

// A sum of truth values is "any", as with NCCL.
uint32_t operator_of(const c10d::ReduceOp& op, at::ScalarType type, const char* name) {
  const auto either = [&](uint32_t logical, uint32_t arithmetic) { return type == at::kBool ? logical : arithmetic; };
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return either(TUTTI_LOR, TUTTI_SUM);
    case c10d::ReduceOp::PRODUCT:
      return either(TUTTI_LAND, TUTTI_PROD);
    case c10d::ReduceOp::MIN:
      return either(TUTTI_LAND, TUTTI_MIN);
    case c10d::ReduceOp::MAX:
      return either(TUTTI_LOR, TUTTI_MAX);
    case c10d::ReduceOp::AVG:
      return TUTTI_AVG;
    case c10d::ReduceOp::BAND:
      return TUTTI_BAND;
    case c10d::ReduceOp::BOR:
      return TUTTI_BOR;
    case c10d::ReduceOp::BXOR:
      return TUTTI_BXOR;
    default:
      TORCH_CHECK(false, name, ": an unknown reduce operation");
  }
}

// A copy times the operator's factor, which each rank applies to its own input.
Buffer scaled(const char* name, const Buffer& in, const c10d::ReduceOp& op, Buffer::Form form = Buffer::Form::whole) {
  const auto* factors = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factors && at::isFloatingType(in.type()), name, ": premul_sum takes a factor, and a tensor of a ",
              "floating-point type; got ", in.type());
  const at::Tensor factor = factors->tensor_factor;
  const Unseen unseen;
  Tensors copies;
  for (const at::Tensor& tensor : in.tensors())
    copies.push_back(factor.defined() ? tensor.mul(factor.to(tensor.scalar_type()))
                                      : tensor.mul(factors->double_factor));
  return {name, copies, Buffer::Use::read, form};
}

std::vector<uint64_t> counts_of(at::TensorList list) {
  std::vector<uint64_t> counts;
  counts.reserve(list.size());
  for (const at::Tensor& tensor : list) counts.push_back(static_cast<uint64_t>(tensor.numel()));
  return counts;
}

bool all_equal(const std::vector<uint64_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

Buffer::Form form_of(bool blocks) { return blocks ? Buffer::Form::blocks : Buffer::Form::whole; }

}  // namespace

ProcessGroup::ProcessGroup(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                           const std::string& name, std::shared_ptr<Engine> engine)
    : c10d::Backend(rank, size),
      engine_(std::move(engine)),
      timeout_(timeout),
      recorder_(GroupRecorder::make_if_on()),
      timed_(recorder_ != nullptr),
      name_(name),
      store_(std::move(store)) {
  init();
  watch(*engine_.now());
}

ProcessGroup::~ProcessGroup() { close({}); }

// Python drops groups with the interpreter's lock held, which callbacks that go on may want.
void ProcessGroup::close(const std::string& reason) {
  if (!reason.empty()) return end_by(reason);
  const Unlocked unlocked;
  engine_->close({});
}

// A new object for each caller: torch changes the one that it gets, for a group that it makes by it.
c10::intrusive_ptr<c10d::Backend::Options> ProcessGroup::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(getBackendName(), timeout_.load());
  options->group_name = getGroupUid();
  options->group_desc = getGroupDesc();
  return options;
}

void ProcessGroup::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "tutti: ", name_, ": the timeout is ", timeout.count(), " ms, expected more than 0");
  timeout_.store(timeout);
}

void ProcessGroup::enableCollectivesTiming() {
  timed_.store(true);
  engine_->time_operations();
}

c10d::ErrorType ProcessGroup::getError() {
  switch (engine_->error()) {
    case TUTTI_OK:
      return c10d::ErrorType::SUCCESS;
    case TUTTI_TIMEOUT:
      return c10d::ErrorType::TIMEOUT;
    case TUTTI_PEER_FAILED:
    case TUTTI_ABORTED:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

// The calls of an operation with the memory that they use.
class ProcessGroup::Launched final : public Operation {
 public:
  Launched(Calls calls, Start start, std::function<void()> last, const tutti_options& options)
      : Operation(calls.front().name),
        calls_(std::move(calls)),
        start_(std::move(start)),
        last_(std::move(last)),
        chosen_(CallOptions::now()),
        options_(options) {
    if (chosen_) chosen_->fill(calls_.front().type, options_);
  }
  const Calls& calls() const { return calls_; }

 private:
  tutti_status start(tutti_comm* comm, tutti_request** request) override;
  tutti_status begin(const Call& call, tutti_comm* comm, tutti_request** request);
  void finish() override {
    for (const Call& call : calls_) call.out.give_back();
    if (last_) last_();
  }
  void release() override {
    calls_.clear();
    start_ = nullptr;
    last_ = nullptr;
  }

  Calls calls_;
  Start start_;
  std::function<void()> last_;
  std::shared_ptr<const CallOptions> chosen_;  // by the block of tutti.torch.call()
  tutti_options options_;
};

// The calls of an operation may have elements of several types, each with a wire format or none.
tutti_status ProcessGroup::Launched::begin(const Call& call, tutti_comm* comm, tutti_request** request) {
  if (chosen_) options_.wire = chosen_->wire(call.type, call.in.type());
  return start_(call, comm, request, &options_);
}

tutti_status ProcessGroup::Launched::start(tutti_comm* comm, tutti_request** request) {
  if (calls_.size() == 1) return begin(calls_.front(), comm, request);
  if (const tutti_status status = tutti_group_begin(comm); status < 0) return status;
  for (const Call& call : calls_)
    if (const tutti_status status = begin(call, comm, nullptr); status < 0) {
      tutti_group_cancel(comm);  // the communicator keeps the call's text
      return status;
    }
  tutti_options of_group{};  // the calls have the others
  of_group.struct_size = sizeof of_group;
  of_group.timeout_ns = options_.timeout_ns;
  return tutti_group_end(comm, &of_group, request);
}

ProcessGroup::Calls ProcessGroup::one(Call call) {
  Calls calls;
  calls.push_back(std::move(call));
  return calls;
}

WorkPtr ProcessGroup::launch(Calls made, Start start, std::optional<at::TensorList> results,
                             std::function<void()> last) {
  const Call& first = made.front();
  const auto timeout = first.timeout.count() > 0 ? first.timeout : timeout_.load();
  const c10d::OpType type = first.type;
  const uint64_t number = 1 + (c10d::isP2POp(type) ? messages_ : collectives_).fetch_add(1);
  Work::Facts facts{number, timeout, first.envelope};
  tutti_options options{};
  options.struct_size = sizeof options;
  if (timeout.count() > 0) options.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  options.stream = first.out.tensors().empty() ? nullptr : first.out.stream();
  auto launched = std::make_shared<Launched>(std::move(made), std::move(start), std::move(last), options);
  const Calls& calls = launched->calls();
  std::optional<Tensors> profiled;
  if (at::hasCallbacks()) {
    profiled.emplace();
    for (const Call& call : calls) {
      const at::TensorList some = call.in.tensors().empty() ? call.out.tensors() : call.in.tensors();
      profiled->insert(profiled->end(), some.begin(), some.end());
    }
  }
  if (!results) results = calls.front().out.tensors();
  const OperationPtr operation = std::move(launched);
  const std::shared_ptr<Engine> engine = engine_.now();
  WorkPtr work = c10::make_intrusive<Work>(getRank(), type, profiled, *results, engine, operation, std::move(facts));
  if (recorder_) record(calls, operation, timeout);
  engine->start(operation);
  if (operation->ended.load(std::memory_order_acquire) && operation->failure)
    std::rethrow_exception(operation->failure);
  if (batches_begun_.load(std::memory_order_relaxed)) remember(work);
  return work;
}

// ---- Arguments ---------------------------------------------------------------------------------------------

const at::Tensor& ProcessGroup::only(const char* name, const Tensors& tensors) const {
  TORCH_CHECK(tensors.size() == 1, name, ": got ", tensors.size(), " tensors, expected one per process");
  return tensors.front();
}

// A list with a tensor for each rank.
const Tensors& ProcessGroup::only(const char* name, const std::vector<Tensors>& lists) const {
  TORCH_CHECK(lists.size() == 1, name, ": got ", lists.size(), " lists of tensors, expected one per process");
  TORCH_CHECK(lists.front().size() == static_cast<size_t>(getSize()), name, ": got a list of ", lists.front().size(),
              " tensors, expected one for each of the ", getSize(), " ranks");
  return lists.front();
}

uint32_t ProcessGroup::check_root(const char* name, int64_t root, int64_t tensor) const {
  TORCH_CHECK(tensor == 0, name, ": the root's tensor is number ", tensor, ", expected 0: there is one per process");
  TORCH_CHECK(root >= 0 && root < getSize(), name, ": the root is rank ", root, ", expected 0 to ", getSize() - 1);
  return static_cast<uint32_t>(root);
}

uint32_t ProcessGroup::check_peer(const char* name, int peer) const {
  TORCH_CHECK(peer >= 0 && peer < getSize() && peer != getRank(), name, ": the other rank is ", peer,
              ", expected 0 to ", getSize() - 1, " and not this rank, ", getRank());
  return static_cast<uint32_t>(peer);
}

// The tensor of a list that is a rank's has the shape and type of the one that the rank gives or takes.
void ProcessGroup::check_alike(const char* name, const Tensors& list, size_t rank, const at::Tensor& one) const {
  TORCH_CHECK(list[rank].sizes() == one.sizes(), name, ": invalid tensor size: the list's tensor of rank ", rank,
              " has the shape ", list[rank].sizes(), ", expected ", one.sizes());
  TORCH_CHECK(list[rank].scalar_type() == one.scalar_type(), name, ": invalid tensor type: the list's tensor of rank ",
              rank, " is of ", list[rank].scalar_type(), ", expected ", one.scalar_type());
}

void ProcessGroup::check_equal(const char* name, const Tensors& list, const at::Tensor& one) const {
  for (size_t r = 0; r < list.size(); ++r)
    check_alike(name, list, r, one);
}

// The elements of each rank's block. No sizes: equal ones.
std::vector<uint64_t> ProcessGroup::splits(const char* name, const at::Tensor& tensor,
                                           const std::vector<int64_t>& sizes) const {
  const auto ranks = static_cast<size_t>(getSize());
  const int64_t rows = tensor.dim() ? tensor.size(0) : 1;
  const int64_t row = rows ? tensor.numel() / rows : 0;
  if (sizes.empty()) {
    TORCH_CHECK(rows % getSize() == 0, name, ": Tensor's dim 0 does not divide equally across group size: ", rows,
                " rows, ", ranks, " ranks");
    return std::vector<uint64_t>(ranks, static_cast<uint64_t>(rows / getSize() * row));
  }
  TORCH_CHECK(sizes.size() == ranks, name, ": Number of tensor splits not equal to group size: ", sizes.size(),
              " splits, ", ranks, " ranks");
  const bool negative = std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; });
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  TORCH_CHECK(!negative && sum == rows, name, ": Split sizes doesn't match total dim 0 size: their sum is ", sum,
              ", expected ", rows, " and none below 0");
  std::vector<uint64_t> counts;
  for (const int64_t size : sizes) counts.push_back(static_cast<uint64_t>(size * row));
  return counts;
}

// ---- Collectives -------------------------------------------------------------------------------------------

WorkPtr ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr auto name = "tutti:broadcast";
  only(name, tensors);
  const uint32_t root = check_root(name, options.rootRank, options.rootTensor);
  const bool is_root = options.rootRank == getRank();
  const auto chosen = CallOptions::now();
  const bool rounds = chosen && tensors[0].defined() &&
                      chosen->wire(c10d::OpType::BROADCAST, tensors[0].scalar_type()) != TUTTI_WIRE_PLAIN;
  // In a wire format the root gets what the others get.
  const auto of_root = rounds ? Buffer::Use::change : Buffer::Use::read;
  const Buffer data(name, tensors, is_root ? of_root : Buffer::Use::write);
  return launch({name, c10d::OpType::BROADCAST, data, data, options.timeout},
                [root](const Call& call, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
                  return tutti_broadcast(comm, call.in.data(), call.out.data(), call.in.elements() * call.in.scale(),
                                         call.in.dtype(), root, opts, request);
                });
}

WorkPtr ProcessGroup::all_reduce(Calls calls, const c10d::ReduceOp& op, at::TensorList results) {
  const Call& first = calls.front();
  const uint32_t reduction = operator_of(op, first.in.type(), first.name), dtype = first.in.dtype(false);
  for (Call& call : calls)
    if (op == c10d::ReduceOp::PREMUL_SUM) call.in = scaled(call.name, call.in, op);
  const auto start = [=](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
    return tutti_all_reduce(comm, c.in.data(), c.out.data(), c.in.elements(), dtype, reduction, opts, request);
  };
  return launch(std::move(calls), start, results);
}

WorkPtr ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr auto name = "tutti:all_reduce";
  if (const at::Tensor& tensor = only(name, tensors); tensor.defined() && tensor.is_sparse())
    return allreduce_sparse(tensors, options);
  Buffer data(name, tensors, Buffer::Use::change);
  return all_reduce(one({name, c10d::OpType::ALLREDUCE, data, std::move(data), options.timeout}), options.reduceOp,
                    tensors);
}

WorkPtr ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr auto name = "tutti:reduce";
  only(name, tensors);
  const uint32_t root = check_root(name, options.rootRank, options.rootTensor);
  const bool is_root = options.rootRank == getRank();
  const Buffer data(name, tensors, is_root ? Buffer::Use::change : Buffer::Use::read);
  const uint32_t reduction = operator_of(options.reduceOp, data.type(), name), dtype = data.dtype(false);
  Call call{name, c10d::OpType::REDUCE, data, data, options.timeout};
  if (options.reduceOp == c10d::ReduceOp::PREMUL_SUM) call.in = scaled(name, data, options.reduceOp);
  return launch(
      std::move(call), [=](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
        return tutti_reduce(comm, c.in.data(), c.out.data(), c.in.elements(), dtype, reduction, root, opts, request);
      });
}

WorkPtr ProcessGroup::all_gather(Calls calls, at::TensorList results) {
  const auto start = [](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
    return tutti_all_gather(comm, c.in.data(), c.out.data(), c.in.elements() * c.in.scale(), c.in.dtype(), opts,
                            request);
  };
  return launch(std::move(calls), start, results);
}

WorkPtr ProcessGroup::_allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) {
  constexpr auto name = "tutti:_all_gather_base";
  TORCH_CHECK(out.numel() == in.numel() * getSize() && out.scalar_type() == in.scalar_type(), name,
              ": the output tensor size must be equal to world_size times input tensor size: it has ", out.numel(),
              " elements of ", out.scalar_type(), ", expected ", in.numel() * getSize(), " of ", in.scalar_type());
  return all_gather(one({name, c10d::OpType::_ALLGATHER_BASE, Buffer(name, in, Buffer::Use::read),
                         Buffer(name, out, Buffer::Use::write), options.timeout}),
                    out);
}

// Each into a list of tensors, one for each rank.
WorkPtr ProcessGroup::all_gather_lists(Calls calls, at::TensorList results, std::function<void()> last) {
  std::vector<Place> own;
  for (const Call& call : calls) own.push_back(place_without_gaps(call.out.tensors()[static_cast<size_t>(getRank())]));
  keep_apart(calls, own);
  const auto start = [](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
    std::vector<uint64_t> counts = counts_of(c.out.tensors());
    for (uint64_t& count : counts) count *= c.in.scale();
    return c.out.form() == Buffer::Form::blocks
               ? tutti_all_gather_v(comm, c.in.data(), c.out.data(), counts.data(), c.out.displacements(), c.in.dtype(),
                                    opts, request)
               : tutti_all_gather(comm, c.in.data(), c.out.data(), counts.front(), c.in.dtype(), opts, request);
  };
  return launch(std::move(calls), start, results, std::move(last));
}

WorkPtr ProcessGroup::allgather(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& options) {
  constexpr auto name = "tutti:all_gather";
  const at::Tensor& mine = only(name, in);
  const Tensors& list = only(name, out);
  check_alike(name, list, static_cast<size_t>(getRank()), mine);
  const Buffer::Form form = form_of(in_blocks(mine) || !all_equal(counts_of(list)));
  return all_gather_lists(one({name, c10d::OpType::ALLGATHER, Buffer(name, in, Buffer::Use::read),
                               Buffer(name, list, Buffer::Use::write, form), options.timeout}),
                          list);
}

WorkPtr ProcessGroup::gather(std::vector<Tensors>& out, Tensors& in, const c10d::GatherOptions& options) {
  constexpr auto name = "tutti:gather";
  const at::Tensor& mine = only(name, in);
  const uint32_t root = check_root(name, options.rootRank);
  const bool blocks = in_blocks(mine);
  Call call{name, c10d::OpType::GATHER, Buffer(name, in, Buffer::Use::read), {}, options.timeout};
  if (options.rootRank == getRank()) {
    check_equal(name, only(name, out), mine);
    call.out = Buffer(name, out.front(), Buffer::Use::write, form_of(blocks));
    call.in.keep_apart_from(Written({&call.out}), 0, place_without_gaps(out.front()[static_cast<size_t>(getRank())]));
  } else {
    TORCH_CHECK(out.empty(), name, ": requires empty output on non-root; got ", out.size(), " lists");
  }
  const std::vector<uint64_t> counts(static_cast<size_t>(getSize()), call.in.elements() * call.in.scale());
  return launch(std::move(call), [=](const Call& c, tutti_comm* comm, tutti_request** request,
                                     const tutti_options* opts) {
    return blocks ? tutti_gather_v(comm, c.in.data(), counts.front(), c.out.data(), counts.data(),
                                   c.out.displacements(), c.in.dtype(), root, opts, request)
                  : tutti_gather(comm, c.in.data(), c.out.data(), counts.front(), c.in.dtype(), root, opts, request);
  });
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
WorkPtr ProcessGroup::gather_into_tensor(at::Tensor& out, at::Tensor& in, const c10d::GatherOptions& options) {
  constexpr auto name = "tutti:gather_into_tensor";
  const uint32_t root = check_root(name, options.rootRank);
  Call call{name, c10d::OpType::GATHER, Buffer(name, in, Buffer::Use::read), {}, options.timeout};
  if (options.rootRank == getRank()) {
    TORCH_CHECK(out.numel() == in.numel() * getSize() && out.scalar_type() == in.scalar_type(), name,
                ": the output tensor has ", out.numel(), " elements of ", out.scalar_type(), ", expected ",
                in.numel() * getSize(), " of ", in.scalar_type(), ": the input's of each of the ", getSize(), " ranks");
    call.out = Buffer(name, out, Buffer::Use::write);
    call.in.keep_apart_from(Written({&call.out}), 0, own_part(out, in));
  }
  return launch(std::move(call), [root](const Call& c, tutti_comm* comm, tutti_request** request,
                                        const tutti_options* opts) {
    return tutti_gather(comm, c.in.data(), c.out.data(), c.in.elements() * c.in.scale(), c.in.dtype(), root, opts,
                        request);
  });
}
#endif

WorkPtr ProcessGroup::scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ScatterOptions& options) {
  constexpr auto name = "tutti:scatter";
  const at::Tensor& mine = only(name, out);
  const uint32_t root = check_root(name, options.rootRank);
  const bool blocks = in_blocks(mine);
  Call call{name, c10d::OpType::SCATTER, {}, Buffer(name, out, Buffer::Use::write), options.timeout};
  if (options.rootRank == getRank()) {
    check_equal(name, only(name, in), mine);
    call.in = Buffer(name, in.front(), Buffer::Use::read, form_of(blocks));
    call.in.keep_apart_from(Written({&call.out}), static_cast<size_t>(getRank()), place_without_gaps(mine));
  } else {
    TORCH_CHECK(in.empty(), name, ": requires empty input on non-root; got ", in.size(), " lists");
  }
  const std::vector<uint64_t> counts(static_cast<size_t>(getSize()), call.out.elements() * call.out.scale());
  return launch(std::move(call), [=](const Call& c, tutti_comm* comm, tutti_request** request,
                                     const tutti_options* opts) {
    return blocks ? tutti_scatter_v(comm, c.in.data(), counts.data(), c.in.displacements(), c.out.data(),
                                    counts.front(), c.out.dtype(), root, opts, request)
                  : tutti_scatter(comm, c.in.data(), c.out.data(), counts.front(), c.out.dtype(), root, opts, request);
  });
}

WorkPtr ProcessGroup::reduce_scatter(Tensors& out, std::vector<Tensors>& in,
                                     const c10d::ReduceScatterOptions& options) {
  constexpr auto name = "tutti:reduce_scatter";
  const at::Tensor& mine = only(name, out);
  const Tensors& list = only(name, in);
  const std::vector<uint64_t> counts = counts_of(list);
  const bool blocks = in_blocks(mine) || !all_equal(counts);
  const Buffer::Form form = form_of(blocks);
  Call call{name, c10d::OpType::REDUCE_SCATTER, Buffer(name, list, Buffer::Use::read, form),
            Buffer(name, out, Buffer::Use::write), options.timeout};
  call.in.keep_apart_from(Written({&call.out}), static_cast<size_t>(getRank()), place_without_gaps(mine));
  check_alike(name, list, static_cast<size_t>(getRank()), mine);
  const uint32_t reduction = operator_of(options.reduceOp, call.in.type(), name), dtype = call.in.dtype(false);
  if (options.reduceOp == c10d::ReduceOp::PREMUL_SUM) call.in = scaled(name, call.in, options.reduceOp, form);
  return launch(std::move(call), [=](const Call& c, tutti_comm* comm, tutti_request** request,
                                     const tutti_options* opts) {
    return blocks
               ? tutti_reduce_scatter_v(comm, c.in.data(), c.out.data(), counts.data(), c.in.displacements(), dtype,
                                        reduction, opts, request)
               : tutti_reduce_scatter(comm, c.in.data(), c.out.data(), counts.front(), dtype, reduction, opts, request);
  });
}

WorkPtr ProcessGroup::reduce_scatter(Calls calls, const c10d::ReduceOp& op, at::TensorList results) {
  const Call& first = calls.front();
  const uint32_t reduction = operator_of(op, first.in.type(), first.name), dtype = first.in.dtype(false);
  for (Call& call : calls)
    if (op == c10d::ReduceOp::PREMUL_SUM) call.in = scaled(call.name, call.in, op);
  const auto start = [=](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
    return tutti_reduce_scatter(comm, c.in.data(), c.out.data(), c.out.elements(), dtype, reduction, opts, request);
  };
  return launch(std::move(calls), start, results);
}

WorkPtr ProcessGroup::_reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) {
  constexpr auto name = "tutti:_reduce_scatter_base";
  TORCH_CHECK(in.numel() == out.numel() * getSize() && out.scalar_type() == in.scalar_type(), name,
              ": the input tensor must be the same size as output size times world size: it has ", in.numel(),
              " elements of ", in.scalar_type(), ", expected ", out.numel() * getSize(), " of ", out.scalar_type());
  return reduce_scatter(one({name, c10d::OpType::_REDUCE_SCATTER_BASE, Buffer(name, in, Buffer::Use::read),
                             Buffer(name, out, Buffer::Use::write), options.timeout}),
                        options.reduceOp, out);
}

WorkPtr ProcessGroup::exchange_v(Call call, std::vector<uint64_t> in_counts, std::vector<uint64_t> out_counts) {
  TORCH_CHECK(call.in.type() == call.out.type(), call.name, ": Tensors are not equal in data type: ", call.in.type(),
              " in, ", call.out.type(), " out");
  for (uint64_t& count : in_counts) count *= call.in.scale();
  for (uint64_t& count : out_counts) count *= call.in.scale();
  return launch(std::move(call), [in_counts, out_counts](const Call& c, tutti_comm* comm, tutti_request** request,
                                                         const tutti_options* opts) {
    return tutti_all_to_all_v(comm, c.in.data(), in_counts.data(), c.in.displacements(), c.out.data(),
                              out_counts.data(), c.out.displacements(), c.in.dtype(), opts, request);
  });
}

WorkPtr ProcessGroup::alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_splits,
                                    std::vector<int64_t>& in_splits, const c10d::AllToAllOptions& options) {
  constexpr auto name = "tutti:all_to_all";
  const std::vector<uint64_t> in_counts = splits(name, in, in_splits), out_counts = splits(name, out, out_splits);
  Call call{name, c10d::OpType::ALLTOALL_BASE, Buffer(name, in, Buffer::Use::read),
            Buffer(name, out, Buffer::Use::write), options.timeout};
  if (!in_splits.empty() || !out_splits.empty()) return exchange_v(std::move(call), in_counts, out_counts);
  TORCH_CHECK(call.in.elements() == call.out.elements() && call.in.type() == call.out.type(), name,
              ": Tensors are not equal in size or data type: ", call.in.elements(), " elements of ", call.in.type(),
              " in, ", call.out.elements(), " of ", call.out.type(), " out");
  const uint64_t count = in_counts.front() * call.in.scale();
  return launch(std::move(call),
                [count](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
                  return tutti_all_to_all(comm, c.in.data(), c.out.data(), count, c.in.dtype(), opts, request);
                });
}

WorkPtr ProcessGroup::alltoall(Tensors& out, Tensors& in, const c10d::AllToAllOptions& options) {
  constexpr auto name = "tutti:all_to_all";
  for (const Tensors* list : {&in, &out}) only(name, std::vector<Tensors>{*list});
  Call call{name, c10d::OpType::ALLTOALL, Buffer(name, in, Buffer::Use::read, Buffer::Form::blocks),
            Buffer(name, out, Buffer::Use::write, Buffer::Form::blocks), options.timeout};
  call.in.keep_apart_from(Written({&call.out}));
  return exchange_v(std::move(call), counts_of(in), counts_of(out));
}

WorkPtr ProcessGroup::barrier(const c10d::BarrierOptions& options) {
  return launch({"tutti:barrier", c10d::OpType::BARRIER, {}, {}, options.timeout},
                [](const Call&, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
                  return tutti_barrier(comm, opts, request);
                });
}

// ---- Messages ----------------------------------------------------------------------------------------------

WorkPtr ProcessGroup::send(Tensors& tensors, int peer, int tag) {
  constexpr auto name = "tutti:send";
  only(name, tensors);
  const uint32_t to = check_peer(name, peer);
  TORCH_CHECK(tag >= 0, name, ": the tag is ", tag, ", expected 0 or more");
  const Buffer data(name, tensors, Buffer::Use::read);
  return launch({name, c10d::OpType::SEND, data, {}, c10d::kUnsetTimeout, peer, tag},
                [=](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
                  return tutti_send(comm, c.in.data(), c.in.elements() * c.in.scale(), c.in.dtype(), to,
                                    static_cast<uint32_t>(tag), opts, request);
                });
}

WorkPtr ProcessGroup::recv(Tensors& tensors, int peer, int tag) {
  constexpr auto name = "tutti:recv";
  only(name, tensors);
  const uint32_t from = check_peer(name, peer);
  TORCH_CHECK(tag >= 0, name, ": the tag is ", tag, ", expected 0 or more");
  const Buffer data(name, tensors, Buffer::Use::write);
  return launch({name, c10d::OpType::RECV, {}, data, c10d::kUnsetTimeout, peer, tag},
                [=](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
                  return tutti_receive(comm, c.out.data(), c.out.elements() * c.out.scale(), c.out.dtype(), from,
                                       static_cast<uint32_t>(tag), opts, request);
                });
}

WorkPtr ProcessGroup::recvAnysource(Tensors& tensors, int tag) {
  constexpr auto name = "tutti:recvAnySource";
  only(name, tensors);
  TORCH_CHECK(tag >= 0, name, ": the tag is ", tag, ", expected 0 or more");
  auto envelope = std::make_shared<tutti_envelope>();
  envelope->struct_size = sizeof(tutti_envelope);
  envelope->flags = TUTTI_ANY_PEER;
  envelope->tag = static_cast<uint32_t>(tag);
  return launch(
      {name, c10d::OpType::RECVANYSOURCE, {}, Buffer(name, tensors, Buffer::Use::write), c10d::kUnsetTimeout, -1, tag,
       envelope},
      [](const Call& c, tutti_comm* comm, tutti_request** request, const tutti_options* opts) {
        return tutti_receive_any(comm, c.out.data(), c.out.elements() * c.out.scale(), c.out.dtype(), c.envelope.get(),
                                 opts, request);
      });
}

}  // namespace tutti::torch
