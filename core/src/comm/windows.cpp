// SPDX-License-Identifier: Apache-2.0
#include "comm/windows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "registry/host.hpp"

namespace tutti::core {
namespace {

// A rank's part in tutti_comm_register.
struct Registering {
  uint64_t bytes = 0;
  uint64_t flags = 0;
  tutti_status status = TUTTI_OK;
  std::string memory;  // "host", or the device's name
  std::string error;   // why the call is wrong on this rank
  std::string staged;  // why its memory cannot be used in place

  static void fields(auto& wire, auto& part) {
    wire(part.bytes, part.flags, Field("status", part.status, TUTTI_INTERNAL, TUTTI_OK), part.memory, part.error,
         part.staged);
  }
};

// Throws Failure where the ranks' calls do not go together.
void require_alike(const std::vector<Registering>& all) {
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].status < 0) throw Failure(all[r].status, fmt::format("rank {}: {}", r, all[r].error));
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r].bytes != all[0].bytes || all[r].memory != all[0].memory)
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("tutti_comm_register: rank 0 registers {} bytes of {} memory, rank {} {} bytes of {} "
                                "memory: all ranks register the same number of bytes of one kind",
                                all[0].bytes, all[0].memory, r, all[r].bytes, all[r].memory));
}

}  // namespace

RegisteredWindows::RegisteredWindows(ProgressEngine& engine)
    : engine_(engine),
      base_(engine.base),
      breakdown_(engine.breakdown),
      meetings_(engine.meetings),
      list_(engine.windows),
      streams_(engine.streams.get()) {}

RegisteredWindows::~RegisteredWindows() {
  for (const auto& window : list_) base_.fabric.deregister_window(*window);
}

Streams::Until RegisteredWindows::until(const JointCall& meeting) {
  return [this, &meeting](const auto& enough) { meetings_.await(meeting, enough); };
}

// Why processes cannot read each other's device memory in place, as far as this rank knows.
std::string RegisteredWindows::why_staged() const {
  const Topology& topology = base_.topology;
  if (topology.hosts() > 1) return "the communicator's ranks are on several hosts";
  std::string why;
  for (uint32_t r = 0; r < topology.nranks() && why.empty(); ++r)
    if (!topology.same_process(r, base_.rank())) topology.mapping_transport_of(base_.rank(), r, &why);
  if (const std::string& named = base_.configuration.transports; !why.empty() && !named.empty())
    return fmt::format("TUTTI_TRANSPORT=\"{}\" carries everything: {}", named, why);
  return why;
}

// Throws Failure where this rank's memory is not fit for a window.
void RegisteredWindows::check(tutti_window& window) const {
  const auto wrong = [&](std::string why) {
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("tutti_comm_register: {} bytes at {}: {}", window.bytes,
                                                      static_cast<void*>(window.address), why));
  };
  if (!window.address || !window.bytes) wrong("expected memory, and at least one byte");
  for (const auto& other : list_)
    if (window.address < other->address + other->bytes && other->address < window.address + window.bytes)
      wrong(fmt::format("they overlap window {}, which has {} bytes at {}", other->id, other->bytes,
                        static_cast<void*>(other->address)));
  const DeviceTables& tables = window.where.tables;
  if (!tables.memory) return;
  if (!streams_ || window.where != base_.device)
    wrong(fmt::format("they are memory of {}, but {}", describe(window.where),
                      streams_ ? fmt::format("this communicator was bound to {} when it was made "
                                             "(tutti_comm_config.device, TUTTI_DEVICE)",
                                             describe(base_.device))
                               : base_.why_no_device()));
  const tutti_pointer pointer = classify(tables, window.address);
  window.buffer_id = pointer.buffer_id;
  // Allocations that were mapped one behind the other serve calls as one buffer.
  uint64_t left = pointer.bytes - static_cast<uint64_t>(window.address - static_cast<std::byte*>(pointer.base));
  while (window.bytes > left) {
    const tutti_pointer next = classify(tables, window.address + left);
    if (next.kind != pointer.kind || next.device != pointer.device || next.base != window.address + left)
      wrong(fmt::format("their allocation on device {} has {} from there on", tables.memory->name, left));
    left += next.bytes;
    window.staged = fmt::format(
        "its {} bytes at {} are several allocations in one range of addresses, and processes "
        "map each other's one by one",
        window.bytes, static_cast<void*>(window.address));
  }
}

tutti_window* RegisteredWindows::add(void* address, uint64_t bytes, uint32_t flags, uint64_t timeout_ns) {
  const Hold hold = Hold::locked(engine_.lock);
  breakdown_.require_none();
  Patience patience(timeout_ns ? timeout_ns : base_.configuration.timeout.ns);
  const JointCall meeting{"tutti_comm_register", patience};
  auto window = std::make_unique<tutti_window>();
  window->address = static_cast<std::byte*>(address);
  window->bytes = bytes;
  Registering mine;
  mine.bytes = bytes;
  mine.flags = flags;
  try {
    window->where = find_device(address);
    if (window->where && streams_) engine_.require_mover();
    check(*window);
    if (!window->where)
      mine.staged = base_.fabric.register_window(*window);
    else
      mine.staged = window->staged.empty() ? why_staged() : window->staged;
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    mine.status = failure.status;
    mine.error = failure.text;
  }
  breakdown_.require_none();
  mine.memory = window->where ? window->where.tables.memory->name : "host";

  const auto all = decode_all<Registering>(meetings_.gather(meeting, encode(mine)), "word in tutti_comm_register");
  std::vector<std::string> reasons;
  bool zero_copy = false;
  for (const Registering& one : all) {
    reasons.push_back(one.staged);
    zero_copy |= (one.flags & TUTTI_WINDOW_ZERO_COPY) != 0;
  }
  window->staged = first_refusal(reasons);
  try {
    require_alike(all);
    window->id = ++last_id_;
    if (window->where) streams_->release_pending_windows();
    if (window->where && window->staged.empty()) window->staged = share(*window, meeting);
    if (zero_copy && !window->staged.empty())
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("tutti_comm_register: TUTTI_WINDOW_ZERO_COPY, but {}", window->staged));
  } catch (...) {
    release(*window, meeting);
    throw;
  }
  if (!window->staged.empty())
    log(TUTTI_LOG_INFO, base_.configuration.name,
        fmt::format("rank {}: window {} is staged: {}", base_.rank(), window->id, window->staged));
  return list_.emplace_back(std::move(window)).get();
}

// Other processes map the device's memory. Returns why not all could, or "".
std::string RegisteredWindows::share(tutti_window& window, const JointCall& meeting) {
  if (!streams_->has_channels()) return {};
  const std::string why = breakdown_.guard([&] { return streams_->share(window, until(meeting)); });
  std::string refusal = first_refusal(meetings_.gather(meeting, why));
  if (!refusal.empty()) streams_->drop(window, until(meeting));
  return refusal;
}

void RegisteredWindows::release(tutti_window& window, const JointCall& meeting) {
  base_.fabric.deregister_window(window);
  if (window.where && streams_) streams_->drop(window, until(meeting));
}

WindowList::const_iterator RegisteredWindows::find(const char* call, const tutti_window* window) const {
  const auto found = std::ranges::find(list_, window, [](const auto& one) { return one.get(); });
  if (found == list_.end())
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{}: {} is no window of this communicator", call, static_cast<const void*>(window)));
  return found;
}

// After the first meeting no rank uses the window; after the second one no rank maps it.
void RegisteredWindows::remove(const tutti_window* handle, uint64_t timeout_ns) {
  const Hold hold(engine_.lock);
  const auto found = find("tutti_comm_deregister", handle);
  tutti_window& window = **found;
  Patience patience(timeout_ns ? timeout_ns : base_.configuration.timeout.ns);
  const JointCall meeting{fmt::format("tutti_comm_deregister of window {}", window.id), patience};
  breakdown_.require_none();
  meetings_.await(meeting, [this] { return engine_.operations.empty() && (!streams_ || !streams_->oldest()); });
  meetings_.gather(meeting, "");
  const bool mapped = window.where && window.staged.empty();
  release(window, meeting);
  list_.erase(found);
  if (!mapped) return;
  meetings_.gather(meeting, "");
  streams_->release_pending_windows();
}

tutti_window_facts RegisteredWindows::facts(const tutti_window* handle) const {
  const tutti_window& found = **find("tutti_comm_window", handle);
  return {sizeof(tutti_window_facts), found.staged.empty(), found.address, found.bytes, found.staged.c_str(), found.id};
}

}  // namespace tutti::core
