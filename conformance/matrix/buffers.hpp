// SPDX-License-Identifier: Apache-2.0
//
// The buffers of one operation at one rank: filled with exact data, handed to the library, and judged afterwards.
#pragma once

#include <tutti/tutti.h>

#include <functional>
#include <optional>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "matrix/area.hpp"
#include "matrix/cell.hpp"
#include "oracle/blocks.hpp"

namespace tutti::conformance {

class Buffers {
 public:
  // `seat`: of cells on a device. `stream` is the one of its streams that the operation is put into.
  Buffers(const Cell& cell, uint32_t rank, const Data& data, Seat* seat, uint32_t stream);

  // The call's arguments.
  const void* in() const { return in_at(&Area::address); }
  void* out() const { return out_at(&Area::address); }
  void* stream() const { return seat_ ? seat_->stream(stream_) : nullptr; }

  // For cells of window memory: registers the buffers that decide whether a call uses windows, which all ranks have.
  // Collective, as is the end of the buffers then. Throws tutti::Error.
  void register_with(const Communicator& comm);

  // On a device what the call finds is put there by its own stream just before it, and what it leaves is fetched just
  // behind it: whoever works in another stream, or too early, or late, is found out.
  void upload() const;
  void download() const;
  void finish() const;

  // "" when all is right; otherwise what is wrong. `origin`, when given, says where output element i comes from.
  using Origin = std::function<std::string(uint64_t i)>;
  std::string judge(const Origin& origin = {}) const;

 private:
  using At = char* (Area::*)() const;
  char* in_at(At at) const;
  char* out_at(At at) const;
  // The suite's own view of them.
  char* in_bytes() const { return in_at(&Area::data); }
  char* out_bytes() const { return out_at(&Area::data); }
  uint64_t block_offset() const { return own_begin(cell_.operation, rank_) * cell_.type->bytes; }
  uint64_t expected(uint64_t i) const;
  void fill();
  std::string judge_output(const Origin& origin) const;
  std::string looks_like(uint64_t first, uint64_t got, uint64_t right) const;
  std::string judge_input() const;

  const Cell& cell_;  // outlives the buffers
  uint32_t rank_;
  Data data_;
  Seat* seat_;
  uint32_t stream_;
  uint64_t in_elements_, out_elements_;
  bool in_place_;
  std::optional<Area> in_, out_;
  std::vector<Window> windows_;  // of memory of the areas
  std::vector<char> kept_;
};

// The cell's collective on these buffers, with the communicator's number of the cell's operator. request as in tutti.h.
tutti_status call(const Cell& cell, uint32_t op, tutti_comm* comm, const Buffers& buffers, tutti_request** request);

}  // namespace tutti::conformance
