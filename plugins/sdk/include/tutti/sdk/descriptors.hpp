// SPDX-License-Identifier: Apache-2.0
//
// Passing descriptors (memory files, eventfds, exported device memory) to another rank of this host. They travel as
// SCM_RIGHTS over a unix socket of type SOCK_SEQPACKET: packets stay whole, and the end of file tells that the other
// process has gone. One rank of a pair listens, and invites the other by a pair message:
//
//   Doorway door;                                            // rank 0: an abstract socket with a random name
//   const Invitation told = door.invite(1);                  // rank 0: goes to rank 1 in a pair message
//   std::optional<Socket> socket = door.visit(told, 1, {fd});  // rank 1, which has a Doorway of its own
//   door.look([](uint32_t rank, Socket socket, Packet& packet) { ... });  // rank 0: rank 1 has come
//
// The visit presents a one-time token and the descriptors. A stranger that connects costs one descriptor until it has
// sent something, or until the first look after five seconds. Nothing that it sends is read as anything but a token.
// All this works across pid namespaces, but not across network namespaces.
#pragma once

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/base/host_identity.hpp>
#include <tutti/sdk/plugin.hpp>
#include <tutti/sdk/token.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

using tutti::FileDescriptor;

// One packet as it came: unchecked bytes, and the descriptors with it.
struct Packet {
  static constexpr size_t kMaxPayload = 512, kMaxDescriptors = 4;
  static constexpr size_t kMaxBytes = kMaxPayload + 8;  // with a header
  enum Outcome { kNothing, kClosed, kHere } outcome = kNothing;
  bool truncated = false;  // something did not fit; a process at its limit of open files loses descriptors
  size_t bytes = 0;
  std::array<char, kMaxBytes> data{};
  size_t descriptor_count = 0;
  std::array<FileDescriptor, kMaxDescriptors> descriptors;

  // Throws Error unless all of the packet is here, with so many descriptors where their number is given.
  void check_whole(std::optional<size_t> with_descriptors = std::nullopt) const {
    if (truncated)
      throw Error(TUTTI_NO_RESOURCES,
                  "its descriptors were lost on their way: this process may not open that many (ulimit -n)");
    if (with_descriptors && descriptor_count != *with_descriptors)
      throw Error(TUTTI_MISMATCH, "it passed " + std::to_string(descriptor_count) + " descriptors; expected " +
                                      std::to_string(*with_descriptors));
  }
  // The packet as a T, if it has the bytes of one and so many descriptors. T is trivially copyable, its first member is
  // `uint32_t kind = number`, and T::number is its own.
  template <typename T>
  std::optional<T> as(size_t with_descriptors = 0) const {
    T message;
    if (outcome != kHere || truncated || bytes != sizeof(T) || descriptor_count != with_descriptors)
      return std::nullopt;
    std::memcpy(static_cast<void*>(&message), data.data(), sizeof(T));
    return message.kind == T::number ? std::optional(message) : std::nullopt;
  }
};

// A connected socket. No function blocks.
class Socket {
 public:
  Socket() = default;
  explicit Socket(FileDescriptor fd) : fd_(std::move(fd)) {}
  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }

  Packet receive() noexcept {
    Packet packet;
    iovec piece{packet.data.data(), packet.data.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * Packet::kMaxDescriptors)];
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got;
    bool reset = false;  // told once, before what the other side said: it closed without having read all
    do got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
    if (got <= 0) {
      packet.outcome = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Packet::kNothing : Packet::kClosed;
      return packet;
    }
    packet.outcome = Packet::kHere;
    packet.bytes = static_cast<size_t>(got);
    packet.truncated = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; i++) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        FileDescriptor owned(fd);
        if (packet.descriptor_count < Packet::kMaxDescriptors)
          packet.descriptors[packet.descriptor_count++] = std::move(owned);
      }
    }
    return packet;
  }

  // kFull: no room now. kGone: the other side has closed.
  enum Sent { kSent, kFull, kGone };
  template <typename T>
  Sent send(const T& what, std::span<const int> descriptors = {}) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= Packet::kMaxBytes);
    return send_bytes({reinterpret_cast<const char*>(&what), sizeof what}, descriptors);
  }
  template <typename T>
  Sent send(const T& what, std::initializer_list<int> descriptors) noexcept {
    return send(what, std::span(descriptors.begin(), descriptors.size()));
  }
  // At most Packet::kMaxBytes, with at most Packet::kMaxDescriptors.
  Sent send_bytes(std::string_view packet, std::span<const int> descriptors) noexcept {
    iovec piece{const_cast<char*>(packet.data()), packet.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * Packet::kMaxDescriptors)]{};
    const size_t bytes = descriptors.size() * sizeof(int);
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (descriptors.size() > 0) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(c), descriptors.data(), bytes);
    }
    ssize_t sent;
    do sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(packet.size())) return kSent;
    // ETOOMANYREFS: more descriptors are under way than this user may have; they leave as their receivers read.
    return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) ? kFull
                                                                                                              : kGone;
  }

  // Does the process at the other end belong to this user?
  bool same_user() const {
    ucred credentials{};
    return get_credentials(credentials) && credentials.uid == geteuid();
  }
  // The process that has connected or listened at the other end; 0: it is not known here.
  pid_t process() const {
    ucred credentials{};
    return get_credentials(credentials) ? credentials.pid : 0;
  }

 private:
  bool get_credentials(ucred& credentials) const {
    socklen_t length = sizeof credentials;
    return getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0;
  }
  FileDescriptor fd_;
};

using Token = std::array<uint8_t, 16>;

// The way to a Doorway, for another rank. Plain bytes, for a pair message.
struct Invitation {
  std::array<char, 40> boot_id;  // of the host; zeroes: it is not known
  uint64_t network_namespace;
  Token name, token;
};
static_assert(sizeof(Invitation) == 80);

inline Token random_token() {
  Token token;
  fill_random(token);
  return token;
}

// An invitation with this process's place, as far as the system tells it, and neither name nor token.
inline Invitation this_place() {
  Invitation place{};
  boot_id().copy(place.boot_id.data(), place.boot_id.size());
  place.network_namespace = namespace_number("net");
  return place;
}

// The first packet of a guest.
struct Knock {
  static constexpr uint32_t number = 0x4b434f4e;
  uint32_t kind = number;
  uint32_t guest = 0;
  Token token{};
};

namespace descriptors_detail {
// The abstract name: a leading zero byte, then text without an end.
inline socklen_t fill_name(sockaddr_un& to, const Token& name) {
  std::string text = "tutti-";
  for (const uint8_t byte : name) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  to.sun_family = AF_UNIX;
  text.copy(to.sun_path + 1, sizeof to.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

inline FileDescriptor unix_socket() {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw system_error("a unix socket", errno);
  return fd;
}
}  // namespace descriptors_detail

// The listening end, which lets invited ranks in. [one thread at a time]
class Doorway {
 public:
  // Throws Error.
  Doorway() : place_(this_place()), epoll_(epoll_create1(EPOLL_CLOEXEC)), listener_(descriptors_detail::unix_socket()) {
    place_.name = random_token();
    sockaddr_un name{};
    const socklen_t length = descriptors_detail::fill_name(name, place_.name);
    if (!epoll_ || bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), length) != 0 ||
        listen(listener_.get(), SOMAXCONN) != 0)
      throw system_error("listening on a unix socket", errno);
    watch(listener_.get());
  }

  // Readable when look has something to do at once.
  int fd() const { return epoll_.get(); }
  // Connections wait that have sent nothing yet.
  bool has_strangers() const { return !strangers_.empty(); }
  // This rank's place, for a peer that is to check it.
  const Invitation& place() const { return place_; }
  // Throws Error (TUTTI_SYSTEM) unless ranks of `place` and of here can pass descriptors to each other.
  void check_place(const Invitation& place) const {
    if (place.boot_id != place_.boot_id)
      throw Error(TUTTI_SYSTEM, "it is on another host (its boot id differs); use a network transport for this pair");
    if (place.network_namespace != place_.network_namespace)
      throw Error(TUTTI_SYSTEM,
                  "it is in another network namespace of this host, so its unix socket is out of reach; use a network "
                  "transport for this pair");
  }
  // Draws a token with which a guest may come once, by its rank or another number of the caller's. It replaces an
  // earlier one.
  Invitation invite(uint32_t guest) {
    Invitation told = place_;
    told.token = tokens_[guest] = random_token();
    return told;
  }
  void uninvite(uint32_t guest) { tokens_.erase(guest); }
  // Connects to the doorway that has invited this rank, and passes descriptors. Nothing: its queue is full, try again.
  // Throws Error: TUTTI_SYSTEM where it is out of reach, TUTTI_PEER_FAILED where it is not there any more.
  std::optional<Socket> visit(const Invitation& invitation, uint32_t guest,
                              const std::vector<int>& descriptors = {}) const {
    check_place(invitation);
    Socket socket(descriptors_detail::unix_socket());
    sockaddr_un name{};
    const socklen_t length = descriptors_detail::fill_name(name, invitation.name);
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) {
      if (errno == EAGAIN || errno == EINTR) return std::nullopt;
      if (errno == ECONNREFUSED) throw Error(TUTTI_PEER_FAILED, "it does not listen any more; has it ended?");
      throw system_error("connecting to its unix socket", errno);
    }
    if (!socket.same_user()) throw Error(TUTTI_SYSTEM, "it belongs to another user; run all ranks as one user");
    const Knock knock{.guest = guest, .token = invitation.token};
    const Socket::Sent sent = socket.send(knock, std::span(descriptors));
    if (sent == Socket::kGone) throw Error(TUTTI_PEER_FAILED, "it closed the connection at once");
    return sent == Socket::kSent ? std::optional(std::move(socket)) : std::nullopt;
  }

  // Calls on_guest(guest, Socket, Packet&) for each guest that has come. The packet has what it brought, and may
  // be truncated. Throws Error where no connection can be accepted.
  template <typename OnGuest>
  void look(OnGuest&& on_guest) {
    while (Socket socket = accept_one()) {
      watch(socket.get());
      strangers_.push_back({std::move(socket), std::chrono::steady_clock::now() + std::chrono::seconds(5)});
      if (strangers_.size() > kMaxStrangers) hear_strangers(on_guest);
      if (strangers_.size() > kMaxStrangers) strangers_.pop_front();
    }
    hear_strangers(on_guest);
  }

  // The guest that these bytes (a Knock) name. Its invitation is used up.
  std::optional<uint32_t> presented(std::string_view bytes) {
    Knock knock;
    if (bytes.size() != sizeof knock) return std::nullopt;
    std::memcpy(static_cast<void*>(&knock), bytes.data(), sizeof knock);
    const auto expected = tokens_.find(knock.guest);
    if (knock.kind != knock.number || expected == tokens_.end()) return std::nullopt;
    if (!same_bytes(knock.token, expected->second)) return std::nullopt;
    tokens_.erase(expected);
    return knock.guest;
  }

 private:
  static constexpr size_t kMaxStrangers = 64;  // that have sent nothing yet; the next one drops the oldest
  struct Stranger {
    Socket socket;
    std::chrono::steady_clock::time_point until;
  };

  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw system_error("epoll_ctl", errno);
  }
  Socket accept_one() {
    for (;;) {
      Socket socket(FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
      if (socket && !socket.same_user())
        log(TUTTI_LOG_WARN, "a connection of another user was refused");
      else if (socket || errno == EAGAIN || errno == EWOULDBLOCK)
        return socket;
      else if (errno != EINTR && errno != ECONNABORTED)
        // A rank that waits there cannot be served, and would wait until its deadline.
        throw system_error("accepting a connection", errno);
    }
  }
  // Reads what strangers have sent: they become guests or are dropped.
  template <typename OnGuest>
  void hear_strangers(OnGuest&& on_guest) {
    const auto now = std::chrono::steady_clock::now();
    for (auto at = strangers_.begin(); at != strangers_.end();) {
      Packet packet = at->socket.receive();
      if (packet.outcome == Packet::kNothing && now < at->until) {
        ++at;
        continue;
      }
      Socket socket = std::move(at->socket);
      at = strangers_.erase(at);
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
      const std::string_view bytes(packet.data.data(), packet.outcome == Packet::kHere ? packet.bytes : 0);
      if (const auto guest = presented(bytes))
        on_guest(*guest, std::move(socket), packet);
      else
        log(TUTTI_LOG_WARN, "a connection without a valid token was refused");
    }
  }
  Invitation place_;
  FileDescriptor epoll_, listener_;
  std::map<uint32_t, Token> tokens_;  // by rank, until it has come
  std::list<Stranger> strangers_;
};

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
