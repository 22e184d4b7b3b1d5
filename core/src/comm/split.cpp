// SPDX-License-Identifier: Apache-2.0
#include "comm/split.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.hpp"
#include "comm/communicator.hpp"
#include "comm/progress.hpp"

namespace tutti::core {
namespace {

constexpr int32_t not_known = -1;
// The time in which a rank that has come to the deadline tells the others what it could not do.
constexpr uint64_t last_word_ns = 1'000'000'000;

// The rest of a call's time.
Deadline rest_of(const Patience& patience, const Configuration& configuration) {
  Deadline deadline(std::chrono::nanoseconds(patience.limit_ns()),
                    configuration.timeout.source_of(patience.limit_ns()));
  deadline.expire_in(std::chrono::nanoseconds(std::min<uint64_t>(patience.left_ns(), INT64_MAX)));
  return deadline;
}

// A rank's word in the first gather.
struct SplitWord {
  SplitCall call;
  tutti_status status = TUTTI_OK;
  std::string error;  // why the call is wrong on this rank
  std::string place;  // rank 0: where the trunk meets; "": there is one

  static void fields(auto& wire, auto& word) {
    wire(word.call.by, word.call.color, word.call.key, Field("status", word.status, TUTTI_INTERNAL, TUTTI_OK),
         word.error, word.place, word.call.name);
  }
};

// A rank's word in the second one.
struct Verdict {
  tutti_status status = TUTTI_OK;
  std::string error;  // why it has not made its part

  static void fields(auto& wire, auto& verdict) {
    wire(Field("status", verdict.status, TUTTI_INTERNAL, TUTTI_OK), verdict.error);
  }
};

// Throws Failure where a rank's call is wrong, or where two do not go together; the same on all ranks.
void require_alike(const std::vector<SplitWord>& all) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].status < 0) throw Failure(all[r].status, fmt::format("tutti_comm_split: rank {}: {}", r, all[r].error));
    if (all[r].call.by > TUTTI_SPLIT_BY_DEVICE)
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("tutti_comm_split: rank {} splits by {}, and finds nothing wrong with it: "
                                "do all ranks run the same version of Tutti, {}?",
                                r, all[r].call.by, tutti_version()));
  }
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r].call.by != all[0].call.by)
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("tutti_comm_split: rank 0 splits by {}, rank {} by {}: expected the same "
                                "on all ranks (TUTTI_SPLIT_BY_*)",
                                all[0].call.by, r, all[r].call.by));
}

// The members of the part of `rank`, in their order; empty: it is in none. `label`: the part, for its name.
std::vector<uint32_t> members_of(const std::vector<SplitWord>& all, const Topology& topology, uint32_t rank,
                                 std::string* label) {
  const std::string group = all[rank].call.group(topology, rank, label);
  std::vector<uint32_t> members;
  if (group.empty()) return members;
  for (uint32_t r = 0; r < all.size(); ++r) {
    std::string unused;
    if (all[r].call.group(topology, r, &unused) == group) members.push_back(r);
  }
  std::ranges::stable_sort(members, {}, [&](uint32_t r) { return all[r].call.key; });
  return members;
}

// Throws Failure.
void require_one_name(const std::vector<SplitWord>& all, const std::vector<uint32_t>& members) {
  for (const uint32_t r : members)
    if (const std::string& first = all[members[0]].call.name, &other = all[r].call.name; first != other)
      throw Failure(TUTTI_MISMATCH, fmt::format("rank {} calls it \"{}\", rank {} \"{}\": expected one name",
                                                members[0], first, r, other));
}

// All ranks of this communicator meet once more, for all that are split from it. `place`: rank 0's word.
void grow_trunk(ProgressEngine& engine, const std::string& place, const Patience& patience, Family& family) {
  const Foundation& base = engine.base;
  if (place.empty()) throw Failure(TUTTI_MISMATCH, "rank 0 names no place to meet, though the ranks have no trunk");
  Configuration meeting = base.configuration;
  meeting.all_gather = nullptr;
  meeting.joins = false;
  meeting.rendezvous = place;
  const auto hopeless = [&engine] {
    if (const auto reported = engine.breakdown.reported())
      return fmt::format("rank {} {}", engine.base.rank(), reported->reason);
    if (const auto cause = engine.base.control().first_cause()) return cause->text();
    // It would be here before it goes on.
    return std::string(engine.base.control().is_awaited() ? "another rank has given up" : "");
  };
  Deadline deadline = rest_of(patience, base.configuration);
  for (uint32_t r = 0; r < base.nranks(); ++r) family.ranks.push_back(r);
  const EngineLock::Opening open(engine.lock);
  const BackgroundProgress meanwhile;
  family.trunk = Trunk::grow(meet(meeting, {0, hopeless}, deadline), deadline);
}

// Of these ranks, in their order; this one is among them.
std::unique_ptr<Communicator> make_part(const Foundation& base, const Family& family,
                                        const std::vector<uint32_t>& members, const std::string& name) {
  // Only the first member may fail inside the braces: gcc 12 releases earlier ones twice.
  SplitPart part{base.configuration, nullptr, {}, {}, 0};
  part.family.trunk = family.trunk;
  part.family.key = family.key;
  part.members = members;
  for (const uint32_t member : members) part.family.ranks.push_back(family.ranks[member]);
  // A rank is in one part of each split, so the parts of a split may have the same number on the trunk.
  const uint64_t number = hash_text(fmt::format("{}", family.splits), base.common.communicator);
  part.id = hash_text(fmt::format("{}", part.family.ranks[0]), number);
  const auto rank = static_cast<uint32_t>(std::ranges::find(members, base.rank()) - members.begin());
  part.bootstrap = Trunk::branch(family.trunk, number, part.family.ranks, rank, *base.bootstrap);
  Configuration& settings = part.configuration;
  settings.name = name;
  settings.rank = rank;
  settings.nranks = static_cast<uint32_t>(members.size());
  settings.joins = false;
  settings.all_gather = nullptr;
  settings.rendezvous = "a split of " + base.configuration.name;
  settings.device = base.device ? fmt::format("{}:{}", base.device.tables.memory->name, base.device.device) : "none";
  return Communicator::make_part(base, std::move(part));
}

}  // namespace

void SplitCall::check() const {
  if (by > TUTTI_SPLIT_BY_DEVICE)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("by is {}, expected one of TUTTI_SPLIT_BY_*, 0 to {}", by,
                                                      uint32_t{TUTTI_SPLIT_BY_DEVICE}));
  if (flags != 0)
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("flags is {:#x}, expected 0: no flag is defined", flags));
}

std::string SplitCall::group(const Topology& topology, uint32_t rank, std::string* label) const {
  if (color == TUTTI_NO_COLOR) return "";
  const uint32_t host = topology.host_of_rank()[rank];
  const RankDescription& description = topology.rank(rank);
  switch (by) {
    case TUTTI_SPLIT_BY_HOST:
      *label = fmt::format("host{}", host);
      break;
    case TUTTI_SPLIT_BY_NUMA: {
      const int32_t node = description.device.numa != not_known ? description.device.numa : description.numa;
      if (node == not_known) return "";
      *label = fmt::format("host{}numa{}", host, node);
      break;
    }
    case TUTTI_SPLIT_BY_DEVICE: {
      const uint32_t device = topology.device_of_rank()[rank];
      if (device == UINT32_MAX) return "";
      *label = fmt::format("device{}", device);
      break;
    }
    default:
      *label = std::to_string(color);
      return *label;
  }
  if (color) *label += fmt::format(":{}", color);
  return *label;
}

std::unique_ptr<Communicator> split(ProgressEngine& engine, const SplitCall& call) {
  Foundation& base = engine.base;
  const Hold hold(engine.lock);
  engine.require_sound();
  Patience patience(call.timeout_ns ? call.timeout_ns : base.configuration.timeout.ns);
  const JointCall meeting{"tutti_comm_split", patience};
  SplitWord mine{call};
  try {
    call.check();
    if (base.rank() == 0 && !base.family.trunk) mine.place = base.bootstrap->next_place();
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    mine.status = failure.status;
    mine.error = failure.text;
  }
  const auto all = decode_all<SplitWord>(engine.meetings.gather(meeting, encode(mine)), "word in tutti_comm_split");
  require_alike(all);
  ++base.family.splits;
  Family family = base.family;  // the communicator's once all ranks have the trunk
  std::unique_ptr<Communicator> part;
  Verdict verdict;
  try {
    if (!family.trunk) grow_trunk(engine, all[0].place, patience, family);
    std::string label;
    const std::vector<uint32_t> members = members_of(all, base.topology, base.rank(), &label);
    require_one_name(all, members);
    if (!members.empty())
      part = make_part(base, family, members,
                       call.name.empty() ? fmt::format("{}.{}:{}", base.name(), base.family.splits, label) : call.name);
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    verdict = {failure.status, fmt::format("cannot make its part of {}: {}", base.name(), failure.text)};
  }
  const auto go_back = [&part](const char* why) {
    if (!part) return;
    part->abort(why);
    part->end();
  };
  std::vector<Verdict> verdicts;
  patience.grant(last_word_ns);
  try {
    verdicts = decode_all<Verdict>(engine.meetings.gather(meeting, encode(verdict)), "word in tutti_comm_split");
  } catch (const std::exception&) {
    go_back("did not get it, since the communicator that was split ended meanwhile");
    throw;
  }
  // Those that have given up since another one has say TUTTI_PEER_FAILED.
  auto bad = std::ranges::find_if(verdicts,
                                  [](const Verdict& one) { return one.status < 0 && one.status != TUTTI_PEER_FAILED; });
  if (bad == verdicts.end()) bad = std::ranges::find_if(verdicts, [](const Verdict& one) { return one.status < 0; });
  if (bad != verdicts.end()) {
    go_back("went back, since another rank could not make its part");
    throw Failure(bad->status, fmt::format("tutti_comm_split: rank {} {}", bad - verdicts.begin(), bad->error));
  }
  base.family = std::move(family);
  if (!part || base.common.collectives.empty()) return part;
  try {
    const EngineLock::Opening open(engine.lock);
    part->base().make_natives(rest_of(patience, base.configuration));
  } catch (const std::exception& problem) {  // the other members have theirs
    const Failure failure = failure_of(problem);
    part->base().bootstrap->announce_failure(failure.status, "could not make its part: " + failure.text);
    go_back("could not make its part");
    throw;
  }
  return part;
}

}  // namespace tutti::core
