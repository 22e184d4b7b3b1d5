// SPDX-License-Identifier: Apache-2.0
#include "flight_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <tutti/flight_record.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "texts/texts.hpp"

namespace info {
namespace {

constexpr uint64_t largest_file = 1 << 20;
constexpr uint32_t most_ranks = 1u << 20;
constexpr uint32_t oldest_version = 3;
// Of version 3, which has neither tags nor wire formats.
constexpr uint64_t least_operation_bytes = offsetof(tutti_flight_operation, tag);

template <typename T>
T at(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Ticks to ns by two moments known on both clocks.
class TickClock {
 public:
  TickClock(const tutti_flight_header& header, const tutti_flight_state& state)
      : ticks_(header.begin_ticks), ns_(static_cast<double>(header.begin_ns)) {
    constexpr double long_enough_ns = 5e7;
    const double passed = static_cast<double>(state.look_ns) - ns_;
    if (state.look_ticks > ticks_ && passed > long_enough_ns)
      ns_per_tick_ = passed / static_cast<double>(state.look_ticks - ticks_);
    else if (header.ticks_per_second)
      ns_per_tick_ = 1e9 / static_cast<double>(header.ticks_per_second);
  }
  double ns(uint64_t ticks) const {
    return ns_ + static_cast<double>(static_cast<int64_t>(ticks - ticks_)) * ns_per_tick_;
  }

 private:
  uint64_t ticks_;
  double ns_;
  double ns_per_tick_ = 1;
};

uint64_t operation_bytes(const tutti_flight_header& h) {
  return h.version == oldest_version ? least_operation_bytes : sizeof(tutti_flight_operation);
}

std::string damage(const tutti_flight_header& h, std::span<const std::byte> bytes) {
  if (h.magic != TUTTI_FLIGHT_MAGIC) return "it is no flight record (or one of a host with another byte order)";
  if (h.version < oldest_version || h.version > TUTTI_FLIGHT_VERSION)
    return "it is a flight record of version " + std::to_string(h.version) + ", this tutti-info reads versions " +
           std::to_string(oldest_version) + " to " + std::to_string(TUTTI_FLIGHT_VERSION) +
           ": use the tutti-info that belongs to the job's library";
  if (flight_hash(bytes.first(offsetof(tutti_flight_header, checksum))) != h.checksum)
    return "its header is damaged (the checksum differs)";
  if (h.header_bytes != sizeof h || h.state_bytes != sizeof(tutti_flight_state) ||
      h.service_bytes != sizeof(tutti_flight_service) || h.operation_bytes != operation_bytes(h) ||
      h.transfer_bytes != sizeof(tutti_flight_transfer))
    return "its parts have other sizes than version " + std::to_string(h.version) + " has";
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  if (!fits(h.state_offset, sizeof(tutti_flight_state)) ||
      !fits(h.services_offset, TUTTI_FLIGHT_SERVICES * sizeof(tutti_flight_service)) ||
      !fits(h.operations_offset, TUTTI_FLIGHT_OPERATIONS * operation_bytes(h)) ||
      !fits(h.transfers_offset, TUTTI_FLIGHT_TRANSFERS * sizeof(tutti_flight_transfer)))
    return "it is cut off: " + std::to_string(bytes.size()) + " bytes of " + std::to_string(h.file_bytes);
  return {};
}

struct Reading {
  std::span<const std::byte> bytes;
  const tutti_flight_header& header;
  TickClock clock;

  void name_service(uint32_t service, std::string& algorithm, std::string& transports) const {
    if (service >= TUTTI_FLIGHT_SERVICES) return;
    const auto row = at<tutti_flight_service>(bytes, header.services_offset + service * sizeof(tutti_flight_service));
    algorithm = texts::text_of(row.algorithm);
    transports = texts::text_of(row.transports);
  }

  void operations(FlightRecord& record) const {
    const uint64_t size = operation_bytes(header);
    for (uint64_t i = 0; i < TUTTI_FLIGHT_OPERATIONS; ++i) {
      tutti_flight_operation o{};
      std::memcpy(&o, bytes.data() + header.operations_offset + i * size, size);
      // A place that holds another number than its own is being written, or damaged.
      if (o.number == 0 || (o.number - 1) % TUTTI_FLIGHT_OPERATIONS != i) continue;
      Operation operation;
      operation.sequence = o.number - 1;
      operation.count = o.count;
      operation.plan = o.plan;
      operation.collective = o.collective;
      operation.dtype = o.dtype;
      operation.op = o.op;
      operation.root = o.root;
      operation.order = o.order;
      operation.wire = o.wire;
      operation.algorithms = o.algorithms;
      operation.tag = o.tag;
      operation.begin_ns = clock.ns(o.begin_ticks);
      operation.complete = o.end_ticks != 0;
      operation.end_ns = operation.complete ? clock.ns(o.end_ticks) : 0;
      operation.status = o.status;
      name_service(o.service, operation.algorithm, operation.transports);
      record.operations.push_back(std::move(operation));
    }
    auto& all = record.operations;
    std::sort(all.begin(), all.end(), [](const Operation& a, const Operation& b) { return a.sequence < b.sequence; });
    // A record outside the last ones is a leftover of a torn write.
    if (all.empty()) return;
    const uint64_t newest = all.back().sequence;
    std::erase_if(all, [&](const Operation& o) { return newest - o.sequence >= TUTTI_FLIGHT_OPERATIONS; });
  }

  void transfers(FlightRecord& record) const {
    for (uint64_t i = 0; i < TUTTI_FLIGHT_TRANSFERS; ++i) {
      const auto t = at<tutti_flight_transfer>(bytes, header.transfers_offset + i * sizeof(tutti_flight_transfer));
      if (t.number == 0 || (t.number - 1) % TUTTI_FLIGHT_TRANSFERS != i) continue;
      TransferRecord transfer{t.number - 1,
                              t.bytes,
                              t.sending != 0,
                              t.end_ticks != 0,
                              t.peer,
                              t.tag,
                              t.status,
                              clock.ns(t.begin_ticks),
                              {},
                              (t.flags & TUTTI_FLIGHT_ANY_TAG) != 0};
      std::string none;
      name_service(t.service, none, transfer.transports);
      record.transfers.push_back(std::move(transfer));
    }
    std::sort(record.transfers.begin(), record.transfers.end(),
              [](const TransferRecord& a, const TransferRecord& b) { return a.number < b.number; });
  }

  void waits(const tutti_flight_state& state, FlightRecord& record) const {
    const uint32_t n = std::min<uint32_t>(state.waits, TUTTI_FLIGHT_WAITS);
    for (uint32_t i = 0; i < n; ++i) {
      const tutti_flight_wait& w = state.wait[i];
      if (w.operation == 0) continue;
      record.waits.push_back({w.operation - 1, w.lane, w.step, w.kind, w.peer, w.slice, w.slices, w.bytes, w.done,
                              texts::text_of(w.transport)});
    }
  }
};

}  // namespace

uint64_t flight_hash(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

std::string Operation::text() const {
  const std::string own_tag = tag ? "tag " + std::to_string(tag) : "";
  if (collective == TUTTI_BARRIER) return "barrier(" + own_tag + ")";
  std::string text = std::string(tutti::collective_name(collective)) + "(";
  if (tutti::all_know_blocks(collective)) text += std::to_string(count) + " x ";
  text += tutti::dtype_name(dtype);
  if (tutti::is_reducing(collective))
    text += std::string(", ") + (op < TUTTI_FLIGHT_PREMUL_SUM    ? tutti::op_name(op)
                                 : op == TUTTI_FLIGHT_PREMUL_SUM ? "premul_sum"
                                                                 : "an operator of the application");
  if (order) text += ", " + order_name() + " order";
  if (wire) text += ", wire " + wire_name();
  if (tutti::has_root(collective)) text += ", root " + std::to_string(root);
  return text + (tag ? ", " + own_tag : "") + ")";
}

std::string Operation::order_name() const {
  constexpr const char* names[] = {"default", "free", "canonical", "exact"};
  static_assert(TUTTI_ORDER_EXACT + 1 == std::size(names));
  return order < std::size(names) ? names[order] : std::to_string(order);
}

std::string Operation::wire_name() const {
  constexpr const char* names[] = {"plain", "float16", "bfloat16", "float8"};
  static_assert(TUTTI_WIRE_FLOAT8 + 1 == std::size(names));
  return wire < std::size(names) ? names[wire] : std::to_string(wire);
}

std::string Operation::name() const {
  return std::string(tutti::collective_name(collective)) + " #" + std::to_string(sequence) +
         (tag ? ", tag " + std::to_string(tag) : "");
}

const Operation* FlightRecord::oldest_incomplete() const {
  const auto found = std::find_if(operations.begin(), operations.end(), [](const Operation& o) { return !o.complete; });
  return found == operations.end() ? nullptr : &*found;
}

const Operation* FlightRecord::awaited_operation() const {
  if (awaited == 0 || awaited & TUTTI_FLIGHT_TRANSFER) return nullptr;
  const Operation* operation = find(awaited - 1);
  return operation && !operation->complete ? operation : nullptr;
}

const TransferRecord* FlightRecord::awaited_transfer() const {
  if (!(awaited & TUTTI_FLIGHT_TRANSFER)) return nullptr;
  for (const TransferRecord& t : transfers)
    if (t.number + 1 == (awaited & ~TUTTI_FLIGHT_TRANSFER) && !t.complete) return &t;
  return nullptr;
}

const Operation* FlightRecord::find(uint64_t sequence) const {
  const auto found =
      std::find_if(operations.begin(), operations.end(), [&](const Operation& o) { return o.sequence == sequence; });
  return found == operations.end() ? nullptr : &*found;
}

std::optional<FlightRecord> decode_flight_record(std::span<const std::byte> bytes, std::string* error) {
  if (bytes.size() < sizeof(tutti_flight_header)) {
    *error = "it is no flight record: " + std::to_string(bytes.size()) + " bytes are less than a header";
    return std::nullopt;
  }
  const auto header = at<tutti_flight_header>(bytes, 0);
  *error = damage(header, bytes);
  if (!error->empty()) return std::nullopt;
  const auto state = at<tutti_flight_state>(bytes, header.state_offset);
  FlightRecord record;
  record.host = header.host;
  record.pid = header.pid;
  record.thread = header.thread;
  record.process_start = header.process_start;
  record.created = header.created;
  record.begin_ns = static_cast<double>(header.begin_ns);
  record.host_name = texts::text_of(header.host_name);
  record.program = texts::text_of(header.program);
  record.phase = state.phase;
  record.rank = state.rank;
  record.nranks = state.nranks <= most_ranks ? state.nranks : 0;
  if (state.phase < TUTTI_FLIGHT_MEETING || state.phase > TUTTI_FLIGHT_FAILED ||
      (record.rank != UINT32_MAX && record.rank >= most_ranks)) {
    *error = "it is damaged: phase " + std::to_string(state.phase) + " of rank " + std::to_string(state.rank);
    return std::nullopt;
  }
  record.communicator = state.communicator;
  record.meeting = state.meeting;
  record.phase_ns = static_cast<double>(state.phase_ns);
  record.look_ns = static_cast<double>(state.look_ns);
  record.moved_ns = static_cast<double>(state.moved_ns);
  record.awaited = state.awaited;
  if (state.awaited && state.site_of == state.awaited) record.site = texts::text_of(state.site);
  record.name = texts::text_of(state.name);
  record.place = texts::text_of(state.place);
  record.note = texts::text_of(state.note);
  const Reading reading{bytes, header, TickClock(header, state)};
  reading.operations(record);
  reading.transfers(record);
  reading.waits(state, record);
  return record;
}

std::optional<FlightRecord> read_flight_record(const std::string& path, std::string* error) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const auto refuse = [&](std::string why) -> std::optional<FlightRecord> {
    if (fd >= 0) close(fd);
    *error = std::move(why);
    return std::nullopt;
  };
  if (fd < 0) return refuse(errno == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(errno));
  struct stat status {};
  if (fstat(fd, &status) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse("it is not a regular file");
  if (status.st_uid != geteuid())
    return refuse("it belongs to user " + std::to_string(status.st_uid) + ", this is user " +
                  std::to_string(geteuid()) + ": what others wrote is not believed");
  if (static_cast<uint64_t>(status.st_size) > largest_file)
    return refuse("it has " + std::to_string(status.st_size) + " bytes, no flight record has more than " +
                  std::to_string(largest_file));
  std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = pread(fd, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  close(fd);
  bytes.resize(got);
  auto record = decode_flight_record(bytes, error);
  if (record) record->path = path;
  return record;
}

}  // namespace info
