// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <optional>

#include "bootstrap/environment.hpp"
#include "bootstrap/failure.hpp"
#include "plan/hash.hpp"
#include "plugins/host.hpp"
#include "plugins/plugin_meeting.hpp"

namespace tutti::core {

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
    const auto lookup = [](const char* name) -> const char* { return std::getenv(name); };
    environment = read_environment(lookup, configuration.nranks == 0);
    if (configuration.nranks == 0) {
      meeting.rank = environment.rank;
      meeting.nranks = environment.nranks;
    }
    if (where.empty() || where == "env") where = environment.rendezvous;
    if (where.empty() && !environment.host.empty())
      where = fmt::format("{} port {}", environment.host, environment.port);
  } catch (const Failure&) {
  }
  meeting.place = where.starts_with("id:") ? "a unique id" : where;
  meeting.key = hash_text(fmt::format("{}\n{}\n{}\n{}\n{}", where, environment.secret, environment.job,
                                      configuration.name, meeting.nranks));
  return meeting;
}

std::unique_ptr<Bootstrap> meet(const Configuration& configuration, const Succession& succession) {
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
  if (!configuration.all_gather && rendezvous.where.starts_with("plugin:")) {
    plugin.emplace(rendezvous.where, configuration.rank, configuration.nranks, configuration.name,
                   configuration.connect_timeout_ns);
    rendezvous.rank = plugin->rank();
    rendezvous.nranks = plugin->nranks();
    rendezvous.all_gather = &PluginMeeting::all_gather;
    rendezvous.context = &*plugin;
  }
  try {
    return make_bootstrap(rendezvous, std::chrono::nanoseconds(configuration.connect_timeout_ns));
  } catch (const Failure& failure) {
    if (!plugin) throw;
    throw Failure(failure.status, plugin->abort(failure.text));
  }
}

}  // namespace tutti::core
