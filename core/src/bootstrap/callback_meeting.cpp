// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/callback_meeting.hpp"

#include <algorithm>

#include "bootstrap/authentication.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t kGreetingBytes = 8 + 4 + 4 + kSecretBytes;

class CallbackMeeting final : public Bootstrap {
 public:
  explicit CallbackMeeting(const Rendezvous& rendezvous)
      : Bootstrap(static_cast<uint32_t>(rendezvous.rank), static_cast<uint32_t>(rendezvous.nranks), ""),
        function_(rendezvous.all_gather),
        context_(rendezvous.context) {
    greet();
  }

 protected:
  // The function moves equal sizes: the lengths go first, then everything padded to the longest.
  std::vector<std::string> exchange(const std::string& mine, std::chrono::nanoseconds) override {
    const std::string lengths = call(WireWriter().u64(mine.size()).take());
    WireReader reader(lengths, "lengths");
    std::vector<uint64_t> length(nranks_);
    for (uint32_t r = 0; r < nranks_; ++r) {
      length[r] = reader.u64();
      if (length[r] > kMaxContribution)
        throw Failure(TUTTI_MISMATCH, me() + "rank " + std::to_string(r) + " announces " + std::to_string(length[r]) +
                                          " bytes by the application's all_gather, at most " +
                                          std::to_string(kMaxContribution) + " are allowed");
    }
    if (length[rank_] != mine.size())
      throw Failure(TUTTI_MISMATCH, me() + "the application's all_gather changed this rank's own bytes");
    const uint64_t longest = *std::max_element(length.begin(), length.end());
    std::vector<std::string> all(nranks_);
    if (longest == 0) return all;
    std::string padded = mine;
    padded.resize(longest);
    const std::string bytes = call(padded);
    for (uint32_t r = 0; r < nranks_; ++r) all[r] = bytes.substr(r * longest, length[r]);
    return all;
  }

 private:
  // Finds a function that orders wrongly, and hands out rank 0's random secret.
  void greet() {
    const std::string secret = rank_ == 0 ? random_bytes(kSecretBytes) : std::string(kSecretBytes, '\0');
    const std::string all = call(WireWriter().raw(kMagic).u32(rank_).u32(nranks_).raw(secret).take());
    WireReader reader(all, "greetings");
    for (uint32_t r = 0; r < nranks_; ++r) {
      const std::string_view magic = reader.raw(kMagic.size());
      const uint32_t rank = reader.u32(), nranks = reader.u32();
      const std::string_view theirs = reader.raw(kSecretBytes);
      if (magic != kMagic || rank != r)
        throw Failure(TUTTI_MISMATCH, me() + "the application's all_gather put " +
                                          (magic == kMagic ? "rank " + std::to_string(rank) + "'s" : "foreign") +
                                          " bytes at place " + std::to_string(r) +
                                          ": it must gather every rank's bytes in rank order");
      if (nranks != nranks_)
        throw Failure(TUTTI_MISMATCH, me() + "this rank has a world of " + std::to_string(nranks_) + " ranks, rank " +
                                          std::to_string(r) + " one of " + std::to_string(nranks));
      if (r == 0) secret_ = theirs;
    }
  }

  std::string call(const std::string& mine) {
    std::string all(mine.size() * nranks_, '\0');
    const tutti_status status = function_(context_, mine.data(), mine.size(), all.data());
    if (status != TUTTI_OK)
      throw Failure(status < 0 ? status : TUTTI_INVALID_USAGE,
                    me() + "the application's all_gather function returned " + std::to_string(status) + " for " +
                        std::to_string(mine.size()) + " bytes");
    return all;
  }

  AllGatherFunction function_;
  void* context_;
};
static_assert(kMagic.size() + 4 + 4 + kSecretBytes == kGreetingBytes);

}  // namespace

std::unique_ptr<Bootstrap> meet_by_callback(const Rendezvous& rendezvous) {
  return std::make_unique<CallbackMeeting>(rendezvous);
}

}  // namespace tutti::core
