// SPDX-License-Identifier: Apache-2.0
#include "net/socket_address.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>

namespace tutti::core::test {
namespace {

int segment_of(const FileDescriptor& socket) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &size), 0);
  return bytes;
}

// Over loopback, whose packets may have 64 KiB. The way of an accepted socket is the listener's.
TEST(SocketAddress, PacketsOfTheControlPlaneAreSmallInBothDirections) {
  for (const std::string& loopback : {std::string("\x7f\0\0\1", 4), std::string(15, '\0') + '\1'}) {
    const FileDescriptor listener = listen_on(SocketAddress::from_bytes(loopback, 0));
    if (!listener && loopback.size() == 16) GTEST_SKIP() << "this machine has no IPv6";
    ASSERT_TRUE(listener);
    std::string problem;
    const FileDescriptor caller = connect_to(SocketAddress::local_of(listener.get()), 60'000, problem);
    ASSERT_TRUE(caller) << problem;
    const FileDescriptor called(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(called);
    for (const FileDescriptor* end : {&caller, &called}) {
      EXPECT_LE(segment_of(*end), 1220);
      EXPECT_GT(segment_of(*end), 1000) << "far too small";
    }
  }
}

}  // namespace
}  // namespace tutti::core::test
