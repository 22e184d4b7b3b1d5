// SPDX-License-Identifier: Apache-2.0
//
// Contract cases of device/1's and executor/1's optional functions for work that a device does by itself: which device
// it is, and lists of commands in one launch. The results must equal those of `enqueue`, which other cases judge.
#include <sys/mman.h>
#include <tutti/schedule.h>

#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "contract_case.hpp"
#include "device_station.hpp"
#include "family.hpp"
#include "guarded_memory.hpp"

namespace tutti::conformance::contract {
namespace {

using Identity = std::vector<uint8_t>;

tutti_status ask(Station& s, uint32_t device, Identity& id) {
  const GuardedMemory bytes(16, 0, "D-14");
  std::memset(bytes.data(), 0, 16);
  const tutti_device* d = s.device.memory;
  const tutti_status status = call("identify", false, [&] { return d->identify(d->self, device, bytes.data()); });
  id.assign(bytes.data(), bytes.data() + 16);
  return status;
}

// A child asks, too, and rank 0 compares.
void identities(Bench& bench) {
  struct Told {
    uint8_t id[8][16];
  };
  void* shared = mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw CannotRun{"no memory for two processes"};
  auto* told = static_cast<Told*>(shared);
  Family::run(bench, 2, [&](Family& family, uint32_t rank) {
    Station s(bench);
    if (!s.device.memory->identify) throw NotOffered{"it has no identify"};
    const uint32_t devices = std::min(s.device.caps.devices, 8u);
    std::set<Identity> all;
    for (uint32_t k = 0; k < devices; ++k) {
      Identity id, again;
      const tutti_status status = ask(s, k, id);
      if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("identify says: {}", last_error())};
      require(status == TUTTI_OK && ask(s, k, again) == TUTTI_OK, "D-14", "identify of device {} returned {}: {}", k,
              status_text(status), last_error());
      require(id == again, "D-14", "identify of device {} gives other bytes when it is asked again", k);
      require(id != Identity(16), "D-14", "identify of device {} gives 16 bytes of zero", k);
      require(all.insert(id).second, "D-14", "identify of device {} gives the bytes of a device before it", k);
      if (rank == 1) std::memcpy(told->id[k], id.data(), 16);
    }
    Identity none;
    require(ask(s, s.device.caps.devices, none) < 0, "D-14", "identify took device {}, but there are {} (0 to {})",
            s.device.caps.devices, s.device.caps.devices, s.device.caps.devices - 1);
    family.meet();
    for (uint32_t k = 0; rank == 0 && k < devices; ++k) {
      Identity id;
      ask(s, k, id);
      require(std::memcmp(told->id[k], id.data(), 16) == 0, "D-14",
              "identify of device {} gives other bytes in another process of the host", k);
    }
    family.meet();
  });
}

// ---- enqueue_fused

// The limits of enqueue_fused, the same each time.
tutti_executor_caps needs_fused(const Station& s) {
  const tutti_executor* e = s.device.executor;
  if (!TUTTI_HAS(tutti_executor, e, enqueue_fused)) throw NotOffered{"it has no enqueue_fused"};
  tutti_executor_caps caps{}, again{};
  caps.struct_size = again.struct_size = sizeof caps;
  tutti_status status = call("query", false, [&] { return e->query(e->self, 0, &caps); });
  require(status == TUTTI_OK, "X-16", "query of the executor of device 0 returned {}: {}", status_text(status),
          last_error());
  call("query", false, [&] { return e->query(e->self, 0, &again); });
  require(std::memcmp(&caps, &again, sizeof caps) == 0, "X-16",
          "query of an executor gave other values the second time");
  require(!caps.max_fused_commands == !caps.max_fused_bytes, "X-16",
          "query says max_fused_commands {} and max_fused_bytes {}: both are 0, or neither", caps.max_fused_commands,
          caps.max_fused_bytes);
  if (!caps.max_fused_commands) throw NotOffered{"its max_fused_commands is 0"};
  status = call("query", false, [&] { return e->query(e->self, s.device.caps.devices, &again); });
  require(status < 0, "X-16", "query of the executor of device {}, which does not exist, returned {}",
          s.device.caps.devices, status_text(status));
  return caps;
}

tutti_status fuse(Station& s, void* stream, const std::vector<tutti_command>& commands) {
  const tutti_executor* e = s.device.executor;
  return call("enqueue_fused", false, [&] {
    return e->enqueue_fused(e->self, stream, commands.data(), static_cast<uint32_t>(commands.size()));
  });
}

// In one launch, or in as many as the limits make necessary. A command that is beyond them by itself is enqueued.
void issue_fused(Station& s, void* stream, const std::vector<tutti_command>& commands) {
  const tutti_executor_caps caps = needs_fused(s);
  std::vector<tutti_command> list;
  uint64_t operands = 0, bytes = 0;
  const auto launch = [&] {
    const tutti_status status = fuse(s, stream, list);
    require(status == TUTTI_OK, "X-14", "enqueue_fused of {} commands returned {}: {}", list.size(),
            status_text(status), last_error());
    list.clear();
    operands = bytes = 0;
  };
  for (const tutti_command& c : commands) {
    const uint64_t more = uint64_t{1} + c.sources;
    const uint64_t read = c.sources * c.count * (c.kind == TUTTI_COMMAND_REDUCE ? dtype_bytes(c.dtype) : 1);
    if (!list.empty() && (operands + more > caps.max_fused_commands || bytes + read > caps.max_fused_bytes)) launch();
    if (more > caps.max_fused_commands || read > caps.max_fused_bytes) {
      s.issue(stream, {c}, "X-14");
      continue;
    }
    list.push_back(c);
    operands += more, bytes += read;
  }
  if (!list.empty()) launch();
}

// Every type and operator, and copies, at sizes and addresses that fit no vector, once by each of the two functions.
void fused_results(Bench& bench) {
  Station s(bench);
  needs_fused(s);
  std::mt19937_64 random(bench.seed);
  void* stream = s.stream();
  constexpr uint64_t room = 16384, most = 700;  // of 16 bytes
  std::vector<uint8_t> bytes(room);
  std::vector<const void*> sources;
  std::vector<uint8_t*> bases;
  for (int k = 0; k < 5; ++k) {
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    bases.push_back(s.allocate(room));
    s.put(bases.back(), bytes);
  }
  uint8_t* outs[2] = {s.allocate(room), s.allocate(room)};
  uint8_t* seconds[2] = {s.allocate(room), s.allocate(room)};
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : all_ops())
      for (const uint64_t count : {uint64_t{1}, uint64_t{7}, most}) {
        if (!reduces(s.device.caps, dtype, op)) continue;
        const uint64_t shift = random() % 5, size = dtype_bytes(dtype);
        const uint64_t offset = count == 7 ? shift : size * shift;
        const uint64_t divisor = op == TUTTI_SUM && random() % 2 ? 3 : 0;
        sources.clear();
        for (uint64_t k = 0; k < 1 + random() % bases.size(); ++k) sources.push_back(bases[k] + offset);
        const void* copied = bases[random() % bases.size()] + shift;
        const auto list = [&](int way) {
          return std::vector{copy(outs[way] + 12000 + shift, &copied, count),
                             reduce(dtype, op, outs[way] + offset, sources, count, divisor),
                             reduce(dtype, op, seconds[way] + offset + 16, sources, count, divisor),
                             copy(seconds[way] + 12100, &copied, count), copy(outs[way] + 13000, &copied, count)};
        };
        for (const int way : {0, 1}) {
          s.put(outs[way], std::vector<uint8_t>(room, 0xd7));
          s.put(seconds[way], std::vector<uint8_t>(room, 0xd7));
        }
        s.issue(stream, list(0), "X-1");
        issue_fused(s, stream, list(1));
        s.finish(stream);
        for (const auto& pair : {outs, seconds})
          require(s.get(pair[0], room) == s.get(pair[1], room), "X-14",
                  "enqueue_fused of COPY and REDUCE ({} elements of type {}, {} sources, operator {}, divisor {}, {} "
                  "bytes off alignment) does not give the bytes that enqueue gives",
                  count, dtype_name(dtype), sources.size(), op_name(op), divisor, offset);
      }
}

// WAITs hold the list up, and what is behind it; WRITEs come after what is before them.
void fused_order(Bench& bench) {
  Station s(bench);
  needs_fused(s);
  void* stream = s.stream();
  const Station::Mapped flags = s.map(4096), from = s.map(4096), to = s.map(4096), end = s.map(4096);
  const auto flag = [&](uint64_t k) { return std::atomic_ref(*(reinterpret_cast<uint32_t*>(flags.host) + 64 * k)); };
  const auto seen = [&](uint64_t k) { return s.flag_of(flags, 256 * k); };
  const void *source = from.seen, *then = to.seen;
  for (uint32_t round = 1; round <= 10; ++round) {
    std::memset(from.host, static_cast<int>(round), 4096);
    std::memset(to.host, 0, 4096);
    std::memset(end.host, 0, 4096);
    s.issue(stream, {wait_until(seen(0), round)}, "X-6");
    {
      auto list = std::make_unique<std::vector<tutti_command>>(
          std::vector{wait_until(seen(1), round), write_flag(seen(1), 0), copy(to.seen, &source, 4096),
                      write_flag(seen(2), round), wait_until(seen(3), round), write_flag(seen(4), round)});
      issue_fused(s, stream, *list);
      std::memset(static_cast<void*>(list->data()), '#', list->size() * sizeof(tutti_command));
    }
    s.issue(stream, {copy(end.seen, &then, 4096)}, "X-5");
    const auto pause = [&] {
      if (round <= 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    const auto await_flag = [&](uint64_t k, const char* what) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(10 * bench.patience);
      while (flag(k).load(std::memory_order_acquire) != round) {
        require(std::chrono::steady_clock::now() < limit, "X-14", "{}", what);
        std::this_thread::yield();
      }
    };
    flag(1).store(round, std::memory_order_release);
    pause();
    require(flag(1).load() == round && flag(2).load() != round, "X-14",
            "a list of enqueue_fused has begun, though work before it in the stream is held up");
    flag(1).store(round + 1, std::memory_order_release);
    flag(0).store(round, std::memory_order_release);
    pause();
    require(flag(2).load() != round, "X-14", "a WAIT of enqueue_fused did not wait for the value itself");
    // The value written now must arrive.
    std::memset(from.host, static_cast<int>(round + 100), 4096);
    flag(1).store(round, std::memory_order_release);
    await_flag(2, "a WRITE of enqueue_fused does not set its flag, though nothing holds it up");
    require(flag(1).load() == 0, "X-14", "a WRITE of enqueue_fused behind a WAIT for the same flag was not done");
    for (uint64_t i = 0; i < 4096; ++i)
      require(std::atomic_ref(to.host[i]).load(std::memory_order_relaxed) == round + 100, "X-14",
              "the host sees the value of a WRITE of enqueue_fused, but byte {} of the COPY before it has not come, or "
              "is not what was there before the flag was set",
              i);
    pause();
    require(flag(4).load() != round, "X-14", "a second WAIT of enqueue_fused did not hold up what is behind it");
    require(std::atomic_ref(end.host[0]).load(std::memory_order_relaxed) == 0, "X-14",
            "a COPY behind a list of enqueue_fused was done, though a WAIT in the list holds");
    flag(3).store(round, std::memory_order_release);
    s.finish(stream);
    require(flag(4).load() == round && end.host[4095] == round + 100, "X-14",
            "after the end of the stream what was behind a WAIT of enqueue_fused has not been done");
  }
}

void fused_refusals(Bench& bench) {
  Station s(bench);
  needs_fused(s);
  void* stream = s.stream();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  std::memset(from.host, 0x77, 4096);
  const void* source = from.seen;
  const void* two[] = {from.seen, from.seen};
  issue_fused(s, stream, {copy(to.seen + 2048, &source, 64)});
  tutti_command unknown{}, no_type = reduce(999, TUTTI_SUM, to.seen, {}, 4), two_sources = copy(to.seen, two, 16);
  unknown.kind = 77;
  no_type.sources = two_sources.sources = 2;
  no_type.src = two_sources.src = two;
  const std::pair<const char*, tutti_command> wrong[] = {{"a RECORD", record_event(s.event())},
                                                         {"an unknown kind", unknown},
                                                         {"an unknown data type", no_type},
                                                         {"a COPY of two sources", two_sources}};
  const auto nothing_done = [&](const char* what) {
    s.finish(stream);
    for (uint64_t i = 0; i < 2048; ++i)
      require(to.host[i] == 0, "X-14", "enqueue_fused refused a list ({}), but commands of it were carried out", what);
  };
  for (const auto& [what, command] : wrong) {
    const tutti_status status = fuse(s, stream, {copy(to.seen, &source, 64), command});
    require(status < 0, "X-14", "enqueue_fused of a list with {} returned {}, expected an error", what,
            status_text(status));
    nothing_done(what);
  }
}

// Lists at the limits of query are taken, of each kind of command; one more command, source or byte is refused.
void fused_limits(Bench& bench) {
  Station s(bench);
  const tutti_executor_caps caps = needs_fused(s);
  void* stream = s.stream();
  constexpr uint64_t most_tried = 1 << 20;
  const uint64_t most = std::min<uint64_t>(caps.max_fused_commands, most_tried);
  const uint64_t bytes = std::min<uint64_t>(caps.max_fused_bytes, uint64_t{1} << 28);
  const Station::Mapped flags = s.map(4096), to = s.map(bytes + 1), from = s.map(bytes + 1);
  const void* source = from.seen;
  std::memset(from.host, 0x77, bytes + 1);
  const auto is_untouched = [&](const char* what) {
    s.finish(stream);
    for (uint64_t i = 0; i < to.bytes; ++i)
      require(to.host[i] == 0, "X-16", "enqueue_fused refused a list of {}, but commands of it were carried out", what);
  };
  const auto taken = [&](const std::vector<tutti_command>& list, const char* what) {
    const tutti_status status = fuse(s, stream, list);
    require(status == TUTTI_OK, "X-16",
            "query says max_fused_commands {} and max_fused_bytes {}, but enqueue_fused of {} "
            "returned {}: {}",
            caps.max_fused_commands, caps.max_fused_bytes, what, status_text(status), last_error());
    s.finish(stream);
    std::memset(to.host, 0, to.bytes);
  };
  const auto refused = [&](const std::vector<tutti_command>& list, const char* what) {
    const tutti_status status = fuse(s, stream, list);
    require(status == TUTTI_NOT_SUPPORTED, "X-16",
            "query says max_fused_commands {} and max_fused_bytes {}, and "
            "enqueue_fused of {} returned {}, expected TUTTI_NOT_SUPPORTED",
            caps.max_fused_commands, caps.max_fused_bytes, what, status_text(status));
    is_untouched(what);
  };
  const bool all_tried = most == caps.max_fused_commands;
  std::vector<tutti_command> list(most, write_flag(s.flag_of(flags, 0), 1));
  taken(list, "as many WRITEs");
  if (list.insert(list.begin(), copy(to.seen, &source, 1)); all_tried) refused(list, "a COPY and as many WRITEs");
  list.assign(most / 2, copy(to.seen, &source, std::min<uint64_t>(1, 2 * bytes / most)));
  taken(list, "half as many COPYs");
  if (const auto c = list.empty() ? copy(to.seen, &source, 1) : list[0]; all_tried)
    list.resize(most / 2 + 1, c), refused(list, "more than half as many COPYs");
  for (const auto& [dtype, op] :
       {std::pair{TUTTI_INT32, TUTTI_SUM}, {TUTTI_FLOAT32, TUTTI_SUM}, {TUTTI_UINT8, TUTTI_MAX}})
    if (reduces(s.device.caps, dtype, op)) {
      for (const uint64_t n : {uint64_t{1}, uint64_t{2}, uint64_t{3}, std::min<uint64_t>(most - 1, 16)}) {
        const std::vector<const void*> sources(n, source);
        if (n && most / (n + 1) * n * dtype_bytes(dtype) <= bytes) {
          taken(std::vector(most / (n + 1), reduce(dtype, op, to.seen, sources, 1, n == 1 && op == TUTTI_SUM ? 3 : 0)),
                "as many REDUCEs and their sources");
          if (all_tried)
            refused(std::vector(most / (n + 1) + 1, reduce(dtype, op, to.seen, sources, 1)),
                    "more REDUCEs and sources");
        }
      }
      if (const uint64_t count = bytes / 2 / dtype_bytes(dtype); most > 4 && bytes == caps.max_fused_bytes) {
        const std::vector<const void*> two(2, source);
        taken({reduce(dtype, op, to.seen, two, count)}, "a REDUCE that reads as many bytes");
        refused({reduce(dtype, op, to.seen, two, count + 1)}, "a REDUCE that reads more bytes");
      }
    }
  if (most < 4) return;
  taken({copy(to.seen, &source, bytes)}, "a COPY of as many bytes");
  if (bytes != caps.max_fused_bytes) return;
  refused({copy(to.seen, &source, bytes), copy(to.seen, &source, 1)}, "a byte more");
  // In bytes these counts are small numbers, modulo 2^64.
  refused({copy(to.seen, &source, UINT64_MAX)}, "a COPY of 2^64 - 1 bytes");
  const std::vector<const void*> one{source};
  if (reduces(s.device.caps, TUTTI_INT32, TUTTI_SUM))
    refused({reduce(TUTTI_INT32, TUTTI_SUM, to.seen, one, (UINT64_MAX >> 2) + 2)}, "a REDUCE of 2^62 + 1 elements");
}

}  // namespace

std::vector<ContractCase> fused_cases() {
  return {
      {"identities", "each device is another one, in every process", {"D-14"}, 10, identities},
      {"fused-order", "one launch, its flags, and what is around it", {"X-14", "X-5", "X-6"}, 20, fused_order},
      {"fused-refusals", "lists that are refused", {"X-14"}, 10, fused_refusals},
      {"fused-limits", "lists as long as query says, and longer", {"X-16"}, 20, fused_limits},
      {"fused-results", "every type and operator in one launch", {"X-14", "X-1"}, 60, fused_results},
  };
}

}  // namespace tutti::conformance::contract
