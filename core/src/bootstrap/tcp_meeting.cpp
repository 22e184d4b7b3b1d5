// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_meeting.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "bootstrap/tcp_hub.hpp"
#include "bootstrap/tcp_spoke.hpp"

namespace tutti::core {
namespace {

// The socket on which rank 0 awaits the others; throws with the port's variable when it cannot be had.
Descriptor listen_at(const TcpPlace& place, bool everywhere) {
  Descriptor listener;
  if (everywhere) {
    listener = listen_anywhere(place.where.port);
  } else {
    for (const SocketAddress& address : resolve(place.where)) {
      listener = listen_on(address);
      if (listener || errno != EADDRNOTAVAIL) break;
    }
  }
  if (listener) return listener;
  const int error = errno;
  const std::string where = place.where.host + " port " + std::to_string(place.where.port);
  std::string hint = place.note.empty() ? "" : " (" + place.note + ")";
  if (error == EADDRNOTAVAIL) hint += ": rank 0 must run on the host of that address";
  if (error == EADDRINUSE) hint += ": another process has this port; choose another one in " + place.port_variable;
  throw Failure(TUTTI_SYSTEM, "rank 0: bootstrap: cannot listen on " + where + " of " + place.port_variable + ": " +
                                  std::strerror(error) + hint);
}

}  // namespace

std::unique_ptr<Bootstrap> meet_by_tcp(const Rendezvous& rendezvous, const TcpPlace& place,
                                       const Environment& environment, std::chrono::nanoseconds timeout) {
  const Deadline deadline(timeout);
  const auto rank = static_cast<uint32_t>(rendezvous.rank);
  const auto nranks = static_cast<uint32_t>(rendezvous.nranks);
  const std::string text = place.where.host + " port " + std::to_string(place.where.port);
  if (rank != 0) {
    const auto find = [&](std::string& problem) -> std::optional<HubPlace> {
      // Names may appear only once rank 0's host is up.
      try {
        return HubPlace{resolve(place.where), text, environment.secret, environment.job};
      } catch (const Failure& failure) {
        problem = failure.text;
        return std::nullopt;
      }
    };
    return join_hub({rank, nranks, text, find, false, false, rendezvous.tls}, deadline);
  }
  TcpHubConfig config;
  config.listener = listen_at(place, !environment.secret.empty());
  if (environment.secret.empty()) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true))
      rendezvous.log(TUTTI_LOG_WARN, "rank 0: bootstrap: there is no TUTTI_SECRET: listening on " + text +
                                         " only, and whoever reaches it can join or disturb the job");
  }
  config.place = text;
  config.nranks = nranks;
  config.secret = environment.secret;
  config.job = environment.job;
  config.handshake_limit = rendezvous.handshake_limit;
  config.tls = rendezvous.tls;
  config.log = rendezvous.log;
  return open_hub(std::move(config), deadline);
}

}  // namespace tutti::core
