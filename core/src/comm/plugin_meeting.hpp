// SPDX-License-Identifier: Apache-2.0
//
// Ranks that meet by a plugin (tutti/plugin/meeting.h): the rendezvous is "plugin:NAME" or "plugin:NAME:PLACE".
#pragma once

#include <tutti/plugin/meeting.h>

#include <string>

namespace tutti::core {

class PluginMeeting {
 public:
  // nranks 0: the plugin knows this rank's number and theirs. Throws Failure.
  PluginMeeting(const std::string& rendezvous, uint32_t rank, uint32_t nranks, const std::string& name,
                uint64_t timeout_ns);
  PluginMeeting(const PluginMeeting&) = delete;
  PluginMeeting& operator=(const PluginMeeting&) = delete;
  ~PluginMeeting() { api_->close(room_); }

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }
  // A tutti_all_gather_function whose context is a PluginMeeting.
  static tutti_status all_gather(void* context, const void* mine, uint64_t bytes, void* all);
  // This rank does not go on: nor do the others. The reason: what the plugin said, or `text` where it said nothing.
  std::string abort(const std::string& text);

 private:
  const tutti_meeting* api_ = nullptr;
  tutti_room* room_ = nullptr;
  uint32_t rank_ = 0, nranks_ = 0;
  std::string error_;  // of all_gather
};

}  // namespace tutti::core
