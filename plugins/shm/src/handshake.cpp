// SPDX-License-Identifier: Apache-2.0
//
// How links come about: the endpoint's side of the protocol of wire.hpp. Whatever a stranger sends ends its own
// connection and nothing else.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "endpoint.hpp"

namespace tutti::shm {

namespace {
constexpr size_t kMaxStrangers = 64;  // incoming connections without a proof, beyond one for each rank

void check_eventfd(const FileDescriptor& fd) {
  struct stat status {};
  // An anonymous inode has no type; pipes, sockets and files, which could block the writer, have one.
  if (fstat(fd.get(), &status) != 0 || (status.st_mode & S_IFMT) != 0)
    throw sdk::Error(TUTTI_MISMATCH, "what it passed as an eventfd is none");
}
}  // namespace

std::string Endpoint::address() const { return {reinterpret_cast<const char*>(&address_), sizeof address_}; }

Terms Endpoint::terms_for(uint32_t peer) const {
  Terms terms{kWireVersion, rank_, peer, nranks_, lanes_, geometry_.slots, geometry_.slot_bytes, communicator_, {}};
  random_bytes(terms.nonce, sizeof terms.nonce);
  return terms;
}

void Endpoint::check_terms(const Terms& theirs) const {
  const auto differ = [&](const char* what, uint64_t of_theirs, uint64_t of_mine) {
    if (of_theirs != of_mine)
      throw sdk::Error(TUTTI_MISMATCH, "shm: ranks " + std::to_string(theirs.rank) + " and " + std::to_string(rank_) +
                                           " differ in " + what + ": " + std::to_string(of_theirs) + " and " +
                                           std::to_string(of_mine));
  };
  differ("the version of the protocol", theirs.version, kWireVersion);
  differ("the communicator", theirs.communicator, communicator_);
  differ("the number of ranks", theirs.nranks, nranks_);
  differ("the rank that is spoken to", theirs.peer, rank_);
  differ("the number of lanes", theirs.lanes, lanes_);
  differ("TUTTI_SHM_SLOTS", theirs.slots, geometry_.slots);
  differ("TUTTI_SHM_SLOT_BYTES", theirs.slot_bytes, geometry_.slot_bytes);
  if (theirs.rank >= nranks_ || theirs.rank == rank_)
    throw sdk::Error(TUTTI_MISMATCH, "shm: a peer says that it is rank " + std::to_string(theirs.rank));
}

Address Endpoint::check_address(uint32_t peer, std::string_view bytes) const {
  Address theirs;
  if (bytes.size() != sizeof theirs)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, me() + ": the address of rank " + std::to_string(peer) + " has " +
                                                 std::to_string(bytes.size()) + " bytes; expected " +
                                                 std::to_string(sizeof theirs));
  std::memcpy(&theirs, bytes.data(), sizeof theirs);
  if (theirs.magic != kWireMagic || theirs.rank != peer || theirs.version != kWireVersion)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, me() + ": what was given as the address of rank " + std::to_string(peer) +
                                                 " is none of this transport, version " + std::to_string(kWireVersion));
  const char* difference = nullptr;
  if (std::memcmp(theirs.boot_id, address_.boot_id, sizeof theirs.boot_id) != 0)
    difference = "is on another host (its boot id differs)";
  else if (theirs.network_namespace != address_.network_namespace)
    difference = "is in another network namespace of this host, so its unix socket cannot be reached";
  else if (theirs.uid != address_.uid)
    difference = "belongs to another user";
  if (difference)
    throw sdk::Error(TUTTI_NOT_SUPPORTED, me() + ": rank " + std::to_string(peer) + " " + difference +
                                              "; use a network transport for this pair");
  return theirs;
}

bool Endpoint::connecting(uint32_t peer) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](const auto& entry) {
    const Connection& c = *entry.second;
    return c.peer == peer && (c.active || c.step == Connection::kAwaitSetup);
  });
}

Link* Endpoint::connect(uint32_t peer, std::string_view bytes) {
  if (peer >= nranks_ || peer == rank_)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     me() + ": connect to rank " + std::to_string(peer) + " of " + std::to_string(nranks_));
  if (aborted_) throw sdk::Error(TUTTI_ABORTED, me() + " was aborted");
  if (given_up_[peer]) throw sdk::Error(TUTTI_PEER_FAILED, me() + ": rank " + std::to_string(peer) + " was given up");
  if (links_[peer]) return links_[peer].get();
  const Address address = check_address(peer, bytes);
  read_sockets();
  if (links_[peer]) return links_[peer].get();
  if (const auto error = connect_errors_.extract(peer)) throw error.mapped();
  if (connecting(peer)) return nullptr;

  auto claim = PairClaim::take(address_, address);
  if (!claim) return nullptr;
  auto socket = connect_to(address);
  if (!socket) return nullptr;
  if (!same_user(socket->get()))
    throw sdk::Error(TUTTI_PEER_FAILED,
                     me() + ": the socket of rank " + std::to_string(peer) + " belongs to another user");
  auto connection = std::make_unique<Connection>();
  connection->socket = std::move(*socket);
  connection->active = true;
  connection->claim.emplace(*std::move(claim));
  connection->step = Connection::kAwaitChallenge;
  connection->peer = peer;
  connection->mine = terms_for(peer);
  Hello hello;
  hello.terms = connection->mine;
  if (connection->socket.send(hello) != Socket::kSent)
    throw sdk::Error(TUTTI_PEER_FAILED, me() + ": rank " + std::to_string(peer) + " closed the connection at once");
  const int fd = connection->socket.get();
  watch(fd);
  connections_[fd] = std::move(connection);
  return nullptr;
}

void Endpoint::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw sdk::system_error(me() + ": epoll_ctl", errno);
}

void Endpoint::accept_connections() {
  for (;;) {
    FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Whoever waits there cannot be served, and would wait until its deadline.
      throw sdk::system_error(me() + ": accepting a connection", errno);
    }
    const auto strangers =
        static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) {
          return !entry.second->active && entry.second->step != Connection::kAwaitSetup;
        }));
    if (!same_user(fd.get()) || strangers >= nranks_ + kMaxStrangers) {
      sdk::log(TUTTI_LOG_WARN, me() + " refused a connection of another user, or one too many");
      continue;
    }
    const int number = fd.get();
    watch(number);
    auto connection = std::make_unique<Connection>();
    connection->socket = Socket(std::move(fd));
    connections_[number] = std::move(connection);
  }
}

// Reads what has come on a connection. Ends with the connection dropped, turned into a link, or waiting.
void Endpoint::step(Connection& connection) {
  const uint32_t peer = connection.peer;
  const bool expected = connection.active || connection.step == Connection::kAwaitSetup;
  const int fd = connection.socket.get();
  try {
    for (auto still = connections_.find(fd); still != connections_.end() && connection.socket;
         still = connections_.find(fd)) {
      Packet packet = connection.socket.receive();
      if (packet.outcome == Packet::kNothing) return;
      advance(connection, packet);
    }
  } catch (const sdk::Error& e) {
    sdk::log(TUTTI_LOG_WARN, me() + " ended a handshake: " + e.what());
    if (const auto found = connections_.find(fd); found != connections_.end()) {
      connection.socket.refuse(e.what());
      drop(connection);
    }
    if (expected && peer < nranks_ && !links_[peer]) {
      connect_errors_.erase(peer);
      connect_errors_.emplace(peer, e);
    }
  }
}

void Endpoint::drop(Connection& connection) { connections_.erase(connection.socket.get()); }

void Endpoint::advance(Connection& c, Packet& packet) {
  const std::string who = "rank " + std::to_string(c.peer);
  if (packet.truncated && c.step == Connection::kAwaitSetup)
    throw sdk::Error(TUTTI_NO_RESOURCES, me() + ": " + who +
                                             "'s descriptors were lost on their way: this process may not open that "
                                             "many (ulimit -n)");
  if (packet.outcome == Packet::kClosed) {
    if (!c.active && c.step != Connection::kAwaitSetup) return drop(c);  // a stranger, or one who crossed
    throw sdk::Error(TUTTI_PEER_FAILED, me() + ": " + who + " ended during the handshake");
  }
  if (const auto refused = packet.as<Refused>()) {
    std::string why(refused->why, strnlen(refused->why, sizeof refused->why));
    std::replace_if(
        why.begin(), why.end(), [](char ch) { return ch < ' ' || ch > '~'; }, '?');
    throw sdk::Error(TUTTI_MISMATCH, me() + ": " + who + " refused to connect: " + why);
  }
  if (packet.as<Crossed>() && rank_ > c.peer) return drop(c);  // the lower rank chose another connection
  switch (c.step) {
    case Connection::kAwaitHello:
      if (const auto hello = packet.as<Hello>()) return on_hello(c, *hello);
      break;
    case Connection::kAwaitChallenge:
      if (const auto challenge = packet.as<Challenge>()) return on_challenge(c, *challenge);
      break;
    case Connection::kAwaitProof:
      if (const auto proof = packet.as<Proof>()) {
        if (!equal_digests(proof->proof, make_proof(secret_, 'A', c.theirs, c.mine)))
          throw sdk::Error(TUTTI_MISMATCH, who + " does not know this job's secret");
        return authenticated(c);
      }
      break;
    case Connection::kAwaitSetup:
      return on_setup(c, packet);
  }
  throw sdk::Error(TUTTI_MISMATCH,
                   "a packet that no rank sends at this point (" + std::to_string(packet.bytes) + " bytes)");
}

void Endpoint::on_hello(Connection& c, const Hello& hello) {
  check_terms(hello.terms);
  if (given_up_[hello.terms.rank] || aborted_) throw sdk::Error(TUTTI_PEER_FAILED, me() + " has given this rank up");
  c.peer = hello.terms.rank;
  c.theirs = hello.terms;
  c.mine = terms_for(c.peer);
  Challenge challenge;
  challenge.terms = c.mine;
  challenge.proof = make_proof(secret_, 'P', c.theirs, c.mine);
  c.socket.send(challenge);
  c.step = Connection::kAwaitProof;
}

void Endpoint::on_challenge(Connection& c, const Challenge& challenge) {
  check_terms(challenge.terms);
  if (challenge.terms.rank != c.peer)
    throw sdk::Error(TUTTI_MISMATCH,
                     "rank " + std::to_string(challenge.terms.rank) + " answered for rank " + std::to_string(c.peer));
  if (!equal_digests(challenge.proof, make_proof(secret_, 'P', c.mine, challenge.terms)))
    throw sdk::Error(TUTTI_MISMATCH, me() + ": rank " + std::to_string(c.peer) + " does not know this job's secret");
  Proof proof;
  c.theirs = challenge.terms;
  proof.proof = make_proof(secret_, 'A', c.mine, c.theirs);
  c.socket.send(proof);
  authenticated(c);
}

// Both ends of `c` have proved themselves. The lower rank now makes the segment, on the first connection of the pair.
void Endpoint::authenticated(Connection& c) {
  c.step = Connection::kAwaitSetup;
  if (rank_ > c.peer) return;
  const bool chosen = links_[c.peer] || std::any_of(connections_.begin(), connections_.end(), [&](const auto& entry) {
                        return entry.second->peer == c.peer && entry.second->segment;
                      });
  if (chosen) {
    c.socket.send(Crossed());
    return drop(c);
  }
  const FileDescriptor file = make_memory_file("tutti-shm-segment", geometry_.segment_bytes());
  c.segment = map_shared(file.get(), geometry_.segment_bytes());
  if (c.socket.send(Setup(), {file.get(), doorbell_file_.get(), eventfd_.get()}) != Socket::kSent)
    throw sdk::Error(TUTTI_PEER_FAILED, me() + ": rank " + std::to_string(c.peer) + " ended during the handshake");
}

void Endpoint::on_setup(Connection& c, Packet& packet) {
  if (rank_ < c.peer) {
    if (!packet.as<Setup>(2))
      throw sdk::Error(TUTTI_MISMATCH, "rank " + std::to_string(c.peer) + " answered with no Setup");
    return make_link(c, std::move(packet.descriptors[0]), std::move(packet.descriptors[1]), std::move(c.segment));
  }
  if (!packet.as<Setup>(3) || links_[c.peer])
    throw sdk::Error(TUTTI_MISMATCH, "rank " + std::to_string(c.peer) + " sent no Setup, or a second one");
  check_memory_file(packet.descriptors[0].get(), geometry_.segment_bytes(), "the segment that a peer made");
  auto segment = map_shared(packet.descriptors[0].get(), geometry_.segment_bytes());
  if (c.socket.send(Setup(), {doorbell_file_.get(), eventfd_.get()}) != Socket::kSent)
    throw sdk::Error(TUTTI_PEER_FAILED, me() + ": rank " + std::to_string(c.peer) + " ended during the handshake");
  make_link(c, std::move(packet.descriptors[1]), std::move(packet.descriptors[2]), std::move(segment));
}

void Endpoint::make_link(Connection& c, FileDescriptor doorbell, FileDescriptor eventfd,
                         std::shared_ptr<Mapping> segment) {
  check_memory_file(doorbell.get(), Doorbell::page_bytes(nranks_), "the doorbell page of a peer");
  check_eventfd(eventfd);
  const uint32_t peer = c.peer;
  const int fd = c.socket.get();
  auto link = std::make_unique<Link>(
      Link::Parts{rank_, peer, geometry_, domain_.settings().stream_bytes, std::move(segment),
                  share_doorbell(map_shared(doorbell.get(), Doorbell::page_bytes(nranks_)), std::move(eventfd)),
                  std::move(c.socket), &domain_, &attention_});
  link_sockets_[fd] = link.get();
  links_[peer] = std::move(link);
  link_count_++;
  connect_errors_.erase(peer);
  attention_.sockets = true;  // more may have come behind the Setup
  connections_.erase(fd);
  sdk::log(TUTTI_LOG_DEBUG, me() + " is connected to rank " + std::to_string(peer));
}

}  // namespace tutti::shm
