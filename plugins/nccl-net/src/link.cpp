// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

#include <algorithm>
#include <cstring>

#include "endpoint.hpp"

namespace tutti::nccl {
namespace {

Posted posted_of(const tutti_transfer& t) {
  return {static_cast<char*>(t.data), t.bytes, t.cookie, t.mark,
          t.region ? &sdk::from_handle<Region>(t.region) : nullptr};
}
bool fits(const Posted& receive, const Frame& message) {
  return receive.bytes == message.bytes && receive.mark == message.mark;
}
bool is_device(const Posted& transfer) { return transfer.region && transfer.region->is_device(); }
// After a failure to send, a peer that is gone is heard of by a failure to receive or a farewell. If it is not, this
// rank's side is at fault.
constexpr auto kSilence = std::chrono::seconds(1);
uint64_t frame_bytes(uint64_t eager_bytes) { return sizeof(Frame) + std::max(eager_bytes, kControlBytes); }

}  // namespace

Link::Link(Endpoint& endpoint, uint32_t peer, Comms comms, uint64_t eager_bytes)
    : NetworkLink(endpoint, peer),
      eager_bytes_(eager_bytes),
      frames_out_(std::move(comms.send[kFrames]), frame_bytes(eager_bytes)),
      frames_in_(std::move(comms.receive[kFrames]), frame_bytes(eager_bytes)),
      bulk_out_(std::move(comms.send[kBulk]), endpoint.domain().fragment_bytes),
      bulk_in_(std::move(comms.receive[kBulk]), endpoint.domain().fragment_bytes,
               endpoint.domain().adapter.max_receives),
      lanes_(endpoint.lanes()) {}

// ---- What the core posts

bool Link::post_send(const tutti_transfer& transfer) {
  if (!expects_peer()) return false;
  Lane& lane = lanes_[transfer.lane];
  const Posted send = posted_of(transfer);
  if (transfer.flags & TUTTI_TRANSFER_INLINE) {  // of no bytes. It completes here, so it leaves now or is refused
    if (!lane.waiting.empty() || !lane.may_send() || !notices_.empty()) return false;
    const Frame frame{FrameKind::kData, transfer.lane, 0, 0, send.mark, 0};
    if (!put(frame, {}, {})) return false;
    ++lane.sent;
    return true;
  }
  if (lane.waiting.size() >= kQueueDepth) return false;
  lane.waiting.push(send);
  return true;
}

bool Link::post_receive(const tutti_transfer& transfer) {
  Lane& lane = lanes_[transfer.lane];
  if (lane.posted.size() >= kQueueDepth || (lane.arrived.empty() && !expects_peer())) return false;
  lane.posted.push(posted_of(transfer));
  meet(transfer.lane);
  return true;
}

bool Link::take_control(std::string_view message) {
  if (!is_up() || !notices_.empty() ||
      !put({FrameKind::kControl, 0, 0, static_cast<uint32_t>(message.size()), 0, 0}, message, {}))
    return false;
  send();
  return true;
}

bool Link::flush(tutti_region* region, const void* data, uint64_t bytes) {
  Comm& comm = bulk_in_.comm();
  Network& network = comm.network();
  if (!comm.is_open() || bytes == 0) return true;
  std::array<int, 1> size{};
  if (!flush_) {
    flush_ = network.flush(comm.get(), const_cast<void*>(data), bytes, comm.handle(sdk::from_handle<Region>(region)));
    if (!flush_) return true;  // nothing is to be done
  }
  if (!network.test(flush_, size.data(), "test of an iflush")) return false;
  flush_ = nullptr;
  return true;
}

// ---- Sending

// Runs a step on the sending comms. Where the plugin fails nothing leaves any more; what the peer sent before may still
// arrive, so settle() judges.
template <typename Step>
void Link::attempt_send(Step&& step) {
  if (!is_up() || !frames_out_.comm().is_open()) return;
  try {
    step();
  } catch (const sdk::Error& e) {
    send_failure_ = e.what();
    send_failed_at_ = std::chrono::steady_clock::now();
    frames_out_.close();
    bulk_out_.comm().close();
  }
}

bool Link::put(Frame frame, std::string_view payload, Ticket ticket) {
  char* room = frames_out_.room();
  if (!room) return false;
  if (frame.kind != FrameKind::kControl && frame.kind != FrameKind::kBye) {
    Lane& lane = lanes_[frame.lane];
    frame.taken = lane.told = lane.taken;
  }
  std::memcpy(room, &frame, sizeof frame);
  if (!payload.empty()) std::memcpy(room + sizeof frame, payload.data(), payload.size());
  frames_out_.commit(sizeof frame + payload.size(), ticket);
  has_sent_ = true;
  return true;
}

void Link::notify(FrameKind kind, uint32_t lane, uint32_t number, uint32_t tag) {
  notices_.push({kind, lane, number, tag});
}

void Link::pump_lane(uint32_t index) {
  Lane& lane = lanes_[index];
  while (!lane.waiting.empty() && lane.may_send()) {
    const Posted send = lane.waiting.front();
    const bool eager = send.bytes <= eager_bytes_ && (send.bytes == 0 || !is_device(send));
    const Frame frame{
        eager ? FrameKind::kData : FrameKind::kAnnounce, index, 0, static_cast<uint32_t>(send.bytes), send.mark, 0};
    // The room is asked for first: a number is only given to what leaves.
    if (!frames_out_.room()) return;
    const Ticket ticket{index, lane.sends.begin(send.cookie)};
    put(frame, eager ? std::string_view(send.data, send.bytes) : std::string_view(), eager ? ticket : Ticket{});
    if (!eager) lane.announced.push_back({send, ticket, lane.sent, 0});
    ++lane.sent;
    lane.waiting.pop();
  }
}

void Link::send() {
  attempt_send([this] {
    for (;;) {
      while (!notices_.empty()) {
        const Notice& n = notices_.front();
        if (!put({n.kind, n.lane, 0, 0, n.number, n.tag}, {}, {})) break;
        notices_.pop();
      }
      if (notices_.empty())
        for (uint32_t i = 0; i < lanes_.size(); ++i) pump_lane(i);
      const auto left = frames_out_.advance();
      if (!left) break;
      send_over(*left);
    }
    while (const auto left = bulk_out_.advance()) send_over(left->ticket);
  });
}

void Link::send_over(Ticket ticket) {
  if (ticket.lane == UINT32_MAX) return;
  lanes_[ticket.lane].sends.end(ticket.index, TUTTI_OK, 0, 0,
                                [this](uint64_t cookie, tutti_status status, uint64_t bytes, uint32_t mark) {
                                  complete(cookie, status, bytes, mark);
                                });
}

// ---- Receiving

// A plugin may report nothing of a peer's end while no isend is under way.
void Link::show_life() {
  constexpr auto kSilentAtMost = std::chrono::seconds(1);
  constexpr uint32_t kRoundsBetweenLooks = 64;
  if (++rounds_ % kRoundsBetweenLooks != 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(has_sent_, false)) heard_of_at_ = now;
  if (now - heard_of_at_ < kSilentAtMost || has_departed_ || !notices_.empty() || !frames_out_.is_idle()) return;
  notify(FrameKind::kTaken, 0);
}

void Link::advance() {
  if (!is_up()) return;
  show_life();
  try {
    receive();
  } catch (const sdk::Error& e) {
    if (!has_departed_) return lose(send_failure_.empty() ? e.what() : send_failure_);
    bulk_in_.comm().close();  // it has closed its comms, and nothing more will come
  }
  send();
  settle();
}

void Link::receive() {
  try {
    while (frames_in_.comm().is_open()) {
      const auto bytes = frames_in_.receive();
      if (!bytes) break;
      on_frame(*bytes);
      if (!is_up()) return;
      frames_in_.release();
    }
  } catch (const sdk::Error&) {
    if (!has_departed_) throw;
    frames_in_.close();  // long messages may still come
  }
  if (!bulk_in_.comm().is_open()) return;
  bulk_in_.begin(
      [this](const Bulk& b) { notify(FrameKind::kClear, b.ticket.lane, b.number, static_cast<uint32_t>(b.tag)); });
  for (auto over = bulk_in_.advance(); !over.empty(); over = bulk_in_.advance())
    for (const Bulk& bulk : over) receive_over(bulk, TUTTI_OK, bulk.transfer.bytes, bulk.transfer.mark);
}

void Link::on_frame(std::string_view bytes) {
  Frame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  const std::string_view payload = bytes.substr(sizeof frame);
  const auto wrong = [&](const char* why) {
    lose(fmt::format("a frame of {} bytes (kind {:08x}, lane {}): {} (protocol error)", bytes.size(),
                     static_cast<uint32_t>(frame.kind), frame.lane, why));
  };
  if (payload.size() != payload_of(frame)) return wrong("it has another size than it says");
  if (frame.kind == FrameKind::kBye) return on_departure();
  if (has_departed_) return wrong("it came after the end");
  if (frame.kind == FrameKind::kControl) {
    std::unique_ptr<char[]> copy(new char[std::max<size_t>(payload.size(), 1)]);
    payload.copy(copy.get(), payload.size());
    return endpoint().completions().control(peer(), std::move(copy), payload.size());
  }
  if (frame.lane >= lanes_.size()) return wrong("there is no such lane");
  Lane& lane = lanes_[frame.lane];
  if (frame.taken - lane.taken_by_peer > lane.sent - lane.taken_by_peer)
    return wrong("its count of taken messages is wrong");
  lane.taken_by_peer = frame.taken;
  switch (frame.kind) {
    case FrameKind::kTaken:
      return;
    case FrameKind::kClear:
    case FrameKind::kRefuse:
      return on_answer(frame) ? void() : wrong("no such message was announced");
    case FrameKind::kData:
    case FrameKind::kAnnounce: {
      if (lane.arrived.size() >= kWindow) return wrong("the lane's window is full");
      const bool eager = frame.kind == FrameKind::kData;
      if (frame.bytes > (eager ? eager_bytes_ : endpoint().domain().fragment_bytes)) return wrong("it is too long");
      Lane::Arrived message{frame, nullptr};
      if (eager && frame.bytes) {
        message.data.reset(new char[frame.bytes]);
        payload.copy(message.data.get(), payload.size());
      }
      lane.arrived.push(std::move(message));
      return meet(frame.lane);
    }
    default:
      return wrong("its kind is unknown");
  }
}

// `mark` has the message's number. A message may be refused before the one ahead of it is asked for.
bool Link::on_answer(const Frame& frame) {
  std::deque<Bulk>& announced = lanes_[frame.lane].announced;
  const auto at = std::ranges::find(announced, frame.mark, &Bulk::number);
  if (at == announced.end()) return false;
  Bulk bulk = *at;
  announced.erase(at);
  bulk.tag = static_cast<int>(frame.tag);
  if (frame.kind == FrameKind::kRefuse)
    send_over(bulk.ticket);
  else
    bulk_out_.push(bulk);
  return true;
}

// Messages meet RECVs in order.
void Link::meet(uint32_t index) {
  Lane& lane = lanes_[index];
  while (!lane.arrived.empty() && !lane.posted.empty()) {
    const Lane::Arrived message = lane.arrived.pop();
    const Posted receive = lane.posted.pop();
    const Frame& frame = message.frame;
    const Bulk bulk{receive, {index, lane.receives.begin(receive.cookie)}, lane.taken++, 0};
    const bool same = fits(receive, frame), eager = frame.kind == FrameKind::kData;
    if (same && !eager) {
      bulk_in_.push(bulk);
      continue;
    }
    if (!same) endpoint().log_mismatch(peer(), index, frame.bytes, frame.mark, receive.bytes, receive.mark);
    if (!same && !eager) notify(FrameKind::kRefuse, index, bulk.number);
    if (same && frame.bytes) std::memcpy(receive.data, message.data.get(), frame.bytes);
    receive_over(bulk, same ? TUTTI_OK : TUTTI_MISMATCH, frame.bytes, frame.mark);
  }
  if (lane.taken - lane.told >= kWindow / 2 && !has_departed_) {
    lane.told = lane.taken;
    notify(FrameKind::kTaken, index);
  }
}

void Link::receive_over(const Bulk& bulk, tutti_status status, uint64_t bytes, uint32_t mark) {
  lanes_[bulk.ticket.lane].receives.end(
      bulk.ticket.index, status, bytes, mark,
      [this](uint64_t cookie, tutti_status s, uint64_t n, uint32_t m) { complete(cookie, s, n, m); });
}

// ---- The end

// Something is still to come from the peer or to go there. If the peer has closed its endpoint, it is lost, once what
// it sent before has come.
bool Link::expects_peer() {
  if (has_departed_) is_missed_ = true;
  return is_up() && !has_departed_;
}

void Link::on_departure() {
  has_departed_ = true;
  frames_in_.stop();
  notices_.clear();
}

// Does the peer's departure, or a failure to send, mean its loss?
void Link::settle() {
  if (!is_up()) return;
  if (has_departed_) {
    const bool arrives = bulk_in_.comm().is_open() && !bulk_in_.is_idle();
    const bool waits = std::ranges::any_of(lanes_, [this](const Lane& lane) {
      const bool never_leaves = send_failure_.empty() ? false : !lane.sends.empty();
      const bool never_comes = bulk_in_.comm().is_open() ? false : !lane.receives.empty();
      return never_leaves || never_comes || !lane.waiting.empty() || !lane.announced.empty() || !lane.posted.empty();
    });
    if ((waits || is_missed_) && !arrives) lose("it has closed its endpoint while transfers with it were pending");
  } else if (!send_failure_.empty() && std::chrono::steady_clock::now() - send_failed_at_ > kSilence) {
    lose(send_failure_);  // the comms from it have not failed
  }
}

void Link::close() {
  frames_out_.close();
  frames_in_.close();
  bulk_out_.comm().close();
  bulk_in_.comm().close();
}

void Link::drop_transfers(tutti_status status) {
  close();  // from here on nothing accesses the transfers' memory
  const auto over = [this](uint64_t cookie, tutti_status s, uint64_t bytes, uint32_t mark) {
    complete(cookie, s, bytes, mark);
  };
  for (Lane& lane : lanes_) {
    lane.sends.end_all(status, over);
    lane.receives.end_all(status, over);
    while (!lane.waiting.empty()) complete(lane.waiting.pop().cookie, status, 0);
    while (!lane.posted.empty()) complete(lane.posted.pop().cookie, status, 0);
    lane.announced.clear();
    lane.arrived.clear();
  }
}

bool Link::leave() {
  for (Lane& lane : lanes_) lane.waiting.clear();  // they are dropped
  send();
  attempt_send([this] {
    while (frames_out_.room() && byes_ < FrameReceiver::kRooms && notices_.empty()) {
      put({FrameKind::kBye, 0, 0, 0, 0, 0}, {}, {});
      ++byes_;
    }
    while (frames_out_.advance()) continue;
  });
  if (!is_up() || !frames_out_.comm().is_open()) return true;
  const bool all = byes_ == FrameReceiver::kRooms && frames_out_.is_idle();
  const bool one = frames_out_.left() < byes_;
  return all || (one && frames_out_.is_stuck());
}

}  // namespace tutti::nccl
