// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_transfer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::microseconds patience(20);  // for the other side, until what else is pending goes on
constexpr std::chrono::seconds handover_limit(5);

using Fragment = StreamExchange::Fragment;
using Stage = Handover::Stage;

// A group on its way into the stream.
class ExchangeIssue {
 public:
  ExchangeIssue(StreamExchange& exchange, const std::function<void()>& meanwhile)
      : exchange_(exchange), meanwhile_(meanwhile), writer_(*exchange.writer), rendezvous_(*exchange.rendezvous) {
    exchange.sent.clear();
    exchange.fragments.clear();
    writer_.open(exchange.tables, std::max<uint64_t>(exchange.most_queued, 1), meanwhile);
    writer_.add({exchange.rank, exchange.device, exchange.stream, exchange.spare, exchange.queue, exchange.turn});
  }

  void run() {
    if (exchange_.after) writer_.add(0, exchange_.counter->wait(*exchange_.after));
    writer_.add(0, exchange_.counter->store(exchange_.first));
    if (std::ranges::any_of(*exchange_.transfers, [this](const Transfer& t) { return t.sending && is_near(t); }))
      ready_ = writer_.event_end(0);
    for_each_own(*exchange_.transfers, exchange_.rank, [this](const Transfer& send, const Transfer& receive) {
      if (send.bytes) writer_.copy(0, receive.data, send.data, send.bytes);
    });
    writer_.flush(0);
    hand_over();
    exchange_.awaits = Awaits::nothing;
    find_fragments();
    for (const Fragment& fragment : exchange_.fragments) carry_out(fragment);
    if (exchange_.paced && !exchange_.fragments.empty()) writer_.drain(0);
    writer_.add(0, exchange_.counter->store(exchange_.last));
    writer_.flush(0);
    exchange_.commands = writer_.commands(0);
  }

  // It has failed. A thread that waits for the end of the stream waits for the copies of what it sends, too.
  void give_up(const Failure& why) {
    writer_.drop(0);
    rendezvous_.leave(exchange_.rank, why, {});
    if (taken_) rendezvous_.advance(*taken_, Stage::dropped);
    const auto limit = std::chrono::steady_clock::now() + handover_limit;
    std::set<uint32_t> readers;
    for (const Handover* handover : exchange_.sent) {
      if (!handover) continue;
      Stage stage = handover->stage.load(std::memory_order_acquire);  // nobody takes it from now on
      while (stage == Stage::taken && std::chrono::steady_clock::now() < limit)
        stage = rendezvous_.await(*handover, patience);
      if (stage == Stage::taken || (stage == Stage::fetched && !await_copy_or_drop(*handover)))
        readers.insert(handover->to);
    }
    if (!readers.empty()) exchange_.read_by = fmt::format("rank {}", fmt::join(readers, ", "));
    exchange_.commands = writer_.commands(0);
  }

 private:
  using Awaits = StreamExchange::Awaits;

  // Is the peer another rank of this process?
  bool is_near(const Transfer& transfer) const {
    return transfer.bytes && transfer.peer != exchange_.rank && !exchange_.channel(transfer.peer, transfer.sending);
  }
  void wait_for(Awaits what, uint32_t rank) {
    exchange_.awaited_rank = rank;
    exchange_.awaits = what;
  }

  void hand_over() {
    for (const Transfer& transfer : *exchange_.transfers)
      if (transfer.sending && is_near(transfer))
        exchange_.sent.push_back(
            &rendezvous_.offer(exchange_.rank, transfer.peer, transfer.data, exchange_.device, ready_));
    for (const Transfer& transfer : *exchange_.transfers)
      if (!transfer.sending && is_near(transfer)) fetch(transfer);
    for (Handover*& handover : exchange_.sent) {
      wait_for(Awaits::receiving, handover->to);
      while (rendezvous_.await(*handover, patience) != Stage::fetched) {
        rendezvous_.require_no_failure();
        meanwhile_();
      }
      await_copy(*handover);
      rendezvous_.close(*std::exchange(handover, nullptr));
    }
  }

  void fetch(const Transfer& transfer) {
    wait_for(Awaits::sending, transfer.peer);
    while (!(taken_ = rendezvous_.take(transfer.peer, exchange_.rank, patience))) meanwhile_();
    require_readable(exchange_, taken_->device, transfer.peer);
    if (!taken_->done) {
      taken_->done = writer_.make_event(0);
      rendezvous_.leave_events(exchange_.tables.executor, {taken_->done});
    }
    writer_.event(0, TUTTI_COMMAND_AFTER, taken_->ready);
    writer_.copy(0, transfer.data, taken_->data, transfer.bytes);
    writer_.event(0, TUTTI_COMMAND_RECORD, taken_->done);
    writer_.flush(0);
    rendezvous_.advance(*std::exchange(taken_, nullptr), Stage::fetched);
  }

  void await_copy(const Handover& handover) {
    writer_.event(0, TUTTI_COMMAND_AFTER, handover.done);
    writer_.flush(0);
  }
  // False: the device takes no more.
  bool await_copy_or_drop(const Handover& handover) try {
    await_copy(handover);
    return true;
  } catch (const Failure&) {
    writer_.drop(0);
    return false;
  }

  StreamChannel* far_channel(const Transfer& transfer) const {
    return transfer.bytes && transfer.peer != exchange_.rank ? exchange_.channel(transfer.peer, transfer.sending)
                                                             : nullptr;
  }

  // The fragments to and from other processes, by rising level. Announces it to the channels.
  void find_fragments() {
    constexpr uint64_t slots = StreamChannel::slots, most = StreamChannel::slot_bytes;
    std::vector<Fragment>& all = exchange_.fragments;
    for (const Transfer& transfer : *exchange_.transfers)
      if (StreamChannel* channel = far_channel(transfer)) channel->begin_message();
    for (const Transfer& transfer : *exchange_.transfers)
      if (StreamChannel* channel = far_channel(transfer))
        for (uint64_t at = 0; at < transfer.bytes; at += most) {
          const uint64_t f = channel->announced() - channel->message();
          const uint64_t level = !transfer.sending ? 2 * f + 1 : f < slots ? 0 : 2 * (f - slots) + 2;
          const uint64_t bytes = std::min(most, transfer.bytes - at);
          all.push_back({level, channel, channel->announced(), transfer.data + at, bytes, transfer.sending});
          channel->announce(bytes, exchange_.operation, std::nullopt);
        }
    // Each channel's in their order.
    std::ranges::sort(all, {}, [](const Fragment& f) { return std::pair(f.level, f.number); });
  }

  void carry_out(const Fragment& fragment) {
    StreamChannel& channel = *fragment.channel;
    const uint64_t k = fragment.number;
    if (exchange_.paced) {
      writer_.drain(0);
      while (!channel.may_go_on(k)) meanwhile_();
    }
    writer_.flag(0, TUTTI_COMMAND_WAIT, channel.awaited(k), 1);
    writer_.flag(0, TUTTI_COMMAND_WRITE, channel.awaited(k), 0);
    auto* slot = static_cast<std::byte*>(channel.slot(k));
    writer_.copy(0, fragment.put ? slot : fragment.data, fragment.put ? fragment.data : slot, fragment.bytes);
    writer_.flag(0, TUTTI_COMMAND_WRITE, channel.notified(k), 1);
    if (writer_.collected(0) < std::max<uint64_t>(exchange_.most_queued / 4, 1)) return;
    writer_.drain(exchange_.most_queued - exchange_.most_queued / 4);
  }

  StreamExchange& exchange_;
  const std::function<void()>& meanwhile_;
  StreamWriter& writer_;
  LocalRendezvous& rendezvous_;
  tutti_event* ready_ = nullptr;  // what is sent within the process may be read
  Handover* taken_ = nullptr;     // its copy is being put into the stream
};

}  // namespace

std::string StreamExchange::waits_for() const {
  if (awaits == Awaits::nothing) return {};
  return fmt::format("rank {} of its process to {}", awaited_rank,
                     awaits == Awaits::receiving ? "receive what it sends" : "send what it receives");
}

void issue(StreamExchange& exchange, const std::function<void()>& meanwhile) {
  ExchangeIssue filling(exchange, meanwhile);
  try {
    filling.run();
  } catch (const std::exception& problem) {
    filling.give_up(failure_of(problem));
    throw;
  }
}

}  // namespace tutti::core
