// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator on one host tell each other of collectives in which streams read other processes'
// buffers where they are: a board in shared memory, made by rank 0 when the communicator is made.
//
// For each such operation the ranks meet twice in its round: all say whether they can (`arrive`), then, having mapped
// what they will read, whether they have (`vote`). Nobody comes to the next round before all have voted or somebody has
// refused, so what is said of a round is kept for one round more: by parity.
//
// The board also has the words of the messages, two each, of which one end waits and the other sets:
//
//   sender     empty = 0, full = 1; before it overwrites what it sends, and at the operation's end: wait empty = 1
//   receiver   wait full = 1, full = 0, read where the sender has it, empty = 1
//
// so that after each operation every `full` is 0 again and every `empty` that was used is 1.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/descriptor.hpp"

namespace tutti::core {

class DirectBoard {
 public:
  static constexpr uint32_t most_ranks = 32;
  static constexpr uint32_t most_messages = 32;  // of an operation along one way (peer, lane, direction)

  // A new one, empty. Throws Failure.
  static Descriptor make(uint32_t nranks, uint32_t lanes);
  // Throws Failure when the file is none.
  DirectBoard(Descriptor file, uint32_t rank, uint32_t nranks, uint32_t lanes);
  DirectBoard(const DirectBoard&) = delete;
  DirectBoard& operator=(const DirectBoard&) = delete;
  ~DirectBoard();

  uint32_t nranks() const { return nranks_; }
  uint32_t lanes() const { return lanes_; }
  // The words, at the beginning of the file.
  int file() const { return file_.get(); }
  uint64_t words_bytes() const;
  // Which of them.
  uint64_t word(uint32_t from, uint32_t to, uint32_t lane, uint64_t number, bool full) const {
    return message_index(from, to, lane, number) * 2 + full;
  }

  // Where a message lies: in which allocation of its sender, at which byte. Written before the sender arrives, read
  // before the receiver votes.
  struct Message {
    uint64_t buffer_id = 0, offset = 0;
  };
  Message& message(uint32_t from, uint32_t to, uint32_t lane, uint64_t number) {
    return messages_[message_index(from, to, lane, number)];
  }

  // The two meetings of the next round. `refusal`: why not, or "".
  void arrive(const std::string& refusal);
  bool all_arrived() const;
  void vote(const std::string& refusal);
  bool all_voted() const;
  // Who refused at the meeting that is over, and why: "rank 1: ...". "": nobody did.
  std::string refusal_at_arrival() const { return refusal(&Row::arrivals); }
  std::string refusal_at_vote() const { return refusal(&Row::votes); }
  // The scratch that this rank has handed out; 0: none. Said by arriving, read before voting.
  void set_scratch(uint64_t buffer_id);
  uint64_t scratch(uint32_t rank) const;

  // Handing out this rank's buffers. Any thread.
  bool has_given(uint32_t to, uint64_t buffer_id) const;
  void give(uint32_t to, uint64_t buffer_id);
  // Nobody is to map that buffer any more. True: nobody does. Call it again until then.
  bool withdraw(uint64_t buffer_id);
  // The ranks that may still map what is being withdrawn, "1, 3".
  std::string holders() const;

  // What other ranks withdraw and this one has not acknowledged.
  struct Withdrawal {
    uint32_t owner = 0;
    uint64_t buffer_id = 0, count = 0;
  };
  std::vector<Withdrawal> withdrawals() const;
  void acknowledge(const Withdrawal& withdrawal);
  // This rank maps nothing of others any more, for good.
  void close();
  // Does no other rank map anything? They have closed, or ended.
  bool all_closed() const;
  // Has the rank's process ended? Then it maps nothing at all. Any thread.
  bool is_gone(uint32_t rank) const;

 private:
  struct Said {
    uint32_t refuses;
    char why[236];
  };
  struct alignas(64) Row {
    std::atomic<uint64_t> arrived, voted;  // rounds
    Said arrivals[2], votes[2];            // by parity of the round
    std::atomic<uint64_t> scratch;
    std::atomic<uint64_t> withdrawals, withdrawn;  // how many, and which buffer was the last
    std::atomic<uint64_t> acknowledged[most_ranks];
    std::atomic<uint32_t> closed;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  uint64_t message_index(uint32_t from, uint32_t to, uint32_t lane, uint64_t number) const {
    return ((uint64_t{from} * nranks_ + to) * lanes_ + lane) * most_messages + number;
  }
  void say(Said (Row::*where)[2], const std::string& refusal);
  std::string refusal(Said (Row::*where)[2]) const;
  std::vector<uint32_t> keepers() const;

  const Descriptor file_;
  const uint32_t rank_, nranks_, lanes_;
  uint64_t bytes_ = 0;
  Row* rows_ = nullptr;
  Message* messages_ = nullptr;
  void* mapping_ = nullptr;
  Descriptor alive_;  // holds a lock for as long as this process lives
  uint64_t round_ = 0;

  mutable std::mutex mutex_;
  std::map<uint64_t, std::set<uint32_t>> given_;  // buffer, to whom
  std::optional<uint64_t> withdrawing_;
  std::set<uint32_t> asked_;  // who may have mapped what is being withdrawn
};

}  // namespace tutti::core
