// SPDX-License-Identifier: Apache-2.0
//
// Runs a body as the ranks of one communicator, as threads of this process or as forked processes, over the statically
// linked plugin with a small host. A failed REQUIRE or an exception in any rank fails the test with the rank's number.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/sdk/transport_ranks.hpp>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_shm;
inline const tutti_plugin_entry_table& tutti_test::plugin_under_test() { return tutti_plugin_entry_shm; }

#define REQUIRE(condition)                                                                                \
  do {                                                                                                    \
    if (!(condition))                                                                                     \
      throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition + \
                               " (last error: " + ranks::last_error() + ")");                             \
  } while (0)

namespace ranks {

enum class As { kThreads, kProcesses };

// A setting of the plugin, until its end.
struct Setting {
  Setting(const std::string& key, const std::string& value) { tutti_test::host().settings = {{key, value}}; }
  Setting(const Setting&) = delete;
  ~Setting() { tutti_test::host().settings.clear(); }
};
inline std::string& last_error() { return tutti_test::Host::error; }
inline const tutti_transport* transport() { return &tutti_test::table(); }
inline const tutti_view* view() {
  return static_cast<const tutti_view*>(transport()->get_interface(transport()->self, TUTTI_VIEW_ID));
}

// The end of a wait for what comes in milliseconds.
inline std::chrono::steady_clock::time_point in_a_minute() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

// Pair messages to one rank, in memory that processes share.
struct Mailbox {
  struct Letter {
    uint32_t from, bytes;
    char data[1016];
  };
  std::atomic<uint32_t> locked;
  uint32_t put, taken;
  Letter letters[16];

  template <typename Body>
  auto exclusively(Body body) {
    while (locked.exchange(1)) sched_yield();
    const auto result = body();
    locked = 0;
    return result;
  }
  tutti_status send(uint32_t from, const void* data, uint64_t bytes) {
    if (bytes > sizeof Letter::data) return TUTTI_INVALID_ARGUMENT;
    return exclusively([&] {
      if (put - taken == std::size(letters)) return TUTTI_AGAIN;
      Letter& letter = letters[put++ % std::size(letters)];
      letter.from = from;
      letter.bytes = static_cast<uint32_t>(bytes);
      std::memcpy(letter.data, data, bytes);
      return TUTTI_OK;
    });
  }
  bool take(Letter& letter) {
    return exclusively([&] {
      if (put == taken) return false;
      letter = letters[taken++ % std::size(letters)];
      return true;
    });
  }
};

// State that ranks share for the test's own sake: pair messages, a barrier, room for results.
struct Board {
  static constexpr uint32_t kMaxRanks = 8;
  Mailbox mail[2][kMaxRanks];  // for an even and an odd number of the communicator
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> word[16];
  char text[kMaxRanks][512];
  // Waits until all have come so often; `round` counts up from 1.
  void meet(uint32_t n, uint32_t round) {
    arrived++;
    const auto end = in_a_minute();
    while (arrived.load() < n * round) {
      sched_yield();
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("the ranks did not meet");
    }
  }
};

// One endpoint with helpers. Every wait has a deadline.
class Rank {
 public:
  struct Options {
    uint32_t lanes = 4;
    uint64_t communicator = 7;
    std::function<void(std::string&)> rewrite = [](std::string&) {};  // of the pair messages that it sends
  };
  Rank(Board& shared, uint32_t number, uint32_t count, Options options)
      : board(shared), rank(number), nranks(count), options_(options) {
    tutti_domain_config domain_config{};
    domain_config.struct_size = sizeof domain_config;
    REQUIRE(t->open_domain(t->self, &domain_config, &domain) == TUTTI_OK);
    pair_.struct_size = sizeof pair_;
    pair_.self = this;
    pair_.send = [](void* self, uint32_t peer, const void* data, uint64_t bytes) {
      Rank& me = *static_cast<Rank*>(self);
      std::string message(static_cast<const char*>(data), bytes);
      me.options_.rewrite(message);
      return me.mail(peer).send(me.rank, message.data(), message.size());
    };
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = rank;
    config.nranks = nranks;
    config.lanes = options.lanes;
    config.name = "test";
    config.communicator_id = options.communicator;
    config.pair = &pair_;
    REQUIRE(t->open_endpoint(domain, &config, &endpoint) == TUTTI_OK);
    links.resize(nranks);
  }
  Rank(const Rank&) = delete;
  ~Rank() {
    if (endpoint) t->close_endpoint(endpoint);
    for (tutti_region* region : regions) t->deregister_memory(domain, region);
    t->close_domain(domain);
  }

  void meet() { board.meet(nranks, ++round_); }
  Mailbox& mail(uint32_t of) { return board.mail[options_.communicator % 2][of]; }
  tutti_status try_connect(uint32_t peer) { return t->connect(endpoint, peer, &links[peer]); }
  // Connects to every peer, all ranks at the same time.
  void connect_all() {
    meet();
    for (uint32_t peer = 0; peer < nranks; peer++) {
      if (peer == rank) continue;
      const auto end = in_a_minute();
      for (;;) {
        const tutti_status status = try_connect(peer);
        if (status == TUTTI_OK) break;
        REQUIRE(status == TUTTI_AGAIN);
        REQUIRE(std::chrono::steady_clock::now() < end);
        progress();
        sched_yield();
      }
    }
    // Progress until all have come so far, for those who still need this rank's half.
    const uint32_t target = nranks * ++round_;
    board.arrived++;
    const auto end = in_a_minute();
    while (board.arrived.load() < target) {
      progress();
      sched_yield();
      REQUIRE(std::chrono::steady_clock::now() < end);
    }
  }

  static tutti_transfer transfer(tutti_link* link, uint32_t lane, uint16_t kind, void* data, uint64_t bytes,
                                 uint64_t cookie, uint16_t flags = 0) {
    tutti_transfer x{};
    x.link = link;
    x.lane = lane;
    x.kind = kind;
    x.flags = flags;
    x.data = data;
    x.bytes = bytes;
    x.cookie = cookie;
    return x;
  }
  // Was it taken? An error status throws.
  bool post(const tutti_transfer& x) {
    const tutti_status status = post_status(x);
    REQUIRE(status >= 0);
    return status == TUTTI_OK;
  }
  tutti_status post_status(const tutti_transfer& x) { return t->post(endpoint, &x); }
  void post_soon(const tutti_transfer& x) {
    for (const auto end = in_a_minute(); !post(x);) {
      progress();
      sched_yield();
      REQUIRE(std::chrono::steady_clock::now() < end);
    }
  }
  // One progress; completions are sorted into the members below.
  uint32_t progress() {
    for (Mailbox::Letter letter; mail(rank).take(letter);)
      REQUIRE(t->receive_pair(endpoint, letter.from, letter.data, letter.bytes) == TUTTI_OK);
    tutti_completion found[16];
    uint32_t n = 0;
    REQUIRE(t->progress(endpoint, found, 16, &n) == TUTTI_OK);
    for (uint32_t i = 0; i < n; i++) {
      const tutti_completion& c = found[i];
      if (c.kind == TUTTI_COMPLETION_TRANSFER) done.push_back(c);
      if (c.kind == TUTTI_COMPLETION_CONTROL)
        control.emplace_back(c.peer, std::string(static_cast<const char*>(c.data), c.bytes));
      if (c.kind == TUTTI_COMPLETION_PEER_FAILED) failed.emplace_back(c.peer, static_cast<const char*>(c.data));
    }
    return n;
  }
  template <typename Condition>
  void until(Condition condition) {
    const auto end = in_a_minute();
    for (uint32_t fruitless = 0; !condition();) {
      // Not after each poll: on a busy machine a yield takes long, and sockets are looked at once in many polls.
      if (progress() == 0 && ++fruitless % 256 == 0) sched_yield();
      REQUIRE(std::chrono::steady_clock::now() < end);
    }
  }
  const void* receive(uint32_t peer, uint32_t lane, uint64_t& bytes) {
    const void* message = nullptr;
    until([&] { return (message = v->try_receive(links[peer], lane, &bytes)) != nullptr; });
    return message;
  }
  void* reserve(uint32_t peer, uint32_t lane, uint64_t bytes) {
    void* room = nullptr;
    until([&] { return (room = v->try_reserve(links[peer], lane, bytes)) != nullptr; });
    return room;
  }
  tutti_region* register_memory(void* address, uint64_t bytes, int fd, uint64_t offset = 0) {
    tutti_memory memory{};
    memory.struct_size = sizeof memory;
    memory.kind = TUTTI_MEMORY_HOST;
    memory.address = address;
    memory.bytes = bytes;
    memory.fd = fd;
    memory.fd_offset = offset;
    tutti_region* region = nullptr;
    REQUIRE(t->register_memory(domain, &memory, &region) == TUTTI_OK);
    regions.push_back(region);
    return region;
  }
  void deregister(tutti_region* region) {
    REQUIRE(t->deregister_memory(domain, region) == TUTTI_OK);
    std::erase(regions, region);
  }

  const tutti_transport* t = transport();
  const tutti_view* v = view();
  const tutti_wait_fd* w = &tutti_test::wait_table();
  Board& board;
  const uint32_t rank, nranks;
  tutti_domain* domain = nullptr;
  tutti_endpoint* endpoint = nullptr;
  std::vector<tutti_link*> links;
  std::vector<tutti_region*> regions;
  std::vector<tutti_completion> done;
  std::vector<std::pair<uint32_t, std::string>> control, failed;

 private:
  const Options options_;
  tutti_pair_messages pair_{};
  uint32_t round_ = 0;
};

struct BoardMemory {
  Board* board;
  BoardMemory()
      : board(static_cast<Board*>(
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~BoardMemory() { munmap(board, sizeof(Board)); }
};

// Runs body(board, rank) for each rank. In processes, a rank listed in `killed` is expected to die of SIGKILL.
inline void run(As as, uint32_t nranks, const std::function<void(Board&, uint32_t)>& body,
                std::vector<uint32_t> killed = {}) {
  transport();
  const BoardMemory memory;
  Board& board = *memory.board;
  const auto guarded = [&](uint32_t rank) {
    try {
      body(board, rank);
    } catch (const std::exception& e) {
      strncpy(board.text[rank], e.what(), sizeof board.text[rank] - 1);
    }
  };
  if (as == As::kThreads) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < nranks; r++) threads.emplace_back(guarded, r);
    for (auto& thread : threads) thread.join();
  } else {
    std::vector<pid_t> children;
    for (uint32_t r = 0; r < nranks; r++) {
      const pid_t child = fork();
      if (child == 0) {
        guarded(r);
        _exit(0);
      }
      children.push_back(child);
    }
    for (uint32_t r = 0; r < nranks; r++) {
      int status = 0;
      waitpid(children[r], &status, 0);
      const bool expected = std::find(killed.begin(), killed.end(), r) != killed.end();
      EXPECT_TRUE(expected ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status))
          << "rank " << r << " ended with wait status " << status;
    }
  }
  for (uint32_t r = 0; r < nranks; r++) EXPECT_STREQ(board.text[r], "") << "rank " << r;
}

// The byte at `index` of message `number` of a lane: different for any two nearby.
inline uint8_t pattern(uint64_t number, uint32_t lane, uint64_t index) {
  return static_cast<uint8_t>((number * 31 + lane * 101 + index * 7 + (index >> 8) * 13 + 1) & 0xff);
}
inline void fill(void* to, uint64_t bytes, uint64_t number, uint32_t lane) {
  for (uint64_t i = 0; i < bytes; i++) static_cast<uint8_t*>(to)[i] = pattern(number, lane, i);
}
inline bool matches(const void* from, uint64_t bytes, uint64_t number, uint32_t lane) {
  for (uint64_t i = 0; i < bytes; i++)
    if (static_cast<const uint8_t*>(from)[i] != pattern(number, lane, i)) return false;
  return true;
}

inline std::set<int> open_descriptors() {
  std::set<int> open;
  for (int fd = 0; fd < 4096; fd++)
    if (fcntl(fd, F_GETFD) != -1) open.insert(fd);
  return open;
}

}  // namespace ranks
