// SPDX-License-Identifier: Apache-2.0
#include "matrix/area.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace tutti::conformance {
namespace {

constexpr uint64_t guard_bytes = 1024;  // a multiple of 64, on either side
constexpr uint64_t page = 4096;

char guard_byte(uint64_t at) { return static_cast<char>(0x5a ^ at * 29); }

char* map_and_register(uint64_t bytes) {
  const int file = memfd_create("tutti-conform", MFD_CLOEXEC);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const tutti_status status = memory == MAP_FAILED ? TUTTI_SYSTEM : tutti_mem_register(memory, bytes, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) throw std::runtime_error(fmt::format("cannot map a memfd of {} bytes", bytes));
  if (status < 0) {
    munmap(memory, bytes);
    throw std::runtime_error(fmt::format("tutti_mem_register of {} bytes: {}", bytes, tutti_status_text(status)));
  }
  return static_cast<char*>(memory);
}

uint64_t with_guards(uint64_t bytes, uint64_t offset) {
  return (guard_bytes + offset + bytes + guard_bytes + page - 1) / page * page;
}

}  // namespace

Area::Area(Memory kind, uint64_t bytes, uint64_t offset)
    : kind_(kind), bytes_(bytes), offset_(offset), whole_(with_guards(bytes, offset)) {
  if (kind == Memory::alloc) {
    void* memory = nullptr;
    if (const tutti_status status = tutti_mem_alloc(whole_, &memory); status < 0)
      throw std::runtime_error(fmt::format("tutti_mem_alloc of {} bytes: {}", whole_, tutti_status_text(status)));
    base_ = static_cast<char*>(memory);
  } else if (kind == Memory::memfd) {
    base_ = map_and_register(whole_);
  } else {
    base_ = static_cast<char*>(std::aligned_alloc(page, whole_));
    if (!base_) throw std::runtime_error(fmt::format("out of memory: {} bytes", whole_));
  }
  guard();
}

Area::Area(Seat& seat, uint64_t bytes, uint64_t offset)
    : kind_(Memory::device), bytes_(bytes), offset_(offset), whole_(with_guards(bytes, offset)), seat_(&seat) {
  copy_ = seat.borrow(whole_);
  base_ = copy_->host();
  on_device_ = static_cast<char*>(seat.allocate(whole_));
  guard();
}

void Area::guard() {
  data_ = base_ + guard_bytes + offset_;
  for (char* p = base_; p < data_; ++p) *p = guard_byte(static_cast<uint64_t>(p - base_));
  for (char* p = data_ + bytes_; p < base_ + whole_; ++p) *p = guard_byte(static_cast<uint64_t>(p - base_));
}

void Area::upload(uint32_t k) const {
  if (seat_) seat_->copy(k, on_device_, copy_->device(), whole_);
}

void Area::download(uint32_t k) const {
  if (seat_) seat_->copy(k, copy_->device(), on_device_, whole_);
}

Area::~Area() {
  switch (kind_) {
    case Memory::device:
      try {
        seat_->release(on_device_);
        seat_->give_back(std::move(copy_));
      } catch (const std::exception&) {  // the contract suite asks about release; here it must not hide a result
      }
      break;
    case Memory::alloc:
      tutti_mem_free(base_);
      break;
    case Memory::memfd:
      tutti_mem_deregister(base_);
      munmap(base_, whole_);
      break;
    default:
      std::free(base_);
  }
}

std::string Area::damage() const {
  for (const char* p = data_ - 1; p >= base_; --p)
    if (*p != guard_byte(static_cast<uint64_t>(p - base_)))
      return fmt::format("the byte {} before its begin was overwritten", data_ - p);
  for (const char* p = data_ + bytes_; p < base_ + whole_; ++p)
    if (*p != guard_byte(static_cast<uint64_t>(p - base_)))
      return fmt::format("the byte {} behind its end was overwritten", p - (data_ + bytes_) + 1);
  return {};
}

}  // namespace tutti::conformance
