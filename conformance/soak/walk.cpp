// SPDX-License-Identifier: Apache-2.0
#include "soak/walk.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <tutti/tutti.hpp>

#include "matrix/perform.hpp"
#include "oracle/data.hpp"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t threads = 2;
constexpr int cells_per_epoch = 12;
// A walk goes on beyond its time until there are so many: fewer say nothing of growth.
constexpr int fewest_intervals = 12;

// Without what the allocator keeps for later: each thread's arena holds on to the most that it ever needed.
double resident_mib() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Bytes allocated and not freed, by all threads.
double allocated_mib() {
  const struct mallinfo2 all = mallinfo2();
  return static_cast<double>(all.uordblks + all.hblkhd) / (1 << 20);
}

double open_descriptors() {
  double n = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder)) ++n;
    closedir(folder);
  }
  return n;
}

// State that one thread's epochs share with the other threads of its process.
struct Board {
  // At the end of an epoch all threads have nothing open: what is counted then stays.
  struct Count {
    Board* board;
    void operator()() noexcept {
      const std::lock_guard lock(board->mutex);
      board->descriptors.push_back(open_descriptors());
      board->allocated.push_back(allocated_mib());
    }
  };
  std::barrier<Count> epoch_end{threads, Count{this}};
  std::atomic<uint64_t> epochs{0}, operations{0};
  std::atomic<int> intervals{0};
  std::mutex mutex;
  std::string failure;
  std::vector<double> probes;       // us, since the last sample
  std::vector<double> descriptors;  // at the ends of epochs, since the last sample
  std::vector<double> allocated;    // MiB, likewise
  std::atomic<bool> failed{false};

  void fail(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (failure.empty()) failure = text;
    failed = true;
  }
};

class Walker {
 public:
  Walker(const WalkOrder& order, const Place& place, uint32_t thread, Board& board)
      : order_(order), place_(place), thread_(thread), board_(board), random_(place.seed * 31 + thread) {}

  void run(Clock::time_point end) {
    for (uint64_t epoch = 0;; ++epoch) {
      const std::string folder = fmt::format("{}/t{}-e{}", place_.folder, thread_, epoch);
      std::filesystem::create_directory(folder);
      std::filesystem::create_directory(folder + "/cells");
      run_cells(folder + "/cells");
      const bool more = run_communicator(folder, end);
      std::error_code ignored;  // the others may still be in it: what stays goes with the job's folder
      if (place_.rank == 0 && epoch)
        std::filesystem::remove_all(fmt::format("{}/t{}-e{}", place_.folder, thread_, epoch - 1), ignored);
      note_epoch();
      if (!more) return;
      board_.epoch_end.arrive_and_wait();
    }
  }

 private:
  template <typename T>
  const T& draw(const std::vector<T>& list) {
    return list[random_() % list.size()];
  }
  bool chance(unsigned percent) { return random_() % 100 < percent; }

  void run_cells(const std::string& folder) {
    const Mix mix = make_mix(draw(order_.transports));
    if (!mix.unusable.empty()) throw std::runtime_error(mix.unusable);
    Members members(folder, place_.rank, mix, place_.nranks, place_.patience);
    const std::vector<const tutti_algorithm*> algorithms = list_algorithms();
    const tutti_algorithm* algorithm = draw(algorithms);
    for (int i = 0; i < cells_per_epoch; ++i) {
      if (chance(30)) algorithm = draw(algorithms);
      const auto cell = draw_cell(*algorithm, mix.name);
      if (!cell) continue;
      Attestation attestation;
      const Outcome outcome = perform(*cell, mix, members, place_.rank, random_(), attestation);
      ++board_.operations;
      if (outcome.verdict != Verdict::pass) throw std::runtime_error(cell->id() + ": " + outcome.message);
    }
  }

  std::optional<Cell> draw_cell(const tutti_algorithm& algorithm, const std::string& mix) {
    static const std::vector<uint64_t> counts{0, 1, 2, 7, 64, 1000, 1023, 4097, 20'011};
    static const std::vector<const char*> types{"int8",    "int32",       "int64",     "uint16",
                                                "float16", "bfloat16",    "float32",   "float64",
                                                "bool",    "float8_e5m2", "complex64", "float64_int64"};
    std::vector<uint32_t> offered;
    for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
      if (algorithm.collectives >> c & 1) offered.push_back(c);
    Cell cell;
    const uint32_t collective = draw(offered);
    const uint32_t root = rooted(collective) ? static_cast<uint32_t>(random_() % place_.nranks) : 0;
    cell.operation = {collective, place_.nranks, root, collective == TUTTI_BARRIER ? 0 : draw(counts)};
    cell.algorithm = algorithm.name;
    cell.mix = mix;
    cell.type = element_type(draw(types));
    std::vector<uint32_t> ops;
    for (const uint32_t op : all_ops())
      if (op_is_defined(op, dtype_from_name(cell.type->name))) ops.push_back(op);
    cell.op = reduces(collective) ? draw(ops) : 0;
    cell.place = draw(std::vector{InPlace::out, InPlace::in, InPlace::some});
    if (!cell.may_be_in_place()) cell.place = InPlace::out;
    cell.memory = draw(std::vector{Memory::heap, Memory::alloc, Memory::memfd, Memory::some});
    cell.alignment = draw(std::vector{Alignment::aligned, Alignment::odd, Alignment::mixed});
    cell.calls = draw(std::vector{Calls::block, Calls::request, Calls::overlap});
    const Problem problem{collective, place_.nranks, root, matrix_lanes, {}, {}};
    const tutti_query query = make_query(problem, 0);
    const bool able = cell.type && algorithm.supports(algorithm.self, &query) == TUTTI_OK;
    take_plugin_error();
    return able ? std::optional(cell) : std::nullopt;
  }

  // True if the walk continues.
  bool run_communicator(const std::string& folder, Clock::time_point end) {
    const std::string meeting = "file:" + folder;
    const std::string transport = draw(order_.transports);
    tutti_comm_config config{sizeof(tutti_comm_config)};
    config.rendezvous = meeting.c_str();
    config.rank = place_.rank;
    config.nranks = place_.nranks;
    config.transports = transport.c_str();
    config.windows = 1 + random_() % 6;
    config.lanes = 1 + random_() % 6;
    config.flags = chance(25) ? TUTTI_COMM_PROGRESS_THREAD : 0;
    Communicator comm(config);
    for (int i = 0; i < 3; ++i) exchange(comm);
    burst(comm);
    if (thread_ == 0) probe(folder);
    int32_t more = (Clock::now() < end || board_.intervals < fewest_intervals) && !board_.failed;
    comm.broadcast<int32_t>({&more, 1}, 0);
    return more != 0;
  }

  // A message of any size around the ring, under a tag that the receiver asks for in another order.
  void exchange(const Communicator& comm) {
    static const std::vector<uint64_t> counts{0, 1, 20, 29, 30, 500, 8192, 30'000};
    const uint32_t n = comm.nranks(), rank = comm.rank();
    const uint64_t first = draw(counts), second = draw(counts);
    const Data data({element_type("int64"), 0, n, std::max<uint64_t>(first + second, 1), random_(), 0});
    std::vector<int64_t> out(first + second), in(first + second);
    for (uint64_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(data.input(rank, i));
    const std::span<int64_t> all(in);
    const uint32_t to = (rank + 1) % n, from = (rank + n - 1) % n;
    std::vector<Request> requests;
    requests.push_back(comm.async().receive<int64_t>(all.subspan(first), from, 2));
    requests.push_back(comm.async().send<int64_t>(std::span<const int64_t>(out).first(first), to, 1));
    requests.push_back(comm.async().send<int64_t>(std::span<const int64_t>(out).subspan(first), to, 2));
    requests.push_back(comm.async().receive<int64_t>(all.first(first), from, 1));
    for (Request& request : requests) request.wait();
    for (uint64_t i = 0; i < in.size(); ++i)
      if (in[i] != static_cast<int64_t>(data.input(from, i)))
        throw std::runtime_error(fmt::format("receive of {} and {} int64 from rank {}: element {} is {}, expected {}",
                                             first, second, from, i, in[i], static_cast<int64_t>(data.input(from, i))));
    board_.operations += 4;
  }

  // More operations at once than there are windows.
  void burst(const Communicator& comm) {
    constexpr uint64_t count = 300;
    constexpr uint32_t operations = 12;
    std::vector<Data> data;
    std::vector<std::vector<int32_t>> buffers;
    for (uint32_t k = 0; k < operations; ++k) {
      data.emplace_back(Pattern{element_type("int32"), TUTTI_SUM, comm.nranks(), count, random_(), 0});
      auto& buffer = buffers.emplace_back(count);
      for (uint64_t i = 0; i < count; ++i) buffer[i] = static_cast<int32_t>(data[k].input(comm.rank(), i));
    }
    std::vector<Request> requests;
    for (auto& buffer : buffers) requests.push_back(comm.async().all_reduce<int32_t>(buffer, buffer, Op::sum));
    for (uint32_t k = operations; k-- > 0;) requests[k].wait();
    for (uint32_t k = 0; k < operations; ++k)
      for (uint64_t i = 0; i < count; ++i)
        if (buffers[k][i] != static_cast<int32_t>(data[k].reduced(i)))
          throw std::runtime_error(fmt::format("all_reduce {} of {} at once: out[{}] is wrong", k, operations, i));
    board_.operations += operations;
  }

  // The least time of a small all_reduce over the first transport: what others do on the machine adds to most of them.
  void probe(const std::string& folder) {
    constexpr int tries = 31;
    const std::string meeting = "file:" + folder + "/probe";
    std::filesystem::create_directory(folder + "/probe");
    tutti_comm_config config{sizeof(tutti_comm_config)};
    config.rendezvous = meeting.c_str();
    config.rank = place_.rank;
    config.nranks = place_.nranks;
    config.transports = order_.transports.front().c_str();
    Communicator comm(config);
    std::vector<double> times;
    for (int i = 0; i < tries; ++i) {
      int64_t x = 1;
      const auto begin = Clock::now();
      comm.all_reduce<int64_t>({&x, 1}, {&x, 1}, Op::sum);
      if (order_.plant == "latency")
        std::this_thread::sleep_for(std::chrono::microseconds(20 * board_.epochs * board_.epochs));
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    const std::lock_guard lock(board_.mutex);
    board_.probes.push_back(*std::min_element(times.begin(), times.end()));
  }

  void note_epoch() {
    if (order_.plant == "memory") std::memset(new char[16 << 10], 1, 16 << 10);  // never freed: that is the point
    if (order_.plant == "descriptor") (void)!dup(0);
    ++board_.epochs;
  }

  const WalkOrder& order_;
  const Place& place_;
  uint32_t thread_;
  Board& board_;
  std::mt19937_64 random_;
};

// Writes a line for each interval.
class Reporter {
 public:
  Reporter(const std::string& file, uint32_t interval_ms, Board& board)
      : file_(file), interval_(interval_ms), board_(board), thread_([this] { run(); }) {}
  ~Reporter() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    auto next = Clock::now() + interval_;
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (Clock::now() < next) continue;
      // An interval without an end of an epoch says nothing yet.
      if (write()) next = Clock::now() + interval_;
    }
  }
  bool write() {
    WalkSample sample;
    {
      const std::lock_guard lock(board_.mutex);
      if (board_.probes.empty() || board_.descriptors.empty()) return false;
      sample.latency = *std::min_element(board_.probes.begin(), board_.probes.end());
      sample.descriptors = *std::min_element(board_.descriptors.begin(), board_.descriptors.end());
      sample.allocated = *std::min_element(board_.allocated.begin(), board_.allocated.end());
      board_.probes.clear();
      board_.descriptors.clear();
      board_.allocated.clear();
    }
    sample.epochs = board_.epochs;
    sample.operations = board_.operations;
    sample.resident = resident_mib();
    file_ << to_line(sample) << std::endl;
    ++board_.intervals;
    return true;
  }

  std::ofstream file_;
  std::chrono::milliseconds interval_;
  Board& board_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Outcome walk(const WalkOrder& order, const Place& place) {
  Board board;
  const auto end = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(order.seconds * 1e6));
  const Reporter reporter(fmt::format("{}/samples-{}", place.folder, place.rank), order.interval_ms, board);
  std::vector<std::thread> all;
  for (uint32_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      try {
        Walker(order, place, t, board).run(end);
      } catch (const std::exception& e) {
        board.fail(fmt::format("thread {}: {}", t, e.what()));
      }
      board.epoch_end.arrive_and_drop();
    });
  for (std::thread& thread : all) thread.join();
  return board.failure.empty() ? Outcome::pass() : Outcome::fail(board.failure);
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<Case> find(const std::string& id) {
  const std::vector<std::string> parts = parts_of(id, '/');
  if (parts.size() != 5) return std::nullopt;
  WalkOrder order{std::strtod(parts[1].c_str(), nullptr),
                  static_cast<uint32_t>(std::strtoul(parts[2].c_str(), nullptr, 10)), parts_of(parts[3], '+'),
                  parts[4]};
  Case one;
  one.id = id;
  one.run = [order](const Place& place) { return walk(order, place); };
  return one;
}

}  // namespace

std::string walk_id(const WalkOrder& order) {
  std::string names;
  for (const std::string& name : order.transports) names += (names.empty() ? "" : "+") + name;
  return fmt::format("soak/{}/{}/{}/{}", order.seconds, order.interval_ms, names, order.plant);
}

std::string to_line(const WalkSample& s) {
  return fmt::format("{} {} {} {} {} {}", s.epochs, s.operations, s.resident, s.allocated, s.descriptors, s.latency);
}

bool from_line(const std::string& line, WalkSample* s) {
  std::istringstream text(line);
  return static_cast<bool>(text >> s->epochs >> s->operations >> s->resident >> s->allocated >> s->descriptors >>
                           s->latency);
}

Suite soak_suite() {
  return {"soak", "the walk of the command soak", [](const Selection&, std::vector<Case>&) {}, find};
}

}  // namespace tutti::conformance
