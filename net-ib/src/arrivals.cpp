// SPDX-License-Identifier: Apache-2.0
//
// The receiving half of a link. Frames are checked before use; an invalid one loses the peer.
#include <cstring>

#include "endpoint.hpp"

namespace tutti::ib {

void Link::broken(const std::string& what) { lose("protocol error: " + what); }

// The RECV of message `sequence`, if it is posted and has not left the queue.
Receive* Link::receive_of(Lane& lane, uint32_t sequence) {
  const uint32_t at = sequence - lane.first_receive();
  return at < lane.receives.size() ? &lane.receives[at] : nullptr;
}

void Link::on_frame(Path& path, const char* bytes, uint32_t size) {
  Frame f;
  if (size < sizeof f) return broken(fmt::format("a frame of {} bytes", size));
  std::memcpy(&f, bytes, sizeof f);
  if (f.bytes != size - sizeof f || f.lane >= lanes_.size())
    return broken(fmt::format("a frame with {} bytes of payload that announces {} on lane {}", size - sizeof f,
                              +f.bytes, +f.lane));
  if (!path.set_freed(f.freed)) return broken("its count of frames taken in is impossible");
  Lane& lane = lanes_[f.lane];
  const bool counts = f.kind != FrameKind::kCredit && f.kind != FrameKind::kPathDown && f.kind != FrameKind::kBye &&
                      f.kind != FrameKind::kFence;
  if (counts && static_cast<int32_t>(f.posted - lane.peer_posted) > 0) lane.peer_posted = f.posted;
  if (has_work()) endpoint().wants_advance(*this);
  const char* payload = bytes + sizeof f;
  switch (f.kind) {
    case FrameKind::kPosted:
    case FrameKind::kCredit:
      return;
    case FrameKind::kData:
      return on_data(f, payload);
    case FrameKind::kAnnounce:
      return on_announce(f, payload);
    case FrameKind::kWant:
      return on_want(f);
    case FrameKind::kMismatch:
    case FrameKind::kDiscard:
      return on_refusal(f);
    case FrameKind::kControl: {
      std::unique_ptr<char[]> copy(new char[f.bytes + 1]);
      std::memcpy(copy.get(), payload, f.bytes);
      return endpoint().completions().control(peer(), std::move(copy), f.bytes);
    }
    case FrameKind::kPathDown:
      return on_path_down({f.sequence, f.total, f.offset});
    case FrameKind::kFence:
      path.owes_answer = true;
      return;
    case FrameKind::kBye:
      return endpoint().said_goodbye(*this);
  }
  broken(fmt::format("a frame of unknown kind {}", static_cast<int>(f.kind)));
}

void Link::on_data(const Frame& f, const char* payload) {
  if (endpoint().is_closing()) return;
  Lane& lane = lanes_[f.lane];
  const auto broken_message = [&](const char* what) {
    broken(fmt::format("message {} of lane {} {}", f.sequence, f.lane, what));
  };
  if (f.total <= endpoint().settings().eager_bytes) {
    if (f.bytes != f.total || f.offset != 0) return broken_message("is small but came in pieces");
    const auto ahead = static_cast<int32_t>(f.sequence - lane.posted);
    if (ahead >= 0) {
      if (static_cast<uint32_t>(ahead) != lane.early.size() || ahead >= static_cast<int32_t>(kEagerWindow))
        return broken_message("is out of order");
      Early early{std::unique_ptr<char[]>(new char[f.bytes ? f.bytes : 1]), f.bytes, f.mark};
      if (f.bytes) std::memcpy(early.data.get(), payload, f.bytes);
      return lane.early.push(std::move(early));
    }
    Receive* receive = receive_of(lane, f.sequence);
    if (!receive || receive->done) return broken_message("came twice");
    if (!receive->fits(f.total, f.mark)) {
      mismatch(f.lane, *receive, f.total, f.mark);
    } else {
      fill(f.lane, *receive, 0, payload, f.bytes);
      if (!is_up()) return;
      receive->done = true;
    }
    return retire_receives(f.lane);
  }
  Receive* receive = receive_of(lane, f.sequence);
  if (!receive || receive->done || !receive->fits(f.total, f.mark) || f.offset > f.total ||
      f.bytes > f.total - f.offset || f.bytes > receive->bytes - receive->arrived)
    return broken_message("has a piece that nobody asked for");
  fill(f.lane, *receive, f.offset, payload, f.bytes);
  if (!is_up()) return;
  receive->arrived += f.bytes;
  receive->done = receive->arrived == receive->bytes;
  retire_receives(f.lane);
}

// Copies the payload of a frame to its RECV. If the adapter cannot write to a device's memory, the peer is lost.
void Link::fill(uint32_t lane, Receive& receive, uint64_t offset, const char* payload, uint64_t bytes) {
  if (bytes == 0) return;
  if (!receive.region || !receive.region->on_device) {
    std::memcpy(receive.data + offset, payload, bytes);
    return;
  }
  try {
    path_of(lane)->rail().placer().place(*receive.region, receive.data + offset, payload, bytes);
  } catch (const sdk::Error& error) {
    lose(error.what());
  }
}

void Link::on_written(uint32_t imm, uint32_t bytes) {
  if (endpoint().is_closing()) return;
  const uint32_t index = imm >> 16;
  if (index >= lanes_.size()) return broken(fmt::format("a write for lane {}", index));
  Lane& lane = lanes_[index];
  const uint32_t at = static_cast<uint16_t>(imm - lane.first_receive());
  Receive* receive = at < lane.receives.size() ? &lane.receives[at] : nullptr;
  if (!receive || receive->done || !receive->region || bytes > receive->bytes - receive->arrived)
    return broken(fmt::format("a write of {} bytes on lane {} that nobody asked for", bytes, index));
  receive->arrived += bytes;
  receive->done = receive->arrived == receive->bytes;
  retire_receives(index);
}

void Link::mismatch(uint32_t lane, Receive& receive, uint64_t bytes, uint32_t mark) {
  endpoint().log_mismatch(peer(), lane, bytes, mark, receive.bytes, receive.mark);
  receive.mark = mark;
  receive.done = true;
  receive.status = TUTTI_MISMATCH;
  receive.arrived = bytes;
}

void Link::retire_receives(uint32_t index) {
  Lane& lane = lanes_[index];
  while (!lane.receives.empty() && lane.receives.front().done) {
    const Receive receive = lane.receives.pop();
    complete(receive.cookie, receive.status, receive.status == TUTTI_OK ? receive.bytes : receive.arrived,
             receive.mark);
  }
}

void Link::on_announce(const Frame& f, const char* payload) {
  Lane& lane = lanes_[f.lane];
  if (f.bytes != sizeof(Announcement) || lane.announced.size() >= kQueueDepth * 2)
    return broken(fmt::format("an announcement of {} bytes", f.bytes));
  Announced announced{f.sequence, f.total, f.mark, {}};
  std::memcpy(&announced.target, payload, sizeof announced.target);
  // Small messages that have left already need no announcement.
  if (static_cast<int32_t>(f.sequence - (lane.first_send() + lane.cursor)) < 0) return;
  lane.announced.push(announced);
}

// A large message waits at the peer. If its RECV is small, no announcement will come, so both ends learn it here.
void Link::on_want(const Frame& f) {
  Lane& lane = lanes_[f.lane];
  if (static_cast<int32_t>(f.sequence - lane.posted) >= 0) {
    lane.want = f;
    return;
  }
  Receive* receive = receive_of(lane, f.sequence);
  if (!receive || receive->done || receive->bytes > endpoint().settings().eager_bytes) return;
  mismatch(f.lane, *receive, f.total, f.mark);
  note(frame(FrameKind::kDiscard, f.lane, f.sequence));
  retire_receives(f.lane);
}

void Link::on_refusal(const Frame& f) {
  Lane& lane = lanes_[f.lane];
  if (f.kind == FrameKind::kMismatch) {
    Receive* receive = receive_of(lane, f.sequence);
    if (!receive || receive->done) return broken("a mismatch for a receive that is not pending");
    mismatch(f.lane, *receive, f.total, f.mark);
    return retire_receives(f.lane);
  }
  const uint32_t at = f.sequence - lane.first_send();
  if (at != lane.cursor || at >= lane.sends.size()) return;
  Send& send = lane.sends[at];
  send.begun = send.done = true;
  send.handed = send.bytes;
  lane.asked = false;
  lane.idle_polls = 0;
}

}  // namespace tutti::ib
