// SPDX-License-Identifier: Apache-2.0
//
// Receives from any rank or with any tag, and probes. Ranks as threads.
#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Short ones travel with their announcement, long ones after it.
constexpr size_t kLengths[] = {0, 1, 40, 5000, 300'000};

std::vector<uint8_t> message(uint32_t from, uint32_t tag, size_t bytes) {
  return std::vector<uint8_t>(bytes, static_cast<uint8_t>(from * 50 + tag));
}

TEST(AnySource, EveryMessageComesOnceWithItsEnvelope) {
  for (const char* transports : {"shm", "tcp"})
    for (const size_t bytes : kLengths)
      run_ranks(4,
                [&](Communicator& world) {
                  constexpr uint32_t each = 5;
                  if (world.rank() != 2) {
                    for (uint32_t tag = 0; tag < each; ++tag) world.send(message(world.rank(), tag, bytes), 2, tag);
                    return;
                  }
                  std::map<uint32_t, uint32_t> next;
                  for (uint32_t i = 0; i < 3 * each; ++i) {
                    std::vector<uint8_t> data(bytes);
                    tutti_envelope envelope = any_message();
                    world.receive_any(data, envelope);
                    EXPECT_EQ(envelope.bytes, bytes);
                    EXPECT_EQ(envelope.tag, next[envelope.peer]++) << "of rank " << envelope.peer;
                    EXPECT_EQ(data, message(envelope.peer, envelope.tag, bytes));
                  }
                  EXPECT_EQ(next, (std::map<uint32_t, uint32_t>{{0, each}, {1, each}, {3, each}}));
                },
                {.transports = transports});
}

TEST(AnySource, TheTagOrTheRankMayBeGiven) {
  run_ranks(3, [](Communicator& world) {
    if (world.rank() > 0) {
      for (const uint32_t tag : {7u, 8u}) world.send(message(world.rank(), tag, 100), 0, tag);
      return;
    }
    std::vector<uint8_t> data(100);
    std::set<uint32_t> from;
    for (int i = 0; i < 2; ++i) {
      tutti_envelope envelope = from_any(8);
      world.receive_any(data, envelope);
      EXPECT_EQ(data, message(envelope.peer, 8, 100));
      from.insert(envelope.peer);
    }
    EXPECT_EQ(from, (std::set<uint32_t>{1, 2}));
    for (const uint32_t peer : {2u, 1u}) {
      tutti_envelope envelope = any_from(peer);
      world.receive_any(data, envelope);
      EXPECT_EQ(envelope.peer, peer);
      EXPECT_EQ(envelope.tag, 7u);
      EXPECT_EQ(data, message(peer, 7, 100));
    }
  });
}

// Receives take messages in the order in which they were issued, whatever they ask for.
TEST(AnySource, TheEarliestReceiveThatFitsGetsTheMessage) {
  for (const size_t bytes : {size_t{8}, size_t{5000}})
    run_ranks(2, [&](Communicator& world) {
      if (world.rank() == 1) {
        world.barrier();
        for (const uint32_t tag : {5u, 6u, 5u, 9u}) world.send(message(1, tag, bytes), 0, tag);
        return;
      }
      std::vector<std::vector<uint8_t>> data(4, std::vector<uint8_t>(bytes));
      tutti_envelope any = any_message(), tagged = any_from(1), last = from_any(5);
      std::vector<Request> requests;
      requests.push_back(world.async().receive<uint8_t>(data[0], 1, 6));
      requests.push_back(world.async().receive_any(data[1], any));     // the first message: 5
      requests.push_back(world.async().receive_any(data[2], last));    // the third: 5
      requests.push_back(world.async().receive_any(data[3], tagged));  // the fourth: 9
      world.barrier();
      for (Request& request : requests) request.wait();
      EXPECT_EQ(any.tag, 5u);
      EXPECT_EQ(any.peer, 1u);
      EXPECT_EQ(tagged.tag, 9u);
      EXPECT_EQ(data[0], message(1, 6, bytes));
      EXPECT_EQ(data[2], message(1, 5, bytes));
      EXPECT_EQ(data[3], message(1, 9, bytes));
    });
}

TEST(Probe, TellsWhatAReceiveWouldMeet) {
  for (const size_t bytes : kLengths)
    run_ranks(3, [&](Communicator& world) {
      if (world.rank() == 1) return world.send(message(1, 3, bytes), 0, 3);
      if (world.rank() == 2) return;
      const auto found = world.probe(any_message(), seconds(60));
      ASSERT_TRUE(found);
      EXPECT_EQ(found->peer, 1u);
      EXPECT_EQ(found->tag, 3u);
      EXPECT_EQ(found->bytes, bytes);
      EXPECT_FALSE(world.probe(from(1, 4))) << "no such tag";
      EXPECT_FALSE(world.probe(any_from(2), milliseconds(20))) << "no such rank";
      EXPECT_TRUE(world.probe(from(1, 3)));
      std::vector<uint8_t> data(found->bytes);
      world.receive<uint8_t>(data, found->peer, found->tag);
      EXPECT_EQ(data, message(1, 3, bytes));
      EXPECT_FALSE(world.probe(any_message()));
    });
}

// Random groups of messages, which rank 0 takes one by one as they come.
TEST(Probe, TakesWhateverComes) {
  run_ranks(4, [](Communicator& world) {
    constexpr uint32_t each = 100;
    if (world.rank() > 0) {
      std::mt19937 random(world.rank());
      for (uint32_t i = 0; i < each; ++i) {
        const auto tag = static_cast<uint32_t>(random() % 4);
        world.send(message(world.rank(), tag, random() % 3000), 0, tag);
      }
      return;
    }
    std::map<uint32_t, uint32_t> from;
    for (uint32_t i = 0; i < 3 * each; ++i) {
      tutti_envelope envelope = *world.probe(any_message(), seconds(-1));
      std::vector<uint8_t> data(envelope.bytes);
      if (i % 2) {
        world.receive<uint8_t>(data, envelope.peer, envelope.tag);
      } else {
        envelope.flags = 0;
        world.receive_any(data, envelope);
      }
      EXPECT_EQ(data, message(envelope.peer, envelope.tag, envelope.bytes));
      ++from[envelope.peer];
    }
    EXPECT_EQ(from, (std::map<uint32_t, uint32_t>{{1, each}, {2, each}, {3, each}}));
  });
}

TEST(AnySourceFails, WhereTheSizeDiffers) {
  for (const size_t bytes : {size_t{8}, size_t{50'000}})
    run_ranks(2, [&](Communicator& world) {
      if (world.rank() == 1) {
        if (bytes > 100)
          EXPECT_EQ(failure_of([&] { world.send(message(1, 2, bytes), 0, 2); }).status, TUTTI_MISMATCH);
        else
          world.send(message(1, 2, bytes), 0, 2);
        return;
      }
      std::vector<uint8_t> data(bytes + 1);
      tutti_envelope envelope = any_message();
      const Failed failed = failure_of([&] { world.receive_any(data, envelope); });
      EXPECT_EQ(failed.status, TUTTI_MISMATCH);
      EXPECT_NE(failed.text.find("from rank 1 with tag 2 matched a send of"), std::string::npos) << failed.text;
      EXPECT_EQ(envelope.bytes, 0u) << "it was written";
    });
}

TEST(AnySourceFails, WhereNothingComes) {
  const VirtualTime time;
  run_ranks(2,
            [](Communicator& world) {
              std::vector<uint8_t> data(8);
              tutti_envelope envelope = from_any(4);
              const Failed failed = failure_of([&] { world.receive_any(data, envelope); });
              EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
              EXPECT_NE(failed.text.find("receive from any rank with tag 4"), std::string::npos) << failed.text;
            },
            {.timeout_ns = default_timeout});
  EXPECT_GE(time.passed(), std::chrono::seconds(600));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
}

TEST(AnySourceFails, WhereTheArgumentsAreWrong) {
  run_ranks(2, [](Communicator& world) {
    uint8_t byte = 0;
    const auto refused = [&](tutti_envelope envelope, tutti_status status, const char* words) {
      EXPECT_EQ(tutti_receive_any(world.handle(), &byte, 1, TUTTI_UINT8, &envelope, nullptr, nullptr), status);
      EXPECT_NE(world.error_text().find(words), std::string::npos) << world.error_text();
      EXPECT_EQ(tutti_probe(world.handle(), &envelope, 0), status);
      EXPECT_NE(world.error_text().find(words), std::string::npos) << world.error_text();
    };
    refused({sizeof(tutti_envelope), 4, 0, 0, 0}, TUTTI_NOT_SUPPORTED,
            "envelope.flags is 0x4, expected TUTTI_ANY_PEER");
    refused({0, 0, 0, 0, 0}, TUTTI_INVALID_ARGUMENT, "tutti_envelope.struct_size");
    refused({sizeof(tutti_envelope), 0, 2, 0, 0}, TUTTI_INVALID_ARGUMENT, "envelope.peer is 2");
    refused({sizeof(tutti_envelope), 0, world.rank(), 0, 0}, TUTTI_INVALID_ARGUMENT, "this rank itself");
    EXPECT_EQ(tutti_probe(world.handle(), nullptr, 0), TUTTI_INVALID_ARGUMENT);
    world.barrier();
  });
  run_ranks(1, [](Communicator& world) {
    uint8_t byte = 0;
    tutti_envelope envelope = any_message();
    EXPECT_EQ(failure_of([&] { world.receive_any(std::span(&byte, 1), envelope); }).status, TUTTI_INVALID_ARGUMENT);
    EXPECT_FALSE(world.probe(any_message(), milliseconds(1)));
  });
}

TEST(AnySourceFails, WithTheCommunicator) {
  run_ranks(3, [](Communicator& world) {
    if (world.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(20));
      return world.abort("nothing is sent");
    }
    std::vector<uint8_t> data(8);
    tutti_envelope envelope = any_message();
    const Failed failed = failure_of([&] {
      if (world.rank() == 1) world.receive_any(data, envelope);
      world.probe(any_message(), seconds(-1));
    });
    EXPECT_EQ(failed.status, TUTTI_ABORTED);
    EXPECT_TRUE(failed.text.starts_with("rank 0 aborted: nothing is sent")) << failed.text;
  });
}

}  // namespace
}  // namespace tutti::test
