// SPDX-License-Identifier: Apache-2.0
#include "departures.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

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

}  // namespace tutti::tcp
