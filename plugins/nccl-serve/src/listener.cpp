// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <algorithm>
#include <tutti/sdk/token.hpp>

#include "address.hpp"
#include "rendezvous.hpp"

namespace tutti::nccl::serve {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostGuests = 16;  // connections at a time that have not shown the token

}  // namespace

Listener::Listener(Served& served, int traffic_class) : served_(served), traffic_class_(traffic_class) {
  const std::string& wanted = served.settings().address;
  const Address address =
      wanted.empty() ? Address::of_this_host() : Address(wanted, "TUTTI_NCCL_SERVES_ADDRESS");
  socket_ = FileDescriptor(
      ::socket(address.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_ || ::bind(socket_.get(), address.get(), address.size()) != 0 || ::listen(socket_.get(), SOMAXCONN) != 0)
    throw sdk::system_error(errno, "cannot listen at {} (TUTTI_NCCL_SERVES_ADDRESS chooses an address of this host)",
                            address.host());
  sdk::fill_random(token_);
}

void Listener::write_handle(void* handle) const {
  const Address address = Address::local_of(socket_.get());
  Handle made{};
  made.magic = kMagic;
  made.version = kVersion;
  made.is_v6 = address.is_v6();
  made.port = address.port();
  made.address = address.bytes();
  made.token = token_;
  made.transport = name_of(served_.name());
  std::memset(handle, 0, kHandleBytes);
  std::memcpy(handle, &made, sizeof made);
}

std::unique_ptr<ReceiveComm> Listener::accept() {
  take_guests();
  for (size_t i = 0; i < guests_.size();) {
    Guest& guest = guests_[i];
    try {
      if (!greet(guest)) {
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      if (guest.comm && guest.comm->connect()) {
        std::unique_ptr<ReceiveComm> comm = std::move(guest.comm);
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
        return comm;
      }
    } catch (const sdk::Error&) {
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      throw;
    }
    ++i;
  }
  return nullptr;
}

void Listener::take_guests() {
  for (;;) {
    FileDescriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      throw sdk::system_error(errno, "a connection cannot be accepted");
    }
    const std::string says = Address::peer_of(socket.get()).text();
    // The one that has been silent for longest makes room.
    if (std::ranges::count_if(guests_, [](const Guest& g) { return !g.comm; }) >= static_cast<long>(kMostGuests)) {
      const auto oldest = std::ranges::find_if(guests_, [](const Guest& g) { return !g.comm; });
      say(kLogWarn, "tutti: accept: the connection from " + oldest->says + " is closed: it has not shown the token");
      guests_.erase(oldest);
    }
    guests_.push_back({Mailbox(std::move(socket)), says, Clock::now(), nullptr});
  }
}

// False: it is to be sent away.
bool Listener::greet(Guest& guest) {
  if (guest.comm) return true;
  guest.mailbox.advance();
  const auto letter = guest.mailbox.take();
  if (!letter) {
    if (!guest.mailbox.is_over() && Clock::now() - guest.since < served_.settings().connect_timeout) return true;
    say(kLogInfo, "tutti: accept: the connection from " + guest.says + " has ended without a token");
    return false;
  }
  Hello hello{};
  if (letter->kind != LetterKind::kHello || !read(letter->body, hello) || !sdk::same_bytes(hello.token, token_)) {
    say(kLogWarn, "tutti: accept: the connection from " + guest.says +
                      " is refused: it does not have this listener's token; something else uses this port");
    return false;
  }
  welcome(guest, hello);
  return true;
}

void Listener::welcome(Guest& guest, const Hello& hello) {
  try {
    if (hello.magic != kMagic || hello.version != kVersion)
      throw sdk::error(TUTTI_MISMATCH,
                       "{} speaks version {} of libnccl-net-tutti's protocol, this rank version {}: all ranks need the "
                       "same library",
                       guest.says, hello.version, kVersion);
    if (text_of(hello.transport) != served_.name())
      throw sdk::error(TUTTI_MISMATCH, "{} serves transport \"{}\", this rank \"{}\": set TUTTI_NCCL_SERVES alike",
                       guest.says, text_of(hello.transport), served_.name());
    const uint64_t fragment = std::min<uint64_t>(hello.fragment_bytes, served_.caps().fragment_bytes);
    if (fragment < 4096)
      throw sdk::error(TUTTI_MISMATCH, "{} has messages of at most {} bytes, expected 4096 or more", guest.says,
                       hello.fragment_bytes);
    guest.mailbox.put(LetterKind::kWelcome, bytes_of(Welcome{fragment}));
    guest.comm =
        std::make_unique<ReceiveComm>(served_, std::move(guest.mailbox), token_, fragment, traffic_class_);
  } catch (const sdk::Error& e) {
    guest.mailbox.put(LetterKind::kRefusal, bytes_of(e.status()) + std::string(e.what()).substr(0, 1024));
    throw;
  }
}

}  // namespace tutti::nccl::serve
