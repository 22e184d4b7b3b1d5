// SPDX-License-Identifier: Apache-2.0
//
// wait_fd: no wake-up is lost, in either direction, for messages, room, released regions, control messages and posts.
#include <random>

#include "ranks.hpp"

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;

class Sleep : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(, Sleep, ::testing::Values(As::kThreads, As::kProcesses), [](const auto& which) {
  return which.param == As::kThreads ? std::string("threads") : std::string("processes");
});

// Waits for the condition by sleeping only; a lost wake-up shows as a timeout of poll. `asleep`, where given, becomes 1
// before the first sleep.
template <typename Condition>
uint32_t sleep_until(Rank& r, Condition condition, std::atomic<uint32_t>* asleep = nullptr) {
  int32_t fd = -1;
  REQUIRE(r.w->get_fd(r.endpoint, &fd) == TUTTI_OK);
  uint32_t sleeps = 0;
  const auto end = ranks::in_a_minute();
  while (r.progress(), !condition()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    const tutti_status armed = r.w->arm(r.endpoint);
    if (armed == TUTTI_AGAIN) continue;
    REQUIRE(armed == TUTTI_OK);
    if (asleep) *asleep = 1;
    pollfd wait{fd, POLLIN, 0};
    REQUIRE(poll(&wait, 1, 60000) == 1);
    r.w->disarm(r.endpoint);
    sleeps++;
  }
  return sleeps;
}

void random_pause(std::mt19937& random) {
  const uint32_t choice = random() % 4;
  if (choice == 0) usleep(random() % 200);
  if (choice == 1)
    for (volatile uint32_t i = random() % 3000; i > 0;) i = i - 1;
}

TEST_P(Sleep, NoWakeUpIsLostForMessagesAndRoom) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    std::mt19937 random(rank + 5);
    constexpr uint64_t kMessages = 4000;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < kMessages; i++) {
      const auto lane = static_cast<uint32_t>(i % 2);
      const uint64_t size = i % 5 == 0 ? 5000 : 8;
      if (rank == 0) {
        void* room = nullptr;
        sleep_until(r, [&] { return (room = r.v->try_reserve(link, lane, size)) != nullptr; });
        std::memcpy(room, &i, 8);
        r.v->commit(link, lane, size);
      } else {
        const void* message = nullptr;
        sleep_until(r, [&] { return (message = r.v->try_receive(link, lane, &bytes)) != nullptr; });
        uint64_t value;
        std::memcpy(&value, message, 8);
        REQUIRE(value == i && bytes == size);
        r.v->release(link, lane);
      }
      // The faster side changes, so that the receiver waits for messages and the sender for room.
      if ((i / 500) % 2 == rank) random_pause(random);
    }
    r.meet();
  });
}

TEST_P(Sleep, NoWakeUpIsLostForPostsAndControlMessages) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    std::mt19937 random(rank + 9);
    std::vector<uint8_t> buffer(65536);
    for (uint64_t i = 0; i < 1000; i++) {
      r.done.clear();
      REQUIRE(r.post(Rank::transfer(link, 0, rank == i % 2 ? TUTTI_TRANSFER_SEND : TUTTI_TRANSFER_RECV, buffer.data(),
                                    i % 3 ? 100 : 65536, i)));
      sleep_until(r, [&] { return r.done.size() == 1; });
      REQUIRE(r.done[0].status == TUTTI_OK && r.done[0].cookie == i);
      random_pause(random);
      if (rank != i % 2) REQUIRE(r.t->send_control(link, &i, 8) == TUTTI_OK);
      random_pause(random);
      if (rank == i % 2) sleep_until(r, [&] { return r.control.size() == i / 2 + 1; });
    }
    r.meet();
  });
}

TEST_P(Sleep, ReleaseOfARegionWakes) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(ftruncate(fd, 4096) == 0);
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    tutti_region* region = r.register_memory(memory, 4096, fd);
    std::mt19937 random(rank);
    for (int i = 0; i < 500; i++) {
      uint64_t ticket = 0, bytes;
      if (rank == 0) {
        REQUIRE(r.v->send_region(link, 0, region, 0, 4096, &ticket) == TUTTI_OK);
        sleep_until(r, [&] { return r.v->released(link, 0) > ticket; });
      } else {
        sleep_until(r, [&] { return r.v->try_receive(link, 0, &bytes) != nullptr; });
        random_pause(random);
        r.v->release(link, 0);
      }
    }
    r.meet();
    munmap(memory, 4096);
    close(fd);
  });
}

TEST_P(Sleep, RoomForARefusedControlMessageWakes) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    std::mt19937 random(rank);
    constexpr uint64_t kMessages = 1000;
    for (uint64_t i = 0; rank == 0 && i < kMessages; i++)
      sleep_until(r, [&] { return r.t->send_control(r.links[1], &i, 8) == TUTTI_OK; });
    r.until([&] {
      random_pause(random);
      return rank == 0 || r.control.size() == kMessages;
    });
    r.meet();
  });
}

TEST_P(Sleep, RoomThatCameBeforeArmIsNotSleptThrough) {
  const ranks::Setting off("TUTTI_SHM_DIRECT_COPY", "0");  // no other news
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    uint64_t sent = 0;
    if (rank == 0) {
      while (r.t->send_control(r.links[1], &sent, 8) == TUTTI_OK) sent++;
      board.word[0] = static_cast<uint32_t>(sent);
    }
    r.meet();
    r.until([&] { return rank == 0 || r.control.size() == board.word[0]; });
    r.meet();
    if (rank == 0) {
      r.progress();
      REQUIRE(r.w->arm(r.endpoint) == TUTTI_AGAIN);
      REQUIRE(r.w->arm(r.endpoint) == TUTTI_OK);  // it is told once
      r.w->disarm(r.endpoint);
      REQUIRE(r.t->send_control(r.links[1], &sent, 8) == TUTTI_OK);
    }
    r.meet();
  });
}

// A message that nobody takes keeps nobody from sleeping, and is told of once.
TEST_P(Sleep, AnEarlyMessageIsToldOnce) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    uint64_t bytes = 0;
    if (rank == 0) {
      std::memcpy(r.reserve(1, 0, 5), "early", 5);
      r.v->commit(link, 0, 5);
      r.meet();
      r.meet();
    } else {
      r.meet();
      for (int i = 0; i < 100; i++) r.progress();
      REQUIRE(r.w->arm(r.endpoint) == TUTTI_AGAIN);
      r.progress();
      REQUIRE(r.w->arm(r.endpoint) == TUTTI_OK);
      int32_t fd;
      REQUIRE(r.w->get_fd(r.endpoint, &fd) == TUTTI_OK);
      pollfd wait{fd, POLLIN, 0};
      REQUIRE(poll(&wait, 1, 20) == 0);
      r.w->disarm(r.endpoint);
      // But a receive that is posted for it is a reason not to sleep.
      char text[5];
      r.progress();
      REQUIRE(r.post(Rank::transfer(link, 0, TUTTI_TRANSFER_RECV, text, 5, 1)));
      REQUIRE(r.w->arm(r.endpoint) == TUTTI_AGAIN);
      r.until([&] { return r.done.size() == 1; });
      REQUIRE(std::memcmp(text, "early", 5) == 0);
      REQUIRE(r.v->try_receive(link, 0, &bytes) == nullptr);
      r.meet();
    }
  });
}

TEST_P(Sleep, AConnectingPeerAndADeadOneWake) {
  const bool processes = GetParam() == As::kProcesses;
  ranks::run(
      GetParam(), 2,
      [&](Board& board, uint32_t rank) {
        Rank r(board, rank, 2, {});
        r.meet();
        if (rank == 0) {
          usleep(20'000);
          r.until([&] { return r.try_connect(1) == TUTTI_OK; });
          r.until([&] { return board.word[0] == 1; });
          REQUIRE(r.t->send_control(r.links[1], "hi", 2) == TUTTI_OK);
          r.until([&] { return board.word[1] == 1; });
          usleep(20'000);
          if (processes) kill(getpid(), SIGKILL);
          REQUIRE(r.t->fail_peer(r.endpoint, 1) == TUTTI_OK);
          r.meet();
        } else {
          r.until([&] { return r.mail(1).taken == 1; });  // who carries pair messages wakes their receiver
          REQUIRE(sleep_until(
                      r, [&] { return r.control.size() == 1; }, &board.word[0]) >= 1);
          REQUIRE(sleep_until(
                      r, [&] { return r.failed.size() == 1; }, &board.word[1]) >= 1);
          if (!processes) r.meet();
        }
      },
      processes ? std::vector<uint32_t>{0} : std::vector<uint32_t>{});
}

}  // namespace
