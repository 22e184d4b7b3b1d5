// SPDX-License-Identifier: Apache-2.0
//
// Each flag between streams of two processes has a cache line of its own, as mapped.h asks: ends that poll different
// flags do not slow each other down. Read from the places that channels and windows give to streams.
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <set>

#include "../../tests/harness/test_device.hpp"
#include "stream/mapped_channel.hpp"
#include "stream/windows.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t cache_line = 64;

// Memory that a transport maps, which peers have mapped at once.
alignas(4096) std::byte arena[4 << 20];
uint64_t used_bytes = 0;
uint64_t asked_bytes = 0;  // of the flags of two ranks
tutti_status map_bytes(uint64_t bytes, tutti_mapped_place* place) {
  place->device = place->host = arena + used_bytes;
  place->bytes = bytes;
  used_bytes += (bytes + 4095) / 4096 * 4096;
  return used_bytes <= sizeof arena ? TUTTI_OK : TUTTI_NO_RESOURCES;
}

// Rank 0 or 2, of three processes with one device each and mapped memory between any two of them.
struct MappedRank {
  tutti_mapped mapped{};
  Topology topology;
  Port port;
  std::vector<Link> links{3};
  StreamSetup setup;
  PeerMemory peers;
  DeviceGate::User gate;
  Windows windows;

  explicit MappedRank(uint32_t rank)
      : topology(described()),
        setup(made(rank)),
        peers(setup.device, &links),
        gate(setup.device, 1, "rank"),
        windows(setup, peers, gate) {
    used_bytes = 0;
    mapped.share = [](tutti_link*, const tutti_share_config* config, tutti_share** share,
                      tutti_mapped_place* place) -> tutti_status {
      *share = reinterpret_cast<tutti_share*>(place);
      if (!config->address) asked_bytes = config->bytes;
      return map_bytes(config->bytes, place);
    };
    mapped.share_state = [](tutti_share*) -> tutti_status { return TUTTI_OK; };
    mapped.open_mapping = [](tutti_link*, uint64_t, const tutti_mapped_device*, tutti_mapping** mapping,
                             tutti_mapped_place* place) -> tutti_status {
      *mapping = reinterpret_cast<tutti_mapping*>(place);
      return map_bytes(256 << 10, place);
    };
    port.mapped = &mapped;
    for (uint32_t peer = 0; peer < 3; ++peer) {
      links[peer].peer = peer;
      links[peer].port = &port;
      links[peer].handle = reinterpret_cast<tutti_link*>(this);
    }
  }
  static std::vector<RankDescription> described() {
    std::vector<RankDescription> ranks(3);
    for (uint32_t r = 0; r < 3; ++r) ranks[r].process = r + 1;
    return ranks;
  }
  StreamSetup made(uint32_t rank) {
    StreamSetup all;
    all.rank = rank;
    all.topology = &topology;
    all.device = {test::device(), 0};
    all.lanes = 2;
    return all;
  }
};

// No two flags share a line, and none reaches into the line of another.
void expect_apart(const std::multiset<uintptr_t>& flags) {
  for (auto at = flags.begin(); std::next(at) != flags.end(); ++at) {
    EXPECT_EQ(*at % sizeof(uint32_t), 0u);
    EXPECT_GE(*std::next(at) - *at, cache_line);
  }
}

TEST(WindowFlags, HaveCacheLinesOfTheirOwn) {
  for (const uint32_t of : {0u, 2u}) {
    MappedRank rank(of);
    std::vector<std::byte> data(64);
    tutti_window window;
    window.id = 1;
    window.address = data.data();
    window.bytes = data.size();
    ASSERT_EQ(rank.windows.share(window, [](const auto& enough) { EXPECT_TRUE(enough()); }), "");
    StreamPlan plan;
    for (uint32_t peer = 0; peer < 3; ++peer)
      for (uint32_t lane = 0; peer != of && lane < rank.setup.lanes; ++lane)
        for (const bool outgoing : {true, false})
          plan.traffic.push_back({peer, lane, outgoing, std::vector<uint64_t>(Windows::most_messages)});
    std::multiset<uintptr_t> flags;
    for (const StreamTraffic& way : plan.traffic) {
      std::unique_ptr<StreamChannel> made;
      const StreamChannel& channel = rank.windows.open(way, made);
      for (uint64_t number = 0; number < Windows::most_messages; ++number)
        for (const uint32_t* flag : {channel.awaited(number), channel.notified(number)})
          flags.insert(reinterpret_cast<uintptr_t>(flag));
    }
    ASSERT_EQ(flags.size(), 2u * 2 * 2 * 2 * Windows::most_messages) << "peers, lanes, directions, flags";
    expect_apart(flags);
    if (of == 0) {
      EXPECT_GE(asked_bytes, flags.size() / 2 * cache_line) << "the memory of one peer's flags";
    }
  }
}

TEST(WindowFlags, ChannelsHaveThemToo) {
  MappedRank rank(0);
  PeerRegion shared;
  shared.host = shared.device = arena;
  const MappedChannel channel(rank.peers, false, {}, shared);
  std::multiset<uintptr_t> flags;
  for (uint64_t k = 0; k < StreamChannel::slots; ++k)
    for (const uint32_t* flag : {channel.awaited(k), channel.notified(k)})
      flags.insert(reinterpret_cast<uintptr_t>(flag));
  ASSERT_EQ(flags.size(), 2u * StreamChannel::slots);
  expect_apart(flags);
}

}  // namespace
}  // namespace tutti::core
