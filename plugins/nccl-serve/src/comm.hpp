// SPDX-License-Identifier: Apache-2.0
//
// One end of a connection: an endpoint of the transport with two ranks, of which the sending one is 0. Messages are
// matched here: for each irecv the receiving end grants entries, and an isend takes the first entry of its tag. So a
// message never waits for memory, and its bytes follow in the order of the announcements.
//
// Nothing blocks and no thread runs: everything moves in the calls of NCCL, one thread at a time for a comm.
#pragma once

#include <tutti/plugin/transport.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/sdk/ring.hpp>
#include <vector>

#include "log.hpp"
#include "mailbox.hpp"
#include "served.hpp"
#include "wire.hpp"

namespace tutti::nccl::serve {

class Comm;

// The error that a letter of kRefusal tells.
sdk::Error refusal_of(std::string_view letter, const std::string& who);

// An isend, an irecv or an iflush.
struct Request {
  struct Entry {
    char* data;
    uint64_t room;   // of an irecv
    uint64_t bytes;  // of the message, once it is known
    uint64_t left;   // bytes that are under way
    const Memory* memory;
    int tag;
    bool met;  // the message is announced
  };
  Comm* comm;
  int n;
  std::array<Entry, kMostInGroup> entries;
  int unfinished;  // entries
  bool is_flush;
  bool done() const { return unfinished == 0; }
};

class Comm {
 public:
  static constexpr size_t kMostRequests = 32;  // NCCL_NET_MAX_REQUESTS

  virtual ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Connects. True once the link is there. Throws sdk::Error, finally.
  bool connect();
  // True, with the sizes of its entries: the request is over, and no longer one. Throws sdk::Error where it never will
  // be.
  bool test(Request& request, int* sizes);
  Served& served() const { return served_; }
  int socket() const { return mailbox_.socket(); }  // by which the ends met

 protected:
  struct Setup {
    Served& served;
    Mailbox mailbox;
    Token token;
    uint64_t fragment_bytes;  // the smaller one of both ends
    uint32_t rank;
    int traffic_class;  // negative: none
  };
  explicit Comm(Setup setup);
  enum Rank : uint32_t { kSender = 0, kReceiver = 1 };

  // A control message of the peer. Throws sdk::Error for one that cannot be.
  virtual void on_control(std::string_view message) = 0;
  // Why no more messages come, though the link is whole, and requests wait for them; "" otherwise.
  virtual std::string deserted() const = 0;

  // One round of everything. A failure is remembered.
  void progress();
  // Hands to the transport what it takes now; likewise.
  void begin();
  void check() const;  // throws the failure
  const std::optional<Bye>& peers_bye() const { return bye_; }
  bool peer_is_gone() const { return bye_ || mailbox_.is_over(); }
  const std::string& peers_end() const { return mailbox_.problem(); }

  Request* new_request(int n);
  size_t pending() const { return requests_.size() - free_.size(); }
  bool has_pending() const;  // one that is not done
  // `part_of`: the request of which one more byte is left until the transport has taken the message; or nullptr.
  void push_control(std::string_view head, std::string_view body, Request* part_of);
  // The bytes of an entry, as messages of the lane.
  void push_pieces(Request& request, int entry);
  static void moved(Request& request, int entry, uint64_t bytes) {
    if ((request.entries[static_cast<size_t>(entry)].left -= bytes) == 0) --request.unfinished;
  }
  // "the peer at 10.0.0.2:4711"
  const std::string& peer_says() const { return peer_says_; }

 private:
  struct Control {
    std::array<char, TUTTI_CONTROL_BYTES> bytes;
    size_t size;
    Request* part_of;
  };
  struct Piece {
    Request* request;
    int entry;
    uint64_t offset;
    uint64_t bytes;
  };
  static tutti_status send_pair(void* self, uint32_t peer, const void* data, uint64_t bytes);
  void open_endpoint(const Token& token, int traffic_class);
  void refuse(const sdk::Error& why);
  void read_letters();
  void move_out();
  bool move_in();
  void transfer_over(const tutti_completion& completion);
  void flush(Request& request);
  void look_for_the_end() const;
  uint32_t peer() const { return 1 - rank_; }

  Served& served_;
  Mailbox mailbox_;
  const uint64_t fragment_bytes_;
  const uint32_t rank_;
  const std::string peer_says_;
  tutti_pair_messages pair_{};
  tutti_endpoint* endpoint_ = nullptr;
  tutti_link* link_ = nullptr;
  std::chrono::steady_clock::time_point deadline_;
  std::optional<sdk::Error> failure_;
  std::optional<Bye> bye_;
  std::deque<Request> requests_;
  std::vector<Request*> free_;
  sdk::Ring<Control> controls_;  // that wait for room
  sdk::Ring<Piece> pieces_;      // likewise
  sdk::Ring<Piece> posted_;      // the oldest first
  uint64_t next_cookie_ = 0;     // of a piece that is posted
  uint64_t announced_ = 0;       // messages, by the sending end
  uint32_t rounds_ = 0;
};

class SendComm final : public Comm {
 public:
  SendComm(Served& served, Mailbox mailbox, const Token& token, uint64_t fragment_bytes, int traffic_class)
      : Comm({served, std::move(mailbox), token, fragment_bytes, kSender, traffic_class}) {}
  // nullptr: no irecv of this tag is known, or no room; later.
  Request* send(void* data, uint64_t bytes, int tag, const Memory* memory);

 private:
  struct Granted {
    Grant grant;
    uint32_t number;
    uint32_t taken = 0;  // entries
    std::array<bool, kMostInGroup> is_taken{};
  };
  void on_control(std::string_view message) override;
  std::string deserted() const override;
  struct Place {
    std::deque<Granted>::iterator group;
    uint32_t entry;
  };
  // The first entry of this tag that is not taken; granted_.end(): none.
  Place place_for(int tag);

  std::deque<Granted> granted_;
  uint32_t next_group_ = 0;
};

class ReceiveComm final : public Comm {
 public:
  ReceiveComm(Served& served, Mailbox mailbox, const Token& token, uint64_t fragment_bytes, int traffic_class)
      : Comm({served, std::move(mailbox), token, fragment_bytes, kReceiver, traffic_class}) {}
  struct Part {
    void* data;
    uint64_t bytes;
    int tag;
    const Memory* memory;
  };
  // nullptr: no room now.
  Request* receive(const std::vector<Part>& group);
  // nullptr: nothing is to be done.
  Request* flush(const std::vector<Part>& parts);

 private:
  struct Group {
    Request* request;
    uint32_t number;
    int unmet;
  };
  void on_control(std::string_view message) override;
  std::string deserted() const override;

  std::deque<Group> groups_;  // with entries that are not announced
  uint32_t next_group_ = 0;
  uint64_t met_ = 0;  // messages that were announced
};

}  // namespace tutti::nccl::serve
