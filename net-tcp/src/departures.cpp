// SPDX-License-Identifier: Apache-2.0
#include "departures.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "address.hpp"

namespace tutti::tcp {

namespace {

// Are both ends of the connection on this host?
bool stays_on_this_host(int fd) {
  Where mine, theirs;
  auto size = static_cast<socklen_t>(mine.capacity()), their_size = static_cast<socklen_t>(theirs.capacity());
  if (::getsockname(fd, mine.data(), &size) != 0 || ::getpeername(fd, theirs.data(), &their_size) != 0) return false;
  mine.resize(size);
  theirs.resize(their_size);
  return mine.address() == theirs.address();
}

}  // namespace

Departure::Departure(Stream stream, std::vector<char> rest)
    : stream_(std::move(stream)), rest_(std::move(rest)), is_local_(stays_on_this_host(stream_.socket().get())) {}

bool Departure::advance() {
  const int fd = stream_.socket().get();
  std::array<char, 16 << 10> unwanted;
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = ::recv(fd, unwanted.data(), unwanted.size(), 0);
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return true;
  }
  while (done_ < rest_.size()) {
    const long n = stream_.write(std::span(rest_).subspan(done_));
    if (n <= 0) return n < 0;
    done_ += static_cast<size_t>(n);
  }
  if (::shutdown(fd, SHUT_WR) != 0) return true;  // does nothing the second time
  // The kernel of a peer on this host has all that was sent, and often acknowledges it 40 ms later.
  int outstanding = 0;
  return ioctl(fd, is_local_ ? SIOCOUTQNSD : SIOCOUTQ, &outstanding) != 0 || outstanding == 0;
}

namespace {

struct Departures {
  std::mutex mutex;
  std::vector<Departure> all;
  std::atomic<size_t> count = 0;
};

Departures& departures() {
  static auto* made = new Departures();  // never freed: other threads may outlive static destruction
  return *made;
}

}  // namespace

void leave_behind(std::vector<Departure> more) {
  Departures& d = departures();
  const std::lock_guard lock(d.mutex);
  for (Departure& departure : more) d.all.push_back(std::move(departure));
  d.count = d.all.size();
}

void advance_departures() {
  Departures& d = departures();
  if (d.count.load(std::memory_order_relaxed) == 0) return;
  const std::unique_lock lock(d.mutex, std::try_to_lock);
  if (!lock) return;
  std::erase_if(d.all, [](Departure& departure) { return departure.advance(); });
  d.count = d.all.size();
}

}  // namespace tutti::tcp
