// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_transfer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "registry/host.hpp"

namespace tutti::core {

using Stage = Handover::Stage;

// ---- Within a process --------------------------------------------------------------------------------------

void Handovers::require_hope() const {
  if (failure_) throw *failure_;
}

Handover* Handovers::offer(uint32_t from, uint32_t to, const std::byte* data, uint32_t device, tutti_event* ready) {
  const std::lock_guard lock(mutex_);
  require_hope();
  Handover& made = handovers_.take();
  made = {from, to, data, device, ready};
  offers_[{from, to}].push(made);
  changed_.notify_all();
  return &made;
}

Handover* Handovers::take(uint32_t from, uint32_t to) {
  const std::lock_guard lock(mutex_);
  require_hope();
  auto& offers = offers_[{from, to}];
  if (offers.empty()) return nullptr;
  Handover& taken = offers.pop();
  taken_.push(taken);
  taken.stage = Stage::taken;
  return &taken;
}

void Handovers::close(Handover& handover) {
  const std::lock_guard lock(mutex_);
  taken_.remove(handover);
  handovers_.give_back(handover);
}

void Handovers::advance(Handover& handover, Stage stage, tutti_event* done) {
  const std::lock_guard lock(mutex_);
  handover.stage = std::max(handover.stage, stage);  // its sender may have left
  if (done) handover.done = done;
  changed_.notify_all();
}

bool Handovers::reached(const Handover& handover, Stage stage, std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return handover.stage >= stage || failure_; });
  require_hope();
  return handover.stage >= stage;
}

std::string Handovers::leave(uint32_t rank, const Failure& why, std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  if (!failure_)
    failure_ = std::make_unique<Failure>(
        why.status, fmt::format("ends its transfers with rank {} of its process, which {}", rank, why.text));
  const auto each = [this](const auto& visit) {
    for (Handover* one = taken_.first(); one; one = one->next) visit(*one);
  };
  each([rank](Handover& handover) {  // what this rank itself was about to take it does not take any more
    if (handover.to == rank && handover.stage == Stage::taken) handover.stage = Stage::settled;
  });
  changed_.notify_all();
  std::set<uint32_t> slow;
  changed_.wait_for(lock, patience, [&] {
    slow.clear();
    each([&](const Handover& handover) {
      if (handover.from == rank && handover.stage == Stage::taken) slow.insert(handover.to);
    });
    return slow.empty();
  });
  each([rank](Handover& handover) {  // nobody waits for this rank any more
    if (handover.from == rank && handover.stage == Stage::taken) handover.stage = Stage::settled;
  });
  return fmt::format("{}", fmt::join(slow, ", "));
}

Stage Handovers::stage_of(const Handover& handover) {
  const std::lock_guard lock(mutex_);
  return handover.stage;
}

std::mutex& Handovers::filling(void* stream) {
  const std::lock_guard lock(mutex_);
  return filling_[stream];
}

// ---- Putting a group into the stream -----------------------------------------------------------------------

namespace {

constexpr std::chrono::microseconds patience(200);
constexpr std::chrono::seconds handover_limit(5);

using Fragment = StreamExchange::Fragment;

// A group on its way into the stream.
class ExchangeIssue {
 public:
  ExchangeIssue(StreamExchange& exchange, const std::function<void()>& meanwhile)
      : exchange_(exchange), meanwhile_(meanwhile), writer_(*exchange.writer) {
    exchange.sent.clear();
    exchange.received.clear();
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
    exchange_.read_by = exchange_.handovers->leave(exchange_.rank, why, handover_limit);
    for (Handover* handover : exchange_.sent) {
      if (!handover) continue;
      const Stage stage = exchange_.handovers->stage_of(*handover);
      if (stage < Stage::fetched || stage == Stage::settled) continue;
      try {
        await_copy(*handover);
      } catch (const Failure&) {  // the device takes no more
        writer_.drop(0);
        exchange_.read_by += fmt::format("{}{}", exchange_.read_by.empty() ? "" : ", ", handover->to);
      }
      exchange_.handovers->advance(*handover, Stage::settled);
    }
    if (!exchange_.read_by.empty()) exchange_.read_by = "rank " + exchange_.read_by;
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
    Handovers& handovers = *exchange_.handovers;
    for (const Transfer& transfer : *exchange_.transfers)
      if (transfer.sending && is_near(transfer))
        exchange_.sent.push_back(
            handovers.offer(exchange_.rank, transfer.peer, transfer.data, exchange_.device, ready_));
    for (const Transfer& transfer : *exchange_.transfers)
      if (!transfer.sending && is_near(transfer)) exchange_.received.push_back(fetch(transfer));
    for (Handover*& handover : exchange_.sent) {
      wait_for(Awaits::receiving, handover->to);
      until(*handover, Stage::fetched);
      await_copy(*handover);
      handovers.advance(*std::exchange(handover, nullptr), Stage::settled);
    }
    // Its events are this rank's own again.
    for (Handover* handover : exchange_.received) {
      wait_for(Awaits::going_on, handover->from);
      until(*handover, Stage::settled);
      handovers.close(*handover);
    }
  }

  Handover* fetch(const Transfer& transfer) {
    wait_for(Awaits::sending, transfer.peer);
    Handover* handover = nullptr;
    while (!(handover = exchange_.handovers->take(transfer.peer, exchange_.rank))) meanwhile_();
    require_readable(exchange_, handover->device, transfer.peer);
    writer_.event(0, TUTTI_COMMAND_AFTER, handover->ready);
    writer_.copy(0, transfer.data, handover->data, transfer.bytes);
    tutti_event* done = writer_.event_end(0);
    writer_.flush(0);
    exchange_.handovers->advance(*handover, Stage::fetched, done);
    return handover;
  }

  void await_copy(const Handover& handover) {
    writer_.event(0, TUTTI_COMMAND_AFTER, handover.done);
    writer_.flush(0);
  }

  void until(const Handover& handover, Stage stage) const {
    while (!exchange_.handovers->reached(handover, stage, patience)) meanwhile_();
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
    writer_.flag(0, TUTTI_COMMAND_WRITE, channel.told(k), 1);
    if (writer_.collected(0) < std::max<uint64_t>(exchange_.most_queued / 4, 1)) return;
    writer_.drain(exchange_.most_queued - exchange_.most_queued / 4);
  }

  StreamExchange& exchange_;
  const std::function<void()>& meanwhile_;
  StreamWriter& writer_;
  tutti_event* ready_ = nullptr;  // what is sent within the process may be read
};

}  // namespace

std::string StreamExchange::waits_for() const {
  switch (awaits) {
    case Awaits::nothing:
      return {};
    case Awaits::receiving:
      return fmt::format("rank {} of its process to receive what it sends", awaited_rank);
    case Awaits::sending:
      return fmt::format("rank {} of its process to send what it receives", awaited_rank);
    case Awaits::going_on:
      return fmt::format("rank {} of its process to go on after it was received", awaited_rank);
  }
  return {};
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
