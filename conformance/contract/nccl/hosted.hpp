// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL, driven by its own table: both ends of a connection are in this process and polled by one
// thread. Every call is watched: one that does not return breaks "nccl.never-blocks".
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tutti/sdk/nccl_net_calls.hpp>
#include <vector>

#include "contract/broken.hpp"
#include "contract/transport_api.hpp"

namespace tutti::conformance::contract {

// The file, loaded and initialised, with its newest table. Objects of a case that fails are left as they are: a plugin
// need not bear to be closed then.
class Hosted {
 public:
  explicit Hosted(Bench& bench);
  ~Hosted();
  void close();
  Hosted(const Hosted&) = delete;
  Hosted& operator=(const Hosted&) = delete;

  const nccl::Calls& calls() const { return *calls_; }
  const std::string& file() const { return file_; }  // as the loader found it
  void* context() const { return context_; }  // from version 11 on
  int devices() const { return devices_; }
  // The properties of an adapter; nccl.properties is judged elsewhere.
  nccl::Description describe(int device) const;
  int most_receives() const;  // of a group: maxRecvs, at most Calls::kMostInGroup
  size_t most_bytes() const;    // of a message
  int most_requests() const { return nccl::max_requests(calls_->version()); }

  // One call, with any result.
  nccl::Result attempt(const char* function, const std::function<nccl::Result()>& body) const;
  // One call, which must return ncclSuccess by `clause`.
  void call(const char* function, const char* clause, const std::function<nccl::Result()>& body) const;
  // Repeats `holds` until it returns true, for the bench's patience; then `clause` is broken.
  void until(const std::function<bool()>& holds, const char* clause, const std::function<std::string()>& text) const;

 private:
  Bench& bench_;
  std::string file_;
  std::unique_ptr<nccl::Calls> calls_;
  void* context_ = nullptr;
  bool is_open_ = false;
  int devices_ = 0;
};

// A listenComm, and its handle as it came by the bootstrap network.
struct Listening {
  explicit Listening(const Hosted& hosted, int device = 0);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  void close();
  const Hosted& hosted;
  const int device;
  void* listener = nullptr;
  std::vector<char> handle;
};

// A connection: its sendComm and its recvComm.
struct Connection {
  explicit Connection(const Hosted& hosted, int device = 0);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  void close();
  const Hosted& hosted;
  void *sender = nullptr, *receiver = nullptr;
};

// Calls connect or accept once; the comm, or nullptr.
void* try_connect(Listening& listening);
void* try_accept(Listening& listening);
// Both, until there is a comm at each end.
void connect_both(Listening& listening, void*& sender, void*& receiver);

// Registered memory between two stretches of bytes that must stay.
class Registered {
 public:
  static constexpr uint8_t kFresh = 0xEE;
  Registered(const Hosted& hosted, void* comm, size_t bytes, int type = nccl::kHostPointer);
  ~Registered();
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  uint8_t* data() { return bytes_.data() + kAround; }
  size_t size() const { return bytes_.size() - 2 * kAround; }
  void* handle() const { return handle_; }
  void fill(uint64_t seed);
  void deregister();
  // By nccl.data: the first bytes are those of `sent`, and nothing around the memory has changed. Bytes that have not
  // come are a matter of nccl.done.
  void require_received(Registered& sent, size_t bytes);
  // By nccl.data: nothing around the memory has changed.
  void require_kept_around() const;

 private:
  static constexpr size_t kAround = 64;
  const Hosted& hosted_;
  void* const comm_;
  std::vector<uint8_t> bytes_;
  void* handle_ = nullptr;
};

// A request of isend, irecv or iflush.
struct Transfer {
  static constexpr int kUnset = -1;  // a size that test has not written
  void* comm = nullptr;
  void* request = nullptr;
  bool done = false;
  std::array<int, nccl::Calls::kMostInGroup> sizes{};
};

// Posts and tests requests, and knows those that are pending. Where maxRecvs is 1 it tests the oldest request of a comm
// only, as NCCL does: no two channels share a comm then.
class Traffic {
 public:
  explicit Traffic(const Hosted& hosted) : hosted_(hosted), tests_oldest_(hosted.most_receives() == 1) {}
  struct Part {
    Registered* memory;
    int tag;
    size_t at = 0;      // offset in the memory
    size_t bytes = ~size_t{0};  // the rest of it
  };
  // False: the plugin gave a NULL request.
  bool try_send(void* comm, const Part& part, Transfer& transfer);
  bool try_receive(void* comm, const std::vector<Part>& group, Transfer& transfer);
  // Until it is posted.
  void receive(void* comm, const std::vector<Part>& group, Transfer& transfer);
  // True once it is done. False also where an older request must be tested first.
  bool test(Transfer& transfer);
  // Tests all of them until they are done.
  void finish(const std::vector<Transfer*>& transfers, const char* clause = "nccl.completion");
  // Posts an isend and tests it until it is done, and `polled` beside it.
  void send(void* comm, const Part& part, Transfer& transfer, const std::vector<Transfer*>& polled);

 private:
  bool posted(void* comm, void* request, Transfer& transfer, const char* function);
  const Hosted& hosted_;
  const bool tests_oldest_;
  std::map<void*, std::deque<void*>> pending_;  // by comm, the oldest first
};

// A connection, and memory at both of its ends.
struct Stretch {
  Stretch(const Hosted& hosted, size_t bytes, int type = nccl::kHostPointer)
      : connection(hosted),
        traffic(hosted),
        from(hosted, connection.sender, bytes, type),
        to(hosted, connection.receiver, bytes, type) {
    from.fill(bytes);
  }
  // The whole memory travels once.
  void exchange() {
    Transfer sent, received;
    traffic.receive(connection.receiver, {{&to, 0}}, received);
    traffic.send(connection.sender, {&from, 0}, sent, {&received});
    traffic.finish({&received});
    to.require_received(from, from.size());
  }
  Connection connection;
  Traffic traffic;
  Registered from, to;
};

}  // namespace tutti::conformance::contract
