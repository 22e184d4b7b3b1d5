// SPDX-License-Identifier: Apache-2.0
//
// Frames of the control plane, between ranks that only the secret authenticates: notices, replies, addresses. A script
// of them is delivered to a rank; what it keeps stays within its bounds.
#include "bootstrap/control_plane.hpp"
#include "fuzz_input.hpp"
#include "mesh_frames.hpp"
#include "wire.hpp"

using namespace tutti::core;

namespace {

constexpr uint32_t kRanks = 4;

template <typename Body>
void refused_or_read(Body body) {
  try {
    body();
  } catch (const Failure& failure) {
    FUZZ_CHECK(failure.status < 0 && !failure.text.empty());
  }
}

class Plane final : public ControlPlane {
 public:
  Plane() : ControlPlane(1, kRanks) {
    answer_roll_calls([] { return std::string("here"); });
  }
  void take(std::string_view payload) {
    const MeshNotice notice = decode_notice(payload, kRanks);
    FUZZ_CHECK(notice.origin < kRanks && decode_notice(encode(notice), kRanks).number == notice.number);
    deliver(notice.origin, notice.kind, notice.bytes);
  }
  void take_reply(std::string_view payload) {
    const MeshReply reply = decode_reply(payload, kRanks);
    FUZZ_CHECK(reply.asker < kRanks && reply.origin < kRanks);
    deliver_reply(reply.origin, reply.number, reply.bytes);
  }
  void take_part(uint32_t origin, std::string_view payload) {
    const MeshPart part = decode<MeshPart>(payload, "part");
    FUZZ_CHECK(decode<MeshPart>(encode(part), "part").round == part.round);
    deliver_part(origin, part.gather, part.round, part.bytes);
  }
  void take_pair(std::string_view payload) {
    const PairFrame frame = decode_pair(payload, kRanks);
    FUZZ_CHECK(frame.origin != frame.target && decode_pair(encode(frame), kRanks).number == frame.number);
    if (frame.target == 1) deliver_pair(frame);
    (void)send_pairs_again();
  }

 protected:
  void spread(NoticeKind, std::string_view bytes) override { FUZZ_CHECK(bytes.size() <= kMaxNotice); }
  void reply(uint32_t asker, uint64_t, std::string_view bytes) override {
    FUZZ_CHECK(asker < kRanks && bytes.ends_with("here"));
  }
  void pass(uint32_t, uint64_t, uint32_t, std::string_view) override {}
  void carry(const PairFrame& frame) override {
    FUZZ_CHECK(frame.origin == 1 && frame.target < kRanks && frame.bytes.size() <= kMaxPairMessage);
  }
};

std::string pair(FuzzInput& input) {
  return WireWriter()
      .u32(input.byte() % 3)
      .u32(input.byte() % 5)
      .u32(input.flag() ? 1 : input.byte() % 5)
      .u32(input.byte() % 4)
      .u64(input.byte() * uint64_t{input.byte()})
      .raw(input.text())
      .take();
}

std::string notice(FuzzInput& input) {
  WireWriter writer;
  const uint32_t origin = input.byte() % 6, kind = input.byte() % 20;
  writer.u32(origin).u64(input.byte()).u32(kind);
  if (kind == static_cast<uint32_t>(NoticeKind::loss)) {
    writer.u64(input.byte()).u32(input.byte() % 6).u32(static_cast<uint32_t>(-static_cast<int32_t>(input.byte() % 16)));
    writer.u32(input.byte() % 2).text(input.text()).u64(input.byte()).u32(input.byte() % 2);
  } else {
    writer.raw(input.text());
  }
  return writer.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  Plane plane;
  for (int steps = 0; !input.empty() && steps < 64; ++steps) {
    switch (input.byte() % 9) {
      case 0:
        refused_or_read([&] { plane.take(input.text()); });
        break;
      case 1:
        refused_or_read([&] { plane.take(notice(input)); });
        break;
      case 2:
        refused_or_read([&] { plane.take_reply(input.text()); });
        break;
      case 3:
        refused_or_read([&] {
          const MeshAddress address = decode_address(input.text());
          FUZZ_CHECK(address.addresses.size() <= kMaxMeshAddresses &&
                     decode_address(encode(address)).who == address.who);
        });
        break;
      case 4:
        refused_or_read([&] { plane.take_part(input.byte() % kRanks, input.text()); });
        break;
      case 5:
        refused_or_read([&] { plane.take_pair(input.text()); });
        break;
      case 6:
        refused_or_read([&] { plane.take_pair(pair(input)); });
        break;
      case 7:
        refused_or_read([&] { plane.send_pair(input.byte() % 6, input.text()); });
        for (const PairMessage& message : plane.take_pair_messages())
          FUZZ_CHECK(message.from < kRanks && message.from != 1 && message.bytes.size() <= kMaxPairMessage);
        FUZZ_CHECK(!plane.has_pair_messages());
        break;
      default:
        plane.announce(input.byte() % kRanks, TUTTI_TIMEOUT, input.text());
    }
  }
  for (const NoticeKind kind : {NoticeKind::membership, NoticeKind::calls})
    FUZZ_CHECK(plane.take_notices(kind).size() <= kMaxNoticesKept);
  FUZZ_CHECK(plane.take_pair_messages().size() <= (kRanks - 1) * kMaxPairsUntaken);
  const auto cause = plane.first_cause();
  FUZZ_CHECK(cause.has_value() == plane.failed());
  FUZZ_CHECK(!cause || (cause->rank < kRanks && cause->status < 0));
  FUZZ_CHECK(plane.losses().size() <= kRanks);
  return 0;
}
