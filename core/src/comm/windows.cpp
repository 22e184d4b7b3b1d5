// SPDX-License-Identifier: Apache-2.0
//
// Registering memory with a communicator, and the meetings of all ranks in which they agree on it.
#include <fmt/format.h>

#include <future>

#include "comm/communicator_hold.hpp"
#include "plugins/host.hpp"

namespace tutti::core {
namespace {

// A rank's part in tutti_comm_register, as text: a line each.
struct Registering {
  uint64_t bytes = 0;
  uint64_t flags = 0;
  std::string memory;  // "host", or the device's name
  tutti_status status = TUTTI_OK;
  std::string error;   // why the call is wrong on this rank
  std::string staged;  // why its memory cannot be used in place

  std::string encode() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", bytes, flags, memory, status, error, staged);
  }
  static Registering decode(const std::string& text) {
    std::vector<std::string> lines(1);
    for (const char c : text)
      if (c == '\n')
        lines.emplace_back();
      else
        lines.back() += c;
    lines.resize(6);
    const auto number = [](const std::string& line) { return std::strtoull(line.c_str(), nullptr, 10); };
    const auto status = static_cast<tutti_status>(std::strtol(lines[3].c_str(), nullptr, 10));
    return {number(lines[0]), number(lines[1]), lines[2], status, lines[4], lines[5]};
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

std::string first_of(const std::vector<std::string>& reasons) {
  for (size_t r = 0; r < reasons.size(); ++r)
    if (!reasons[r].empty()) return fmt::format("rank {}: {}", r, reasons[r]);
  return {};
}

}  // namespace

// The control plane waits in a thread of its own, so this one moves what is pending: peers may need that to come.
std::vector<std::string> Communicator::gather(const std::string& what, const std::string& mine, uint64_t timeout_ns,
                                              std::optional<uint64_t> sequence) {
  if (nranks_ == 1) return {mine};
  constexpr std::chrono::minutes longer(1);  // this call's own deadline names who is missing
  std::vector<std::string> all;
  try {
    auto meeting = std::async(std::launch::async, [&] {
      return bootstrap_->all_gather(what + '\n' + mine, std::chrono::nanoseconds(timeout_ns) + longer);
    });
    await_peers([&] { return meeting.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }, timeout_ns,
                sequence);
    all = meeting.get();
  } catch (const std::exception& problem) {
    if (!breakdown_.begun()) breakdown_.fail(cause_of(problem));
    throw breakdown_.failure();
  }
  for (uint32_t r = 0; r < nranks_; ++r) {
    const size_t end = all[r].find('\n');
    const std::string theirs = all[r].substr(0, end);
    if (theirs != what) {
      breakdown_.fail({TUTTI_MISMATCH, r,
                       fmt::format("is in {}, rank {} in {}: all ranks must make the same calls",
                                   theirs == "end" ? "tutti_comm_destroy" : theirs, rank_, what)});
      throw breakdown_.failure();
    }
    all[r].erase(0, end + 1);
  }
  return all;
}

// Why processes cannot read each other's device memory in place, as far as this rank knows.
std::string Communicator::why_staged() const {
  if (topology_.hosts() > 1) return "the communicator's ranks are on several hosts";
  std::string why;
  for (uint32_t r = 0; r < nranks_ && why.empty(); ++r)
    if (!topology_.same_process(r, rank_)) topology_.mapping_transport_of(rank_, r, &why);
  if (!why.empty() && !configuration_.transports.empty())
    return fmt::format("TUTTI_TRANSPORT=\"{}\" carries everything: {}", configuration_.transports, why);
  return why;
}

void Communicator::release_window(tutti_window& window, const StreamRunner::Until& until) {
  fabric_.deregister_window(window);
  if (window.where.tables.memory && streams_) streams_->drop(window, until);
}

// Throws Failure where this rank's memory is not fit for a window.
void Communicator::check_window(tutti_window& window) const {
  const auto wrong = [&](std::string why) {
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("tutti_comm_register: {} bytes at {}: {}", window.bytes,
                                                      static_cast<void*>(window.address), why));
  };
  if (!window.address || !window.bytes) wrong("expected memory, and at least one byte");
  for (const auto& other : memory_windows_)
    if (window.address < other->address + other->bytes && other->address < window.address + window.bytes)
      wrong(fmt::format("they overlap window {}, which has {} bytes at {}", other->id, other->bytes,
                        static_cast<void*>(other->address)));
  const DeviceTables& tables = window.where.tables;
  if (!tables.memory) return;
  if (!streams_ || tables.memory != device_.tables.memory || window.where.device != device_.device)
    wrong(fmt::format("they are memory of {}, but {}", tutti::core::describe(window.where),
                      streams_ ? fmt::format("this communicator was bound to {} when it was made "
                                             "(tutti_comm_config.device, TUTTI_DEVICE)",
                                             tutti::core::describe(device_))
                               : why_no_device()));
  const tutti_pointer pointer = classify(tables, window.address);
  const auto left = pointer.bytes - static_cast<uint64_t>(window.address - static_cast<std::byte*>(pointer.base));
  if (window.bytes > left)
    wrong(fmt::format("their allocation on device {} has {} from there on", tables.memory->name, left));
  window.buffer_id = pointer.buffer_id;
}

tutti_window* Communicator::register_window(void* address, uint64_t bytes, uint32_t flags, uint64_t timeout_ns) {
  if (!timeout_ns) timeout_ns = configuration_.timeout_ns;
  auto window = std::make_unique<tutti_window>();
  window->address = static_cast<std::byte*>(address);
  window->bytes = bytes;
  Registering mine;
  mine.bytes = bytes;
  mine.flags = flags;
  const auto attempt = [&mine](const auto& body) {
    if (mine.status == TUTTI_OK) try {
        body();
      } catch (const Failure& failure) {
        mine.status = failure.status;
        mine.error = failure.text;
      }
  };
  attempt([&] {
    window->where = find_device(address);
    if (window->where.tables.memory && streams_) require_mover();
  });
  const Hold hold(*this);
  breakdown_.require_none();
  const bool on_device = window->where.tables.memory != nullptr;
  mine.memory = on_device ? window->where.tables.memory->name : "host";
  attempt([&] { check_window(*window); });
  breakdown_.require_none();
  if (mine.status == TUTTI_OK) mine.staged = on_device ? why_staged() : fabric_.register_window(*window);

  std::vector<Registering> all;
  for (const std::string& text : gather("tutti_comm_register", mine.encode(), timeout_ns, std::nullopt))
    all.push_back(Registering::decode(text));
  std::vector<std::string> reasons;
  bool zero_copy = false;
  for (const Registering& one : all) {
    reasons.push_back(one.staged);
    zero_copy |= (one.flags & TUTTI_WINDOW_ZERO_COPY) != 0;
  }
  window->staged = first_of(reasons);
  const auto until = [&](const auto& enough) { await_peers(enough, timeout_ns, std::nullopt); };
  try {
    require_alike(all);
    window->id = ++last_window_;
    if (on_device) streams_->settle_memory();
    if (on_device && window->staged.empty() && streams_->has_channels()) {
      const std::string why = or_tell([&] { return streams_->share(*window, until); });
      window->staged = first_of(gather("tutti_comm_register", why, timeout_ns, std::nullopt));
      if (!window->staged.empty()) streams_->drop(*window, until);
    }
    if (zero_copy && !window->staged.empty())
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("tutti_comm_register: TUTTI_WINDOW_ZERO_COPY, but {}", window->staged));
  } catch (...) {
    release_window(*window, until);
    throw;
  }
  if (!window->staged.empty())
    log(TUTTI_LOG_INFO, name(), fmt::format("rank {}: window {} is staged: {}", rank_, window->id, window->staged));
  memory_windows_.push_back(std::move(window));
  return memory_windows_.back().get();
}

const tutti_window& Communicator::window(const char* call, const tutti_window* handle) const {
  const auto found = std::ranges::find(memory_windows_, handle, [](const auto& one) { return one.get(); });
  if (found == memory_windows_.end())
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{}: {} is no window of this communicator", call, static_cast<const void*>(handle)));
  return **found;
}

// Nobody uses the window once all have come, and nobody maps it once all have come again.
void Communicator::deregister_window(const tutti_window* handle, uint64_t timeout_ns) {
  if (!timeout_ns) timeout_ns = configuration_.timeout_ns;
  const Hold hold(*this);
  const std::string what =
      fmt::format("tutti_comm_deregister of window {}", window("tutti_comm_deregister", handle).id);
  breakdown_.require_none();
  const auto until = [&](const auto& enough) { await_peers(enough, timeout_ns, std::nullopt); };
  until([this] { return operations_.empty() && (!streams_ || streams_->operations() == 0); });
  gather(what, "", timeout_ns, std::nullopt);
  const auto found = std::ranges::find(memory_windows_, handle, [](const auto& one) { return one.get(); });
  const bool mapped = (*found)->where.tables.memory && (*found)->staged.empty();
  release_window(**found, until);
  memory_windows_.erase(found);
  if (!mapped) return;
  gather(what, "", timeout_ns, std::nullopt);
  streams_->settle_memory();
}

tutti_window_facts Communicator::window_facts(const tutti_window* handle) const {
  const tutti_window& found = window("tutti_comm_window", handle);
  return {sizeof(tutti_window_facts), found.staged.empty(), found.address, found.bytes, found.staged.c_str(), found.id};
}

}  // namespace tutti::core
