// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL that breaks one rule, which the environment variable TUTTI_MUTANT names whenever the rule is
// at stake: conformance/mutants/faults.cpp has the list. Without it the plugin is correct.
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "../samples/sockets.hpp"
#include "fault.hpp"

namespace {

using namespace tutti::nccl;

using sample::fault;
Logger say = nullptr;
char name[] = "faulty";
std::set<void*> device_memory;           // registered as such
std::vector<sample::Request*> detached;  // reported done, and still under way
struct Unsent {                          // an isend that is begun after it was reported done
  sample::Comm* comm;
  void* data;
  size_t bytes;
  int tag;
  void* memory;
};
std::set<void*> unsent;            // not reported done yet
std::vector<Unsent*> to_be_begun;  // by the next test
sample::Comm* first_receiver = nullptr;  // of the fault comm-blocks-comm
constexpr size_t kOverrun = 64;          // bytes behind an irecv's memory
constexpr int kLong = 100'000;           // messages that are reported done too early
int never_done, empty;                   // their addresses are such requests: never done, of no bytes
bool ended = false;                      // all comms, of close-ends-all, which breaks no rule
sample::Comm& comm_of(void* comm) { return *static_cast<sample::Comm*>(comm); }

[[noreturn]] void block() {
  for (;;) ::pause();
}

Result get_properties(int, Properties<8>* p) {
  *p = {};
  p->name = fault("nameless") ? nullptr : name;
  p->pointers = fault("no-host-memory") ? kCudaPointer : kHostPointer | kCudaPointer | (fault("dma-buf") ? kDmaBuf : 0);
  p->speed = 10'000;
  p->max_comms = fault("no-comms") ? 0 : 1 << 16;
  p->max_receives = fault("no-receives") ? 0 : sample::kMostInGroup;
  return Result::kSuccess;
}

Result listen(int, void* handle, void** listener) {
  if (fault("listen-fails")) {
    say(kLogWarn, 16, __FILE__, __LINE__, "no port is left on %s", "eth9");
    return Result::kSystemError;
  }
  const Result result = sample::listen(handle, listener);
  if (fault("long-handle")) static_cast<char*>(handle)[kHandleBytes] = 1;
  if (fault("no-listener")) *listener = nullptr;
  return result;
}

Result connect(int, void* handle, void** comm, void**) {
  if (fault("connect-fails")) return Result::kRemoteError;
  if (fault("connect-blocks")) block();
  if (fault("never-connects")) {
    *comm = nullptr;
    return Result::kSuccess;
  }
  return sample::connect(handle, comm);
}

Result accept(void* listener, void** comm, void**) {
  const Result result = sample::accept(listener, comm);
  if (result == Result::kSuccess && !*comm && fault("accept-blocks")) block();
  if (result == Result::kSuccess && !*comm && fault("accept-fails")) return Result::kSystemError;
  return result;
}

Result register_memory(void*, void* data, size_t bytes, int type, void** memory) {
  if (fault("regmr-fails")) return Result::kInternalError;
  if (type == kCudaPointer) device_memory.insert(data);
  if (fault("regmr-writes")) *static_cast<char*>(data) = 0;
  return sample::register_memory(data, bytes, type, memory);
}

Result send(void* comm, void* data, int bytes, int tag, void* memory, void** request) {
  if (fault("isend-fails")) return Result::kSystemError;
  static bool is_first = true;
  if (std::exchange(is_first, false) && fault("null-is-an-error")) return Result::kInternalError;
  if (bytes == 0 && fault("empty-lost")) {
    *request = &empty;
    return Result::kSuccess;
  }
  if (bytes >= kLong && fault("isend-done-early")) {
    *request = *unsent.insert(new Unsent{&comm_of(comm), data, static_cast<size_t>(bytes), tag, memory}).first;
    return Result::kSuccess;
  }
  return sample::send(comm_of(comm), data, static_cast<size_t>(bytes), fault("tags-ignored") ? 0 : tag, memory,
                      request);
}

Result receive(void* comm, int n, void** data, int* bytes, int* tags, void** memory, void** request) {
  sample::Comm& at = comm_of(comm);
  if (!first_receiver) first_receiver = &at;
  if (fault("request-unset")) return Result::kSuccess;
  if (at.n_requests >= 8 && fault("few-requests")) {
    *request = nullptr;
    return Result::kSuccess;
  }
  if (!at.queue.empty() && fault("request-reused")) {
    *request = at.queue.back();
    return Result::kSuccess;
  }
  std::vector<sample::Piece> pieces;
  for (int i = 0; i < n; ++i)
    pieces.push_back(
        {static_cast<char*>(data[i]), static_cast<size_t>(bytes[i]), fault("tags-ignored") ? 0 : tags[i]});
  const Result result = sample::receive(at, std::move(pieces), memory, request);
  if (*request && fault("overruns")) at.queue.back()->pieces[0].room += kOverrun;
  if (at.queue.size() >= 2 && at.moved == 0 && fault("reordered")) std::swap(at.queue.back(), at.queue.end()[-2]);
  return result;
}

// Puts in the faults of a request that is done; `bytes` has room for all pieces' sizes.
void spoil(const std::vector<sample::Piece>& pieces, bool sends, int* bytes) {
  const sample::Piece& first = pieces.front();
  if (sends) {
    if (fault("no-size-of-isend")) *bytes = 0;
    return;
  }
  if (fault("size-of-room")) *bytes = 1 << 20;
  if (fault("size-too-small")) *bytes = 3;
  if (*bytes > 10'000 && fault("one-byte-less")) *bytes -= 1;
  if (pieces.size() > 1 && fault("group-has-one-size")) std::fill(bytes, bytes + pieces.size(), *bytes);
  if (fault("writes-behind")) first.data[first.room] = 1;
  if (first.bytes > 0 && fault("wrong-bit")) first.data[first.bytes - 1] ^= 1;
  if (device_memory.contains(first.data) && fault("flush-ignored")) first.data[0] = '\x55';
}

// Continues what was reported done.
void go_on() {
  for (const Unsent* one : std::exchange(to_be_begun, {})) {
    void* request = nullptr;
    sample::send(*one->comm, one->data, one->bytes, one->tag, one->memory, &request);
    if (request) detached.push_back(static_cast<sample::Request*>(request));
    delete one;
  }
  for (auto it = detached.begin(); it != detached.end();) {
    int over = 0;
    sample::test(*it, &over, nullptr);
    it = over ? detached.erase(it) : it + 1;
  }
}

Result test(void* handle, int* done, int* bytes) {
  *done = 0;
  if (ended && fault("close-ends-all")) return Result::kInternalError;
  go_on();
  if (unsent.erase(handle)) {
    to_be_begun.push_back(static_cast<Unsent*>(handle));
    *bytes = static_cast<int>(to_be_begun.back()->bytes);
    *done = 1;
    return Result::kSuccess;
  }
  if (handle == &never_done) return Result::kSuccess;
  if (handle == &empty) {
    *bytes = 0;
    *done = 1;
    return Result::kSuccess;
  }
  auto* request = static_cast<sample::Request*>(handle);
  const bool sends = request->comm->sends;
  const std::vector<sample::Piece> before = request->pieces;
  const bool is_early = (before[0].room >= kLong && fault("irecv-done-early")) ||
                        (before.size() > 1 && fault("group-done-early"));
  if (!sends && is_early) {
    *bytes = static_cast<int>(before[0].room);
    detached.push_back(request);
    *done = 1;
    return Result::kSuccess;
  }
  if (before[0].room == 4095 && fault("completion-lost")) return Result::kSuccess;
  const bool is_held_up = first_receiver && request->comm != first_receiver && !first_receiver->queue.empty();
  if (!sends && is_held_up && fault("comm-blocks-comm")) return Result::kSuccess;
  std::vector<sample::Piece> after = before;
  int sizes[sample::kMostInGroup] = {};
  const Result result = sample::test(handle, done, sizes);
  if (!sends && result != Result::kSuccess && fault("gone-is-done")) {
    *done = 1;
    return Result::kSuccess;
  }
  if (!*done) return result;
  for (size_t i = 0; i < after.size(); ++i) after[i].bytes = sizes[i];
  spoil(after, sends, sizes);
  if (bytes && !fault("no-sizes")) std::copy_n(sizes, after.size(), bytes);
  return result;
}

Table<8> make() {
  Table<8> t{};
  t.name = "faulty";
  t.init = [](Logger logger) {
    say = logger;
    if (!fault("init-fails")) return Result::kSuccess;
    say(kLogWarn, 16, __FILE__, __LINE__, "the driver of %s is too old", "eth9");
    return Result::kSystemError;
  };
  t.devices = [](int* n) {
    *n = fault("no-adapter") ? 0 : 1;
    return Result::kSuccess;
  };
  t.get_properties = get_properties;
  t.listen = listen;
  t.connect = connect;
  t.accept = accept;
  t.register_memory = register_memory;
  t.deregister_memory = [](void*, void* memory) {
    device_memory.erase(static_cast<sample::Memory*>(memory)->data);
    const Result result = sample::deregister_memory(memory);
    return fault("deregmr-fails") ? Result::kInternalError : result;
  };
  t.send = send;
  t.receive = receive;
  t.flush = [](void*, int, void**, int*, void**, void** request) {
    *request = fault("flush-hangs") ? &never_done : nullptr;
    return fault("flush-fails") ? Result::kInvalidArgument : Result::kSuccess;
  };
  t.test = test;
  t.close_send = [](void* comm) {
    ended = ended || (comm_of(comm).n_requests > 0 && fault("close-ends-all"));
    const Result result = sample::close(comm);
    return fault("close-fails") ? Result::kSystemError : result;
  };
  t.close_receive = [](void* comm) {
    if (first_receiver == comm) first_receiver = nullptr;
    ended = ended || (comm_of(comm).n_requests > 0 && fault("close-ends-all"));
    if (fault("leaks-descriptor")) (void)::dup(comm_of(comm).fd);
    return sample::close(comm);
  };
  t.close_listen = fault("no-closelisten") ? nullptr : sample::close_listen;
  return t;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table<8> ncclNetPlugin_v8 = make();
