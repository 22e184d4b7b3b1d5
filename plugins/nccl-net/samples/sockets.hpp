// SPDX-License-Identifier: Apache-2.0
//
// A correct network plugin of NCCL over TCP sockets, as a vendor writes one: everything but the tables, which differ by
// version. A message has a head of 8 bytes, its size and its tag. Bytes move in test and in the calls that begin
// something; no thread runs.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <vector>

#include <tutti/sdk/nccl_net.hpp>

namespace tutti::nccl::sample {

inline constexpr int kMostRequests = 32, kMostInGroup = 4;

struct Memory {  // what regMr returns
  char* data;
  size_t bytes;
  char* mapped = nullptr;  // the bytes of a dma-buf
  char* at(const void* address) const {
    return (mapped ? mapped : data) + (static_cast<const char*>(address) - data);
  }
  bool holds(const void* at, size_t n) const {
    const char* begin = static_cast<const char*>(at);
    return begin >= data && begin + n <= data + bytes;
  }
};

struct Head {
  uint32_t bytes;
  int32_t tag;
};

struct Request;

// A comm of either direction.
struct Comm {
  int fd = -1;
  bool sends = false;
  bool broken = false;
  std::deque<Request*> queue;  // begun, not over; the oldest first
  int n_requests = 0;          // of all that test has not seen over
  Head head{};                 // of the message under way
  size_t moved = 0;            // bytes of its head and payload
  int piece = -1;              // receives: where it goes, once the head is there
};

struct Piece {
  char* data;
  size_t room;
  int tag;
  int bytes = -1;  // that came
};

struct Request {
  Comm* comm;
  std::vector<Piece> pieces;  // one for a send
  bool over = false;
};

struct Listener {
  int fd = -1;
  uint64_t token[2] = {};
  int opening = -1;  // accepted, its token has not come
  uint64_t got[2] = {};
  size_t n_got = 0;
};

// The handle's contents, and the state of a connect that is under way.
struct Handle {
  uint32_t address;  // network order
  uint16_t port;     // network order
  uint16_t stage;
  int32_t fd;
  int32_t sent;
  uint64_t token[2];
};
static_assert(sizeof(Handle) <= kHandleBytes);

Result listen(void* handle, void** listener);
Result connect(void* handle, void** comm);
Result accept(void* listener, void** comm);
Result register_memory(void* data, size_t bytes, int type, void** memory);
// The bytes of the dma-buf `fd` from `offset` on are the memory at `data`.
Result register_dma_buf(void* data, size_t bytes, uint64_t offset, int fd, void** memory);
Result deregister_memory(void* memory);
Result send(Comm& comm, void* data, size_t bytes, int tag, void* memory, void** request);
Result receive(Comm& comm, std::vector<Piece> pieces, void** memory, void** request);
Result test(void* request, int* done, int* bytes);
Result close(void* comm);
Result close_listen(void* listener);

}  // namespace tutti::nccl::sample
