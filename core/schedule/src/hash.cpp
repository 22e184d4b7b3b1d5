// SPDX-License-Identifier: Apache-2.0
#include <tutti/schedule.h>

namespace tutti {
namespace {

// FNV-1a over 64-bit words, with a final mix so that every bit counts.
class Digest {
 public:
  void add(uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3u + (value_ >> 47); }
  void add(const tutti_span& span) {
    add(uint64_t{span.buffer} << 32 | span.first);
    add(uint64_t{span.chunks} << 32 | span.reserved);
  }
  uint64_t value() const { return (value_ ^ value_ >> 32) * 0x9e3779b97f4a7c15u; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t schedule_hash(const Schedule& schedule) {
  Digest digest;
  digest.add(schedule.flags);
  digest.add(schedule.scratch_copies);
  digest.add(schedule.cuts.size());
  for (const tutti_cut& cut : schedule.cuts) digest.add(uint64_t{cut.p} << 32 | cut.q);
  digest.add(schedule.scratch.size());
  for (const tutti_extent& extent : schedule.scratch) digest.add(uint64_t{extent.block_class} << 32 | extent.piece);
  for (const auto& lane : schedule.lanes) {
    digest.add(lane.size());
    for (const Step& step : lane) {
      const tutti_step& op = step.op;
      digest.add(uint64_t{op.kind} << 32 | op.flags);
      digest.add(uint64_t{op.peer} << 32 | op.sources);
      digest.add(uint64_t{op.dependency_lane} << 32 | op.dependency_step);
      for (const uint64_t reserved : {uint64_t{op.level} << 32 | op.reserved0, op.reserved1[0], op.reserved1[1]})
        digest.add(reserved);
      digest.add(op.dst);
      digest.add(op.src);
      digest.add(step.sources.size());
      for (const tutti_span& source : step.sources) digest.add(source);
    }
  }
  return digest.value();
}

}  // namespace tutti
