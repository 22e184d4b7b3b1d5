// SPDX-License-Identifier: Apache-2.0
//
// Long lives of open endpoints: nothing of what has ended stays, and regions come and go in several threads.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "contract_case.hpp"
#include "usage.hpp"

namespace tutti::conformance::contract {
namespace {

constexpr uint32_t lanes = 3;
constexpr std::array<uint64_t, 6> sizes{0, 8, 64, 300, 4096, 40'000};

// Memory with a descriptor, and its region.
class SharedRegion {
 public:
  SharedRegion(Bench& bench, tutti_domain* domain, uint64_t bytes) : bench_(bench), domain_(domain), bytes_(bytes) {
    fd_ = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw CannotRun{"memfd_create failed"};
    data_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    if (data_ == MAP_FAILED) throw CannotRun{"no memory for a region"};
    const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, data_, bytes, fd_, 0, 0};
    const tutti_transport* t = bench.transport();
    const tutti_status status =
        call("register_memory", true, [&] { return t->register_memory(domain, &memory, &region); });
    require(status == TUTTI_OK && region, "T-35", "register_memory of {} bytes of a memfd returned {}: {}", bytes,
            status_text(status), last_error());
  }
  ~SharedRegion() noexcept(false) {
    const tutti_status status = call(
        "deregister_memory", true, [&] { return bench_.transport()->deregister_memory(domain_, region); });
    munmap(data_, bytes_);
    ::close(fd_);
    require(status == TUTTI_OK, "T-36", "deregister_memory returned {}: {}", status_text(status), last_error());
  }
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  uint8_t* data() const { return data_; }
  tutti_region* region = nullptr;

 private:
  Bench& bench_;
  tutti_domain* domain_;
  uint64_t bytes_;
  int fd_ = -1;
  uint8_t* data_ = nullptr;
};

bool registers(Bench& bench) { return TUTTI_HAS(tutti_transport, bench.transport(), register_memory); }

// Messages on every lane, some early, some refused for their size, both ways.
void exchange(Stage& stage, uint32_t round) {
  std::array<uint8_t, 40'000> from, to;
  for (uint32_t k = 0; k < lanes * sizes.size(); ++k) {
    const uint32_t a = (k + round) % 2, b = 1 - a, lane = k % lanes;
    const uint64_t bytes = std::min<uint64_t>(sizes[k / lanes], stage.bench.caps().fragment_bytes);
    const uint64_t room = k == 4 ? bytes + 1 : bytes;
    fill(from.data(), bytes, stage.bench.seed, {a, b, lane, k});
    Posted *sent = nullptr, *received = nullptr;
    stage.until(
        [&] {
          if (!sent) sent = stage[a].post(stage[a].send(b, lane, from.data(), bytes));
          if (sent && k % 2) stage[b].progress();  // the message comes before its RECV
          if (!received) received = stage[b].post(stage[b].receive(a, lane, to.data(), room));
          return sent && received && sent->done && received->done;
        },
        "T-11", fmt::format("message {} of round {} does not arrive", k, round));
    require(received->status == (room == bytes ? TUTTI_OK : TUTTI_MISMATCH), room == bytes ? "T-13" : "T-24",
            "message {} of {} bytes met a RECV of {} and completed with {}", k, bytes, room,
            status_text(received->status));
    if (room == bytes) judge_message(stage.bench.seed, {a, b, lane, k}, lanes, to.data(), bytes);
  }
}

void control(Stage& stage, uint32_t round) {
  const uint32_t from = round % 2;
  size_t sent = 0;
  stage.until(
      [&] {
        while (sent < 20 && stage[from].send_control(1 - from, std::string(sent * 12, 'c')) == TUTTI_OK) ++sent;
        return sent == 20 && stage[1 - from].events.size() == 20;
      },
      "T-28", "20 control messages do not arrive");
  stage[1 - from].events.clear();
}

// A region that is sent by reference where the transport can, and as a transfer's memory where it cannot.
void region(Stage& stage, const tutti_view* view, uint32_t round) {
  const SharedRegion shared(stage.bench, stage[0].domain, 64 << 10);
  const uint64_t offset = round % 5 * 8, bytes = 300;
  fill(shared.data() + offset, bytes, stage.bench.seed, {0, 1, 1, round});
  std::array<uint8_t, 300> to;
  Posted *sent = nullptr, *received = nullptr;
  bool referred = view && TUTTI_HAS(tutti_view, view, send_region), accepted = false;
  uint64_t ticket = 0;
  stage.until(
      [&] {
        if (referred && !accepted) {
          const tutti_status status = plain_call("send_region", false, [&] {
            return view->send_region(stage[0].links[1], 1, shared.region, offset, bytes, &ticket);
          });
          accepted = status == TUTTI_OK;
          referred = accepted || status == TUTTI_AGAIN;
        }
        if (!referred && !sent) {
          tutti_transfer transfer = stage[0].send(1, 1, shared.data() + offset, bytes);
          transfer.region = shared.region;
          sent = stage[0].post(transfer);
        }
        if (!received) received = stage[1].post(stage[1].receive(0, 1, to.data(), bytes));
        if (!received || !received->done) return false;
        if (!referred) return sent && sent->done;
        return plain_call("released", false, [&] { return view->released(stage[0].links[1], 1); }) > ticket;
      },
      "T-11", fmt::format("the message from a region of round {} does not arrive", round));
  judge_message(stage.bench.seed, {0, 1, 1, round}, lanes, to.data(), bytes);
}

// Two endpoints that stay open. Each round is a little of everything that ends by itself.
void nothing_stays(Bench& bench) {
  StageOptions options;
  options.lanes = lanes;
  Stage stage(bench, options);
  const tutti_view* view = nullptr;
  try {
    view = bench.view();
  } catch (const NotOffered&) {
  }
  uint32_t round = 0;
  require_no_growth("T-41", "the same messages, control messages and regions between two open endpoints", 100, 400,
                    [&](uint32_t rounds) {
                      for (uint32_t i = 0; i < rounds; ++i, ++round) {
                        if (i % 8 == 0) exchange(stage, round);
                        if (i % 4 == 0) control(stage, round);
                        if (registers(bench)) region(stage, view, round);
                        for (auto& rank : stage.ranks) rank->forget_completed();
                      }
                      for (int i = 0; i < 2100; ++i) stage.progress();  // what is looked at seldom is looked at, too
                    });
}

// Threads that register and deregister in one domain, beside messages from regions.
void registers_in_threads(Bench& bench) {
  Stage stage(bench);
  if (!registers(bench)) throw NotOffered{"it registers no memory"};
  tutti_domain* domain = stage[0].domain;
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr trouble;
  std::map<tutti_region*, int> live;  // region, and who has it
  const auto come_and_go = [&](int who) {
    std::array<uint8_t, 512> memory{};
    const tutti_transport* t = bench.transport();
    for (uint32_t i = 0; !stop && i < 6000; ++i) {
      const tutti_memory what{sizeof what, TUTTI_MEMORY_HOST, memory.data() + i % 8 * 8, 8 + i % 400, -1, 0, 0};
      tutti_region* region = nullptr;
      tutti_status status = call("register_memory", true, [&] { return t->register_memory(domain, &what, &region); });
      require(status == TUTTI_OK && region, "T-39", "register_memory beside another thread's returned {}: {}",
              status_text(status), last_error());
      {
        const std::lock_guard lock(mutex);
        const auto [other, is_new] = live.try_emplace(region, who);
        require(is_new, "T-39",
                "two threads registered memory at the same time, and both got the region {}: thread {} and thread {}",
                static_cast<void*>(region), other->second, who);
      }
      if (i % 3 == 0) std::this_thread::yield();
      {
        const std::lock_guard lock(mutex);
        live.erase(region);
      }
      status = call("deregister_memory", true, [&] { return t->deregister_memory(domain, region); });
      require(status == TUTTI_OK, "T-39", "deregister_memory beside another thread's returned {}: {}",
              status_text(status), last_error());
    }
  };
  std::vector<std::thread> threads;
  for (int who = 0; who < 3; ++who)
    threads.emplace_back([&, who] {
      try {
        come_and_go(who);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!trouble) trouble = std::current_exception();
        stop = true;
      }
    });
  try {
    for (uint32_t round = 0; !stop && round < 40; ++round) region(stage, nullptr, round);
  } catch (...) {
    const std::lock_guard lock(mutex);
    if (!trouble) trouble = std::current_exception();
  }
  for (std::thread& thread : threads) thread.join();
  if (trouble) std::rethrow_exception(trouble);
}

}  // namespace

std::vector<ContractCase> steady_cases() {
  return {
      {"nothing-stays",
       "long traffic between two open endpoints",
       {"T-41", "T-11", "T-13", "T-15", "T-17", "T-20", "T-21", "T-24", "T-28", "T-35", "T-36"},
       140,
       nothing_stays},
      {"register-in-threads",
       "three threads register and deregister in one domain",
       {"T-39", "T-11", "T-13", "T-15", "T-17", "T-20", "T-21", "T-35", "T-36"},
       38,
       registers_in_threads},
  };
}

}  // namespace tutti::conformance::contract
