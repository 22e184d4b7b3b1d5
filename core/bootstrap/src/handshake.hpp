// SPDX-License-Identifier: Apache-2.0
//
// Both ends of a handshake (bootstrap/authentication.hpp): TcpGuest is the end of the rank that listens, introduce the
// end of the rank that connects.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/make_failure.hpp"
#include "base/wire.hpp"
#include "frame_stream.hpp"
#include "net/socket_address.hpp"

namespace tutti::core {

// The most bytes that say how a rank is reached.
inline constexpr uint64_t kMaxContact = 4096;

// How two ranks are reached: rank 0, and the next rank, (rank + 1) mod nranks.
struct Contacts {
  std::string first, next;

  static void fields(auto& wire, auto& contacts) { wire(RawBytes(contacts.first), RawBytes(contacts.next)); }
};

// Opens the socket at which a rank awaits its neighbours, in place of one that it has opened before, and gives its
// contact. `secret`: the job's; `seen`: the rank's address as far as the meeting knows it. Throws Failure.
using OpenDoor = std::function<std::string(const std::string& secret, const SocketAddress& seen)>;

// A rank's description of itself, after it has proved to know the secret.
struct Hello {
  std::string job;
  uint32_t rank = 0;  // or kAnyRank
  uint32_t nranks = 0;
  std::string who;      // "process 12 on host a", for messages
  std::string contact;  // in a meeting: how the rank is reached
  std::string problem;  // in a meeting: why the rank cannot take part; empty: it can

  static void fields(auto& wire, auto& hello) {
    wire(RawBytes(hello.job), hello.rank, hello.nranks, hello.who, RawBytes(hello.contact), hello.problem);
  }
};
inline constexpr uint32_t kAnyRank = 0xffffffff;
inline constexpr uint64_t kMaxHello = 1024 + kMaxContact;
// "process 12 on host a" of this process.
std::string this_process();
// "rank 3", "a newcomer"
std::string name_of(uint32_t rank);

// The answer to a hello that is accepted.
struct Welcome {
  uint32_t host = 0;  // the rank that listens
  uint32_t rank = 0;  // the guest's, and of how many
  uint32_t nranks = 0;

  static void fields(auto& wire, auto& welcome) { wire(welcome.host, welcome.rank, welcome.nranks); }
};
// Throws Failure{TUTTI_MISMATCH}.
Welcome decode_welcome(std::string_view payload);

// A connection that has not yet proved to be a rank. Until the proof is good this reads a fixed number of bytes, and
// nothing that depends on their content.
class TcpGuest {
 public:
  enum class GuestState { talking, introduced, turned_away };

  TcpGuest(FileDescriptor socket, std::string from, Deadline limit, const Tls* tls = nullptr)
      : stream_(std::move(socket), tls, true), from_(std::move(from)), limit_(limit) {}

  // Reads and writes what is possible without blocking.
  GuestState advance(const std::string& secret);
  const std::string& from() const { return from_; }
  const Deadline& limit() const { return limit_; }
  const Hello& hello() const { return hello_; }    // when introduced
  const std::string& why() const { return why_; }  // when turned away
  FrameStream& stream() { return stream_; }

 private:
  enum class HandshakeStage { opening, proof, hello, introduced };
  void read(const std::string& secret);

  FrameStream stream_;
  std::string from_;
  Deadline limit_;
  HandshakeStage stage_ = HandshakeStage::opening;
  std::string expected_proof_;
  Hello hello_;
  std::string why_;
};

// Where a rank awaits others, as known at one moment.
struct MeetingPlace {
  // The meaning of a wrong answer at one of the addresses.
  enum class Trust {
    certain,  // no attempt will succeed
    listed,   // it is not the rank, which is at another address
    stale     // the same, even if it knows the secret: it may be the rank of another run
  };
  std::vector<SocketAddress> addresses;  // tried in turn
  std::string text;                      // for messages
  std::string secret, job;
  Trust trust = Trust::certain;
};
// Asked before each round of attempts. Throws Discouraged when the place is not known yet.
using FindPlace = std::function<MeetingPlace()>;

// A rank that connects to another one.
struct Caller {
  uint32_t rank = 0;  // kAnyRank: the host says which
  uint32_t nranks = 0;
  uint32_t host = 0;                         // the rank to be met
  std::shared_ptr<const Tls> tls = nullptr;  // null: bytes travel as they are
  OpenDoor door = nullptr;                   // null: the host need not know how the caller is reached
};

struct Introduced {
  FrameStream stream;
  Welcome welcome;
  std::string secret;
};

// Nothing will come of this attempt; another may succeed.
struct Discouraged {
  std::string problem;
};

// One attempt: both have proved to know the secret by `limit`, and the host has welcomed the caller by `deadline`. A
// host that has identified a caller counts it as a rank. It would take a cancelled attempt for the loss of that rank,
// so such an attempt is waited for to the end. A caller whose door cannot be opened tells the host so and throws that.
// Throws Discouraged, or Failure when all further attempts are futile.
Introduced introduce(const Caller& caller, const MeetingPlace& place, const SocketAddress& address,
                     const Deadline& limit, const Deadline& deadline);

// Attempts until one succeeds. One of several addresses is tried for `first` at first; each round doubles it, up to 16
// times as long. `check` is called after each round with what went wrong last: it throws when all further attempts are
// futile, or the deadline has passed.
Introduced introduce(const Caller& caller, const FindPlace& find, std::chrono::milliseconds first,
                     const Deadline& deadline, const std::function<void(const std::string& problem)>& check);

}  // namespace tutti::core
