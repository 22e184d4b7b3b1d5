// SPDX-License-Identifier: Apache-2.0
//
// Settings that cannot be, handles that are none, strangers at the port, and peers that go.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "connected.hpp"

extern char** environ;

namespace nccl_driver {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
void expect_warning(const std::string& part) {
  const std::string text = Said::all().take();
  EXPECT_TRUE(says(text, part)) << "expected \"" << part << "\" in: " << text;
}
Plugin tcp(int version = 12) { return {SERVE, version, "tcp"}; }

// A setting for the life of this object.
struct With {
  With(const char* key, const char* value) : name(key) {
    if (const char* set = std::getenv(key)) before = set;
    setenv(key, value, 1);
  }
  ~With() {
    if (before)
      setenv(name, before->c_str(), 1);
    else
      unsetenv(name);
  }
  const char* const name;
  std::optional<std::string> before;
};

TEST(NcclServeSettings, ATransportThatIsNotThereIsNamedWithThoseThatAre) {
  EXPECT_EQ(Plugin(SERVE, 12, "carrier-pigeon").result, Result::kInvalidUsage);
  const std::string text = Said::all().take();
  EXPECT_TRUE(says(text, "TUTTI_NCCL_SERVES=carrier-pigeon") && says(text, "no transport \"carrier-pigeon\"") &&
              says(text, "tcp") && says(text, "TUTTI_PLUGIN_PATH"))
      << text;
  EXPECT_EQ(Plugin(SERVE, 8, "").result, Result::kInvalidUsage);
  expect_warning("TUTTI_NCCL_SERVES is empty");
}
TEST(NcclServeSettings, ATransportThatCannotBeUsedHereSaysWhy) {
  EXPECT_EQ(Plugin(SERVE, 12, "chaos").result, Result::kInvalidUsage);
  expect_warning("transport chaos: open_domain failed");
}
TEST(NcclServeSettings, AHostedNetworkIsNotServedAgain) {
  EXPECT_EQ(Plugin(SERVE, 12, "nccl:tutti").result, Result::kInvalidUsage);
  expect_warning("let NCCL load it: NCCL_NET_PLUGIN=tutti");
}
TEST(NcclServeSettings, ValuesThatAreNone) {
  {
    const With timeout("TUTTI_CONNECT_TIMEOUT", "soon");
    EXPECT_EQ(tcp().result, Result::kInvalidUsage);
    expect_warning("TUTTI_CONNECT_TIMEOUT=\"soon\" is not a positive number of seconds");
  }
  const Plugin plugin = {SERVE, 12, "tcp"};
  EXPECT_EQ(plugin.result, Result::kSuccess);
}

TEST(NcclServeHandle, GarbageIsNoHandle) {
  const Plugin plugin = tcp();
  Handle handle;
  handle.fill('x');
  void* comm = nullptr;
  EXPECT_EQ(plugin.connect(handle, &comm), Result::kInvalidUsage);
  expect_warning("it is not one of libnccl-net-tutti's");
}
TEST(NcclServeHandle, AForgedNumberOfAConnectIsAFreshConnect) {
  const Plugin plugin = tcp();
  Handle handle, other;
  void *listener = nullptr, *other_listener = nullptr, *sender = nullptr, *receiver = nullptr;
  ASSERT_EQ(plugin.listen(other, &other_listener), Result::kSuccess);
  ASSERT_EQ(plugin.connect(other, &sender), Result::kSuccess);
  ASSERT_EQ(plugin.listen(handle, &listener), Result::kSuccess);
  std::memcpy(handle.data() + 80, other.data() + 80, 8);  // Handle::attempt
  ASSERT_NO_FATAL_FAILURE(connect_both(plugin, handle, listener, sender, receiver));
  plugin->close_send(sender);
  plugin->close_receive(receiver);
  plugin->close_listen(listener);
  plugin->close_listen(other_listener);
  sender = nullptr;
  ASSERT_TRUE(until([&] { return plugin.connect(other, &sender) != Result::kSuccess; }));  // its listener is gone
  Said::all().take();
}
TEST(NcclServeHandle, AnotherVersionIsNamed) {
  const Plugin plugin = tcp();
  Handle handle;
  void *listener = nullptr, *comm = nullptr;
  ASSERT_EQ(plugin.listen(handle, &listener), Result::kSuccess);
  handle[8] = 77;  // Handle::version
  EXPECT_EQ(plugin.connect(handle, &comm), Result::kInvalidUsage);
  expect_warning("the handle has version 77, expected 1: all ranks need the same library");
  plugin->close_listen(listener);
}
TEST(NcclServeHandle, AListenerThatIsGoneIsARemoteError) {
  const Plugin plugin = tcp();
  Handle handle;
  void *listener = nullptr, *comm = nullptr;
  ASSERT_EQ(plugin.listen(handle, &listener), Result::kSuccess);
  ASSERT_EQ(plugin->close_listen(listener), Result::kSuccess);
  Result result = Result::kSuccess;
  ASSERT_TRUE(until([&] { return (result = plugin.connect(handle, &comm)) != Result::kSuccess; }));
  EXPECT_EQ(result, Result::kRemoteError);
  expect_warning("is the process that called listen alive");
}
TEST(NcclServeHandle, TransportsThatDifferAreNamedAtBothEnds) {
  const Plugin one = {SERVE, 12, "tcp"}, other = {SERVE, 12, "shm"};
  const Connected c(one, other);
  EXPECT_EQ(c.connected, Result::kInvalidUsage);
  EXPECT_EQ(c.accepted, Result::kInvalidUsage);
  const std::string text = Said::all().take();
  EXPECT_TRUE(says(text, "accept: ") && says(text, "connect: ") &&
              says(text, "serves transport \"tcp\", this rank \"shm\": set TUTTI_NCCL_SERVES alike"))
      << text;
}

// The number of open descriptors of this process.
size_t descriptors() {
  size_t n = 0;
  for (int fd = 0; fd < 1024; ++fd) n += ::fcntl(fd, F_GETFD) >= 0;
  return n;
}
TEST(NcclServeHandle, AConnectThatIsGivenUpLeavesNothing) {
  const Plugin plugin = tcp();
  const size_t before = descriptors();
  for (int i = 0; i < 50; ++i) {
    Handle handle;
    void *listener = nullptr, *comm = nullptr;
    ASSERT_EQ(plugin.listen(handle, &listener), Result::kSuccess);
    ASSERT_EQ(plugin.connect(handle, &comm), Result::kSuccess);
    ASSERT_EQ(plugin->close_listen(listener), Result::kSuccess);
  }
  EXPECT_LT(descriptors(), before + 10);
}

// The answer of a listener that is not this library's.
Result answered(const std::string& bytes) {
  const Plugin plugin = tcp();
  Handle handle;
  void *listener = nullptr, *comm = nullptr;
  EXPECT_EQ(plugin.listen(handle, &listener), Result::kSuccess);
  EXPECT_EQ(plugin->close_listen(listener), Result::kSuccess);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  EXPECT_TRUE(::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && ::listen(fd, 1) == 0 &&
              ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  const uint16_t is_v6 = 0, port = ntohs(at.sin_port);
  std::memcpy(handle.data() + 12, &is_v6, sizeof is_v6);
  std::memcpy(handle.data() + 14, &port, sizeof port);
  std::memcpy(handle.data() + 16, &at.sin_addr, sizeof at.sin_addr);
  EXPECT_EQ(plugin.connect(handle, &comm), Result::kSuccess);
  const int with = ::accept(fd, nullptr, nullptr);
  EXPECT_EQ(::send(with, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  if (bytes.empty()) ::close(with);
  Result result = Result::kSuccess;
  EXPECT_TRUE(until([&] { return (result = plugin.connect(handle, &comm)) != Result::kSuccess || comm; }));
  if (!bytes.empty()) ::close(with);
  ::close(fd);
  return result;
}
std::string letter(uint32_t kind, const std::string& body) {
  const uint32_t head[] = {kind, static_cast<uint32_t>(body.size())};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + body;
}
TEST(NcclServeHandle, AnAnswerThatIsNoneIsAnError) {
  EXPECT_EQ(answered(""), Result::kRemoteError);
  expect_warning("has ended before it accepted");
  EXPECT_EQ(answered(letter(0x5345'0002, "four")), Result::kInternalError);
  expect_warning("none of this protocol");
  EXPECT_EQ(answered(letter(0x5345'0002, std::string(8, '\xff'))), Result::kInternalError);  // endless fragments
  expect_warning("none of this protocol");
  EXPECT_EQ(answered(letter(0x5345'0003, "\xf7\xff\xff\xffgone\x1b[2J")), Result::kSystemError);  // TUTTI_SYSTEM
  expect_warning("refuses: gone?[2J");
  EXPECT_EQ(answered(std::string(16, '\xff')), Result::kRemoteError);  // a letter of 4 GiB
  expect_warning("it sent bytes that are no letter");
}

// A socket that is connected to the listener of a handle.
struct Stranger {
  explicit Stranger(const Handle& handle) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    uint16_t port = 0;
    std::memcpy(&port, handle.data() + 14, sizeof port);
    std::memcpy(&to.sin_addr, handle.data() + 16, sizeof to.sin_addr);
    to.sin_port = htons(port);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Stranger() { ::close(fd); }
  void say(const std::string& bytes) {
    EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  bool is_sent_away() {
    char byte;
    const ssize_t n = ::recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
  }
  const int fd;
};
// A letter of the connecting end: the head, then a Hello with `token`.
std::string hello(uint32_t version, const char* token) {
  const uint32_t kind = 0x5345'0001, bytes = 72, zero = 0;
  const uint64_t magic = 0x5445'4e49'5454'5554, fragment = 65536;
  std::string text;
  const auto put = [&](const void* data, size_t n) { text.append(static_cast<const char*>(data), n); };
  char name[32] = "tcp";
  put(&kind, 4), put(&bytes, 4), put(&magic, 8), put(&version, 4), put(&zero, 4), put(token, 16), put(name, 32);
  put(&fragment, 8);
  return text;
}

class NcclServeStranger : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(plugin.listen(handle, &listener), Result::kSuccess); }
  void TearDown() override { EXPECT_EQ(plugin->close_listen(listener), Result::kSuccess); }
  void accept_until(const std::function<bool()>& holds) {
    ASSERT_TRUE(until([&] {
      EXPECT_EQ(plugin->accept(listener, &receiver), Result::kSuccess);
      EXPECT_EQ(receiver, nullptr);
      return holds();
    }));
  }
  // The rank that NCCL has given the handle still gets through.
  void expect_a_connection() {
    void* sender = nullptr;
    ASSERT_NO_FATAL_FAILURE(connect_both(plugin, handle, listener, sender, receiver));
    plugin->close_send(sender);
    plugin->close_receive(receiver);
  }
  const Plugin plugin{SERVE, 12, "tcp"};
  Handle handle;
  void *listener = nullptr, *receiver = nullptr;
};
TEST_F(NcclServeStranger, IsSentAwayAndTheRankGetsThrough) {
  Stranger silent(handle), web(handle), liar(handle), long_letter(handle);
  web.say("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  liar.say(hello(1, "0123456789abcdef"));
  long_letter.say(std::string(64, '\xff'));
  ASSERT_NO_FATAL_FAILURE(
      accept_until([&] { return web.is_sent_away() && liar.is_sent_away() && long_letter.is_sent_away(); }));
  expect_warning("it does not have this listener's token");
  EXPECT_FALSE(silent.is_sent_away());
  expect_a_connection();
}
TEST_F(NcclServeStranger, ACrowdIsBounded) {
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(std::make_unique<Stranger>(handle));
  ASSERT_NO_FATAL_FAILURE(accept_until([&] { return crowd[0]->is_sent_away() && crowd[23]->is_sent_away(); }));
  EXPECT_FALSE(crowd[24]->is_sent_away());
  expect_warning("it has not shown the token");
  expect_a_connection();
}
TEST_F(NcclServeStranger, WithTheTokenAnotherVersionIsAnError) {
  Stranger old(handle);
  old.say(hello(9, handle.data() + 32));
  Result result = Result::kSuccess;
  ASSERT_TRUE(until([&] { return (result = plugin->accept(listener, &receiver)) != Result::kSuccess; }));
  EXPECT_EQ(result, Result::kInvalidUsage);
  expect_warning("speaks version 9 of libnccl-net-tutti's protocol, this rank version 1");
}
TEST_F(NcclServeStranger, WithTheTokenNonsenseIsAnError) {
  for (const uint32_t kind : {0x5345'0004u, 0x5345'0003u, 0x5345'0077u}) {  // a pair message, a refusal, nothing
    Stranger bad(handle);
    bad.say(hello(1, handle.data() + 32));
    bad.say(letter(kind, "XXXXX"));
    Result result = Result::kSuccess;
    ASSERT_TRUE(until([&] { return (result = plugin->accept(listener, &receiver)) != Result::kSuccess; }));
    EXPECT_NE(Said::all().take(), "");
  }
}

TEST(NcclServeUsage, WhatCannotBeIsRefused) {
  const Plugin plugin = tcp();
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver);
  Buffer out(c.calls, c.sender, 500), in(c.calls, c.receiver, 400), device(c.calls, c.sender, 64);
  Transfer send(c.calls), receive(c.calls), many(c.calls);
  ASSERT_EQ(receive.receive(c.receiver, {&in}, {4}), Result::kSuccess);
  ASSERT_TRUE(until([&] { return send.send(c.sender, out, 500, 4) != Result::kSuccess; }));
  expect_warning("has posted an irecv of 400 bytes for it");
  EXPECT_EQ(send.send(c.sender, out, 400, 4, 200), Result::kInvalidUsage);
  expect_warning("the mhandle is not that of their memory");
  EXPECT_EQ(many.receive(c.receiver, {&in, &in, &in, &in, &in, &in, &in, &in, &in}, std::vector<int>(9)),
            Result::kInvalidUsage);
  expect_warning("a group has 1 to 8");
  void* memory = nullptr;
  EXPECT_EQ(c.calls.register_memory(c.sender, out.bytes.data(), 64, tutti::nccl::kCudaPointer, &memory),
            Result::kInvalidUsage);
  expect_warning("memory of type 2 cannot be registered: transport tcp accepts 1");
  // The comm still works.
  ASSERT_NO_FATAL_FAILURE(post_send(send, c.sender, out, 400, 4, {&receive}));
  ASSERT_NO_FATAL_FAILURE(finish({&send, &receive}));
}

TEST(NcclServeLoss, APeerThatClosesWhileAnIrecvWaits) {
  for (const char* transport : {"tcp", "shm", "template"}) {
    const Plugin plugin = {SERVE, 11, transport};
    Connected c(plugin);
    ASSERT_TRUE(c.sender && c.receiver);
    Buffer in(c.calls, c.receiver, 400);
    Transfer receive(c.calls);
    ASSERT_EQ(receive.receive(c.receiver, {&in}, {4}), Result::kSuccess);
    ASSERT_EQ(c.calls.close_send(std::exchange(c.sender, nullptr)), Result::kSuccess);
    ASSERT_TRUE(until([&] { return !receive.poll(); })) << transport;
    EXPECT_EQ(receive.result, Result::kRemoteError);
    expect_warning("it has closed its sendComm");
  }
}
TEST(NcclServeLoss, APeerThatClosesBeforeAnIsend) {
  const Plugin plugin = tcp(8);
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver);
  Buffer out(c.calls, c.sender, 400);
  Transfer send(c.calls);
  ASSERT_EQ(c.calls.close_receive(std::exchange(c.receiver, nullptr)), Result::kSuccess);
  ASSERT_TRUE(until([&] { return send.send(c.sender, out, 400, 4) != Result::kSuccess; }));
  expect_warning("closed");
}

// A receiving end in a process of its own.
struct Peer {
  Peer(const std::string& version, const std::string& transport) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    const char* arguments[] = {PEER, SERVE, version.c_str(), transport.c_str(), nullptr};
    EXPECT_EQ(posix_spawn(&process, PEER, &actions, nullptr, const_cast<char**>(arguments), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    from = ends[0];
  }
  ~Peer() {
    kill();
    ::close(from);
  }
  void kill() {
    if (process <= 0) return;
    ::kill(process, SIGKILL);
    status();
  }
  int status() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(process, -1), &status, 0) > 0, true);
    return status;
  }
  void read(void* into, size_t n) {
    for (size_t got = 0; got < n;) {
      const ssize_t more = ::read(from, static_cast<char*>(into) + got, n - got);
      ASSERT_GT(more, 0) << "the peer has ended";
      got += static_cast<size_t>(more);
    }
  }
  pid_t process = -1;
  int from = -1;
};

class NcclServeProcesses : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Handle handle;
    ASSERT_NO_FATAL_FAILURE(peer.read(handle.data(), handle.size()));
    ASSERT_TRUE(until([&] { return plugin.connect(handle, &comm) != Result::kSuccess || comm; }));
    ASSERT_NE(comm, nullptr) << Said::all().take();
    char letter = 0;
    ASSERT_NO_FATAL_FAILURE(peer.read(&letter, 1));
    ASSERT_EQ(letter, 'a');
    Buffer out(plugin.calls(), comm, 1 << 20, 1);
    Transfer send(plugin.calls());
    ASSERT_NO_FATAL_FAILURE(post_send(send, comm, out, 1 << 20, 1));
    ASSERT_NO_FATAL_FAILURE(finish({&send}));
    ASSERT_NO_FATAL_FAILURE(peer.read(&letter, 1));
    ASSERT_EQ(letter, 'r');
  }
  const Plugin plugin{SERVE, 12, GetParam()};
  Peer peer{"12", GetParam()};
  void* comm = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Transports, NcclServeProcesses, testing::Values("tcp", "shm"));

TEST_P(NcclServeProcesses, AnOrderlyEndIsNamedWhereAMessageIsMissing) {
  EXPECT_EQ(plugin->close_send(comm), Result::kSuccess);
  const int status = peer.status();
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
TEST_P(NcclServeProcesses, APeerThatIsKilledIsARemoteError) {
  peer.kill();
  auto memory = std::make_unique<Buffer>(plugin.calls(), comm, 64);
  Result result = Result::kSuccess;
  ASSERT_TRUE(until([&] {
    // The irecv of the second message may have been granted.
    Transfer send(plugin.calls());
    result = send.send(comm, *memory, 64, 2);
    if (result == Result::kSuccess && send.request) until([&] { return !send.poll() || send.done; });
    if (send.result != Result::kSuccess) result = send.result;
    return result != Result::kSuccess;
  }));
  EXPECT_EQ(result, Result::kRemoteError);
  expect_warning("the peer at");
  memory.reset();
  EXPECT_EQ(plugin->close_send(comm), Result::kSuccess);
}

}  // namespace
}  // namespace nccl_driver
