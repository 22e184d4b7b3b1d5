// SPDX-License-Identifier: Apache-2.0
#include "links.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <tutti/base/system_text.hpp>

#include "base/make_failure.hpp"
#include "net/socket_address.hpp"

namespace tutti::core {

// How much of a link is read before others get their turn.
static constexpr size_t kReadTurn = 256 << 10;

Links::Links(std::string who, const Rendezvous& rendezvous)
    : log_(rendezvous.log),
      tls_(rendezvous.tls),
      who_(std::move(who)),
      patience_(rendezvous.handshake_limit),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw make_failure(TUTTI_NO_RESOURCES, "{}epoll_create1: {}", who_, system_text(errno));
}

// ---- Guests ------------------------------------------------------------------------------------------------

void Links::open_door(FileDescriptor listener, std::string secret, size_t most_guests) {
  listener_ = std::move(listener);
  secret_ = std::move(secret);
  most_guests_ = most_guests;
  watch(listener_.get(), [this] { accept_guests(); });
}

void Links::close_door() {
  for (auto& [number, guest] : guests_) unwatch(guest.stream().fd());
  guests_.clear();
  if (listener_) unwatch(listener_.get());
  listener_ = FileDescriptor();
}

void Links::accept_guests() {
  while (true) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = errno;
    if (!socket) {
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EBADF || error == EINVAL || error == ENOTSOCK)
        throw make_failure(TUTTI_INTERNAL, "{}accept: {}", who_, system_text(error));
      if (!out_of_resources(error)) continue;  // that connection ended before it was accepted
      if (!starved(error)) return;
      turn_away(guests_.begin()->first, "there are no descriptors left");
      continue;
    }
    if (guests_.size() >= most_guests_) turn_away(guests_.begin()->first, "there are too many of them");
    const int fd = socket.get();
    guests_.try_emplace(++guests_seen_, std::move(socket), SocketAddress::peer_of(fd).text(), Deadline(patience_),
                        tls_.get());
    watch(fd, [this, number = guests_seen_] { talk(number); });
  }
}

void Links::turn_away(uint64_t number, const std::string& why) {
  auto node = guests_.extract(number);
  unwatch(node.mapped().stream().fd());
  const std::string text = node.mapped().from() + ": " + why;
  log_(TUTTI_LOG_DEBUG, who_ + "turned away " + text);
  turned_away(text);
}

void Links::turn_away_late() {
  while (!guests_.empty() && guests_.begin()->second.limit().passed())
    turn_away(guests_.begin()->first,
              "it did not finish the handshake within " + guests_.begin()->second.limit().text());
}

int Links::patience_ms(int most) const {
  return guests_.empty() ? most : guests_.begin()->second.limit().poll_ms(most < 0 ? INT_MAX : most);
}

void Links::talk(uint64_t number) {
  const TcpGuest::GuestState state = guests_.at(number).advance(secret_);
  if (state == TcpGuest::GuestState::talking) return;
  if (state == TcpGuest::GuestState::turned_away) return turn_away(number, guests_.at(number).why());
  auto node = guests_.extract(number);
  TcpGuest& guest = node.mapped();
  unwatch(guest.stream().fd());
  admit(guest);
}

void Links::welcome(TcpGuest& guest, uint32_t own_rank, uint32_t peer, uint32_t nranks) {
  add(peer, std::move(guest.stream()));
  put(peer, FrameKind::welcome, encode(Welcome{own_rank, peer, nranks}));
  read_link(peer);
}

void Links::refuse(TcpGuest& guest, const Failure& why) {
  guest.stream().put(FrameKind::error, encode_error(why));
  guest.stream().flush();
  log_(TUTTI_LOG_DEBUG, fmt::format("{}turned away {}: {}", who_, guest.from(), why.text));
}

// ---- Peers -------------------------------------------------------------------------------------------------

void Links::add(uint32_t peer, FrameStream stream) {
  const auto [place, fresh] = links_.try_emplace(peer, std::move(stream));
  if (!fresh) return;
  watch(place->second.stream.fd(), [this, peer] { read_link(peer); });
}

void Links::watch_process(uint32_t peer, FileDescriptor process) {
  watch(process.get(), [this, peer] {
    // The rank's last frames are in the connection.
    read_link(peer);
    if (links_.count(peer)) ended(peer, "its process has ended", false);
  });
  links_.at(peer).process = std::move(process);
}

void Links::drop(uint32_t peer) {
  const ControlLink& link = links_.at(peer);
  closed_traffic_ += link.stream.traffic();
  unwatch(link.stream.fd());
  if (link.process) unwatch(link.process.get());
  links_.erase(peer);
}

void Links::put(uint32_t peer, std::string_view frame) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  found->second.stream.put(frame);
  push(peer);
}

void Links::push(uint32_t peer) {
  ControlLink& link = links_.at(peer);
  link.stream.flush();
  if (link.stream.unsent() == link.writing) return;
  link.writing = link.stream.unsent();
  control(link.stream.fd(), EPOLL_CTL_MOD, link.writing);
}

bool Links::has_unsent() const {
  return std::ranges::any_of(links_, [](const auto& link) { return link.second.stream.unsent(); });
}

void Links::read_link(uint32_t peer) {
  // A frame may end the link.
  const auto stream = [&]() -> FrameStream* {
    const auto found = links_.find(peer);
    return found == links_.end() ? nullptr : &found->second.stream;
  };
  push(peer);
  try {
    stream()->fill(kReadTurn);
    while (stream()) {
      const auto frame = stream()->next(longest_);
      if (!frame) break;
      take(peer, *frame);
    }
  } catch (const Failure& failure) {
    return ended(peer, failure.text, true);
  }
  if (stream() && stream()->ended()) ended(peer, std::string(stream()->end()), false);
}

Traffic Links::all_traffic() const {
  Traffic all = closed_traffic_;
  for (const auto& [peer, link] : links_) all += link.stream.traffic();
  return all;
}

// ---- Events ------------------------------------------------------------------------------------------------

std::vector<int> Links::wait(int timeout_ms) const {
  epoll_event events[64];
  const int n = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  std::vector<int> ready;
  for (int i = 0; i < n; ++i) ready.push_back(events[i].data.fd);
  return ready;
}

void Links::dispatch(int fd) {
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  const auto action = found->second;  // which may unwatch the descriptor
  action();
}

void Links::control(int fd, int operation, bool writing) {
  epoll_event event = {};
  event.events = EPOLLIN | (writing ? static_cast<uint32_t>(EPOLLOUT) : 0u);
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw make_failure(TUTTI_NO_RESOURCES, "{}epoll_ctl: {}", who_, system_text(errno));
}

void Links::watch(int fd, std::function<void()> action) {
  control(fd, EPOLL_CTL_ADD, false);
  watched_[fd] = std::move(action);
}

void Links::unwatch(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(fd);
}

}  // namespace tutti::core
