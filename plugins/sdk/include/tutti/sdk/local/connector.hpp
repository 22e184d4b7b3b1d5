// SPDX-License-Identifier: Apache-2.0
//
// How two ranks of one host come to a link. Each end sends its Card once by pair message, when it connects or when the
// peer's Card comes. All else follows from the two Cards, whichever end has called connect:
//   1. the higher rank visits the lower one's doorway, with the descriptors that it brings
//   2. the lower rank makes a file for the pair, and answers with Setup: the file, and the descriptors that it brings
// From then on the socket is the link's. An error of either end is final and told at both. Needs fmt (words.hpp).
#pragma once

#include <tutti/plugin/transport.h>

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/endpoint_base.hpp>
#include <tutti/sdk/pair_messages.hpp>
#include <tutti/sdk/sleeper.hpp>
#include <utility>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

// The pair message of each end. `values` are settings that must be equal.
struct Card {
  static constexpr uint32_t number = 1;
  static constexpr size_t kMaxValues = 4;
  std::array<uint64_t, kMaxValues> values{};
  Invitation invitation{};  // with name and token at the lower rank, to whom the higher one comes
};

// The first packet of the lower rank.
struct Setup {
  static constexpr uint32_t number = 1;
  uint32_t kind = number;
};

// [progress], as the endpoint that owns it.
class Connector {
 public:
  // The sleeper's mark of this rank's doorway; sockets have their peer's rank.
  static constexpr uint64_t kDoorway = UINT32_MAX - 1;
  struct Value {
    const char* what;  // as errors name it
    uint64_t value;
  };
  // The parts of a link.
  struct Parts {
    uint32_t peer;
    Socket socket;                          // the sleeper watches it
    FileDescriptor file;                    // of the pair
    std::span<FileDescriptor> descriptors;  // those that the peer brings, as many as this rank brings
  };
  // How the transport takes part. What these throw refuses the peer.
  struct Steps {
    std::function<FileDescriptor()> make_file;  // the pair's, at its lower rank
    std::function<void(Parts)> make_link;
  };

  // At most 4 values, and at most Packet::kMaxDescriptors - 1 descriptors, which outlive the connector. Throws Error.
  Connector(const EndpointBase& endpoint, const tutti_endpoint_config& config, const PairFormat& format,
            std::vector<Value> values, std::vector<int> brings, Sleeper& sleeper, Steps steps)
      : endpoint_(endpoint),
        format_(format),
        values_(std::move(values)),
        brings_(std::move(brings)),
        sleeper_(sleeper),
        steps_(std::move(steps)),
        pairs_(config),
        peers_(config.nranks) {
    if (values_.size() > Card::kMaxValues || brings_.size() >= Packet::kMaxDescriptors)
      throw endpoint_.error(TUTTI_INTERNAL, "more values or descriptors than a card or a packet has room for");
    sleeper_.watch(door_.fd(), EPOLLIN, kDoorway);
  }

  // Why there is no link with this peer, and will be none.
  const std::optional<Error>& refusal(uint32_t peer) const { return peers_[peer].refusal; }
  // Is there something to do without news?
  bool is_busy() const { return !visits_.empty() || !guests_.empty() || !pairs_.is_empty(); }

  // Begins to connect.
  void begin(uint32_t peer) {
    if (std::exchange(peers_[peer].card_sent, true)) return;
    Card card;
    for (size_t i = 0; i < values_.size(); i++) card.values[i] = values_[i].value;
    card.invitation = endpoint_.rank() < peer ? door_.invite(peer) : door_.place();
    pairs_.send(peer, format_.encode(Card::number, card));
  }

  // A pair message. Throws Error for one that cannot be.
  void receive(uint32_t peer, std::string_view bytes) {
    Peer& p = peers_[peer];
    if (p.refusal) return;
    const PairFormat::Message message = decode(peer, bytes);
    if (message.status != TUTTI_OK) {
      if (!p.linked) refuse(peer, TUTTI_PEER_FAILED, "it cannot connect: " + std::string(message.body));
      return;
    }
    p.card = format_.body_of<Card>(message);
    begin(peer);
    if (const std::string text = difference(peer); !text.empty()) return refuse(peer, TUTTI_MISMATCH, text);
    attempt(peer, [&] { door_.check_place(p.card->invitation); });
    if (endpoint_.rank() > peer && !p.refusal) visits_.push_back(peer);
  }

  // No link with this peer any more. The peer is not told.
  void refuse(uint32_t peer, tutti_status status, const std::string& why) {
    Peer& p = peers_[peer];
    p.refusal = endpoint_.error(status, "rank {}: {}", peer, why);
    p.socket.close();
    door_.uninvite(peer);
    pairs_.forget(peer);
    std::erase(visits_, peer);
    std::erase_if(guests_, [&](const Guest& guest) { return guest.peer == peer; });
  }

  // The socket of a peer without a link has news: at the higher rank, the lower one's answer.
  void hear(uint32_t peer) {
    Peer& p = peers_[peer];
    if (!p.socket) return;
    attempt(peer, [&] {
      Packet packet = p.socket.receive();
      if (packet.outcome == Packet::kNothing) return;
      if (packet.outcome == Packet::kClosed) throw Error(TUTTI_PEER_FAILED, "it ended while it connected");
      packet.check_whole(1 + brings_.size());
      if (!packet.as<Setup>(1 + brings_.size())) throw Error(TUTTI_MISMATCH, "it sent no Setup");
      make_link(peer, std::move(p.socket), std::move(packet.descriptors[0]), std::span(packet.descriptors).subspan(1));
    });
  }

  // Does what can be done now. `knocked`: the doorway has news.
  void advance(bool knocked) {
    pairs_.flush();
    if (knocked || door_.has_strangers() || !guests_.empty()) {
      look_at_the_door();
      answer_guests();
    }
    visit();
  }

 private:
  struct Peer {
    bool card_sent = false;
    bool linked = false;
    std::optional<Card> card;      // the peer's
    Socket socket;                 // this rank has brought its descriptors there, and waits for Setup
    std::optional<Error> refusal;  // there is no link, and there will be none
  };
  struct Guest {  // a higher rank, to which Setup is to be sent
    uint32_t peer;
    Socket socket;
    std::array<FileDescriptor, Packet::kMaxDescriptors> descriptors;
  };

  // A Card that can be, or a refusal.
  PairFormat::Message decode(uint32_t peer, std::string_view bytes) const {
    try {
      const PairFormat::Message message = format_.decode(bytes);
      if (message.kind != Card::number) throw format_.refuse(bytes.size(), "their kind is unknown");
      if (message.status == TUTTI_OK) (void)format_.body_of<Card>(message);
      if (message.status == TUTTI_OK && peers_[peer].card) throw format_.refuse(bytes.size(), "a second card");
      return message;
    } catch (const Error& e) {
      throw endpoint_.error(e.status(), "rank {}: {}; do all ranks load the same version of this plugin?", peer,
                            e.what());
    }
  }

  // How the two ranks are set up differently; empty: they are not.
  std::string difference(uint32_t peer) const {
    std::vector<Setting> both;
    bool equal = true;
    for (size_t i = 0; i < values_.size(); i++) {
      both.push_back({values_[i].what, values_[i].value, peers_[peer].card->values[i]});
      equal &= both[i].mine == both[i].theirs;
    }
    return equal ? "" : differences(endpoint_.rank(), peer, both);
  }

  // One step towards a link with `peer`. An error is final: connect tells it, here and at the peer.
  template <typename Step>
  void attempt(uint32_t peer, Step&& step) {
    try {
      step();
    } catch (const Error& e) {
      endpoint_.log(TUTTI_LOG_WARN, "rank {}: no connection: {}", peer, e.what());
      refuse(peer, e.status(), e.what());
      pairs_.send(peer, format_.encode(Card::number, e.status(), e.what()));
    }
  }

  // The higher rank: goes to the lower ones that have invited it.
  void visit() {
    for (const uint32_t peer : std::vector(visits_))
      attempt(peer, [&] {
        auto socket = door_.visit(peers_[peer].card->invitation, endpoint_.rank(), brings_);
        if (!socket) return;
        std::erase(visits_, peer);
        sleeper_.watch(socket->get(), EPOLLIN, peer);
        peers_[peer].socket = std::move(*socket);
      });
  }

  // The lower rank: lets in who comes.
  void look_at_the_door() {
    door_.look([&](uint32_t peer, Socket socket, Packet& packet) {
      attempt(peer, [&] {
        packet.check_whole(brings_.size());
        guests_.push_back({peer, std::move(socket), std::move(packet.descriptors)});
      });
    });
  }

  // The lower rank: makes a file for each rank that has come.
  void answer_guests() {
    for (size_t waiting = guests_.size(); waiting > 0; waiting--) {
      Guest guest = std::move(guests_.front());
      guests_.pop_front();
      if (!peers_[guest.peer].card) {  // it was faster than its Card, which is still to be checked
        guests_.push_back(std::move(guest));
        continue;
      }
      attempt(guest.peer, [&] {
        FileDescriptor file = steps_.make_file();
        std::vector<int> descriptors{file.get()};
        descriptors.insert(descriptors.end(), brings_.begin(), brings_.end());
        switch (guest.socket.send(Setup(), descriptors)) {
          case Socket::kFull:
            return guests_.push_back(std::move(guest));
          case Socket::kGone:
            throw Error(TUTTI_PEER_FAILED, "it ended while it connected");
          case Socket::kSent:
            sleeper_.watch(guest.socket.get(), EPOLLIN, guest.peer);
            make_link(guest.peer, std::move(guest.socket), std::move(file), guest.descriptors);
        }
      });
    }
  }

  void make_link(uint32_t peer, Socket socket, FileDescriptor file, std::span<FileDescriptor> descriptors) {
    steps_.make_link({peer, std::move(socket), std::move(file), descriptors.first(brings_.size())});
    peers_[peer].linked = true;
    endpoint_.log(TUTTI_LOG_DEBUG, "connected to rank {}", peer);
  }

  const EndpointBase& endpoint_;
  const PairFormat format_;
  const std::vector<Value> values_;
  const std::vector<int> brings_;
  Sleeper& sleeper_;
  const Steps steps_;
  PairSender pairs_;
  Doorway door_;
  std::vector<Peer> peers_;  // by rank
  std::vector<uint32_t> visits_;
  std::deque<Guest> guests_;
};

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
