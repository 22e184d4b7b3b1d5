// SPDX-License-Identifier: Apache-2.0
//
// The last meeting of the ranks of a communicator, where one of them says what no rank says.
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/wire.hpp"
#include "comm/communicator.hpp"

namespace tutti::core {
namespace {

std::unique_ptr<Communicator> make(const std::string& place, uint32_t rank) {
  tutti_comm_config config{sizeof config};
  config.rendezvous = place.c_str();
  config.rank = rank;
  config.nranks = 2;
  config.connect_timeout_ns = 60'000'000'000;
  return Communicator::make(Configuration(config), {});
}

// The words with which rank 0's end fails, where rank 1 says this in place of its own.
std::string end_with(const std::string& word) {
  static int number = 0;
  const std::string place = "local:ending-" + std::to_string(number++);
  std::string words;
  std::thread other([&] {
    const auto comm = make(place, 1);
    comm->base().bootstrap->all_gather(word, std::chrono::seconds(60));
  });
  {
    const auto comm = make(place, 0);
    EXPECT_EQ(comm->end(), TUTTI_MISMATCH);
    words = comm->error_text();
  }
  other.join();
  return words;
}

TEST(Ending, ARankWhoseWordMakesNoSenseIsNamed) {
  const std::string who = "rank 1's word at the end";
  EXPECT_EQ(end_with("abc").find(who + ": 4 bytes announced, 3 left"), 0u);
  EXPECT_EQ(end_with(encode(JointWord{destroy_call, "abc"})).find(who + ": 8 bytes announced, 3 left"), 0u);
  EXPECT_EQ(end_with(encode(JointWord{"two\nlines", ""})).find(who + " has an impossible \"call\""), 0u);
  EXPECT_EQ(end_with(encode(JointWord{"tutti_comm_split", ""})).find("rank 1 is in tutti_comm_split, rank 0 in"), 0u);
}

}  // namespace
}  // namespace tutti::core
