// SPDX-License-Identifier: Apache-2.0
//
// Registered memory, and more than 2^31 bytes of it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

const tutti_transport* registering(Bench& bench) {
  const tutti_transport* t = bench.transport();
  bench.caps();  // a transport over another one knows what it offers from then on
  if (!TUTTI_HAS(tutti_transport, t, register_memory)) throw NotOffered{"it has no register_memory"};
  return t;
}

tutti_region* enroll(Bench& bench, tutti_domain* domain, void* address, uint64_t bytes, int fd = -1,
                     uint64_t offset = 0) {
  const tutti_transport* t = bench.transport();
  tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, address, bytes, fd, 0, offset};
  tutti_region* region = nullptr;
  const tutti_status status =
      call("register_memory", true, [&] { return t->register_memory(domain, &memory, &region); });
  require(status == TUTTI_OK, "T-35", "register_memory of {} bytes at {} returned {}: {}", bytes, address,
          status_text(status), last_error());
  return region;
}

void discharge(Bench& bench, tutti_domain* domain, tutti_region* region) {
  const tutti_transport* t = bench.transport();
  const tutti_status status = call("deregister_memory", true, [&] { return t->deregister_memory(domain, region); });
  require(status == TUTTI_OK, "T-36", "deregister_memory returned {}: {}", status_text(status), last_error());
}

// Sends `bytes` from `from` to `to`, naming the regions.
void move(Stage& stage, const uint8_t* from, tutti_region* source, uint8_t* to, tutti_region* target, uint64_t bytes,
          const char* clause, const std::string& what) {
  tutti_transfer send = stage[0].send(1, 0, from, bytes), receive = stage[1].receive(0, 0, to, bytes);
  send.region = source;
  receive.region = target;
  const std::vector<uint8_t> expected(from, from + bytes);
  Posted *sent = nullptr, *received = nullptr;
  stage.until(
      [&] {
        if (!received) received = stage[1].post(receive);
        if (!sent) sent = stage[0].post(send);
        return sent && received && sent->done && received->done;
      },
      clause, what + ": it does not complete");
  require(sent->status == TUTTI_OK && received->status == TUTTI_OK, clause,
          "{}: the SEND ended with {}, the RECV with {}", what, status_text(sent->status),
          status_text(received->status));
  const std::string difference = first_difference(expected.data(), to, bytes);
  require(difference.empty(), clause, "{}: {}", what, difference);
}

void longer_memory(Bench& bench, tutti_domain* domain) {
  const tutti_transport* t = bench.transport();
  uint64_t word = 0;
  struct Longer {
    tutti_memory memory;
    uint64_t unknown[2];
  };
  for (const uint64_t tail : {0, 1}) {
    const Longer longer{{sizeof longer, TUTTI_MEMORY_HOST, &word, 8, -1, 0, 0}, {0, tail}};
    tutti_region* region = nullptr;
    const tutti_status status =
        call("register_memory", true, [&] { return t->register_memory(domain, &longer.memory, &region); });
    require(status == (tail ? TUTTI_NOT_SUPPORTED : TUTTI_OK), "E-8",
            "register_memory with a tutti_memory that is 16 bytes longer than this revision's, {}, returned {}",
            tail ? "the last of them not zero" : "all of them zero", status_text(status));
    if (!tail) discharge(bench, domain, region);
  }
}

void odd_registrations(Bench& bench) {
  registering(bench);
  Stage stage(bench);
  const struct {
    uint64_t offset, bytes;
  } places[] = {{0, 4096}, {1, 1}, {3, 4093}, {4095, 2}, {7, 10'000}, {64, 64}, {4097, 8191}};
  uint32_t k = 0;
  std::deque<GuardedMemory> kept;  // no address comes twice here: that is T-36
  for (const auto& place : places) {
    const uint64_t bytes = std::min(place.bytes, bench.caps().fragment_bytes);
    GuardedMemory& source = kept.emplace_back(20'000);
    GuardedMemory& target = kept.emplace_back(20'000);
    fill(source.data(), source.bytes(), bench.seed, {0, 1, 0, ++k});
    fill(target.data(), target.bytes(), bench.seed, {1, 0, 0, k});
    std::vector<uint8_t> around(target.data(), target.data() + target.bytes());
    tutti_region* out = enroll(bench, stage[0].domain, source.data() + place.offset, bytes);
    tutti_region* in = enroll(bench, stage[1].domain, target.data() + place.offset, bytes);
    const std::string what = fmt::format("{} registered bytes at an address of which the low bits are {:#x}", bytes,
                                         reinterpret_cast<uintptr_t>(source.data() + place.offset) & 0xfff);
    move(stage, source.data() + place.offset, out, target.data() + place.offset, in, bytes, "T-35", what);
    // A part of it, after it has changed.
    for (uint64_t i = 0; i < bytes; ++i) source.data()[place.offset + i] ^= 0x5a;
    const uint64_t part = bytes / 2;
    move(stage, source.data() + place.offset + part, out, target.data() + place.offset + part, in, bytes - part, "T-35",
         what + ", its second half after the memory had changed");
    move(stage, source.data() + place.offset, out, target.data() + place.offset, nullptr, bytes, "T-35",
         what + ", received into memory that is named without its region");
    std::memcpy(around.data() + place.offset, target.data() + place.offset, bytes);
    require(std::memcmp(around.data(), target.data(), around.size()) == 0, "T-16",
            "{}: bytes of the target beside it were written", what);
    discharge(bench, stage[0].domain, out);
    discharge(bench, stage[1].domain, in);
  }
  longer_memory(bench, stage[0].domain);
  tutti_memory device{sizeof device, 31, &k, 4, -1, 0, 0};
  tutti_region* region = nullptr;
  const tutti_transport* t = bench.transport();
  const auto ask = [&] {
    return call("register_memory", true, [&] { return t->register_memory(stage[0].domain, &device, &region); });
  };
  tutti_status status = ask();
  require(status == TUTTI_NOT_SUPPORTED, "T-35", "registering memory of the unknown kind 31 returned {}, expected {}",
          status_text(status), status_text(TUTTI_NOT_SUPPORTED));
  device.kind = TUTTI_MEMORY_CUDA;
  if (!(bench.caps().memory_kinds & uint64_t{1} << TUTTI_MEMORY_CUDA)) {
    status = ask();
    require(status == TUTTI_NOT_SUPPORTED, "T-35",
            "registering CUDA memory, which memory_kinds lacks, returned {}, expected {}", status_text(status),
            status_text(TUTTI_NOT_SUPPORTED));
  }
}

// The same address again and again, with other memory behind it.
void stale_registrations(Bench& bench) {
  registering(bench);
  Stage stage(bench);
  const uint64_t bytes = 8192;
  void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  GuardedMemory target(bytes);
  for (uint32_t k = 0; k < 6; ++k) {
    auto* memory = static_cast<uint8_t*>(
        mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    require(memory == place, "T-36", "mmap failed");
    fill(memory, bytes, bench.seed, {0, 1, 0, k});
    if (k == 3) {
      move(stage, memory, nullptr, target.data(), nullptr, bytes, "T-36",
           "ordinary memory at an address where registered memory was before");
      continue;
    }
    tutti_region* region = enroll(bench, stage[0].domain, memory, k == 4 ? bytes / 2 : bytes);
    // The first has no forerunner that could be taken for it.
    move(stage, memory, region, target.data(), nullptr, bytes / 2, k == 0 ? "T-35" : "T-36",
         k == 0 ? std::string("registered memory")
                : fmt::format("memory number {} that was mapped and registered at one address, while what arrived of "
                              "those before was right (deregister_memory has to forget what was kept of them)",
                              k + 1));
    discharge(bench, stage[0].domain, region);
  }
  munmap(place, bytes);
}

// Threads register and deregister while messages pass; then the endpoints change hands.
void threads(Bench& bench) {
  Stage stage(bench);
  if (TUTTI_HAS(tutti_transport, bench.transport(), register_memory)) {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> registered{0};
    std::exception_ptr trouble[2];
    std::vector<std::thread> others;
    for (int i = 0; i < 2; ++i)
      others.emplace_back([&, i] {
        try {
          std::vector<uint8_t> memory(10'000);
          while (!stop) {
            tutti_region* regions[3];
            for (size_t r = 0; r < 3; ++r) regions[r] = enroll(bench, stage[0].domain, memory.data() + r * 7, 3000 + r);
            for (tutti_region* region : regions) discharge(bench, stage[0].domain, region);
            ++registered;
          }
        } catch (...) {
          trouble[i] = std::current_exception();
        }
      });
    std::vector<uint8_t> source(4096), target(4096);
    for (uint32_t k = 0; k < 60 || registered < 20; ++k) {
      fill(source.data(), source.size(), bench.seed, {0, 1, 0, k});
      try {
        move(stage, source.data(), nullptr, target.data(), nullptr, source.size(), "T-39",
             "a message while other threads register memory");
      } catch (...) {
        stop = true;
        for (std::thread& other : others) other.join();
        throw;
      }
      if (trouble[0] || trouble[1]) break;
    }
    stop = true;
    for (std::thread& other : others) other.join();
    for (const std::exception_ptr& one : trouble)
      if (one) std::rethrow_exception(one);
  }
  // One thread after another has both endpoints.
  for (uint32_t turn = 0; turn < 4; ++turn) {
    std::exception_ptr trouble;
    std::thread([&] {
      try {
        Message there(stage, {0, 1, 1, turn}, 3000), back(stage, {1, 0, 1, turn}, 30);
        stage.until(
            [&] {
              for (Message* m : {&there, &back}) {
                if (!m->receive_posted()) m->post_receive();
                if (!m->send_posted()) m->post_send();
              }
              return there.sent() && there.received() && back.sent() && back.received();
            },
            "T-39", fmt::format("the endpoints' {}. thread gets no message through", turn + 2));
      } catch (...) {
        trouble = std::current_exception();
      }
    }).join();
    if (trouble) {
      try {
        std::rethrow_exception(trouble);
      } catch (const Broken& b) {
        if (b.clause() == "E-5") throw;
        throw Broken("T-39", fmt::format("an endpoint handed to another thread: {}", b.what()));
      }
    }
  }
}

constexpr uint64_t beyond = (uint64_t{1} << 31) + 1;

// One buffer of 2^31 + 1 bytes, fragment by fragment, eight at a time.
void two_gigabytes(Bench& bench) {
  Stage stage(bench, {.lanes = 1});
  const uint64_t piece = bench.caps().fragment_bytes;
  auto allocate = [] {
    void* memory = mmap(nullptr, beyond, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw CannotRun{"2 GiB of memory cannot be mapped"};
    return static_cast<uint8_t*>(memory);
  };
  uint8_t* source = allocate();
  uint8_t* target = allocate();
  for (uint64_t at = 0; at + 8 <= beyond; at += 8) {
    const uint64_t word = (at + bench.seed) * 0x9e3779b97f4a7c15;
    std::memcpy(source + at, &word, 8);
  }
  source[beyond - 1] = 0x77;
  tutti_region *out = nullptr, *in = nullptr;
  const bool registers = TUTTI_HAS(tutti_transport, bench.transport(), register_memory);
  if (registers) {
    out = enroll(bench, stage[0].domain, source, beyond);
    in = enroll(bench, stage[1].domain, target, beyond);
  }
  uint64_t sends = 0, receives = 0;
  const uint64_t pieces = (beyond + piece - 1) / piece;
  const auto length = [&](uint64_t i) { return std::min(piece, beyond - i * piece); };
  stage.until(
      [&] {
        for (int i = 0; i < 8 && receives < pieces; ++i) {
          tutti_transfer t = stage[1].receive(0, 0, target + receives * piece, length(receives));
          t.region = in;
          if (!stage[1].post(t)) break;
          ++receives;
        }
        for (int i = 0; i < 8 && sends < pieces; ++i) {
          tutti_transfer t = stage[0].send(1, 0, source + sends * piece, length(sends));
          t.region = out;
          if (!stage[0].post(t)) break;
          ++sends;
        }
        return sends == pieces && stage[0].pending() + stage[1].pending() == 0;
      },
      "T-38", "2^31 + 1 bytes do not all arrive");
  if (std::memcmp(source, target, beyond) != 0) {
    uint64_t at = 0;
    while (source[at] == target[at]) ++at;
    broken("T-38", "of 2^31 + 1 bytes in {} messages byte {} ({:#x}) is the first wrong one: {}", pieces, at, at,
           first_difference(source + at, target + at, std::min<uint64_t>(64, beyond - at)));
  }
  if (registers) {
    discharge(bench, stage[0].domain, out);
    discharge(bench, stage[1].domain, in);
  }
  munmap(source, beyond);
  munmap(target, beyond);
}

}  // namespace

std::vector<ContractCase> memory_cases() {
  return {
      {"odd-registrations",
       "registered memory of odd addresses and lengths",
       {"T-35", "T-36", "E-8"},
       16,
       odd_registrations},
      {"stale-registrations", "one address, other memory each time", {"T-35", "T-36"}, 4, stale_registrations},
      {"threads",
       "registering from threads; endpoints that change hands",
       {"T-39", "T-35", "T-36", "T-20", "T-15"},
       20,
       threads},
      {"two-gigabytes",
       "one buffer of 2^31 + 1 bytes",
       {"T-38", "T-35", "T-36"},
       3000,
       two_gigabytes,
       uint64_t{8} << 30,
       {{magnitude::buffer_bytes, (uint64_t{1} << 31) + 1}}},
  };
}

}  // namespace tutti::conformance::contract
