// SPDX-License-Identifier: Apache-2.0
//
// The common ground of the tests of meetings: ranks as threads, free ports, failures as values.
#pragma once
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "in_time.hpp"
#include "net/socket_address.hpp"

namespace tutti::core::test {

using namespace std::chrono_literals;
using tutti::test::InTime;

// Variables as a test wants them.
inline EnvironmentLookup environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

inline void quiet(uint32_t, const std::string&) {}

// Runs `body(rank)` in a thread each and gives what it threw, if anything.
inline std::vector<std::optional<Failure>> run_ranks(uint32_t nranks, const std::function<void(uint32_t)>& body) {
  std::vector<std::optional<Failure>> failures(nranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Failure& failure) {
        failures[rank] = failure;
      }
    });
  for (auto& thread : threads) thread.join();
  return failures;
}

inline void expect_no_failures(const std::vector<std::optional<Failure>>& failures) {
  for (size_t rank = 0; rank < failures.size(); ++rank)
    EXPECT_FALSE(failures[rank]) << "rank " << rank << ": " << failures[rank]->text;
}

inline void expect_failure(const std::optional<Failure>& failure, tutti_status status,
                           const std::vector<std::string>& words) {
  ASSERT_TRUE(failure) << "no failure, expected " << words.front();
  EXPECT_EQ(failure->status, status) << failure->text;
  for (const auto& word : words)
    EXPECT_NE(failure->text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << failure->text;
}

inline std::optional<Failure> failure_of(const std::function<void()>& body) {
  return run_ranks(1, [&](uint32_t) { body(); })[0];
}

// Bytes of different lengths, some of them none.
inline std::string contribution(uint32_t rank, uint32_t round) {
  return std::string((rank * 7 + round * 13) % 40, static_cast<char>('a' + (rank + round) % 26)) +
         (rank % 5 == 4 ? "" : std::to_string(rank));
}

inline void gather_and_check(Bootstrap& bootstrap, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    const auto all = bootstrap.all_gather(contribution(bootstrap.rank(), round), 60s);
    ASSERT_EQ(all.size(), bootstrap.nranks());
    for (uint32_t r = 0; r < bootstrap.nranks(); ++r) ASSERT_EQ(all[r], contribution(r, round)) << "rank " << r;
  }
}

// A port on which nobody listens, and which nobody else gets as long as the object lives: bound, not listening. It is
// held for all addresses: the port of a connection from another address would let this one be bound and make listening
// everywhere fail.
class HeldPort {
 public:
  HeldPort() {
    for (const size_t bytes : {16, 4}) {  // where there is no IPv6, IPv4
      const SocketAddress any = SocketAddress::from_bytes(std::string(bytes, '\0'), 0);
      socket_ = FileDescriptor(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int off = 0;
      if (bytes == 16) ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (socket_ && ::bind(socket_.get(), any.get(), any.size()) == 0) break;
      EXPECT_EQ(bytes, 16u) << "no port can be had";
    }
    // Shared only now: a socket that is from the start may be given a port that another one holds like this.
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    port_ = SocketAddress::local_of(socket_.get()).port();
  }
  uint16_t port() const { return port_; }
  std::string rendezvous() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

 private:
  FileDescriptor socket_;
  uint16_t port_ = 0;
};

// A connection to a port of this host, as soon as somebody listens.
inline FileDescriptor stranger(uint16_t port) {
  std::string problem;
  while (true) {
    FileDescriptor socket = connect_to(SocketAddress::from_bytes(std::string("\x7f\0\0\1", 4), port), 1000, problem);
    if (socket) return socket;
    std::this_thread::sleep_for(5ms);
  }
}

inline constexpr char kSecret[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

}  // namespace tutti::core::test
