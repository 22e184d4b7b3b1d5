// SPDX-License-Identifier: Apache-2.0
//
// A trace's file: whole and ended, each record in it or counted as dropped, never longer than it may be, and waits with
// their begin and end.
#include "record/trace.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/clock.hpp"
#include "base/failure.hpp"

namespace tutti::core {
namespace {

class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    char name[] = "/tmp/tutti-trace-test-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TraceTest() override {
    unsetenv("TUTTI_TRACE");
    std::filesystem::remove_all(folder_);
  }
  std::unique_ptr<Trace> make() const { return std::make_unique<Trace>(folder_, Trace::Owner{"a b/c", 7, 1, 4}); }

  std::string folder_;
};

struct Contents {
  tutti_trace_header header{};
  std::vector<std::array<char, 64>> records;
  std::map<uint32_t, uint64_t> kinds;
  uint64_t lost = 0;
  template <typename T>
  T last(uint32_t kind) const {
    T found{};
    for (const auto& record : records)
      if (std::memcmp(record.data(), &kind, sizeof kind) == 0) std::memcpy(&found, record.data(), sizeof found);
    return found;
  }
};

Contents read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Contents contents;
  file.read(reinterpret_cast<char*>(&contents.header), sizeof contents.header);
  std::array<char, 64> record;
  while (file.read(record.data(), sizeof record)) {
    contents.records.push_back(record);
    uint32_t kind = 0;
    std::memcpy(&kind, record.data(), sizeof kind);
    ++contents.kinds[kind];
  }
  EXPECT_EQ(file.gcount(), 0) << "a record is cut short";
  contents.lost = contents.last<tutti_trace_lost>(TUTTI_TRACE_END).lost;
  return contents;
}

void expect_refused(const std::string& folder, const std::string& why) {
  setenv("TUTTI_TRACE", folder.c_str(), 1);
  try {
    trace_folder();
    ADD_FAILURE() << "TUTTI_TRACE=\"" << folder << "\" was accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(failure.text.find("TUTTI_TRACE=\"" + folder + "\": " + why), std::string::npos) << failure.text;
  }
}

TEST_F(TraceTest, FoldersThatCannotBeUsedAreRefused) {
  EXPECT_FALSE(trace_folder());
  expect_refused("", "it names no folder");
  expect_refused(folder_ + "/absent", "No such file or directory");
  std::ofstream(folder_ + "/file") << "x";
  expect_refused(folder_ + "/file", "it is a file");
  if (geteuid() != 0) {  // root may write anywhere
    chmod(folder_.c_str(), 0500);
    expect_refused(folder_, "Permission denied");
    chmod(folder_.c_str(), 0700);
  }
  setenv("TUTTI_TRACE", folder_.c_str(), 1);
  EXPECT_EQ(trace_folder(), folder_);
}

TEST_F(TraceTest, AnotherTraceIsNotOverwritten) {
  const auto first = make();
  EXPECT_THROW(make(), Failure);
}

TEST_F(TraceTest, EachRecordIsWrittenOrCounted) {
  auto trace = make();
  const std::string path = trace->path();
  constexpr uint64_t steps = Trace::capacity * 20;
  tutti_trace_step step{};
  step.kind = TUTTI_TRACE_STEP;
  for (uint64_t i = 0; i < steps; ++i) trace->step(step);
  trace->link(3, "shm", 10, 20);
  trace.reset();
  Contents contents = read(path);
  EXPECT_STREQ(contents.header.name, "a b/c");
  EXPECT_EQ(contents.header.rank, 1u);
  EXPECT_EQ(contents.header.communicator, 7u);
  EXPECT_EQ(contents.kinds[TUTTI_TRACE_STEP] + contents.kinds[TUTTI_TRACE_LINK] + contents.lost, steps + 1);
  EXPECT_EQ(contents.kinds[TUTTI_TRACE_END], 1u);
  EXPECT_GE(contents.kinds[TUTTI_TRACE_CLOCK], 2u);
}

TEST_F(TraceTest, TheFileGrowsNoFurtherThanItMay) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  auto trace = make();
  const std::string path = trace->path();
  constexpr uint64_t steps = 3000;
  tutti_trace_step step{};
  step.kind = TUTTI_TRACE_STEP;
  for (uint64_t i = 0; i < steps; ++i) trace->step(step);
  trace.reset();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_LE(std::filesystem::file_size(path), small.rlim_cur);
  Contents contents = read(path);
  EXPECT_EQ(contents.kinds[TUTTI_TRACE_STEP] + contents.lost, steps);
  EXPECT_GT(contents.lost, 1000u);
}

TEST_F(TraceTest, AWaitIsRecordedOnceItLasts) {
  auto trace = make();
  const std::string path = trace->path();
  tutti_trace_step wait{};
  wait.kind = TUTTI_TRACE_WAIT;
  wait.peer = 2;
  const auto position = [&] { return wait; };
  for (int poll = 0; poll < 3; ++poll) trace->idle(position);  // too short
  trace->moved();
  for (int poll = 0; poll < 100; ++poll) trace->idle(position);
  usleep(2000);
  trace->moved();
  trace.reset();
  Contents contents = read(path);
  ASSERT_EQ(contents.kinds[TUTTI_TRACE_WAIT], 1u);
  const auto found = contents.last<tutti_trace_step>(TUTTI_TRACE_WAIT);
  EXPECT_EQ(found.peer, 2u);
  EXPECT_GE(ticks_to_ns(found.end_ticks - found.begin_ticks), 1'900'000u);
}

TEST_F(TraceTest, AWaitForAnotherRankIsAnotherWait) {
  auto trace = make();
  const std::string path = trace->path();
  tutti_trace_step wait{};
  wait.kind = TUTTI_TRACE_WAIT;
  for (wait.peer = 0; wait.peer < 3; ++wait.peer)
    for (int poll = 0; poll < 1000; ++poll) trace->idle([&] { return wait; });
  trace->moved();
  trace.reset();
  Contents contents = read(path);
  EXPECT_EQ(contents.kinds[TUTTI_TRACE_WAIT], 3u);
  EXPECT_EQ(contents.last<tutti_trace_step>(TUTTI_TRACE_WAIT).peer, 2u);
}

TEST_F(TraceTest, ClocksOfOtherHostsAreRecorded) {
  auto trace = make();
  const std::string path = trace->path();
  const auto gather = [](const std::string& mine) {
    std::string other = mine;
    other[0] ^= 1;  // of another boot
    return std::vector<std::string>{other, mine, mine};
  };
  Trace::exchange_clocks(trace.get(), 1, gather);
  EXPECT_THROW(Trace::exchange_clocks(nullptr, 1, [](auto&&) { return std::vector<std::string>{"short"}; }), Failure);
  trace.reset();
  Contents contents = read(path);
  EXPECT_EQ(contents.kinds[TUTTI_TRACE_PEER_CLOCK], 4u);
  const auto found = contents.last<tutti_trace_peer_clock>(TUTTI_TRACE_PEER_CLOCK);
  EXPECT_EQ(found.peer, 0u);
  EXPECT_EQ(found.clock ^ 1, contents.header.clock);
  EXPECT_LE(found.peer_sent_ns, found.received_ns);
}

}  // namespace
}  // namespace tutti::core
