// SPDX-License-Identifier: Apache-2.0
//
// When faults strike at one endpoint: each fault of the script counts its own occasions.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "dice.hpp"
#include "script.hpp"

namespace tutti::chaos {

// Something that a fault may strike: a message, or (peer == nobody) a progress call.
struct Occasion {
  static constexpr uint32_t nobody = UINT32_MAX;
  uint32_t peer = nobody;
  uint32_t lane = nobody;
  uint64_t bytes = 0;
  bool control = false, pair = false;
};

class Faults {
 public:
  Faults(const Script& script, uint32_t rank, uint64_t seed) : dice_(seed) {
    for (const Fault& fault : script)
      if (!fault.rank || *fault.rank == rank) armed_.push_back({fault, 0, 0});
  }
  // The first fault of this kind that strikes now, or nullptr. Every fault that might counts the occasion.
  const Fault* strike(Kind kind, const Occasion& occasion) {
    const Fault* striking = nullptr;
    for (Armed& a : armed_) {
      const Fault& f = a.fault;
      if (f.kind != kind || (f.peer && *f.peer != occasion.peer) || (f.lane && *f.lane != occasion.lane) ||
          occasion.bytes < f.min || f.pair != occasion.pair || (!allowed(kind) && f.control != occasion.control))
        continue;
      if (a.occasions++ < f.after || (f.count && a.strikes == f.count) || !dice_.chance(f.p) || striking) continue;
      ++a.strikes;
      ++strikes_[static_cast<size_t>(kind)];
      striking = &a.fault;
    }
    return striking;
  }
  Dice& dice() { return dice_; }
  // "delay 12, lose 1"; "" when nothing struck.
  std::string summary() const {
    std::string text;
    for (size_t k = 0; k < kinds; ++k)
      if (strikes_[k])
        text +=
            (text.empty() ? "" : ", ") + std::string(name_of(static_cast<Kind>(k))) + " " + std::to_string(strikes_[k]);
    return text;
  }

 private:
  struct Armed {
    Fault fault;
    uint64_t occasions, strikes;
  };
  std::vector<Armed> armed_;
  std::array<uint64_t, kinds> strikes_{};
  Dice dice_;
};

}  // namespace tutti::chaos
