// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/unique_id.hpp"

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "bootstrap/authentication.hpp"
#include "bootstrap/tcp_guest.hpp"
#include "bootstrap/tcp_hub.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

constexpr std::string_view kStart = "id:";
constexpr uint32_t kIdVersion = 1;

// The listeners of ids made in this process and not yet used.
struct Listeners {
  std::mutex mutex;
  std::map<std::string, Descriptor> by_name;
};
Listeners& listeners() {
  static Listeners& all = *new Listeners;
  return all;
}

}  // namespace

std::string UniqueId::text() const {
  WireWriter writer;
  writer.u32(kIdVersion).u32(port).raw(name).raw(secret);
  std::string bytes = writer.take();
  for (const SocketAddress& address : addresses) {
    const std::string raw = address.bytes();
    if (kStart.size() + 2 * (bytes.size() + 1 + raw.size()) > kMaxUniqueId) break;
    bytes += static_cast<char>(raw.size());
    bytes += raw;
  }
  return std::string(kStart) + to_hex(bytes);
}

UniqueId UniqueId::parse(const std::string& text) {
  const auto bad = [](const std::string& why) {
    return Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: this is no unique id (tutti_unique_id_create): " + why);
  };
  if (text.size() > kMaxUniqueId || text.compare(0, kStart.size(), kStart) != 0)
    throw bad("it has " + std::to_string(text.size()) + " characters or does not start with id:");
  const auto bytes = from_hex(std::string_view(text).substr(kStart.size()));
  if (!bytes) throw bad("it has characters that are no hexadecimal digits, or an odd number of them");
  try {
    WireReader reader(*bytes, "unique id");
    const uint32_t version = reader.u32();
    if (version != kIdVersion)
      throw bad("it is of version " + std::to_string(version) + ", expected " + std::to_string(kIdVersion));
    UniqueId id;
    const uint32_t port = reader.u32();
    if (port == 0 || port > 65535) throw bad("its port is " + std::to_string(port));
    id.port = static_cast<uint16_t>(port);
    id.name = reader.raw(kIdNameBytes);
    id.secret = reader.raw(kSecretBytes);
    for (std::string_view rest = reader.rest(); !rest.empty();) {
      const auto size = static_cast<unsigned char>(rest[0]);
      if ((size != 4 && size != 16) || rest.size() < 1u + size) throw bad("its list of addresses is broken");
      id.addresses.push_back(SocketAddress::from_bytes(rest.substr(1, size), id.port));
      rest.remove_prefix(1u + size);
    }
    if (id.addresses.empty()) throw bad("it names no address");
    return id;
  } catch (const Failure& failure) {
    if (failure.status == TUTTI_INVALID_ARGUMENT) throw;
    throw bad(failure.text);
  }
}

HubPlace UniqueId::place() const {
  std::string text;
  for (const SocketAddress& address : addresses) text += (text.empty() ? "" : " or ") + address.text();
  return {addresses, text, secret, to_hex(name)};
}

std::pair<UniqueId, Descriptor> open_meeting_place() {
  Descriptor listener = listen_anywhere(0);
  if (!listener)
    throw Failure(TUTTI_SYSTEM, std::string("bootstrap: cannot listen on any port: ") + std::strerror(errno));
  UniqueId id;
  id.port = SocketAddress::local_of(listener.get()).port();
  id.name = random_bytes(kIdNameBytes);
  id.secret = random_bytes(kSecretBytes);
  id.addresses = own_addresses(id.port);
  if (id.addresses.empty())
    throw Failure(TUTTI_SYSTEM, "bootstrap: no interface of this machine is up with an address");
  return {std::move(id), std::move(listener)};
}

std::string make_unique_id() {
  auto [id, listener] = open_meeting_place();
  const std::lock_guard lock(listeners().mutex);
  listeners().by_name.emplace(id.name, std::move(listener));
  return id.text();
}

std::unique_ptr<Bootstrap> meet_by_id(const Rendezvous& rendezvous, std::chrono::nanoseconds timeout) {
  const Deadline deadline(timeout);
  const UniqueId id = UniqueId::parse(rendezvous.where);
  const uint32_t rank = rendezvous.joins ? kAnyRank : static_cast<uint32_t>(rendezvous.rank);
  const uint32_t nranks = rendezvous.joins ? 0 : static_cast<uint32_t>(rendezvous.nranks);
  if (rank != 0) {
    const HubPlace place = id.place();
    return join_hub({rank, nranks, place.text, [&](std::string&) { return std::optional(place); }, true, false,
                     rendezvous.tls, rendezvous.hopeless},
                    deadline);
  }
  TcpHubConfig config;
  {
    const std::lock_guard lock(listeners().mutex);
    const auto found = listeners().by_name.find(id.name);
    if (found == listeners().by_name.end())
      throw Failure(TUTTI_INVALID_USAGE,
                    "rank 0: bootstrap: this unique id was made by another process, or has been used: rank 0 must be "
                    "the process that made the unique id, and each id serves one communicator");
    config.listener = std::move(found->second);
    listeners().by_name.erase(found);
  }
  const HubPlace place = id.place();
  config.place = place.text;
  config.nranks = nranks;
  config.newcomers = rendezvous.newcomers;
  config.hopeless = rendezvous.hopeless;
  config.secret = id.secret;
  config.job = place.job;
  config.handshake_limit = rendezvous.handshake_limit;
  config.tls = rendezvous.tls;
  config.log = rendezvous.log;
  return open_hub(std::move(config), deadline);
}

}  // namespace tutti::core
