// SPDX-License-Identifier: Apache-2.0
#include "agreement.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace tutti::gradients {
namespace {

// The numbers that the ranks compare. `fault` is the exception: 1 where the arguments are wrong.
enum Compared : size_t {
  fault,
  tensors,
  bytes,
  sizes,
  first_bucket_bytes,
  bucket_bytes,
  wire,
  op,
  feedback,
  device,
  declared_order,
  order,
  algorithms,
  fields
};
constexpr std::array<const char*, fields> names{"fault",
                                                "number of tensors",
                                                "number of bytes",
                                                "checksum of the tensors' sizes and types",
                                                "first_bucket_bytes",
                                                "bucket_bytes",
                                                "wire",
                                                "op",
                                                "flag TUTTI_GRADIENTS_FEEDBACK",
                                                "flag TUTTI_GRADIENTS_DEVICE",
                                                "flag TUTTI_GRADIENTS_DECLARED_ORDER",
                                                "order",
                                                "checksum of algorithms"};
using Fields = std::array<uint64_t, fields>;

class Checksum {  // FNV-1a
 public:
  void add(uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) sum_ = (sum_ ^ ((word >> shift) & 0xff)) * 0x100000001b3u;
  }
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0xcbf29ce484222325u;
};

Fields fields_of(const Declaration& declaration) {
  Fields made{};
  Checksum checksum;
  for (const Tensor& tensor : declaration.tensors) {
    made[bytes] += tensor.bytes();
    checksum.add(tensor.count);
    checksum.add(tensor.dtype);
  }
  const auto flag = [&](uint32_t one) { return uint64_t{(declaration.flags & one) != 0}; };
  made[tensors] = declaration.tensors.size();
  made[sizes] = checksum.sum();
  made[first_bucket_bytes] = declaration.first_bucket_bytes;
  made[bucket_bytes] = declaration.bucket_bytes;
  made[wire] = declaration.wire;
  made[op] = declaration.op;
  made[feedback] = flag(TUTTI_GRADIENTS_FEEDBACK);
  made[device] = flag(TUTTI_GRADIENTS_DEVICE);
  made[declared_order] = flag(TUTTI_GRADIENTS_DECLARED_ORDER);
  made[order] = declaration.order;
  if (declaration.algorithms) {
    Checksum text;
    for (const char letter : *declaration.algorithms) text.add(static_cast<unsigned char>(letter));
    made[algorithms] = text.sum();
  }
  return made;
}

// Collective, where all declare as many tensors and rank `other` has others than rank 0: the first that differs.
std::string difference(const Communicator& comm, const Declaration& mine, uint32_t other) {
  std::vector<uint64_t> table;
  for (const Tensor& tensor : mine.tensors) table.insert(table.end(), {tensor.count, tensor.dtype});
  std::vector<uint64_t> first = table, second = table;
  comm.broadcast(first, 0);
  comm.broadcast(second, other);
  const auto [a, b] = std::ranges::mismatch(first, second);
  const auto at = static_cast<size_t>(a - first.begin()) / 2;
  if (at == mine.tensors.size()) return "";
  const auto text = [&](const std::vector<uint64_t>& of) {
    return fmt::format("{} of {}", of[2 * at], dtype_name(static_cast<uint32_t>(of[2 * at + 1])));
  };
  return fmt::format("; tensor {} has {} on rank 0 and {} on rank {}", mine.tensors[at].name, text(first), text(second),
                     other);
}

}  // namespace

void require_agreement(const Communicator& comm, const Declaration* mine) {
  Fields own{1};
  if (mine) own = fields_of(*mine);
  std::vector<uint64_t> all(fields * comm.nranks());
  comm.all_gather<uint64_t>(own, all);
  const auto of = [&](uint32_t rank, size_t field) { return all[rank * fields + field]; };
  for (uint32_t rank = 0; rank < comm.nranks(); ++rank)
    if (of(rank, fault) != 0)
      throw Error(TUTTI_INVALID_ARGUMENT,
                  fmt::format("rank {} passed a wrong argument; its own error says which", rank));
  for (size_t field = fault + 1; field < fields; ++field)
    for (uint32_t rank = 1; rank < comm.nranks(); ++rank)
      if (of(rank, field) != of(0, field))
        throw Error(TUTTI_MISMATCH, fmt::format("the ranks disagree: {} is {} on rank 0 and {} on rank {}{}",
                                                names[field], of(0, field), of(rank, field), rank,
                                                field == bytes || field == sizes ? difference(comm, *mine, rank) : ""));
}

}  // namespace tutti::gradients
