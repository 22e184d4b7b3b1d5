// SPDX-License-Identifier: Apache-2.0
//
// Frames of the control plane, between ranks that only the secret authenticates: packets and addresses. A script of
// them is delivered to a rank; what it keeps stays within its bounds.
#include "base/wire.hpp"
#include "bootstrap/control_plane.hpp"
#include "fuzz_input.hpp"
#include "packet.hpp"

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
  // Returns after the packet has been delivered, where it is one.
  void take(std::string_view payload) {
    const Packet packet = decode_packet(payload, kRanks);
    FUZZ_CHECK(packet.origin < kRanks && packet.target < kRanks);
    FUZZ_CHECK(decode_packet(encode(packet), kRanks).number == packet.number);
    if (packet.route == Route::flood || packet.target == 1) deliver(packet);
    (void)send_pairs_again();
  }

 protected:
  void send(Packet packet) override {
    FUZZ_CHECK(packet.origin == 1 && packet.target < kRanks);
    FUZZ_CHECK(packet.kind != PacketKind::message || packet.bytes.size() <= kMaxPairMessage);
    FUZZ_CHECK(packet.kind != PacketKind::answer || packet.bytes.ends_with("here"));
    FUZZ_CHECK(packet.bytes.size() <= kMaxNotice);
    (void)decode_packet(encode(packet), kRanks);
  }
};

// A packet of any kind, most of its fields likely to be right.
std::string packet(FuzzInput& input) {
  const uint32_t kind = input.byte() % 20;
  WireWriter writer;
  writer.u32(kind).u32(input.byte() % 6).u32(input.byte() % 5).u32(input.flag() ? 1 : input.byte() % 5);
  writer.u64(input.byte() * uint64_t{input.byte()}).u64(input.byte());
  if (kind == static_cast<uint32_t>(PacketKind::loss)) {
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
    switch (input.byte() % 5) {
      case 0:
        refused_or_read([&] { plane.take(input.text()); });
        break;
      case 1:
        refused_or_read([&] { plane.take(packet(input)); });
        break;
      case 2:
        refused_or_read([&] {
          const MeshAddress address = decode_address(input.text());
          FUZZ_CHECK(address.addresses.size() <= kMaxMeshAddresses &&
                     decode_address(encode(address)).who == address.who);
        });
        break;
      case 3:
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
