// SPDX-License-Identifier: Apache-2.0
//
// How two ranks of one host come to a link. They exchange Cards (card_exchange.hpp). All else follows from the two
// Cards, whichever end has called connect:
//   1. the higher rank visits the lower one's doorway, with the descriptors that it brings
//   2. the lower rank makes a file for the pair, and answers with Setup: the file, and the descriptors that it brings
// From then on the socket is the link's.
#pragma once

#include <tutti/plugin/transport.h>

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/sdk/card_exchange.hpp>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/sleeper.hpp>
#include <utility>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

struct Card {
  std::array<uint64_t, 4> settings{};
  Invitation invitation{};  // with name and token at the lower rank, to whom the higher one comes

  std::string flaw() const { return ""; }
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
        exchange_(endpoint, config, format, names_of(values),
                  {[this, values](uint32_t peer) { return make_card(peer, values); },
                   [this](uint32_t peer, const Card& card) { on_card(peer, card); },
                   [this](uint32_t peer) { drop(peer); }, TUTTI_PEER_FAILED}),
        brings_(std::move(brings)),
        sleeper_(sleeper),
        steps_(std::move(steps)),
        peers_(config.nranks) {
    if (values.size() > Card().settings.size() || brings_.size() >= Packet::kMaxDescriptors)
      throw endpoint_.error(TUTTI_INTERNAL, "more values or descriptors than a card or a packet has room for");
    sleeper_.watch(door_.fd(), EPOLLIN, kDoorway);
  }

  // Why there is no link with this peer, and will be none.
  const std::optional<Error>& refusal(uint32_t peer) const { return exchange_.error(peer); }
  // Is there something to do without news?
  bool is_busy() const { return !visits_.empty() || !guests_.empty() || exchange_.has_mail(); }

  // Begins to connect.
  void begin(uint32_t peer) { exchange_.begin(peer); }
  // A pair message. Throws Error for one that cannot be.
  void receive(uint32_t peer, std::string_view bytes) {
    if (const auto other = exchange_.receive(peer, bytes); other && other->kind != exchange_.kCard)
      throw exchange_.impossible(peer, Error(TUTTI_INVALID_ARGUMENT, "a pair message of unknown kind"));
  }
  // There will be no link with this peer.
  void give_up(uint32_t peer, bool aborts = false) { exchange_.give_up(peer, aborts); }

  // The socket of a peer without a link has news: at the higher rank, the lower one's answer.
  void hear(uint32_t peer) {
    Peer& p = peers_[peer];
    if (!p.socket) return;
    exchange_.attempt(peer, [&] {
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
    exchange_.flush();
    if (knocked || door_.has_strangers() || !guests_.empty()) {
      look_at_the_door();
      answer_guests();
    }
    visit();
  }

 private:
  struct Peer {
    std::optional<Invitation> place;  // the peer's
    Socket socket;                    // this rank has brought its descriptors there, and waits for Setup
  };
  struct Guest {  // a higher rank, to which Setup is to be sent
    uint32_t peer;
    Socket socket;
    std::array<FileDescriptor, Packet::kMaxDescriptors> descriptors;
  };

  static std::vector<const char*> names_of(const std::vector<Value>& values) {
    std::vector<const char*> names;
    for (const Value& value : values) names.push_back(value.what);
    return names;
  }
  Card make_card(uint32_t peer, const std::vector<Value>& values) {
    Card card;
    for (size_t i = 0; i < values.size(); i++) card.settings[i] = values[i].value;
    card.invitation = endpoint_.rank() < peer ? door_.invite(peer) : door_.place();
    return card;
  }
  void on_card(uint32_t peer, const Card& card) {
    door_.check_place(card.invitation);
    peers_[peer].place = card.invitation;
    if (endpoint_.rank() > peer) visits_.push_back(peer);
  }
  void drop(uint32_t peer) {
    peers_[peer].socket.close();
    door_.uninvite(peer);
    std::erase(visits_, peer);
    std::erase_if(guests_, [&](const Guest& guest) { return guest.peer == peer; });
  }

  // The higher rank: goes to the lower ones that have invited it.
  void visit() {
    for (const uint32_t peer : std::vector(visits_))
      exchange_.attempt(peer, [&] {
        auto socket = door_.visit(*peers_[peer].place, endpoint_.rank(), brings_);
        if (!socket) return;
        std::erase(visits_, peer);
        sleeper_.watch(socket->get(), EPOLLIN, peer);
        peers_[peer].socket = std::move(*socket);
      });
  }

  // The lower rank: lets in who comes.
  void look_at_the_door() {
    door_.look([&](uint32_t peer, Socket socket, Packet& packet) {
      exchange_.attempt(peer, [&] {
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
      if (!peers_[guest.peer].place) {  // it was faster than its Card, which is still to be checked
        guests_.push_back(std::move(guest));
        continue;
      }
      exchange_.attempt(guest.peer, [&] {
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
    exchange_.linked(peer);
    endpoint_.log(TUTTI_LOG_DEBUG, "connected to rank {}", peer);
  }

  const EndpointBase& endpoint_;
  CardExchange<Card> exchange_;
  const std::vector<int> brings_;
  Sleeper& sleeper_;
  const Steps steps_;
  Doorway door_;
  std::vector<Peer> peers_;  // by rank
  std::vector<uint32_t> visits_;
  std::deque<Guest> guests_;
};

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
