// SPDX-License-Identifier: Apache-2.0
//
// Numbers at the edges where narrow integers end: 2^8, 2^16 and 2^32. A table says for each magnitude how far it was
// visited; what a transport refuses to open is reported as not proved.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

constexpr uint64_t beyond_16_bits = 70'000;

uint64_t word_of(uint64_t seed, uint64_t k) { return (seed + k + 1) * 0x9e3779b97f4a7c15; }

// Messages of 8 bytes from rank 0 to rank 1 on one lane, each checked.
class Words {
 public:
  Words(Stage& stage, uint32_t lane, uint64_t many)
      : stage_(stage),
        lane_(lane),
        many_(many),
        window_(std::min(stage.bench.caps().receive_depth, 32u)),
        ring_(2 * window_) {}
  void run() {
    stage_.until(
        [&] {
          step();
          return received_ == many_ && stage_[0].pending() == 0;
        },
        "T-38",
        [&] {
          return fmt::format(
              "of {} messages of 8 bytes on one lane {} were sent and {} have arrived; then nothing goes on", many_,
              sent_, received_);
        });
  }

 private:
  struct Slot {
    uint64_t sent, got;
  };
  void step() {
    while (posted_ < many_ && posted_ < received_ + window_) {
      Slot& slot = ring_[posted_ % ring_.size()];
      Posted* p = stage_[1].post(stage_[1].receive(0, lane_, &slot.got, 8));
      if (!p) break;
      p->on_done = [this, k = posted_](Posted& done) { check(k, done); };
      ++posted_;
    }
    while (sent_ < many_ && sent_ < received_ + window_) {
      Slot& slot = ring_[sent_ % ring_.size()];
      slot.sent = word_of(stage_.bench.seed, sent_);
      const bool quiet = sent_ % 3 == 0 && stage_.bench.caps().inline_bytes >= 8;
      if (!stage_[0].post(
              stage_[0].send(1, lane_, &slot.sent, 8, quiet ? uint16_t{TUTTI_TRANSFER_INLINE} : uint16_t{0})))
        break;
      ++sent_;
    }
  }
  void check(uint64_t k, const Posted& done) {
    const uint64_t expected = word_of(stage_.bench.seed, k), got = ring_[k % ring_.size()].got;
    require(done.status == TUTTI_OK && got == expected, "T-38",
            "message {} of a lane ended with {} and the word {:#018x}, expected {:#018x}{}", k,
            status_text(done.status), got, expected,
            k >= 256 && got == word_of(stage_.bench.seed, k % 65536) ? ": that is message k modulo 2^16" : "");
    ++received_;
  }
  Stage& stage_;
  const uint32_t lane_;
  const uint64_t many_, window_;
  std::vector<Slot> ring_;  // a SEND's memory stays until its message has been received, and longer
  uint64_t posted_ = 0, sent_ = 0, received_ = 0;
};

void many_messages(Bench& bench) {
  Stage stage(bench, {.lanes = 2});
  Words(stage, 1, beyond_16_bits).run();
}

void many_control_messages(Bench& bench) {
  Stage stage(bench);
  uint64_t sent = 0, received = 0;
  stage.until(
      [&] {
        for (; sent < beyond_16_bits; ++sent) {
          const uint64_t word = word_of(bench.seed, sent);
          const tutti_status status = stage[0].send_control(1, {reinterpret_cast<const char*>(&word), 8});
          if (status == TUTTI_AGAIN) break;
          require(status == TUTTI_OK, "T-28", "send_control returned {}: {}", status_text(status), last_error());
        }
        for (auto& events = stage[1].events; !events.empty(); events.pop_front(), ++received) {
          uint64_t word = 0;
          std::memcpy(&word, events.front().data.data(), std::min<size_t>(8, events.front().data.size()));
          require(events.front().data.size() == 8 && word == word_of(bench.seed, received), "T-38",
                  "control message {} of a link came as {} bytes, {:#018x}, expected {:#018x}", received,
                  events.front().data.size(), word, word_of(bench.seed, received));
        }
        return received == beyond_16_bits;
      },
      "T-38",
      [&] { return fmt::format("send_control took {} messages, {} arrived; then nothing goes on", sent, received); });
}

// Memory that is registered and given back, 70,000 times, beside 300 regions that stay.
void many_registrations(Bench& bench) {
  const tutti_transport* t = bench.transport();
  bench.caps();
  if (!TUTTI_HAS(tutti_transport, t, register_memory)) throw NotOffered{"it has no register_memory"};
  constexpr uint64_t kept = 300;
  Stage stage(bench, {.lanes = 1});
  std::vector<uint64_t> words(kept), got(kept);
  const auto enroll = [&](void* address) {
    const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, address, 8, -1, 0, 0};
    tutti_region* region = nullptr;
    const tutti_status status =
        call("register_memory", true, [&] { return t->register_memory(stage[0].domain, &memory, &region); });
    require(status == TUTTI_OK, "T-38", "register_memory returned {}: {}", status_text(status), last_error());
    return region;
  };
  const auto discharge = [&](tutti_region* region) {
    const tutti_status status =
        call("deregister_memory", true, [&] { return t->deregister_memory(stage[0].domain, region); });
    require(status == TUTTI_OK, "T-38", "deregister_memory returned {}: {}", status_text(status), last_error());
  };
  std::vector<tutti_region*> regions;
  for (uint64_t k = 0; k < kept; ++k) words[k] = word_of(bench.seed, k), regions.push_back(enroll(&words[k]));
  uint64_t spare = 0;
  for (uint64_t k = 0; k < beyond_16_bits; ++k) discharge(enroll(&spare));
  for (uint64_t k = 0; k < kept; ++k) {
    tutti_transfer send = stage[0].send(1, 0, &words[k], 8);
    send.region = regions[k];
    Posted* receive = stage[1].post(stage[1].receive(0, 0, &got[k], 8));
    require(receive, "T-20", "a RECV is refused though none other is pending");
    stage.until([&] { return stage[0].post(send) != nullptr; }, "T-21", "a SEND is refused");
    stage.until([&] { return receive->done && stage[0].pending() == 0; }, "T-38",
                fmt::format("a message out of region {} of {} does not arrive", k, kept));
    require(got[k] == words[k], "T-38", "a message out of region {} of {} arrived as {:#018x}, expected {:#018x}", k,
            kept, got[k], words[k]);
  }
  for (tutti_region* region : regions) discharge(region);
}

// 300 regions of one memfd at once, each sent by reference, twice.
void many_references(Bench& bench) {
  const tutti_view* view = bench.view();
  const tutti_transport* t = bench.transport();
  bench.caps();
  if (!TUTTI_HAS(tutti_view, view, send_region)) throw NotOffered{"its view has no send_region"};
  constexpr uint64_t many = 300, page = 4096;
  const int fd = memfd_create("contract", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, many * page) != 0) throw CannotRun{"memfd_create failed"};
  auto* data = static_cast<uint8_t*>(mmap(nullptr, many * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  Stage stage(bench, {.lanes = 1});
  std::vector<tutti_region*> regions(many);
  for (uint64_t k = 0; k < many; ++k) {
    const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, data + k * page, page, fd, 0, k * page};
    const tutti_status status =
        call("register_memory", true, [&] { return t->register_memory(stage[0].domain, &memory, &regions[k]); });
    require(status == TUTTI_OK, "T-38", "register_memory of region {} of {} returned {}: {}", k, many,
            status_text(status), last_error());
    const uint64_t word = word_of(bench.seed, k);
    std::memcpy(data + k * page, &word, 8);
  }
  for (uint64_t turn = 0; turn < 2 * many; ++turn) {
    const uint64_t k = turn % many;
    uint64_t ticket = 0, got = 0;
    Posted* receive = stage[1].post(stage[1].receive(0, 0, &got, 8));
    require(receive, "T-20", "a RECV is refused though none other is pending");
    stage.until(
        [&] {
          return plain_call("send_region", false, [&] {
                   return view->send_region(stage[0].links[1], 0, regions[k], 0, 8, &ticket);
                 }) == TUTTI_OK;
        },
        "V-8", fmt::format("send_region of region {} of {} does not return TUTTI_OK", k, many));
    stage.until([&] { return receive->done; }, "T-38",
                fmt::format("a message out of region {} of {} does not arrive", k, many));
    require(receive->status == TUTTI_OK && got == word_of(bench.seed, k), "T-38",
            "a message by reference out of region {} of {} ended with {} and {:#018x}, expected {:#018x}", k, many,
            status_text(receive->status), got, word_of(bench.seed, k));
  }
  stage.drain();
  for (tutti_region* region : regions)
    call("deregister_memory", true, [&] { return t->deregister_memory(stage[0].domain, region); });
  munmap(data, many * page);
  ::close(fd);
}

// Lanes of which the numbers are equal in 8 bits, all at once: each message comes on its own.
void many_lanes(Bench& bench) {
  constexpr uint32_t lanes = 300;
  Stage stage(bench, {.lanes = lanes});
  std::vector<std::unique_ptr<Message>> messages;
  for (const uint32_t lane : {0u, 1u, 43u, 255u, 256u, 257u, 299u})
    for (uint32_t k = 0; k < 2; ++k)
      messages.push_back(std::make_unique<Message>(stage, Label{k, 1 - k, lane, k}, 40 + lane));
  for (auto& m : std::views::reverse(messages))  // lanes that are taken for one do not meet in order
    stage.until([&] { return m->post_receive(); }, "T-20",
                "a RECV is refused though none other is pending on its lane");
  for (auto& m : messages) stage.until([&] { return m->post_send(); }, "T-21", "a SEND is refused");
  stage.until(
      [&] { return std::all_of(messages.begin(), messages.end(), [](auto& m) { return m->sent() && m->received(); }); },
      "T-38", fmt::format("with {} lanes not all messages arrive on lanes 0, 1, 43, 255, 256, 257 and 299", lanes));
}

// Views on lanes of which the numbers are equal in 8 bits, all held at once, twice.
void many_lanes_by_view(Bench& bench) {
  const tutti_view* view = bench.view();
  Stage stage(bench, {.lanes = 300});
  constexpr uint32_t lanes[] = {0, 1, 43, 256, 257, 299};
  for (uint32_t k = 0; k < 2; ++k) {
    for (const uint32_t lane : lanes) {
      const uint64_t word = word_of(bench.seed, lane * 2 + k);
      void* room = nullptr;
      stage.until(
          [&] {
            return (room = plain_call("try_reserve", false,
                                      [&] { return view->try_reserve(stage[0].links[1], lane, 8); })) != nullptr;
          },
          "V-6", fmt::format("try_reserve on lane {} of 300 goes on giving NULL", lane));
      std::memcpy(room, &word, 8);
    }
    for (const uint32_t lane : lanes) plain_call("commit", false, [&] { view->commit(stage[0].links[1], lane, 8); });
    for (const uint32_t lane : std::views::reverse(lanes)) {
      const void* shown = nullptr;
      uint64_t bytes = 0, word = 0;
      stage.until(
          [&] {
            return (shown = plain_call("try_receive", false,
                                       [&] { return view->try_receive(stage[1].links[0], lane, &bytes); })) != nullptr;
          },
          "T-38",
          fmt::format("message {} on lane {} of 300 was committed, and try_receive goes on giving NULL", k, lane));
      std::memcpy(&word, shown, std::min<uint64_t>(bytes, 8));
      require(bytes == 8 && word == word_of(bench.seed, lane * 2 + k), "T-38",
              "try_receive on lane {} of 300 shows {} bytes, {:#018x}, for message {}, expected {:#018x}", lane, bytes,
              word, k, word_of(bench.seed, lane * 2 + k));
    }
    for (const uint32_t lane : lanes) plain_call("release", false, [&] { view->release(stage[1].links[0], lane); });
  }
}

// Some ranks of a large communicator, with numbers that are equal in 8 or 16 bits.
void distant_ranks(Bench& bench, uint32_t nranks, std::initializer_list<uint32_t> present) {
  Stage stage(bench, {.nranks = 0});
  for (const uint32_t rank : present) {
    RankOptions options;
    options.rank = rank;
    options.nranks = nranks;
    options.lanes = 1;
    options.communicator = bench.seed * 2 + nranks;
    options.mail = &stage.mail;
    stage.ranks.push_back(std::make_unique<Rank>(bench, options));
  }
  uint64_t got = 0;
  for (auto& from : stage.ranks)
    for (auto& to : stage.ranks) {
      const uint32_t a = from->options.rank, b = to->options.rank;
      if (a == b) continue;
      const auto linked = [&](Rank& rank, uint32_t peer) {
        const tutti_status status = rank.connect(peer);
        require(status >= 0, "T-38", "connect of rank {} of {} to rank {} returned {}: {}", rank.options.rank, nranks,
                peer, status_text(status), last_error());
        return status == TUTTI_OK;
      };
      stage.until([&] { return linked(*from, b) & linked(*to, a); }, "T-38",
                  fmt::format("ranks {} and {} of {} get no link", a, b, nranks));
      const uint64_t word = word_of(bench.seed, uint64_t{a} << 32 | b);
      stage.until(
          [&] {
            return from->send_control(b, {reinterpret_cast<const char*>(&word), 8}) == TUTTI_OK;
          },
          "T-28", "send_control goes on returning TUTTI_AGAIN");
      Posted* receive = to->post(to->receive(a, 0, &got, 8));
      require(receive, "T-20", "a RECV is refused though none other is pending");
      stage.until([&] { return from->post(from->send(b, 0, &word, 8)) != nullptr; }, "T-21", "a SEND is refused");
      stage.until(
          [&] { return receive->done && from->pending() == 0 && !to->events.empty(); }, "T-38",
          fmt::format("a message and a control message from rank {} to rank {} of {} do not arrive", a, b, nranks));
      require(
          got == word && to->events.front().peer == a && to->events.size() == 1, "T-38",
          "from rank {} to rank {} of {} came the word {:#018x}, expected {:#018x}, and a control message of rank {}",
          a, b, nranks, got, word, to->events.front().peer);
      to->events.clear();
    }
}
void many_ranks(Bench& bench) { distant_ranks(bench, 300, {0, 1, 255, 256, 257}); }
void very_many_ranks(Bench& bench) { distant_ranks(bench, 65'800, {0, 1, 256, 65'536, 65'537}); }

// More than 2^32 bytes on one lane, of the same memory again and again.
void four_gigabytes(Bench& bench) {
  const uint64_t piece = std::min<uint64_t>(bench.caps().fragment_bytes, uint64_t{1} << 20), depth = 2;
  const uint64_t pieces = (uint64_t{1} << 32) / piece + 64;
  Stage stage(bench, {.lanes = 1});
  std::vector<std::vector<uint8_t>> source(depth, std::vector<uint8_t>(piece)), target = source;
  uint64_t sent = 0, posted = 0, received = 0;
  const auto mark = [&](uint64_t k) { return word_of(bench.seed, k); };
  const auto check = [&](uint64_t k, const Posted& done) {
    uint64_t first = 0, last = 0;
    std::memcpy(&first, target[k % depth].data(), 8);
    std::memcpy(&last, target[k % depth].data() + piece - 8, 8);
    require(done.status == TUTTI_OK && first == mark(k) && last == ~mark(k), "T-38",
            "message {} of {} bytes, {} bytes into its lane, ended with {} and other bytes than were sent", k, piece,
            k * piece, status_text(done.status));
    ++received;
  };
  stage.until(
      [&] {
        for (; posted < pieces && posted < received + depth; ++posted) {
          Posted* p = stage[1].post(stage[1].receive(0, 0, target[posted % depth].data(), piece));
          if (!p) break;
          p->on_done = [&, k = posted](Posted& done) { check(k, done); };
        }
        for (; sent < pieces && sent < received + depth && stage[0].pending() < depth; ++sent) {
          uint8_t* data = source[sent % depth].data();
          const uint64_t first = mark(sent), last = ~first;
          std::memcpy(data, &first, 8), std::memcpy(data + piece - 8, &last, 8);
          if (!stage[0].post(stage[0].send(1, 0, data, piece))) break;
        }
        return received == pieces && stage[0].pending() == 0;
      },
      "T-38", [&] { return fmt::format("of {} messages of {} bytes {} arrive", pieces, piece, received); });
}

}  // namespace

std::vector<ContractCase> magnitude_cases() {
  const std::vector<const char*> clauses{"T-38", "T-13", "T-15", "T-17", "T-20", "T-21", "T-28"};
  const std::vector<const char*> with_views{"T-38", "V-6", "V-8", "T-20", "T-11"};
  return {
      {"many-lanes", "300 lanes, and those that are equal in 8 bits at once", clauses, 30, many_lanes, 0,
       {{magnitude::lanes, 300}}},
      {"many-lanes-by-view", "the same by views", with_views, 30, many_lanes_by_view},
      {"many-references", "300 regions at once, each sent by reference", with_views, 30, many_references},
      {"many-ranks", "ranks 0, 1, 255, 256 and 257 of 300", clauses, 31, many_ranks, 0, {{magnitude::ranks, 300}}},
      {"many-registrations", "70,000 registrations beside 300 that stay", clauses, 160, many_registrations, 0,
       {{magnitude::registrations, 70'000}}},
      {"many-control-messages", "70,000 control messages on one link", clauses, 300, many_control_messages, 0,
       {{magnitude::control_messages, 70'000}}},
      {"many-messages", "70,000 messages on one lane", clauses, 350, many_messages, 0,
       {{magnitude::messages, 70'000}}},
      {"very-many-ranks", "ranks 0, 1, 256, 65536 and 65537 of 65800", clauses, 5000, very_many_ranks,
       uint64_t{3} << 30, {{magnitude::ranks, 65'800}}},
      {"four-gigabytes", "more than 2^32 bytes on one lane", clauses, 5001, four_gigabytes, 0,
       {{magnitude::lane_bytes, (uint64_t{1} << 32) + 64}}},
  };
}

}  // namespace tutti::conformance::contract
