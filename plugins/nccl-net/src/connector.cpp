// SPDX-License-Identifier: Apache-2.0
#include "connector.hpp"

#include <algorithm>

#include "endpoint.hpp"

namespace tutti::nccl {

using Clock = std::chrono::steady_clock;

Connector::Connector(Endpoint& endpoint, const tutti_endpoint_config& config)
    : endpoint_(endpoint),
      network_(endpoint.domain().network),
      timeout_(config.timeout_ns),
      traffic_class_(config.traffic_class ? static_cast<int>(config.traffic_class) : -1),
      exchange_(
          endpoint, config, kPairFormat, {kSettingNames.begin(), kSettingNames.end()},
          {[this](uint32_t peer) { return make_card(peer); },
           [this](uint32_t peer, const Card& card) { on_card(peer, card); }, [this](uint32_t peer) { drop(peer); }}),
      attempts_(endpoint.nranks()) {}

Card Connector::make_card(uint32_t peer) {
  const Domain& domain = endpoint_.domain();
  attempts_[peer] = std::make_unique<Attempt>();
  ++open_;
  Attempt& attempt = *attempts_[peer];
  attempt.deadline = timeout_.count() ? Clock::now() + timeout_ : Clock::time_point::max();
  Card card{};
  card.settings = {endpoint_.nranks(), endpoint_.lanes(), domain.eager_bytes, domain.fragment_bytes};
  card.has_device = domain.has_device();
  const std::string name = Network::short_name(domain.settings.network);
  name.copy(card.network.data(), card.network.size() - 1);
  for (size_t i = 0; i < kComms; ++i) {
    attempt.listeners[i] = network_.listen(*endpoint_.context(), domain.device);
    attempt.listeners[i].handle.copy(card.handles[i].data(), kHandleBytes);
  }
  return card;
}

void Connector::on_card(uint32_t peer, const Card& card) {
  const std::string mine = Network::short_name(endpoint_.domain().settings.network);
  if (std::string_view theirs = card.network.data();
      theirs != std::string_view(mine).substr(0, card.network.size() - 1))
    throw sdk::error(TUTTI_MISMATCH,
                     "rank {} uses NCCL's network plugin \"{}\", rank {} \"{}\": set TUTTI_NCCL_NET alike",
                     endpoint_.rank(), mine, peer, theirs);
  attempts_[peer]->card = card;
}

void Connector::receive(uint32_t peer, std::string_view bytes) {
  const auto message = exchange_.receive(peer, bytes);
  if (!message) return;
  try {
    if (message->kind == sdk::CardExchange<Card>::kCard) return;  // a refusal after the link was made: too late
    if (message->kind != kReady) throw kPairFormat.refuse(bytes.size(), "its kind is unknown");
    kPairFormat.body_of<Ready>(*message);
    if (exchange_.error(peer)) return;
    if (!attempts_[peer] || !attempts_[peer]->card || std::exchange(attempts_[peer]->peer_is_ready, true))
      throw kPairFormat.refuse(bytes.size(), "nobody waits for it");
  } catch (const sdk::Error& e) {
    throw exchange_.impossible(peer, e);
  }
  finish(peer);
}

void Connector::advance() {
  if (exchange_.has_mail()) exchange_.flush();
  if (open_ == 0) return;
  for (uint32_t peer = 0; peer < attempts_.size(); ++peer)
    if (attempts_[peer] && attempts_[peer]->card) exchange_.attempt(peer, [&] { step(peer); });
}

void Connector::make_comms(Attempt& attempt) {
  const auto& registrations = endpoint_.domain().registrations;
  const auto& context = endpoint_.context();
  attempt.is_connecting = true;
  for (size_t i = 0; i < kComms; ++i) {
    Comms& comms = attempt.comms;
    if (!comms.send[i].is_open()) {
      char* handle = attempt.card->handles[i].data();
      if (void* comm = network_.connect(*endpoint_.context(), endpoint_.domain().device, traffic_class_, handle))
        comms.send[i] = Comm(network_, context, registrations, comm, true);
    }
    if (!comms.receive[i].is_open())
      if (void* comm = network_.accept(attempt.listeners[i].listener))
        comms.receive[i] = Comm(network_, context, registrations, comm, false);
  }
}

void Connector::step(uint32_t peer) {
  Attempt& attempt = *attempts_[peer];
  if (attempt.link) return;  // waits for the peer
  make_comms(attempt);
  if (!attempt.comms.is_whole()) {
    if (Clock::now() > attempt.deadline)
      throw sdk::error(TUTTI_TIMEOUT, "{}: connect and accept have returned no comm for {:.0f} s", network_.says(),
                       std::chrono::duration<double>(timeout_).count());
    return;
  }
  const Domain& domain = endpoint_.domain();
  const bool device = domain.has_device() || attempt.card->has_device;
  attempt.link =
      std::make_unique<Link>(endpoint_, peer, std::move(attempt.comms), device ? 0 : domain.eager_bytes);
  attempt.link->post_receives();
  exchange_.send(peer, kPairFormat.encode(kReady, Ready{0}));
  finish(peer);
}

void Connector::finish(uint32_t peer) {
  Attempt& attempt = *attempts_[peer];
  if (!attempt.link || !attempt.peer_is_ready) return;
  exchange_.linked(peer);
  endpoint_.establish(peer, std::move(attempt.link));
  attempt.is_connecting = false;
  drop(peer);
}

// A connect that is under way cannot be taken back: NCCL's interface has no function for it. A few more calls usually
// end it, with a comm to close or an error.
void Connector::end_connects(Attempt& attempt) {
  constexpr int most = 8;
  for (size_t i = 0; i < kComms && attempt.is_connecting; ++i)
    for (int k = 0; k < most && !attempt.link && !attempt.comms.send[i].is_open(); ++k) try {
        char* handle = attempt.card->handles[i].data();
        if (void* comm = network_.connect(*endpoint_.context(), endpoint_.domain().device, traffic_class_, handle))
          attempt.comms.send[i] = Comm(network_, endpoint_.context(), endpoint_.domain().registrations, comm, true);
      } catch (const sdk::Error&) {
        break;
      }
}

void Connector::drop(uint32_t peer) {
  if (!attempts_[peer]) return;
  end_connects(*attempts_[peer]);
  for (const Network::Listener& listener : attempts_[peer]->listeners)
    if (listener.listener) network_.close_listen(listener.listener);
  attempts_[peer].reset();
  --open_;
}

void Connector::stop() {
  for (uint32_t peer = 0; peer < attempts_.size(); ++peer) drop(peer);
}

}  // namespace tutti::nccl
