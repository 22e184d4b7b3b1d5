// SPDX-License-Identifier: Apache-2.0
//
// Giving up a peer, aborting, and closing. (Peers that die are in process_cases.cpp.)
#include <algorithm>
#include <cstring>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

void expect_failures(Stage& stage) {
  for (auto& rank : stage.ranks) rank->failures_expected = true;
}

// RECVs and SENDs that cannot complete: no partner is posted. Fewer SENDs are taken where the transport buffers none.
struct Pending {
  std::vector<Posted*> transfers;
  std::vector<std::unique_ptr<GuardedMemory>> memory;
};
Pending make_pending(Stage& stage, uint32_t at, uint32_t peer, bool sends) {
  Pending pending;
  const uint64_t bytes = stage.bench.caps().fragment_bytes;
  for (uint32_t k = 0; k < 2; ++k)
    for (uint32_t lane = 0; lane < 3; ++lane) {
      auto& memory = pending.memory.emplace_back(std::make_unique<GuardedMemory>(64));
      if (Posted* p = stage[at].post(stage[at].receive(peer, lane, memory->data(), 64))) pending.transfers.push_back(p);
    }
  for (uint32_t k = 0; sends && k < 12; ++k) {
    auto& memory = pending.memory.emplace_back(std::make_unique<GuardedMemory>(bytes));
    if (Posted* p = stage[at].post(stage[at].send(peer, 1, memory->data(), bytes))) pending.transfers.push_back(p);
  }
  return pending;
}

// All have completed with `status`; but a SEND may have completed before.
void check_ended(const Pending& pending, tutti_status status, const char* clause, const char* after) {
  for (const Posted* p : pending.transfers) {
    const bool sending = p->transfer.kind == TUTTI_TRANSFER_SEND;
    require(p->status == status || (sending && p->status == TUTTI_OK), clause,
            "after {} a pending {} completed with {}, expected {}", after, sending ? "SEND" : "RECV",
            status_text(p->status), status_text(status));
  }
}

bool ended(const Pending& pending) {
  return std::all_of(pending.transfers.begin(), pending.transfers.end(), [](Posted* p) { return p->done; });
}

void check_refused(Stage& stage, uint32_t at, uint32_t peer, tutti_status expected, const char* clause,
                   const char* after) {
  uint64_t word = 0;
  for (const bool sending : {true, false}) {
    tutti_status status = TUTTI_OK;
    stage[at].post(sending ? stage[at].send(peer, 0, &word, 8) : stage[at].receive(peer, 0, &word, 8), &status);
    require(status == expected, clause, "after {} a {} was answered with {}, expected {}", after,
            sending ? "SEND" : "RECV", status_text(status), status_text(expected));
  }
}

void one_more(Stage& stage, uint32_t from, uint32_t to, uint32_t k, const char* clause, const char* text) {
  Message message(stage, {from, to, 2, k}, 40);
  stage.until(
      [&] {
        if (!message.receive_posted()) message.post_receive();
        if (!message.send_posted()) message.post_send();
        return message.received() && message.sent();
      },
      clause, text);
}

void fail_peer(Bench& bench) {
  if (!bench.has_fail_peer()) throw NotOffered{"it has no fail_peer"};
  for (const bool with_sends : {false, true}) {
    Stage stage(bench, {.nranks = 3});
    expect_failures(stage);
    Pending lost = make_pending(stage, 0, 1, with_sends), kept = make_pending(stage, 0, 2, false);
    stage.settle();
    tutti_status status = stage[0].fail_peer(1);
    require(status == TUTTI_OK, "T-30", "fail_peer returned {}: {}", status_text(status), last_error());
    stage.until([&] { return ended(lost); }, "T-30",
                [&] {
                  return fmt::format(
                      "after fail_peer(1) {} of {} pending transfers with rank 1 never complete",
                      std::count_if(lost.transfers.begin(), lost.transfers.end(), [](Posted* p) { return !p->done; }),
                      lost.transfers.size());
                });
    check_ended(lost, TUTTI_PEER_FAILED, "T-30", "fail_peer");
    for (auto& memory : lost.memory) memory->forbid("T-30", "the memory of a transfer that fail_peer had ended");
    require(std::none_of(kept.transfers.begin(), kept.transfers.end(), [](Posted* p) { return p->done; }), "T-30",
            "fail_peer(1) ended transfers with rank 2");
    check_refused(stage, 0, 1, TUTTI_PEER_FAILED, "T-30", "fail_peer");
    status = stage[0].send_control(1, "too late");
    require(status == TUTTI_PEER_FAILED, "T-30", "after fail_peer send_control was answered with {}, expected {}",
            status_text(status), status_text(TUTTI_PEER_FAILED));
    stage.settle();
    for (const Event& event : stage[0].events)
      require(event.kind != TUTTI_COMPLETION_PEER_FAILED, "T-30",
              "rank 0 gave rank {} up itself and was told of its loss all the same: {}", event.peer, event.data);
    // Pending transfers of the other link complete as usual.
    std::vector<uint64_t> words(64 / 8 * 6, bench.seed);
    for (uint32_t k = 0; k < 2; ++k)
      for (uint32_t lane = 0; lane < 3; ++lane)
        stage.until([&] { return stage[2].post(stage[2].send(0, lane, &words[(k * 3 + lane) * 8], 64)) != nullptr; },
                    "T-30", "after fail_peer(1) the link with rank 2 takes nothing any more");
    stage.until([&] { return ended(kept); }, "T-30", "after fail_peer(1) pending RECVs from rank 2 never complete");
    check_ended(kept, TUTTI_OK, "T-30", "fail_peer of another rank");
    one_more(stage, 0, 2, 0, "T-30", "after fail_peer(1) a message from rank 0 to rank 2 does not pass");
    one_more(stage, 1, 2, 1, "T-30", "after rank 0's fail_peer(1) a message from rank 1 to rank 2 does not pass");
    status = stage[0].fail_peer(1);
    require(status == TUTTI_OK, "T-30", "fail_peer for a second time returned {}", status_text(status));
  }
}

void abort_all(Bench& bench) {
  for (const bool with_sends : {false, true}) {
    Stage stage(bench, {.nranks = 3});
    expect_failures(stage);
    Pending one = make_pending(stage, 0, 1, with_sends), two = make_pending(stage, 0, 2, with_sends);
    stage.settle();
    const tutti_status status = stage[0].abort();
    require(status == TUTTI_OK, "T-31", "abort returned {}: {}", status_text(status), last_error());
    stage.until([&] { return ended(one) && ended(two); }, "T-31",
                [&] { return fmt::format("after abort {} transfers never complete", stage[0].pending()); });
    for (const Pending* pending : {&one, &two}) {
      check_ended(*pending, TUTTI_ABORTED, "T-31", "abort");
      for (auto& memory : pending->memory) memory->forbid("T-31", "the memory of a transfer that abort had ended");
    }
    for (const uint32_t peer : {1u, 2u}) check_refused(stage, 0, peer, TUTTI_ABORTED, "T-31", "abort");
    stage.settle();
    one_more(stage, 1, 2, 0, "T-31", "after rank 0's abort a message from rank 1 to rank 2 does not pass");
  }
}

// Completed messages of all sizes, then close: they still arrive.
void close_after_completion(Bench& bench) {
  for (const uint64_t bytes : {uint64_t{16}, std::min<uint64_t>(bench.caps().fragment_bytes, 40'000)}) {
    Stage stage(bench);
    expect_failures(stage);
    std::vector<std::unique_ptr<Message>> messages;
    for (uint32_t k = 0; k < 12; ++k)
      messages.push_back(std::make_unique<Message>(stage, Label{0, 1, k % 3, k / 3}, bytes));
    size_t sent = 0;
    while (sent < messages.size() && messages[sent]->post_send()) ++sent;
    const bool told = stage[0].send_control(1, "the last words") == TUTTI_OK;
    for (int i = 0; i < 100; ++i) stage[0].progress();  // the receiver takes nothing yet
    // The memory of SENDs that are pending may be read until then.
    const auto pending = std::stable_partition(messages.begin(), messages.end(), [](auto& m) { return m->sent(); });
    stage[0].close();
    messages.erase(pending, messages.end());
    for (auto& m : messages)
      stage.until([&] { return m->post_receive(); }, "T-33",
                  "the peer closed after its SENDs had completed, and now a RECV for one of them is refused for ever");
    stage.until(
        [&] { return std::all_of(messages.begin(), messages.end(), [](auto& m) { return m->received(); }); }, "T-33",
        [&] {
          return fmt::format("the peer closed after {} SENDs of {} bytes had completed, and not all of them arrive",
                             messages.size(), bytes);
        });
    stage.until(
        [&] {
          return !told || std::any_of(stage[1].events.begin(), stage[1].events.end(),
                                      [](const Event& e) { return e.kind == TUTTI_COMPLETION_CONTROL; });
        },
        "T-33", "the peer closed after send_control had returned TUTTI_OK, and the message does not arrive");
  }
}

// Both directions are as full as they get when rank 0 closes, and rank 1, which has taken nothing, goes on sending.
void close_under_traffic(Bench& bench) {
  const uint64_t bytes = bench.caps().fragment_bytes, small = std::min<uint64_t>(bench.caps().inline_bytes, 64);
  const GuardedMemory unwanted(bytes);  // outlives the endpoint that sends it
  Stage stage(bench);
  expect_failures(stage);
  std::vector<std::unique_ptr<Message>> messages, late;
  for (uint32_t k = 0; k < std::min(64u, bench.caps().receive_depth); ++k)
    for (const uint32_t lane : {0u, 1u})
      messages.push_back(std::make_unique<Message>(stage, Label{0, 1, lane, k}, bytes));
  const auto goes_on = [&](auto post) {  // on both lanes as far as it is taken
    bool refused[2] = {};
    for (auto& m : messages)
      if (!refused[m->label.lane]) refused[m->label.lane] = !post(*m);
  };
  goes_on([](Message& m) { return m.post_receive(); });
  stage.settle();  // rank 0 knows of the receives
  goes_on([](Message& m) { return m.post_send(); });
  for (uint32_t k = 0; k < 2; ++k) {
    auto& m = late.emplace_back(std::make_unique<Message>(stage, Label{0, 1, 2, k}, small, TUTTI_TRANSFER_INLINE));
    if (!m->post_send()) {
      late.pop_back();
      break;
    }
  }
  const bool told = stage[0].send_control(1, "the last words") == TUTTI_OK;
  for (int i = 0; i < 200; ++i) stage[0].progress();
  const auto send_against = [&] {  // small messages may run ahead of their RECVs; large ones wait
    tutti_status status = TUTTI_OK;
    for (uint32_t k = 0; k < 8 && status >= 0; ++k)
      stage[1].post(stage[1].send(0, k % 2 ? 2 : 1, unwanted.data(), k % 2 ? small : bytes), &status);
    stage[1].send_control(0, "to nobody");
  };
  send_against();
  stage[1].progress();
  stage[0].close();
  send_against();
  for (auto* all : {&messages, &late})
    for (auto& m : *all)
      if (m->sent() && !m->receive_posted())
        stage.until(
            [&] { return m->post_receive(); }, "T-33",
            "the peer closed after its SENDs had completed, and now a RECV for one of them is refused for ever");
  const auto arrived = [&](auto& all) {
    return std::count_if(all.begin(), all.end(), [](auto& m) { return m->sent() && m->received(); });
  };
  const auto sent = std::count_if(messages.begin(), messages.end(), [](auto& m) { return m->sent(); });
  stage.until([&] { return arrived(messages) == sent && arrived(late) == static_cast<ptrdiff_t>(late.size()); }, "T-33",
              [&] {
                return fmt::format(
                    "rank 0 closed while rank 1 was sending: of {} completed SENDs of {} bytes {} arrive, of {} INLINE "
                    "ones {}",
                    sent, bytes, arrived(messages), late.size(), arrived(late));
              });
  stage.until(
      [&] {
        return !told || std::any_of(stage[1].events.begin(), stage[1].events.end(),
                                    [](const Event& e) { return e.kind == TUTTI_COMPLETION_CONTROL; });
      },
      "T-33", "rank 0 closed after send_control had returned TUTTI_OK, and the message does not arrive");
}

// RECVs and SENDs pending, connections under way: closing returns and nothing is touched afterwards.
void close_with_pending(Bench& bench) {
  for (const bool abort_first : {false, true}) {
    Stage stage(bench, {.nranks = 3});
    expect_failures(stage);
    Pending pending = make_pending(stage, 0, 1, true);
    stage.settle();
    if (abort_first) stage[0].abort();
    stage[0].close();
    for (auto& memory : pending.memory)
      memory->forbid("T-34", "the memory of a transfer that was pending when its endpoint was closed");
    uint64_t words[6] = {};
    for (uint32_t lane = 0; lane < 3; ++lane) {
      tutti_status status = TUTTI_OK;  // the peer is gone: an error is as good
      stage[1].post(stage[1].send(0, lane, &words[lane], 8), &status);
    }
    stage.settle();
    one_more(stage, 1, 2, 0, "T-34", "after rank 0 closed with transfers pending rank 1 and 2 cannot go on");
  }
  Stage half(bench, {.connect = false});
  expect_failures(half);
  half[0].connect(1);
  half[0].close();
  for (int i = 0; i < 100; ++i) half[1].progress();
}

}  // namespace

std::vector<ContractCase> failure_cases() {
  return {
      {"fail-peer", "fail_peer with transfers pending", {"T-30", "T-20", "T-15"}, 9, fail_peer},
      {"abort", "abort with transfers pending", {"T-31", "T-20", "T-15"}, 15, abort_all},
      {"close-after-completion",
       "what was completed before close arrives",
       {"T-33", "T-13", "T-15", "T-17"},
       12,
       close_after_completion},
      {"close-under-traffic",
       "what was completed before close arrives though the peer sends and has taken nothing",
       {"T-33", "T-13", "T-15", "T-17"},
       12,
       close_under_traffic,
       uint64_t{100} << 20},
      {"close-with-pending",
       "close with transfers and connections under way",
       {"T-34", "T-20", "T-15"},
       12,
       close_with_pending},
  };
}

}  // namespace tutti::conformance::contract
