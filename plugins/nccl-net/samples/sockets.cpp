// SPDX-License-Identifier: Apache-2.0
#include "sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace tutti::nccl::sample {
namespace {

enum Stage : uint16_t { kFresh = 0, kConnecting = 1, kConnected = 2 };

Comm* new_comm(int fd, bool sends) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  auto* comm = new Comm();
  comm->fd = fd;
  comm->sends = sends;
  return comm;
}

// Writes what the socket takes. False: the connection is gone.
bool write_some(Comm& comm) {
  while (!comm.queue.empty()) {
    Request& request = *comm.queue.front();
    const Piece& piece = request.pieces[0];
    const Head head{static_cast<uint32_t>(piece.room), piece.tag};
    const size_t whole = sizeof head + piece.room;
    while (comm.moved < whole) {
      const bool in_head = comm.moved < sizeof head;
      const char* from =
          in_head ? reinterpret_cast<const char*>(&head) + comm.moved : piece.data + comm.moved - sizeof head;
      const ssize_t n = ::send(comm.fd, from, in_head ? sizeof head - comm.moved : whole - comm.moved,
                               MSG_NOSIGNAL | MSG_DONTWAIT | (in_head && piece.room ? MSG_MORE : 0));
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      comm.moved += static_cast<size_t>(n);
    }
    comm.moved = 0;
    request.pieces[0].bytes = static_cast<int>(piece.room);
    request.over = true;
    comm.queue.pop_front();
  }
  return true;
}

// The piece of the oldest group that a head is for, or -1.
int place_for(const Request& request, const Head& head) {
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    const Piece& piece = request.pieces[i];
    if (piece.bytes < 0 && piece.tag == head.tag) return head.bytes <= piece.room ? static_cast<int>(i) : -1;
  }
  return -1;
}

Result read_some(Comm& comm) {
  while (!comm.queue.empty()) {
    Request& request = *comm.queue.front();
    while (comm.moved < sizeof comm.head + (comm.piece < 0 ? 0 : comm.head.bytes) || comm.piece < 0) {
      if (comm.moved == sizeof comm.head && comm.piece < 0) {
        comm.piece = place_for(request, comm.head);
        if (comm.piece < 0) return Result::kInvalidUsage;
        continue;
      }
      const bool in_head = comm.moved < sizeof comm.head;
      char* to = in_head ? reinterpret_cast<char*>(&comm.head) + comm.moved
                         : request.pieces[static_cast<size_t>(comm.piece)].data + comm.moved - sizeof comm.head;
      const size_t room = in_head ? sizeof comm.head - comm.moved : sizeof comm.head + comm.head.bytes - comm.moved;
      const ssize_t n = ::recv(comm.fd, to, room, MSG_DONTWAIT);
      if (n == 0) return Result::kRemoteError;
      if (n < 0) return errno == EAGAIN || errno == EINTR ? Result::kSuccess : Result::kRemoteError;
      comm.moved += static_cast<size_t>(n);
    }
    request.pieces[static_cast<size_t>(comm.piece)].bytes = static_cast<int>(comm.head.bytes);
    comm.moved = 0;
    comm.piece = -1;
    if (std::ranges::any_of(request.pieces, [](const Piece& p) { return p.bytes < 0; })) continue;
    request.over = true;
    comm.queue.pop_front();
  }
  return Result::kSuccess;
}

Result move(Comm& comm) {
  if (comm.broken) return Result::kRemoteError;
  const Result result = comm.sends ? (write_some(comm) ? Result::kSuccess : Result::kRemoteError) : read_some(comm);
  comm.broken = result != Result::kSuccess;
  return result;
}

Result begin(Comm& comm, std::vector<Piece> pieces, void** request) {
  *request = nullptr;
  if (comm.broken) return Result::kRemoteError;
  if (comm.n_requests == (comm.sends ? kMostRequests * kMostInGroup : kMostRequests)) return Result::kSuccess;
  auto* made = new Request{&comm, std::move(pieces)};
  ++comm.n_requests;
  comm.queue.push_back(made);
  *request = made;
  return Result::kSuccess;
}

}  // namespace

Result listen(void* handle, void** listener) {
  auto made = new Listener();
  made->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const char* text = std::getenv("SAMPLE_NET_ADDRESS");
  sockaddr_in at{};
  at.sin_family = AF_INET;
  socklen_t size = sizeof at;
  Handle mine{};
  if (made->fd < 0 || inet_pton(AF_INET, text ? text : "127.0.0.1", &at.sin_addr) != 1 ||
      ::bind(made->fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(made->fd, 16) != 0 ||
      ::getsockname(made->fd, reinterpret_cast<sockaddr*>(&at), &size) != 0 ||
      ::getrandom(made->token, sizeof made->token, 0) != sizeof made->token) {
    close_listen(made);
    return Result::kSystemError;
  }
  mine.address = at.sin_addr.s_addr;
  mine.port = at.sin_port;
  std::memcpy(mine.token, made->token, sizeof mine.token);
  std::memcpy(handle, &mine, sizeof mine);
  *listener = made;
  return Result::kSuccess;
}

Result connect(void* handle, void** comm) {
  *comm = nullptr;
  Handle state;
  std::memcpy(&state, handle, sizeof state);
  if (state.stage == kFresh) {
    state.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = state.address;
    to.sin_port = state.port;
    if (state.fd < 0) return Result::kSystemError;
    if (::connect(state.fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
      ::close(state.fd);
      return Result::kSystemError;
    }
    state.stage = kConnecting;
  }
  if (state.stage == kConnecting) {
    pollfd ready{state.fd, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (::poll(&ready, 1, 0) == 1) {
      if (::getsockopt(state.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error) {
        ::close(state.fd);
        return Result::kSystemError;
      }
      state.stage = kConnected;
    }
  }
  if (state.stage == kConnected) {
    const ssize_t n = ::send(state.fd, reinterpret_cast<const char*>(state.token) + state.sent,
                             sizeof state.token - static_cast<size_t>(state.sent), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) {
      ::close(state.fd);
      return Result::kSystemError;
    }
    state.sent += static_cast<int32_t>(std::max<ssize_t>(n, 0));
    if (state.sent == sizeof state.token) *comm = new_comm(state.fd, true);
  }
  std::memcpy(handle, &state, sizeof state);
  return Result::kSuccess;
}

Result accept(void* listener, void** comm) {
  *comm = nullptr;
  auto& l = *static_cast<Listener*>(listener);
  if (l.opening < 0) {
    l.opening = ::accept4(l.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    l.n_got = 0;
    if (l.opening < 0) return errno == EAGAIN || errno == ECONNABORTED ? Result::kSuccess : Result::kSystemError;
  }
  const ssize_t n = ::recv(l.opening, reinterpret_cast<char*>(l.got) + l.n_got, sizeof l.got - l.n_got, MSG_DONTWAIT);
  if (n > 0) l.n_got += static_cast<size_t>(n);
  const bool gone = n == 0 || (n < 0 && errno != EAGAIN);
  const bool whole = l.n_got == sizeof l.got;
  if (whole && std::memcmp(l.got, l.token, sizeof l.got) == 0) {
    *comm = new_comm(l.opening, false);
    l.opening = -1;
  } else if (gone || whole) {  // a stranger
    ::close(l.opening);
    l.opening = -1;
  }
  return Result::kSuccess;
}

Result register_memory(void* data, size_t bytes, int type, void** memory) {
  if (type != kHostPointer && type != kCudaPointer) return Result::kInvalidArgument;
  *memory = new Memory{static_cast<char*>(data), bytes};
  return Result::kSuccess;
}

Result register_dma_buf(void* data, size_t bytes, uint64_t offset, int fd, void** memory) {
  const auto start = static_cast<off_t>(offset);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start);
  if (mapped == MAP_FAILED) return Result::kSystemError;
  *memory = new Memory{static_cast<char*>(data), bytes, static_cast<char*>(mapped)};
  return Result::kSuccess;
}

Result deregister_memory(void* handle) {
  auto* memory = static_cast<Memory*>(handle);
  if (memory->mapped) ::munmap(memory->mapped, memory->bytes);
  delete memory;
  return Result::kSuccess;
}

Result send(Comm& comm, void* data, size_t bytes, int tag, void* memory, void** request) {
  auto* registered = static_cast<Memory*>(memory);
  if (!registered || !registered->holds(data, bytes)) return Result::kInternalError;
  const Result result = begin(comm, {{registered->at(data), bytes, tag}}, request);
  return result == Result::kSuccess && *request ? move(comm) : result;
}

Result receive(Comm& comm, std::vector<Piece> pieces, void** memory, void** request) {
  if (pieces.empty() || pieces.size() > kMostInGroup) return Result::kInternalError;
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto* registered = static_cast<Memory*>(memory[i]);
    if (!registered || !registered->holds(pieces[i].data, pieces[i].room)) return Result::kInternalError;
    pieces[i].data = registered->at(pieces[i].data);
  }
  return begin(comm, std::move(pieces), request);
}

Result test(void* handle, int* done, int* bytes) {
  auto* request = static_cast<Request*>(handle);
  *done = 0;
  if (!request->over) {
    const Result result = move(*request->comm);
    if (result != Result::kSuccess && !request->over) return result;
  }
  if (!request->over) return Result::kSuccess;
  if (bytes)
    for (size_t i = 0; i < request->pieces.size(); ++i) bytes[i] = request->pieces[i].bytes;
  *done = 1;
  --request->comm->n_requests;
  delete request;
  return Result::kSuccess;
}

Result close(void* handle) {
  auto* comm = static_cast<Comm*>(handle);
  for (Request* request : comm->queue) delete request;
  ::close(comm->fd);
  delete comm;
  return Result::kSuccess;
}

Result close_listen(void* handle) {
  auto* listener = static_cast<Listener*>(handle);
  if (listener->opening >= 0) ::close(listener->opening);
  if (listener->fd >= 0) ::close(listener->fd);
  delete listener;
  return Result::kSuccess;
}

}  // namespace tutti::nccl::sample
