// SPDX-License-Identifier: Apache-2.0
#include "base/make_failure.hpp"
#include "base/wire.hpp"
#include "bootstrap/authentication.hpp"
#include "control_mesh.hpp"
#include "meeting.hpp"

namespace tutti::core {
namespace {

// The bytes that each rank gives, padded because the function moves equal sizes. They reveal a function that orders
// wrongly, distribute rank 0's random secret, and say how the rank is reached.
struct Card {
  uint32_t rank = 0, nranks = 0;
  std::string secret, contact, padding;

  static void fields(auto& wire, auto& card) {
    wire(card.rank, card.nranks, RawBytes(card.secret), RawBytes(card.contact), RawBytes(card.padding));
  }
};
// For the most addresses, all of IPv6, and the longest name of a host.
constexpr size_t kCardBytes = 1024;

Card read_card(const std::string& me, uint32_t from, uint32_t nranks, std::string_view bytes) {
  const bool ours = bytes.starts_with(kMagic);
  const Card card = ours ? decode<Card>(bytes.substr(kMagic.size()), "card") : Card();
  if (!ours || card.rank != from)
    throw make_failure(TUTTI_MISMATCH,
                       "{}the application's all_gather put {} bytes at place {}: it must gather every rank's bytes in "
                       "rank order",
                       me, ours ? fmt::format("rank {}'s", card.rank) : "foreign", from);
  if (card.nranks != nranks)
    throw make_failure(TUTTI_MISMATCH, "{}this rank has a world of {} ranks, rank {} one of {}", me, nranks, from,
                       card.nranks);
  return card;
}

}  // namespace

std::unique_ptr<Bootstrap> meet_by_callback(const Rendezvous& rendezvous, const Environment&,
                                            Deadline& deadline) {
  const auto rank = static_cast<uint32_t>(rendezvous.rank), nranks = static_cast<uint32_t>(rendezvous.nranks);
  const std::string me = fmt::format("rank {}: bootstrap: ", rank);
  // The secret decides only whether the door needs one.
  const std::string own_secret = random_bytes(kSecretBytes);
  auto [listener, address] = open_mesh_door(rank, own_secret, {});
  Card mine{rank, nranks, rank == 0 ? own_secret : "", encode(address), ""};
  const size_t room = kCardBytes - kMagic.size(), used = encode(mine).size();
  if (used > room)
    throw make_failure(TUTTI_INTERNAL, "{}it takes {} bytes to say how this rank is reached, at most {} are possible",
                       me, used, room);
  mine.padding.resize(room - used);
  const std::string given = std::string(kMagic) + encode(mine);
  std::string all(given.size() * nranks, '\0');
  const tutti_status status = rendezvous.all_gather(rendezvous.context, given.data(), given.size(), all.data());
  if (!rendezvous.timed) deadline.restart();
  if (status != TUTTI_OK)
    throw make_failure(status < 0 ? status : TUTTI_INVALID_USAGE,
                       "{}the application's all_gather function returned {} for {} bytes", me, status, given.size());
  const auto place = [&](uint32_t r) { return std::string_view(all).substr(r * given.size(), given.size()); };
  for (uint32_t r = 0; r < nranks; ++r) read_card(me, r, nranks, place(r));
  if (place(rank) != given)
    throw Failure(TUTTI_MISMATCH, me + "the application's all_gather changed this rank's own bytes");
  if (nranks == 1) return meet_nobody(own_secret);
  const Card first = read_card(me, 0, nranks, place(0));
  const uint32_t next = (rank + 1) % nranks;
  return link_ranks(rendezvous, first.secret, {first.contact, read_card(me, next, nranks, place(next)).contact},
                    std::move(listener), deadline);
}

}  // namespace tutti::core
