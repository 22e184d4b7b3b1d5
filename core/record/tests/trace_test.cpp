// SPDX-License-Identifier: Apache-2.0
//
// A tracer gets each record, or it is counted as dropped. It gets waits with their begin and end, and the clocks.
#include "record/trace.hpp"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <system_error>
#include <vector>

#include "../../tests/harness/real_function.hpp"
#include "base/clock.hpp"
#include "base/failure.hpp"

namespace {
thread_local bool no_threads = false;  // this thread can start none
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* given) {
  static constinit tutti::test::Real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)> real(
      "pthread_create");
  return no_threads ? EAGAIN : (*real)(thread, attributes, run, given);
}

namespace tutti::core {
namespace {

// A tracer that keeps what it gets.
struct Kept {
  tutti_tracer_config config{};
  std::string name;
  std::vector<std::array<char, 64>> records;
  std::map<uint32_t, uint64_t> kinds;
  uint64_t room = UINT64_MAX;  // records
  uint64_t lost = 0;
  bool closed = false;

  void add(const void* given, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      uint32_t kind = 0;
      std::memcpy(&kind, static_cast<const char*>(given) + 64 * i, sizeof kind);
      std::memcpy(records.emplace_back().data(), static_cast<const char*>(given) + 64 * i, 64);
      ++kinds[kind];
    }
  }
  template <typename T>
  T last(uint32_t kind) const {
    T found{};
    for (const auto& record : records)
      if (std::memcmp(record.data(), &kind, sizeof kind) == 0) std::memcpy(&found, record.data(), sizeof found);
    return found;
  }
};

Kept& kept_by(tutti_tracing* tracing) { return *reinterpret_cast<Kept*>(tracing); }
tutti_status check(void*, const char*) { return TUTTI_OK; }
tutti_status open(void* self, const tutti_tracer_config* config, tutti_tracing** tracing) {
  auto* const kept = static_cast<Kept*>(self);
  if (!kept) return TUTTI_SYSTEM;
  kept->config = *config;
  kept->name = config->name;
  *tracing = reinterpret_cast<tutti_tracing*>(kept);
  return TUTTI_OK;
}
tutti_status write(tutti_tracing* tracing, const void* records, uint64_t n) {
  Kept& kept = kept_by(tracing);
  if (kept.records.size() + n > kept.room) return TUTTI_NO_RESOURCES;
  kept.add(records, n);
  return TUTTI_OK;
}
void close(tutti_tracing* tracing, const void* records, uint64_t n) {
  Kept& kept = kept_by(tracing);
  kept.add(records, n);
  kept.lost = kept.last<tutti_trace_lost>(TUTTI_TRACE_END).lost;
  kept.closed = true;
}
tutti_tracer tracer_of(Kept* kept) {
  return {sizeof(tutti_tracer), TUTTI_TRACER_STAMP, kept, "kept", "for tests", check, open, write, close};
}

class TraceTest : public testing::Test {
 protected:
  ~TraceTest() override { unsetenv("TUTTI_TRACE"); }
  std::unique_ptr<Trace> make() {
    return std::make_unique<Trace>(TracePlace{&tracer_, "here"}, Trace::Owner{"a b/c", 7, 1, 4});
  }

  Kept contents_;
  tutti_tracer tracer_ = tracer_of(&contents_);
};

void expect_refused(const std::string& text, tutti_status status, const std::string& why) {
  setenv("TUTTI_TRACE", text.c_str(), 1);
  try {
    trace_place();
    ADD_FAILURE() << "TUTTI_TRACE=\"" << text << "\" was accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, status);
    EXPECT_NE(failure.text.find("TUTTI_TRACE=\"" + text + "\": " + why), std::string::npos) << failure.text;
  }
}

TEST_F(TraceTest, PlacesThatCannotBeUsedAreRefused) {
  EXPECT_FALSE(trace_place());
  expect_refused("plugin:pigeon:roof", TUTTI_NOT_FOUND, "there is no tracer \"pigeon\"; there are: ");
  expect_refused("plugin:pigeon", TUTTI_NOT_FOUND, "there is no tracer \"pigeon\"; there are: ");
  const tutti_tracer refuses = tracer_of(nullptr);
  setenv("TUTTI_TRACE", "here", 1);
  try {
    Trace({&refuses, "here"}, {});
    ADD_FAILURE() << "a tracer that cannot open its place was used";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, TUTTI_SYSTEM);
    EXPECT_EQ(failure.text, "TUTTI_TRACE=\"here\": the tracer kept gives no reason");
  }
}

TEST_F(TraceTest, EachRecordIsWrittenOrCounted) {
  auto trace = make();
  constexpr uint64_t steps = Trace::capacity * 20;
  tutti_trace_step step{};
  step.kind = TUTTI_TRACE_STEP;
  for (uint64_t i = 0; i < steps; ++i) trace->step(step);
  trace->link(3, "shm", 10, 20);
  trace.reset();
  EXPECT_EQ(contents_.name, "a b/c");
  EXPECT_EQ(contents_.config.rank, 1u);
  EXPECT_EQ(contents_.config.communicator, 7u);
  EXPECT_EQ(contents_.kinds[TUTTI_TRACE_STEP] + contents_.kinds[TUTTI_TRACE_LINK] + contents_.lost, steps + 1);
  EXPECT_EQ(contents_.kinds[TUTTI_TRACE_END], 1u);
  EXPECT_GE(contents_.kinds[TUTTI_TRACE_CLOCK], 2u);
}

TEST_F(TraceTest, IsClosedWhereItsThreadCannotStart) {
  no_threads = true;
  EXPECT_THROW(make(), std::system_error);
  no_threads = false;
  EXPECT_TRUE(contents_.closed);
  EXPECT_EQ(contents_.kinds, (std::map<uint32_t, uint64_t>{{TUTTI_TRACE_CLOCK, 1}}));
}

TEST_F(TraceTest, WhatTheTracerRefusesIsCounted) {
  contents_.room = 900;
  auto trace = make();
  constexpr uint64_t steps = 3000;
  tutti_trace_step step{};
  step.kind = TUTTI_TRACE_STEP;
  for (uint64_t i = 0; i < steps; ++i) trace->step(step);
  trace.reset();
  EXPECT_TRUE(contents_.closed);
  EXPECT_EQ(contents_.kinds[TUTTI_TRACE_STEP] + contents_.lost, steps);
  EXPECT_GT(contents_.lost, 1000u);
}

TEST_F(TraceTest, AWaitIsRecordedOnceItLasts) {
  auto trace = make();
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
  ASSERT_EQ(contents_.kinds[TUTTI_TRACE_WAIT], 1u);
  const auto found = contents_.last<tutti_trace_step>(TUTTI_TRACE_WAIT);
  EXPECT_EQ(found.peer, 2u);
  EXPECT_GE(ticks_to_ns(found.end_ticks - found.begin_ticks), 1'900'000u);
}

TEST_F(TraceTest, AWaitForAnotherRankIsAnotherWait) {
  auto trace = make();
  tutti_trace_step wait{};
  wait.kind = TUTTI_TRACE_WAIT;
  for (wait.peer = 0; wait.peer < 3; ++wait.peer)
    for (int poll = 0; poll < 1000; ++poll) trace->idle([&] { return wait; });
  trace->moved();
  trace.reset();
  EXPECT_EQ(contents_.kinds[TUTTI_TRACE_WAIT], 3u);
  EXPECT_EQ(contents_.last<tutti_trace_step>(TUTTI_TRACE_WAIT).peer, 2u);
}

TEST_F(TraceTest, ClocksOfOtherHostsAreRecorded) {
  auto trace = make();
  const auto gather = [](const std::string& mine) {
    std::string other = mine;
    other[0] ^= 1;  // of another boot
    return std::vector<std::string>{other, mine, mine};
  };
  Trace::exchange_clocks(trace.get(), 1, gather);
  EXPECT_THROW(Trace::exchange_clocks(nullptr, 1, [](auto&&) { return std::vector<std::string>{"short"}; }), Failure);
  trace.reset();
  EXPECT_EQ(contents_.kinds[TUTTI_TRACE_PEER_CLOCK], 4u);
  const auto found = contents_.last<tutti_trace_peer_clock>(TUTTI_TRACE_PEER_CLOCK);
  EXPECT_EQ(found.peer, 0u);
  EXPECT_EQ(found.clock ^ 1, contents_.config.clock);
  EXPECT_LE(found.peer_sent_ns, found.received_ns);
}

}  // namespace
}  // namespace tutti::core
