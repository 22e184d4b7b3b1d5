// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cerrno>
#include <cstring>
#include <tutti/base/system_text.hpp>

#include "base/make_failure.hpp"
#include "control_mesh.hpp"
#include "meeting.hpp"

namespace tutti::core {
namespace {

// A meeting place on this host of which no address can be reached: neither side need wait for the other.
void require_loopback(uint32_t rank, const TcpPlace& place, const std::vector<SocketAddress>& addresses) {
  std::string why;
  for (const SocketAddress& address : addresses) {
    const std::string dead = dead_loopback(address);
    if (dead.empty()) return;
    if (why.empty()) why = dead;
  }
  throw make_failure(TUTTI_SYSTEM, "rank {}: bootstrap: {} of {}: the network is unreachable: {}", rank,
                     addresses[0].text(), place.port_variable, why);
}

// Names may appear only once rank 0's host is up.
std::vector<SocketAddress> addresses_of(const TcpPlace& place) try {
  return resolve(place.where);
} catch (const Failure& failure) {
  throw Discouraged{failure.text};
}

// The addresses at which rank 0 is to be found. None: this host does not know the name, and `unknown` says so.
std::vector<SocketAddress> own_place(const TcpPlace& place, std::string& unknown) try {
  std::vector<SocketAddress> addresses = resolve(place.where);
  require_loopback(0, place, addresses);
  return addresses;
} catch (const Failure& failure) {
  if (failure.status != TUTTI_NOT_FOUND) throw;
  unknown = fmt::format("rank 0: {}; correct {}: it names rank 0's own host", failure.text, place.host_variable);
  return {};
}

// The socket on which rank 0 awaits the others; throws with the port's variable when it cannot be had.
FileDescriptor listen_at(const TcpPlace& place, const std::vector<SocketAddress>& addresses, bool everywhere) {
  FileDescriptor listener;
  if (everywhere) {
    listener = listen_anywhere(place.where.port);
  } else {
    for (const SocketAddress& address : addresses) {
      listener = listen_on(address);
      if (listener || errno != EADDRNOTAVAIL) break;
    }
  }
  if (listener) return listener;
  const int error = errno;
  std::string hint = place.note.empty() ? "" : " (" + place.note + ")";
  if (error == EADDRNOTAVAIL) hint += ": rank 0 must run on the host of that address";
  if (error == EADDRINUSE) hint += ": another process has this port; choose another one in " + place.port_variable;
  throw make_failure(TUTTI_SYSTEM, "rank 0: bootstrap: cannot listen on {} port {} of {}: {}{}", place.where.host,
                     place.where.port, place.port_variable, system_text(error), hint);
}

}  // namespace

std::unique_ptr<Bootstrap> meet_by_tcp(const Rendezvous& rendezvous, const Environment& environment,
                                       Deadline& deadline) {
  const auto named = [](std::string_view where) {
    return TcpPlace{parse_host_port(where.substr(6), "rendezvous"), "the rendezvous", "the rendezvous", ""};
  };
  const TcpPlace place = rendezvous.where.empty() ? place_of_launcher(environment) : named(rendezvous.where);
  if (rendezvous.nranks == 1) return meet_nobody(environment.secret);
  const auto rank = static_cast<uint32_t>(rendezvous.rank);
  const std::string text = fmt::format("{} port {}", place.where.host, place.where.port);
  MeetingPlace hub{{}, text, environment.secret, environment.job};
  if (rank != 0) {
    const auto find = [&] {
      hub.addresses = addresses_of(place);
      require_loopback(rank, place, hub.addresses);
      return hub;
    };
    return join_hub(rendezvous, text, find, deadline);
  }
  const bool everywhere = !environment.secret.empty();
  std::string unknown;
  const std::vector<SocketAddress> addresses = own_place(place, unknown);
  if (!unknown.empty()) {
    if (!everywhere) throw Failure(TUTTI_NOT_FOUND, unknown);
    // The others may know the name, or all hosts may once this one is up.
    rendezvous.log(TUTTI_LOG_WARN, unknown + ", or let the others find it; rank 0 awaits them meanwhile");
  }
  FileDescriptor listener = listen_at(place, addresses, everywhere);
  if (environment.secret.empty()) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true))
      rendezvous.log(TUTTI_LOG_WARN, "rank 0: bootstrap: there is no TUTTI_SECRET: listening on " + text +
                                         " only, and whoever reaches it can join or disturb the job");
  }
  try {
    return open_hub(rendezvous, std::move(hub), std::move(listener), deadline);
  } catch (Failure& failure) {
    if (!unknown.empty() && failure.status == TUTTI_TIMEOUT) failure.text = unknown + "; " + failure.text;
    throw;
  }
}

}  // namespace tutti::core
