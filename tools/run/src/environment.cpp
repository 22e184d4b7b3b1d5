// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <stdexcept>

#include "network_hosts.hpp"

namespace tuttirun {
namespace {

constexpr uint16_t kNamespacePort = 29500;
constexpr const char* kLouder[] = {"TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_WORLD_SIZE",
                                   "TUTTI_ADDR", "TUTTI_PORT",       "TUTTI_RENDEZVOUS"};
constexpr std::string_view kTorchrun = "TORCHELASTIC_";

std::string random_hex(size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  unsigned char random[64];
  if (::getrandom(random, bytes, 0) != static_cast<ssize_t>(bytes))
    throw std::runtime_error(std::string("getrandom: ") + std::strerror(errno));
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    text += kDigits[random[i] >> 4];
    text += kDigits[random[i] & 15];
  }
  return text;
}

// Binds a socket of the family to any port; -1 when the machine has no such family.
int hold_port(int family, uint16_t& port) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int on = 1, off = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 any = {};  // all zero but the family: the unspecified address and port of both families
  any.sin6_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof any : sizeof(sockaddr_in);
  if (::bind(socket, reinterpret_cast<sockaddr*>(&any), size) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&any), &size) != 0) {
    ::close(socket);
    return -1;
  }
  port = ntohs(any.sin6_port);  // at the same place in both families
  return socket;
}
static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));

}  // namespace

MeetingPlace make_meeting_place(bool in_namespaces) {
  MeetingPlace place;
  place.secret = random_hex(32);
  place.job = random_hex(8);
  if (in_namespaces) {
    place.address = NetworkHosts::address_of_first();
    place.port = kNamespacePort;
    return place;
  }
  place.address = "127.0.0.1";
  place.holder = hold_port(AF_INET6, place.port);
  if (place.holder < 0) place.holder = hold_port(AF_INET, place.port);
  if (place.holder < 0) throw std::runtime_error(std::string("no port can be had: ") + std::strerror(errno));
  return place;
}

std::vector<std::string> environment_of(const Job& job, const MeetingPlace& place, uint32_t rank) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || text.substr(0, kTorchrun.size()) == kTorchrun) continue;
    variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const char* name : kLouder) variables.erase(name);
  const uint32_t host = job.host_of(rank);
  const uint32_t first = job.first_of_host(host);
  const uint32_t end = job.hosts == 0 ? job.ranks : job.first_of_host(host + 1);
  variables["RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = std::to_string(job.ranks);
  variables["LOCAL_RANK"] = std::to_string(rank - first);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(end - first);
  variables["MASTER_ADDR"] = place.address;
  variables["MASTER_PORT"] = std::to_string(place.port);
  variables["TUTTI_SECRET"] = place.secret;
  variables["TUTTI_JOB"] = place.job;
  for (const auto& [name, value] : job.variables) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace tuttirun
