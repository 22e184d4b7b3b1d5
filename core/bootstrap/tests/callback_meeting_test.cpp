// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <barrier>
#include <cstring>

#include "harness/virtual_time/virtual_time.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

// An application's all-gather among threads; `order` says where each rank's bytes go.
struct Application {
  explicit Application(uint32_t n) : nranks(n), before(n), after(n), given(n) {}
  uint32_t nranks;
  std::barrier<> before, after;
  std::vector<const void*> given;
  bool swapped = false;
};
struct Place {
  Application* application;
  uint32_t rank;
};

tutti_status gather(void* context, const void* mine, uint64_t bytes, void* all) {
  auto& [application, rank] = *static_cast<Place*>(context);
  application->given[rank] = mine;
  application->before.arrive_and_wait();
  for (uint32_t r = 0; r < application->nranks; ++r)
    std::memcpy(static_cast<char*>(all) + (application->swapped ? r ^ 1 : r) * bytes, application->given[r], bytes);
  application->after.arrive_and_wait();
  return TUTTI_OK;
}

Rendezvous by(Place& place, uint32_t nranks) {
  Rendezvous meeting;
  meeting.rank = place.rank;
  meeting.nranks = nranks;
  meeting.all_gather = gather;
  meeting.context = &place;
  return meeting;
}

TEST(CallbackMeeting, GathersAndSharesASecret) {
  Application application(5);
  std::vector<std::string> secrets(5);
  expect_no_failures(run_ranks(5, [&](uint32_t rank) {
    Place place{&application, rank};
    const auto bootstrap = make_bootstrap(by(place, 5), 60s);
    gather_and_check(*bootstrap, 10);
    bootstrap->all_gather("", 60s);
    secrets[rank] = bootstrap->secret();
    EXPECT_FALSE(bootstrap->control().failed());
  }));
  EXPECT_EQ(secrets[0].size(), 32u);
  for (const auto& secret : secrets) EXPECT_EQ(secret, secrets[0]);
}

// The function and its context are the meeting's alone.
TEST(CallbackMeeting, TheFunctionIsNotCalledOnceAllHaveMet) {
  const tutti::test::VirtualTime time;
  Application application(3);
  std::atomic<bool> over = false;
  expect_no_failures(run_ranks(3, [&](uint32_t rank) {
    Place place{&application, rank};
    const auto bootstrap = make_bootstrap(by(place, 3), 60s);
    place.application = nullptr;
    gather_and_check(*bootstrap, 3);
    if (rank == 1) {
      while (!over) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto begin = time.passed();
    const auto failure = failure_of([&] { bootstrap->all_gather("x", rank == 0 ? 45s : 3600s); });
    EXPECT_LT(time.passed() - begin, tutti::test::late(45s));
    expect_failure(failure, TUTTI_TIMEOUT, {"after 45 s", "rank 1 did not arrive"});
    over = true;
  }));
}

TEST(CallbackMeeting, AWrongOrderIsNoticed) {
  Application application(2);
  application.swapped = true;
  for (const auto& failure : run_ranks(2, [&](uint32_t rank) {
         Place place{&application, rank};
         make_bootstrap(by(place, 2), 60s);
       }))
    expect_failure(failure, TUTTI_MISMATCH, {"rank 1's bytes at place 0"});
}

TEST(CallbackMeeting, ItsErrorsAndOtherWorldsAreErrors) {
  Rendezvous meeting;
  meeting.rank = 0;
  meeting.nranks = 2;
  meeting.all_gather = [](void*, const void*, uint64_t, void*) -> tutti_status { return TUTTI_SYSTEM; };
  expect_failure(failure_of([&] { make_bootstrap(meeting, 60s); }), TUTTI_SYSTEM, {"returned -9"});
  meeting.all_gather = [](void*, const void*, uint64_t, void*) -> tutti_status { return TUTTI_OK; };
  expect_failure(failure_of([&] { make_bootstrap(meeting, 60s); }), TUTTI_MISMATCH, {"foreign bytes at place 0"});
}

}  // namespace
}  // namespace tutti::core::test
