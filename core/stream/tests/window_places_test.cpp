// SPDX-License-Identifier: Apache-2.0
//
// An address that lies in a window is not enough: the memory there may have been freed and other memory may have come
// to the same address, which peers do not have mapped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tutti/registry.h>

#include "base/failure.hpp"
#include "planned_calls.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t count = 1000;
alignas(64) float buffers[2][count];
uint64_t allocation = 1;  // which the device has at that address

// Rank 0 of two processes of a host, bound to a device that has what lies in `buffers`, and a window over both.
struct Rank {
  Topology topology;
  tutti_device memory{};
  tutti_executor executor{};
  tutti_transport transport{};
  Port port;
  std::vector<Link> links{2};
  WindowList windows;
  UserOperators operators;
  std::unique_ptr<Selector> selector;
  Planner planner;
  std::unique_ptr<PlannedCalls> calls;

  Rank() {
    memory.name = "planned";
    memory.classify = [](void*, const void*, tutti_pointer* pointer) -> tutti_status {
      pointer->kind = TUTTI_MEMORY_SIMULATED;
      pointer->base = buffers;
      pointer->bytes = sizeof buffers;
      pointer->buffer_id = allocation;
      return TUTTI_OK;
    };
    executor.prepare = [](void*, uint32_t) -> tutti_status { return TUTTI_OK; };
    executor.create_event = [](void*, uint32_t, tutti_event**) -> tutti_status { return TUTTI_OK; };
    executor.destroy_event = [](void*, tutti_event*) {};
    memory.map_host = [](void*, void* address, uint64_t, void** seen) -> tutti_status {
      *seen = address;
      return TUTTI_OK;
    };
    transport.name = "net";
    port.api = &transport;
    std::vector<RankDescription> ranks(2);
    for (uint32_t r = 0; r < 2; ++r) {
      ranks[r].host = "a";
      ranks[r].process = r + 1;
      ranks[r].transports = {{"net", "1", TUTTI_REACH_HOST, "", 64 << 10, 1000, 1'000'000'000}};
      links[r].peer = r;
      links[r].port = &port;
    }
    topology = Topology(ranks);
    windows.push_back(std::make_unique<tutti_window>());
    tutti_window& window = *windows.back();
    window.id = 7;
    window.address = reinterpret_cast<std::byte*>(buffers);
    window.bytes = sizeof buffers;
    window.where = {{&memory, &executor}, 0};
    window.buffer_id = allocation;
    selector = std::make_unique<Selector>(topology, AlgorithmFilter(""), list_algorithms(), 2, 1 << 20);
    planner = {0, 2, false, selector.get(), &links, &operators};
    StreamSetup setup;
    setup.topology = &topology;
    setup.planner = &planner;
    setup.links = &links;
    setup.lanes = 2;
    setup.communicator = 11;
    setup.scratch_limit = 1 << 20;
    setup.device = window.where;
    setup.windows = &windows;
    calls = std::make_unique<PlannedCalls>(std::move(setup));
  }
  // The hash of the places of a broadcast in one of the buffers; 0: it does not use windows.
  uint64_t places(const void* address) {
    StreamCall call;
    call.shape.collective = TUTTI_BROADCAST;
    call.shape.count = count;
    call.shape.dtype = TUTTI_FLOAT32;
    call.shape.in_place = 1;
    call.in = call.out = const_cast<void*>(address);
    calls->plans.find(call, nullptr);
    return calls->plans.places().hash();
  }
};

TEST(WindowPlaces, ABufferIsKnownByItsPlace) {
  Rank rank;
  EXPECT_NE(rank.places(buffers[0]), 0u);
  EXPECT_NE(rank.places(buffers[1]), rank.places(buffers[0]));
  EXPECT_EQ(rank.places(buffers[1] + 1), 0u) << "its end lies outside";
  rank.windows[0]->staged = "the ranks are on several hosts";
  EXPECT_EQ(rank.places(buffers[0]), 0u);
}

TEST(WindowPlaces, OtherMemoryAtARegisteredAddressIsRefused) {
  Rank rank;
  EXPECT_NE(rank.places(buffers[0]), 0u);
  ++allocation;
  try {
    rank.places(buffers[0]);
    ADD_FAILURE() << "it was taken for the window's memory";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, TUTTI_INVALID_ARGUMENT);
    for (const char* words : {"window 7", "freed", "tutti_comm_deregister"})
      EXPECT_NE(failure.text.find(words), std::string::npos) << failure.text;
  }
  --allocation;
  EXPECT_NE(rank.places(buffers[0]), 0u);
}

// Peers tell each other which bytes of which buffers their messages carry.
TEST(WindowPlaces, WordsOfPeersAreCheckedBeforeUse) {
  WindowProposal words;
  words.scratch = 64;
  words.sent = {{1, 0, 3, TUTTI_BUFFER_SCRATCH, 128, 4096}};
  const std::string bytes = encode(words);
  const auto read = decode_all<WindowProposal>({bytes, bytes}, "words");
  EXPECT_EQ(read[1].scratch, 64u);
  EXPECT_EQ(read[1].sent, words.sent);

  const auto refused = [&](const std::string& second, const char* why) {
    try {
      decode_all<WindowProposal>({bytes, second}, "words");
      ADD_FAILURE() << "it was taken";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_MISMATCH);
      for (const char* text : {"rank 1's words", why})
        EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text;
    }
  };
  for (size_t n = 0; n < bytes.size(); ++n) refused(bytes.substr(0, n), "left");
  refused(bytes + '\0', "too many");
  words.sent[0].buffer = TUTTI_BUFFER_SCRATCH + 1;
  refused(encode(words), "buffer");
  words.refusal = "two\nlines";
  refused(encode(words), "refusal");
}

// Rank 1 says where the messages lie that rank 0 reads in place.
TEST(WindowPlaces, MessagesOfPeersLieInTheirBuffers) {
  Rank rank;
  Schedule schedule;
  const Shape all_reduce{count, TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM};
  Plan bound = rank.planner.plan(all_reduce, true, UINT64_MAX, schedule);
  const StreamPlan plan =
      bind_stream_plan(std::move(bound), std::move(schedule), [](uint32_t, bool) { return Windows::way(); });
  constexpr uint64_t scratch = 512;
  const auto taken = [&](const std::vector<WindowProposal>& all, const WindowPlaces& places) {
    return table_of(plan, 0, all, places, [](uint32_t) { return scratch; });
  };
  WindowPlaces in_both;
  in_both.in.window = in_both.out.window = rank.windows[0].get();
  std::vector<WindowProposal> all(2);
  for (const StreamTraffic& way : plan.traffic)
    for (uint32_t number = 0; number < way.sizes.size() && !way.outgoing; ++number)
      all[1].sent.push_back({0, way.lane, number, TUTTI_BUFFER_IN, 0, way.sizes[number]});
  ASSERT_FALSE(all[1].sent.empty());
  EXPECT_EQ(taken(all, in_both)->incoming.size(), plan.traffic.size());

  const auto refused = [&](const std::function<void(WindowMessage&)>& change, const WindowPlaces& places,
                           const std::string& words) {
    std::vector<WindowProposal> changed = all;
    change(changed[1].sent.back());
    try {
      taken(changed, places);
      ADD_FAILURE() << "it was taken, not: " << words;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_MISMATCH);
      EXPECT_EQ(failure.text.find("rank 1 sends " + words), 0u) << failure.text;
    }
  };
  const uint64_t bytes = all[1].sent.back().bytes;
  ASSERT_GT(bytes, scratch);
  const auto beyond = [&](uint64_t offset, uint64_t room) {
    return fmt::format("{} bytes at {} of a buffer that has {}", bytes, offset, room);
  };
  const uint64_t whole = plan.plan.in_bytes, end = whole - bytes;
  all[1].sent.back().offset = end;
  EXPECT_NO_THROW(taken(all, in_both));
  for (const uint64_t offset : {end + 1, whole, whole + 1, UINT64_MAX - bytes + 1, UINT64_MAX})
    for (const uint32_t buffer : {TUTTI_BUFFER_IN, TUTTI_BUFFER_OUT})
      refused([&](WindowMessage& m) { m.offset = offset, m.buffer = buffer; }, in_both, beyond(offset, whole));
  refused([](WindowMessage& m) { m.offset = 0, m.buffer = TUTTI_BUFFER_SCRATCH; }, in_both, beyond(0, scratch));
  refused([](WindowMessage& m) { m.offset = 0; }, {}, beyond(0, 0));  // the call's IN is in no window
  refused([](WindowMessage& m) { ++m.number; }, in_both, "other messages than this rank receives");
  refused([](WindowMessage& m) { ++m.lane; }, in_both, "other messages than this rank receives");
  refused([](WindowMessage& m) { ++m.peer; }, in_both, "other messages than this rank receives");
  refused([](WindowMessage& m) { --m.bytes; }, in_both, "other messages than this rank receives");
}

}  // namespace
}  // namespace tutti::core
