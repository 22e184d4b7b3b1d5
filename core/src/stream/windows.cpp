// SPDX-License-Identifier: Apache-2.0
#include "stream/windows.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "bootstrap/failure.hpp"
#include "plugins/host.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t bit(uint32_t buffer) { return 1u << buffer; }
constexpr uint32_t in_bit = bit(TUTTI_BUFFER_IN), out_bit = bit(TUTTI_BUFFER_OUT);

uint64_t flags_bytes(uint64_t nranks, uint64_t lanes) {
  constexpr uint64_t page = 4096;
  return (nranks * nranks * lanes * Windows::most_messages * 2 * sizeof(uint32_t) + page - 1) / page * page;
}

std::shared_ptr<Descriptor> make_flags(uint64_t bytes) {
  auto file = std::make_shared<Descriptor>(memfd_create("tutti-window-flags", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!*file || ftruncate(file->get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw Failure(TUTTI_NO_RESOURCES,
                  fmt::format("no {} bytes of flags: memfd: {}", bytes, std::generic_category().message(errno)));
  return file;
}

void require_flags(int file, uint64_t bytes) {
  struct stat state {};
  const int seals = file < 0 ? -1 : fcntl(file, F_GET_SEALS);
  if (file < 0 || fstat(file, &state) != 0 || static_cast<uint64_t>(state.st_size) != bytes || seals < 0 ||
      !(seals & F_SEAL_SHRINK))
    throw Failure(TUTTI_MISMATCH, fmt::format("rank 0 has sent no file of {} bytes for flags", bytes));
}

// In place the buffers of a rank are one. Names the one that decides whether the call uses windows.
WindowMessage canonical(const Plan& plan, uint32_t rank, WindowMessage message) {
  const Shape& shape = plan.shape;
  if (!shape.in_place || message.buffer == TUTTI_BUFFER_SCRATCH) return message;
  const uint64_t block = shape.count * plan.element_bytes;
  switch (shape.collective) {
    case TUTTI_ALL_GATHER:
      if (message.buffer == TUTTI_BUFFER_IN) message.offset += rank * block;
      message.buffer = TUTTI_BUFFER_OUT;
      break;
    case TUTTI_REDUCE_SCATTER:
      if (message.buffer == TUTTI_BUFFER_OUT) message.offset += rank * block;
      message.buffer = TUTTI_BUFFER_IN;
      break;
    case TUTTI_ALL_REDUCE:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_REDUCE:
      message.buffer = TUTTI_BUFFER_IN;
      break;
    case TUTTI_BROADCAST:
      message.buffer = TUTTI_BUFFER_OUT;
      break;
    default:
      break;
  }
  return message;
}

}  // namespace

uint64_t WindowPlaces::hash() const {
  uint64_t hash = 0;
  for (const Place& place : {in, out})
    for (const uint64_t part : {place.window ? place.window->id : 0, place.offset})
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u + (hash >> 29);
  return hash;
}

uint32_t deciding_buffers(const Shape& shape) {
  switch (shape.collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_REDUCE_SCATTER:
      return shape.in_place ? in_bit : in_bit | out_bit;
    case TUTTI_ALL_GATHER:
      return shape.in_place ? out_bit : in_bit | out_bit;
    case TUTTI_BROADCAST:
      return out_bit;
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
      return in_bit;
    default:  // scatter: the others read what only its root has
      return 0;
  }
}

std::vector<WindowMessage> window_messages(const StreamPlan& plan, const Topology& topology, uint32_t rank) {
  const uint32_t allowed = deciding_buffers(plan.plan.shape) | bit(TUTTI_BUFFER_SCRATCH);
  std::vector<WindowMessage> sent;
  for (const StreamStep& step : plan.steps) {
    const BoundStep& bound = plan.plan.lanes[step.lane][step.step];
    const Link* link = bound.out ? bound.out : bound.in;
    if (!link || topology.same_process(rank, link->peer)) continue;
    if (step.number >= Windows::most_messages)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("the schedule has more than {} messages between ranks {} and {}, which is the most",
                                Windows::most_messages, rank, link->peer));
    if (!bound.out) continue;
    WindowMessage message{link->peer, step.lane, static_cast<uint32_t>(step.number), bound.src.buffer, 0, step.bytes};
    if (step.bytes)
      message.offset = piece_of(plan.plan, part_of(plan.plan, bound.src, step.part), step.slice).offset + step.offset;
    message = canonical(plan.plan, rank, message);
    if (step.bytes && !(allowed >> message.buffer & 1))
      throw Failure(TUTTI_NOT_SUPPORTED, "the schedule sends from a buffer that not every rank of the call has");
    sent.push_back(message);
  }
  return sent;
}

// ---- Exports and imports ----

std::string Windows::share(tutti_window& window, const Until& until) {
  std::string why = exchange(window.where, window.address, until, &window.bases, &windows_[window.id]);
  for (const auto& [from, letter] : heard_)
    if (why.empty() && window.bases[from] && offered_bytes(from) < window.bytes)
      why = fmt::format("rank {} offers {} bytes, expected {}", from, offered_bytes(from), window.bytes);
  return why;
}

uint64_t Windows::offered_bytes(uint32_t peer) const {
  const auto found = heard_.find(peer);
  if (found == heard_.end() || !found->second.notice.able) return 0;
  const tutti_memory_export& memory = found->second.notice.memory;
  return memory.offset < memory.bytes ? memory.bytes - memory.offset : 0;
}

void Windows::drop(tutti_window& window, const Until& until) {
  window.bases.clear();
  const auto found = windows_.find(window.id);
  if (found == windows_.end()) return;
  if (!found->second.empty()) synchronise(until, [&] { close_imports(found->second); });
  windows_.erase(found);
}

void Windows::synchronise(const Until& until, const std::function<void()>& body) {
  until([&] { return place_.gate->try_run(body); });
}

// Every rank sends a letter to every other one, also when it has nothing to give, so nobody waits in vain.
std::string Windows::exchange(const DeviceMemory& where, std::byte* address, const Until& until,
                              std::vector<std::byte*>* bases, std::vector<Buffer>* imports) {
  tables_ = where.tables;
  std::string why;
  const auto attempt = [&why](const auto& body) {
    try {
      body();
    } catch (const Failure& failure) {
      if (why.empty()) why = failure.text.empty() ? tutti_status_text(failure.status) : failure.text;
    }
  };
  heard_.clear();
  synchronise(until, [&] { attempt([&] { write_letters(where, address); }); });
  until([this] { return read_letters(); });
  bases->assign(place_.topology->nranks(), nullptr);
  synchronise(until, [&] {
    for (auto& [from, letter] : heard_)
      attempt([&, from = from, letter = &letter] { (*bases)[from] = import(where, *letter, imports); });
    attempt([&] {
      const uint64_t bytes = flags_bytes(place_.topology->nranks(), place_.lanes);
      if (flags_) return;
      require_flags(flags_file_ ? flags_file_->get() : -1, bytes);
      flags_.emplace(where.tables, bytes, flags_file_->get());
    });
  });
  return why;
}

void Windows::write_letters(const DeviceMemory& where, const std::byte* address) {
  const tutti_device* memory = where.tables.memory;
  Letter letter;
  letter.notice.kind = ChannelNotice::memory_of;
  letter.notice.from = place_.rank;
  std::string why;
  try {
    if (place_.rank == 0) {
      if (!flags_file_) flags_file_ = make_flags(flags_bytes(place_.topology->nranks(), place_.lanes));
      letter.descriptors.push_back(flags_file_);
    }
    if (address && !TUTTI_HAS(tutti_device, memory, export_memory))
      throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("device {} exports no memory", memory->name));
    int32_t fd = -1;
    if (address && memory->export_memory(memory->self, address, &letter.notice.memory, &fd) < 0)
      throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("device {}: {}", memory->name, take_plugin_error()));
    if (fd >= 0) letter.descriptors.push_back(std::make_shared<Descriptor>(fd));
    letter.notice.able = address != nullptr;
  } catch (const Failure& failure) {
    why = failure.text;
  }
  for (letter.to = 0; letter.to < place_.topology->nranks(); ++letter.to)
    if (letter.to != place_.rank) letters_.push_back(letter);
  if (!why.empty()) throw Failure(TUTTI_NOT_SUPPORTED, why);
}

// True when every letter has been sent and the letter of every other rank has come.
bool Windows::read_letters() {
  std::erase_if(letters_, [this](const Letter& letter) {
    std::vector<int> descriptors;
    for (const auto& one : letter.descriptors) descriptors.push_back(one->get());
    return place_.exchange->send(letter.to, letter.notice, descriptors);
  });
  while (auto received = place_.exchange->receive()) place_.early->push_back(std::move(*received));
  for (auto at = place_.early->begin(); at != place_.early->end();) {
    if (at->notice.kind != ChannelNotice::memory_of || at->notice.from >= place_.topology->nranks()) {
      ++at;
      continue;
    }
    if (at->notice.from == 0 && !at->descriptors.empty()) {
      if (!flags_file_) flags_file_ = std::make_shared<Descriptor>(std::move(at->descriptors.front()));
      at->descriptors.erase(at->descriptors.begin());
    }
    heard_[at->notice.from] = std::move(*at);
    at = place_.early->erase(at);
  }
  return letters_.empty() && heard_.size() == place_.topology->nranks() - 1;
}

// Where this rank's device sees the peer's memory; nullptr where there is nothing to import. A peer that could not
// export says so itself.
std::byte* Windows::import(const DeviceMemory& where, MemoryExchange::Received& letter, std::vector<Buffer>* imports) {
  const ChannelNotice& notice = letter.notice;
  if (!is_remote(notice.from) || !notice.able) return nullptr;
  const tutti_device* memory = where.tables.memory;
  const Buffer buffer{notice.from, notice.memory.buffer_id};
  Import& known = imports_[buffer];
  if (!known.uses) {
    const int fd = letter.descriptors.empty() ? -1 : letter.descriptors[0].get();
    if (!TUTTI_HAS(tutti_device, memory, import_memory) ||
        memory->import_memory(memory->self, where.device, &notice.memory, fd, &known.base) < 0) {
      imports_.erase(buffer);
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("memory of rank {} cannot be mapped: device {}: {}", notice.from, memory->name,
                                TUTTI_HAS(tutti_device, memory, import_memory) ? take_plugin_error()
                                                                               : "it maps no memory of processes"));
    }
  }
  ++known.uses;
  imports->push_back(buffer);
  return static_cast<std::byte*>(known.base) + notice.memory.offset;
}

void Windows::close_imports(std::vector<Buffer>& imports) {
  for (const Buffer& buffer : imports) {
    const auto found = imports_.find(buffer);
    if (found == imports_.end() || --found->second.uses) continue;
    if (tables_.memory->close_import(tables_.memory->self, found->second.base) < 0)
      log(TUTTI_LOG_WARN, tables_.memory->name,
          fmt::format("memory of rank {} cannot be unmapped: {}", buffer.first, take_plugin_error()));
    imports_.erase(found);
  }
  imports.clear();
}

// ---- Scratch ----

std::string Windows::offer_scratch(const DeviceMemory& where, uint64_t bytes, const Until& until) {
  const tutti_device* memory = where.tables.memory;
  next_ = {};
  next_.own = scratch_.own;
  next_.bytes = scratch_.bytes;
  std::string why;
  if (bytes > scratch_.bytes) {
    void* made = nullptr;
    synchronise(until, [&] {
      if (memory->allocate(memory->self, where.device, bytes, &made) < 0)
        why = fmt::format("device {}: no scratch of {} bytes: {}", memory->name, bytes, take_plugin_error());
    });
    next_.own = static_cast<std::byte*>(made);
    next_.bytes = made ? bytes : 0;
  }
  const std::string refusal = exchange(where, next_.own, until, &next_.bases, &next_.imports);
  return why.empty() ? refusal : why;
}

void Windows::adopt_scratch(bool shared, const Until& until) {
  Scratch& old = shared ? scratch_ : next_;
  const bool replaced = scratch_.own != next_.own;
  if (shared && keeps_) {
    kept_.push_back(std::move(scratch_));
    if (!replaced) kept_.back().own = nullptr;
  } else {
    if (!old.imports.empty()) synchronise(until, [&] { close_imports(old.imports); });
    if (replaced && old.own) former_.push_back(old.own);
  }
  if (shared) scratch_ = std::move(next_);
  next_ = {};
}

void Windows::release_former() {
  for (std::byte* scratch : former_) tables_.memory->release(tables_.memory->self, scratch);
  former_.clear();
}

void Windows::release_scratch() {
  release_former();
  for (const Scratch& kept : kept_)
    if (kept.own) tables_.memory->release(tables_.memory->self, kept.own);
  kept_.clear();
  if (scratch_.own) tables_.memory->release(tables_.memory->self, scratch_.own);
  scratch_ = {};
}

void Windows::close() {
  for (auto& [id, imports] : windows_) close_imports(imports);
  windows_.clear();
  close_imports(scratch_.imports);
  close_imports(next_.imports);
  for (Scratch& kept : kept_) close_imports(kept.imports);
}

// ---- Calls ----

uint32_t* Windows::flag(uint32_t from, uint32_t to, uint32_t lane, uint64_t number, bool full) const {
  const uint64_t way = (uint64_t{from} * place_.topology->nranks() + to) * place_.lanes + lane;
  return reinterpret_cast<uint32_t*>(flags_->device()) + (way * most_messages + number) * 2 + full;
}

void Windows::use(const StreamPlan& plan) {
  for (const StreamTraffic& way : plan.traffic)
    for (uint64_t number = 0; number < way.sizes.size(); ++number) {
      const uint32_t from = way.outgoing ? place_.rank : way.peer, to = way.outgoing ? way.peer : place_.rank;
      awaited_.push_back(static_cast<uint64_t>(flag(from, to, way.lane, number, !way.outgoing) -
                                               reinterpret_cast<uint32_t*>(flags_->device())));
    }
  std::ranges::sort(awaited_);
  awaited_.erase(std::ranges::unique(awaited_).begin(), awaited_.end());
}

StreamSlot Windows::slot(const StreamPlan& plan, const WindowPlaces& places, uint32_t way, uint64_t number) const {
  const auto& [peer, lane, outgoing, sizes] = plan.traffic[way];
  const uint32_t from = outgoing ? place_.rank : peer, to = outgoing ? peer : place_.rank;
  StreamSlot slot{nullptr, flag(from, to, lane, number, !outgoing), flag(from, to, lane, number, outgoing)};
  if (outgoing) return slot;
  const WindowMessage& message = plan.windows->incoming[way][number];
  if (!message.bytes) return slot;
  if (message.buffer == TUTTI_BUFFER_SCRATCH) {
    slot.data = scratch_.bases[peer] + message.offset;
  } else {
    const WindowPlaces::Place& place = message.buffer == TUTTI_BUFFER_IN ? places.in : places.out;
    slot.data = place.window->bases[peer] + place.offset + message.offset;
  }
  return slot;
}

void Windows::count(const StreamPlan& plan) {
  for (const StreamTraffic& way : plan.traffic)
    for (const uint64_t bytes : way.sizes)
      (way.outgoing ? traffic_[way.peer].sent : traffic_[way.peer].received) += bytes;
}

bool Windows::moved() {
  if (awaited_.empty()) return false;
  auto* flags = reinterpret_cast<uint32_t*>(flags_->host());
  uint64_t now = 0;
  for (const uint64_t at : awaited_) now = now * 31 + std::atomic_ref(flags[at]).load(std::memory_order_relaxed);
  return std::exchange(seen_, now) != now;
}

void Windows::let_go() {
  if (awaited_.empty()) return;
  auto* flags = reinterpret_cast<uint32_t*>(flags_->host());
  for (const uint64_t at : awaited_) std::atomic_ref(flags[at]).store(1, std::memory_order_release);
}

}  // namespace tutti::core
