// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/pair_ledger.hpp"

#include "base/failure.hpp"
#include "base/make_failure.hpp"

namespace tutti::core {

uint64_t PairLedger::send(uint32_t peer, std::string_view bytes) {
  Outgoing& out = outgoing_[peer];
  if (out.untaken.size() >= max_untaken_) return 0;
  out.untaken.emplace_back(bytes);
  return out.taken + out.untaken.size();
}

void PairLedger::taken(uint32_t peer, uint64_t number) {
  Outgoing& out = outgoing_[peer];
  if (number > out.taken + out.untaken.size())
    throw make_failure(TUTTI_MISMATCH, "it has taken pair message {}, but {} were sent to it", number,
                       out.taken + out.untaken.size());
  for (; out.taken < number; ++out.taken) out.untaken.pop_front();
}

bool PairLedger::receive(uint32_t peer, uint64_t number, std::string_view bytes) {
  Incoming& in = incoming_[peer];
  if (number == 0 || number > in.taken + max_untaken_ || bytes.size() > max_bytes_)
    throw make_failure(TUTTI_MISMATCH, "pair message {} of {} bytes came; expected at most number {} and {} bytes",
                       number, bytes.size(), in.taken + max_untaken_, max_bytes_);
  if (number <= in.taken) return false;
  if (number <= in.complete) return true;  // it came before and waits to be taken
  in.early.try_emplace(number, bytes);
  for (auto next = in.early.begin(); next != in.early.end() && next->first == in.complete + 1;
       next = in.early.erase(next)) {
    PairMessage& message = ready_.emplace_back();  // where memory lacks, nothing has moved
    message.from = peer;
    message.bytes = std::move(next->second);
    ++in.complete;
  }
  return true;
}

std::vector<PairMessage> PairLedger::take() {
  for (const PairMessage& message : ready_) {
    Incoming& in = incoming_[message.from];
    in.taken = in.complete;
  }
  return std::exchange(ready_, {});
}

uint64_t PairLedger::taken_from(uint32_t peer) const {
  const auto found = incoming_.find(peer);
  return found == incoming_.end() ? 0 : found->second.taken;
}

void PairLedger::forget(uint32_t peer) {
  const auto out = outgoing_.find(peer);
  if (out == outgoing_.end()) return;
  out->second.taken += out->second.untaken.size();
  out->second.untaken.clear();
}

}  // namespace tutti::core
