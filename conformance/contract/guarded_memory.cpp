// SPDX-License-Identifier: Apache-2.0
#include "guarded_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "broken.hpp"
#include "last_words.hpp"

namespace tutti::conformance::contract {
namespace {
constexpr uint8_t canary = 0xC5;
size_t system_page() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

constexpr uint8_t undisturbed = 0xA9;  // what forbidden memory that stays writable is filled with
constexpr size_t most_kept = 16 << 20;
constexpr auto late_writes = std::chrono::milliseconds(4);

// Forbidden memory that stays writable, after the life of its object.
struct Kept {
  uint8_t* pages;
  size_t page_bytes;
  const uint8_t* data;
  size_t bytes;
  const char* clause;
  const char* text;

  // "" if nothing was written.
  std::string written() const {
    const uint8_t* at = std::find_if(pages, pages + page_bytes, [](uint8_t b) { return b != undisturbed; });
    if (at == pages + page_bytes) return {};
    const auto n = std::count_if(at, static_cast<const uint8_t*>(pages + page_bytes),
                                 [](uint8_t b) { return b != undisturbed; });
    return fmt::format(
        "{} was written: byte {} of its {} bytes is {:#04x} now, and {} others have changed. Nobody of this process "
        "needs to have done it: an adapter, a helper thread or another process may write late (a retransmission)",
        text, at - data, bytes, *at, n - 1);
  }
  void unmap() const { munmap(pages - system_page(), page_bytes + 2 * system_page()); }
};

struct Keeper {
  std::mutex mutex;
  std::deque<Kept> kept;
  size_t bytes = 0;
  std::optional<Broken> first;

  void drop_oldest() {
    const Kept& oldest = kept.front();
    if (const std::string text = oldest.written(); !text.empty() && !first) first.emplace(oldest.clause, text);
    oldest.unmap();
    bytes -= oldest.page_bytes;
    kept.pop_front();
  }
};
Keeper& keeper() {
  static auto* one = new Keeper();
  return *one;
}
}  // namespace

GuardedMemory::GuardedMemory(size_t bytes, size_t slack, const char* clause) : bytes_(bytes) {
  page_bytes_ = std::max<size_t>((bytes + slack + system_page() - 1) / system_page(), 1) * system_page();
  void* all =
      mmap(nullptr, page_bytes_ + 2 * system_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<uint8_t*>(all) + system_page();
  data_ = pages_ + page_bytes_ - slack - bytes;
  std::memset(pages_, canary, page_bytes_);
  std::memset(data_, fresh, bytes);
  mprotect(pages_ - system_page(), system_page(), PROT_NONE);
  mprotect(pages_ + page_bytes_, system_page(), PROT_NONE);
  guards_[0] =
      watch_memory(pages_ - system_page(), system_page(), data_, bytes_, clause, "memory that the suite passed");
  guards_[1] = watch_memory(pages_ + page_bytes_, system_page(), data_, bytes_, clause, "memory that the suite passed");
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)),
      page_bytes_(other.page_bytes_),
      data_(other.data_),
      bytes_(other.bytes_),
      guards_{other.guards_[0], other.guards_[1]},
      watch_(other.watch_),
      kept_clause_(other.kept_clause_),
      kept_text_(other.kept_text_) {}

GuardedMemory::~GuardedMemory() {
  if (!pages_) return;
  for (const int guard : guards_) forget_memory(guard);
  if (watch_ >= 0) forget_memory(watch_);
  const Kept kept{pages_, page_bytes_, data_, bytes_, kept_clause_, kept_text_};
  if (!kept_clause_) {
    kept.unmap();
    return;
  }
  Keeper& all = keeper();
  const std::lock_guard lock(all.mutex);
  all.kept.push_back(kept);
  for (all.bytes += page_bytes_; all.bytes > most_kept;) all.drop_oldest();
}

void require_untouched() {
  Keeper& all = keeper();
  {
    const std::lock_guard lock(all.mutex);
    if (all.kept.empty() && !all.first) return;
  }
  std::this_thread::sleep_for(late_writes);
  drop_kept_memory();
  const std::lock_guard lock(all.mutex);
  if (all.first) throw *all.first;
}

void drop_kept_memory() {
  Keeper& all = keeper();
  const std::lock_guard lock(all.mutex);
  while (!all.kept.empty()) all.drop_oldest();
}

void GuardedMemory::check_surroundings() const {
  for (const uint8_t* p = pages_; p < pages_ + page_bytes_; ++p) {
    if (p == data_) p += bytes_;
    if (p == pages_ + page_bytes_) break;
    if (*p != canary)
      broken("T-16", "the byte {} bytes {} a transfer's memory of {} bytes was written ({:#04x})",
             p < data_ ? data_ - p : p - data_ - static_cast<ptrdiff_t>(bytes_) + 1, p < data_ ? "before" : "behind",
             bytes_, *p);
  }
}

void GuardedMemory::forbid(const char* clause, const char* text) {
  if (watch_ >= 0) forget_memory(std::exchange(watch_, -1));
  static std::atomic<uint32_t> turn{0};
  if (clause[0] == 'T' && page_bytes_ <= most_kept / 16 && turn++ % 2) {
    allow();
    std::memset(pages_, undisturbed, page_bytes_);
    kept_clause_ = clause, kept_text_ = text;
    return;
  }
  watch_ = watch_memory(pages_, page_bytes_, data_, bytes_, clause, text);
  mprotect(pages_, page_bytes_, PROT_NONE);
}

void GuardedMemory::forbid_writing() {
  if (watch_ >= 0) forget_memory(watch_);
  watch_ = watch_memory(pages_, page_bytes_, data_, bytes_, "T-16", "the memory of a pending SEND");
  mprotect(pages_, page_bytes_, PROT_READ);
}

void GuardedMemory::allow() {
  if (watch_ >= 0) forget_memory(std::exchange(watch_, -1));
  kept_clause_ = nullptr;
  mprotect(pages_, page_bytes_, PROT_READ | PROT_WRITE);
}

std::string first_difference(const uint8_t* expected, const uint8_t* got, size_t bytes) {
  const size_t at = static_cast<size_t>(std::mismatch(expected, expected + bytes, got).first - expected);
  if (at == bytes) return {};
  size_t wrong = 0;
  for (size_t i = at; i < bytes; ++i) wrong += expected[i] != got[i];
  const size_t shown = std::min<size_t>(8, bytes - at);
  std::string text = fmt::format("first wrong byte {} of {} ({} wrong): expected", at, bytes, wrong);
  for (size_t i = at; i < at + shown; ++i) text += fmt::format(" {:02x}", expected[i]);
  text += ", got";
  for (size_t i = at; i < at + shown; ++i) text += fmt::format(" {:02x}", got[i]);
  const auto undisturbed = [&](size_t i) { return expected[i] == got[i] || got[i] == GuardedMemory::fresh; };
  size_t i = at;
  while (i < bytes && undisturbed(i)) ++i;
  if (i == bytes)
    text += fmt::format("; {:02x} is what the suite had filled the memory with: nothing was written there",
                        GuardedMemory::fresh);
  return text;
}

}  // namespace tutti::conformance::contract
