// SPDX-License-Identifier: Apache-2.0
#include "engine/direct_memory.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "bootstrap/failure.hpp"
#include "engine/direct_buffers.hpp"
#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::seconds unmapping_limit(1);

[[noreturn]] void refuse(std::string text) { throw Failure(TUTTI_NOT_SUPPORTED, std::move(text)); }

uint64_t buffer_id_of(const DeviceTables& tables, const void* address) {
  tutti_pointer pointer{};
  pointer.struct_size = sizeof pointer;
  if (const tutti_status status = tables.memory->classify(tables.memory->self, address, &pointer); status < 0)
    throw Failure(status, fmt::format("device {}: {}", tables.memory->name, take_plugin_error()));
  return pointer.buffer_id;
}

}  // namespace

DirectMemory::~DirectMemory() {
  close();
  if (!is_scratch_free()) return;
  for (void* scratch : retired_) tables_.memory->release(tables_.memory->self, scratch);
}

void DirectMemory::close() {
  while (!imports_.empty()) unmap(imports_.begin()->first);
  place_.board->close();
}

bool DirectMemory::is_scratch_free() const {
  if (!scratch_out_ && retired_.empty()) return true;
  const auto limit = std::chrono::steady_clock::now() + unmapping_limit;
  while (!place_.board->all_closed() && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  return place_.board->all_closed();
}

std::string DirectMemory::agree(Call call, const Until& until, const std::function<void()>& idle) {
  DirectBoard& board = *place_.board;
  const auto attempt = [&call](const std::function<void()>& body) {
    if (!call.refusal.empty()) return;
    try {
      body();
    } catch (const Failure& failure) {
      call.refusal = failure.text.empty() ? tutti_status_text(failure.status) : failure.text;
    }
  };
  tables_ = call.tables;
  attempt([&] { offer(call, idle); });
  board.arrive(call.refusal);
  until([&] {
    send_letters();
    return board.all_arrived();
  });
  if (std::string who = board.refusal_at_arrival(); !who.empty()) return who;
  busy_ = true;
  attempt([&] { take(call, until, idle); });
  board.vote(call.refusal);
  until([&] {
    send_letters();
    return board.all_voted();
  });
  if (std::string who = board.refusal_at_vote(); !who.empty()) {
    busy_ = false;
    return who;
  }
  retired_unmapped_ = !retired_.empty() && !recorded_;
  recorded_ |= call.recorded;
  for (const StreamTraffic& way : call.plan->traffic)
    for (const uint64_t bytes : way.sizes)
      (way.outgoing ? traffic_[way.peer].sent : traffic_[way.peer].received) += bytes;
  return {};
}

// Says where the call's messages lie, and hands what peers have not been given to them.
void DirectMemory::offer(const Call& call, const std::function<void()>& idle) {
  DirectBoard& board = *place_.board;
  if (!words_) {
    idle();
    words_.emplace(call.tables, board.words_bytes(), board.file());
  }
  struct Source {
    const void* address = nullptr;
    std::optional<DirectBuffers::Place> place;
  };
  Source in{call.in, {}}, out{call.out, {}}, scratch{call.scratch, {}};
  const Plan& plan = call.plan->plan;
  for (const StreamStep& step : call.plan->steps) {
    const BoundStep& bound = plan.lanes[step.lane][step.step];
    const Link* link = bound.out ? bound.out : bound.in;
    if (!link || !is_remote(link->peer)) continue;
    if (step.lane >= board.lanes() || step.number >= DirectBoard::most_messages)
      refuse(fmt::format("the schedule has more than {} messages between ranks {} and {}, which is the most",
                         DirectBoard::most_messages, place_.rank, link->peer));
    if (!bound.out) continue;
    DirectBoard::Message& message = board.message(place_.rank, link->peer, step.lane, step.number);
    message = {};
    if (!step.bytes) continue;
    const uint32_t which = bound.src.buffer;
    Source& source = which == TUTTI_BUFFER_IN ? in : which == TUTTI_BUFFER_OUT ? out : scratch;
    if (!source.place) {
      if (which == TUTTI_BUFFER_SCRATCH) {
        source.place = {buffer_id_of(call.tables, source.address), 0};
        board.set_scratch(source.place->buffer_id);
      } else {
        source.place = DirectBuffers::process().find(call.tables, source.address,
                                                     which == TUTTI_BUFFER_IN ? plan.in_bytes : plan.out_bytes);
      }
    }
    message = {source.place->buffer_id,
               source.place->offset + piece_of(plan, bound.src, step.slice).offset + step.offset};
    if (board.has_given(link->peer, message.buffer_id)) continue;
    idle();
    hand_out(call, link->peer, message.buffer_id, source.address, which == TUTTI_BUFFER_SCRATCH);
  }
}

void DirectMemory::hand_out(const Call& call, uint32_t peer, uint64_t buffer_id, const void* address, bool scratch) {
  const tutti_device* memory = call.tables.memory;
  if (!TUTTI_HAS(tutti_device, memory, export_memory)) refuse(fmt::format("device {} exports no memory", memory->name));
  Letter letter;
  letter.to = peer;
  letter.notice.kind = ChannelNotice::memory_of;
  letter.notice.from = place_.rank;
  letter.notice.lane = scratch;
  letter.notice.able = 1;
  int32_t fd = -1;
  if (const tutti_status status = memory->export_memory(memory->self, address, &letter.notice.memory, &fd); status < 0)
    throw Failure(status, fmt::format("device {}: {}", memory->name, take_plugin_error()));
  letter.memory = Descriptor(fd);
  letters_.push_back(std::move(letter));
  place_.board->give(peer, buffer_id);
  if (scratch)
    scratch_out_ = true;
  else
    DirectBuffers::process().given(call.tables, buffer_id, place_.board);
}

void DirectMemory::send_letters() {
  std::erase_if(letters_, [this](const Letter& letter) {
    std::vector<int> descriptors;
    if (letter.memory) descriptors.push_back(letter.memory.get());
    return place_.exchange->send(letter.to, letter.notice, descriptors);
  });
}

// Finds where the call's incoming messages lie here, and maps what is not mapped yet.
void DirectMemory::take(const Call& call, const Until& until, const std::function<void()>& idle) {
  DirectBoard& board = *place_.board;
  std::vector<Buffer> stale, missing;
  for (const auto& [buffer, import] : imports_)
    if (import.scratch && !recorded_ && board.scratch(buffer.first) != buffer.second) stale.push_back(buffer);
  const auto each_incoming = [&](const auto& visit) {
    for (const StreamStep& step : call.plan->steps) {
      const BoundStep& bound = call.plan->plan.lanes[step.lane][step.step];
      if (!bound.in || !is_remote(bound.in->peer)) continue;
      visit(bound.in->peer, step, board.message(bound.in->peer, place_.rank, step.lane, step.number));
    }
  };
  each_incoming([&](uint32_t peer, const StreamStep& step, DirectBoard::Message message) {
    const Buffer buffer{peer, message.buffer_id};
    if (!step.bytes || imports_.contains(buffer) || std::ranges::count(missing, buffer)) return;
    if (const auto known = refused_.find(buffer); known != refused_.end()) refuse(known->second);
    missing.push_back(buffer);
  });
  until([&] {
    send_letters();
    return std::ranges::all_of(missing, [this](const Buffer& buffer) { return hear(buffer); });
  });
  if (!stale.empty() || !missing.empty()) idle();
  for (const Buffer& buffer : stale) unmap(buffer);
  for (const Buffer& buffer : missing) map(call, buffer);
  places_.clear();
  each_incoming([&](uint32_t peer, const StreamStep& step, DirectBoard::Message message) {
    std::byte* at = nullptr;
    if (step.bytes) {
      const Import& import = imports_.at({peer, message.buffer_id});
      if (message.offset > import.bytes || step.bytes > import.bytes - message.offset)
        refuse(fmt::format("{} bytes at {} of rank {}'s memory: it has {} bytes", step.bytes, message.offset, peer,
                           import.bytes));
      at = static_cast<std::byte*>(import.base) + message.offset;
    }
    places_[{peer, step.lane, step.number}] = at;
  });
}

bool DirectMemory::hear(const Buffer& wanted) {
  while (auto received = place_.exchange->receive()) place_.early->push_back(std::move(*received));
  for (auto at = place_.early->begin(); at != place_.early->end();) {
    const ChannelNotice& notice = at->notice;
    if (notice.kind != ChannelNotice::memory_of) {
      ++at;
      continue;
    }
    heard_[{notice.from, notice.memory.buffer_id}] = std::move(*at);
    at = place_.early->erase(at);
  }
  return heard_.contains(wanted);
}

void DirectMemory::map(const Call& call, const Buffer& buffer) {
  const tutti_device* memory = call.tables.memory;
  const MemoryExchange::Received received = std::move(heard_.at(buffer));
  heard_.erase(buffer);
  try {
    if (!TUTTI_HAS(tutti_device, memory, import_memory))
      refuse(fmt::format("device {} maps no memory of other processes", memory->name));
    Import import{nullptr, received.notice.memory.bytes, received.notice.lane != 0};
    const int fd = received.descriptors.empty() ? -1 : received.descriptors[0].get();
    if (const tutti_status status =
            memory->import_memory(memory->self, call.device, &received.notice.memory, fd, &import.base);
        status < 0)
      throw Failure(status, fmt::format("device {}: {}", memory->name, take_plugin_error()));
    imports_[buffer] = import;
  } catch (const Failure& failure) {
    refused_[buffer] = fmt::format("memory of rank {} cannot be mapped: {}", buffer.first, failure.text);
    refuse(refused_[buffer]);
  }
}

void DirectMemory::unmap(const Buffer& buffer) {
  const auto found = imports_.find(buffer);
  if (found == imports_.end()) return;
  if (tables_.memory->close_import(tables_.memory->self, found->second.base) < 0)
    log(TUTTI_LOG_WARN, tables_.memory->name,
        fmt::format("memory of rank {} cannot be unmapped: {}", buffer.first, take_plugin_error()));
  imports_.erase(found);
}

void DirectMemory::heed() {
  if (busy_) return;
  for (const DirectBoard::Withdrawal& withdrawal : place_.board->withdrawals()) {
    const Buffer buffer{withdrawal.owner, withdrawal.buffer_id};
    hear(buffer);
    heard_.erase(buffer);
    refused_.erase(buffer);
    unmap(buffer);
    place_.board->acknowledge(withdrawal);
  }
  release_retired();
}

void DirectMemory::release_retired() {
  if (!std::exchange(retired_unmapped_, false)) return;
  for (void* scratch : retired_) tables_.memory->release(tables_.memory->self, scratch);
  retired_.clear();
}

bool DirectMemory::retire_scratch(const DeviceTables& tables, void* scratch) {
  if (!std::exchange(scratch_out_, false)) return false;
  tables_ = tables;
  release_retired();
  retired_.push_back(scratch);
  place_.board->set_scratch(0);
  return true;
}

StreamSlot DirectMemory::slot(uint32_t peer, uint32_t lane, bool outgoing, uint64_t number) const {
  const auto word = [&](bool full) {
    const uint32_t from = outgoing ? place_.rank : peer, to = outgoing ? peer : place_.rank;
    return reinterpret_cast<uint32_t*>(words_->device()) + place_.board->word(from, to, lane, number, full);
  };
  return {outgoing ? nullptr : places_.at({peer, lane, number}), word(!outgoing), word(outgoing)};
}

void DirectMemory::for_each_awaited(const std::function<void(uint32_t* word)>& visit) const {
  if (!words_) return;
  auto* words = reinterpret_cast<uint32_t*>(words_->host());
  const DirectBoard& board = *place_.board;
  for (uint32_t peer = 0; peer < board.nranks(); ++peer)
    for (uint32_t lane = 0; lane < board.lanes() && is_remote(peer); ++lane)
      for (uint64_t number = 0; number < DirectBoard::most_messages; ++number) {
        visit(words + board.word(peer, place_.rank, lane, number, true));
        visit(words + board.word(place_.rank, peer, lane, number, false));
      }
}

bool DirectMemory::moved() {
  uint64_t now = 0;
  for_each_awaited([&now](uint32_t* word) { now = now * 31 + std::atomic_ref(*word).load(std::memory_order_relaxed); });
  return std::exchange(seen_, now) != now;
}

void DirectMemory::let_go() {
  for_each_awaited([](uint32_t* word) { std::atomic_ref(*word).store(1, std::memory_order_release); });
}

}  // namespace tutti::core
