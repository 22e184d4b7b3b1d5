// SPDX-License-Identifier: Apache-2.0
//
// The plans of a rank's calls in streams, by shape. A plan has several forms: in place or not, for each of the last
// tables of unequal blocks, and in windows. All ranks keep and drop the plans of the same shapes at the same call, so
// what one can record all can.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/plan/block_table.hpp"
#include "stream/stream_channels.hpp"
#include "stream/stream_comm.hpp"
#include "stream/stream_plan.hpp"
#include "stream/windows.hpp"

namespace tutti::core {

// A rank's words in the first call of a shape in windows: why it cannot, or the size to which its scratch grows and the
// messages it sends.
struct WindowProposal {
  static constexpr size_t longest = 1024;
  std::string refusal;
  uint64_t scratch = 0;
  std::vector<WindowMessage> sent;

  static void fields(auto& wire, auto& words) {
    wire(Field("refusal", words.refusal, 0, longest), words.scratch, words.sent);
  }
};

// The messages that the plan receives, as the peers have told them: `all`, by rank. `scratch_of`: the bytes of a peer's
// scratch. Throws Failure where the two do not go together, or a message does not lie in its buffer.
std::shared_ptr<WindowTable> table_of(const StreamPlan& plan, uint32_t rank, const std::vector<WindowProposal>& all,
                                      const WindowPlaces& places, const std::function<uint64_t(uint32_t)>& scratch_of);

class StreamPlans {
 public:
  StreamPlans(const StreamSetup& setup, StreamChannels& channels, Windows& windows);
  StreamPlans(const StreamPlans&) = delete;
  StreamPlans& operator=(const StreamPlans&) = delete;

  // Can a collective be recorded for replays? Throws Failure.
  void require_recordable(const StreamCall& call);
  // The plan of a call outside of windows, made if need be, and where the call's buffers lie in windows. `blocks`:
  // where they are unequal. Throws Failure.
  StreamPlan& find(const StreamCall& call, const BlockTable* blocks);
  // Where the buffers of the call whose plan was found last lie in windows.
  const WindowPlaces& places() const { return places_; }
  // May that call use windows? Not where the ranks have agreed that it cannot.
  bool may_use_windows(const StreamCall& call) const;
  // The form of that plan that is to be issued: `plan`, or the one that uses windows. In the first call of a shape
  // whose buffers lie in windows all ranks settle whether there is such a form. Throws Failure.
  StreamPlan& choose(const StreamCall& call, StreamPlan& plan, StreamComm& comm);
  // Opens the channels that the form lacks; both ends have to come to the call. Throws Failure.
  void open(const StreamCall& call, StreamPlan& form, StreamComm& comm);

 private:
  using Forms = std::vector<std::unique_ptr<StreamPlan>>;
  // Forms are by whether the rank's call is in place, in which ranks may differ in one call. All but those in windows
  // use the same channels. Of each there is one; where blocks are unequal one for each of the last tables, newest
  // first.
  struct Plans {
    Forms forms[2];
    bool open = false;  // all of the channels are there
    uint64_t last_used = 0;
    struct InWindows {
      std::unique_ptr<StreamPlan> form;
      bool agreed = false;
      std::string refusal;  // agreed: why there is no form
    } in_windows[2];
  };

  std::unique_ptr<StreamPlan> bind(const Shape& shape, bool in_windows) const;
  StreamPlan& form_of(Forms& forms, const Shape& shape, const BlockTable* blocks) const;
  bool may_fuse(const StreamPlan& plan) const;
  void require_mapped(const StreamPlan& plan) const;
  // Places of the call in windows, where all of its deciding buffers lie in windows that are used in place.
  WindowPlaces find_places(const StreamCall& call, const Plan& plan);
  void agree(const StreamCall& call, Plans& plans, StreamComm& comm);
  // The application wants windows to be read in place. Each reason is logged once in a row.
  void log_why_not_in_place(const StreamCall& call, const std::string& why);

  const StreamSetup& setup_;
  StreamChannels& channels_;
  Windows& windows_;
  const tutti_executor_caps fusing_;                   // the limits of one launch; zeros: TUTTI_FUSED=0
  std::unordered_map<Shape, Plans, ShapeHash> plans_;  // by shapes as all ranks have them
  uint64_t clock_ = 0;
  WindowPlaces places_;
  std::string not_in_place_;  // why windows were not used in place, as the log has it
};

}  // namespace tutti::core
