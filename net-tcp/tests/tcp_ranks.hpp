// SPDX-License-Identifier: Apache-2.0
//
// Ranks over net-tcp, and their offers on the way.
#pragma once

#include <tutti/sdk/transport_ranks.hpp>

#include "pair_message.hpp"

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_tcp;

namespace tutti_test {

inline const tutti_plugin_entry_table& plugin_under_test() { return tutti_plugin_entry_net_tcp; }

// The pair messages that wait for a rank of the default communicator.
inline std::deque<PairMail::Letter>& mail_for(uint32_t rank) { return PairMail::job().boxes[{7, rank}]; }

// The last of them.
inline PairMessage mailed_to(uint32_t rank) {
  EXPECT_FALSE(mail_for(rank).empty());
  return mail_for(rank).empty() ? PairMessage{} : PairMessage::decode(mail_for(rank).back().bytes);
}

// Puts another port into the first listener of that offer.
inline void divert(uint32_t rank, uint16_t port) {
  PairMessage offer = mailed_to(rank);
  ASSERT_EQ(offer.kind, PairMessage::kOffer);
  offer.listeners[0].port = port;
  mail_for(rank).back().bytes = offer.encode();
}

// The two exchange offers, which wait for each other's next progress.
inline void exchange_offers(Rank& a, Rank& b) {
  ASSERT_EQ(a.connect(b.number), TUTTI_AGAIN) << a.error;
  ASSERT_EQ(b.connect(a.number), TUTTI_AGAIN) << b.error;
  ASSERT_EQ(mail_for(a.number).size(), 1u);
  ASSERT_EQ(mail_for(b.number).size(), 1u);
}

// Both connect until both know how it went.
inline void settle(Rank& a, Rank& b, tutti_status& sa, tutti_status& sb) {
  sa = sb = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&a, &b}, [&] {
    if (sa == TUTTI_AGAIN) sa = a.connect(b.number);
    if (sb == TUTTI_AGAIN) sb = b.connect(a.number);
    return sa != TUTTI_AGAIN && sb != TUTTI_AGAIN;
  }));
}

}  // namespace tutti_test
