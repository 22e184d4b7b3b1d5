// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tutti/sdk/plugin.hpp>
#include <utility>
#include <vector>

#include "hazards.hpp"
#include "memory.hpp"
#include "reduce.hpp"

namespace tutti::simulated {
namespace {

using sdk::Error;

struct Work {
  tutti_command command{};
  std::vector<const void*> sources;
  ReduceLoop reduce = nullptr;
  Event::Mark mark;               // RECORD, AFTER: which setting of the event
  std::vector<Work> fused;        // in the place of a command: a list that is carried out as one
  class Queue* behind = nullptr;  // in the place of a command: until that queue has carried out `turn` commands
  uint64_t turn = 0;
};

void until(const auto& condition) {
  for (uint32_t polls = 0; !condition(); ++polls)
    if (polls < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
}

bool is_done(Queue& queue, uint64_t turn);

void carry_out(const Work& work) {
  for (const Work& part : work.fused) carry_out(part);
  if (work.behind) until([&] { return is_done(*work.behind, work.turn); });
  const tutti_command& c = work.command;
  switch (c.kind) {
    case TUTTI_COMMAND_COPY:
      std::memmove(c.dst, work.sources[0], c.count);
      return;
    case TUTTI_COMMAND_REDUCE:
      return work.reduce(c, work.sources.data());
    case TUTTI_COMMAND_WAIT:
      return until([&] { return std::atomic_ref(*c.flag).load(std::memory_order_acquire) == c.value; });
    case TUTTI_COMMAND_WRITE:
      return std::atomic_ref(*c.flag).store(c.value, std::memory_order_release);
    case TUTTI_COMMAND_RECORD:
      return work.mark->store(true, std::memory_order_release);
    case TUTTI_COMMAND_AFTER:
      return until([&] { return work.mark->load(std::memory_order_acquire); });
    default:
      return;
  }
}

class Queue {
 public:
  // Threads outlive the program's statics: they are never joined.
  Queue() {
    std::thread([this] { run(); }).detach();
  }
  // Waits while the queue is full.
  void append(std::vector<Work> all) {
    std::unique_lock lock(mutex_);
    for (Work& work : all) {
      changed_.wait(lock, [this] { return waiting_.size() < depth_; });
      if (work.command.kind == TUTTI_COMMAND_RECORD) work.mark = reinterpret_cast<Event*>(work.command.event)->set();
      if (work.command.kind == TUTTI_COMMAND_AFTER) work.mark = reinterpret_cast<Event*>(work.command.event)->newest();
      waiting_.push_back(std::move(work));
      ++appended_;
      changed_.notify_all();
    }
  }
  bool is_busy() {
    const std::lock_guard lock(mutex_);
    return done_ < appended_;
  }
  // How many commands it was given so far.
  uint64_t end() {
    const std::lock_guard lock(mutex_);
    return appended_;
  }
  bool has_done(uint64_t commands) {
    const std::lock_guard lock(mutex_);
    return done_ >= commands;
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, end = appended_] { return done_ >= end; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      const Work work = std::move(waiting_.front());
      waiting_.pop_front();
      changed_.notify_all();  // there is room: this command may take for ever
      lock.unlock();
      if (driver_is_gone()) return;
      carry_out(work);
      lock.lock();
      ++done_;
      changed_.notify_all();  // drain() may have waited for this one, whatever follows it
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  const uint64_t depth_ = sdk::config_number("TUTTI_SIMULATED_DEPTH", 1024, 1, 1u << 20);
  uint64_t appended_ = 0, done_ = 0;
};

bool is_done(Queue& queue, uint64_t turn) { return queue.has_done(turn); }

}  // namespace

struct Stream {
  uint32_t device = 0;
  uint32_t number = 0;
  Queue* queue = nullptr;
  std::atomic<Graph*> recording{nullptr};  // while it is captured
};

class Graph {
 public:
  void record(Stream& stream, std::vector<Work> all) {
    const std::lock_guard lock(mutex_);
    work_.emplace_back(&stream, std::move(all));
  }
  void launch() const {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, all] : work_) stream->queue->append(all);
  }
  std::vector<Stream*> streams;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<Stream*, std::vector<Work>>> work_;
};

namespace {

struct Streams {
  std::mutex mutex;
  std::vector<std::vector<std::unique_ptr<Queue>>> queues;  // by device
  std::vector<uint64_t> next;                               // queue of the next stream
  std::set<void*> alive;
  std::unique_ptr<Stream> standard;
  uint32_t last_number = 0;
  std::vector<std::vector<Stream*>> destroyed;  // by device: their handles come again, the last one first
  std::unique_ptr<Stream> make(uint32_t device) {
    if (queues.empty()) {
      const uint64_t each = sdk::config_number("TUTTI_SIMULATED_QUEUES", 1, 1, 64);
      queues.resize(device_count());
      next.resize(device_count());
      destroyed.resize(device_count());
      for (auto& of_device : queues)
        for (uint64_t i = 0; i < each; ++i) of_device.push_back(std::make_unique<Queue>());
    }
    auto& of_device = queues[device];
    std::unique_ptr<Stream> made(destroyed[device].empty() ? new Stream() : destroyed[device].back());
    if (!destroyed[device].empty()) destroyed[device].pop_back();
    made->device = device;
    made->number = ++last_number;
    made->queue = of_device[next[device]++ % of_device.size()].get();
    return made;
  }
};
Streams& streams() {
  static auto* all = new Streams();
  return *all;
}

Stream& find(void* stream) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  if (!stream) {
    if (!all.standard) all.standard = all.make(0);
    return *all.standard;
  }
  if (!all.alive.contains(stream))
    throw Error(TUTTI_INVALID_ARGUMENT,
                "simulated device: " + std::to_string(reinterpret_cast<uintptr_t>(stream)) + " is no stream");
  return *static_cast<Stream*>(stream);
}

Work check(const tutti_command& command) {
  Work work;
  work.command = command;
  const bool computes = command.kind == TUTTI_COMMAND_COPY || command.kind == TUTTI_COMMAND_REDUCE;
  if (command.kind < TUTTI_COMMAND_COPY || command.kind > TUTTI_COMMAND_AFTER)
    throw Error(TUTTI_NOT_SUPPORTED, "simulated device: unknown command " + std::to_string(command.kind));
  const bool exact = command.kind == TUTTI_COMMAND_REDUCE && command.flags == TUTTI_COMMAND_EXACT;
  if ((command.flags && !exact) || command.reserved)
    throw Error(TUTTI_NOT_SUPPORTED,
                "simulated device: a command has flags or a reserved field, which are not known here");
  if (computes) {
    if (command.sources == 0 || (command.kind == TUTTI_COMMAND_COPY && command.sources != 1))
      throw Error(TUTTI_INVALID_ARGUMENT,
                  "simulated device: a command has " + std::to_string(command.sources) + " sources");
    uint64_t bytes = command.count;
    if (command.kind == TUTTI_COMMAND_REDUCE) {
      work.reduce = exact ? find_exact_sum(command.dtype, command.op) : find_reduce(command.dtype, command.op);
      bytes *= element_bytes(command.dtype);
    }
    work.sources.assign(command.src, command.src + command.sources);
    for (const void*& source : work.sources) source = reach(source, bytes);
    work.command.dst = reach(command.dst, bytes);
  } else if (command.kind == TUTTI_COMMAND_WAIT || command.kind == TUTTI_COMMAND_WRITE) {
    work.command.flag = static_cast<uint32_t*>(reach(command.flag, sizeof *command.flag));
  } else if (!command.event) {
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: a command's event is NULL");
  }
  return work;
}

// The pieces that a device gets one by one: consecutive flags go together.
uint64_t count_launches(const std::vector<Work>& all) {
  uint64_t launches = 0;
  bool after_flag = false;
  for (const Work& work : all) {
    const uint32_t kind = work.command.kind;
    const bool flag = kind == TUTTI_COMMAND_WAIT || kind == TUTTI_COMMAND_WRITE;
    launches += kind != TUTTI_COMMAND_RECORD && kind != TUTTI_COMMAND_AFTER && !(flag && after_flag);
    after_flag = flag;
  }
  return launches;
}

}  // namespace

void* create_stream(uint32_t device) {
  check_device(device);
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  Stream* stream = all.make(device).release();
  all.alive.insert(stream);
  return stream;
}

void destroy_stream(void* stream) {
  Stream& s = find(stream);
  if (!has(Hazard::handles) && !driver_is_gone()) s.queue->drain();
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  all.alive.erase(stream);
  if (has(Hazard::handles))
    all.destroyed[s.device].push_back(&s);
  else
    delete &s;
}

// A thread's current device is the first. Looking at the default stream does not make it: a process that has not used
// the device may fork.
uint32_t stream_device(void* stream) { return stream ? find(stream).device : 0; }
uint32_t stream_number(void* stream) { return stream ? find(stream).number : UINT32_MAX; }

bool query(const Event& event) {
  await_driver(event.device);
  if (driver_is_gone()) return true;
  if (has(Hazard::capture) && event.recorded.load())
    throw Error(TUTTI_INVALID_USAGE,
                "simulated device: the event was recorded in a graph, which runs when it is launched");
  return event.newest()->load(std::memory_order_acquire);
}

void drain(uint32_t device) {
  std::vector<Queue*> queues;
  {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    if (all.queues.empty()) return;
    for (const auto& queue : all.queues[device]) queues.push_back(queue.get());
  }
  for (Queue* queue : queues) queue->drain();
}

Launches& launches() {
  static Launches counted;
  return counted;
}

void count_synchronisation() {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  const auto busy = [](const auto& queues) {
    return std::ranges::any_of(queues, [](const auto& queue) { return queue->is_busy(); });
  };
  if (std::ranges::any_of(all.queues, busy)) launches().synchronised.fetch_add(1, std::memory_order_relaxed);
}

namespace {

// A captured stream may wait for events of the same graph only, and another stream for none of a graph.
void check_events(const std::vector<Work>& all, const Graph* graph) {
  for (const Work& work : all) {
    if (work.command.kind != TUTTI_COMMAND_RECORD && work.command.kind != TUTTI_COMMAND_AFTER) continue;
    Event& event = *reinterpret_cast<Event*>(work.command.event);
    if (work.command.kind == TUTTI_COMMAND_RECORD)
      event.recorded.store(graph);
    else if (event.recorded.load() != graph && has(Hazard::capture))
      throw Error(TUTTI_INVALID_USAGE, graph ? "simulated device: a captured stream waits for an event that was not "
                                               "recorded in the same capture"
                                             : "simulated device: a stream waits for an event that was recorded in a "
                                               "captured one");
  }
}

// The default stream begins after all other streams of its device have done what they were given before, and they go on
// after it.
void order_by_default_stream(const Stream& s, std::vector<Work>& all) {
  if (!has(Hazard::default_stream)) return;
  Streams& known = streams();
  const std::lock_guard lock(known.mutex);
  const Stream* standard = known.standard.get();
  if (!standard || standard->device != s.device) return;
  for (const auto& queue : known.queues[s.device]) {
    if (queue.get() == s.queue || (&s != standard && queue.get() != standard->queue)) continue;
    Work behind;
    behind.behind = queue.get();
    behind.turn = queue->end();
    all.insert(all.begin(), std::move(behind));
  }
}

// While another stream of the device is captured nothing may go into the default stream.
void check_default_stream(const Stream& s) {
  if (!has(Hazard::capture)) return;
  Streams& known = streams();
  const std::lock_guard lock(known.mutex);
  for (void* other : known.alive)
    if (const Stream& one = *static_cast<Stream*>(other); one.device == s.device && one.recording)
      throw Error(TUTTI_INVALID_USAGE,
                  "simulated device: work for the default stream while another stream is being captured");
}

void append(void* stream, std::vector<Work> all) {
  if (driver_is_gone()) throw Error(TUTTI_SYSTEM, "simulated device: the program ends, and the driver has gone");
  Stream& s = find(stream);
  if (!stream) check_default_stream(s);
  Graph* const graph = s.recording;
  check_events(all, graph);
  if (graph) return graph->record(s, std::move(all));
  for (const Work& work : all) {
    const tutti_command& c = work.command;
    if (!work.fused.empty())
      load(s.device, 0, 0, 0);
    else if (c.kind == TUTTI_COMMAND_COPY || c.kind == TUTTI_COMMAND_REDUCE)
      load(s.device, c.kind, c.dtype, c.op);
  }
  order_by_default_stream(s, all);
  launches().count.fetch_add(count_launches(all), std::memory_order_relaxed);
  s.queue->append(std::move(all));
}

}  // namespace

void enqueue(void* stream, std::span<const tutti_command> commands) {
  std::vector<Work> all;
  all.reserve(commands.size());
  for (const tutti_command& command : commands) all.push_back(check(command));
  append(stream, std::move(all));
}

uint32_t most_fused_commands() {
  static const auto most = static_cast<uint32_t>(sdk::config_number("TUTTI_SIMULATED_FUSED", 512, 0, 1u << 20));
  return most;
}

void enqueue_fused(void* stream, std::span<const tutti_command> commands) {
  uint64_t operands = 0, bytes = 0;
  for (const tutti_command& c : commands) {
    operands += uint64_t{1} + c.sources;
    if (c.sources)
      bytes += c.sources * std::min(c.count, most_fused_bytes + 1) *
               (c.kind == TUTTI_COMMAND_REDUCE ? element_bytes(c.dtype) : 1);
  }
  if (operands > most_fused_commands() || bytes > most_fused_bytes)
    throw Error(TUTTI_NOT_SUPPORTED, "simulated device: " + std::to_string(operands) +
                                         " commands and sources in one launch, which read " + std::to_string(bytes) +
                                         " bytes: at most " + std::to_string(most_fused_commands()) +
                                         " (TUTTI_SIMULATED_FUSED) and " + std::to_string(most_fused_bytes));
  std::vector<Work> all(1);
  for (const tutti_command& command : commands) {
    if (command.kind == TUTTI_COMMAND_RECORD || command.kind == TUTTI_COMMAND_AFTER)
      throw Error(TUTTI_NOT_SUPPORTED, "simulated device: an event in the middle of a launch");
    all[0].fused.push_back(check(command));
  }
  append(stream, std::move(all));
}

bool is_capturing(void* stream) {
  if (stream) return find(stream).recording != nullptr;
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  return all.standard && all.standard->recording != nullptr;
}

Graph* begin_capture(std::span<void* const> streams) {
  auto graph = std::make_unique<Graph>();
  for (void* stream : streams) {
    graph->streams.push_back(&find(stream));
    if (graph->streams.back()->recording)
      throw Error(TUTTI_INVALID_USAGE, "simulated device: a stream is being captured already");
  }
  for (Stream* stream : graph->streams) stream->recording = graph.get();
  return graph.release();
}

void end_capture(Graph* graph) {
  for (Stream* stream : graph->streams) stream->recording = nullptr;
}

void launch(const Graph* graph) {
  if (!graph->streams.empty() && graph->streams.front()->recording)
    throw Error(TUTTI_INVALID_USAGE, "simulated device: the graph's streams are being captured");
  graph->launch();
}

void destroy_graph(Graph* graph) { delete graph; }

}  // namespace tutti::simulated
