// SPDX-License-Identifier: Apache-2.0
//
// How much of a message is posted at once: tutti_transport_caps.max_outstanding.
#include "engine/fabric/link.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace tutti::core {
namespace {

std::deque<tutti_transfer> posted;  // and not completed

tutti_transport counting_transport() {
  tutti_transport table{};
  table.post = [](tutti_endpoint*, const tutti_transfer* transfer) {
    posted.push_back(*transfer);
    return tutti_status{TUTTI_OK};
  };
  table.progress = [](tutti_endpoint*, tutti_completion* completions, uint32_t, uint32_t* n) {
    *n = posted.empty() ? 0 : 1;
    if (*n == 0) return tutti_status{TUTTI_OK};
    completions[0] = {TUTTI_COMPLETION_TRANSFER, TUTTI_OK, 1, 0, posted[0].cookie, posted[0].bytes, nullptr, 0};
    posted.pop_front();
    return tutti_status{TUTTI_OK};
  };
  return table;
}

struct NoEvents : PortEvents {
  void on_control(Port&, uint32_t, const std::byte*, uint64_t) override { ADD_FAILURE(); }
  void on_peer_failed(Port&, uint32_t, const char*) override { ADD_FAILURE(); }
  void on_port_error(Port&, tutti_status, const std::string& reason) override { ADD_FAILURE() << reason; }
};

// Two receives and a send of ten fragments each, over a port that allows so many transfers; how many of each are under
// way at once.
std::array<uint32_t, 3> under_way(uint32_t max_outstanding) {
  const tutti_transport table = counting_transport();
  Port port;
  port.api = &table;
  port.caps.max_outstanding = max_outstanding;
  Link link{.port = &port, .fragment = 64};
  std::vector<std::byte> memory(640);
  Inflow first, second;
  Outflow out;
  first.open(&link, 0, memory.size());
  second.open(&link, 1, memory.size());
  out.open(&link, 0, memory.size());
  const auto advance = [&] {
    first.advance(memory.data(), false);
    second.advance(memory.data(), false);
    out.advance(memory.data(), memory.size(), {});
  };
  posted.clear();
  advance();
  const std::array<uint32_t, 3> found{first.pending, second.pending, out.pending};
  NoEvents events;
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(progress_port(port, events));
    advance();
  }
  EXPECT_TRUE(first.done() && second.done() && out.done()) << "with at most " << max_outstanding;
  EXPECT_EQ(port.outstanding, 0u);
  return found;
}

TEST(MaxOutstanding, WithoutItAllIsPostedAtOnce) { EXPECT_EQ(under_way(0), (std::array<uint32_t, 3>{10, 10, 10})); }

TEST(MaxOutstanding, AtItEachMessageHasOneTransferUnderWay) {
  EXPECT_EQ(under_way(4), (std::array<uint32_t, 3>{4, 1, 1}));
  EXPECT_EQ(under_way(1), (std::array<uint32_t, 3>{1, 1, 1}));
  EXPECT_EQ(under_way(15), (std::array<uint32_t, 3>{10, 5, 1}));
}

}  // namespace
}  // namespace tutti::core
