// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of the test: run_ranks(n, body) makes a communicator of n ranks and calls body on each. What a rank
// throws fails the test with the rank's number.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace tutti::test {

inline tutti_comm_config config_of(const std::string& place, uint32_t rank, uint32_t nranks) {
  tutti_comm_config config{sizeof(tutti_comm_config)};
  config.rendezvous = place.c_str();
  config.rank = rank;
  config.nranks = nranks;
  config.connect_timeout_ns = 60'000'000'000;
  config.timeout_ns = 60'000'000'000;
  return config;
}

inline std::string fresh_place() {
  static std::atomic<int> number{0};
  return "local:test-" + std::to_string(number++);
}

// As a timeout: the product's default.
constexpr uint64_t default_timeout = 0;

struct Setup {
  const char* transports = nullptr;
  const char* algorithms = nullptr;
  uint32_t flags = 0;
  uint64_t timeout_ns = 60'000'000'000;
};

inline void run_ranks(uint32_t n, const std::function<void(Communicator&)>& body, Setup setup = {}) {
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        tutti_comm_config config = config_of(place, r, n);
        config.transports = setup.transports;
        config.algorithms = setup.algorithms;
        config.flags = setup.flags;
        config.timeout_ns = setup.timeout_ns;
        Communicator comm(config);
        body(comm);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << r << " of " << n << ": " << e.what();
      }
    });
  for (std::thread& t : threads) t.join();
}

// The status of an operation that must fail, and its text.
struct Failed {
  tutti_status status = TUTTI_OK;
  std::string text;
};
template <typename Body>
Failed failure_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return {e.status(), e.what()};
  }
  return {};
}

}  // namespace tutti::test
