// SPDX-License-Identifier: Apache-2.0
//
// The template transport through its table, as the core would use it: clause by clause of tutti/plugin/transport.h.
#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_template;

namespace {

thread_local std::string last_error;
void keep_error(void*, tutti_status, const char* text) { last_error = text; }
const tutti_host host{sizeof(tutti_host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, nullptr, nullptr, nullptr,
                      keep_error,         nullptr,         nullptr};

const tutti_transport& transport() {
  static const tutti_transport* const found = [] {
    EXPECT_EQ(tutti_plugin_entry_template.init(&host), TUTTI_OK);
    return static_cast<const tutti_transport*>(tutti_plugin_entry_template.get_interface(TUTTI_TRANSPORT_ID, 0));
  }();
  return *found;
}

tutti_transport_caps caps() {
  tutti_transport_caps given{};
  given.struct_size = sizeof given;
  EXPECT_EQ(transport().query(transport().self, &given), TUTTI_OK);
  return given;
}

constexpr uint32_t lanes = 3;

// A copy of a completion whose data may be looked at later.
struct Told {
  tutti_completion record;
  std::string data;
};

class Rank {
 public:
  Rank(uint32_t rank, uint32_t nranks, uint64_t communicator) : links(nranks) {
    EXPECT_EQ(transport().open_domain(transport().self, &domain_), TUTTI_OK);
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = rank;
    config.nranks = nranks;
    config.lanes = lanes;
    config.name = "test";
    config.communicator_id = communicator;
    EXPECT_EQ(transport().open_endpoint(domain_, &config, &endpoint), TUTTI_OK);
  }
  Rank(Rank&&) = delete;
  ~Rank() {
    close();
    transport().close_domain(domain_);
  }
  void close() {
    if (endpoint) transport().close_endpoint(endpoint);
    endpoint = nullptr;
  }
  std::string address() {
    std::string bytes(4096, 0);
    uint64_t size = bytes.size();
    EXPECT_EQ(transport().get_address(endpoint, bytes.data(), &size), TUTTI_OK);
    return bytes.substr(0, size);
  }
  tutti_status post(std::vector<tutti_transfer> transfers, uint32_t* accepted) {
    return transport().post(endpoint, transfers.data(), static_cast<uint32_t>(transfers.size()), accepted);
  }
  bool take(const tutti_transfer& transfer) {
    uint32_t accepted = 0;
    EXPECT_EQ(post({transfer}, &accepted), TUTTI_OK) << last_error;
    return accepted == 1;
  }
  tutti_status refused(const tutti_transfer& transfer) {
    uint32_t accepted = 7;
    const tutti_status status = post({transfer}, &accepted);
    EXPECT_EQ(accepted, 0u);
    return status;
  }
  tutti_transfer send(uint32_t peer, uint32_t lane, const void* data, uint64_t bytes, uint64_t cookie = 0) {
    return {links[peer], lane, TUTTI_TRANSFER_SEND, 0, const_cast<void*>(data), bytes, nullptr, cookie, {}};
  }
  tutti_transfer receive(uint32_t peer, uint32_t lane, void* data, uint64_t bytes, uint64_t cookie = 0) {
    return {links[peer], lane, TUTTI_TRANSFER_RECV, 0, data, bytes, nullptr, cookie, {}};
  }
  std::vector<Told> progress(uint32_t capacity = 64) {
    std::vector<tutti_completion> records(capacity);
    uint32_t n = 0;
    EXPECT_EQ(transport().progress(endpoint, records.data(), capacity, &n), TUTTI_OK);
    std::vector<Told> told;
    for (uint32_t i = 0; i < n; ++i)
      told.push_back({records[i], records[i].kind == TUTTI_COMPLETION_CONTROL
                                      ? std::string(static_cast<const char*>(records[i].data), records[i].bytes)
                                  : records[i].kind == TUTTI_COMPLETION_PEER_FAILED
                                      ? std::string(static_cast<const char*>(records[i].data))
                                      : ""});
    return told;
  }
  // All that a few calls of progress tell.
  std::vector<Told> drain(uint32_t capacity = 64) {
    std::vector<Told> all;
    for (int i = 0; i < 100; ++i)
      for (Told& told : progress(capacity)) all.push_back(std::move(told));
    return all;
  }

  tutti_endpoint* endpoint = nullptr;
  std::vector<tutti_link*> links;

 private:
  tutti_domain* domain_ = nullptr;
};

class TemplateTransport : public testing::Test {
 protected:
  void open(uint32_t n) {
    static std::atomic<uint64_t> communicator{1};
    const uint64_t id = communicator++;
    for (uint32_t r = 0; r < n; ++r) ranks.push_back(std::make_unique<Rank>(r, n, id));
    for (uint32_t r = 0; r < n; ++r)
      for (uint32_t peer = 0; peer < n; ++peer) {
        if (peer == r) continue;
        const std::string address = ranks[peer]->address();
        ASSERT_EQ(transport().connect(ranks[r]->endpoint, peer, address.data(), address.size(), &ranks[r]->links[peer]),
                  TUTTI_OK);
      }
  }
  Rank& rank(uint32_t r) { return *ranks[r]; }
  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST_F(TemplateTransport, DescribesItself) {
  EXPECT_EQ(transport().stamp, TUTTI_TRANSPORT_STAMP);
  EXPECT_STREQ(transport().name, "template");
  EXPECT_EQ(caps().reach, uint32_t{TUTTI_REACH_PROCESS});
  EXPECT_GE(caps().receive_depth, 2u);
  EXPECT_GE(caps().fragment_bytes, 4096u);
  EXPECT_EQ(transport().get_interface(transport().self, TUTTI_VIEW_ID), nullptr);
  EXPECT_EQ(tutti_plugin_entry_template.get_interface("tutti.other/1", 0), nullptr);
  EXPECT_EQ(tutti_plugin_entry_template.get_interface(TUTTI_TRANSPORT_ID, 1), nullptr);
}

TEST_F(TemplateTransport, ConnectTrustsNoAddress) {
  open(2);
  const std::string right = rank(1).address();
  tutti_link* link = nullptr;
  EXPECT_EQ(transport().connect(rank(0).endpoint, 1, right.data(), right.size(), &link), TUTTI_OK);
  EXPECT_EQ(link, rank(0).links[1]) << "a later call gives another link";
  Rank other(1, 2, uint64_t{1} << 40);
  for (const std::string& wrong :
       {std::string(), right.substr(1), right + "0", std::string(4096, '\xff'), rank(0).address(), other.address()})
    EXPECT_EQ(transport().connect(rank(0).endpoint, 1, wrong.data(), wrong.size(), &link), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(transport().connect(rank(0).endpoint, 2, right.data(), right.size(), &link), TUTTI_INVALID_ARGUMENT);
  uint64_t capacity = 3;
  char small[3];
  EXPECT_EQ(transport().get_address(rank(0).endpoint, small, &capacity), TUTTI_NO_RESOURCES);
  EXPECT_EQ(capacity, rank(0).address().size());
}

// Three ranks as threads; every pair exchanges messages of all sizes on all lanes, posted as fast as they are taken.
TEST_F(TemplateTransport, KeepsTheOrderOfEachLane) {
  open(3);
  constexpr uint32_t messages = 300;
  const auto size = [](uint32_t k) { return k % 10 == 9 ? 20000u + k : k % 77; };
  const auto byte = [](uint32_t from, uint32_t to, uint32_t lane, uint32_t k) {
    return static_cast<char>(from * 101 + to * 37 + lane * 11 + k);
  };
  const auto run = [&](uint32_t me) {
    Rank& self = rank(me);
    std::vector<std::vector<char>> buffers;  // by cookie
    struct Stream {
      uint32_t peer, lane, kind, next;
    };
    std::vector<Stream> streams;
    for (uint32_t peer = 0; peer < 3; ++peer)
      for (uint32_t lane = 0; peer != me && lane < lanes; ++lane)
        for (const uint32_t kind : {TUTTI_TRANSFER_SEND, TUTTI_TRANSFER_RECV}) streams.push_back({peer, lane, kind, 0});
    const size_t all = streams.size() * messages;
    buffers.resize(all);
    std::vector<uint64_t> last(streams.size(), 0);  // completions of a stream come in order
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (size_t done = 0; done < all;) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << "rank " << me << " hangs after " << done << " of " << all;
      for (size_t s = 0; s < streams.size(); ++s) {
        Stream& stream = streams[s];
        if (stream.next == messages) continue;
        const uint64_t cookie = s * messages + stream.next;
        std::vector<char>& buffer = buffers[cookie];
        const bool sending = stream.kind == TUTTI_TRANSFER_SEND;
        buffer.assign(size(stream.next) + 1, sending ? byte(me, stream.peer, stream.lane, stream.next) : '?');
        const tutti_transfer t = sending
                                     ? self.send(stream.peer, stream.lane, buffer.data(), size(stream.next), cookie)
                                     : self.receive(stream.peer, stream.lane, buffer.data(), size(stream.next), cookie);
        if (self.take(t)) ++stream.next;
      }
      const std::vector<Told> told = self.progress(7);
      if (told.empty()) std::this_thread::yield();
      for (const Told& t : told) {
        ASSERT_EQ(t.record.kind, uint32_t{TUTTI_COMPLETION_TRANSFER});
        ASSERT_EQ(t.record.status, TUTTI_OK);
        const size_t s = t.record.cookie / messages;
        const uint32_t k = static_cast<uint32_t>(t.record.cookie % messages);
        ASSERT_EQ(k, last[s]++) << "a completion out of order";
        const std::vector<char>& buffer = buffers[t.record.cookie];
        if (streams[s].kind == TUTTI_TRANSFER_RECV) {
          for (uint32_t i = 0; i < size(k); ++i) ASSERT_EQ(buffer[i], byte(streams[s].peer, me, streams[s].lane, k));
          ASSERT_EQ(buffer[size(k)], '?') << "written beyond the message";
        }
        ++done;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 3; ++r) threads.emplace_back(run, r);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TemplateTransport, ALaneWithoutReceiveBlocksNoOtherAndItsSenderIsHeldBack) {
  open(2);
  std::vector<uint64_t> sent(1000), got(1000, 99);
  uint64_t n = 0;
  for (; n < 1000; ++n) {
    sent[n] = n;
    if (!rank(0).take(rank(0).send(1, 0, &sent[n], 8, n))) break;
  }
  ASSERT_LT(n, 1000u) << "nothing holds a sender back";
  ASSERT_GE(n, 1u);
  EXPECT_TRUE(rank(1).drain().empty());
  uint64_t word = 5, other = 0;
  EXPECT_TRUE(rank(0).take(rank(0).send(1, 1, &word, 8)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 1, &other, 8)));
  rank(1).drain();
  EXPECT_EQ(other, 5u) << "lane 0 blocks lane 1";
  // Now the receives come, one by one; the refused send is taken, everything arrives in order.
  for (uint64_t k = 0; k <= n; ++k) {
    ASSERT_TRUE(rank(1).take(rank(1).receive(0, 0, &got[k], 8)));
    rank(1).drain();
    if (k == 0) {
      EXPECT_TRUE(rank(0).take(rank(0).send(1, 0, &sent[n], 8, n)));
    }
    EXPECT_EQ(got[k], k);
  }
  EXPECT_EQ(sent[n], got[n]);
}

TEST_F(TemplateTransport, AcceptsTheReceivesThatItPromises) {
  open(2);
  std::vector<uint64_t> got(caps().receive_depth);
  for (uint32_t lane = 0; lane < lanes; ++lane)
    for (uint64_t& word : got) EXPECT_TRUE(rank(0).take(rank(0).receive(1, lane, &word, 8)));
}

TEST_F(TemplateTransport, InlineSendsAreCompleteAtOnceAndSilent) {
  open(2);
  std::string data(caps().inline_bytes, 'a'), got(data.size(), ' ');
  tutti_transfer t = rank(0).send(1, 2, data.data(), data.size(), 4);
  t.flags = TUTTI_TRANSFER_INLINE;
  EXPECT_TRUE(rank(0).take(t));
  data.assign(data.size(), 'b');
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 2, got.data(), got.size(), 9)));
  EXPECT_TRUE(rank(0).drain().empty());
  EXPECT_EQ(rank(1).drain().size(), 1u);
  EXPECT_EQ(got, std::string(got.size(), 'a'));
  t.bytes = caps().inline_bytes + 1;
  EXPECT_EQ(rank(0).refused(t), TUTTI_INVALID_ARGUMENT);
}

TEST_F(TemplateTransport, MessagesOfNoBytesAndOfTheLargestSizePass) {
  open(2);
  std::string largest(caps().fragment_bytes, 'x'), got(largest.size(), ' ');
  EXPECT_TRUE(rank(0).take(rank(0).send(1, 0, nullptr, 0)));
  EXPECT_TRUE(rank(0).take(rank(0).send(1, 0, largest.data(), largest.size())));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 0, nullptr, 0)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 0, got.data(), got.size())));
  EXPECT_EQ(rank(1).drain().size(), 2u);
  EXPECT_EQ(got, largest);
  EXPECT_EQ(rank(0).refused(rank(0).send(1, 0, largest.data(), largest.size() + 1)), TUTTI_INVALID_ARGUMENT);
}

TEST_F(TemplateTransport, ABadTransferIsNamedOnceThoseBeforeItAreTaken) {
  open(2);
  uint64_t word = 0;
  const tutti_transfer good = rank(0).receive(1, 0, &word, 8);
  tutti_transfer lane = good, kind = good, flags = good;
  lane.lane = lanes;
  kind.kind = 3;
  flags.flags = 2;
  for (const tutti_transfer& bad : {lane, kind, flags}) {
    uint32_t accepted = 9;
    EXPECT_EQ(rank(0).post({good, good, bad, good}, &accepted), TUTTI_OK);
    EXPECT_EQ(accepted, 2u);
    EXPECT_EQ(rank(0).post({bad, good}, &accepted), bad.flags == 2 ? TUTTI_NOT_SUPPORTED : TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(accepted, 0u);
    EXPECT_NE(last_error, "");
  }
}

TEST_F(TemplateTransport, ASizeThatDiffersIsAMismatchAndTheLaneGoesOn) {
  open(2);
  const char data[] = "12345678";
  char first[8] = "-------", second[8] = "-------";
  EXPECT_TRUE(rank(0).take(rank(0).send(1, 0, data, 8)));
  EXPECT_TRUE(rank(0).take(rank(0).send(1, 0, data, 4)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 0, first, 4, 1)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 0, second, 4, 2)));
  const std::vector<Told> told = rank(1).drain();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].record.status, TUTTI_MISMATCH);
  EXPECT_STREQ(first, "-------");
  EXPECT_EQ(told[1].record.status, TUTTI_OK);
  EXPECT_EQ(std::memcmp(second, "1234---", 7), 0);
}

TEST_F(TemplateTransport, ControlMessagesNeedNoReceiveAndKeepTheirOrder) {
  open(2);
  uint32_t sent = 0;
  std::string message(TUTTI_CONTROL_BYTES, 0);
  for (; sent < 10000; ++sent) {
    message[0] = static_cast<char>(sent);
    const tutti_status status = transport().send_control(rank(0).links[1], message.data(), sent % 2 ? 256 : 1);
    if (status == TUTTI_AGAIN) break;
    ASSERT_EQ(status, TUTTI_OK);
  }
  ASSERT_LT(sent, 10000u) << "nothing holds a sender back";
  const std::vector<Told> told = rank(1).drain(1);
  ASSERT_EQ(told.size(), sent);
  for (uint32_t i = 0; i < sent; ++i) {
    EXPECT_EQ(told[i].record.kind, uint32_t{TUTTI_COMPLETION_CONTROL});
    EXPECT_EQ(told[i].record.peer, 0u);
    EXPECT_EQ(told[i].data.size(), i % 2 ? 256u : 1u);
    EXPECT_EQ(told[i].data[0], static_cast<char>(i));
  }
  EXPECT_EQ(transport().send_control(rank(0).links[1], message.data(), 256), TUTTI_OK) << "there is room again";
  EXPECT_EQ(transport().send_control(rank(0).links[1], message.data(), 257), TUTTI_INVALID_ARGUMENT);
}

// What a rank was told, as "kind:status" with the cookie of transfers.
std::string summary(const std::vector<Told>& all) {
  std::string text;
  for (const Told& t : all)
    text += (t.record.kind == TUTTI_COMPLETION_TRANSFER ? "transfer " + std::to_string(t.record.cookie)
                                                        : "peer " + std::to_string(t.record.peer)) +
            " " + std::to_string(t.record.status) + "; ";
  return text;
}

TEST_F(TemplateTransport, FailPeerEndsThatLinkOnlyAndTheOtherEndHears) {
  open(3);
  uint64_t a = 0, b = 0, c = 7;
  EXPECT_TRUE(rank(0).take(rank(0).receive(1, 0, &a, 8, 11)));
  EXPECT_TRUE(rank(0).take(rank(0).receive(2, 0, &b, 8, 12)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 1, &b, 8, 13)));
  EXPECT_EQ(transport().fail_peer(rank(0).endpoint, 1), TUTTI_OK);
  EXPECT_EQ(summary(rank(0).drain()), "transfer 11 -6; ");
  EXPECT_EQ(rank(0).refused(rank(0).receive(1, 0, &a, 8)), TUTTI_PEER_FAILED);
  EXPECT_EQ(rank(0).refused(rank(0).send(1, 0, &a, 8)), TUTTI_PEER_FAILED);
  EXPECT_EQ(transport().send_control(rank(0).links[1], "x", 1), TUTTI_PEER_FAILED);
  const std::vector<Told> told = rank(1).drain();
  EXPECT_EQ(summary(told), "transfer 13 -6; peer 0 -6; ");
  ASSERT_FALSE(told.empty());
  EXPECT_NE(told.back().data.find("rank 0"), std::string::npos) << told.back().data;
  EXPECT_EQ(rank(1).refused(rank(1).send(0, 0, &a, 8)), TUTTI_PEER_FAILED);
  EXPECT_TRUE(rank(2).take(rank(2).send(0, 0, &c, 8, 14)));
  EXPECT_EQ(summary(rank(0).drain()), "transfer 12 0; ");
  EXPECT_EQ(b, 7u);
  EXPECT_EQ(transport().fail_peer(rank(0).endpoint, 1), TUTTI_OK) << "a second time does nothing";
  EXPECT_TRUE(rank(0).drain().empty());
}

TEST_F(TemplateTransport, AbortEndsEverythingAndAllPeersHear) {
  open(3);
  uint64_t a = 0, b = 0;
  EXPECT_TRUE(rank(0).take(rank(0).receive(1, 0, &a, 8, 11)));
  EXPECT_TRUE(rank(0).take(rank(0).receive(2, 2, &b, 8, 12)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 1, &b, 8, 13)));
  EXPECT_EQ(transport().abort(rank(0).endpoint), TUTTI_OK);
  EXPECT_EQ(summary(rank(0).drain()), "transfer 11 -7; transfer 12 -7; ");
  EXPECT_EQ(rank(0).refused(rank(0).receive(1, 0, &a, 8)), TUTTI_ABORTED);
  EXPECT_EQ(rank(0).refused(rank(0).send(2, 0, &a, 8)), TUTTI_ABORTED);
  EXPECT_EQ(summary(rank(1).drain()), "transfer 13 -6; peer 0 -6; ");
  EXPECT_EQ(summary(rank(2).drain()), "peer 0 -6; ");
  EXPECT_TRUE(rank(1).take(rank(1).send(2, 0, &a, 8, 15))) << "the others go on";
}

TEST_F(TemplateTransport, WhatWasSentArrivesAfterItsSenderHasClosed) {
  open(2);
  uint64_t word = 42, got = 0;
  tutti_transfer t = rank(0).send(1, 1, &word, 8);
  t.flags = TUTTI_TRANSFER_INLINE;
  EXPECT_TRUE(rank(0).take(t));
  EXPECT_EQ(transport().send_control(rank(0).links[1], "bye", 3), TUTTI_OK);
  rank(0).close();
  const std::vector<Told> told = rank(1).drain();
  ASSERT_EQ(told.size(), 1u) << "the peer is lost before all it sent was received";
  EXPECT_EQ(told[0].data, "bye");
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 1, &got, 8, 3)));
  EXPECT_EQ(summary(rank(1).drain()), "transfer 3 0; peer 0 -6; ");
  EXPECT_EQ(got, 42u);
  EXPECT_EQ(rank(1).refused(rank(1).receive(0, 1, &got, 8)), TUTTI_PEER_FAILED);
}

TEST_F(TemplateTransport, AReceiveFromARankThatLeftEnds) {
  open(2);
  uint64_t got = 0;
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 1, &got, 8, 3)));
  rank(0).close();
  EXPECT_EQ(summary(rank(1).drain(1)), "transfer 3 -6; peer 0 -6; ");
}

// ... even while other mail of that rank is still to be received.
TEST_F(TemplateTransport, AReceiveThatWaitsInVainEndsThoughOtherMailIsUnread) {
  open(2);
  uint64_t word = 1, got = 0;
  EXPECT_TRUE(rank(0).take(rank(0).send(1, 0, &word, 8)));
  EXPECT_TRUE(rank(1).take(rank(1).receive(0, 1, &got, 8, 3)));
  rank(0).close();
  EXPECT_EQ(summary(rank(1).drain()), "transfer 3 -6; peer 0 -6; ");
}

}  // namespace
