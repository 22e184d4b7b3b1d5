// SPDX-License-Identifier: Apache-2.0
//
// Views of a WalkEndpoint, and how it ends.
#include <algorithm>
#include <cstring>
#include <utility>

#include "walk_endpoint.hpp"

namespace tutti::conformance::contract {

// ---- Views

void WalkEndpoint::view_send(uint32_t peer, uint32_t lane, uint32_t dice) {
  Outgoing& out = peers_[peer].out[lane];
  if (!view_ || out.pending > 0) return;
  if (out.reserved) return commit(peer, lane);
  const Label label{me_, peer, lane, out.next};
  const uint64_t bytes = planned(walk_, bench_.caps(), communicator_, label).bytes;
  tutti_link* link = rank_->links[peer];
  auto* room =
      static_cast<uint8_t*>(plain_call("try_reserve", false, [&] { return view_->try_reserve(link, lane, bytes); }));
  if (!room) return;
  require(!aborted_ && !(my_ends(peer) & World::gave_up), "V-9", "try_reserve gives room after {}",
          aborted_ ? "abort" : "fail_peer");
  require(bytes < 64 || reinterpret_cast<uintptr_t>(room) % 64 == 0, "V-4",
          "try_reserve of {} bytes gives an address that is no multiple of 64", bytes);
  fill(room, bytes, fill_seed(walk_, communicator_), label);
  out.reserved = room;
  if (dice % 2) commit(peer, lane);
}

void WalkEndpoint::commit(uint32_t peer, uint32_t lane) {
  Outgoing& out = peers_[peer].out[lane];
  if (is_over(peer)) return;  // the reservation stays, and nothing else is asked of the lane
  out.reserved = nullptr;
  const uint32_t k = out.next;
  const uint64_t bytes = planned(walk_, bench_.caps(), communicator_, {me_, peer, lane, k}).bytes;
  auto& tried = out_stream(peer, lane).tried;
  if (tried < k + 1) tried = k + 1;
  plain_call("commit", false, [&] { view_->commit(rank_->links[peer], lane, bytes); });
  out.next = k + 1;
  out_stream(peer, lane).sent = out.next;
  complete_send(peer, lane, k);
}

void WalkEndpoint::check_shown(const Label& label, const uint8_t* shown, uint64_t bytes) const {
  const uint64_t expected = planned(walk_, bench_.caps(), communicator_, label).bytes;
  require(in_stream(label.from, label.lane).tried > label.k, "V-5",
          "try_receive shows message {} from rank {} on lane {} before it was sent", label.k, label.from, label.lane);
  require(bytes == expected, "T-13",
          "try_receive shows {} bytes for message {} of {} bytes from rank {} to rank {} on lane {}", bytes, label.k,
          expected, label.from, label.to, label.lane);
  judge_message(fill_seed(walk_, communicator_), label, walk_.lanes, shown, bytes);
}

void WalkEndpoint::view_receive(uint32_t peer, uint32_t lane, uint32_t dice) {
  Incoming& in = peers_[peer].in[lane];
  if (!view_ || in.pending > 0 || is_over(peer)) return;
  uint64_t bytes = UINT64_MAX;
  const auto look = [&] {
    return static_cast<const uint8_t*>(
        plain_call("try_receive", false, [&] { return view_->try_receive(rank_->links[peer], lane, &bytes); }));
  };
  const uint8_t* shown = look();
  if (in.shown) {
    require(is_over(peer) || (shown == in.shown && bytes == in.shown_bytes), "V-1",
            "asked again before release, try_receive shows {} bytes at {} instead of {} bytes at {}", bytes,
            static_cast<const void*>(shown), in.shown_bytes, static_cast<const void*>(in.shown));
    return release(peer, lane);
  }
  if (!shown) return;
  const Label label{peer, me_, lane, in.next++};
  in_stream(peer, lane).awaited = in.next;
  in.shown = shown;
  in.shown_bytes = bytes;
  check_shown(label, shown, bytes);
  if (dice % 2) release(peer, lane);
}

void WalkEndpoint::release(uint32_t peer, uint32_t lane) {
  Incoming& in = peers_[peer].in[lane];
  const uint8_t* shown = std::exchange(in.shown, nullptr);
  if (aborted_ || (my_ends(peer) & World::gave_up)) return;
  check_shown({peer, me_, lane, in.next - 1}, shown, in.shown_bytes);
  plain_call("release", false, [&] { view_->release(rank_->links[peer], lane); });
}

void WalkEndpoint::send_region(uint32_t peer, uint32_t lane, uint32_t dice) {
  Outgoing& out = peers_[peer].out[lane];
  if (!view_ || !registers_ || !TUTTI_HAS(tutti_view, view_, send_region) || out.pending > 0 || out.reserved) return;
  const Label label{me_, peer, lane, out.next};
  Lent lent;
  const uint64_t offset = dice % 3 * 333, file_offset = dice / 3 % 2 * 4096;
  const uint64_t length = planned(walk_, bench_.caps(), communicator_, label).bytes;
  lent.bytes = offset + std::max<uint64_t>(length, 1) + dice / 6 % 2 * 100;
  lent.of_all = dice / 12 % 3 == 0 && enroll_all();
  enroll(lent, file_offset);
  fill(lent.data + offset, length, fill_seed(walk_, communicator_), label);
  auto& tried = out_stream(peer, lane).tried;
  if (tried < label.k + 1) tried = label.k + 1;
  const uint64_t at = lent.of_all ? reinterpret_cast<uint64_t>(lent.data) + offset : offset;
  const tutti_status status = plain_call("send_region", false, [&] {
    return view_->send_region(rank_->links[peer], lane, lent.region, at, length, &lent.ticket);
  });
  if (status != TUTTI_OK) {
    give_back(lent, true);
    require(status == TUTTI_AGAIN || status == TUTTI_NOT_SUPPORTED || is_over(peer), "V-8",
            "send_region of {} bytes at {} of a region of {} bytes returned {}", length, offset, lent.bytes,
            status_text(status));
    return;
  }
  out.next = label.k + 1;
  out_stream(peer, lane).sent = out.next;
  lent.k = label.k;
  out.lent.push_back(lent);
}

// All memory of this process as one region, once. False: the transport takes none.
bool WalkEndpoint::enroll_all() {
  if (all_ || refuses_all_) return all_ != nullptr;
  const tutti_transport* t = bench_.transport();
  const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, nullptr, UINT64_MAX, -1, 0, 0};
  const tutti_status status =
      call("register_memory", true, [&] { return t->register_memory(rank_->domain, &memory, &all_); });
  refuses_all_ = status != TUTTI_OK;
  require(!refuses_all_ || status == TUTTI_NOT_SUPPORTED, "T-35",
          "register_memory of all memory (NULL, UINT64_MAX bytes) returned {}: {}", status_text(status), last_error());
  return !refuses_all_;
}

// Makes `lent`'s memory, and a region of a file unless it belongs to that of all memory.
void WalkEndpoint::enroll(Lent& lent, uint64_t file_offset) {
  if (!lent.of_all) {
    lent.fd = memfd_create("walk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (lent.fd < 0 || ftruncate(lent.fd, static_cast<off_t>(file_offset + lent.bytes)) != 0)
      throw CannotRun{"memfd_create failed"};
  }
  void* data = mmap(nullptr, lent.bytes, PROT_READ | PROT_WRITE, lent.of_all ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
                    lent.fd, lent.of_all ? 0 : static_cast<off_t>(file_offset));
  if (data == MAP_FAILED) throw CannotRun{"no memory for a region"};
  lent.data = static_cast<uint8_t*>(data);
  if (lent.of_all) {
    lent.region = all_;
    return;
  }
  const tutti_transport* t = bench_.transport();
  const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, lent.data, lent.bytes, lent.fd, 0, file_offset};
  const tutti_status status =
      call("register_memory", true, [&] { return t->register_memory(rank_->domain, &memory, &lent.region); });
  require(status == TUTTI_OK, "T-35", "register_memory of a memfd's memory returned {}: {}", status_text(status),
          last_error());
}

// The region is not used any more. `overwrite`: the receiver has released the bytes.
void WalkEndpoint::give_back(Lent& lent, bool overwrite) {
  if (std::exchange(lent.of_all, false)) {
    lent.region = nullptr;
    if (!overwrite) return kept_.push_back(std::exchange(lent, {}));
  }
  if (lent.data) {
    if (overwrite) std::memset(lent.data, 0x5B, lent.bytes);
    munmap(std::exchange(lent.data, nullptr), lent.bytes);
  }
  discharge(lent.region);
  if (lent.fd >= 0) ::close(std::exchange(lent.fd, -1));
}

void WalkEndpoint::reclaim() {
  for (uint32_t peer = 0; peer < walk_.ranks; ++peer)
    for (uint32_t lane = 0; lane < walk_.lanes; ++lane) {
      Outgoing& out = peers_[peer].out[lane];
      if (out.lent.empty()) continue;
      const uint64_t released =
          plain_call("released", false, [&] { return view_->released(rank_->links[peer], lane); });
      require(released >= out.released, "V-8", "released() of lane {} to rank {} went back from {} to {}", lane, peer,
              out.released, released);
      out.released = released;
      for (; !out.lent.empty() && released > out.lent.front().ticket; out.lent.pop_front()) {
        if (released != UINT64_MAX) complete_send(peer, lane, out.lent.front().k);
        give_back(out.lent.front(), released != UINT64_MAX);
      }
    }
}

// ---- Ends

void WalkEndpoint::end(uint32_t peer, World::End how) {
  if (peer != me_) shared_.ends[me_][peer] |= how;
}

void WalkEndpoint::close() {
  if (!rank_ || is_closed()) return;
  rouse();
  rank_->close_endpoint();
  for (const auto& flight : pending_) {
    flight->memory.forbid("T-34", "the memory of a transfer that was pending when its endpoint was closed");
    discharge(flight->region);
  }
  for (Peer& peer : peers_)
    for (Outgoing& out : peer.out)
      for (Lent& lent : out.lent) give_back(lent, false);
  discharge(all_);
  rank_->close();
}

void WalkEndpoint::let_go_of_views() {
  if (is_closed()) return;
  rouse();
  for (uint32_t peer = 0; peer < walk_.ranks; ++peer)
    for (uint32_t lane = 0; lane < walk_.lanes; ++lane) {
      if (peers_[peer].out[lane].reserved) commit(peer, lane);
      if (peers_[peer].in[lane].shown) release(peer, lane);
    }
}

uint32_t WalkEndpoint::pending(uint32_t peer) const {
  uint32_t n = 0;
  for (uint32_t lane = 0; lane < walk_.lanes; ++lane)
    n += peers_[peer].out[lane].pending + peers_[peer].in[lane].pending;
  return n;
}

bool WalkEndpoint::level() {
  has_posted_ = false;
  bool all = true;
  if (!is_closed() && !aborted_)
    for (uint32_t peer = 0; peer < walk_.ranks; ++peer)
      if (peer != me_ && !is_over(peer)) all &= level(peer);
  return all;
}

bool WalkEndpoint::level(uint32_t peer) {
  if (asleep_ ? !rank_->links[peer] : !is_linked(peer)) return false;
  bool all = peers_[peer].controls == shared_.controls[peer][me_];
  for (uint32_t lane = 0; lane < walk_.lanes; ++lane) {
    Outgoing& out = peers_[peer].out[lane];
    Incoming& in = peers_[peer].in[lane];
    const uint32_t sends = std::max<uint32_t>(out.next, out_stream(peer, lane).awaited),
                   receives = std::max<uint32_t>(in.next, in_stream(peer, lane).sent);
    while (!asleep_ && in.next < receives && post_one(false, peer, lane, in.next * 31)) has_posted_ = true;
    while (!asleep_ && out.next < sends && post_one(true, peer, lane, out.next * 31)) has_posted_ = true;
    all &= in.next == receives && out.next == sends && out.pending + in.pending == 0 && out.lent.empty();
  }
  return all;
}

bool WalkEndpoint::wind_up() {
  if (is_closed()) return true;
  has_posted_ = false;
  bool ended = aborted_;
  for (uint32_t peer = 0; peer < walk_.ranks; ++peer) ended |= my_ends(peer) != 0;
  for (uint32_t peer = 0; peer < walk_.ranks; ++peer)
    if ((aborted_ || (my_ends(peer) & World::gave_up)) && pending(peer) > 0) return false;
  if (ended) {
    for (uint32_t peer = 0; peer < walk_.ranks; ++peer) end(peer, World::closed);
    close();
    return true;
  }
  for (uint32_t peer = 0; peer < walk_.ranks; ++peer) {
    if (!ends_of(peer)) continue;
    if (pending(peer) > 0) return false;
    if ((ends_of(peer) & World::died) && rank_->links[peer] && !peers_[peer].told) return false;
  }
  return true;
}

template <typename Add>
void WalkEndpoint::missing_messages(uint32_t peer, const Add& add) const {
  for (uint32_t lane = 0; lane < walk_.lanes; ++lane) {
    const Outgoing& out = peers_[peer].out[lane];
    const Incoming& in = peers_[peer].in[lane];
    if (out.next < out_stream(peer, lane).awaited)
      add("T-21", fmt::format("SEND {} to rank {} on lane {} is refused for ever though its RECV is posted", out.next,
                              peer, lane));
    if (in.next < in_stream(peer, lane).sent)
      add("T-20", fmt::format("RECV {} from rank {} on lane {} is refused for ever", in.next, peer, lane));
    if (out.pending + in.pending > 0)
      add("T-11", fmt::format("{} SENDs to and {} RECVs from rank {} on lane {} do not complete though all are matched",
                              out.pending, in.pending, peer, lane));
    if (!out.lent.empty())
      add("V-8", fmt::format("released() to rank {} on lane {} stays at {}, and a ticket is {}", peer, lane,
                             out.released, out.lent.front().ticket));
  }
  const uint32_t sent = shared_.controls[peer][me_];
  if (peers_[peer].controls != sent)
    add("T-28", fmt::format("{} of {} control messages of rank {} have come", peers_[peer].controls, sent, peer));
}

std::vector<Missing> WalkEndpoint::missing() const {
  std::vector<Missing> all;
  if (const std::string lost = rank_->overtaken(); !lost.empty())
    all.push_back({"T-11", fmt::format("communicator {}: {}", communicator_, lost)});
  for (uint32_t peer = 0; peer < walk_.ranks; ++peer) {
    if (peer == me_ || is_closed()) continue;
    const auto add = [&](const char* clause, const std::string& what) {
      all.push_back({clause, fmt::format("rank {} of communicator {}: {}", me_, communicator_, what)});
    };
    if (is_over(peer) || aborted_) {
      const bool died = ends_of(peer) & World::died;
      const auto& [clause, why] = aborted_                         ? std::pair("T-31", "it has called abort")
                                  : my_ends(peer) & World::gave_up ? std::pair("T-30", "it has called fail_peer")
                                  : died                           ? std::pair("T-32", "the peer's process was killed")
                                         : std::pair("T-32", "the peer has closed its endpoint");
      if (pending(peer) > 0)
        add(clause, fmt::format("{} pending transfers with rank {} do not end: {}", pending(peer), peer, why));
      else if (died && rank_->links[peer] && !peers_[peer].told)
        add("T-32", fmt::format("the process of rank {} was killed and no PEER_FAILED record says so", peer));
      continue;
    }
    if (!rank_->links[peer]) add("T-5", fmt::format("no link with rank {} comes about", peer));
    missing_messages(peer, add);
  }
  return all;
}

}  // namespace tutti::conformance::contract
