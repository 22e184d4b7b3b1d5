// SPDX-License-Identifier: Apache-2.0
//
// Single messages: their bytes, sizes, alignment, ends; transfers that can never be right.
#include <algorithm>
#include <cstring>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

// One message; `receive_first`: its RECV is posted, and seen by progress, before its SEND.
void pass(Stage& stage, const Label& label, uint64_t bytes, bool receive_first, uint16_t flags = 0, size_t slack = 0,
          const char* clause = "T-11") {
  Message message(stage, label, bytes, flags, slack);
  if (receive_first) {
    stage.until([&] { return message.post_receive(); }, "T-20", "a RECV is refused though none other is pending");
    stage.settle();
  }
  stage.until([&] { return message.post_send(); }, "T-21",
              "a SEND is refused again and again though nothing is pending");
  if (!receive_first) {
    stage.settle();
    stage.until([&] { return message.post_receive(); }, "T-20", "a RECV is refused though none other is pending");
  }
  stage.until([&] { return message.received() && message.sent(); }, clause,
              [&] {
                return fmt::format("a message of {} bytes, {} posted first: its {} never completes", bytes,
                                   receive_first ? "RECV" : "SEND", message.received() ? "SEND" : "RECV");
              });
  // A touch of memory after its completion shows in the following calls.
  for (int i = 0; i < 4; ++i) stage.progress();
}

std::vector<uint64_t> interesting_sizes(const tutti_transport_caps& caps) {
  std::vector<uint64_t> sizes{1, 2, 3, 7, 8, 9, 47, 48, 49, 63, 64, 65, 1000, 4095, 4096, 4097, 16384, 16385};
  for (const uint64_t edge : {caps.inline_bytes, caps.fragment_bytes / 2, caps.fragment_bytes})
    for (const uint64_t size : {edge - 1, edge, edge + 1})
      if (size >= 1 && size <= caps.fragment_bytes) sizes.push_back(size);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::erase_if(sizes, [&](uint64_t size) { return size > caps.fragment_bytes; });
  return sizes;
}

void one_message(Bench& bench) {
  Stage stage(bench);
  for (uint32_t k = 0; k < 4; ++k) pass(stage, {k & 1, 1 - (k & 1), 0, k / 2}, 100, k < 2);
}

void every_size(Bench& bench) {
  Stage stage(bench);
  uint32_t k = 0;
  for (const uint64_t bytes : interesting_sizes(bench.caps())) {
    pass(stage, {0, 1, k % 3, k}, bytes, k % 2 == 0, 0, k % 5);
    ++k;
    pass(stage, {1, 0, k % 3, k}, bytes, k % 2 == 0, 0, 0);
  }
}

// As many lanes as a communicator of the core has, and more.
void every_lane(Bench& bench) {
  constexpr uint32_t lanes = 80;
  Stage stage(bench, {.lanes = lanes});
  for (uint32_t lane = 0; lane < lanes; ++lane) pass(stage, {lane & 1, 1 - (lane & 1), lane, lane}, 40, lane % 3 == 0);
}

// Empty messages between others, with data NULL and not.
void empty_messages(Bench& bench) {
  Stage stage(bench);
  std::vector<std::unique_ptr<Message>> messages;
  const uint64_t sizes[] = {0, 5, 0, 0, 100, 0};
  for (uint32_t k = 0; k < std::size(sizes); ++k)
    messages.push_back(std::make_unique<Message>(stage, Label{0, 1, 0, k}, sizes[k]));
  size_t sends = 0, receives = 0;
  stage.until(
      [&] {
        if (sends < messages.size() && messages[sends]->post_send()) ++sends;
        if (receives < messages.size() && messages[receives]->post_receive()) ++receives;
        return std::all_of(messages.begin(), messages.end(), [](auto& m) { return m->sent() && m->received(); });
      },
      "T-25",
      "empty messages between others: not all transfers complete. An empty message takes its turn like any other");
  // data may be NULL.
  Posted* send = stage[0].post(stage[0].send(1, 1, nullptr, 0));
  Posted* receive = stage[1].post(stage[1].receive(0, 1, nullptr, 0));
  require(send && receive, "T-25", "an empty transfer with data NULL was refused");
  stage.until([&] { return send->done && receive->done; }, "T-25", "an empty message with data NULL does not complete");
  require(send->status == TUTTI_OK && receive->status == TUTTI_OK, "T-25",
          "an empty message with data NULL ended with {}", status_text(receive->status));
}

void inline_sends(Bench& bench) {
  const uint64_t limit = bench.caps().inline_bytes;
  Stage stage(bench);
  uint32_t k = 0;
  for (const uint64_t bytes : {limit, limit - 1, limit / 2, uint64_t{1}, uint64_t{0}}) {
    if (bytes > limit) continue;
    for (const bool receive_first : {true, false}) {
      pass(stage, {0, 1, k % 3, k}, bytes, receive_first, TUTTI_TRANSFER_INLINE, 0, "T-22");
      ++k;
    }
  }
  GuardedMemory data(limit + 1);
  tutti_status status = TUTTI_OK;
  if (limit < bench.caps().fragment_bytes) {
    stage[0].post(stage[0].send(1, 0, data.data(), limit + 1, TUTTI_TRANSFER_INLINE), &status);
    require(
        status == TUTTI_INVALID_ARGUMENT, "T-22",
        "an INLINE send of inline_bytes + 1 = {} bytes returned {}, expected TUTTI_INVALID_ARGUMENT: refuse it, or say "
        "in query that it is possible",
        limit + 1, status_text(status));
  }
  tutti_transfer receive = stage[0].receive(1, 0, data.data(), 1);
  receive.flags = TUTTI_TRANSFER_INLINE;
  stage[0].post(receive, &status);
  require(status == TUTTI_INVALID_ARGUMENT, "T-22", "an INLINE RECV returned {}, expected TUTTI_INVALID_ARGUMENT",
          status_text(status));
}

void largest_message(Bench& bench) {
  const uint64_t limit = bench.caps().fragment_bytes;
  Stage stage(bench);
  for (uint32_t k = 0; k < 3; ++k) pass(stage, {0, 1, 0, k}, limit - (k == 1), k == 0, 0, 0, "T-23");
  GuardedMemory data(limit + 1);
  for (const bool sending : {true, false}) {
    tutti_status status = TUTTI_OK;
    stage[0].post(
        sending ? stage[0].send(1, 0, data.data(), limit + 1) : stage[0].receive(1, 0, data.data(), limit + 1),
        &status);
    require(status == TUTTI_INVALID_ARGUMENT, "T-23",
            "a {} of fragment_bytes + 1 = {} bytes returned {}, expected TUTTI_INVALID_ARGUMENT: refuse it, or say in "
            "query "
            "that it is possible",
            sending ? "SEND" : "RECV", limit + 1, status_text(status));
  }
}

void unequal_lengths(Bench& bench) {
  struct Pair {
    uint64_t sent, expected;
  };
  const uint64_t most = bench.caps().fragment_bytes;
  const Pair pairs[] = {{8, 4}, {4, 8}, {0, 3}, {3, 0}, {1000, 10}, {10, 1000}, {most, most - 1}, {most - 1, most}};
  for (const bool receive_first : {true, false}) {
    Stage stage(bench);
    uint32_t k = 0;
    for (const auto& [sent, expected] : pairs) {
      GuardedMemory source(sent), target(expected);
      Posted* send = nullptr;
      Posted* receive = nullptr;
      const auto post_receive = [&] {
        receive = stage[1].post(stage[1].receive(0, 0, target.data(), expected));
        require(receive, "T-20", "a RECV is refused though none other is pending");
      };
      if (receive_first) post_receive();
      stage.until([&] { return (send = stage[0].post(stage[0].send(1, 0, source.data(), sent))) != nullptr; }, "T-24",
                  "after a MISMATCH the lane takes no SEND any more");
      if (!receive_first) stage.settle(), post_receive();
      stage.until([&] { return receive->done && send->done; }, "T-24",
                  fmt::format("a message of {} bytes met a RECV of {}: not both complete", sent, expected));
      require(receive->status == TUTTI_MISMATCH, "T-24",
              "a message of {} bytes met a RECV of {} bytes, which completed with {}, expected TUTTI_MISMATCH", sent,
              expected, status_text(receive->status));
      require(receive->reported == sent, "T-24",
              "a message of {} bytes met a RECV of {} bytes, and the completion reports {} bytes: report those of the "
              "message",
              sent, expected, receive->reported);
      target.check_surroundings();
      pass(stage, {0, 1, 0, ++k}, 33, receive_first, 0, 0, "T-24");
    }
  }
}

// Messages of every way to travel, with equal and other marks at the two ends.
void marks(Bench& bench) {
  if (!(bench.caps().flags & TUTTI_TRANSPORT_MARKS)) throw NotOffered{"its messages carry no marks"};
  struct Pair {
    uint32_t sent, expected;
  };
  constexpr Pair pairs[] = {{7, 7},
                            {7, 8},
                            {0, 1},
                            {1, 0},
                            {UINT32_MAX, UINT32_MAX >> 1},
                            {1u << 16 | 1, 1},
                            {1u << 31, 0},
                            {1u << 31, 1u << 31},
                            {UINT32_MAX, UINT32_MAX}};
  const uint64_t small = bench.caps().inline_bytes, most = bench.caps().fragment_bytes;
  for (const bool receive_first : {true, false}) {
    Stage stage(bench);
    uint32_t k = 0;
    for (const uint64_t bytes : {uint64_t{0}, small, small + 1, uint64_t{4096}, most})
      for (const auto& [sent, expected] : pairs)
        for (const bool inlined : {false, true}) {
          if (bytes > most || (inlined && bytes > small)) continue;
          GuardedMemory source(bytes), target(bytes);
          tutti_transfer out = stage[0].send(1, 0, source.data(), bytes, inlined ? TUTTI_TRANSFER_INLINE : 0);
          tutti_transfer in = stage[1].receive(0, 0, target.data(), bytes);
          out.mark = sent;
          in.mark = expected;
          Posted* send = nullptr;
          Posted* receive = nullptr;
          const auto post_receive = [&] {
            receive = stage[1].post(in);
            require(receive, "T-20", "a RECV is refused though none other is pending");
          };
          if (receive_first) post_receive();
          stage.until([&] { return (send = stage[0].post(out)) != nullptr; }, "T-42",
                      "after a message with another mark the lane takes no SEND any more");
          if (!receive_first) stage.settle(), post_receive();
          const std::string what = fmt::format(
              "a message of {} bytes with the mark {:#x} met a RECV with the mark {:#x}", bytes, sent, expected);
          stage.until([&] { return receive->done && send->done; }, "T-42", what + ": not both complete");
          const tutti_status due = sent == expected ? TUTTI_OK : TUTTI_MISMATCH;
          require(receive->status == due, "T-42", "{}, which completed with {}, expected {}", what,
                  status_text(receive->status), status_text(due));
          require(receive->reported_mark == sent && receive->reported == bytes, "T-42",
                  "{}, and the completion reports {:#x} and {} bytes: report those of the message", what,
                  receive->reported_mark, receive->reported);
          target.check_surroundings();
          pass(stage, {0, 1, 0, ++k}, 33, receive_first, 0, 0, "T-42");
        }
  }
}

// Between good transfers: a wrong one is refused, and those that were taken go on.
void bad_transfers(Bench& bench) {
  Stage stage(bench);
  uint64_t word[2] = {};
  struct Wrong {
    const char* what;
    void (*spoil)(tutti_transfer&);
    tutti_status expected;
  };
  const Wrong wrongs[] = {
      {"lane 3 of 3", [](tutti_transfer& t) { t.lane = 3; }, TUTTI_INVALID_ARGUMENT},
      {"lane 0xffffffff", [](tutti_transfer& t) { t.lane = UINT32_MAX; }, TUTTI_INVALID_ARGUMENT},
      {"kind 0", [](tutti_transfer& t) { t.kind = 0; }, TUTTI_INVALID_ARGUMENT},
      {"kind 3", [](tutti_transfer& t) { t.kind = 3; }, TUTTI_INVALID_ARGUMENT},
      {"the unknown flag 2", [](tutti_transfer& t) { t.flags = 2; }, TUTTI_NOT_SUPPORTED},
      {"the unknown flag 0x8000", [](tutti_transfer& t) { t.flags = 0x8000; }, TUTTI_NOT_SUPPORTED},
  };
  uint32_t k = 0;
  for (const Wrong& wrong : wrongs) {
    const Posted* const good = stage[0].post(stage[0].receive(1, 1, &word[0], 8));
    require(good, "T-20", "a RECV is refused though none other is pending");
    tutti_transfer bad = stage[0].receive(1, 1, &word[1], 8);
    wrong.spoil(bad);
    tutti_status status = TUTTI_OK;
    stage[0].post(bad, &status);
    require(status == wrong.expected, "T-10", "a transfer with {} returned {}, expected {}", wrong.what,
            status_text(status), status_text(wrong.expected));
    Message other(stage, {1, 0, 0, k}, 16);
    uint64_t eight = 0x1234 + k++;
    Posted* send = nullptr;
    stage.until([&] { return (send = stage[1].post(stage[1].send(0, 1, &eight, 8))) != nullptr; }, "T-21",
                "a SEND is refused");
    stage.until([&] { return good->done && send->done; }, "T-10",
                fmt::format("a RECV that was taken before a transfer with {} does not complete", wrong.what));
    require(word[0] == eight, "T-10", "a RECV that was taken before a transfer with {} got wrong bytes", wrong.what);
  }
}

}  // namespace

std::vector<ContractCase> transfer_cases() {
  return {
      {"one-message",
       "a message of 100 bytes each way, RECV first and SEND first",
       {"T-5", "T-13", "T-15", "T-17", "T-20", "T-21"},
       3,
       one_message},
      {"empty-messages",
       "messages of no bytes among others",
       {"T-25", "T-13", "T-15", "T-17", "T-22"},
       4,
       empty_messages},
      {"inline-sends",
       "INLINE sends up to the limit and beyond",
       {"T-22", "T-15", "T-13", "T-17", "T-20", "T-21", "T-25"},
       5,
       inline_sends},
      {"largest-message",
       "fragment_bytes, and one byte more",
       {"T-23", "T-15", "T-13", "T-17", "T-20", "T-21"},
       6,
       largest_message},
      {"unequal-lengths", "messages that do not fit their RECV", {"T-24", "T-20", "T-21", "T-15"}, 10, unequal_lengths},
      {"marks",
       "messages whose marks are those of their RECVs, and others",
       {"T-42", "T-20", "T-21", "T-15"},
       15,
       marks},
      {"every-lane", "a message on each of 80 lanes", {"T-13", "T-15", "T-17", "T-21"}, 5, every_lane},
      {"bad-transfers",
       "unknown lanes, kinds and flags among good transfers",
       {"T-10", "T-20", "T-21", "T-15"},
       4,
       bad_transfers},
      {"every-size",
       "all sizes that break things, aligned and not",
       {"T-15", "T-13", "T-17", "T-20", "T-21", "T-23"},
       15,
       every_size},
  };
}

}  // namespace tutti::conformance::contract
