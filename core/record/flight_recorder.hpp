// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder of one communicator: its last operations and where they stand, kept where they can be read from
// outside, also when this process is stopped or dead (tutti/flight_record.h has the layout, tutti-info --hang the
// reader). With TUTTI_RECORDER=0, or where no file can be had, it keeps the same in memory, for this rank's own
// messages.
//
// Threads: whoever holds the communicator's engine, one at a time; report() and awaits_this_rank() any thread.
// Cost: an operation's begin and end are plain stores into one cache line, with time stamps that the engine takes
// anyway; the rest is written when a wait looks around.
#pragma once

#include <tutti/flight_record.h>
#include <tutti/tutti.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "record/call.hpp"
#include "record/call_report.hpp"
#include "record/flight_folder.hpp"
#include "record/trace.hpp"

namespace tutti::core {

struct RecordedTransfer {
  uint64_t bytes = 0;
  bool sending = false, any_tag = false;
  uint32_t peer = 0, tag = 0;
};

class FlightRecorder {
 public:
  // Where the ranks meet, as far as this rank knows it before they do.
  struct Meeting {
    std::string name;
    std::string place;
    uint64_t key = 0;  // equal on all ranks
    uint32_t rank = UINT32_MAX, nranks = 0;
  };
  // Throws Failure when TUTTI_RECORDER or TUTTI_RECORDER_DIR is wrong; any other trouble is a warning.
  explicit FlightRecorder(const Meeting& meeting);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  // Removes the file after an orderly end; leaves it after a failure.
  ~FlightRecorder();

  // The file, or "" when there is none.
  const std::string& path() const { return path_; }

  void enter(uint32_t phase);
  void met(uint32_t rank, uint32_t nranks);
  void agreed(uint64_t communicator) { put(state_->communicator, communicator); }
  uint64_t communicator() const { return state_->communicator; }
  // After met() and agreed(): traces all that follows. Throws Failure.
  void trace_into(const TracePlace& where);
  Trace* trace() const { return trace_.get(); }  // nullptr: there is none
  void failed(const std::string& why);
  // An orderly end: there is nothing left to tell.
  void ended() { ended_ = true; }
  // Row `service` of the operations.
  void name_service(uint32_t service, const std::string& algorithm, const std::string& transports);

  // Returns the mark of the call's messages: of all calls so far, so that it differs on ranks whose calls have.
  uint32_t begin(const RecordedCall& call, uint64_t sequence, uint64_t tag, uint64_t ticks) {
    const uint64_t slot = sequence % TUTTI_FLIGHT_OPERATIONS;
    tutti_flight_operation& o = operations_[slot];
    put(o.count, call.operation.count);
    put(o.begin_ticks, ticks);
    put(o.end_ticks, uint64_t{0});
    put_words_between(o, call.operation, offsetof(tutti_flight_operation, collective),
                      offsetof(tutti_flight_operation, tag));
    put(o.tag, tag);
    put_words_between(o, call.operation, offsetof(tutti_flight_operation, algorithms), sizeof o);
    calls_hash_ = std::rotl(calls_hash_, 1) * 5 + identity_of(call.identity, tag);
    if (call.op_name.front()) has_op_names_ = true;
    if (has_op_names_)
      for (size_t i = 0; i < call.op_name.size(); ++i) put(op_names_[slot][i], call.op_name[i]);
    std::atomic_ref(o.number).store(sequence + 1, std::memory_order_release);
    if (notes_callers_) note_caller(sequence);
    return static_cast<uint32_t>(calls_hash_ ^ calls_hash_ >> 32);
  }
  // The call is of that row, other than begin() has said.
  void set_service(uint64_t sequence, uint32_t service) {
    tutti_flight_operation& o = operations_[sequence % TUTTI_FLIGHT_OPERATIONS];
    if (o.number == sequence + 1) put(o.service, static_cast<uint16_t>(service));
  }
  void end(uint64_t sequence, uint64_t ticks, tutti_status status) {
    tutti_flight_operation& o = operations_[sequence % TUTTI_FLIGHT_OPERATIONS];
    if (o.number != sequence + 1) return miss();  // 256 later ones have begun since
    if (trace_) trace_->call(o, ticks, status);
    put(o.status, int32_t{status});
    std::atomic_ref(o.end_ticks).store(ticks, std::memory_order_release);
  }
  // A send or receive; returns its number, for end_transfer.
  uint64_t begin_transfer(const RecordedTransfer& transfer, uint32_t service, uint64_t ticks);
  void end_transfer(uint64_t number, uint64_t ticks, tutti_status status);

  // A wait has looked around; `waits` are of the oldest operation under way.
  void look(uint64_t now_ns, uint64_t ticks, bool moved);
  void waits(std::span<const tutti_flight_wait> waits);
  // A call waits in this (tutti_flight_state::awaited) until it is complete.
  void awaits(uint64_t number);
  // By the thread that waits in it, now and then: records where the program makes the call, once it is late.
  void note_site(uint64_t now_ns);

  // This rank's call number `sequence`, when it is among the last that it issued.
  std::optional<Call> call(uint64_t sequence) const;
  // The order of this rank's calls of several communicators, as far as one thread makes the calls of both; of
  // communicators that note which thread does.
  void note_callers() { notes_callers_ = true; }
  // The calls before `sequence`.
  EarlierCalls earlier_calls(uint64_t sequence) const;
  // One of such calls of another rank that this rank has made after its call `sequence`.
  struct LaterCall {
    uint64_t communicator;
    std::string text;  // "all_reduce #1 of world.2"
  };
  std::optional<LaterCall> later_call(const EarlierCalls& theirs, uint64_t sequence) const;

  // Of all calls so far, in order.
  uint64_t calls_hash() const { return calls_hash_; }
  // For other ranks that call the roll. Any thread.
  CallReport report() const;
  // Another rank waits in a call of another communicator. Can it not end before this rank makes its own there? Any
  // thread.
  bool awaits_this_rank(const WaitElsewhere& theirs) const;

 private:
  class Others;
  // Other threads and processes look on.
  template <typename T>
  static void put(T& to, T value) {
    std::atomic_ref(to).store(value, std::memory_order_relaxed);
  }
  // A whole row, word by word.
  template <typename T>
  static void put_words(T& to, const T& row) {
    static_assert(sizeof(T) % sizeof(uint64_t) == 0 && alignof(T) == alignof(uint64_t));
    using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;
    const auto words = std::bit_cast<Words>(row);
    for (size_t w = 0; w < words.size(); ++w) put(reinterpret_cast<uint64_t*>(&to)[w], words[w]);
  }
  // The words of a row from one offset up to another.
  static void put_words_between(tutti_flight_operation& to, const tutti_flight_operation& row, size_t begin,
                                size_t end) {
    static_assert(offsetof(tutti_flight_operation, collective) % 8 == 0 && sizeof row % 8 == 0);
    for (size_t at = begin; at < end; at += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&row) + at, sizeof word);
      put(*reinterpret_cast<uint64_t*>(reinterpret_cast<std::byte*>(&to) + at), word);
    }
  }
  uint64_t outside_ns() const;
  std::string site() const;
  void note_caller(uint64_t sequence);
  bool has_same_caller(const FlightRecorder& other) const;
  std::optional<uint64_t> begin_of(uint64_t sequence) const;
  std::optional<WaitElsewhere> wait() const;
  tutti_flight_transfer* open_transfer(uint64_t number) const;
  bool has_issued(uint64_t sequence) const;
  bool has_met(const WaitElsewhere& theirs) const;
  void* place_file(uint64_t bytes);
  void write_header(tutti_flight_header& header) const;
  void miss() {
    if (trace_) trace_->miss();
  }

  std::unique_ptr<FlightFile> file_;
  std::unique_ptr<std::byte[]> memory_;  // instead of a file
  std::string path_;
  const uint64_t process_, thread_;  // that made it
  bool ended_ = false;
  tutti_flight_state* state_ = nullptr;
  tutti_flight_service* services_ = nullptr;
  tutti_flight_operation* operations_ = nullptr;
  tutti_flight_transfer* transfers_ = nullptr;
  std::unique_ptr<Trace> trace_;
  using OpName = RecordedCall::OpName;
  std::array<OpName, TUTTI_FLIGHT_OPERATIONS> op_names_{};
  bool has_op_names_ = false;  // one of them is not empty
  uint64_t calls_hash_ = 0;
  bool notes_callers_ = false;
  std::atomic<uint64_t> caller_{0};              // the thread that makes the calls; 0: none yet
  std::atomic<uint64_t> issued_{0};              // calls
  uint64_t awaited_ = 0, awaited_since_ns_ = 0;  // what note_site() has seen
};

}  // namespace tutti::core
