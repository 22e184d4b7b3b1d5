// SPDX-License-Identifier: Apache-2.0
//
// One collective on its way: Tutti's request, the memory that stands in for the program's where that is not contiguous,
// and what is left to do on this rank when the request is complete.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "communicator.hpp"
#include "datatypes.hpp"
#include "tally.hpp"

namespace tutti::mpi {

// The blocks of a buffer, one for each rank, in bytes.
struct Blocks {
  std::byte* base = nullptr;
  std::vector<uint64_t> counts, displacements;
};

// The user's description of blocks, as the v-forms have it: entry b is of rank b.
struct Shape {
  std::vector<uint64_t> counts;
  std::vector<int64_t> displacements;  // in bytes
  std::vector<Layout> layouts;         // one for each block, or one for all
  const Layout& layout(size_t block) const { return layouts[layouts.size() == 1 ? 0 : block]; }
};

// A reduction that this rank carries out itself when it has all contributions, in the order of ranks.
struct LocalReduction {
  const std::byte* parts;  // of rank 0, 1 ... one after another, packed
  uint64_t n, count;
  Layout layout;
  MPI_Op op;
  void* out;
};

// Lets messages under way make progress, without waiting.
void advance_mpi();
// Tutti's waits in this thread let them, from now on: other ranks may wait for this rank's messages.
void advance_mpi_in_waits();

class Call {
 public:
  Call(Communicator& communicator, Function function) : communicator_(communicator), function_(function) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Communicator& communicator() const { return communicator_; }
  Function function() const { return function_; }
  size_t rank() const { return static_cast<size_t>(communicator_.rank()); }
  size_t ranks() const { return static_cast<size_t>(communicator_.size()); }
  tutti_comm* comm() const { return communicator_.tutti(); }
  bool is_blocking() const { return function_ < Function::i_barrier; }

  // ---- Before it starts.

  // For the message about a call that falls through.
  void names(const std::string& what) { subject_ += ", " + what; }
  // Packs into memory of the call; finish() reports an error.
  void pack_into(std::byte* to, const void* from, uint64_t count, const Layout& layout);
  const std::string& subject() const { return subject_; }
  // Memory that lives until the call has ended.
  std::byte* memory(uint64_t bytes);
  // The elements' bytes, without gaps: the buffer itself where it has none.
  std::byte* input(const void* buffer, uint64_t count, const Layout& layout);
  // Where the elements' bytes are to go: the buffer itself, or memory from which finish() unpacks them.
  std::byte* output(void* buffer, uint64_t count, const Layout& layout);
  Blocks input_blocks(const void* buffer, const Shape& shape);
  Blocks packed_copy(const void* buffer, const Shape& shape);
  Blocks output_blocks(void* buffer, const Shape& shape);
  void reduces_locally(const LocalReduction& reduction);
  void uses(Operator* op) { operator_ = op; }

  // ---- Tutti's call.

  // nullptr: Tutti's call blocks.
  tutti_request** request() { return is_blocking() ? nullptr : &request_; }
  Verdict has_started(tutti_status status);
  // TUTTI_AGAIN: not yet.
  tutti_status test();
  void wait_for(uint64_t timeout_ns);
  // After its end: MPI_SUCCESS, or the code of an error that has been raised.
  int finish();

 private:
  struct Unpacking {
    const std::byte* from;
    void* to;
    uint64_t count;
    Layout layout;
  };
  int unpack_all();
  int reduce();
  Layout kept(const Layout& layout);

  Communicator& communicator_;
  Function function_;
  std::string subject_;
  tutti_request* request_ = nullptr;
  tutti_status status_ = TUTTI_AGAIN;
  int code_ = MPI_SUCCESS;  // of packing
  Operator* operator_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<Unpacking> unpackings_;
  std::optional<LocalReduction> reduction_;
  std::vector<MPI_Datatype> kept_;  // the program may free its own meanwhile
};

}  // namespace tutti::mpi
