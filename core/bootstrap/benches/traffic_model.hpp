// SPDX-License-Identifier: Apache-2.0
//
// A model of the bytes and frames of one rank of a job at the beginning, in all_gather and at the end, without sockets.
// It uses the encoders and the rules of the real ranks.
#pragma once
#include <algorithm>
#include <string>

#include "base/wire.hpp"
#include "bootstrap/authentication.hpp"
#include "bootstrap/control_plane.hpp"
#include "control_mesh.hpp"
#include "frame_stream.hpp"
#include "handshake.hpp"
#include "packet.hpp"

namespace tutti::core {

inline Traffic operator-(const Traffic& a, const Traffic& b) {
  return {a.bytes_sent - b.bytes_sent, a.frames_sent - b.frames_sent, a.bytes_received - b.bytes_received,
          a.frames_received - b.frames_received};
}

class TrafficModel {
 public:
  // All ranks are reached by `address`, and are as `identity` says. Rank 0 listens for those of `job`.
  TrafficModel(uint32_t nranks, MeshAddress address, MeshIdentity identity, std::string job)
      : nranks_(nranks), address_(std::move(address)), identity_(std::move(identity)), job_(std::move(job)) {}

  Traffic begin(uint32_t rank) const {
    Traffic all;
    const std::string contact = encode(address_);
    const MeshAddress of_first{{}, address_.who, std::string(32, 't')};
    const uint64_t contacts = encode(Contacts{encode(of_first), contact}).size();
    const auto neighbours = mesh_neighbours(rank, nranks_);
    for (uint32_t i = rank == 0 ? 1 : rank; i < (rank == 0 ? nranks_ : rank + 1); ++i) {
      const bool calls = rank != 0;
      introduce(all, calls, job_, contact);
      pass(all, !calls, contacts);
      if (!std::ranges::binary_search(neighbours, rank == 0 ? i : 0)) pass(all, calls, 0);
    }
    for (const uint32_t peer : neighbours)
      if (rank != 0 && peer != 0) introduce(all, calls(rank, peer), of_first.token, "");
    for (uint64_t distance = 1; 2 * distance < nranks_; distance *= 2) {
      pass(all, true, contact.size());
      pass(all, false, contact.size());
    }
    return all += gather(rank, encode(identity_).size());
  }
  Traffic gather(uint32_t rank, uint64_t bytes) const {
    Traffic all;
    for (const GatherRound& round : gather_rounds(rank, nranks_)) {
      const std::string part(round.blocks * (4 + bytes), 'x');
      const uint64_t size = encode(Packet{PacketKind::part, Route::neighbour, rank, round.to, 1, part}).size();
      pass(all, true, size);
      pass(all, false, size);
    }
    return all;
  }
  Traffic end(uint32_t rank) const {
    Traffic all = gather(rank, 0);
    for (size_t i = mesh_neighbours(rank, nranks_).size(); i > 0; --i) {
      pass(all, true, 0);
      pass(all, false, 0);
    }
    return all;
  }

 private:
  // The caller of two neighbours is the one that has the other after it at the smaller distance, or else the lower one.
  bool calls(uint32_t rank, uint32_t peer) const {
    const uint32_t up = (peer + nranks_ - rank) % nranks_, down = nranks_ - up;
    const auto is_distance = [](uint32_t d) { return (d & (d - 1)) == 0; };
    if (is_distance(up) && is_distance(down)) return up < down || (up == down && rank < peer);
    return is_distance(up);
  }
  static void pass(Traffic& all, bool sends, uint64_t payload) {
    constexpr uint64_t header = 16;
    if (sends) all += Traffic{header + payload, 1, 0, 0};
    if (!sends) all += Traffic{0, 0, header + payload, 1};
  }
  void introduce(Traffic& all, bool calls, const std::string& job, const std::string& contact) const {
    constexpr uint64_t caller = kPrefixBytes + kNonceBytes + kProofBytes, host = caller;
    all += calls ? Traffic{caller, 2, host, 0} : Traffic{host, 1, caller, 0};
    pass(all, calls, encode(Hello{job, 0, nranks_, identity_.who, contact, ""}).size());
    pass(all, !calls, encode(Welcome{0, 0, nranks_}).size());
  }

  const uint32_t nranks_;
  const MeshAddress address_;
  const MeshIdentity identity_;
  const std::string job_;
};

}  // namespace tutti::core
