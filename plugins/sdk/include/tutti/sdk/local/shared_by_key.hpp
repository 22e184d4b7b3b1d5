// SPDX-License-Identifier: Apache-2.0
//
// Objects of which a process has one for each key, for as long as anybody holds it. Finding, making and dropping one
// cost the logarithm of how many there are: a process of many ranks makes thousands of links at once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

// Any thread. An object of this type must live as long as what it hands out.
template <typename Key, typename T>
class SharedByKey {
 public:
  // The object with this key that `fits`, or what `make` gives as a unique_ptr. Throws what `make` throws.
  template <typename Fits, typename Make>
  std::shared_ptr<T> get(const Key& key, Fits&& fits, Make&& make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<T> known;
    if (const auto found = entries_.find(key); found != entries_.end()) known = found->second.lock();
    if (known && fits(*known)) return known;
    std::shared_ptr<T> made(make().release(), [this, key](T* object) {
      delete object;
      forget(key);
    });
    entries_[key] = made;
    return made;
  }

  // How many there are.
  size_t size() {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  // The entry may be a younger object's by now.
  void forget(const Key& key) {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end() && found->second.expired())
      entries_.erase(found);
  }

  std::recursive_mutex mutex_;  // an object may be dropped inside get
  std::map<Key, std::weak_ptr<T>> entries_;
};

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
