// SPDX-License-Identifier: Apache-2.0
#include "unique_id.hpp"

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "bootstrap/authentication.hpp"
#include "make_failure.hpp"
#include "meeting.hpp"
#include "tcp_guest.hpp"
#include "tcp_hub.hpp"
#include "wire.hpp"

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
    throw bad(fmt::format("it has {} characters or does not start with id:", text.size()));
  const auto bytes = from_hex(std::string_view(text).substr(kStart.size()));
  if (!bytes) throw bad("it has characters that are no hexadecimal digits, or an odd number of them");
  try {
    WireReader reader(*bytes, "unique id");
    const uint32_t version = reader.u32();
    if (version != kIdVersion) throw bad(fmt::format("it is of version {}, expected {}", version, kIdVersion));
    UniqueId id;
    const uint32_t port = reader.u32();
    if (port == 0 || port > 65535) throw bad(fmt::format("its port is {}", port));
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
  if (!listener) throw make_failure(TUTTI_SYSTEM, "bootstrap: cannot listen on any port: {}", std::strerror(errno));
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

std::unique_ptr<Meeting> meet_by_id(const Rendezvous& rendezvous, const OpenDoor& door,
                                    std::chrono::nanoseconds timeout) {
  const Deadline deadline(timeout);
  const UniqueId id = UniqueId::parse(rendezvous.where);
  HubPlace place = id.place();
  if (rendezvous.joins || rendezvous.rank != 0) {
    const auto find = [&](std::string&) { return std::optional(place); };
    return join_hub({rendezvous, place.text, find, true}, door, deadline);
  }
  Descriptor listener;
  {
    const std::lock_guard lock(listeners().mutex);
    const auto found = listeners().by_name.find(id.name);
    if (found == listeners().by_name.end())
      throw Failure(TUTTI_INVALID_USAGE,
                    "rank 0: bootstrap: this unique id was made by another process, or has been used: rank 0 must be "
                    "the process that made the unique id, and each id serves one communicator");
    listener = std::move(found->second);
    listeners().by_name.erase(found);
  }
  return open_hub({rendezvous, std::move(listener), place.text, id.secret, place.job}, door, deadline);
}

}  // namespace tutti::core
