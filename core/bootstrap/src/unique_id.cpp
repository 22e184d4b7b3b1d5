// SPDX-License-Identifier: Apache-2.0
#include "unique_id.hpp"

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <tutti/base/system_text.hpp>

#include "base/make_failure.hpp"
#include "base/wire.hpp"
#include "bootstrap/authentication.hpp"
#include "meeting.hpp"

namespace tutti::core {
namespace {

constexpr std::string_view kStart = "id:";
constexpr uint32_t kIdVersion = 1;

// The listeners of ids made in this process and not yet used, by job.
struct Listeners {
  std::mutex mutex;
  std::map<std::string, FileDescriptor> by_job;
};
Listeners& listeners() {
  static Listeners& all = *new Listeners;
  return all;
}

}  // namespace

std::string id_text(const MeetingPlace& place) {
  std::string bytes =
      WireWriter().u32(kIdVersion).u32(place.addresses.at(0).port()).raw(*from_hex(place.job)).raw(place.secret).take();
  for (const SocketAddress& address : place.addresses) {
    const std::string raw = address.bytes();
    if (kStart.size() + 2 * (bytes.size() + 1 + raw.size()) > kMaxUniqueId) break;
    bytes += static_cast<char>(raw.size());
    bytes += raw;
  }
  return std::string(kStart) + to_hex(bytes);
}

MeetingPlace parse_id(const std::string& text) {
  const auto bad = [](const std::string& why) {
    return refusal("this is not a unique id (tutti_unique_id_create): {}", why);
  };
  if (text.size() > kMaxUniqueId || !text.starts_with(kStart))
    throw bad(fmt::format("it has {} characters or does not start with id:", text.size()));
  const auto bytes = from_hex(std::string_view(text).substr(kStart.size()));
  if (!bytes) throw bad("it has characters that are no hexadecimal digits, or an odd number of them");
  try {
    WireReader reader(*bytes, "unique id");
    const uint32_t version = reader.u32(), port = reader.u32();
    if (version != kIdVersion) throw bad(fmt::format("it is of version {}, expected {}", version, kIdVersion));
    if (port == 0 || port > 65535) throw bad(fmt::format("its port is {}", port));
    MeetingPlace place;
    place.job = to_hex(reader.raw(kIdNameBytes));
    place.secret = reader.raw(kSecretBytes);
    place.trust = MeetingPlace::Trust::listed;
    for (std::string_view rest = reader.rest(); !rest.empty();) {
      const auto size = static_cast<unsigned char>(rest[0]);
      if ((size != 4 && size != 16) || rest.size() < 1u + size) throw bad("its list of addresses is broken");
      place.addresses.push_back(SocketAddress::from_bytes(rest.substr(1, size), static_cast<uint16_t>(port)));
      place.text += (place.text.empty() ? "" : " or ") + place.addresses.back().text();
      rest.remove_prefix(1u + size);
    }
    if (place.addresses.empty()) throw bad("it names no address");
    return place;
  } catch (const Failure& failure) {
    if (failure.status == TUTTI_INVALID_ARGUMENT) throw;
    throw bad(failure.text);
  }
}

std::pair<MeetingPlace, FileDescriptor> open_meeting_place() {
  FileDescriptor listener = listen_anywhere(0);
  if (!listener) throw make_failure(TUTTI_SYSTEM, "bootstrap: cannot listen on any port: {}", system_text(errno));
  MeetingPlace place{own_addresses(SocketAddress::local_of(listener.get()).port()), "", random_bytes(kSecretBytes),
                     to_hex(random_bytes(kIdNameBytes))};
  if (place.addresses.empty())
    throw Failure(TUTTI_SYSTEM, "bootstrap: no interface of this machine is up with an address");
  return {std::move(place), std::move(listener)};
}

std::string make_unique_id() {
  auto [place, listener] = open_meeting_place();
  const std::lock_guard lock(listeners().mutex);
  listeners().by_job.emplace(place.job, std::move(listener));
  return id_text(place);
}

std::unique_ptr<Bootstrap> meet_by_id(const Rendezvous& rendezvous, const Environment&,
                                      Deadline& deadline) {
  MeetingPlace place = parse_id(rendezvous.where);
  if (rendezvous.joins || rendezvous.rank != 0)
    return join_hub(
        rendezvous, place.text, [&] { return place; }, deadline);
  std::unique_lock lock(listeners().mutex);
  auto listener = listeners().by_job.extract(place.job);
  lock.unlock();
  if (!listener)
    throw Failure(TUTTI_INVALID_USAGE,
                  "rank 0: bootstrap: this unique id was made by another process, or has been used: rank 0 must be the "
                  "process that made the unique id, and each id serves one communicator");
  return open_hub(rendezvous, std::move(place), std::move(listener.mapped()), deadline);
}

}  // namespace tutti::core
