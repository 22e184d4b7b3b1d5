// SPDX-License-Identifier: Apache-2.0
#include "comm/plugin_meeting.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include "base/failure.hpp"
#include "base/settings.hpp"

namespace tutti::core {

PluginMeeting::PluginMeeting(const std::string& rendezvous, uint32_t rank, uint32_t nranks, const std::string& name,
                             uint64_t timeout_ns) {
  const auto [plugin, place] = plugin_place(rendezvous).value();  // the caller has seen that it is one
  std::string error;
  api_ = find_meeting(plugin, &error);
  if (!api_) throw Failure(TUTTI_NOT_FOUND, fmt::format("rendezvous \"{}\": {}", rendezvous, error));
  const tutti_meeting_config config{sizeof config, rank, nranks, 0, place.c_str(), name.c_str(), timeout_ns};
  if (const tutti_status status = api_->open(api_->self, &config, &room_, &rank_, &nranks_); status < 0)
    throw Failure(status, fmt::format("rendezvous \"{}\": {}", rendezvous, take_plugin_error()));
  if (rank_ < nranks_ && (nranks == 0 || (rank_ == rank && nranks_ == nranks))) return;
  api_->abort(room_);
  api_->close(room_);
  throw Failure(TUTTI_MISMATCH,
                fmt::format("rendezvous \"{}\": the plugin made this process rank {} of {}{}", rendezvous, rank_,
                            nranks_, nranks ? fmt::format(", expected rank {} of {}", rank, nranks) : ""));
}

tutti_status PluginMeeting::all_gather(void* context, const void* mine, uint64_t bytes, void* all) {
  auto& self = *static_cast<PluginMeeting*>(context);
  const tutti_status status = self.api_->all_gather(self.room_, mine, bytes, all);
  if (status < 0) self.error_ = take_plugin_error();
  return status;
}

std::string PluginMeeting::abort(const std::string& text) {
  api_->abort(room_);
  return error_.empty() ? text : fmt::format("rank {} of {}: meeting {}: {}", rank_, nranks_, api_->name, error_);
}

}  // namespace tutti::core
