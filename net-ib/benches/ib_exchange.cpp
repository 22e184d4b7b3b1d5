// SPDX-License-Identifier: Apache-2.0
//
// The transport alone, to be held against perftest on the same devices: two processes, the first with TUTTI_IB_HCA
// FIRST, the second with SECOND. Prints for each size
//   up to 8 KiB   half of a round trip, as ib_send_lat does: the shortest, microseconds
//   above         one way, eight messages in flight, registered memory, as ib_write_bw does: best round, MB/s (1e6)
//
// Small messages are polled for, as perftest does; between large ones both ends sleep on wait_fd, as the core does, so
// that an emulated adapter has the processor (perftest's receiver does nothing at all).
//
//   ib_exchange FIRST SECOND [iterations]        iterations: of small sizes, default 1000
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_ib;

namespace {

using Clock = std::chrono::steady_clock;

std::string filter;
tutti_host host{};

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "ib_exchange: %s\n", what.c_str());
  std::_Exit(1);
}
void must(tutti_status status, const char* what) {
  if (status < 0) die(std::string(what) + " failed");
}
class End {
 public:
  End(uint32_t rank, int side, char* memory, uint64_t bytes) : side_(side) {
    host.struct_size = sizeof host;
    host.log = [](void*, const tutti_log_record* r) {
      if (r->level <= TUTTI_LOG_WARN) std::fprintf(stderr, "%s\n", r->text);
    };
    host.set_error = [](void*, tutti_status, const char* text) { std::fprintf(stderr, "%s\n", text); };
    host.get_config = [](void*, const char* key) -> const char* {
      return std::strcmp(key, "TUTTI_IB_HCA") == 0 ? filter.c_str() : std::getenv(key);
    };
    tutti_plugin_entry_net_ib.init(&host);
    table_ = static_cast<const tutti_transport*>(tutti_plugin_entry_net_ib.get_interface(TUTTI_TRANSPORT_ID, 0));
    tutti_domain_config domain_config{};
    domain_config.struct_size = sizeof domain_config;
    must(table_->open_domain(table_->self, &domain_config, &domain_), "open_domain");
    pair_.struct_size = sizeof pair_;
    pair_.self = this;
    pair_.send = [](void* self, uint32_t, const void* data, uint64_t size) -> tutti_status {
      const int fd = static_cast<End*>(self)->side_;
      return send(fd, data, size, 0) == static_cast<ssize_t>(size) ? TUTTI_OK : TUTTI_PEER_FAILED;
    };
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = rank;
    config.nranks = 2;
    config.lanes = 1;
    config.pair = &pair_;
    must(table_->open_endpoint(domain_, &config, &endpoint_), "open_endpoint");
    wait_ = static_cast<const tutti_wait_fd*>(table_->get_interface(table_->self, TUTTI_WAIT_FD_ID));
    must(wait_->get_fd(endpoint_, &fd_), "get_fd");
    const tutti_memory registered{sizeof registered, TUTTI_MEMORY_HOST, memory, bytes, -1, 0, 0};
    must(table_->register_memory(domain_, &registered, &region_), "register_memory");
    tutti_status status;
    while ((status = table_->connect(endpoint_, 1 - rank, &link_)) == TUTTI_AGAIN) {
      char message[TUTTI_PAIR_BYTES];
      for (ssize_t n; (n = recv(side_, message, sizeof message, MSG_DONTWAIT)) > 0;)
        must(table_->receive_pair(endpoint_, 1 - rank, message, static_cast<uint64_t>(n)), "receive_pair");
      progress();
    }
    must(status, "connect");
  }
  ~End() {
    table_->deregister_memory(domain_, region_);
    table_->close_endpoint(endpoint_);
    table_->close_domain(domain_);
  }

  void post(uint16_t kind, char* data, uint64_t bytes, uint16_t flags = 0) {
    tutti_transfer t{};
    t.link = link_;
    t.kind = kind;
    t.flags = flags;
    t.data = data;
    t.bytes = bytes;
    t.region = region_;
    tutti_status status;
    while ((status = table_->post(endpoint_, &t)) == TUTTI_AGAIN) progress();
    must(status, "post");
  }
  // Until so many transfers have completed since the last call.
  void finish(uint64_t transfers) {
    for (uint32_t idle = 0; done_ < transfers;) {
      constexpr uint32_t kPolls = 100;
      idle = progress() ? 0 : idle + 1;
      if (!sleeps || idle < kPolls) continue;
      idle = 0;
      if (wait_->arm(endpoint_) == TUTTI_OK) {
        pollfd watched{fd_, POLLIN, 0};
        ::poll(&watched, 1, 100);
      }
      wait_->disarm(endpoint_);
    }
    done_ -= transfers;
  }
  bool sleeps = false;

 private:
  bool progress() {
    tutti_completion completions[16];
    uint32_t n = 0;
    must(table_->progress(endpoint_, completions, 16, &n), "progress");
    for (uint32_t i = 0; i < n; ++i) {
      if (completions[i].kind != TUTTI_COMPLETION_TRANSFER || completions[i].status) die("a transfer failed");
      ++done_;
    }
    return n != 0;
  }

  const int side_;  // to the other process, for pair messages
  tutti_pair_messages pair_{};
  const tutti_transport* table_ = nullptr;
  const tutti_wait_fd* wait_ = nullptr;
  int32_t fd_ = -1;
  tutti_domain* domain_ = nullptr;
  tutti_endpoint* endpoint_ = nullptr;
  tutti_link* link_ = nullptr;
  tutti_region* region_ = nullptr;
  uint64_t done_ = 0;
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The shortest half of a round trip, in microseconds.
double ping_pong(End& end, bool first, char* memory, uint64_t bytes, int iterations) {
  std::vector<double> times;
  char *out = memory, *in = memory + bytes;
  for (int i = -iterations / 10; i < iterations; ++i) {
    const auto begin = Clock::now();
    end.post(TUTTI_TRANSFER_RECV, in, bytes);
    if (first) end.post(TUTTI_TRANSFER_SEND, out, bytes, TUTTI_TRANSFER_INLINE);
    end.finish(1);
    if (!first) end.post(TUTTI_TRANSFER_SEND, out, bytes, TUTTI_TRANSFER_INLINE);
    if (i >= 0) times.push_back(seconds_since(begin) * 5e5);
  }
  return *std::min_element(times.begin(), times.end());
}

// MB/s of `messages` messages in one direction.
double stream(End& end, bool first, char* memory, uint64_t bytes, int messages) {
  constexpr int kInFlight = 8;
  const uint16_t kind = first ? TUTTI_TRANSFER_SEND : TUTTI_TRANSFER_RECV;
  const auto begin = Clock::now();
  for (int i = 0; i < messages; ++i) {
    if (i >= kInFlight) end.finish(1);
    end.post(kind, memory + static_cast<uint64_t>(i % kInFlight) * bytes, bytes);
  }
  end.finish(static_cast<uint64_t>(std::min(messages, kInFlight)));
  // The sender's clock stops when the receiver has everything.
  if (first) {
    end.post(TUTTI_TRANSFER_RECV, memory, 1);
    end.finish(1);
  } else {
    end.post(TUTTI_TRANSFER_SEND, memory, 1, TUTTI_TRANSFER_INLINE);
  }
  return static_cast<double>(bytes) * messages / seconds_since(begin) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 1000;
  if (argc < 3 || iterations < 10) {
    std::fprintf(stderr, "usage: %s FIRST SECOND [iterations, at least 10]\n", argv[0]);
    return 2;
  }
  int sides[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sides) != 0) die("socketpair failed");
  const pid_t child = fork();
  const uint32_t rank = child ? 0 : 1;
  ::close(sides[1 - rank]);
  filter = argv[1 + rank];
  constexpr uint64_t kLargest = 1 << 20;
  std::vector<char> memory(8 * kLargest, static_cast<char>(rank));
  {
    End end(rank, sides[rank], memory.data(), memory.size());
    for (const uint64_t bytes : {8, 8192}) {
      const double us = ping_pong(end, rank == 0, memory.data(), bytes, iterations);
      if (rank == 0) std::printf("latency %llu %.2f us\n", static_cast<unsigned long long>(bytes), us);
      std::fflush(stdout);
    }
    end.sleeps = true;
    for (const uint64_t bytes : {uint64_t{64} << 10, kLargest}) {
      double best = 0;
      for (int round = 0; round < 3; ++round)
        best = std::max(best, stream(end, rank == 0, memory.data(), bytes, static_cast<int>((16 << 20) / bytes)));
      if (rank == 0) std::printf("bandwidth %llu %.1f MB/s\n", static_cast<unsigned long long>(bytes), best);
      std::fflush(stdout);
    }
  }
  int status = 0;
  if (child) waitpid(child, &status, 0);
  return status ? 1 : 0;
}
