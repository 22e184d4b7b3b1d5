// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bootstrap/authentication.hpp"
#include "control_mesh.hpp"
#include "make_failure.hpp"
#include "meeting.hpp"
#include "wire.hpp"

namespace tutti::core {
namespace {

// Each rank greets first. A greeting finds a function that orders wrongly, hands out rank 0's random secret, and tells
// how long the rank's contact is: the function moves equal sizes.
struct Greeting {
  uint32_t rank = 0, nranks = 0;
  uint64_t contact_bytes = 0;
  std::string secret = std::string(kSecretBytes, '\0');  // rank 0's

  static void fields(auto& wire, auto& greeting) {
    wire(greeting.rank, greeting.nranks, greeting.contact_bytes, greeting.secret);
  }
};

Greeting read_greeting(const std::string& me, uint32_t from, uint32_t nranks, std::string_view bytes) {
  const bool ours = bytes.starts_with(kMagic);
  const Greeting greeting = ours ? decode<Greeting>(bytes.substr(kMagic.size()), "greeting") : Greeting();
  if (!ours || greeting.rank != from)
    throw make_failure(TUTTI_MISMATCH,
                       "{}the application's all_gather put {} bytes at place {}: it must gather every rank's bytes in "
                       "rank order",
                       me, ours ? fmt::format("rank {}'s", greeting.rank) : "foreign", from);
  if (greeting.nranks != nranks)
    throw make_failure(TUTTI_MISMATCH, "{}this rank has a world of {} ranks, rank {} one of {}", me, nranks, from,
                       greeting.nranks);
  if (greeting.contact_bytes > kMaxContact)
    throw make_failure(TUTTI_MISMATCH,
                       "{}rank {} announces {} bytes by the application's all_gather, at most {} are allowed", me, from,
                       greeting.contact_bytes, kMaxContact);
  return greeting;
}

}  // namespace

std::unique_ptr<Bootstrap> meet_by_callback(const Rendezvous& rendezvous, const Environment&,
                                            std::chrono::nanoseconds timeout) {
  const auto rank = static_cast<uint32_t>(rendezvous.rank), nranks = static_cast<uint32_t>(rendezvous.nranks);
  const std::string me = fmt::format("rank {}: bootstrap: ", rank);
  const auto gather = [&](const std::string& mine) {
    std::string all(mine.size() * nranks, '\0');
    const tutti_status status = rendezvous.all_gather(rendezvous.context, mine.data(), mine.size(), all.data());
    if (status != TUTTI_OK)
      throw make_failure(status < 0 ? status : TUTTI_INVALID_USAGE,
                         "{}the application's all_gather function returned {} for {} bytes", me, status, mine.size());
    return all;
  };
  // The secret decides only whether the door needs one.
  const std::string own_secret = random_bytes(kSecretBytes);
  auto [listener, address] = open_mesh_door(rank, own_secret, {});
  std::string contact = encode(address);
  Greeting mine{rank, nranks, contact.size()};
  if (rank == 0) mine.secret = own_secret;
  const std::string greeting = std::string(kMagic) + encode(mine), greetings = gather(greeting);
  std::vector<Greeting> all;
  for (uint32_t r = 0; r < nranks; ++r)
    all.push_back(
        read_greeting(me, r, nranks, std::string_view(greetings).substr(r * greeting.size(), greeting.size())));
  const uint64_t longest = std::ranges::max(all, {}, &Greeting::contact_bytes).contact_bytes;
  contact.resize(longest);
  const std::string contacts = gather(contact);
  const auto contact_of = [&](uint32_t r) { return contacts.substr(r * longest, all[r].contact_bytes); };
  if (contact_of(rank) != contact.substr(0, mine.contact_bytes))
    throw Failure(TUTTI_MISMATCH, me + "the application's all_gather changed this rank's own bytes");
  if (nranks == 1) return meet_nobody(own_secret);
  return link_ranks(rendezvous, all[0].secret, {contact_of(0), contact_of((rank + 1) % nranks)}, std::move(listener),
                    timeout);
}

}  // namespace tutti::core
