// SPDX-License-Identifier: Apache-2.0
//
// A first-in first-out queue in one block of memory that grows when needed and never shrinks: no allocation once warm.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tutti::sdk {

template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return slots_[head_]; }
  T& operator[](size_t i) { return slots_[(head_ + i) & (slots_.size() - 1)]; }
  void push(T value) {
    if (size_ == slots_.size()) grow();
    slots_[(head_ + size_++) & (slots_.size() - 1)] = std::move(value);
  }
  T pop() {
    T value = std::move(slots_[head_]);
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
    return value;
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 4 : slots_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
  }
  std::vector<T> slots_;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace tutti::sdk
