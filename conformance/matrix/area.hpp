// SPDX-License-Identifier: Apache-2.0
//
// A buffer for one call: memory of a chosen kind and alignment, between guard bytes. Device memory has a copy on the
// host, which the suite writes and reads; streams copy it to the device and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "matrix/cell.hpp"
#include "matrix/device.hpp"

namespace tutti::conformance {

class Area {
 public:
  // `offset` is the distance of the first byte from a multiple of 64. kind is heap, alloc or memfd. Throws
  // std::runtime_error.
  Area(Memory kind, uint64_t bytes, uint64_t offset);
  // Memory of the seat's device.
  Area(Seat& seat, uint64_t bytes, uint64_t offset);
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area();

  // The memory that the suite writes and reads.
  char* data() const { return data_; }
  // The memory that the library gets; on the host it is the same.
  char* address() const { return on_device_ ? on_device_ + (data_ - base_) : data_; }
  // The copy, guard bytes and all, to the device or back, in the seat's stream k; nothing for host memory.
  void upload(uint32_t k) const;
  void download(uint32_t k) const;
  uint64_t bytes() const { return bytes_; }
  // "" while all guard bytes are what they were; else where the first changed one lies.
  std::string damage() const;

 private:
  void guard();

  Memory kind_;
  char* base_ = nullptr;
  char* data_ = nullptr;
  uint64_t bytes_, offset_, whole_;
  Seat* seat_ = nullptr;
  std::unique_ptr<Staging> copy_;
  char* on_device_ = nullptr;
};

}  // namespace tutti::conformance
