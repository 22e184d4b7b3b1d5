// SPDX-License-Identifier: Apache-2.0
//
// A buffer for one call: memory of a chosen kind and alignment, between guard bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "matrix/cell.hpp"

namespace tutti::conformance {

class Area {
 public:
  // `offset` is the distance of the first byte from a multiple of 64. kind is heap, alloc or memfd. Throws
  // std::runtime_error.
  Area(Memory kind, uint64_t bytes, uint64_t offset);
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area();

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // "" while all guard bytes are what they were; else where the first changed one lies.
  std::string damage() const;

 private:
  Memory kind_;
  char* base_ = nullptr;
  char* data_ = nullptr;
  uint64_t bytes_, whole_;
};

}  // namespace tutti::conformance
