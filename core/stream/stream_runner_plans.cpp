// SPDX-License-Identifier: Apache-2.0
//
// The needs of a call before its work goes into a stream: a plan, scratch, channels to other processes, and the answer
// whether it uses windows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/failure.hpp"
#include "base/settings.hpp"
#include "registry/host.hpp"
#include "stream/stream_runner.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_plans = 256;
constexpr size_t most_tables = 4;  // of unequal blocks, in plans of one form

}  // namespace

std::function<StreamWay(uint32_t peer, bool outgoing)> StreamRunner::ways(bool in_windows) const {
  return [this, in_windows](uint32_t peer, bool) -> StreamWay {
    if (is_local(peer)) return {};
    if (in_windows) return Windows::way();
    return {StreamChannel::slot_bytes, StreamChannel::slots};
  };
}

std::unique_ptr<StreamPlan> StreamRunner::bind(const Shape& shape, bool in_windows) const {
  // Where streams read each other's buffers slices gain nothing. A chunk that half of the slots hold is not cut: in
  // slices the call would have more commands than the device's queue takes, and would wait for other processes.
  constexpr uint64_t half = StreamChannel::slots / 2 * StreamChannel::slot_bytes;
  Schedule schedule;
  Plan plan = setup_.planner->plan(shape, true, has_channels() && !in_windows ? half : UINT64_MAX, schedule);
  if (in_windows) plan.transports = Windows::carrier;
  auto made = std::make_unique<StreamPlan>(bind_stream_plan(std::move(plan), std::move(schedule), ways(in_windows)));
  made->open = in_windows;
  return made;
}

void StreamRunner::prepare(const std::function<void()>& idle) {
  if (counter_) return;
  synchronise(idle, [this] {
    const auto& [tables, device] = setup_.device;
    const tutti_executor* executor = tables.executor;
    const auto require = [this](tutti_status status) {
      if (status < 0) throw device_failure(status);
    };
    require(executor->prepare(executor->self, device));
    require(probe_.open(tables, device));
    for (const uint32_t rank : local_)
      if (const uint32_t other = setup_.topology->rank(rank).device.index; other != device)
        if (const tutti_status status = tables.memory->enable_peer(tables.memory->self, device, other); status < 0)
          unreadable_.insert_or_assign(other, device_failure(status));
    queue_ = std::make_unique<StreamCounter>(tables);
    counter_ = std::make_unique<StreamCounter>(tables);
  });
}

// With another table a plan is bound again, which needs no other rank: its channels and its scratch stay.
StreamPlan& StreamRunner::form_of(Forms& forms, const Shape& shape, const BlockTable* blocks) const {
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
    bind_stream_blocks(*form, *blocks, setup_.topology->nranks(), setup_.rank, ways(false));
    if (form->open && may_fuse(*form) != form->fuses) {
      form->fuses = !form->fuses;
      form->service.reset();
    }
    found = forms.insert(forms.end(), std::move(form));
  }
  std::rotate(forms.begin(), found, found + 1);
  return *forms.front();
}

StreamPlan& StreamRunner::find_plan(const StreamCall& call, const BlockTable* blocks,
                                    const std::function<void()>& idle) {
  prepare(idle);
  const Shape shape = common(call.shape);
  if (plans_.size() >= most_plans && !plans_.contains(shape))
    plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& entry) { return entry.second.last_used; }));
  Plans& plans = plans_[shape];
  plans.last_used = ++plan_clock_;
  StreamPlan& plan = form_of(plans.forms[call.shape.in_place != 0], call.shape, blocks);
  places_ = find_places(call, plan.plan);
  const Plans::InWindows& settled = plans.in_windows[call.shape.in_place != 0];
  if (!places_.any() || !settled.refusal.empty()) require_scratch(plan.scratch_bytes, idle);
  return plan;
}

// A launch that waits by itself keeps processors of the device busy: it is for flags that other devices set. Those of
// staged channels are set by threads of this process, which move bytes at a network's pace and may themselves be held
// up by what the application calls of the device's driver.
bool StreamRunner::may_fuse(const StreamPlan& plan) const {
  return setup_.topology->has_device_to_itself(setup_.rank) && !plan.traffic.empty() &&
         plan.commands <= fusing_.max_fused_commands && plan.bytes <= fusing_.max_fused_bytes &&
         std::ranges::all_of(plan.traffic, [&](const StreamTraffic& traffic) {
           return plan.windows || dynamic_cast<const MappedChannel*>(&channel(traffic)) != nullptr;
         });
}

void StreamRunner::open_channels(const StreamCall& call, StreamPlan& plan, const Until& until) {
  bool& known = plans_.at(common(call.shape)).open;
  if (call.capturing && !plan.open && !known)
    throw Failure(TUTTI_NOT_SUPPORTED,
                  "the stream is being captured, and the call goes through slots that no earlier one has opened: then "
                  "its buffers lay in windows");
  if (!plan.open) {
    open_missing(collective_name(call.shape.collective), plan.traffic, until);
    std::set<std::string> carriers;
    plan.channels.clear();
    for (const StreamTraffic& traffic : plan.traffic)
      carriers.insert(plan.channels.emplace_back(&channel(traffic))->carrier());
    plan.plan.transports = fmt::format("{}", fmt::join(carriers, "+"));
    plan.fuses = may_fuse(plan);
    plan.service.reset();
    plan.open = known = true;
  }
  if (call.capturing && !plan.windows) require_mapped(plan);
}

void StreamRunner::open_missing(const std::string& what, const std::vector<StreamTraffic>& traffic,
                                const Until& until) {
  if (std::ranges::all_of(traffic, [this](const StreamTraffic& way) {
        return channels_.contains({way.peer, way.lane, way.outgoing});
      }))
    return;
  std::optional<ChannelOpening> opening;
  bool open = false;
  const auto advance = [&] {
    if (!opening) opening.emplace(setup_, *memory_, traffic, channels_, told_);
    open = opening->advance();
  };
  open_with_peers(what, [&] { until([&] { return gate_.try_run(advance) && open; }); });
}

void StreamRunner::open_with_peers(const std::string& what, const std::function<void()>& body) {
  opening_ = fmt::format("{} on device {}, until its peers have come to their first such call", what,
                         setup_.device.tables.memory->name);
  try {
    body();
  } catch (...) {
    opening_.clear();
    throw;
  }
  opening_.clear();
}

void StreamRunner::open_channels(const std::vector<Transfer>& transfers, const Until& until) {
  const auto is_open = [this](const Transfer& transfer) {
    return !is_far(transfer) || (channels_.contains({transfer.peer, setup_.lanes, true}) &&
                                 channels_.contains({transfer.peer, setup_.lanes, false}));
  };
  if (std::ranges::all_of(transfers, is_open)) return;
  std::vector<StreamTraffic> traffic;
  std::set<uint32_t> peers;
  for (const Transfer& transfer : transfers)
    if (is_far(transfer) && peers.insert(transfer.peer).second)
      for (const bool outgoing : {true, false}) traffic.push_back({transfer.peer, setup_.lanes, outgoing, {}});
  open_missing(transfers.size() == 1 ? text_of(transfers[0]) : "exchange", traffic, until);
}

std::span<const char* const> StreamRunner::carriers(const std::vector<Transfer>& transfers) {
  carriers_.clear();
  for (const Transfer& transfer : transfers)
    if (is_far(transfer))
      for (const bool outgoing : {true, false})
        if (const char* carrier = channel(transfer.peer, outgoing).carrier(); !std::ranges::count(carriers_, carrier))
          carriers_.push_back(carrier);
  return carriers_;
}

// A replay is known to the devices alone: whatever it uses has to be there before, and no host may have a part in it.
// All ranks come to the same answer by themselves: one that recorded the call alone would wait for ever in the replay.
void StreamRunner::require_recordable(const StreamCall& call) {
  if (!has_channels()) return;
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
    if (!in_windows.settled) refuse(", with buffers in windows as well");
  }
  if (!found->second.open) refuse("");
  require_mapped(known);
}

void StreamRunner::require_mapped(const StreamPlan& plan) const {
  const auto& host_of = setup_.topology->host_of_rank();
  if (const auto far = std::ranges::find_if(host_of, [&](uint32_t host) { return host != host_of[0]; });
      far != host_of.end())
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format(
            "the stream is being captured: ranks 0 and {} are on different hosts, and what hosts carry takes no "
            "part in a replay; only calls among processes of one host can be recorded",
            far - host_of.begin()));
  for (const StreamTraffic& traffic : plan.traffic)
    if (!dynamic_cast<const MappedChannel*>(&channel(traffic)))
      throw Failure(
          TUTTI_NOT_SUPPORTED,
          fmt::format("the stream is being captured: lane {} {} rank {} is carried by the host over {}, which takes "
                      "no part in a replay; only memory that processes of one host map can be recorded",
                      traffic.lane, traffic.outgoing ? "to" : "from", traffic.peer, channel(traffic).carrier()));
}

// ---- Windows ----

WindowPlaces StreamRunner::find_places(const StreamCall& call, const Plan& plan) {
  WindowPlaces places;
  const uint32_t deciding = deciding_buffers(call.shape);
  if (!has_channels() || !setup_.windows || setup_.windows->empty() || !deciding) return {};
  for (const uint32_t buffer : {TUTTI_BUFFER_IN, TUTTI_BUFFER_OUT}) {
    if (!(deciding >> buffer & 1)) continue;
    const bool is_in = buffer == TUTTI_BUFFER_IN;
    const void* const address = is_in ? call.in : call.out;
    const uint64_t bytes = is_in ? plan.in_bytes : plan.out_bytes;
    const tutti_window* window = find_window(*setup_.windows, address, bytes);
    if (!window || !bytes || window->where.tables.memory != setup_.device.tables.memory) return {};
    if (!window->staged.empty()) {
      tell_why_not_in_place(call, window->staged);
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

StreamPlan& StreamRunner::choose_form(const StreamCall& call, StreamPlan& plan, const Gather& gather,
                                      const Until& until) {
  if (!places_.any()) return plan;
  Plans& plans = plans_.at(common(call.shape));
  const Plans::InWindows& found = plans.in_windows[call.shape.in_place != 0];
  if (!found.settled)
    open_with_peers(collective_name(call.shape.collective), [&] { settle_all(call, plans, gather, until); });
  if (found.form) return *found.form;
  tell_why_not_in_place(call, found.refusal);
  require_scratch(plan.scratch_bytes, [&] { until([this] { return may_synchronise(); }); });
  return plan;
}

namespace {

// A rank's words in the first call of a shape: why it cannot, or the size to which its scratch grows and the messages
// it sends.
struct Settlement {
  std::string refusal;
  uint64_t scratch = 0;
  std::vector<WindowMessage> sent;

  std::string encode() const {
    const uint64_t head[2] = {refusal.size(), scratch};
    std::string text(reinterpret_cast<const char*>(head), sizeof head);
    text += refusal;
    return text.append(reinterpret_cast<const char*>(sent.data()), sent.size() * sizeof(WindowMessage));
  }
  static Settlement decode(uint32_t rank, const std::string& text) {
    Settlement made;
    uint64_t head[2] = {};
    if (text.size() >= sizeof head) std::memcpy(head, text.data(), sizeof head);
    const uint64_t rest = text.size() - std::min(text.size(), sizeof head);
    if (text.size() < sizeof head || head[0] > rest || (rest - head[0]) % sizeof(WindowMessage))
      throw Failure(TUTTI_MISMATCH, fmt::format("rank {} has sent no list of messages", rank));
    made.refusal = text.substr(sizeof head, head[0]);
    made.scratch = head[1];
    made.sent.resize((rest - head[0]) / sizeof(WindowMessage));
    if (!made.sent.empty()) std::memcpy(made.sent.data(), text.data() + sizeof head + head[0], rest - head[0]);
    return made;
  }
};

// The messages that the plan receives, as the peers have told them. Throws Failure where the two do not go together.
std::shared_ptr<WindowTable> table_of(const StreamPlan& plan, uint32_t rank, const std::vector<Settlement>& all,
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
      const WindowPlaces::Place& place = m.buffer == TUTTI_BUFFER_IN ? places.in : places.out;
      const uint64_t room = m.buffer == TUTTI_BUFFER_SCRATCH ? scratch_of(way.peer)
                            : place.window                   ? place.window->bytes - place.offset
                                                             : 0;
      if (m.bytes && (m.offset > room || m.bytes > room - m.offset))
        throw Failure(TUTTI_MISMATCH, fmt::format("rank {} sends {} bytes at {} of a buffer that has {}", way.peer,
                                                  m.bytes, m.offset, room));
    }
  }
  return table;
}

}  // namespace

// Where a root may be in place alone, both of its forms are settled at once. All ranks meet twice: to tell each other
// what they send and which scratch they need, and then whether all could map the scratch. If one rank refuses, all do.
void StreamRunner::settle_all(const StreamCall& call, Plans& plans, const Gather& gather, const Until& until) {
  std::vector<uint32_t> variants{call.shape.in_place != 0};
  if (has_root(call.shape.collective) && call.shape.root == setup_.rank) variants = {0, 1};
  std::unique_ptr<StreamPlan> made[2];
  Settlement mine;
  const auto attempt = [](std::string& why, const std::function<void()>& body) {
    if (why.empty()) try {
        body();
      } catch (const Failure& failure) {
        why = failure.text.empty() ? tutti_status_text(failure.status) : failure.text;
      }
  };
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
  if (mine.scratch <= windows_->scratch_bytes()) mine.scratch = 0;  // it stays
  const auto texts = gather(mine.encode());
  settle_memory();
  std::vector<Settlement> all;
  std::vector<std::string> refusals;
  std::vector<uint64_t> scratch;
  for (uint32_t r = 0; r < texts.size(); ++r) {
    all.push_back(Settlement::decode(r, texts[r]));
    refusals.push_back(all.back().refusal);
    scratch.push_back(all.back().scratch);
  }
  std::string why = first_refusal(refusals);
  if (why.empty()) {
    std::string own = windows_->offer_scratch(scratch, until);
    for (const uint32_t in_place : variants)
      attempt(own, [&] {
        made[in_place]->windows = table_of(*made[in_place], setup_.rank, all, places_,
                                           [&](uint32_t peer) { return windows_->offered_bytes(peer); });
      });
    why = first_refusal(gather(own));
    windows_->adopt_scratch(why.empty(), until);
  }
  for (const uint32_t in_place : variants) {
    Plans::InWindows& entry = plans.in_windows[in_place];
    entry.settled = true;
    entry.refusal = why;
    if (!why.empty()) continue;
    entry.form = std::move(made[in_place]);
    entry.form->fuses = may_fuse(*entry.form);
    windows_->use(*entry.form);
  }
}

void StreamRunner::tell_why_not_in_place(const StreamCall& call, const std::string& why) {
  if (why == not_in_place_ || !log_enabled(TUTTI_LOG_INFO)) return;
  not_in_place_ = why;
  log(TUTTI_LOG_INFO, setup_.device.tables.memory->name,
      fmt::format("rank {}: windows of {} are not read in place: {}", setup_.rank,
                  collective_name(call.shape.collective), why));
}

std::vector<tutti_link_traffic> StreamRunner::traffic() const {
  std::map<uint32_t, tutti_link_traffic> mapped;
  for (const auto& [way, channel] : channels_) {
    const auto* one = dynamic_cast<const MappedChannel*>(channel.get());
    if (!one || !one->bytes()) continue;
    auto& row = mapped.try_emplace(one->peer(), tutti_link_traffic{MappedChannel::mapped, one->peer()}).first->second;
    (one->outgoing() ? row.sent_bytes : row.received_bytes) += one->bytes();
  }
  std::vector<tutti_link_traffic> rows;
  for (const auto& [peer, row] : mapped) rows.push_back(row);
  for (const auto& [peer, bytes] : windows_->traffic())
    rows.push_back({Windows::carrier, peer, 0, bytes.sent, bytes.received});
  return rows;
}

void StreamRunner::require_scratch(uint64_t bytes, const std::function<void()>& idle) {
  if (bytes > scratch_bytes_) synchronise(idle, [&] { replace_scratch(bytes); });
}

void StreamRunner::replace_scratch(uint64_t bytes) {
  const auto& [tables, device] = setup_.device;
  const tutti_device* memory = tables.memory;
  if (scratch_captured_)
    captured_.push_back(scratch_);
  else if (scratch_)
    memory->release(memory->self, scratch_);
  scratch_captured_ = false;
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  if (const tutti_status status = memory->allocate(memory->self, device, bytes, &scratch_); status < 0)
    throw Failure(status,
                  fmt::format("device {}: no scratch of {} bytes: {}", memory->name, bytes, take_plugin_error()));
  scratch_bytes_ = bytes;
}

}  // namespace tutti::core
