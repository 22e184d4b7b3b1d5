// SPDX-License-Identifier: Apache-2.0
//
// Mutants of meeting/1 and rma/1, over the toys. faults.cpp describes each.
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rma.h>

#include <atomic>
#include <vector>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

bool is(const char* name) { return fault() == name; }

// The table of the toy `plugin`; nullptr where the mutants are over another one.
template <typename Table>
const Table* toy(const std::string& over, const char* plugin, const char* id) {
  return over == plugin ? static_cast<const Table*>(sdk::host->find_interface(sdk::host->self, plugin, id)) : nullptr;
}

const tutti_meeting* inner_meeting;
tutti_meeting meeting;
std::atomic<uint32_t> last_ranks{1};

tutti_status open_meeting(void*, const tutti_meeting_config* config, tutti_room** room, uint32_t* rank,
                          uint32_t* nranks) {
  tutti_meeting_config changed = *config;
  if (is("all-places-are-one")) changed.place = "one", reached();
  const tutti_status status = inner_meeting->open(inner_meeting->self, &changed, room, rank, nranks);
  if (status == TUTTI_OK) last_ranks = *nranks;
  if (is("ranks-as-they-come") && status == TUTTI_OK) *rank = (*rank + 1) % *nranks, reached();
  return status;
}

// Gathers the numbers of bytes, then as many as the most of them.
tutti_status gather_any_sizes(tutti_room* room, const void* mine, uint64_t bytes, void* all) {
  std::vector<uint64_t> sizes(last_ranks);
  tutti_status status = inner_meeting->all_gather(room, &bytes, sizeof bytes, sizes.data());
  if (status != TUTTI_OK) return status;
  const auto [least, most] = std::ranges::minmax(sizes);
  if (least != most) reached();
  std::vector<char> own(most), theirs(most * sizes.size());
  std::memcpy(own.data(), mine, bytes);
  status = inner_meeting->all_gather(room, own.data(), most, theirs.data());
  for (size_t r = 0; r < sizes.size(); ++r) std::memcpy(static_cast<char*>(all) + r * bytes, &theirs[r * most], bytes);
  return status;
}

tutti_status gather(tutti_room* room, const void* mine, uint64_t bytes, void* all) {
  if (is("gathers-256-bytes") && bytes > 256) {
    std::vector<char> some(256 * last_ranks);
    const tutti_status status = inner_meeting->all_gather(room, mine, 256, some.data());
    for (uint32_t r = 0; r < last_ranks; ++r) std::memcpy(static_cast<char*>(all) + r * bytes, &some[r * 256], 256);
    return reached(), status;
  }
  if (is("takes-any-size")) return gather_any_sizes(room, mine, bytes, all);
  const tutti_status status = inner_meeting->all_gather(room, mine, bytes, all);
  if (is("timeout-is-a-system-error") && status == TUTTI_TIMEOUT)
    return reached(), sdk::report(TUTTI_SYSTEM, "mutant: nobody comes");
  if (is("abort-is-a-timeout") && status == TUTTI_ABORTED)
    return reached(), sdk::report(TUTTI_TIMEOUT, "mutant: nobody comes any more");
  return status;
}

const tutti_rma* inner_rma;
tutti_rma rma;

tutti_status put(tutti_remote* remote, uint64_t offset, const void* from, uint64_t bytes, uint64_t cookie) {
  if (is("puts-whole-words") && bytes % 8) {
    reached();
    std::vector<char> more((bytes + 7) / 8 * 8);
    std::memcpy(more.data(), from, bytes);
    const tutti_status status = inner_rma->put(remote, offset, more.data(), more.size(), cookie);
    if (status == TUTTI_OK) return status;
  }
  if (is("offsets-of-32-bits") && offset > UINT32_MAX) offset &= 0xff, bytes = 0, reached();
  const tutti_status status = inner_rma->put(remote, offset, from, bytes, cookie);
  if (is("forgets-abort") && status == TUTTI_ABORTED) return reached(), TUTTI_OK;
  return status;
}

tutti_status signal(tutti_remote* remote, uint64_t value) {
  if (is("signals-of-32-bits") && value > UINT32_MAX) value &= UINT32_MAX, reached();
  return inner_rma->signal(remote, value);
}

tutti_status import_region(tutti_space* space, uint32_t peer, const void* key, uint64_t bytes, tutti_remote** remote) {
  if (is("trusts-long-keys") && bytes == 9) bytes = 8, reached();
  return inner_rma->import_region(space, peer, key, bytes, remote);
}

tutti_status rma_progress(tutti_space* space, tutti_rma_completion* completions, uint32_t capacity, uint32_t* n) {
  if (!is("drops-beyond-capacity")) return inner_rma->progress(space, completions, capacity, n);
  std::vector<tutti_rma_completion> all(64);
  const tutti_status status = inner_rma->progress(space, all.data(), 64, n);
  if (*n > capacity) *n = capacity, reached();
  std::copy_n(all.begin(), *n, completions);
  return status;
}

}  // namespace

tutti_status init_draft_mutants(const std::string& over) {
  inner_meeting = toy<tutti_meeting>(over, "toy-meeting", TUTTI_MEETING_ID);
  inner_rma = toy<tutti_rma>(over, "toy-rma", TUTTI_RMA_ID);
  if (!inner_meeting && !inner_rma)
    return sdk::report(TUTTI_NOT_FOUND,
                       ("mutants: " + over + " is not found, or is no toy of meeting/1 or rma/1").c_str());
  if (inner_meeting) {
    meeting = *inner_meeting;
    meeting.name = "mutant", meeting.summary = "a deliberately broken meeting, for the suite's own test";
    meeting.open = open_meeting, meeting.all_gather = gather;
  }
  if (inner_rma) {
    rma = *inner_rma;
    rma.name = "mutant", rma.summary = "a deliberately broken rma, for the suite's own test";
    rma.put = put, rma.signal = signal, rma.import_region = import_region, rma.progress = rma_progress;
  }
  return TUTTI_OK;
}

const void* draft_mutant(const char* id) {
  if (inner_meeting && std::strcmp(id, TUTTI_MEETING_ID) == 0) return &meeting;
  return inner_rma && std::strcmp(id, TUTTI_RMA_ID) == 0 ? &rma : nullptr;
}

}  // namespace tutti::mutants
