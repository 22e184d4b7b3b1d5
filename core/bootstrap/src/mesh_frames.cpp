// SPDX-License-Identifier: Apache-2.0
#include "mesh_frames.hpp"

#include "make_failure.hpp"

namespace tutti::core {
namespace {

void check_rank(uint32_t rank, uint32_t nranks, const char* what) {
  if (rank >= nranks) throw make_failure(TUTTI_MISMATCH, "{} names rank {} of {}", what, rank, nranks);
}

}  // namespace

std::string encode(const MeshAddress& address) {
  WireWriter writer;
  writer.text(address.who).text(address.token);
  writer.u32(static_cast<uint32_t>(address.addresses.size()));
  for (const SocketAddress& one : address.addresses) writer.u32(one.port()).text(one.bytes());
  return writer.take();
}

MeshAddress decode_address(std::string_view bytes) {
  WireReader reader(bytes, "control plane address");
  MeshAddress address;
  address.who = reader.text();
  address.token = reader.text();
  const uint32_t n = reader.u32();
  if (n > kMaxMeshAddresses) throw make_failure(TUTTI_MISMATCH, "{} control plane addresses", n);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t port = reader.u32();
    const std::string raw = reader.text();
    if (port == 0 || port > 65535 || (raw.size() != 4 && raw.size() != 16))
      throw Failure(TUTTI_MISMATCH, "an ill control plane address");
    address.addresses.push_back(SocketAddress::from_bytes(raw, static_cast<uint16_t>(port)));
  }
  reader.end();
  return address;
}

MeshNotice decode_notice(std::string_view payload, uint32_t nranks) {
  const auto notice = decode<MeshNotice>(payload, "notice");
  check_rank(notice.origin, nranks, "a notice");
  return notice;
}

uint64_t roll_call_number(std::string_view bytes) {
  WireReader reader(bytes, "roll call");
  const uint64_t number = reader.u64();
  reader.end();
  return number;
}

MeshReply decode_reply(std::string_view payload, uint32_t nranks) {
  const auto reply = decode<MeshReply>(payload, "reply");
  check_rank(reply.asker, nranks, "a reply");
  check_rank(reply.origin, nranks, "a reply");
  return reply;
}

namespace {
void fields(auto& wire, auto& frame) {
  wire(frame.what, frame.origin, frame.target, frame.way, frame.number, frame.bytes);
}
}  // namespace

std::string encode(const PairFrame& frame) {
  WireWriter writer;
  fields(writer, frame);
  return writer.take();
}

PairFrame decode_pair(std::string_view payload, uint32_t nranks) {
  WireReader reader(payload, "a pair message");
  PairFrame frame;
  fields(reader, frame);
  check_rank(frame.origin, nranks, "a pair message");
  check_rank(frame.target, nranks, "a pair message");
  const auto what = static_cast<uint32_t>(frame.what), way = static_cast<uint32_t>(frame.way);
  const uint64_t most = frame.what == PairFrame::What::message ? kMaxPairMessage : 0;
  if (what > 1 || way > 2 || frame.origin == frame.target || frame.bytes.size() > most)
    throw make_failure(TUTTI_MISMATCH, "an ill pair message: {} bytes of kind {} on way {} from rank {} to rank {}",
                       frame.bytes.size(), what, way, frame.origin, frame.target);
  return frame;
}

}  // namespace tutti::core
