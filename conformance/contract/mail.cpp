// SPDX-License-Identifier: Apache-2.0
#include "mail.hpp"

#include <cstring>

namespace tutti::conformance::contract {

bool LocalMail::put(uint32_t from, uint32_t to, std::string_view bytes) {
  if (refusals > 0) return --refusals, false;
  boxes_[to].push_back({from, std::string(bytes)});
  sent.emplace_back(to, Letter{from, std::string(bytes)});
  return true;
}

bool LocalMail::take(uint32_t to, Letter& letter) {
  auto& box = boxes_[to];
  if (box.empty()) return false;
  letter = std::move(box.front());
  box.pop_front();
  return true;
}

bool LocalMail::has_any(uint32_t to) const {
  const auto box = boxes_.find(to);
  return box != boxes_.end() && !box->second.empty();
}

bool SharedMail::put(uint32_t from, uint32_t to, std::string_view bytes) {
  Ring& ring = pages_.rings[from][to];
  const uint32_t at = ring.written.load(std::memory_order_relaxed);
  if (at - ring.read.load(std::memory_order_acquire) == most_letters) return false;
  auto& letter = ring.letters[at % most_letters];
  letter.bytes = static_cast<uint32_t>(bytes.size());
  std::memcpy(letter.data, bytes.data(), bytes.size());
  ring.written.store(at + 1, std::memory_order_release);
  return true;
}

bool SharedMail::take(uint32_t to, Letter& letter) {
  for (uint32_t from = 0; from < most_ranks; ++from) {
    Ring& ring = pages_.rings[from][to];
    const uint32_t at = ring.read.load(std::memory_order_relaxed);
    if (at == ring.written.load(std::memory_order_acquire)) continue;
    const auto& next = ring.letters[at % most_letters];
    letter = {from, std::string(next.data, next.bytes)};
    ring.read.store(at + 1, std::memory_order_release);
    return true;
  }
  return false;
}

bool SharedMail::has_any(uint32_t to) const {
  for (auto& from : pages_.rings)
    if (from[to].read.load(std::memory_order_relaxed) != from[to].written.load(std::memory_order_acquire)) return true;
  return false;
}

}  // namespace tutti::conformance::contract
