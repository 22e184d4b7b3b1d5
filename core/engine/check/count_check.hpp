// SPDX-License-Identifier: Apache-2.0
//
// Do the two ends of each block agree about its size? For collectives in which only they know it, in checked mode:
//
//   1. The calls are compared (call_check.hpp), so all ranks are in this one.
//   2. Each sender tells each receiver its count by a control message, and each receiver compares.
//   3. The calls are compared again, now with what was found. So all ranks fail with the same words, before any result
//      has been written.
//
// Step 3 ends only when all ranks have heard all counts, so a peer is at most one check ahead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/check/call_check.hpp"
#include "engine/plan/block_table.hpp"

namespace tutti::core {

// Control messages of this file begin with it.
constexpr uint32_t type_counts = 0x54544343;

class CountCheck {
 public:
  void place(uint32_t rank, uint32_t nranks, std::vector<Link>* links);

  // All checks of a call in checked mode. To be called again until true. Throws CallsDiffer on every rank.
  bool check(CallCheck& calls, const Call& mine, const BlockTable& table, const std::function<bool(Link&)>& connect);
  // A control message of type_counts. Returns "", or how it breaks the protocol.
  std::string on_control(uint32_t peer, const std::byte* data, uint64_t bytes);
  // Where the exchange of counts stands, as text; "": there is none.
  std::string where() const;

 private:
  struct Message {
    uint32_t type, reserved;
    uint64_t number, count;
  };
  struct Heard {
    std::vector<uint64_t> counts;
    std::vector<bool> from;
  };
  enum class Stage { calls, counts, findings };
  Heard& of(uint64_t number) { return heard_[number & 1]; }
  bool tell(const Call& call, const BlockTable& table, const std::function<bool(Link&)>& connect);
  bool has_heard_all(const Call& call);
  Call compare(const Call& call, const BlockTable& table);

  uint32_t rank_ = 0, nranks_ = 1;
  std::vector<Link>* links_ = nullptr;
  Stage stage_ = Stage::calls;
  uint64_t number_ = 0;  // of the exchange under way, or of the next one
  uint32_t told_ = 0;    // ranks below this one have been told
  Call found_;
  std::array<Heard, 2> heard_;
};

}  // namespace tutti::core
