// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes, one of which kills itself between two tensors of a bucket, or while a bucket is on its way.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tutti/gradients.hpp>
#include <vector>

namespace tutti {
namespace {

constexpr uint32_t nranks = 3, victim = 1;

// A rank's life; 0: as expected.
int live(const std::string& place, uint32_t rank, const GradientSettings& settings, bool between) {
  try {
    Communicator world(place, rank, nranks);
    const std::vector<tutti_tensor> tensors{tensor(1 << 18), tensor(1 << 18)};
    Gradients gradients(world, tensors, settings);
    std::vector<float> a(1 << 18), b(1 << 18);
    for (int step = 0; step < 100; ++step) {
      gradients.ready(0, a);
      if (rank == victim && step == 2 && between) raise(SIGKILL);
      gradients.ready(1, b);
      if (rank == victim && step == 2) raise(SIGKILL);
      gradients.wait();
    }
    std::fprintf(stderr, "rank %u: no call failed\n", rank);
  } catch (const Error& error) {
    if (error.status() == TUTTI_PEER_FAILED && std::string(error.what()).find("rank 1") != std::string::npos) return 0;
    std::fprintf(stderr, "rank %u: status %d: %s\n", rank, error.status(), error.what());
  }
  return 1;
}

void expect_survivors_know(const GradientSettings& settings, bool between) {
  std::string folder = std::filesystem::temp_directory_path() / "tutti-lost-rank-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    children.push_back(fork());
    if (children.back() == 0) std::exit(live("file:" + folder, rank, settings, between));
  }
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    if (rank == victim) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(LostRank, BetweenTwoTensors) { expect_survivors_know({.wire = Wire::float16, .thread = true}, true); }
TEST(LostRank, WhileAPlainBucketIsOnItsWay) { expect_survivors_know({}, false); }
TEST(LostRank, WhileAnEncodedBucketIsOnItsWay) { expect_survivors_know({.wire = Wire::float8}, false); }
TEST(LostRank, WhileAThreadAdvancesIt) { expect_survivors_know({.wire = Wire::float8, .thread = true}, false); }

}  // namespace
}  // namespace tutti
