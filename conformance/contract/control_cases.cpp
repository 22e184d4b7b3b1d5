// SPDX-License-Identifier: Apache-2.0
//
// Control messages.
#include <cstring>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

std::string control_text(uint32_t from, uint32_t k) {
  std::string text = fmt::format("control {} of rank {} ", k, from);
  text.resize(k % 7 == 0 ? TUTTI_CONTROL_BYTES : text.size() + k % 5, static_cast<char>('a' + k % 26));
  return text;
}

void expect_control(Rank& at, uint32_t from, const std::string& expected) {
  const Event& event = at.events.front();
  require(event.kind == TUTTI_COMPLETION_CONTROL, "T-28", "rank {} was told of kind {} instead of a control message",
          at.options.rank, event.kind);
  require(event.peer == from, "T-28", "a control message of rank {} came as one of rank {}", from, event.peer);
  require(event.data == expected, "T-28", "expected the control message \"{}\" ({} bytes), got \"{}\" ({} bytes)",
          expected.substr(0, 30), expected.size(), event.data.substr(0, 30), event.data.size());
  at.events.pop_front();
}

void send_patiently(Stage& stage, uint32_t from, uint32_t to, const std::string& text) {
  stage.until(
      [&] {
        const tutti_status status = stage[from].send_control(to, text);
        require(status == TUTTI_OK || status == TUTTI_AGAIN, "T-28", "send_control of {} bytes returned {}: {}",
                text.size(), status_text(status), last_error());
        return status == TUTTI_OK;
      },
      "T-28", "send_control goes on returning TUTTI_AGAIN though the receiver progresses");
}

void control_messages(Bench& bench) {
  Stage stage(bench, {.nranks = 3});
  for (uint32_t k = 0; k < 20; ++k) {
    const uint32_t from = k % 3, to = (k + 1 + k / 3 % 2) % 3;
    const std::string text = k == 5 ? std::string() : control_text(from, k);
    send_patiently(stage, from, to, text);
    stage.until([&] { return !stage[to].events.empty(); }, "T-28",
                fmt::format("a control message of {} bytes, which send_control took, does not arrive", text.size()));
    expect_control(stage[to], from, text);
    stage.settle();
    for (uint32_t r = 0; r < 3; ++r)
      require(stage[r].events.empty(), "T-28", "rank {} was told of a control message that nobody sent it, or twice",
              r);
  }
  // Bytes, not a text: zeros end nothing.
  const std::string zeros("\0\1\0\0\2\0", 6);
  send_patiently(stage, 0, 1, zeros);
  stage.until([&] { return !stage[1].events.empty(); }, "T-28", "a control message of zeros does not arrive");
  require(stage[1].events.front().data == zeros, "T-28",
          "a control message of {} bytes, zeros among them, came as one of {} bytes, or as other bytes", zeros.size(),
          stage[1].events.front().data.size());
  stage[1].events.clear();
  require(stage[0].send_control(1, std::string(bench.caps().control_bytes + 1, 'x')) == TUTTI_INVALID_ARGUMENT, "T-28",
          "send_control of one byte more than control_bytes is not TUTTI_INVALID_ARGUMENT");
}

// Until the sender is held back; then all arrive in order, and there is room again.
void control_flood(Bench& bench) {
  Stage stage(bench);
  constexpr uint32_t most = 3000;
  for (int turn = 0; turn < 2; ++turn) {
    uint32_t sent = 0;
    for (; sent < most; ++sent) {
      const tutti_status status = stage[0].send_control(1, control_text(0, sent));
      if (status == TUTTI_AGAIN) break;
      require(status == TUTTI_OK, "T-28", "send_control returned {}: {}", status_text(status), last_error());
    }
    require(sent > 0, "T-28", "send_control returned TUTTI_AGAIN though the receiver had taken everything");
    stage.until([&] { return stage[1].events.size() >= sent; }, "T-28",
                [&] { return fmt::format("send_control took {} messages, {} arrived", sent, stage[1].events.size()); });
    for (uint32_t k = 0; k < sent; ++k) expect_control(stage[1], 0, control_text(0, k));
  }
  send_patiently(stage, 0, 1, "there is room again");
}

// Control messages among transfers, whose lanes they do not disturb.
void control_among_transfers(Bench& bench) {
  Stage stage(bench);
  uint32_t next[2] = {0, 0};
  for (uint32_t k = 0; k < 30; ++k) {
    Message message(stage, {k & 1, 1 - (k & 1), k % 3, k / 2}, k % 4 == 0 ? 5000 : 20);
    message.post_receive();
    stage.until([&] { return message.post_send(); }, "T-21", "a SEND is refused");
    send_patiently(stage, 0, 1, control_text(0, k));
    send_patiently(stage, 1, 0, control_text(1, k));
    stage.until([&] { return message.sent() && message.received(); }, "T-11",
                "a message among control messages is lost");
  }
  stage.until([&] { return stage[0].events.size() == 30 && stage[1].events.size() == 30; }, "T-28",
              "not all control messages among transfers arrive");
  for (const uint32_t to : {0u, 1u})
    for (; next[to] < 30; ++next[to]) expect_control(stage[to], 1 - to, control_text(1 - to, next[to]));
}

// The data of a record stays while other functions are called, until the next progress.
void data_lives_until_progress(Bench& bench) {
  Stage stage(bench);
  for (uint32_t k = 0; k < 6; ++k) {
    const std::string text = control_text(0, k * 7 + 1);
    send_patiently(stage, 0, 1, text);
    for (uint32_t i = 1; i < 3; ++i) send_patiently(stage, 0, 1, control_text(0, k * 7 + 1 + i));
    tutti_completion records[8];
    uint32_t n = 0;
    stage.until(
        [&] {
          if (n == 0)
            call("progress", false, [&] { return bench.transport()->progress(stage[1].endpoint, records, 2, &n); });
          return n > 0;
        },
        "T-28", "a control message does not arrive");
    // The sender goes on, and the receiver calls everything but progress.
    for (int i = 0; i < 4; ++i) stage[0].send_control(1, control_text(0, 990));
    for (int i = 0; i < 40; ++i) stage[0].progress();
    uint64_t word = 0;
    stage[1].post(stage[1].receive(0, 2, &word, 8));
    stage[1].post(stage[1].send(0, 2, &word, 8, TUTTI_TRANSFER_INLINE * (bench.caps().inline_bytes >= 8)));
    stage[1].send_control(0, "other");
    for (uint32_t i = 0; i < n; ++i) {
      const std::string expected = control_text(0, k * 7 + 1 + i);
      require(records[i].kind == TUTTI_COMPLETION_CONTROL && records[i].bytes == expected.size(), "T-28",
              "expected the control message \"{}\" in record {}, got kind {} and {} bytes", expected.substr(0, 30), i,
              records[i].kind, records[i].bytes);
      require(std::memcmp(records[i].data, expected.data(), expected.size()) == 0, "T-29",
              "the data of a control message changed before the next call of progress: \"{}\" instead of \"{}\"",
              std::string(static_cast<const char*>(records[i].data), 20), expected.substr(0, 20));
    }
    for (uint32_t lane = 2; stage[0].links[1] && lane == 2; ++lane) {
      Posted* receive = stage[0].post(stage[0].receive(1, lane, &word, 8));
      Posted* send = stage[0].post(stage[0].send(1, lane, &word, 8));
      stage.until([&] { return receive->done && send->done && stage[1].pending() == 0; }, "T-11", "a message is lost");
    }
    stage.settle();
    stage[0].events.clear(), stage[1].events.clear();
  }
}

}  // namespace

std::vector<ContractCase> control_cases() {
  return {
      {"control-messages", "control messages between three ranks", {"T-28", "E-10"}, 4, control_messages},
      {"control-data", "a record's data until the next progress", {"T-28", "T-29"}, 5, data_lives_until_progress},
      {"control-among-transfers",
       "control messages among transfers",
       {"T-28", "T-13", "T-15", "T-21"},
       6,
       control_among_transfers},
      {"control-flood", "control messages until the sender is held back", {"T-28"}, 12, control_flood},
  };
}

}  // namespace tutti::conformance::contract
