// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bootstrap/authentication.hpp"
#include "make_failure.hpp"
#include "meeting.hpp"
#include "wire.hpp"

namespace tutti::core {
namespace {

// Each rank greets first. A greeting finds a function that orders wrongly, hands out rank 0's random secret, and tells
// how long the rank's contact is: the function moves equal sizes.
struct Greeting {
  std::string secret;  // kSecretBytes; zeros but for rank 0's
  uint32_t rank = 0, nranks = 0;
  uint64_t contact_bytes = 0;
};

class CallbackMeeting {
 public:
  explicit CallbackMeeting(const Rendezvous& rendezvous)
      : rank_(static_cast<uint32_t>(rendezvous.rank)),
        nranks_(static_cast<uint32_t>(rendezvous.nranks)),
        function_(rendezvous.all_gather),
        context_(rendezvous.context) {}

  std::unique_ptr<Meeting> meet(const OpenDoor& door) const {
    // The secret decides only whether the door needs one.
    const std::string own_secret = random_bytes(kSecretBytes);
    std::string contact = door(own_secret, {});
    const std::vector<Greeting> all =
        greet({rank_ == 0 ? own_secret : std::string(kSecretBytes, '\0'), rank_, nranks_, contact.size()});
    const uint64_t longest = std::ranges::max(all, {}, &Greeting::contact_bytes).contact_bytes;
    const std::string mine = contact;
    contact.resize(longest);
    const std::string bytes = call(contact);
    const auto of = [&](uint32_t r) { return bytes.substr(r * longest, all[r].contact_bytes); };
    if (of(rank_) != mine)
      throw Failure(TUTTI_MISMATCH, me() + "the application's all_gather changed this rank's own bytes");
    return std::make_unique<Meeting>(rank_, nranks_, all[0].secret, Contacts{of(0), of((rank_ + 1) % nranks_)});
  }

 private:
  std::string me() const { return fmt::format("rank {}: bootstrap: ", rank_); }

  std::vector<Greeting> greet(const Greeting& mine) const {
    const std::string bytes =
        call(WireWriter().raw(kMagic).u32(mine.rank).u32(mine.nranks).u64(mine.contact_bytes).raw(mine.secret).take());
    WireReader reader(bytes, "greetings");
    std::vector<Greeting> all;
    for (uint32_t r = 0; r < nranks_; ++r) {
      const bool ours = reader.raw(kMagic.size()) == kMagic;
      Greeting theirs;
      reader(theirs.rank, theirs.nranks, theirs.contact_bytes);
      theirs.secret = reader.raw(kSecretBytes);
      if (!ours || theirs.rank != r)
        throw make_failure(TUTTI_MISMATCH,
                           "{}the application's all_gather put {} bytes at place {}: it must "
                           "gather every rank's bytes in rank order",
                           me(), ours ? fmt::format("rank {}'s", theirs.rank) : "foreign", r);
      if (theirs.nranks != nranks_)
        throw make_failure(TUTTI_MISMATCH, "{}this rank has a world of {} ranks, rank {} one of {}", me(), nranks_, r,
                           theirs.nranks);
      if (theirs.contact_bytes > kMaxContact)
        throw make_failure(TUTTI_MISMATCH,
                           "{}rank {} announces {} bytes by the application's all_gather, at "
                           "most {} are allowed",
                           me(), r, theirs.contact_bytes, kMaxContact);
      all.push_back(std::move(theirs));
    }
    return all;
  }

  std::string call(const std::string& mine) const {
    std::string all(mine.size() * nranks_, '\0');
    const tutti_status status = function_(context_, mine.data(), mine.size(), all.data());
    if (status != TUTTI_OK)
      throw make_failure(status < 0 ? status : TUTTI_INVALID_USAGE,
                         "{}the application's all_gather function returned {} for {} bytes", me(), status, mine.size());
    return all;
  }

  const uint32_t rank_, nranks_;
  const AllGatherFunction function_;
  void* const context_;
};

}  // namespace

std::unique_ptr<Meeting> meet_by_callback(const Rendezvous& rendezvous, const OpenDoor& door) {
  return CallbackMeeting(rendezvous).meet(door);
}

}  // namespace tutti::core
