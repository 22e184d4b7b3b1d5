// SPDX-License-Identifier: Apache-2.0
//
// Pair messages under way between the ranks of a case: what the core's control plane does for endpoints.
#pragma once

#include <tutti/plugin/transport.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

namespace tutti::conformance::contract {

struct Letter {
  uint32_t from = 0;
  std::string bytes;
};

class Mail {
 public:
  virtual ~Mail() = default;
  // False: there is no room now.
  virtual bool put(uint32_t from, uint32_t to, std::string_view bytes) = 0;
  // The next letter to a rank; false: there is none.
  virtual bool take(uint32_t to, Letter& letter) = 0;
  virtual bool has_any(uint32_t to) const = 0;
};

// Between ranks of one process.
class LocalMail : public Mail {
 public:
  bool put(uint32_t from, uint32_t to, std::string_view bytes) override;
  bool take(uint32_t to, Letter& letter) override;
  bool has_any(uint32_t to) const override;
  // So many of the next sends find no room.
  uint32_t refusals = 0;
  // Sent messages, oldest first, with their receivers.
  std::deque<std::pair<uint32_t, Letter>> sent;

 private:
  std::map<uint32_t, std::deque<Letter>> boxes_;
};

// Between processes, in memory that they share. A zeroed Pages is empty. Each (sender, receiver) has a ring of its own,
// so that a process which is killed holds nothing up.
class SharedMail : public Mail {
 public:
  static constexpr uint32_t most_ranks = 4, most_letters = 32;
  struct Ring {
    std::atomic<uint32_t> written, read;
    struct {
      uint32_t bytes;
      char data[TUTTI_PAIR_BYTES];
    } letters[most_letters];
  };
  struct Pages {
    Ring rings[most_ranks][most_ranks];
  };
  explicit SharedMail(Pages& pages) : pages_(pages) {}
  bool put(uint32_t from, uint32_t to, std::string_view bytes) override;
  bool take(uint32_t to, Letter& letter) override;
  bool has_any(uint32_t to) const override;

 private:
  Pages& pages_;
};

}  // namespace tutti::conformance::contract
