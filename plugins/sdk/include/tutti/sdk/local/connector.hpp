// SPDX-License-Identifier: Apache-2.0
//
// How two ranks of one host come to a link. They exchange Cards (card_exchange.hpp). All else follows from the two
// Cards, whichever end has called connect:
//   1. the higher rank visits the lower one's station, with the descriptors that it brings
//   2. the lower rank makes a file for the pair, and answers with Setup: the file, and the descriptors that it brings
// From then on the line between the two is the link's.
#pragma once

#include <tutti/plugin/transport.h>

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <tutti/sdk/card_exchange.hpp>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/local/station.hpp>
#include <utility>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

struct Card {
  std::array<uint64_t, 4> settings{};
  Invitation invitation{};     // with the station's name; and a token at the lower rank, to whom the higher one comes
  uint64_t doorbell = 0;       // where the endpoint's page begins in the station's file
  uint32_t invited_as = 0;     // what the guest presents with the token
  uint32_t reserved = 0;

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
  struct Value {
    const char* what;  // as errors name it
    uint64_t value;
  };
  // The parts of a link.
  struct Parts {
    uint32_t peer;
    const Card& card;                       // the peer's
    Line line;                              // of the endpoint's member
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
            std::vector<Value> values, std::vector<int> brings, Station::Member& member, Steps steps)
      : endpoint_(endpoint),
        exchange_(endpoint, config, format, names_of(values),
                  {[this, values](uint32_t peer) { return make_card(peer, values); },
                   [this](uint32_t peer, const Card& card) { on_card(peer, card); },
                   [this](uint32_t peer) { drop(peer); }, TUTTI_PEER_FAILED}),
        brings_(std::move(brings)),
        member_(member),
        steps_(std::move(steps)),
        peers_(config.nranks) {
    if (values.size() > Card().settings.size() || brings_.size() >= Packet::kMaxDescriptors)
      throw endpoint_.error(TUTTI_INTERNAL, "more values or descriptors than a card or a packet has room for");
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

  // The line of a peer without a link has news: at the higher rank, the lower one's answer.
  void hear(uint32_t peer) {
    Peer& p = peers_[peer];
    if (!p.line) return;
    exchange_.attempt(peer, [&] {
      Packet packet = p.line.receive();
      if (packet.outcome == Packet::kNothing) return;
      if (packet.outcome == Packet::kClosed) throw Error(TUTTI_PEER_FAILED, "it ended while it connected");
      packet.check_whole(1 + brings_.size());
      if (!packet.as<Setup>(1 + brings_.size())) throw Error(TUTTI_MISMATCH, "it sent no Setup");
      make_link(peer, std::move(p.line), std::move(packet.descriptors[0]), std::span(packet.descriptors).subspan(1));
    });
  }

  // Does what can be done now.
  void advance() {
    exchange_.flush();
    take_guests();
    answer_guests();
    visit();
  }

 private:
  struct Peer {
    std::optional<Card> card;  // the peer's
    Line line;                 // this rank has brought its descriptors there, and waits for Setup
  };

  static std::vector<const char*> names_of(const std::vector<Value>& values) {
    std::vector<const char*> names;
    for (const Value& value : values) names.push_back(value.what);
    return names;
  }
  Card make_card(uint32_t peer, const std::vector<Value>& values) {
    Card card;
    for (size_t i = 0; i < values.size(); i++) card.settings[i] = values[i].value;
    card.doorbell = member_.page_offset();
    card.invitation = member_.station().place();
    if (endpoint_.rank() < peer) std::tie(card.invitation, card.invited_as) = member_.invite(peer);
    return card;
  }
  void on_card(uint32_t peer, const Card& card) {
    member_.station().check_place(card.invitation);
    peers_[peer].card = card;
    if (endpoint_.rank() > peer) visits_.push_back(peer);
  }
  void drop(uint32_t peer) {
    peers_[peer].line.close();
    member_.uninvite(peer);
    std::erase(visits_, peer);
    std::erase_if(guests_, [&](const Station::Guest& guest) { return guest.peer == peer; });
  }

  // The higher rank: goes to the lower ones that have invited it.
  void visit() {
    for (const uint32_t peer : std::vector(visits_))
      exchange_.attempt(peer, [&] {
        const Card& card = *peers_[peer].card;
        std::optional<Line> line = member_.visit(peer, card.invitation, card.invited_as, brings_);
        if (!line) return;
        std::erase(visits_, peer);
        peers_[peer].line = std::move(*line);
      });
  }

  // The lower rank: lets in who has come.
  void take_guests() {
    for (Station::Guest& guest : member_.take_guests())
      exchange_.attempt(guest.peer, [&] {
        guest.packet.check_whole(brings_.size());
        guests_.push_back(std::move(guest));
      });
  }

  // The lower rank: makes a file for each rank that has come.
  void answer_guests() {
    for (size_t waiting = guests_.size(); waiting > 0; waiting--) {
      Station::Guest guest = std::move(guests_.front());
      guests_.pop_front();
      if (!peers_[guest.peer].card) {  // it was faster than its Card, which is still to be checked
        guests_.push_back(std::move(guest));
        continue;
      }
      guest.line.name_station(peers_[guest.peer].card->invitation.name);
      exchange_.attempt(guest.peer, [&] {
        FileDescriptor file = steps_.make_file();
        std::vector<int> descriptors{file.get()};
        descriptors.insert(descriptors.end(), brings_.begin(), brings_.end());
        switch (guest.line.send(Setup(), descriptors)) {
          case Socket::kFull:
            return guests_.push_back(std::move(guest));
          case Socket::kGone:
            throw Error(TUTTI_PEER_FAILED, "it ended while it connected");
          case Socket::kSent:
            make_link(guest.peer, std::move(guest.line), std::move(file), guest.packet.descriptors);
        }
      });
    }
  }

  void make_link(uint32_t peer, Line line, FileDescriptor file, std::span<FileDescriptor> descriptors) {
    steps_.make_link({peer, *peers_[peer].card, std::move(line), std::move(file), descriptors.first(brings_.size())});
    exchange_.linked(peer);
    endpoint_.log(TUTTI_LOG_DEBUG, "connected to rank {}", peer);
  }

  const EndpointBase& endpoint_;
  CardExchange<Card> exchange_;
  const std::vector<int> brings_;
  Station::Member& member_;
  const Steps steps_;
  std::vector<Peer> peers_;  // by rank
  std::vector<uint32_t> visits_;
  std::deque<Station::Guest> guests_;
};

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
