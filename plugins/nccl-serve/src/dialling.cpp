// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <mutex>

#include <tutti/sdk/token.hpp>

#include "address.hpp"
#include "rendezvous.hpp"

namespace tutti::nccl::serve {
namespace {

using Clock = std::chrono::steady_clock;

// A connect that is under way.
class Dialling {
 public:
  Dialling(Served& served, const Handle& handle, int traffic_class)
      : served_(served),
        handle_(handle),
        traffic_class_(traffic_class),
        to_(handle.is_v6 != 0, handle.address, handle.port),
        deadline_(Clock::now() + served.settings().timeout) {
    socket_ = FileDescriptor(
        ::socket(to_.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) throw sdk::system_error(errno, "no socket for {}", to_.text());
    if (::connect(socket_.get(), to_.get(), to_.size()) != 0 && errno != EINPROGRESS && errno != EINTR)
      throw unreachable(errno);
  }

  bool is_for(const Handle& handle) const { return sdk::same_bytes(handle.token, handle_.token); }
  std::unique_ptr<SendComm> step() {
    const std::lock_guard lock(mutex_);
    if (!comm_) {
      if (socket_) finish_socket();
      if (!socket_) await_welcome();
      if (!comm_ && Clock::now() > deadline_)
        throw sdk::error(TUTTI_TIMEOUT, "{} has not accepted the connection within {} s (TUTTI_TIMEOUT)", to_.text(),
                         std::chrono::duration<double>(served_.settings().timeout).count());
    }
    return comm_ && comm_->connect() ? std::move(comm_) : nullptr;
  }

  // Has the listener's end closed the connection? False while another thread is in step().
  bool is_deserted() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    pollfd ended{comm_ ? comm_->socket() : socket_ ? socket_.get() : mailbox_.socket(), POLLRDHUP, 0};
    return ::poll(&ended, 1, 0) == 1;
  }

 private:
  sdk::Error unreachable(int error) const {
    return sdk::error(error == ECONNREFUSED || error == ECONNRESET ? TUTTI_PEER_FAILED : TUTTI_SYSTEM,
                      "the listener at {} cannot be reached: {}; is the process that called listen alive, and is this "
                      "address reachable from here (TUTTI_NCCL_SERVES_ADDRESS there chooses another)?",
                      to_.text(), system_text(error));
  }
  // The connection is there: sends the token.
  void finish_socket() {
    pollfd ready{socket_.get(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1) return;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    // A free port of the ephemeral range may connect to itself.
    if (!error && Address::local_of(socket_.get()) == Address::peer_of(socket_.get())) error = ECONNREFUSED;
    if (error) throw unreachable(error);
    mailbox_ = Mailbox(std::move(socket_));
    Hello hello{};
    hello.magic = kMagic;
    hello.version = kVersion;
    hello.token = handle_.token;
    hello.transport = name_of(served_.name());
    hello.fragment_bytes = served_.caps().fragment_bytes;
    mailbox_.put(LetterKind::kHello, bytes_of(hello));
  }
  void await_welcome() {
    mailbox_.advance();
    const auto letter = mailbox_.take();
    const std::string who = "the listener at " + to_.text();
    if (!letter) {
      if (mailbox_.is_over())
        throw sdk::error(TUTTI_PEER_FAILED, "{} has ended before it accepted: {}", who, mailbox_.problem());
      return;
    }
    if (letter->kind == LetterKind::kRefusal) throw refusal_of(letter->body, who);
    Welcome welcome{};
    if (letter->kind != LetterKind::kWelcome || !read(letter->body, welcome) || welcome.fragment_bytes < 4096 ||
        welcome.fragment_bytes > served_.caps().fragment_bytes)
      throw sdk::error(TUTTI_INTERNAL, "{} has answered with {} bytes that are none of this protocol", who,
                       letter->body.size());
    comm_ = std::make_unique<SendComm>(served_, std::move(mailbox_), handle_.token, welcome.fragment_bytes,
                                       traffic_class_);
  }

  Served& served_;
  const Handle handle_;
  const int traffic_class_;
  const Address to_;
  const Clock::time_point deadline_;
  std::mutex mutex_;
  FileDescriptor socket_;  // until it is connected
  Mailbox mailbox_;        // until there is a comm
  std::unique_ptr<SendComm> comm_;
};

// Those of this process, by the number that a handle keeps. NCCL's interface has no function that gives up a connect.
// One that is never called again stays here until its other end is closed.
struct Diallings {
  static constexpr int kSwept = 16;  // that a new one looks at
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Dialling>> all;
  uint64_t last = 0, swept = 0;

  static Diallings& of_process() {
    static auto* one = new Diallings();
    return *one;
  }
  std::shared_ptr<Dialling> find(const Handle& handle) {
    const std::lock_guard lock(mutex);
    const auto at = all.find(handle.attempt);
    // The number may have come from elsewhere.
    return at != all.end() && at->second->is_for(handle) ? at->second : nullptr;
  }
  uint64_t add(std::shared_ptr<Dialling> dialling) {
    std::vector<std::shared_ptr<Dialling>> deserted;  // closed when the mutex is free
    const std::lock_guard lock(mutex);
    auto at = all.upper_bound(swept);
    for (int i = 0; i < kSwept && at != all.end(); ++i) {
      const auto one = at++;
      swept = one->first;
      if (one->second->is_deserted()) deserted.push_back(all.extract(one).mapped());
    }
    if (at == all.end()) swept = 0;
    all.emplace(++last, std::move(dialling));
    return last;
  }
  void forget(uint64_t number) {
    const std::lock_guard lock(mutex);
    all.erase(number);
  }
};

void check_handle(const Handle& handle) {
  if (handle.magic != kMagic)
    throw sdk::error(TUTTI_INVALID_ARGUMENT,
                     "the handle begins with {:016x}, expected {:016x}: it is not one of libnccl-net-tutti's; let NCCL "
                     "load the same network plugin on all ranks (NCCL_NET_PLUGIN)",
                     handle.magic, kMagic);
  if (handle.version != kVersion)
    throw sdk::error(TUTTI_MISMATCH, "the handle has version {}, expected {}: all ranks need the same library",
                     handle.version, kVersion);
  if (handle.is_v6 > 1 || handle.port == 0)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "the handle has no address (family {}, port {})", handle.is_v6,
                     handle.port);
}

}  // namespace

std::unique_ptr<SendComm> connect(Served& served, void* bytes, int traffic_class) {
  Handle handle;
  std::memcpy(&handle, bytes, sizeof handle);
  check_handle(handle);
  Diallings& diallings = Diallings::of_process();
  std::shared_ptr<Dialling> dialling = diallings.find(handle);
  if (!dialling) {
    dialling = std::make_shared<Dialling>(served, handle, traffic_class);
    handle.attempt = diallings.add(dialling);
    std::memcpy(bytes, &handle, sizeof handle);
  }
  try {
    std::unique_ptr<SendComm> comm = dialling->step();
    if (comm) diallings.forget(handle.attempt);
    return comm;
  } catch (const sdk::Error&) {
    diallings.forget(handle.attempt);
    throw;
  }
}

}  // namespace tutti::nccl::serve
