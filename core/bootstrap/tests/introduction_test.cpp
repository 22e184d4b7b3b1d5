// SPDX-License-Identifier: Apache-2.0

#include <sys/socket.h>

#include "handshake.hpp"
#include "harness/virtual_time/virtual_time.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

// Once a host knows who calls it counts on him: an attempt given up from there would look like the loss of a rank.
TEST(Introduction, AWelcomeIsWaitedForLongerThanAnAttempt) {
  const tutti::test::VirtualTime time;
  HeldPort port;
  const SocketAddress address = SocketAddress::from_bytes(std::string("\x7f\0\0\1", 4), port.port());
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ASSERT_EQ(::bind(listener.get(), address.get(), address.size()), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);

  const std::string secret(32, 's');
  std::thread host([&] {
    TcpGuest guest(FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)), "a test",
                   Deadline(600s));
    while (guest.advance(secret) == TcpGuest::GuestState::talking) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(guest.hello().rank, 1u) << guest.why();
    std::this_thread::sleep_for(45s);  // on a busy machine
    guest.stream().put(FrameKind::welcome, encode(Welcome{0, 1, 2}));
    guest.stream().flush();
  });
  const Caller caller{.rank = 1, .nranks = 2, .host = 0};
  try {
    EXPECT_EQ(introduce(caller, {{}, "", secret, "job"}, address, Deadline(30s), Deadline(600s)).welcome.rank, 1u);
  } catch (const Discouraged& why) {
    ADD_FAILURE() << why.problem;
  }
  host.join();
}

}  // namespace
}  // namespace tutti::core::test
