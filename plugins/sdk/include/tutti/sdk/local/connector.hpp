// SPDX-License-Identifier: Apache-2.0
//
// How two ranks of one host come to a link. They exchange Cards (card_exchange.hpp). All else follows from the two
// Cards, whichever end has called connect:
//   1. the higher rank visits the lower one's station, with the descriptors that it brings
//   2. the lower rank makes a file for the pair and its end of the link, and answers with Setup: the file, and the
//      descriptors that it brings
//   3. the higher rank makes its end, which is ready: the other end has been made. It says Ready by pair message
//   4. the lower rank's end is ready, too
// The line between the two is the link's. An end that refuses closes its line and says why by pair message. So a closed
// line alone is no error: the reason follows, or the process has ended, which the core notices.
#pragma once

#include <tutti/plugin/transport.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <new>
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

// The pair message of the higher rank whose end of the link is made.
struct Ready {
  static constexpr uint32_t number = 2;  // the kind of the pair message
  uint32_t reserved = 0;
};

// A setting that both ends must have equal.
struct EqualValue {
  const char* what;  // as errors name it
  uint64_t value;
};

// `Link` is one end of a link, with
//   Line& line();
// [progress], as the endpoint that owns it.
template <typename Link>
class Connector {
 public:
  // The parts of a link.
  struct Parts {
    uint32_t peer;
    const Card& card;                       // the peer's
    Line line;                              // of the endpoint's member
    int file;                               // of the pair; stays the connector's
    std::span<FileDescriptor> descriptors;  // those that the peer brings, as many as this rank brings
  };
  // The transport's part. An exception of the first two refuses the peer.
  struct Steps {
    std::function<FileDescriptor()> make_file;  // the pair's, at its lower rank
    std::function<std::unique_ptr<Link>(Parts)> make_link;
    // Both ends are made. Before that the transport has nothing to do with the link. Must not fail.
    std::function<void(uint32_t peer, std::unique_ptr<Link>)> take_link;
  };

  // At most 4 values, and at most Packet::kMaxDescriptors - 1 descriptors, which outlive the connector. Throws Error.
  Connector(const EndpointBase& endpoint, const tutti_endpoint_config& config, const PairFormat& format,
            std::vector<EqualValue> values, std::vector<int> brings, Station::Member& member, Steps steps)
      : endpoint_(endpoint),
        format_(format),
        exchange_(endpoint, config, format, names_of(values),
                  {[this, values](uint32_t peer) { return make_card(peer, values); },
                   [this](uint32_t peer, const Card& card) { on_card(peer, card); },
                   [this](uint32_t peer) { drop(peer); }}),
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
  bool is_busy() const { return !visits_.empty() || !guests_.empty() || !answers_.empty() || exchange_.has_mail(); }

  // Begins to connect.
  void begin(uint32_t peer) { exchange_.begin(peer); }
  // A pair message. Throws Error for one that cannot be.
  void receive(uint32_t peer, std::string_view bytes) {
    const auto message = exchange_.receive(peer, bytes);
    if (!message || message->kind == exchange_.kCard) return;
    try {
      if (message->kind != Ready::number) throw Error(TUTTI_INVALID_ARGUMENT, "a pair message of unknown kind");
      format_.template body_of<Ready>(*message);
      on_ready(peer);
    } catch (const Error& e) {
      throw exchange_.impossible(peer, e);
    }
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
      if (p.line.lacked_memory()) throw Error(TUTTI_NO_RESOURCES, "out of memory for what it sent");
      if (packet.outcome == Packet::kClosed) return p.line.close();  // why comes by pair message
      packet.check_whole(1 + brings_.size());
      if (!packet.as<Setup>(1 + brings_.size())) throw Error(TUTTI_MISMATCH, "it sent no Setup");
      std::unique_ptr<Link> made =
          make_link(peer, std::move(p.line), packet.descriptors[0], std::span(packet.descriptors).subspan(1));
      exchange_.send(peer, format_.encode(Ready::number, Ready()));
      take(peer, std::move(made));
    });
  }
  // No rank can come to the member now. Those that were about to are refused.
  void refuse_guests(const Error& why) {
    for (const uint32_t peer : member_.awaited()) exchange_.fail(peer, why.status(), why.what());
  }

  // Does what can be done now.
  void advance() {
    exchange_.flush();
    take_guests();
    make_ends();
    answer();
    visit();
  }

 private:
  struct Peer {
    std::optional<Card> card;  // the peer's
    Line line;                 // the higher rank has brought its descriptors there, and waits for Setup
    // At the lower rank, from the visit until Ready.
    std::unique_ptr<Link> made;
    FileDescriptor file;  // of the pair, until Setup is sent
  };

  static std::vector<const char*> names_of(const std::vector<EqualValue>& values) {
    std::vector<const char*> names;
    for (const EqualValue& value : values) names.push_back(value.what);
    return names;
  }
  Card make_card(uint32_t peer, const std::vector<EqualValue>& values) {
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
  void on_ready(uint32_t peer) {
    if (exchange_.error(peer)) return;  // which it did not know yet
    Peer& p = peers_[peer];
    if (!p.made || p.file) throw Error(TUTTI_INVALID_ARGUMENT, "it is ready before it was given a Setup");
    take(peer, std::move(p.made));
  }
  void drop(uint32_t peer) {
    Peer& p = peers_[peer];
    p.line.close();
    p.made.reset();
    p.file.reset();
    std::erase(answers_, peer);
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

  // The lower rank: makes a file and its end of the link for each rank that has come.
  void make_ends() {
    for (size_t waiting = guests_.size(); waiting > 0; waiting--) {
      Station::Guest guest = std::move(guests_.front());
      guests_.pop_front();
      Peer& p = peers_[guest.peer];
      if (!p.card) {  // it was faster than its Card, which is still to be checked
        guests_.push_back(std::move(guest));
        continue;
      }
      guest.line.name_station(p.card->invitation.name);
      exchange_.attempt(guest.peer, [&] {
        p.file = steps_.make_file();
        p.made = make_link(guest.peer, std::move(guest.line), p.file, guest.packet.descriptors);
        answers_.push_back(guest.peer);
      });
    }
  }

  // The lower rank: sends Setup to those for whom all is made.
  void answer() {
    std::erase_if(answers_, [&](uint32_t peer) {
      Peer& p = peers_[peer];
      std::array<int, Packet::kMaxDescriptors> descriptors{p.file.get()};
      std::copy(brings_.begin(), brings_.end(), descriptors.begin() + 1);
      if (p.made->line().send(Setup(), std::span(descriptors).first(1 + brings_.size())) == Socket::kFull) return false;
      p.file.reset();
      return true;
    });
  }

  std::unique_ptr<Link> make_link(uint32_t peer, Line line, const FileDescriptor& file,
                                  std::span<FileDescriptor> descriptors) {
    return steps_.make_link(
        {peer, *peers_[peer].card, std::move(line), file.get(), descriptors.first(brings_.size())});
  }
  void take(uint32_t peer, std::unique_ptr<Link> made) {
    exchange_.linked(peer);
    steps_.take_link(peer, std::move(made));
    try {
      endpoint_.log(TUTTI_LOG_DEBUG, "connected to rank {}", peer);
    } catch (const std::bad_alloc&) {  // nothing may fail any more
    }
  }

  const EndpointBase& endpoint_;
  const PairFormat format_;
  CardExchange<Card> exchange_;
  const std::vector<int> brings_;
  Station::Member& member_;
  const Steps steps_;
  std::vector<Peer> peers_;  // by rank
  std::vector<uint32_t> visits_;
  std::deque<Station::Guest> guests_;
  std::vector<uint32_t> answers_;  // ranks to which Setup is to be sent
};

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
