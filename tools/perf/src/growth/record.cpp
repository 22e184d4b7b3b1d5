// SPDX-License-Identifier: Apache-2.0
#include "growth/record.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <tutti/sdk/text.hpp>
#include <vector>

#include "texts/texts.hpp"

namespace perf {
namespace {

double entries(const char* folder) {
  std::error_code unreadable;
  double n = 0;
  for (std::filesystem::directory_iterator entry(folder, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable))
    ++n;
  return n;
}

size_t bytes_for(uint32_t nranks) { return sizeof(JobRecord) + nranks * sizeof(RankRecord); }

// From the first rank's begin to the last rank's end.
double milliseconds_of(std::span<const RankRecord> ranks, Phase phase) {
  const auto at = static_cast<size_t>(phase);
  std::chrono::nanoseconds begin = ranks[0].begin[at], end = ranks[0].end[at];
  for (const RankRecord& rank : ranks) {
    begin = std::min(begin, rank.begin[at]);
    end = std::max(end, rank.end[at]);
  }
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// The sum over all ranks.
Resources total(std::span<const RankRecord> ranks, Moment moment) {
  Resources sum;
  for (const RankRecord& rank : ranks) {
    const Resources& one = rank.at[static_cast<size_t>(moment)];
    sum.memory_kib += one.memory_kib;
    sum.descriptors += one.descriptors;
    sum.threads += one.threads;
  }
  return sum;
}

}  // namespace

const char* phase_name(Phase phase) {
  constexpr const char* names[] = {"the creation of the communicator", "its first call", "its second call",
                                   "the first split", "further splits", "the first calls of parts",
                                   "the end of parts", "the end of the communicator"};
  static_assert(std::size(names) == phases);
  return names[static_cast<size_t>(phase)];
}

Resources resources_now() {
  Resources now;
  now.descriptors = entries("/proc/self/fd") - 1;  // the iterator's own
  now.threads = entries("/proc/self/task");
  now.memory_kib = number_behind("Pss:", "/proc/self/smaps_rollup");
  return now;
}

double number_behind(const char* word, const char* path) {
  const std::vector<std::string> words = texts::words_of(texts::content_of(path).value_or(""));
  const auto found = std::ranges::find(words, word);
  if (found == words.end() || found + 1 == words.end()) return 0;
  return static_cast<double>(tutti::whole_number(found[1], 0, UINT64_MAX).value_or(0));
}

JobRecord* JobRecord::make(uint32_t nranks) {
  void* memory = mmap(nullptr, bytes_for(nranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error(std::string("shared memory: ") + std::strerror(errno));
  auto* record = new (memory) JobRecord();
  record->nranks_ = nranks;
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&record->barrier_, &attributes, nranks);
  pthread_barrierattr_destroy(&attributes);
  return record;
}

// The barrier is not destroyed: that waits for ranks which may have been killed in it.
void JobRecord::release(JobRecord* record) { munmap(record, bytes_for(record->nranks_)); }

void JobRecord::fail(const std::string& error) {
  if (failed_.exchange(true)) return;
  error.copy(error_, sizeof error_ - 1);
}

GrowthCost cost_of(std::span<const RankRecord> ranks, uint32_t splits) {
  const auto ms = [&](Phase phase) { return milliseconds_of(ranks, phase); };
  const auto nranks = static_cast<double>(ranks.size());
  const double further = splits - 1;
  const Resources before = total(ranks, Moment::before), used = total(ranks, Moment::used),
                  family = total(ranks, Moment::family), parts = total(ranks, Moment::parts);
  GrowthCost cost;
  cost.create_ms = ms(Phase::create);
  cost.first_call_ms = ms(Phase::first_call);
  cost.next_call_us = ms(Phase::next_call) * 1e3;
  cost.split_ms = ms(Phase::split);
  cost.next_split_ms = ms(Phase::next_splits) / further;
  cost.part_first_call_ms = ms(Phase::part_first_calls) / further;
  cost.part_destroy_ms = ms(Phase::part_destroys) / splits;
  cost.destroy_ms = ms(Phase::destroy);
  cost.memory_kib = (used.memory_kib - before.memory_kib) / nranks;
  cost.descriptors = (used.descriptors - before.descriptors) / nranks;
  cost.threads = (used.threads - before.threads) / nranks;
  cost.family_descriptors = (family.descriptors - used.descriptors) / nranks;
  cost.part_memory_kib = (parts.memory_kib - family.memory_kib) / nranks / further;
  cost.part_descriptors = (parts.descriptors - family.descriptors) / nranks / further;
  cost.job_memory_kib = parts.memory_kib;
  for (const RankRecord& rank : ranks)
    for (const Resources& at : rank.at) cost.most_descriptors = std::max(cost.most_descriptors, at.descriptors);
  return cost;
}

}  // namespace perf
