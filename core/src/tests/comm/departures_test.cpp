// SPDX-License-Identifier: Apache-2.0
//
// A rank that destroys its communicator ends the transfers that wait for it, long before their deadlines, and loses no
// message that it has sent.
#include <tutti/tutti.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <semaphore>

#include "../../../tests/harness/faulty.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

std::string text_of(const auto&... parts) { return (std::string() + ... + parts); }

// A transfer with a rank that leaves, as a call of rank 0.
struct Transferring {
  const char* what;
  std::vector<uint32_t> leavers;  // of ranks 1 and 2
  std::string error;
  std::function<tutti_status(tutti_comm* comm)> call;
};

tutti_status wait_and_free(tutti_request* request) {
  const tutti_status status = tutti_request_wait(request);
  tutti_request_free(request);
  return status;
}

std::vector<Transferring> transfers_with_leavers() {
  static std::vector<float> data(100'000);
  const auto named = [](const char* transfer) {
    return text_of("rank 1 has not matched rank 0's ", transfer, ": it destroys the communicator instead");
  };
  const auto receive = [](tutti_comm* comm, tutti_request** request) {
    return tutti_receive(comm, data.data(), 1, TUTTI_FLOAT32, 1, 7, nullptr, request);
  };
  return {
      {"receive", {1}, named("receive of 4 bytes from rank 1 with tag 7"),
       [=](tutti_comm* comm) { return receive(comm, nullptr); }},
      {"asynchronous receive", {1}, named("receive of 4 bytes from rank 1 with tag 7"),
       [=](tutti_comm* comm) {
         tutti_request* request = nullptr;
         EXPECT_EQ(receive(comm, &request), TUTTI_OK);
         return wait_and_free(request);
       }},
      {"group", {1}, named("receive of 4 bytes from rank 1 with tag 7"),
       [=](tutti_comm* comm) {
         EXPECT_EQ(tutti_group_begin(comm), TUTTI_OK);
         EXPECT_EQ(receive(comm, nullptr), TUTTI_OK);
         return tutti_group_end(comm, nullptr, nullptr);
       }},
      {"receive from any rank", {1, 2},
       named("receive of 4 bytes from any rank with tag 7") + ", as all other ranks do",
       [](tutti_comm* comm) {
         tutti_envelope any{sizeof any, TUTTI_ANY_PEER, 0, 7, 0};
         return tutti_receive_any(comm, data.data(), 1, TUTTI_FLOAT32, &any, nullptr, nullptr);
       }},
      {"send of many bytes", {1}, named("send of 400000 bytes to rank 1 with tag 7"),
       [](tutti_comm* comm) {
         return tutti_send(comm, data.data(), data.size(), TUTTI_FLOAT32, 1, 7, nullptr, nullptr);
       }},
  };
}

// Three ranks with deadlines of ten minutes; `body` uses a rank's communicator and ends it.
void with_patient_ranks(const char* transports, const std::function<void(uint32_t rank, tutti_comm* comm)>& body) {
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      tutti_comm_config config = config_of(place, r, 3);
      config.transports = transports;
      config.connect_timeout_ns = config.timeout_ns = 600'000'000'000;
      tutti_comm* comm = nullptr;
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
      body(r, comm);
    });
  for (std::thread& t : threads) t.join();
}

// The leavers leave before the call, or while it waits.
TEST(Departures, EndTransfersWithTheRankThatLeaves) {
  for (const Transferring& transfer : transfers_with_leavers())
    for (const char* transports : {"shm", "tcp"})
      for (const uint32_t late : {0u, 1u}) {
        SCOPED_TRACE(text_of(transfer.what, " over ", transports, late ? ", which begins late" : ""));
        const VirtualTime time;
        with_patient_ranks(transports, [&](uint32_t r, tutti_comm* comm) {
          const bool leaves = std::ranges::count(transfer.leavers, r) > 0;
          if (leaves != bool(late)) std::this_thread::sleep_for(std::chrono::seconds(20));
          if (r == 0) {
            EXPECT_EQ(transfer.call(comm), TUTTI_PEER_FAILED);
            EXPECT_TRUE(std::string(tutti_comm_error(comm)).starts_with(transfer.error)) << tutti_comm_error(comm);
          } else if (!leaves) {
            while (tutti_comm_async_error(comm) == TUTTI_OK)
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
          }
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_PEER_FAILED);
        });
        EXPECT_LT(time.passed(), std::chrono::seconds(60));
      }
}

// A message that a rank has sent before it leaves comes, whether the other one waits for it already or receives it later; and
// short messages to a rank that leaves are sent.
TEST(Departures, LoseNoMessageOfTheRankThatLeaves) {
  constexpr uint32_t messages = 10;
  for (const char* transports : {"shm", "tcp"})
    for (const uint32_t late : {0u, 1u}) {
      const VirtualTime time;
      with_patient_ranks(transports, [&](uint32_t r, tutti_comm* comm) {
        if (r == late) std::this_thread::sleep_for(std::chrono::seconds(20));
        std::vector<float> data(100'000, float(r));
        const auto transfer = [&](auto call, uint32_t peer, uint32_t tag, uint64_t count) {
          EXPECT_EQ(call(comm, data.data(), count, TUTTI_FLOAT32, peer, tag, nullptr, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        if (r == 1) {
          transfer(tutti_send, 0, 5, data.size());
          for (uint32_t m = 0; m < messages; ++m) transfer(tutti_send, 0, m + 10, 1);
        } else if (r == 0) {
          transfer(tutti_receive, 1, 5, data.size());
          EXPECT_EQ(data.back(), 1);
          std::this_thread::sleep_for(std::chrono::seconds(late ? 0 : 20));
          for (uint32_t m = messages; m-- > 0;) transfer(tutti_receive, 1, m + 10, 1);
          transfer(tutti_send, 1, 99, 1);
          EXPECT_EQ(tutti_receive(comm, data.data(), 1, TUTTI_FLOAT32, 1, 5, nullptr, nullptr), TUTTI_PEER_FAILED);
        } else {
          while (tutti_comm_async_error(comm) == TUTTI_OK) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_PEER_FAILED);
      });
      EXPECT_LT(time.passed(), std::chrono::seconds(120));
    }
}

// The word that a rank leaves may overtake its messages, which go another way.
TEST(Departures, AreNotBelievedBeforeTheLastMessage) {
  faulty::load();
  const VirtualTime time;
  std::binary_semaphore waits{0}, left{0};
  with_patient_ranks("faulty", [&](uint32_t r, tutti_comm* comm) {
    float data = float(r);
    const auto receive = [&](uint32_t tag, tutti_request** request) {
      return tutti_receive(comm, &data, 1, TUTTI_FLOAT32, 1, tag, nullptr, request);
    };
    if (r == 0) {
      EXPECT_EQ(receive(6, nullptr), TUTTI_OK);  // they are connected
      tutti_request* request = nullptr;
      EXPECT_EQ(receive(7, &request), TUTTI_OK);
      EXPECT_EQ(tutti_request_wait_for(request, 1'000'000'000), TUTTI_AGAIN);
      waits.release();
      EXPECT_EQ(wait_and_free(request), TUTTI_OK) << tutti_comm_error(comm);
      EXPECT_EQ(data, 1);
    } else if (r == 1) {
      EXPECT_EQ(tutti_send(comm, &data, 1, TUTTI_FLOAT32, 0, 6, nullptr, nullptr), TUTTI_OK);
      waits.acquire();
      faulty::holds_back = true;
      EXPECT_EQ(tutti_send(comm, &data, 1, TUTTI_FLOAT32, 0, 7, nullptr, nullptr), TUTTI_OK);
      left.release();
    } else {
      left.acquire();
      std::this_thread::sleep_for(std::chrono::seconds(30));
      faulty::holds_back = false;
    }
    EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK) << tutti_comm_error(comm);
  });
}

// A receive from any rank goes on as long as one is there.
TEST(Departures, LeaveAReceiveFromAnyRankToThoseThatStay) {
  for (const char* transports : {"shm", "tcp"}) {
    const VirtualTime time;
    with_patient_ranks(transports, [&](uint32_t r, tutti_comm* comm) {
      float data = float(r);
      if (r == 0) {
        tutti_envelope any{sizeof any, TUTTI_ANY_PEER, 0, 7, 0};
        EXPECT_EQ(tutti_receive_any(comm, &data, 1, TUTTI_FLOAT32, &any, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        EXPECT_EQ(data, 2);
      } else if (r == 2) {
        std::this_thread::sleep_for(std::chrono::seconds(100));
        EXPECT_EQ(tutti_send(comm, &data, 1, TUTTI_FLOAT32, 0, 7, nullptr, nullptr), TUTTI_OK);
      }
      EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK) << tutti_comm_error(comm);
    });
  }
}

}  // namespace
}  // namespace tutti::test
