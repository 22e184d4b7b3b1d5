// SPDX-License-Identifier: Apache-2.0
//
// How two endpoints of a transport agree to connect. Each end sends its Card once by pair message: when it is asked to
// connect, or when the peer's Card comes. Settings that differ and errors of either end are final. They are told to the
// other end, and connect reports them at both with one status. Where both ends fail at the same time, each reports its
// own. Needs fmt (words.hpp).
#pragma once

#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/sdk/endpoint_base.hpp>
#include <tutti/sdk/pair_messages.hpp>
#include <utility>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// `Card` is plain bytes, with an array `settings` of uint64_t that must be equal at both ends, and
//   std::string flaw() const;  // why no endpoint can have made it, or ""
// [progress], as the endpoint that owns it.
template <typename Card>
class CardExchange {
 public:
  // The kind of a Card, and of a refusal. A transport gives other kinds to messages of its own.
  static constexpr uint32_t kCard = 1;
  // The transport's part. An Error that one of the first two throws ends connecting.
  struct Steps {
    std::function<Card(uint32_t peer)> make_card;
    std::function<void(uint32_t peer, const Card& card)> on_card;  // the peer's, with equal settings; ours is sent
    std::function<void(uint32_t peer)> drop;                       // connecting has failed: forget what it has made
  };

  // `names` are those of the settings, for errors.
  CardExchange(const EndpointBase& endpoint, const tutti_endpoint_config& config, const PairFormat& format,
               std::vector<const char*> names, Steps steps)
      : endpoint_(endpoint),
        format_(format),
        names_(std::move(names)),
        steps_(std::move(steps)),
        pairs_(config),
        peers_(config.nranks) {}

  // Why there is no link with this peer, and will be none.
  const std::optional<Error>& error(uint32_t peer) const { return peers_[peer].error; }
  // Do pair messages wait for room? flush() sends them.
  bool has_mail() const { return !pairs_.is_empty(); }
  void flush() { pairs_.flush(); }

  // Sends the Card unless it was sent.
  void begin(uint32_t peer) {
    Peer& p = peers_[peer];
    if (p.error || std::exchange(p.sent, true)) return;
    attempt(peer, [&] {
      const Card card = steps_.make_card(peer);
      mine_ = card.settings;
      pairs_.send(peer, format_.encode(kCard, card));
    });
  }
  // The same. Throws the error.
  void connect(uint32_t peer) {
    begin(peer);
    if (peers_[peer].error) throw *peers_[peer].error;
  }
  // A link is made: what the peer says from now on is the transport's matter.
  void linked(uint32_t peer) { peers_[peer].linked = true; }

  // Takes a pair message. Gives back one that is for the transport: of another kind, or a refusal after a link was
  // made; its body lies in `bytes`. Throws Error for bytes that no endpoint sends.
  std::optional<PairFormat::Message> receive(uint32_t peer, std::string_view bytes) {
    Peer& p = peers_[peer];
    std::optional<Card> card;
    try {
      const PairFormat::Message message = format_.decode(bytes);
      const bool refused = message.kind == kCard && message.status != TUTTI_OK;
      if (message.kind != kCard || (refused && p.linked)) return message;
      if (refused) {
        end(peer, message.status, "it cannot connect: " + std::string(message.body));
        return std::nullopt;
      }
      card = format_.template body_of<Card>(message);
      if (const std::string flaw = card->flaw(); !flaw.empty()) throw format_.refuse(bytes.size(), flaw);
      if (std::exchange(p.heard, true)) throw format_.refuse(bytes.size(), "a second card");
    } catch (const Error& e) {
      begin(peer);  // the peer must see the difference, too
      throw impossible(peer, e);
    }
    if (p.error)
      tell(peer, p.error->status(), p.why);
    else
      meet(peer, *card);
    return std::nullopt;
  }
  // The Error for an invalid message of the transport.
  Error impossible(uint32_t peer, const Error& why) const {
    return endpoint_.error(why.status(), "from rank {}: {}; do all ranks load the same version of this plugin?", peer,
                           why.what());
  }

  // One step towards a link. An error is final.
  template <typename Step>
  void attempt(uint32_t peer, Step&& step) {
    try {
      step();
    } catch (const Error& e) {
      fail(peer, e.status(), e.what());
    } catch (const std::bad_alloc&) {
      fail(peer, TUTTI_NO_RESOURCES, "out of memory");
    }
  }
  // Refuses the link, and tells the peer.
  void fail(uint32_t peer, tutti_status status, const std::string& text) {
    if (!end(peer, status, text)) return;
    endpoint_.log(TUTTI_LOG_WARN, "connection with rank {}: {}", peer, text);
    tell(peer, status, text);
  }
  // The same, because this rank gives the peer up or aborts. The peer is told if it may wait for this rank.
  void give_up(uint32_t peer, bool aborts = false) {
    const std::string text =
        aborts ? "it has aborted the communicator" : fmt::format("rank {} has given this rank up", endpoint_.rank());
    if (end(peer, TUTTI_PEER_FAILED, text) && peers_[peer].sent) tell(peer, TUTTI_PEER_FAILED, text);
  }
  // Tells the peer that there is no link.
  void tell(uint32_t peer, tutti_status status, std::string_view text) {
    pairs_.send(peer, format_.encode(kCard, status, text));
  }
  void send(uint32_t peer, std::string message) { pairs_.send(peer, std::move(message)); }

 private:
  struct Peer {
    bool sent = false, heard = false;  // the Cards
    bool linked = false;
    std::optional<Error> error;
    std::string why;  // its text for the peer
  };

  // Notes the error. False: it is too late for one.
  bool end(uint32_t peer, tutti_status status, const std::string& text) {
    Peer& p = peers_[peer];
    if (p.error || p.linked) return false;
    p.why = text;
    p.error = endpoint_.error(status, "connection with rank {}: {}", peer, text);
    steps_.drop(peer);
    return true;
  }
  void meet(uint32_t peer, const Card& card) {
    begin(peer);
    if (peers_[peer].error) return;
    std::vector<Setting> both;
    for (size_t i = 0; i < names_.size(); ++i) both.push_back({names_[i], mine_[i], card.settings[i]});
    if (mine_ != card.settings) return fail(peer, TUTTI_MISMATCH, differences(endpoint_.rank(), peer, both));
    attempt(peer, [&] { steps_.on_card(peer, card); });
  }

  const EndpointBase& endpoint_;
  const PairFormat format_;
  const std::vector<const char*> names_;
  const Steps steps_;
  PairSender pairs_;
  std::vector<Peer> peers_;  // by rank
  decltype(Card::settings) mine_{};
};

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
