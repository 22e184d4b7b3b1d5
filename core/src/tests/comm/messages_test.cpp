// SPDX-License-Identifier: Apache-2.0
//
// The ways of messages: part of their announcement, in a lane of their own, or behind the answer of the receiver.
// However they travel, they match in the order in which they were sent.
#include <array>
#include <cstdint>
#include <vector>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

constexpr const char* kTransports[] = {"shm", "tcp"};
// Around the limits of each way: in a descriptor of shm, a control message, a lane.
constexpr std::array<uint64_t, 12> kLengths{0, 1, 24, 25, 232, 233, 5000, 16383, 16384, 16385, 65536, 300'000};

std::vector<uint8_t> message(uint64_t number, uint64_t bytes) {
  std::vector<uint8_t> made(bytes);
  for (uint64_t i = 0; i < bytes; ++i) made[i] = static_cast<uint8_t>(number * 31 + i * 7 + i / 251);
  return made;
}

// Each rank has received a message of the other one: from now on both know that lanes are read.
void greet(Communicator& world) {
  const uint32_t other = 1 - world.rank();
  std::array<uint8_t, 1> data{};
  for (const uint32_t sender : {1u, 0u, 1u}) {
    if (world.rank() == sender)
      world.send<uint8_t>(data, other, 99);
    else
      world.receive<uint8_t>(data, other, 99);
  }
}

// More are under way than a lane or a ring of control messages holds, so they take both.
TEST(Messages, MatchInTheOrderInWhichTheyWereSent) {
  constexpr uint32_t n = 120, tags = 3;
  for (const char* transports : kTransports)
    for (const bool early : {false, true})  // are the receives there before the sends?
      run_ranks(
          2,
          [early](Communicator& world) {
            const auto length = [](uint32_t i) { return kLengths[i * 5 % kLengths.size()]; };
            greet(world);
            std::vector<Request> requests;
            std::vector<std::vector<uint8_t>> data(n);
            if (early && world.rank() == 1) world.barrier();
            for (uint32_t tag = 0; tag < tags; ++tag)
              for (uint32_t i = tags - 1 - tag; i < n && world.rank() == 0; i += tags) {
                data[i].resize(length(i));
                if (!early && requests.empty()) world.barrier();
                requests.push_back(world.async().receive<uint8_t>(data[i], 1, i % tags));
              }
            for (uint32_t i = 0; i < n && world.rank() == 1; ++i) {
              data[i] = message(i, length(i));
              requests.push_back(world.async().send<uint8_t>(data[i], 0, i % tags));
            }
            if (early == (world.rank() == 0)) world.barrier();
            for (Request& request : requests) request.wait();
            for (uint32_t i = 0; i < n; ++i) EXPECT_TRUE(data[i] == message(i, length(i))) << "message " << i;
          },
          {.transports = transports});
}

// A ring of exchanges.
TEST(Messages, OfExchangesCome) {
  for (const char* transports : kTransports)
    run_ranks(
        3,
        [](Communicator& world) {
          const uint32_t n = world.nranks(), rank = world.rank();
          for (uint32_t round = 0; round < 60; ++round)
            for (const uint64_t bytes : kLengths) {
              const std::vector<uint8_t> out = message(round + rank, bytes);
              std::vector<uint8_t> in(bytes);
              const tutti_message both[] = {
                  {const_cast<uint8_t*>(out.data()), bytes, TUTTI_UINT8, (rank + 1) % n, round, TUTTI_SEND, {}},
                  {in.data(), bytes, TUTTI_UINT8, (rank + n - 1) % n, round, TUTTI_RECEIVE, {}}};
              ASSERT_EQ(tutti_exchange(world.handle(), both, 2, nullptr, nullptr), TUTTI_OK)
                  << tutti_comm_error(world.handle());
              ASSERT_TRUE(in == message(round + (rank + n - 1) % n, bytes)) << bytes << " in round " << round;
            }
        },
        {.transports = transports});
}

// Sends of up to 16 KiB end without their receives.
TEST(Messages, OfUpTo16KiBDoNotWaitForTheirReceives) {
  for (const char* transports : kTransports)
    run_ranks(
        2,
        [](Communicator& world) {
          constexpr std::array<uint64_t, 3> lengths{16384, 233, 5000};
          greet(world);
          for (uint32_t i = 0; i < lengths.size() && world.rank() == 1; ++i) world.send(message(i, lengths[i]), 0, i);
          world.barrier();
          for (uint32_t i = lengths.size(); i-- > 0 && world.rank() == 0;) {
            std::vector<uint8_t> data(lengths[i]);
            world.receive<uint8_t>(data, 1, i);
            EXPECT_TRUE(data == message(i, lengths[i])) << lengths[i];
          }
        },
        {.transports = transports});
}

// The receiver hears of it, and the next message comes as it should.
TEST(Messages, OfAnotherLengthAreErrors) {
  for (const char* transports : kTransports)
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}, uint64_t{5000}, uint64_t{16383}})
      run_ranks(
          2,
          [bytes](Communicator& world) {
            greet(world);
            if (world.rank() == 1) {
              for (const uint64_t length : {bytes, bytes + 1}) world.send(message(length, length), 0, 3);
              return;
            }
            std::vector<uint8_t> data(bytes + 1);
            const Failed failed = failure_of([&] { world.receive<uint8_t>(data, 1, 3); });
            EXPECT_EQ(failed.status, TUTTI_MISMATCH);
            EXPECT_NE(failed.text.find("matched a send of " + std::to_string(bytes) + " bytes"), std::string::npos)
                << failed.text;
            EXPECT_TRUE(data == std::vector<uint8_t>(bytes + 1)) << "something was written";
            world.receive<uint8_t>(data, 1, 3);
            EXPECT_TRUE(data == message(bytes + 1, bytes + 1));
          },
          {.transports = transports});
}

}  // namespace
}  // namespace tutti::test
