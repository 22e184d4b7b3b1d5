// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "engine/host.hpp"

namespace tutti::core {

using Stage = Handover::Stage;

std::string text_of(const Transfer& transfer) {
  return fmt::format("{} of {} bytes {} rank {} with tag {}", transfer.sending ? "send" : "receive", transfer.bytes,
                     transfer.sending ? "to" : "from", transfer.peer, transfer.tag);
}

std::vector<std::pair<const Transfer*, const Transfer*>> match_own(const std::vector<Transfer>& group, uint32_t rank) {
  std::vector<const Transfer*> sent, received;
  for (const Transfer& transfer : group)
    if (transfer.peer == rank) (transfer.sending ? sent : received).push_back(&transfer);
  if (sent.size() != received.size())
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{} sends to this rank itself and {} receives from it: within one group each send needs "
                              "its receive",
                              sent.size(), received.size()));
  std::vector<std::pair<const Transfer*, const Transfer*>> pairs;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->bytes != received[i]->bytes || sent[i]->tag != received[i]->tag)
      throw Failure(TUTTI_MISMATCH, fmt::format("this rank's {} met its {}: both must be equal in size and tag",
                                                text_of(*sent[i]), text_of(*received[i])));
    pairs.emplace_back(sent[i], received[i]);
  }
  return pairs;
}

// ---- Within a process --------------------------------------------------------------------------------------

std::shared_ptr<StreamBoard> StreamBoard::of(uint64_t id) {
  static std::mutex mutex;
  static auto* boards = new std::map<uint64_t, std::weak_ptr<StreamBoard>>();
  const std::lock_guard lock(mutex);
  std::erase_if(*boards, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<StreamBoard>& kept = (*boards)[id];
  if (auto board = kept.lock()) return board;
  auto made = std::make_shared<StreamBoard>();
  kept = made;
  return made;
}

void StreamBoard::require_hope() const {
  if (failure_) throw *failure_;
}

std::shared_ptr<Handover> StreamBoard::offer(const Handover& handover) {
  const std::lock_guard lock(mutex_);
  require_hope();
  auto made = std::make_shared<Handover>(handover);
  std::erase_if(open_, [](const auto& one) { return one.expired(); });
  open_.push_back(made);
  offers_[{handover.from, handover.to}].push_back(made);
  changed_.notify_all();
  return made;
}

std::shared_ptr<Handover> StreamBoard::take(uint32_t from, uint32_t to) {
  const std::lock_guard lock(mutex_);
  require_hope();
  auto& offers = offers_[{from, to}];
  if (offers.empty()) return nullptr;
  auto taken = std::move(offers.front());
  offers.erase(offers.begin());
  taken->stage = Stage::taken;
  return taken;
}

void StreamBoard::advance(Handover& handover, Stage stage, tutti_mark* done) {
  const std::lock_guard lock(mutex_);
  // Who uses the other's mark has to say when it is done with it, whatever has happened meanwhile.
  if (stage != Stage::fetched && stage != Stage::settled) require_hope();
  handover.stage = stage;
  if (done) handover.done = done;
  changed_.notify_all();
}

bool StreamBoard::reached(const Handover& handover, Stage stage, std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return handover.stage >= stage || failure_; });
  require_hope();
  return handover.stage >= stage;
}

void StreamBoard::leave(uint32_t rank, const Failure& why) {
  std::unique_lock lock(mutex_);
  if (!failure_)
    failure_ = std::make_unique<Failure>(
        why.status, fmt::format("ends its transfers with rank {} of its process, which {}", rank, why.text));
  for (const auto& one : open_) {  // what this rank itself was about to do it does not do any more
    const auto handover = one.lock();
    if (!handover) continue;
    if ((handover->to == rank && handover->stage == Stage::taken) ||
        (handover->from == rank && handover->stage == Stage::answered))
      handover->stage = Stage::settled;
  }
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return std::ranges::none_of(open_, [&](const std::weak_ptr<Handover>& one) {
      const auto handover = one.lock();
      return handover && ((handover->from == rank && handover->stage == Stage::taken) ||
                          (handover->to == rank && handover->stage == Stage::answered));
    });
  });
}

// ---- Putting a group into the stream -----------------------------------------------------------------------

namespace {

constexpr std::chrono::microseconds patience(200);

struct Fragment {
  uint64_t level = 0;
  StreamChannel* channel = nullptr;
  uint64_t number = 0;  // of the channel
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  bool put = false;
};

class Filling {
 public:
  Filling(StreamExchange& exchange, const std::function<void()>& meanwhile)
      : exchange_(exchange), meanwhile_(meanwhile), executor_(exchange.tables.executor) {}

  void run() {
    if (exchange_.after) add_mark(TUTTI_COMMAND_AFTER, exchange_.after);
    add_mark(TUTTI_COMMAND_MARK, exchange_.begin);
    for (const auto& [send, receive] : match_own(*exchange_.transfers, exchange_.rank))
      add_copy(receive->data, send->data, send->bytes);
    flush();
    hand_over();
    exchange_.waits_for.clear();
    const std::vector<Fragment> between_processes = fragments();
    for (const Fragment& fragment : between_processes) carry_out(fragment);
    if (exchange_.paced && !between_processes.empty()) drain(0);
    add_mark(TUTTI_COMMAND_MARK, exchange_.end);
    flush();
  }

 private:
  // Is the peer another rank of this process?
  bool is_near(const Transfer& transfer) const {
    return transfer.peer != exchange_.rank && !exchange_.channel(transfer.peer, transfer.sending);
  }

  void hand_over() {
    std::vector<std::shared_ptr<Handover>> sent, received;
    for (const Transfer& transfer : *exchange_.transfers)
      if (transfer.sending && is_near(transfer)) {
        Handover offer;
        offer.from = exchange_.rank;
        offer.to = transfer.peer;
        offer.data = transfer.data;
        offer.device = exchange_.device;
        offer.ready = exchange_.begin;
        sent.push_back(exchange_.board->offer(offer));
      }
    for (const Transfer& transfer : *exchange_.transfers)
      if (!transfer.sending && is_near(transfer)) received.push_back(fetch(transfer));
    if (!received.empty()) {
      tutti_mark* done = mark();
      flush();
      for (const auto& handover : received) exchange_.board->advance(*handover, Stage::fetched, done);
    }
    for (const auto& handover : sent) {
      exchange_.waits_for = fmt::format("rank {} of its process to receive what it sends", handover->to);
      until(*handover, Stage::fetched);
      exchange_.board->advance(*handover, Stage::answered);
      add_mark(TUTTI_COMMAND_AFTER, handover->done);
      flush();
      exchange_.board->advance(*handover, Stage::settled);
    }
    // Its marks are this rank's own again.
    for (const auto& handover : received) {
      exchange_.waits_for = fmt::format("rank {} of its process to go on after it was received", handover->from);
      until(*handover, Stage::settled);
    }
  }

  std::shared_ptr<Handover> fetch(const Transfer& transfer) {
    exchange_.waits_for = fmt::format("rank {} of its process to send what it receives", transfer.peer);
    std::shared_ptr<Handover> handover;
    while (!(handover = exchange_.board->take(transfer.peer, exchange_.rank))) meanwhile_();
    if (handover->device != exchange_.device && !exchange_.readable->contains(handover->device))
      enable(handover->device, transfer.peer);
    add_mark(TUTTI_COMMAND_AFTER, handover->ready);
    add_copy(transfer.data, handover->data, transfer.bytes);
    flush();
    return handover;
  }

  void enable(uint32_t peer_device, uint32_t peer) const {
    const tutti_device* memory = exchange_.tables.memory;
    if (const tutti_status status = memory->enable_peer(memory->self, exchange_.device, peer_device); status < 0)
      throw Failure(status, fmt::format("device {} {} of rank {} cannot read device {} of rank {}: {}", memory->name,
                                        exchange_.device, exchange_.rank, peer_device, peer, take_plugin_error()));
    exchange_.readable->insert(peer_device);
  }

  void until(const Handover& handover, Stage stage) const {
    while (!exchange_.board->reached(handover, stage, patience)) meanwhile_();
  }

  // What goes to and comes from other processes, by rising level. Announces it to the channels.
  std::vector<Fragment> fragments() const {
    constexpr uint64_t slots = StreamChannel::slots, most = StreamChannel::slot_bytes;
    std::vector<Fragment> all;
    std::map<StreamChannel*, uint64_t> before;  // fragments of this group
    for (const Transfer& transfer : *exchange_.transfers) {
      StreamChannel* channel =
          transfer.peer == exchange_.rank ? nullptr : exchange_.channel(transfer.peer, transfer.sending);
      if (!channel) continue;
      for (uint64_t at = 0; at < transfer.bytes; at += most) {
        const uint64_t f = before[channel]++;
        const uint64_t level = !transfer.sending ? 2 * f + 1 : f < slots ? 0 : 2 * (f - slots) + 2;
        const uint64_t bytes = std::min(most, transfer.bytes - at);
        all.push_back({level, channel, channel->announced(), transfer.data + at, bytes, transfer.sending});
        channel->announce(bytes);
      }
    }
    std::ranges::stable_sort(all, {}, &Fragment::level);
    return all;
  }

  void carry_out(const Fragment& fragment) {
    StreamChannel& channel = *fragment.channel;
    const uint64_t k = fragment.number;
    if (exchange_.paced) {
      drain(0);
      while (!channel.may_go_on(k)) meanwhile_();
    }
    add_word(TUTTI_COMMAND_WAIT, channel.awaited(k), 1);
    add_word(TUTTI_COMMAND_WRITE, channel.awaited(k), 0);
    auto* slot = static_cast<std::byte*>(channel.slot(k));
    add_copy(fragment.put ? slot : fragment.data, fragment.put ? fragment.data : slot, fragment.bytes);
    add_word(TUTTI_COMMAND_WRITE, channel.told(k), 1);
    if (commands_.size() < std::max<uint64_t>(exchange_.most_queued / 4, 1)) return;
    drain(exchange_.most_queued - exchange_.most_queued / 4);
  }

  // Waits until at most so many commands are not done.
  void drain(uint64_t most) {
    if (!commands_.empty()) {
      const uint64_t earlier = exchange_.commands;
      tutti_mark* here = mark();
      flush();
      stretches_.push_back({here, exchange_.commands - earlier});
      queued_ += exchange_.commands - earlier;
    }
    while (queued_ > most) {
      await(stretches_.front().end);
      queued_ -= stretches_.front().commands;
      free_.push_back(stretches_.front().end);
      stretches_.pop_front();
    }
  }
  void await(tutti_mark* mark) const {
    for (;;) {
      const tutti_status status = executor_->poll_mark(executor_->self, mark);
      if (status == TUTTI_OK) return;
      if (status != TUTTI_AGAIN) fail(status, "");
      meanwhile_();
    }
  }

  // A mark at the present end, not yet in the stream.
  tutti_mark* mark() {
    if (free_.empty()) {
      std::vector<tutti_mark*>& spare = *exchange_.spare;
      if (used_ == spare.size()) {
        tutti_mark* made = nullptr;
        if (const tutti_status status = executor_->create_mark(executor_->self, exchange_.device, &made); status < 0)
          fail(status, "no mark: ");
        spare.push_back(made);
      }
      free_.push_back(spare[used_++]);
    }
    tutti_mark* mark = free_.front();
    free_.pop_front();
    add_mark(TUTTI_COMMAND_MARK, mark);
    return mark;
  }
  [[noreturn]] void fail(tutti_status status, const char* what) const {
    throw Failure(status, fmt::format("device {}: {}{}", exchange_.tables.memory->name, what, take_plugin_error()));
  }

  void add_copy(std::byte* dst, const std::byte* src, uint64_t bytes) {
    tutti_command command{};
    command.kind = TUTTI_COMMAND_COPY;
    command.dst = dst;
    command.count = bytes;
    sources_.push_back(src);
    command.src = &sources_.back();
    command.sources = 1;
    commands_.push_back(command);
  }
  void add_word(uint32_t kind, uint32_t* word, uint32_t value) {
    tutti_command command{};
    command.kind = kind;
    command.word = word;
    command.value = value;
    commands_.push_back(command);
  }
  void add_mark(uint32_t kind, tutti_mark* mark) {
    tutti_command command{};
    command.kind = kind;
    command.mark = mark;
    commands_.push_back(command);
  }
  void flush() {
    if (commands_.empty()) return;
    const std::lock_guard lock(exchange_.board->filling());
    const tutti_status status = executor_->enqueue(executor_->self, exchange_.stream, commands_.data(),
                                                   static_cast<uint32_t>(commands_.size()));
    if (status < 0) fail(status, "the stream refuses work: ");
    exchange_.commands += commands_.size();
    commands_.clear();
    sources_.clear();
  }

  struct Stretch {
    tutti_mark* end;
    uint64_t commands;
  };
  StreamExchange& exchange_;
  const std::function<void()>& meanwhile_;
  const tutti_executor* executor_;
  std::vector<tutti_command> commands_;  // not yet in the stream
  std::deque<const void*> sources_;      // of those
  size_t used_ = 0;                      // of the spare marks
  std::deque<tutti_mark*> free_;         // of those, free again
  std::deque<Stretch> stretches_;
  uint64_t queued_ = 0;  // commands in them
};

}  // namespace

void issue(StreamExchange& exchange, const std::function<void()>& meanwhile) {
  try {
    Filling(exchange, meanwhile).run();
  } catch (const std::exception& problem) {
    exchange.board->leave(exchange.rank, failure_of(problem));
    throw;
  }
}

}  // namespace tutti::core
