// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/mesh_frames.hpp"

#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

uint32_t rank_in(WireReader& reader, uint32_t nranks, const char* what) {
  const uint32_t rank = reader.u32();
  if (rank >= nranks)
    throw Failure(TUTTI_MISMATCH,
                  std::string(what) + " names rank " + std::to_string(rank) + " of " + std::to_string(nranks));
  return rank;
}

}  // namespace

std::string encode(const MeshAddress& address) {
  WireWriter writer;
  writer.text(address.who).text(address.space).u32(address.process).text(address.token);
  writer.u32(static_cast<uint32_t>(address.addresses.size()));
  for (const SocketAddress& one : address.addresses) writer.u32(one.port()).text(one.bytes());
  return writer.take();
}

MeshAddress decode_address(std::string_view bytes) {
  WireReader reader(bytes, "control plane address");
  MeshAddress address;
  address.who = reader.text();
  address.space = reader.text();
  address.process = reader.u32();
  address.token = reader.text();
  const uint32_t n = reader.u32();
  if (n > kMaxMeshAddresses) throw Failure(TUTTI_MISMATCH, std::to_string(n) + " control plane addresses");
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

std::string encode(const MeshNotice& notice) {
  return WireWriter()
      .u32(notice.origin)
      .u64(notice.number)
      .u32(static_cast<uint32_t>(notice.kind))
      .raw(notice.bytes)
      .take();
}

MeshNotice decode_notice(std::string_view payload, uint32_t nranks) {
  WireReader reader(payload, "notice");
  MeshNotice notice;
  notice.origin = rank_in(reader, nranks, "a notice");
  notice.number = reader.u64();
  notice.kind = static_cast<NoticeKind>(reader.u32());
  notice.bytes = reader.rest();
  return notice;
}

uint64_t roll_call_number(std::string_view bytes) {
  WireReader reader(bytes, "roll call");
  const uint64_t number = reader.u64();
  reader.end();
  return number;
}

std::string encode(const MeshReply& reply) {
  return WireWriter().u32(reply.asker).u64(reply.number).u32(reply.origin).raw(reply.bytes).take();
}

MeshReply decode_reply(std::string_view payload, uint32_t nranks) {
  WireReader reader(payload, "reply");
  MeshReply reply;
  reply.asker = rank_in(reader, nranks, "a reply");
  reply.number = reader.u64();
  reply.origin = rank_in(reader, nranks, "a reply");
  reply.bytes = reader.rest();
  return reply;
}

}  // namespace tutti::core
