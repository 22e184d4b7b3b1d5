// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_plans.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/failure.hpp"
#include "base/settings.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_plans = 256;
constexpr size_t most_tables = 4;  // of unequal blocks, in plans of one form

// Runs it unless there is a reason not to. Its failure becomes one.
void attempt(std::string& why, const std::function<void()>& body) {
  if (why.empty()) try {
      body();
    } catch (const Failure& failure) {
      why = printable(failure.text.empty() ? tutti_status_text(failure.status) : failure.text, WindowProposal::longest);
    }
}

}  // namespace

std::shared_ptr<WindowTable> table_of(const StreamPlan& plan, uint32_t rank, const std::vector<WindowProposal>& all,
                                      const WindowPlaces& places, const std::function<uint64_t(uint32_t)>& scratch_of) {
  auto table = std::make_shared<WindowTable>();
  table->incoming.resize(plan.traffic.size());
  for (size_t w = 0; w < plan.traffic.size(); ++w) {
    const StreamTraffic& way = plan.traffic[w];
    for (uint64_t number = 0; number < way.sizes.size() && !way.outgoing; ++number) {
      const auto& sent = all[way.peer].sent;
      const auto found = std::ranges::find_if(sent, [&](const WindowMessage& one) {
        return one.peer == rank && one.lane == way.lane && one.number == number;
      });
      if (found == sent.end() || found->bytes != way.sizes[number])
        throw Failure(TUTTI_MISMATCH, fmt::format("rank {} sends other messages than this rank receives", way.peer));
      const WindowMessage& m = table->incoming[w].emplace_back(*found);
      // A deciding buffer is as long on all ranks; later calls may have theirs in other windows.
      const bool is_in = m.buffer == TUTTI_BUFFER_IN;
      const bool decides = (is_in ? places.in : places.out).window != nullptr;
      const uint64_t room = m.buffer == TUTTI_BUFFER_SCRATCH ? scratch_of(way.peer)
                            : !decides                       ? 0
                            : is_in                          ? plan.plan.in_bytes
                                                             : plan.plan.out_bytes;
      if (m.bytes && (m.offset > room || m.bytes > room - m.offset))
        throw Failure(TUTTI_MISMATCH, fmt::format("rank {} sends {} bytes at {} of a buffer that has {}", way.peer,
                                                  m.bytes, m.offset, room));
    }
  }
  return table;
}

namespace {

std::function<StreamWay(uint32_t peer, bool outgoing)> ways(const StreamSetup& setup, bool in_windows) {
  return [&setup, in_windows](uint32_t peer, bool) -> StreamWay {
    if (setup.is_local(peer)) return {};
    if (in_windows) return Windows::way();
    return {StreamChannel::slot_bytes, StreamChannel::slots};
  };
}

}  // namespace

StreamPlans::StreamPlans(const StreamSetup& setup, StreamChannels& channels, Windows& windows)
    : setup_(setup),
      channels_(channels),
      windows_(windows),
      fusing_(flag_setting("TUTTI_FUSED") ? executor_caps_of(setup_.device) : tutti_executor_caps{}) {}

// ---- Plans and their forms ---------------------------------------------------------------------------------

std::unique_ptr<StreamPlan> StreamPlans::bind(const Shape& shape, bool in_windows) const {
  // Where streams read each other's buffers slices gain nothing. A chunk that half of the slots hold is not cut: in
  // slices the call would have more commands than the device's queue takes, and would wait for other processes.
  constexpr uint64_t half = StreamChannel::slots / 2 * StreamChannel::slot_bytes;
  Schedule schedule;
  Plan plan = setup_.planner->plan(shape, true, setup_.has_channels() && !in_windows ? half : UINT64_MAX, schedule);
  if (in_windows) plan.transports = Windows::carrier;
  auto made =
      std::make_unique<StreamPlan>(bind_stream_plan(std::move(plan), std::move(schedule), ways(setup_, in_windows)));
  made->open = in_windows;
  return made;
}

// With another table a plan is bound again, which needs no other rank: its channels and its scratch stay.
StreamPlan& StreamPlans::form_of(Forms& forms, const Shape& shape, const BlockTable* blocks) const {
  if (!blocks) return *(forms.empty() ? forms.emplace_back(bind(shape, false)) : forms.front());
  auto found = std::ranges::find_if(forms, [&](const auto& form) { return form->plan.unequal.table == *blocks; });
  if (found == forms.end()) {
    std::unique_ptr<StreamPlan> form;
    if (forms.empty()) {
      form = bind(shape, false);
    } else if (forms.size() < most_tables) {
      form = std::make_unique<StreamPlan>(*forms.front());
    } else {
      form = std::move(forms.back());
      forms.pop_back();
    }
    bind_stream_blocks(*form, *blocks, setup_.topology->nranks(), setup_.rank, ways(setup_, false));
    if (form->open && may_fuse(*form) != form->fuses) {
      form->fuses = !form->fuses;
      form->service.reset();
    }
    found = forms.insert(forms.end(), std::move(form));
  }
  std::rotate(forms.begin(), found, found + 1);
  return *forms.front();
}

StreamPlan& StreamPlans::find(const StreamCall& call, const BlockTable* blocks) {
  const Shape shape = common(call.shape);
  if (plans_.size() >= most_plans && !plans_.contains(shape))
    plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& entry) { return entry.second.last_used; }));
  Plans& plans = plans_[shape];
  plans.last_used = ++clock_;
  StreamPlan& plan = form_of(plans.forms[call.shape.in_place != 0], call.shape, blocks);
  places_ = find_places(call, plan.plan);
  return plan;
}

// A launch that waits by itself keeps processors of the device busy: it is for flags that other devices set. Those of
// staged channels are set by threads of this process, which move bytes at a network's pace and may themselves be held
// up by what the application calls of the device's driver.
bool StreamPlans::may_fuse(const StreamPlan& plan) const {
  return setup_.topology->has_device_to_itself(setup_.rank) && !plan.traffic.empty() &&
         plan.commands <= fusing_.max_fused_commands && plan.bytes <= fusing_.max_fused_bytes &&
         std::ranges::none_of(plan.channels, [](const StreamChannel* channel) { return channel->by_host(); });
}

void StreamPlans::open(const StreamCall& call, StreamPlan& form, StreamComm& comm) {
  if (!form.open) {
    bool& known = plans_.at(common(call.shape)).open;
    if (call.capturing && !known)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    "the stream is being captured, and the call needs slots that no earlier one has opened, since the "
                    "earlier calls' buffers lay in windows");
    channels_.open(form.traffic, comm);
    std::set<std::string> carriers;
    form.channels.clear();
    for (const StreamTraffic& way : form.traffic)
      carriers.insert(form.channels.emplace_back(&channels_.of(way))->carrier());
    form.plan.transports = fmt::format("{}", fmt::join(carriers, "+"));
    form.fuses = may_fuse(form);
    form.service.reset();
    form.open = known = true;
  }
  if (call.capturing && !form.windows) require_mapped(form);
}

// A replay is known to the devices alone: all that it uses must exist before, and no host may have a part in it.
// All ranks come to the same answer by themselves: one that recorded the call alone would wait for ever in the replay.
void StreamPlans::require_recordable(const StreamCall& call) {
  if (!setup_.has_channels()) return;
  const auto refuse = [](const char* how) {
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("the stream is being captured: between processes a call can be recorded when one of the "
                              "same collective, count, type, operator and root was made before without capturing{}",
                              how));
  };
  const auto found = plans_.find(common(call.shape));
  if (found == plans_.end()) refuse("");
  const auto& forms = found->second.forms;
  if (forms[0].empty() && forms[1].empty()) refuse("");
  const StreamPlan& known = *(forms[0].empty() ? forms[1] : forms[0]).front();
  if (find_places(call, known.plan).any()) {
    const Plans::InWindows& in_windows = found->second.in_windows[call.shape.in_place != 0];
    if (in_windows.form) return;
    if (!in_windows.agreed) refuse(", with buffers in windows as well");
  }
  if (!found->second.open) refuse("");
  require_mapped(known);
}

void StreamPlans::require_mapped(const StreamPlan& plan) const {
  const auto& host_of = setup_.topology->host_of_rank();
  if (const auto far = std::ranges::find_if(host_of, [&](uint32_t host) { return host != host_of[0]; });
      far != host_of.end())
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format(
            "the stream is being captured: ranks 0 and {} are on different hosts, and a replay cannot include messages "
            "between hosts; only calls among processes of one host can be recorded",
            far - host_of.begin()));
  for (const StreamTraffic& traffic : plan.traffic)
    if (channels_.of(traffic).by_host())
      throw Failure(
          TUTTI_NOT_SUPPORTED,
          fmt::format("the stream is being captured: lane {} {} rank {} is carried by the host over {}, and a replay "
                      "does not include the host; only memory that processes of one host map can be recorded",
                      traffic.lane, traffic.outgoing ? "to" : "from", traffic.peer, channels_.of(traffic).carrier()));
}

// ---- Windows -----------------------------------------------------------------------------------------------

WindowPlaces StreamPlans::find_places(const StreamCall& call, const Plan& plan) {
  WindowPlaces places;
  const uint32_t deciding = deciding_buffers(call.shape);
  if (!setup_.has_channels() || !setup_.windows || setup_.windows->empty() || !deciding) return {};
  for (const uint32_t buffer : {TUTTI_BUFFER_IN, TUTTI_BUFFER_OUT}) {
    if (!(deciding >> buffer & 1)) continue;
    const bool is_in = buffer == TUTTI_BUFFER_IN;
    const void* const address = is_in ? call.in : call.out;
    const uint64_t bytes = is_in ? plan.in_bytes : plan.out_bytes;
    const tutti_window* window = find_window(*setup_.windows, address, bytes);
    if (!window || !bytes || window->where.tables.memory != setup_.device.tables.memory) return {};
    if (!window->staged.empty()) {
      log_why_not_in_place(call, window->staged);
      return {};
    }
    if (classify(setup_.device.tables, address).buffer_id != window->buffer_id)
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("{} bytes at {} lie in window {}, whose memory was freed while it was registered: "
                                "call tutti_comm_deregister first",
                                bytes, address, window->id));
    (is_in ? places.in : places.out) = {
        window, static_cast<uint64_t>(static_cast<const std::byte*>(address) - window->address)};
  }
  return places;
}

bool StreamPlans::may_use_windows(const StreamCall& call) const {
  return places_.any() && plans_.at(common(call.shape)).in_windows[call.shape.in_place != 0].refusal.empty();
}

StreamPlan& StreamPlans::choose(const StreamCall& call, StreamPlan& plan, StreamComm& comm) {
  if (!places_.any()) return plan;
  Plans& plans = plans_.at(common(call.shape));
  const Plans::InWindows& found = plans.in_windows[call.shape.in_place != 0];
  if (!found.agreed) agree(call, plans, comm);
  if (found.form) return *found.form;
  log_why_not_in_place(call, found.refusal);
  return plan;
}

// Where a root may be in place alone, both of its forms are agreed on at once. All ranks meet twice: to tell each other
// what they send and which scratch they need, and then whether all could map the scratch. If one rank refuses, all do.
void StreamPlans::agree(const StreamCall& call, Plans& plans, StreamComm& comm) {
  std::vector<uint32_t> variants{call.shape.in_place != 0};
  if (has_root(call.shape.collective) && call.shape.root == setup_.rank) variants = {0, 1};
  std::unique_ptr<StreamPlan> made[2];
  WindowProposal mine;
  attempt(mine.refusal, [&] {
    for (const uint32_t in_place : variants) {
      Shape shape = call.shape;
      shape.in_place = shape.collective == TUTTI_BROADCAST || in_place;
      made[in_place] = bind(shape, true);
      auto sent = window_messages(*made[in_place], *setup_.topology, setup_.rank);
      if (in_place != variants.front() && !std::ranges::equal(sent, mine.sent))
        throw Failure(TUTTI_NOT_SUPPORTED, "the schedule sends other bytes where the root is in place");
      mine.sent = std::move(sent);
      mine.scratch = std::max(mine.scratch, made[in_place]->plan.scratch.bytes);
    }
    if (mine.scratch > setup_.scratch_limit)
      throw Failure(TUTTI_NO_RESOURCES, fmt::format("it would take scratch of {} bytes, more than the limit of {}",
                                                    mine.scratch, setup_.scratch_limit));
  });
  if (mine.scratch <= windows_.scratch_bytes()) mine.scratch = 0;  // it stays
  const auto all = decode_all<WindowProposal>(comm.gather(encode(mine)), "words on windows");
  windows_.release_pending();
  std::vector<std::string> refusals;
  std::vector<uint64_t> scratch;
  for (const WindowProposal& one : all) {
    refusals.push_back(one.refusal);
    scratch.push_back(one.scratch);
  }
  std::string why = first_refusal(refusals);
  if (why.empty()) {
    const Windows::Until until = [&](const auto& enough) { comm.await(enough); };
    std::string own = windows_.offer_scratch(scratch, until);
    for (const uint32_t in_place : variants)
      attempt(own, [&] {
        made[in_place]->windows = table_of(*made[in_place], setup_.rank, all, places_,
                                           [&](uint32_t peer) { return windows_.offered_bytes(peer); });
      });
    why = printable(first_refusal(comm.gather(own)), WindowProposal::longest);
    windows_.adopt_scratch(why.empty(), until);
  }
  for (const uint32_t in_place : variants) {
    Plans::InWindows& entry = plans.in_windows[in_place];
    entry.agreed = true;
    entry.refusal = why;
    if (!why.empty()) continue;
    entry.form = std::move(made[in_place]);
    for (const StreamTraffic& way : entry.form->traffic)
      entry.form->channels.push_back(&channels_.open_in_windows(way, windows_));
    entry.form->fuses = may_fuse(*entry.form);
  }
}

void StreamPlans::log_why_not_in_place(const StreamCall& call, const std::string& why) {
  if (why == not_in_place_ || !log_enabled(TUTTI_LOG_INFO)) return;
  not_in_place_ = why;
  log(TUTTI_LOG_INFO, setup_.device.tables.memory->name,
      fmt::format("rank {}: windows of {} are not read in place: {}", setup_.rank,
                  collective_name(call.shape.collective), why));
}

}  // namespace tutti::core
