// SPDX-License-Identifier: Apache-2.0
#include "connection.hpp"

#include <fmt/format.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

#include "endpoint.hpp"
#include "link.hpp"

namespace tutti::tcp {
namespace {

// An upper bound of the kernel memory that a write of `bytes` takes: buffers with their headers, each filled by at
// least half a segment.
uint64_t memory_for(uint64_t bytes) {
  constexpr uint64_t kHeader = 2048, kFilled = 700;
  return bytes + (bytes / kFilled + 2) * kHeader;
}

}  // namespace

Connection::Connection(Link& link, Stream stream, uint32_t index)
    : link_(link),
      stream_(std::move(stream)),
      route_(route_of(stream_.socket())),
      index_(index),
      input_(new char[kInputBytes]) {
  staged_.reserve(kTailBytes);
}

void Connection::append(const Frame& frame, const void* payload) {
  std::vector<char>& out = tail();
  const char* head = reinterpret_cast<const char*>(&frame);
  out.insert(out.end(), head, head + sizeof frame);
  if (payload && frame.bytes)
    out.insert(out.end(), static_cast<const char*>(payload), static_cast<const char*>(payload) + frame.bytes);
}

// ---- Output

// Asks the kernel how much memory it has left for this socket. Only our own writes make it less, so the kernel is asked
// again only when they may have used it up. An idle socket takes any small frame.
bool Connection::takes_whole(size_t payload) {
  const uint64_t needed = memory_for(queued_bytes() + sizeof(Frame) + payload);
  small_waits_ = true;
  if (external_left_ > 0 || blocked_ || !has_room()) return false;
  if (room_ < needed) {
    uint32_t memory[SK_MEMINFO_VARS] = {};
    socklen_t size = sizeof memory;
    if (getsockopt(descriptor(), SOL_SOCKET, SO_MEMINFO, memory, &size) != 0)
      throw sdk::system_error("cannot ask for a socket's memory (SO_MEMINFO, which Linux has from 4.12 on)", errno);
    const uint64_t most = memory[SK_MEMINFO_SNDBUF], used = memory[SK_MEMINFO_WMEM_QUEUED];
    room_ = used == 0 ? std::max(most, needed) : most - std::min(most, used);
    if (room_ < needed) return false;
  }
  small_waits_ = false;
  return true;
}

void Connection::complete_when_written(const Posted& send) { copied_.push({written_ + queued_bytes(), send}); }

// Makes frames from the lanes' announcements and SENDs until an external payload begins or enough is staged.
void Connection::fill() {
  while (!notices_.empty() && has_room()) {
    const uint32_t index = notices_.pop();
    Lane& lane = link_.lane(index);
    lane.notice = false;
    if (lane.told == lane.posted) continue;  // a message has carried the count
    lane.told = lane.posted;
    append({FrameKind::kPosted, index, lane.posted, 0, 0, 0});
  }
  while (external_left_ == 0 && !active_.empty() && has_room() && !small_waits_) fill_from(active_.pop());
}

// Takes the first SEND of a lane. Without credit the lane becomes inactive until the peer announces RECVs.
void Connection::fill_from(uint32_t index) {
  Lane& lane = link_.lane(index);
  const uint64_t bytes = lane.sends.front().bytes;
  const uint64_t eager_bytes = link_.endpoint().settings().eager_bytes;
  // A lone large message goes ahead of its RECV, which saves a round trip. In a stream of messages the only effect
  // would be one more copy at the receiver.
  const bool alone = active_.empty() && lane.sends.size() == 1;
  if (!lane.may_send(bytes, eager_bytes) || (bytes > eager_bytes && !alone && !lane.has_credit())) {
    lane.active = false;
    if (!lane.wanted) append({FrameKind::kWant, index, 0, lane.sent, 0, 0});
    lane.wanted = true;
    return;
  }
  Posted send = lane.sends.pop();
  lane.wanted = false;
  const Frame frame = link_.data_frame(index, send);
  if (bytes <= kInlineBytes) {
    append(frame, send.data);
    complete_when_written(send);
  } else {
    append(frame);
    external_ = send.data;
    external_left_ = bytes;
    external_send_ = std::move(send);
  }
  if (lane.sends.empty()) {
    lane.active = false;
  } else {
    active_.push(index);
  }
}

bool Connection::pump() {
  if (!is_open() || !write_error_.empty()) return true;
  blocked_ = false;
  for (size_t total = 0; total < kWriteBytes;) {
    fill();
    if (staged_.size() + external_left_ == staged_done_) return active_.empty();
    const size_t most = std::min(piece(), kWriteBytes), staged = std::min(staged_.size() - staged_done_, most);
    const size_t external = std::min<uint64_t>(external_left_, most - staged);
    const long moved = stream_.write({staged_.data() + staged_done_, staged}, {external_, external});
    if (moved < 0) {
      write_error_ = stream_.problem();
      return true;
    }
    const auto n = static_cast<size_t>(moved);
    written(n);
    total += n;
    if (n == 0 || (n < staged + external && !stream_.is_encrypted())) {  // TLS takes a record at a time
      blocked_ = true;
      return false;
    }
  }
  return false;
}

void Connection::written(size_t n) {
  written_ += n;
  room_ -= std::min(room_, memory_for(n));
  for (; !copied_.empty() && copied_.front().end <= written_; copied_.pop())
    link_.complete(copied_.front().send.cookie, TUTTI_OK, copied_.front().send.bytes);
  const size_t staged = std::min(n, staged_.size() - staged_done_);
  staged_done_ += staged;
  if (staged_done_ == staged_.size()) {
    staged_.clear();
    staged_done_ = 0;
  }
  n -= staged;
  if (n == 0) return;
  external_ += n;
  external_left_ -= n;
  if (external_left_ > 0) return;
  staged_.swap(next_);
  link_.complete(external_send_.cookie, TUTTI_OK, external_send_.bytes);
  external_send_ = {};
}

// How many bytes the next read or write may move (Settings::piece).
size_t Connection::piece() {
  const uint32_t most = link_.endpoint().settings().piece;
  if (most == 0 || stream_.is_encrypted()) return SIZE_MAX;  // TLS wants a write again that was as long
  dice_ = dice_ * 1664525 + 1013904223;
  return 1 + (dice_ >> 8) % most;
}

// ---- Input

void Connection::read() {
  // Bytes that TLS has buffered must be read now: no poll would show them.
  for (int i = 0; is_open() && (i < kReads || stream_.has_pending()); ++i) {
    const bool direct = target_ && target_left_ > 0;
    if (input_begin_ == input_end_) {
      input_begin_ = input_end_ = 0;
    } else if (input_begin_ > 0) {
      std::memmove(input_.get(), input_.get() + input_begin_, input_end_ - input_begin_);
      input_end_ -= input_begin_;
      input_begin_ = 0;
    }
    const size_t most = piece();
    const std::span<char> body(target_, direct ? std::min<uint64_t>(target_left_, most) : 0);
    const size_t ahead =
        std::min({kInputBytes - input_end_, direct ? kAheadBytes : kInputBytes, most - body.size()});
    const long moved = stream_.read(body, {input_.get() + input_end_, ahead});
    if (moved == 0) return;
    if (moved < 0) return lost();
    const auto n = static_cast<size_t>(moved);
    const size_t into = std::min(n, body.size());
    target_left_ -= into;
    if (direct) target_ += into;
    input_end_ += n - into;
    parse();
    if (n < body.size() + ahead && !stream_.is_encrypted()) return;
  }
}

// Handles all complete frames, and the available part of the last one.
void Connection::parse() {
  while (is_open()) {
    const size_t available = input_end_ - input_begin_;
    if (message_) {
      const size_t n = std::min<uint64_t>(available, target_left_);
      if (target_) {
        std::memcpy(target_, input_.get() + input_begin_, n);
        target_ += n;
      }
      target_left_ -= n;
      input_begin_ += n;
      if (target_left_ > 0) return;
      finish_message();
      continue;
    }
    if (available < sizeof(Frame)) return;
    Frame frame;
    std::memcpy(&frame, input_.get() + input_begin_, sizeof frame);
    input_begin_ += sizeof frame;
    on_frame(frame);
  }
}

void Connection::on_frame(const Frame& frame) {
  const uint32_t last = link_.lanes();
  if (departed_) return link_.lose("it sent more after saying goodbye (protocol error)");
  if (frame.kind != FrameKind::kControl && frame.kind != FrameKind::kBye &&
      (frame.lane >= last || &link_.connection_of(frame.lane) != this))
    return link_.lose(fmt::format("it sent a frame for lane {} on socket {}; there are {} lanes (protocol error)",
                                  frame.lane, index_, last));
  switch (frame.kind) {
    case FrameKind::kData:
      return on_data(frame);
    case FrameKind::kPosted:
      return link_.on_posted(frame.lane, frame.posted);
    case FrameKind::kWant:
      return link_.on_want(frame.lane, frame.sequence);
    case FrameKind::kControl:
      if (frame.bytes > kControlBytes)
        return link_.lose(fmt::format("it sent a control message of {} bytes, at most {} are allowed (protocol error)",
                                      frame.bytes, kControlBytes));
      return begin_message(frame, std::nullopt);
    case FrameKind::kBye:
      departed_ = true;
      return;
  }
  link_.lose(fmt::format("it sent a frame of unknown kind {} (protocol error)", static_cast<uint32_t>(frame.kind)));
}

void Connection::on_data(const Frame& frame) {
  Lane& lane = link_.lane(frame.lane);
  const Settings& settings = link_.endpoint().settings();
  link_.on_posted(frame.lane, frame.posted);
  if (!is_open()) return;
  if (frame.bytes > settings.fragment_bytes || frame.sequence != lane.met)
    return link_.lose(
        fmt::format("it sent message {} of {} bytes on lane {}; expected number {} of at most {} bytes "
                    "(protocol error)",
                    frame.sequence, frame.bytes, frame.lane, lane.met, settings.fragment_bytes));
  if (lane.receives.empty() && lane.arrived.size() >= window_for(frame.bytes, settings.eager_bytes))
    return link_.lose(fmt::format("it sent a message of {} bytes on lane {} without credit (protocol error)",
                                  frame.bytes, frame.lane));
  ++lane.met;
  begin_message(frame, lane.receives.empty() ? std::nullopt : std::optional(lane.receives.pop()));
}

// The payload goes to the RECV's memory if it fits exactly, else nowhere; without a RECV to memory of its own.
void Connection::begin_message(const Frame& frame, std::optional<Posted> receive) {
  message_ = frame;
  receive_ = receive;
  if (!receive) owned_.reset(new char[frame.bytes + 1]);
  target_ = !receive ? owned_.get() : receive->fits(frame.bytes, frame.mark) ? receive->data : nullptr;
  target_left_ = frame.bytes;
}

void Connection::finish_message() {
  const Frame message = *std::exchange(message_, std::nullopt);
  target_ = nullptr;
  if (message.kind == FrameKind::kControl) {
    link_.endpoint().completions().control(link_.peer(), std::move(owned_), message.bytes);
  } else if (const auto receive = std::exchange(receive_, std::nullopt)) {
    link_.message_arrived(message.lane, *receive, message.bytes, message.mark);
  } else {
    link_.message_arrived(message.lane, {std::move(owned_), message.bytes, message.mark});
  }
}

// ---- The end

void Connection::lost() {
  if (!departed_) {
    std::string reason = write_error_.empty() ? stream_.problem() : write_error_;
    if (const std::string more = stuck(); !more.empty()) reason += "; " + more;
    return link_.lose(reason);
  }
  close();
  link_.on_departure();
}

void Connection::close() {
  if (!is_open()) return;
  link_.endpoint().closing(*this);
  stream_.socket().reset();
}

Departure Connection::depart() {
  std::vector<char> rest(staged_.begin() + static_cast<ptrdiff_t>(staged_done_), staged_.end());
  rest.insert(rest.end(), external_, external_ + external_left_);
  rest.insert(rest.end(), next_.begin(), next_.end());
  const Frame bye{FrameKind::kBye, 0, 0, 0, 0, 0};
  rest.insert(rest.end(), reinterpret_cast<const char*>(&bye), reinterpret_cast<const char*>(&bye + 1));
  link_.endpoint().closing(*this);
  return {std::move(stream_), std::move(rest)};
}

void Connection::end_transfers(tutti_status status) {
  while (!copied_.empty()) link_.complete(copied_.pop().send.cookie, status, 0);
  if (std::exchange(external_left_, 0) > 0) link_.complete(external_send_.cookie, status, 0);
  if (const auto receive = std::exchange(receive_, std::nullopt)) link_.complete(receive->cookie, status, 0);
  target_ = nullptr;
  target_left_ = 0;
}

}  // namespace tutti::tcp
