// SPDX-License-Identifier: Apache-2.0
//
// Queue and Pool: for items with the fields `next` and `previous`, each of which is in one queue at most.
#pragma once

#include <deque>
#include <utility>

namespace tutti::core {

// First in, first out. Adding and removing need no memory.
template <typename T>
class Queue {
 public:
  bool empty() const { return !first_; }
  T* first() const { return first_; }
  // The first item that `wanted` holds for, or nullptr.
  template <typename Wanted>
  T* find(Wanted&& wanted) const {
    T* item = first_;
    while (item && !wanted(*item)) item = item->next;
    return item;
  }
  void push(T& item) {
    item.next = nullptr;
    item.previous = last_;
    (last_ ? last_->next : first_) = &item;
    last_ = &item;
  }
  void remove(T& item) {
    (item.previous ? item.previous->next : first_) = item.next;
    (item.next ? item.next->previous : last_) = item.previous;
    item.next = item.previous = nullptr;
  }
  T& pop() {
    T& item = *first_;
    remove(item);
    return item;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

// Items that are used again. There are as many as were ever in use at a time, and each keeps its address.
template <typename T>
class Pool {
 public:
  T& take() {
    if (!spare_) return items_.emplace_back();
    return *std::exchange(spare_, std::exchange(spare_->next, nullptr));
  }
  void give_back(T& item) { item.next = std::exchange(spare_, &item); }

 private:
  std::deque<T> items_;
  T* spare_ = nullptr;
};

}  // namespace tutti::core
