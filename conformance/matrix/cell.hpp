// SPDX-License-Identifier: Apache-2.0
//
// A cell of the matrix: the coordinates of one case, and its id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "matrix/mix.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance {

enum class InPlace { out, in, some };  // some: at odd ranks only
// some: tutti_mem_alloc at odd ranks, heap at even ones; device: of the cell's device; window: heap, or of the cell's
// device, and registered with the communicator
enum class Memory { heap, alloc, memfd, some, device, window };
enum class Alignment { aligned, odd, mixed };  // to 64 bytes; off by one element; in off by one, out aligned
enum class Calls { block, request, overlap };  // overlap: three operations at once, waited for in reverse

enum class RanksAs { processes, threads };

struct Cell {
  Operation operation;
  std::string algorithm;
  std::string mix;
  const ElementType* type = nullptr;
  uint32_t op = 0;
  InPlace place = InPlace::out;
  Memory memory = Memory::heap;
  Alignment alignment = Alignment::aligned;
  Calls calls = Calls::block;
  // The kind of memory; for devices also whether ranks are threads or processes, and the number of devices that they
  // use.
  std::string device = "host";
  RanksAs ranks_as = RanksAs::processes;
  uint32_t devices = 0;

  bool on_host() const { return device == "host"; }
  // The device of a rank: neighbours share one.
  uint32_t device_of(uint32_t rank) const { return static_cast<uint32_t>(uint64_t{rank} * devices / operation.nranks); }
  std::string id() const;
  // Ranks that share windows are all in place, or none is.
  bool is_legal() const {
    return (on_host() ? memory != Memory::device : memory == Memory::device || memory == Memory::window) &&
           !(memory == Memory::window && place == InPlace::some) && (may_be_in_place() || place == InPlace::out);
  }
  // all_to_all_v has no form in place.
  bool may_be_in_place() const { return operation.collective != TUTTI_ALL_TO_ALL_V; }
  bool in_place_at(uint32_t rank) const { return place == InPlace::in || (place == InPlace::some && rank % 2 == 1); }
  // Bytes of all buffers of all ranks, one operation.
  uint64_t bytes() const;
};

// nothing: the id is not of a cell, or names what there is not.
std::optional<Cell> cell_from(const std::string& id);

const char* name_of(InPlace place);
const char* name_of(Memory memory);
const char* name_of(Alignment alignment);
const char* name_of(Calls calls);
const char* name_of(RanksAs ranks_as);

}  // namespace tutti::conformance
