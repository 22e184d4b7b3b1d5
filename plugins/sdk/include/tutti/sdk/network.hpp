// SPDX-License-Identifier: Apache-2.0
//
// The parts that transports between hosts have in common: a queue of completions, the end of a link, and an endpoint
// over both. Needs fmt (words.hpp).
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <tutti/sdk/endpoint_base.hpp>
#include <tutti/sdk/ring.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// Completions on their way to the core, with the bytes that they point to. No allocation once warm, except for those
// bytes.
class Completions {
 public:
  bool empty() const { return waiting_.empty(); }
  void clear() { waiting_.clear(); }
  void transfer(uint32_t peer, uint64_t cookie, tutti_status status, uint64_t bytes, uint32_t mark) {
    waiting_.push({{TUTTI_COMPLETION_TRANSFER, status, peer, mark, cookie, bytes, nullptr, 0}, nullptr});
  }
  void control(uint32_t peer, std::unique_ptr<char[]> data, uint64_t bytes) {
    const char* address = data.get();
    waiting_.push({{TUTTI_COMPLETION_CONTROL, TUTTI_OK, peer, 0, 0, bytes, address, 0}, std::move(data)});
  }
  void peer_failed(uint32_t peer, const std::string& reason) {
    std::unique_ptr<char[]> data(new char[reason.size() + 1]);
    std::memcpy(data.get(), reason.c_str(), reason.size() + 1);
    const char* address = data.get();
    waiting_.push(
        {{TUTTI_COMPLETION_PEER_FAILED, TUTTI_PEER_FAILED, peer, 0, 0, reason.size(), address, 0}, std::move(data)});
  }
  // At the beginning of progress: the bytes of the last batch may be freed.
  void forget_batch() {
    if (!batch_.empty()) batch_.clear();
  }
  // Writes into `room` from place n on; returns the place after the last one. `announces(peer)` is called before a
  // PEER_FAILED record is written; false: the core knows already, and there is no record.
  template <typename Announces>
  uint32_t hand_over(std::span<tutti_completion> room, uint32_t n, Announces&& announces) {
    while (n < room.size() && !waiting_.empty()) {
      Pending pending = waiting_.pop();
      if (pending.record.kind == TUTTI_COMPLETION_PEER_FAILED && !announces(pending.record.peer)) continue;
      room[n++] = pending.record;
      if (pending.data) batch_.push_back(std::move(pending.data));
    }
    return n;
  }

 private:
  struct Pending {
    tutti_completion record{};
    std::unique_ptr<char[]> data;  // record.data points to it
  };
  Ring<Pending> waiting_;
  std::vector<std::unique_ptr<char[]>> batch_;  // data of the last one, until the next progress
};

// The life of one rank's link to one peer. `Link`, the class that derives from it, has
//   void drop_transfers(tutti_status);       // completes each pending transfer; their memory is no longer accessed
//   bool take_control(std::string_view);     // false: no room now
template <typename Link, typename Endpoint>
class NetworkLink {
 public:
  NetworkLink(Endpoint& endpoint, uint32_t peer) : endpoint_(endpoint), peer_(peer) {}

  Endpoint& endpoint() const { return endpoint_; }
  uint32_t peer() const { return peer_; }
  bool is_up() const { return status_ == TUTTI_OK; }
  tutti_status status() const { return status_; }  // with which it has ended
  const std::string& reason() const { return reason_; }
  // The status with which post and send_control refuse everything. TUTTI_OK until the core knows that the link has
  // ended; before that an ended link has no room.
  tutti_status refusal() const { return is_known_ ? status_ : TUTTI_OK; }
  // connect's answer to it: throws Error.
  void check_not_lost() const {
    if (refusal() != TUTTI_OK) throw endpoint_.error(status_, "rank {} is lost: {}", peer_, reason_);
  }

  // transport/1's send_control.
  bool send_control(std::string_view message) {
    if (message.size() > endpoint_.control_bytes() || (!message.data() && !message.empty()))
      throw endpoint_.error(TUTTI_INVALID_ARGUMENT, "a control message has {} bytes, at most {} are allowed",
                            message.size(), endpoint_.control_bytes());
    if (refusal() != TUTTI_OK)
      throw endpoint_.error(status_, "no control message can reach rank {}: {}", peer_, reason_);
    return has_departed_ || static_cast<Link&>(*this).take_control(message);  // nobody reads it after a departure
  }

  // Ends the link for a reason that the core knows.
  void end(tutti_status status, const std::string& reason) {
    is_known_ = true;
    if (!is_up()) return;
    status_ = status;
    reason_ = reason;
    static_cast<Link&>(*this).drop_transfers(status);
  }
  // Ends the link because the peer is lost, and queues the record of the loss.
  void lose(const std::string& reason) {
    if (!is_up()) return;
    end(TUTTI_PEER_FAILED, reason);
    is_known_ = false;
    endpoint_.report_lost(peer_, reason_);
  }
  // Called before the record of the loss is handed over. False: the core knows already.
  bool announce() { return !std::exchange(is_known_, true); }

 protected:
  // `mark`: of a RECV's message, else 0.
  void complete(uint64_t cookie, tutti_status status, uint64_t bytes, uint32_t mark = 0) {
    endpoint_.completions().transfer(peer_, cookie, status, bytes, mark);
  }

  bool has_departed_ = false;  // the peer has closed its endpoint in order

 private:
  Endpoint& endpoint_;
  const uint32_t peer_;
  tutti_status status_ = TUTTI_OK;
  bool is_known_ = false;  // the core knows that the link has ended
  std::string reason_;
};

// An endpoint whose links are NetworkLinks. `Self`, the class that derives from it, has
//   Link* link_of(uint32_t peer) const;
//   Link* reach(uint32_t peer);                      // begins or continues to connect; nullptr: under way
//   void check_region(const tutti_transfer&) const;  // throws where its region, or the lack of one, is wrong
//   void advance();                                  // one round of everything; flush() is part of it, at its end
//   void flush();                                    // hands queued bytes to the system
//   void give_up(uint32_t peer);                     // ends connecting with a peer
template <typename Self, typename Link>
class NetworkEndpoint : public EndpointBase {
 public:
  Completions& completions() { return completions_; }
  uint64_t control_bytes() const { return limits_.control_bytes; }

  // transport/1.
  Link* connect(uint32_t peer) {
    check_peer(peer);
    if (aborted_) throw error(TUTTI_ABORTED, "connect after abort");
    if (given_up_[peer]) throw error(TUTTI_PEER_FAILED, "rank {} was given up", peer);
    return self().reach(peer);
  }
  bool post(const tutti_transfer& t) {
    check(t);
    Link& link = from_handle<Link>(t.link);
    const bool accepted = t.kind == TUTTI_TRANSFER_SEND ? link.post_send(t) : link.post_receive(t);
    if (t.flags & TUTTI_TRANSFER_INLINE) self().flush();  // all others leave together, with the next progress
    return accepted;
  }
  uint32_t progress(std::span<tutti_completion> completions) {
    const auto announces = [this](uint32_t peer) { return self().link_of(peer)->announce(); };
    self().flush();  // what was posted since leaves before anything is read
    completions_.forget_batch();
    const uint32_t n = completions_.hand_over(completions, 0, announces);
    if (!completions_.empty()) return n;  // takes in no more than it can hand over, which bounds the queue
    self().advance();
    return completions_.hand_over(completions, n, announces);
  }
  void fail_peer(uint32_t peer) {
    check_peer(peer);
    given_up_[peer] = true;
    self().give_up(peer);
    if (Link* link = self().link_of(peer)) link->end(TUTTI_PEER_FAILED, "this rank has given it up");
  }
  void abort() {
    if (std::exchange(aborted_, true)) return;
    for (uint32_t peer = 0; peer < nranks(); ++peer) {
      self().give_up(peer);
      if (Link* link = self().link_of(peer)) link->end(TUTTI_ABORTED, "the endpoint was aborted");
    }
  }

  // For links.
  void report_lost(uint32_t peer, const std::string& reason) {
    log(TUTTI_LOG_WARN, "rank {} is lost: {}", peer, reason);
    completions_.peer_failed(peer, says("rank {} is lost: {}", peer, reason));
  }

 protected:
  struct Limits {
    uint64_t fragment_bytes, inline_bytes, control_bytes;
  };
  NetworkEndpoint(const char* transport, const tutti_endpoint_config& config, uint32_t max_lanes, Limits limits)
      : EndpointBase(transport, config, max_lanes), limits_(limits), given_up_(nranks()) {}

  bool is_aborted() const { return aborted_; }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  // Throws when a transfer can never be accepted.
  void check(const tutti_transfer& t) {
    if (aborted_) throw refusal(t, TUTTI_ABORTED, "the endpoint was aborted");
    check_shape(t, limits_.fragment_bytes, limits_.inline_bytes);
    self().check_region(t);
    const Link& link = from_handle<Link>(t.link);
    if (&link.endpoint() != this) throw refusal(t, TUTTI_INVALID_ARGUMENT, "a link of another endpoint");
    if (const tutti_status status = link.refusal()) throw refusal(t, status, link.reason());
  }

  const Limits limits_;
  Completions completions_;
  std::vector<bool> given_up_;  // by peer
  bool aborted_ = false;
};

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
