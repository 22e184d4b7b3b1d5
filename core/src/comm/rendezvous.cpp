// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <utility>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "base/rank_list.hpp"
#include "bootstrap/environment.hpp"
#include "comm/foundation.hpp"
#include "comm/plugin_meeting.hpp"
#include "net/interrupt.hpp"
#include "registry/host.hpp"

namespace tutti::core {

namespace {

const char* environment_value(const char* name) { return std::getenv(name); }

}  // namespace

FlightRecorder::Meeting expected_meeting(const Configuration& configuration) {
  FlightRecorder::Meeting meeting;
  meeting.name = configuration.name;
  std::string where = configuration.all_gather ? "the application's all-gather" : configuration.rendezvous;
  if (configuration.nranks) {
    meeting.rank = configuration.rank;
    meeting.nranks = configuration.nranks;
  }
  Environment environment;
  try {
    environment = read_environment(environment_value, configuration.nranks == 0);
    if (configuration.nranks == 0) {
      meeting.rank = environment.rank;
      meeting.nranks = environment.nranks;
    }
    if (where.empty() || where == "env") where = environment.rendezvous;
    if (where.empty() && !environment.service.empty()) where = "plugin:" + environment.service;
    if (where.empty() && !environment.host.empty())
      where = fmt::format("{} port {}", environment.host, environment.port);
  } catch (const Failure&) {
  }
  meeting.place = where.starts_with("id:") ? "a unique id" : where;
  meeting.key = hash_text(fmt::format("{}\n{}\n{}\n{}\n{}", where, environment.secret, environment.job,
                                      configuration.name, meeting.nranks));
  return meeting;
}

namespace {

// Where the environment lets the ranks meet by a plugin, and as whom: the launcher's own service, if its plugin is
// there. A launcher that tells an address as well (Slurm) serves without it.
void ask_launcher(Rendezvous& rendezvous) {
  const Environment environment = read_environment(environment_value, true);
  if (!environment.rendezvous.empty()) rendezvous.where = environment.rendezvous;
  if (!environment.rendezvous.empty() || environment.service.empty()) return;
  std::string error;
  if (!find_meeting(environment.service, &error)) {
    rendezvous.log(TUTTI_LOG_INFO, fmt::format("{} offers its ranks to meet by {}: {}", environment.launcher,
                                               environment.service, error));
    return;
  }
  rendezvous.where = "plugin:" + environment.service;
  if (environment.nranks == 0) return;
  rendezvous.rank = environment.rank;
  rendezvous.nranks = environment.nranks;
}

}  // namespace

std::unique_ptr<Bootstrap> meet(const Configuration& configuration, const Succession& succession, Deadline& deadline) {
  if (configuration.nranks && configuration.rank >= configuration.nranks)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("tutti_comm_config.rank is {}, expected less than nranks, which "
                                                      "is {}",
                                                      configuration.rank, configuration.nranks));
  Rendezvous rendezvous;
  rendezvous.where = configuration.rendezvous;
  if (configuration.nranks) {
    rendezvous.rank = configuration.rank;
    rendezvous.nranks = configuration.nranks;
  }
  rendezvous.newcomers = succession.newcomers;
  rendezvous.obstacle = succession.hopeless;
  rendezvous.joins = configuration.joins;
  rendezvous.all_gather = configuration.all_gather;
  rendezvous.context = configuration.all_gather_context;
  rendezvous.log = [name = configuration.name](uint32_t level, const std::string& text) { log(level, name, text); };
  std::optional<PluginMeeting> plugin;
  const bool launched = rendezvous.where.empty() || rendezvous.where == "env";
  if (launched && !configuration.all_gather && !configuration.joins && !configuration.nranks) ask_launcher(rendezvous);
  if (!configuration.all_gather && rendezvous.where.starts_with("plugin:")) {
    const bool known = rendezvous.nranks > 0;
    plugin.emplace(rendezvous.where, known ? uint32_t(rendezvous.rank) : 0, known ? uint32_t(rendezvous.nranks) : 0,
                   configuration.name, static_cast<uint64_t>(deadline.left().count()));
    rendezvous.rank = plugin->rank();
    rendezvous.nranks = plugin->nranks();
    rendezvous.all_gather = &PluginMeeting::all_gather;
    rendezvous.context = &*plugin;
    rendezvous.timed = true;
  }
  try {
    return make_bootstrap(rendezvous, deadline);
  } catch (const Failure& failure) {
    if (!plugin) throw;
    throw Failure(failure.status, plugin->abort(failure.text));
  }
}

// ---- In the middle of calls ----------------------------------------------------------------------------------

void Meetings::await(const JointCall& meeting, const std::function<bool()>& enough,
                     const std::function<std::vector<uint32_t>()>& absent) {
  const auto fail = [&] { breakdown_.fail(late(meeting, absent ? absent() : std::vector<uint32_t>())); };
  const auto over = [&] {
    if (!Interrupt::is_wanted()) return enough();
    breakdown_.fail({TUTTI_ABORTED, base_.rank(), fmt::format("{} in {}", Interrupt::reason, meeting.what)});
    return false;
  };
  if (!waiter_.until(over, meeting.patience, fail, excused_)) throw breakdown_.failure();
}

Cause Meetings::late(const JointCall& meeting, const std::vector<uint32_t>& absent) const {
  if (absent.empty()) return breakdown_.late(meeting.patience.limit_ns(), meeting.sequence);
  std::string text = fmt::format("did not come to {} within {}", meeting.what,
                                 base_.configuration.timeout.text(meeting.patience.limit_ns()));
  if (absent.size() > 1) text += "; nor did " + rank_list({absent.begin() + 1, absent.end()});
  return {TUTTI_TIMEOUT, absent[0], std::move(text)};
}

std::vector<std::string> Meetings::gather(const JointCall& meeting, const std::string& mine) {
  if (base_.nranks() == 1) return {mine};
  constexpr std::chrono::minutes longer(1);  // this call's own deadline names who is missing
  std::vector<std::string> all, brought;
  std::vector<JointWord> words;
  try {
    std::atomic<bool> over{false};
    auto coming = std::async(std::launch::async, [&] {
      struct End {
        std::atomic<bool>& over;
        ControlPlane& control;
        ~End() {
          over.store(true, std::memory_order_release);
          control.interrupt();  // this rank may sleep
        }
      } const end{over, base_.control()};
      return base_.bootstrap->all_gather(encode(JointWord{meeting.what, mine}),
                                         std::chrono::nanoseconds(meeting.patience.limit_ns()) + longer);
    });
    try {
      await(
          meeting, [&] { return over.load(std::memory_order_acquire); }, [&] { return base_.control().absent(); });
    } catch (const Failure&) {
      // Where all ranks have come, the call ends well on all of them, even if one of them failed in its next call.
    }
    all = coming.get();
    words = decode_all<JointWord>(all, "word in " + meeting.what);
  } catch (const std::exception& problem) {
    breakdown_.fail(problem);
    throw breakdown_.failure();
  }
  for (uint32_t r = 0; r < words.size(); ++r) {
    if (words[r].call != meeting.what) {
      breakdown_.fail({TUTTI_MISMATCH, r,
                       fmt::format("is in {}, rank {} in {}: all ranks must make the same calls", words[r].call,
                                   base_.rank(), meeting.what)});
      throw breakdown_.failure();
    }
    brought.emplace_back(words[r].bytes);
  }
  return brought;
}

}  // namespace tutti::core
