// SPDX-License-Identifier: Apache-2.0
#include "connection.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <cstring>

#include "endpoint.hpp"
#include "link.hpp"

namespace tutti::tcp {

namespace asio = boost::asio;

Connection::Connection(Link& link, Stream stream, uint32_t index)
    : link_(link), stream_(std::move(stream)), index_(index), input_(new char[kInputBytes]) {
  staged_.reserve(kTailBytes);
}

void Connection::append(const Frame& frame, const void* payload) {
  std::vector<char>& out = tail();
  const char* head = reinterpret_cast<const char*>(&frame);
  out.insert(out.end(), head, head + sizeof frame);
  if (payload && frame.bytes)
    out.insert(out.end(), static_cast<const char*>(payload), static_cast<const char*>(payload) + frame.bytes);
}

// Output
// -----------------------------------------------------------------------------------------------------------------

// Makes frames from what lanes wait to say, until an external payload is under way or enough is staged.
void Connection::fill() {
  while (!notices_.empty() && has_room()) {
    const uint32_t index = notices_.pop();
    Lane& lane = link_.lane(index);
    lane.notice = false;
    if (lane.told == lane.posted) continue;  // a message took it along
    lane.told = lane.posted;
    append({FrameKind::kPosted, index, lane.posted, 0, 0});
  }
  while (external_left_ == 0 && !active_.empty() && has_room()) fill_from(active_.pop());
}

// Takes the first SEND of a lane, or leaves the lane until the peer gives it credit.
void Connection::fill_from(uint32_t index) {
  Lane& lane = link_.lane(index);
  const uint64_t bytes = lane.sends.front().bytes;
  const uint64_t eager_bytes = link_.endpoint().settings().eager_bytes;
  // A large message runs ahead of its RECV only when it is alone, where that saves a round trip; in a stream it would
  // only be copied once more at the other end.
  const bool alone = active_.empty() && lane.sends.size() == 1;
  if (!lane.may_send(bytes, eager_bytes) || (bytes > eager_bytes && !alone && !lane.has_credit())) {
    lane.active = false;
    if (!lane.wanted) append({FrameKind::kWant, index, 0, lane.sent, 0});
    lane.wanted = true;
    return;
  }
  Send send = lane.sends.pop();
  lane.wanted = false;
  const Frame frame = link_.data_frame(index, bytes);
  if (bytes <= kInlineBytes) {
    append(frame, send.data);
    link_.endpoint().complete(link_.peer(), send.cookie, TUTTI_OK, bytes);
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
  if (!is_open() || write_broken_) return true;
  blocked_ = false;
  for (size_t total = 0; total < kWriteBytes;) {
    fill();
    const size_t staged = staged_.size() - staged_done_;
    const size_t external = std::min<uint64_t>(external_left_, kWriteBytes);
    if (staged + external == 0) return true;
    boost::system::error_code error;
    const asio::const_buffer head(staged_.data() + staged_done_, staged), body(external_, external);
    const size_t n = stream_.write_some(head, body, error);
    if (error == asio::error::would_block) {
      blocked_ = true;
      return false;
    }
    if (error) {
      write_broken_ = true;
      write_error_ = error.message();
      return true;
    }
    written(n);
    total += n;
    if (n < staged + external && !stream_.is_encrypted()) {  // TLS takes a record at a time
      blocked_ = true;
      return false;
    }
  }
  return false;
}

void Connection::written(size_t n) {
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
  link_.endpoint().complete(link_.peer(), external_send_.cookie, TUTTI_OK, external_send_.bytes);
  external_send_ = {};
}

// Input
// ------------------------------------------------------------------------------------------------------------------

void Connection::read() {
  // What TLS has taken from the socket must be read: no poll would tell of it.
  for (int i = 0; is_open() && (i < kReads || stream_.has_pending()); ++i) {
    const bool direct = target_ && target_left_ > 0;
    if (input_begin_ == input_end_) {
      input_begin_ = input_end_ = 0;
    } else if (input_begin_ > 0) {
      std::memmove(input_.get(), input_.get() + input_begin_, input_end_ - input_begin_);
      input_end_ -= input_begin_;
      input_begin_ = 0;
    }
    const size_t ahead = std::min(kInputBytes - input_end_, direct ? kAheadBytes : kInputBytes);
    const asio::mutable_buffer body(target_, direct ? target_left_ : 0), rest(input_.get() + input_end_, ahead);
    boost::system::error_code error;
    const size_t n = stream_.read_some(body, rest, error);
    if (error == asio::error::would_block) return;
    if (error) return lost(error);
    const size_t into = std::min(n, body.size());
    target_left_ -= into;
    if (direct) target_ += into;
    input_end_ += n - into;
    parse();
    if (n < body.size() + ahead && !stream_.is_encrypted()) return;
  }
}

// Handles all whole frames, and as much of the last one as there is.
void Connection::parse() {
  while (is_open()) {
    const size_t available = input_end_ - input_begin_;
    if (in_message_) {
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
    return link_.lose("it sent a frame for lane " + std::to_string(frame.lane) + " on socket " +
                      std::to_string(index_) + "; there are " + std::to_string(last) + " lanes (protocol error)");
  switch (frame.kind) {
    case FrameKind::kData:
      return on_data(frame);
    case FrameKind::kPosted:
      return link_.on_posted(frame.lane, frame.posted);
    case FrameKind::kWant:
      return link_.on_want(frame.lane, frame.sequence);
    case FrameKind::kControl:
      if (frame.bytes > TUTTI_CONTROL_BYTES)
        return link_.lose("it sent a control message of " + std::to_string(frame.bytes) + " bytes, at most " +
                          std::to_string(TUTTI_CONTROL_BYTES) + " are allowed (protocol error)");
      owned_.reset(new char[frame.bytes + 1]);
      break;
    case FrameKind::kBye:
      departed_ = true;
      return;
    default:
      return link_.lose("it sent a frame of unknown kind " + std::to_string(static_cast<uint32_t>(frame.kind)) +
                        " (protocol error)");
  }
  message_ = frame;
  in_message_ = true;
  target_ = owned_.get();
  target_left_ = frame.bytes;
}

void Connection::on_data(const Frame& frame) {
  Lane& lane = link_.lane(frame.lane);
  const Settings& settings = link_.endpoint().settings();
  link_.on_posted(frame.lane, frame.posted);
  if (!is_open()) return;
  if (frame.bytes > settings.fragment_bytes || frame.sequence != lane.met)
    return link_.lose("it sent message " + std::to_string(frame.sequence) + " of " + std::to_string(frame.bytes) +
                      " bytes on lane " + std::to_string(frame.lane) + "; expected number " + std::to_string(lane.met) +
                      " of at most " + std::to_string(settings.fragment_bytes) + " bytes (protocol error)");
  has_receive_ = !lane.receives.empty();
  if (!has_receive_ && lane.arrived.size() >= window_for(frame.bytes, settings.eager_bytes))
    return link_.lose("it sent a message of " + std::to_string(frame.bytes) + " bytes on lane " +
                      std::to_string(frame.lane) + " without credit (protocol error)");
  ++lane.met;
  message_ = frame;
  in_message_ = true;
  target_left_ = frame.bytes;
  if (has_receive_) {
    receive_ = lane.receives.pop();
    target_ = receive_.bytes == frame.bytes ? receive_.data : nullptr;
  } else {
    owned_.reset(new char[frame.bytes + 1]);
    target_ = owned_.get();
  }
}

void Connection::finish_message() {
  in_message_ = false;
  target_ = nullptr;
  if (message_.kind == FrameKind::kControl) {
    link_.endpoint().deliver_control(link_.peer(), std::move(owned_), message_.bytes);
  } else if (has_receive_) {
    has_receive_ = false;
    link_.message_arrived(message_.lane, receive_, message_.bytes);
  } else {
    link_.message_arrived(message_.lane, {std::move(owned_), message_.bytes});
  }
}

// The end
// ----------------------------------------------------------------------------------------------------------------

void Connection::lost(const boost::system::error_code& error) {
  if (departed_) {
    close();
    return link_.on_departure();
  }
  if (!write_error_.empty()) return link_.lose("the connection broke: " + write_error_);
  link_.lose(error == asio::error::eof ? "the connection was closed by the peer"
                                       : "the connection broke: " + error.message());
}

void Connection::close() {
  if (!is_open()) return;
  link_.endpoint().closing(*this);
  boost::system::error_code ignored;
  stream_.socket().close(ignored);
}

bool Connection::say_goodbye() {
  if (external_left_ > 0 || write_broken_) return false;
  append({FrameKind::kBye, 0, 0, 0, 0});
  boost::system::error_code error;
  const size_t left = staged_.size() - staged_done_;
  const size_t n = stream_.write_some(asio::const_buffer(staged_.data() + staged_done_, left), {}, error);
  if (error || n < left) return false;
  stream_.socket().shutdown(Socket::shutdown_send, error);
  return !error;
}

bool Connection::drained() {
  boost::system::error_code error;
  for (int i = 0; i < 64; ++i) {
    stream_.socket().read_some(asio::mutable_buffer(input_.get(), kInputBytes), error);
    if (error == asio::error::would_block) break;
    if (error) return true;
  }
  int unsent = 0;
  return ioctl(descriptor(), SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

bool Connection::take_unfinished_send(Send& send) {
  if (external_left_ == 0) return false;
  external_left_ = 0;
  send = std::move(external_send_);
  return true;
}

bool Connection::take_unfinished_receive(Receive& receive) {
  if (!has_receive_) return false;
  has_receive_ = false;
  target_ = nullptr;
  target_left_ = 0;
  receive = receive_;
  return true;
}

}  // namespace tutti::tcp
