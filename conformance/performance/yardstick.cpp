// SPDX-License-Identifier: Apache-2.0
#include "performance/yardstick.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

[[noreturn]] void failed(const std::string& what) {
  throw std::runtime_error("the yardstick: " + what + ": " + std::strerror(errno));
}

// With fewer cores than ranks, the other rank must get its turn.
template <typename Condition>
void wait_until(Condition met) {
  constexpr int polls = 2000;
  for (int i = 0; !met(); ++i)
    if (i > polls) sched_yield();
}

// The memory that both ranks share: a word of each, and two slots for bytes.
class Shared {
 public:
  static constexpr uint64_t slot_bytes = 256 << 10;
  struct Words {
    struct alignas(64) Line {
      std::atomic<uint64_t> turn, carried;
    };
    Line lines[2];  // each rank's own
    std::atomic<uint32_t> port;
    alignas(64) char slots[2][slot_bytes];
  };
  explicit Shared(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Words)) != 0) failed(path);
    void* memory = mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) failed(path);
    words_ = static_cast<Words*>(memory);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(words_, sizeof(Words)); }
  Words* operator->() const { return words_; }

 private:
  Words* words_;
};

class HostYardstick : public Yardstick {
 public:
  HostYardstick(const std::string& folder, uint32_t rank)
      : shared_(folder + "/yardstick"), rank_(rank), mine_(shared_->lines[rank]), theirs_(shared_->lines[1 - rank]) {}
  const char* exchange_name() const override { return "the bare exchange of a cache line"; }
  double idle_exchange() const override { return 1e-6; }  // between any two cores; two ranks on one core take more
  const char* carry_name() const override { return "a copy through shared memory"; }
  double exchange(int times) override {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) {
      mine_.turn.store(++turn_, std::memory_order_release);
      wait_until([&] { return theirs_.turn.load(std::memory_order_acquire) >= turn_; });
    }
    return seconds_since(begin) / times;
  }
  // There and back, slot by slot, as any transport between processes has to wait for its peer.
  double carry(uint64_t bytes) override {
    data_.resize(bytes, 1);
    const auto begin = Clock::now();
    for (const uint32_t sender : {0u, 1u})
      for (uint64_t at = 0; at < bytes; at += Shared::slot_bytes) carry_slot(sender, at);
    return seconds_since(begin) / 2;
  }

 private:
  // `carried` counts slots written by the sender, read by the receiver.
  void carry_slot(uint32_t sender, uint64_t at) {
    char* const slot = shared_->slots[slots_ % 2];
    const uint64_t bytes = std::min(Shared::slot_bytes, data_.size() - at), one = ++slots_;
    if (rank_ == sender) {
      wait_until([&] { return theirs_.carried.load(std::memory_order_acquire) + 2 >= one; });
      std::memcpy(slot, data_.data() + at, bytes);
    } else {
      wait_until([&] { return theirs_.carried.load(std::memory_order_acquire) >= one; });
      std::memcpy(data_.data() + at, slot, bytes);
    }
    mine_.carried.store(one, std::memory_order_release);
  }

  Shared shared_;
  uint32_t rank_;
  Shared::Words::Line &mine_, &theirs_;
  uint64_t turn_ = 0, slots_ = 0;
  std::vector<char> data_;
};

class NetworkYardstick : public Yardstick {
 public:
  NetworkYardstick(const std::string& folder, uint32_t rank) : rank_(rank) {
    const Shared page(folder + "/yardstick");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) failed("a socket");
    if (rank == 0) {
      if (bind(made, generic, size) != 0 || listen(made, 1) != 0 || getsockname(made, generic, &size) != 0)
        failed("listening on loopback");
      page->port.store(address.sin_port);
      socket_ = accept4(made, nullptr, nullptr, SOCK_CLOEXEC);
      close(made);
    } else {
      wait_until([&] { return page->port.load() != 0; });
      address.sin_port = static_cast<in_port_t>(page->port.load());
      socket_ = connect(made, generic, size) == 0 ? made : -1;
    }
    if (socket_ < 0) failed("meeting on loopback");
    const int yes = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  NetworkYardstick(const NetworkYardstick&) = delete;
  NetworkYardstick& operator=(const NetworkYardstick&) = delete;
  ~NetworkYardstick() override { close(socket_); }
  const char* exchange_name() const override { return "a raw socket's exchange"; }
  double idle_exchange() const override { return 0; }
  const char* carry_name() const override { return "a raw socket"; }
  double exchange(int times) override {
    uint64_t out = 1, in = 0;
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) {
      move(reinterpret_cast<char*>(&out), sizeof out, POLLOUT);
      move(reinterpret_cast<char*>(&in), sizeof in, POLLIN);
    }
    return seconds_since(begin) / times;
  }
  // There and back.
  double carry(uint64_t bytes) override {
    data_.resize(bytes, 1);
    const auto begin = Clock::now();
    move(data_.data(), bytes, rank_ == 0 ? POLLOUT : POLLIN);
    move(data_.data(), bytes, rank_ == 0 ? POLLIN : POLLOUT);
    return seconds_since(begin) / 2;
  }

 private:
  void move(char* data, uint64_t bytes, short direction) {
    constexpr int polls = 2000;
    int idle = 0;
    while (bytes > 0) {
      const ssize_t n = direction == POLLOUT ? send(socket_, data, bytes, MSG_NOSIGNAL) : recv(socket_, data, bytes, 0);
      if (n > 0) {
        data += n;
        bytes -= static_cast<uint64_t>(n);
        idle = 0;
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        failed("moving bytes over loopback");
      } else if (++idle > polls) {
        pollfd ready{socket_, direction, 0};
        poll(&ready, 1, 100);
      }
    }
  }

  uint32_t rank_;
  int socket_ = -1;
  std::vector<char> data_;
};

}  // namespace

std::unique_ptr<Yardstick> host_yardstick(const std::string& folder, uint32_t rank) {
  return std::make_unique<HostYardstick>(folder, rank);
}
std::unique_ptr<Yardstick> network_yardstick(const std::string& folder, uint32_t rank) {
  return std::make_unique<NetworkYardstick>(folder, rank);
}

}  // namespace tutti::conformance
