// SPDX-License-Identifier: Apache-2.0
#include "recorder.hpp"

#include <c10/util/StringUtil.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include "process_group.hpp"

namespace py = pybind11;

namespace tutti::torch {
namespace {

using Clock = std::chrono::steady_clock;
using Stack = std::shared_ptr<::torch::CapturedTraceback>;

// torch's analyser knows the names of some backends only. This one is for tensors on processors, too.
constexpr auto known_backend = "gloo:";

struct Recording {
  GroupRecorder::Call call;
  int64_t group_id = 0;
  std::string group_name, group_description;
  int group_size = 0;
  uint64_t id = 0, number = 0, operation = 0;
  std::shared_ptr<GroupRecorder::Numbers> numbers;
  std::chrono::system_clock::time_point created;
  Clock::time_point created_by_clock;  // the operations' clock
  std::string thread, thread_name;
  Stack stack;
};

struct Recorder {
  std::mutex mutex;
  std::vector<Recording> ring;  // the next recording replaces number recorded % most
  uint64_t most = 0, recorded = 0;
  int64_t groups = 0;
};

uint64_t most_calls() {
  for (const char* const name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
    const char* const text = std::getenv(name);
    if (!text) continue;
    uint32_t number = 0;
    const auto [end, problem] = std::from_chars(text, text + std::strlen(text), number);
    TORCH_CHECK_VALUE(*text && !*end && problem == std::errc(), "tutti: ", name, " is \"", text,
                      "\", expected the number of calls that the flight recorder keeps; 0: none");
    return number;
  }
  return 0;
}

// nullptr: off. Never freed: threads may record while the process ends.
Recorder* recorder() {
  static Recorder* const only = [] {
    const uint64_t most = most_calls();
    auto* const made = most > 0 ? new Recorder : nullptr;
    if (made) made->most = most;
    return made;
  }();
  return only;
}

// The name by which torch records a call.
std::string name_of(c10d::OpType type, std::string_view title) {
  switch (type) {
    case c10d::OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case c10d::OpType::ALLGATHER_COALESCED:
      return "all_gather_into_tensor_coalesced";
    case c10d::OpType::GATHER:
      return "gather";
    case c10d::OpType::RECVANYSOURCE:
      return "recv";
    default:
      return std::string(title.substr(title.find(':') + 1));
  }
}

// ---- For Python --------------------------------------------------------------------------------------------

int64_t nanoseconds_of(std::chrono::system_clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

py::list types_of(const GroupRecorder::Tensors& tensors) {
  py::list names;
  for (const at::ScalarType type : tensors.types) names.append(c10::toString(type));
  return names;
}

py::dict dictionary_of(const Recording& recording) {
  const GroupRecorder::Call& call = recording.call;
  const Operation& operation = *call.operation;
  const bool ended = operation.ended.load(std::memory_order_acquire), done = ended && !operation.failure;
  const bool started = operation.started.load(std::memory_order_acquire);
  const auto time_of = [&](bool known, const Clock::time_point& time) {
    const auto since_1970 = recording.created.time_since_epoch() + (time - recording.created_by_clock);
    return known ? py::object(py::int_(nanoseconds_of(since_1970))) : py::none();
  };
  py::dict entry;
  entry["record_id"] = recording.id;
  entry["pg_id"] = recording.group_id;
  entry["process_group"] = py::make_tuple(recording.group_name, recording.group_description);
  entry["pg_size"] = recording.group_size;
  entry["thread_name"] = recording.thread_name;
  entry["thread_id"] = recording.thread;
  entry["collective_seq_id"] = recording.number;
  entry["p2p_seq_id"] = call.message ? recording.number : 0;
  entry["op_id"] = recording.operation;
  entry["message"] = py::none();
  if (call.message) entry["message"] = py::make_tuple(call.message->from, call.message->to, call.message->tag);
  entry["profiling_name"] = known_backend + call.name;
  entry["time_created_ns"] = nanoseconds_of(recording.created.time_since_epoch());
  if (done) entry["duration_ms"] = std::chrono::duration<double, std::milli>(operation.over - operation.began).count();
  entry["input_sizes"] = call.in.sizes;
  entry["input_dtypes"] = types_of(call.in);
  entry["output_sizes"] = call.out.sizes;
  entry["output_dtypes"] = types_of(call.out);
  entry["state"] = done ? "completed" : started ? "started" : "scheduled";
  entry["time_discovered_started_ns"] = time_of(started, operation.began);
  entry["time_discovered_completed_ns"] = time_of(done, operation.over);
  entry["retired"] = ended;
  entry["timeout_ms"] = call.timeout.count();
  entry["is_p2p"] = call.message.has_value();
  return entry;
}

// A receive from any rank that has ended: it is one of the messages of the rank that has sent it.
void learn_source(Recording& recording) {
  GroupRecorder::Call& call = recording.call;
  if (!call.message || call.message->from >= 0 || !call.operation->ended.load(std::memory_order_acquire)) return;
  if (call.operation->failure) return;
  call.message->from = static_cast<int>(call.source->peer);
  recording.number = ++recording.numbers->messages[*call.message];
}

void add_stacks(const std::vector<Recording>& recordings, const py::list& entries) {
  std::vector<::torch::CapturedTraceback*> stacks;
  for (const Recording& recording : recordings) stacks.push_back(recording.stack.get());
  const ::torch::SymbolizedTracebacks symbols = ::torch::symbolize(stacks);
  for (size_t n = 0; n < recordings.size(); ++n) {
    py::list frames;
    for (const uint64_t number : symbols.tracebacks[n]) {
      const auto& frame = symbols.all_frames[number];
      py::dict line;
      line["name"] = frame.funcname;
      line["filename"] = frame.filename;
      line["line"] = frame.lineno;
      frames.append(line);
    }
    entries[n]["frames"] = frames;
  }
}

}  // namespace

bool GroupRecorder::Tensors::add(at::TensorList list) {
  if (list.empty()) return true;
  std::vector<int64_t> size = list.front().sizes().vec();
  const bool alike =
      std::ranges::all_of(list, [&](const at::Tensor& tensor) { return tensor.sizes() == at::IntArrayRef(size); });
  if (!alike)
    size = {std::accumulate(list.begin(), list.end(), int64_t{0},
                            [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); })};
  else if (list.size() > 1)
    size.insert(size.begin(), static_cast<int64_t>(list.size()));
  sizes.push_back(std::move(size));
  types.push_back(list.front().scalar_type());
  return alike;
}

std::unique_ptr<GroupRecorder> GroupRecorder::make_if_on() {
  return recorder() ? std::make_unique<GroupRecorder>() : nullptr;
}

void GroupRecorder::add(const c10d::Backend& group, Call call) {
  Recording next;
  next.call = std::move(call);
  next.group_name = group.getGroupUid();
  next.group_description = group.getGroupDesc();
  next.group_size = group.getSize();
  next.created = std::chrono::system_clock::now();
  next.created_by_clock = Clock::now();
  next.thread = c10::str(std::this_thread::get_id());
  next.thread_name = c10::getThreadName();
  next.stack = ::torch::CapturedTraceback::gather(true, true, false);
  Recorder& all = *recorder();
  const std::lock_guard lock(all.mutex);
  if (numbers_->group < 0) numbers_->group = all.groups++;
  next.group_id = numbers_->group;
  next.id = all.recorded;
  next.operation = ++numbers_->operations;
  next.numbers = numbers_;
  if (const auto& message = next.call.message; !message)
    next.number = ++numbers_->collectives;
  else if (message->from >= 0)
    next.number = ++numbers_->messages[*message];
  if (all.ring.size() < all.most)
    all.ring.push_back(std::move(next));
  else
    std::swap(all.ring[all.recorded % all.most], next);
  ++all.recorded;
}

void ProcessGroup::record(const Calls& calls, const OperationPtr& operation, std::chrono::milliseconds timeout) {
  const Call& first = calls.front();
  GroupRecorder::Call call;
  call.name = name_of(first.type, first.name);
  if (c10d::isP2POp(first.type))
    call.message = first.type == c10d::OpType::SEND ? GroupRecorder::Message{getRank(), first.peer, first.tag}
                                                    : GroupRecorder::Message{first.peer, getRank(), first.tag};
  call.timeout = timeout;
  call.operation = operation;
  call.source = first.envelope;
  bool alike = true;
  // The tensors of a sparse sum are not the ones that travel.
  if (first.type != c10d::OpType::_ALLREDUCE_SPARSE)
    for (const auto& one : calls) {
      alike = call.in.add(one.in.tensors()) && alike;
      alike = call.out.add(one.out.tensors()) && alike;
    }
  // Blocks of several sizes: the analyser expects all ranks to have the same, so both sides are the whole.
  if (!alike && first.type == c10d::OpType::ALLGATHER) {
    call.name += "_v";
    call.in = call.out;
  } else if (!alike && first.type == c10d::OpType::REDUCE_SCATTER) {
    call.name += "_v";
    call.out = call.in;
  }
  recorder_->add(*this, std::move(call));
}

py::object flight_recordings(bool stacks) {
  if (!recorder()) return py::none();
  std::vector<Recording> recordings;
  {
    const py::gil_scoped_release unlocked;  // of those who record, some wait for it
    Recorder& all = *recorder();
    const std::lock_guard lock(all.mutex);
    const auto oldest =
        all.ring.begin() + static_cast<ptrdiff_t>(all.recorded > all.most ? all.recorded % all.most : 0);
    std::for_each(oldest, all.ring.end(), learn_source);
    std::for_each(all.ring.begin(), oldest, learn_source);
    recordings.assign(oldest, all.ring.end());
    recordings.insert(recordings.end(), all.ring.begin(), oldest);
  }
  py::list entries;
  for (const Recording& recording : recordings) entries.append(dictionary_of(recording));
  if (stacks) add_stacks(recordings, entries);
  return entries;
}

}  // namespace tutti::torch
