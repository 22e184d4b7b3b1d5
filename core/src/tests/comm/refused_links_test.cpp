// SPDX-License-Identifier: Apache-2.0
//
// A transport that both ranks of a pair offer, but over which one of them cannot connect when it comes to that: the
// pair does without it, and nobody else. The transport is "faulty", which is tcp by another name and comes before it.
#include <algorithm>
#include <numeric>
#include <thread>

#include "../../../tests/harness/faulty.hpp"
#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

constexpr uint32_t n = 3;
constexpr const char* both = "faulty,tcp";

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

// The transports that have carried bytes with each other rank: "- tcp faulty".
std::string carriers(const Communicator& world) {
  const std::vector<tutti_link_traffic> rows = world.traffic();
  std::string text;
  for (uint32_t peer = 0; peer < world.nranks(); ++peer) {
    const auto row = std::ranges::find(rows, peer, &tutti_link_traffic::peer);
    text += (peer ? " " : "") + std::string(row == rows.end() ? "-" : row->transport);
  }
  return text;
}

std::string topology(const Communicator& world) {
  std::string text(1 << 14, '\0');
  uint64_t bytes = text.size();
  EXPECT_EQ(tutti_comm_topology(world.handle(), text.data(), &bytes), TUTTI_OK);
  text.resize(bytes - 1);
  return text;
}

void exchange_all(const Communicator& world, uint64_t count) {
  std::vector<uint64_t> in(count * n), out(count * n), sum(count);
  std::iota(in.begin(), in.end(), world.rank() * 1000);
  world.all_to_all<uint64_t>(in, out);
  for (uint32_t peer = 0; peer < n; ++peer)
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(out[peer * count + i], peer * 1000 + world.rank() * count + i);
  world.all_reduce<uint64_t>({in.data(), count}, sum, Op::sum);
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], n * (n - 1) / 2 * 1000 + n * i);
}

class RefusedLinks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { faulty::load(); }
  void TearDown() override {
    faulty::refusers = 0;
    faulty::refusal = TUTTI_NO_RESOURCES;
    faulty::refuses_to_open = faulty::refuses_late = faulty::has_connected = false;
  }
};

TEST_F(RefusedLinks, OfOneRankAreServedByTheNextTransport) {
  faulty::refusers = 0b010;
  run_ranks(
      n,
      [](Communicator& world) {
        exchange_all(world, 1);
        exchange_all(world, 50'000);
        EXPECT_EQ(carriers(world), (std::array{"- tcp faulty", "tcp - tcp", "faulty tcp -"}[world.rank()]));
        for (const tutti_service& service : world.services())
          EXPECT_TRUE(!service.calls || std::string(service.transports) == (world.rank() == 1 ? "tcp" : "faulty+tcp"))
              << service.transports;
        const std::string line = world.rank() == 0   ? "  0 - 1: tcp serves, faulty was refused: rank 1: faulty: "
                                 : world.rank() == 1 ? "  0 - 1: tcp serves, faulty was refused: faulty: "
                                                     : "  1 - 2: tcp serves, faulty was refused: rank 1: faulty: ";
        EXPECT_TRUE(has(topology(world), line)) << topology(world);
        EXPECT_TRUE(has(topology(world), "no more queue pairs are to be had")) << topology(world);
      },
      {.transports = both});
}

TEST_F(RefusedLinks, OfAllRanksAtOnce) {
  for (const tutti_status status : {TUTTI_NO_RESOURCES, TUTTI_SYSTEM, TUTTI_NOT_SUPPORTED}) {
    faulty::refusal = status;
    faulty::refusers = 0b111;
    run_ranks(
        n,
        [](Communicator& world) {
          exchange_all(world, 1000);
          EXPECT_EQ(carriers(world), (std::array{"- tcp tcp", "tcp - tcp", "tcp tcp -"}[world.rank()]));
        },
        {.transports = both});
  }
}

// One end alone has something to say: the other one hears of it before its first call.
TEST_F(RefusedLinks, CarrySendsAndReceivesOfEitherEnd) {
  for (const uint32_t refuser : {0u, 1u})
    for (const uint64_t count : {1u, 1000u, 500'000u}) {
      faulty::refusers = 1u << refuser;
      run_ranks(
          2,
          [count](Communicator& world) {
            std::vector<uint32_t> data(count, world.rank() ? 0 : 7);
            if (world.rank() == 0)
              world.send<uint32_t>(data, 1, 3);
            else
              world.receive<uint32_t>(data, 0, 3);
            EXPECT_EQ(data, std::vector<uint32_t>(count, 7));
            if (world.rank() == 1)
              world.send<uint32_t>(data, 0, 4);
            else
              world.receive<uint32_t>(data, 1, 4);
            world.barrier();
          },
          {.transports = both});
    }
}

// Where the links that were refused are not used first, the others' calls go on.
TEST_F(RefusedLinks, LeaveCallsUnderWayAlone) {
  faulty::refusers = 0b100;
  run_ranks(
      n,
      [](Communicator& world) {
        constexpr uint64_t count = 1'000'000;
        std::vector<uint8_t> data(count, static_cast<uint8_t>(world.rank() + 1));
        std::vector<uint8_t> received(count);
        tutti_request* request = nullptr;
        if (world.rank() == 0)
          tutti_send(world.handle(), data.data(), count, TUTTI_UINT8, 1, 0, nullptr, &request);
        else if (world.rank() == 1)
          tutti_receive(world.handle(), received.data(), count, TUTTI_UINT8, 0, 0, nullptr, &request);
        exchange_all(world, 100);
        if (request) {
          EXPECT_EQ(tutti_request_wait(request), TUTTI_OK) << world.error_text();
          tutti_request_free(request);
        }
        EXPECT_EQ(received[count - 1], world.rank() == 1 ? 1 : 0);
        EXPECT_EQ(carriers(world), (std::array{"- faulty tcp", "faulty - tcp", "tcp tcp -"}[world.rank()]));
      },
      {.transports = both});
}

TEST_F(RefusedLinks, TakeWindowsAlong) {
  faulty::refusers = 0b001;
  run_ranks(
      n,
      [](Communicator& world) {
        constexpr uint64_t count = 100'000;
        std::vector<float> memory(2 * count, 1);
        const Window window(world, memory);
        for (int call = 0; call < 3; ++call) {
          const std::span<float> in(memory.data(), count), out(memory.data() + count, count);
          world.all_reduce<float>(in, out, Op::sum);
          EXPECT_EQ(std::ranges::count(out, 3.0f), static_cast<int64_t>(count));
        }
      },
      {.transports = both});
}

// A part opens its endpoints when it first uses them.
TEST_F(RefusedLinks, OfAPartWhoseEndpointCannotBeOpened) {
  run_ranks(
      n,
      [](Communicator& world) {
        exchange_all(world, 10);
        world.barrier();
        if (world.rank() == 0) {
          faulty::refuses_to_open = true;
          faulty::refusers = 0b010;
        }
        world.barrier();
        const Communicator part = world.duplicate();
        exchange_all(part, 10);
        exchange_all(part, 10'000);
        EXPECT_EQ(carriers(part), (std::array{"- tcp faulty", "tcp - tcp", "faulty tcp -"}[world.rank()]));
        EXPECT_EQ(carriers(world), (std::array{"- faulty faulty", "faulty - faulty", "faulty faulty -"}[world.rank()]));
      },
      {.transports = both});
}

TEST_F(RefusedLinks, OfAPartWhereTheTransportIsGone) {
  run_ranks(
      n,
      [](Communicator& world) {
        faulty::is_absent = world.rank() == 1;
        const Communicator part = world.duplicate();
        exchange_all(part, 10);
        EXPECT_EQ(carriers(part), (std::array{"- tcp faulty", "tcp - tcp", "faulty tcp -"}[world.rank()]));
        EXPECT_TRUE(has(topology(part), world.rank() == 1 ? "0 - 1: tcp serves, faulty was refused: its adapter is gone"
                                                          : "faulty was refused: rank 1: its adapter is gone"))
            << topology(part);
      },
      {.transports = both});
}

TEST_F(RefusedLinks, OfTheOnlyTransportAreAnErrorOnAllRanks) {
  faulty::refusers = 0b010;
  run_ranks(
      n,
      [](Communicator& world) {
        const Failed failed = failure_of([&] { exchange_all(world, 10); });
        EXPECT_EQ(failed.status, TUTTI_NO_RESOURCES) << failed.text;
        EXPECT_TRUE(has(failed.text, "faulty: connecting")) << failed.text;
        EXPECT_TRUE(has(failed.text, "no more queue pairs are to be had")) << failed.text;
      },
      {.transports = "faulty"});
}

// Settings that differ and defects concern any transport.
TEST_F(RefusedLinks, AreNoOtherErrors) {
  for (const tutti_status status : {TUTTI_MISMATCH, TUTTI_INTERNAL, TUTTI_TIMEOUT}) {
    faulty::refusal = status;
    faulty::refusers = 0b010;
    run_ranks(
        n,
        [status](Communicator& world) {
          EXPECT_EQ(failure_of([&] { exchange_all(world, 10); }).status, status) << world.error_text();
        },
        {.transports = both});
  }
}

// A plugin that breaks its contract: one end is connected, the other one cannot be.
TEST_F(RefusedLinks, AfterTheOtherEndHasConnectedAreADefect) {
  faulty::refusers = 0b010;
  faulty::refuses_late = true;
  run_ranks(
      2,
      [](Communicator& world) {
        const Failed failed = failure_of([&] { world.barrier(); });
        EXPECT_EQ(failed.status, TUTTI_INTERNAL) << failed.text;
        EXPECT_TRUE(has(failed.text,
                        "rank 1 cannot connect with this rank over faulty, but the endpoint here has "
                        "reported that they are connected: the plugin breaks its contract"))
            << failed.text;
      },
      {.transports = both});
}

}  // namespace
}  // namespace tutti::test
