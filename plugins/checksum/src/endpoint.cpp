// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <cstring>
#include <utility>

namespace tutti::checksum {

Endpoint::Endpoint(Interposer::Domain& domain, const tutti_endpoint_config& config, tutti_endpoint* inner,
                   uint64_t inner_inline_bytes)
    : Interposer::Endpoint(domain, config, inner), inner_inline_bytes_(inner_inline_bytes) {}

Endpoint::Peer& Endpoint::peer_of(uint32_t peer) {
  Peer& found = peers_[peer];
  if (found.lanes.empty()) found.lanes.resize(lanes);
  return found;
}

tutti_status Endpoint::post(const tutti_transfer& transfer) {
  if (transfer.lane >= lanes || (transfer.kind != TUTTI_TRANSFER_SEND && transfer.kind != TUTTI_TRANSFER_RECV))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "checksum: no lane " + std::to_string(transfer.lane) + " or no kind " +
                                                 std::to_string(transfer.kind));
  const uint32_t peer = link_of(transfer).peer;
  Way& way = peer_of(peer).lanes[transfer.lane];
  const bool sends = transfer.kind == TUTTI_TRANSFER_SEND;
  if (sends && !way.waiting.empty()) return TUTTI_AGAIN;
  const uint64_t id = next_record_++;
  Record& record = records_[id];
  record.transfer = transfer;
  record.peer = peer;
  record.silent = (transfer.flags & TUTTI_TRANSFER_INLINE) != 0;
  record.message = sends ? sealed_copy(transfer.data, transfer.bytes, way.sent)
                         : std::make_unique_for_overwrite<std::byte[]>(transfer.bytes + seal_bytes);
  const bool silent = record.silent;
  const tutti_status status = hand_over(id);
  const bool waits = sends && status == TUTTI_AGAIN && !silent;
  if (status != TUTTI_OK && !waits) records_.erase(id);
  if (sends && (waits || status == TUTTI_OK)) ++way.sent;
  if (!waits) return status;
  // It is sealed already: it waits here, and those behind it outside.
  way.waiting.push_back(id);
  ++waiting_;
  return TUTTI_OK;
}

tutti_status Endpoint::hand_over(uint64_t id) {
  Record& record = records_.at(id);
  tutti_transfer inner_transfer = record.transfer;
  inner_transfer.link = link(record.peer)->inner();
  inner_transfer.data = record.message.get();
  inner_transfer.bytes += seal_bytes;
  const bool inlined = record.silent && inner_transfer.bytes <= inner_inline_bytes_;
  inner_transfer.flags = inlined ? TUTTI_TRANSFER_INLINE : 0;
  inner_transfer.region = nullptr;
  inner_transfer.cookie = id;
  const tutti_status status = api().post(inner(), &inner_transfer);
  if (status == TUTTI_OK && inlined) records_.erase(id);
  return status;
}

void Endpoint::hand_over_waiting() {
  if (!waiting_) return;
  for (auto& [number, peer] : peers_)
    for (Way& way : peer.lanes)
      while (!way.waiting.empty()) {
        const uint64_t id = way.waiting.front();
        const tutti_status status = hand_over(id);
        if (status == TUTTI_AGAIN) break;
        if (status < 0) {
          tutti_completion ended{};
          ended.kind = TUTTI_COMPLETION_TRANSFER;
          ended.status = status;
          ended.peer = number;
          ended.cookie = records_.at(id).transfer.cookie;
          if (!records_.at(id).silent) ready_.push_back(ended);
          records_.erase(id);
        }
        way.waiting.pop_front();
        --waiting_;
      }
}

tutti_status Endpoint::progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) {
  constexpr uint32_t batch = 32;
  tutti_completion found[batch];
  uint32_t arrived = 0;
  if (ready_.empty()) {
    texts_.clear();
    const tutti_status status = api().progress(inner(), found, batch, &arrived);
    if (status < 0) return status;
    for (uint32_t i = 0; i < arrived; ++i) finish(found[i]);
    hand_over_waiting();
    if (!defect_.empty()) throw sdk::Error(TUTTI_INTERNAL, std::exchange(defect_, {}));
  }
  for (; *n < capacity && !ready_.empty(); ready_.pop_front()) completions[(*n)++] = ready_.front();
  return TUTTI_OK;
}

// Puts a completion into the caller's terms.
void Endpoint::finish(const tutti_completion& completion) {
  if (completion.kind == TUTTI_COMPLETION_CONTROL) return open_control(completion);
  tutti_completion ended = completion;
  if (completion.kind != TUTTI_COMPLETION_TRANSFER) {
    if (completion.data) ended.data = texts_.emplace_back(static_cast<const char*>(completion.data)).c_str();
    ready_.push_back(ended);
    return;
  }
  const auto found = records_.find(completion.cookie);
  if (found == records_.end()) {
    defect_ = "checksum: a completion came for a transfer that was never posted";
    return;
  }
  const Record record = std::move(found->second);
  records_.erase(found);
  const tutti_transfer& transfer = record.transfer;
  ended.cookie = transfer.cookie;
  ended.bytes = completion.bytes >= seal_bytes ? completion.bytes - seal_bytes : 0;
  std::string wrong;
  uint64_t& received = peer_of(record.peer).lanes[transfer.lane].received;
  if (transfer.kind == TUTTI_TRANSFER_RECV && completion.status == TUTTI_MISMATCH) ++received;
  if (transfer.kind == TUTTI_TRANSFER_RECV && completion.status == TUTTI_OK) {
    wrong = defect(record.message.get(), transfer.bytes, received++);
    if (!wrong.empty()) ended.status = TUTTI_INTERNAL;
    if (wrong.empty() && transfer.bytes) std::memcpy(transfer.data, record.message.get(), transfer.bytes);
  }
  if (!record.silent) ready_.push_back(ended);
  if (wrong.empty()) return;
  defect_ = "a message from rank " + std::to_string(record.peer) + " on lane " + std::to_string(transfer.lane) +
            " did not arrive as it was sent: " + wrong;
}

void Endpoint::open_control(const tutti_completion& completion) {
  const auto* data = static_cast<const std::byte*>(completion.data);
  const uint64_t expected = peer_of(completion.peer).control.received++;
  const std::string wrong = completion.bytes < seal_bytes ? "it has " + std::to_string(completion.bytes) + " bytes"
                                                          : defect(data, completion.bytes - seal_bytes, expected);
  if (!wrong.empty()) {
    defect_ =
        "a control message from rank " + std::to_string(completion.peer) + " did not arrive as it was sent: " + wrong;
    return;
  }
  tutti_completion opened = completion;
  opened.bytes -= seal_bytes;
  opened.data = texts_.emplace_back(reinterpret_cast<const char*>(data), opened.bytes).data();
  ready_.push_back(opened);
}

tutti_status Link::send_control(const void* data, uint64_t bytes) {
  Endpoint::Way& way = static_cast<Endpoint&>(endpoint).peer_of(peer).control;
  const auto message = sealed_copy(data, bytes, way.sent);
  const tutti_status status = Interposer::Link::send_control(message.get(), bytes + seal_bytes);
  if (status == TUTTI_OK) ++way.sent;
  return status;
}

}  // namespace tutti::checksum
