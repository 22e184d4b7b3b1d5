// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "bootstrap/deadline.hpp"
#include "frame_stream.hpp"
#include "meeting.hpp"
#include "wire.hpp"

namespace tutti::core {

// A rank's description of itself, after it has proved to know the secret.
struct Hello {
  std::string job;
  uint32_t rank = 0;  // or kAnyRank
  uint32_t nranks = 0;
  std::string who;      // "process 12 on host a", for messages
  std::string contact;  // in a meeting: how the rank is reached; empty: it cannot take part

  static void fields(auto& wire, auto& hello) { wire(hello.job, hello.rank, hello.nranks, hello.who, hello.contact); }
};
inline constexpr uint32_t kAnyRank = 0xffffffff;
inline constexpr uint64_t kMaxHello = 1024 + kMaxContact;
// "process 12 on host a" of this process.
std::string this_process();

// A connection to the hub that has not yet proved to be a rank: the hub's side of the handshake (authentication.hpp).
// Until the proof is good it reads a fixed number of bytes, and nothing that depends on their content.
class TcpGuest {
 public:
  enum class State { talking, introduced, turned_away };

  TcpGuest(Descriptor socket, std::string from, Deadline limit, const Tls* tls = nullptr);

  // Reads and writes what is possible without blocking.
  State advance(const std::string& secret);
  const std::string& from() const { return from_; }
  const Deadline& limit() const { return limit_; }
  const Hello& hello() const { return hello_; }    // when introduced
  const std::string& why() const { return why_; }  // when turned away
  FrameStream& stream() { return stream_; }

 private:
  enum class Stage { opening, proof, hello };
  bool read_opening(const std::string& secret);
  bool read_proof(const std::string& secret);
  bool read_hello();

  FrameStream stream_;
  std::string from_;
  Deadline limit_;
  Stage stage_ = Stage::opening;
  std::string spoke_nonce_, hub_nonce_;
  Hello hello_;
  std::string why_;
  bool introduced_ = false;
};

}  // namespace tutti::core
