// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL: empty messages, the largest ones, those that are too long, a peer that goes, dma-bufs, and
// several communicators.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "contract/contract_case.hpp"
#include "hosted.hpp"

namespace tutti::conformance::contract {
namespace {

using nccl::Result;
constexpr int kRounds = 20'000;  // of calls, after which something that must not happen has not happened

void sends_nothing(Bench& bench) {
  const Hosted hosted(bench);
  Stretch s(hosted, 64);
  Transfer sent, received;
  s.traffic.receive(s.connection.receiver, {{&s.to, 0}}, received);
  s.traffic.send(s.connection.sender, {&s.from, 0, 0, 0}, sent, {&received});
  s.traffic.finish({&received}, "nccl.empty");
  s.exchange();  // the next message is not mistaken for it
}

void sends_its_largest(Bench& bench) {
  const Hosted hosted(bench);
  constexpr size_t most = size_t{64} << 20;
  if (hosted.calls().version() < 9) throw NotOffered{"before version 9 there is no maxP2pBytes"};
  const size_t bytes = hosted.most_bytes();
  if (bytes > most) throw NotOffered{fmt::format("its maxP2pBytes is {}, this case takes at most {}", bytes, most)};
  try {
    Stretch(hosted, bytes).exchange();
  } catch (const Broken& b) {
    broken("nccl.properties", "maxP2pBytes is {}, and a message of as many bytes fails: {}", bytes, b.what());
  }
}

// Objects of a case whose requests stay pending are left as they are: the process ends with the case.
template <typename T, typename... Arguments>
T& leave(Arguments&&... arguments) {
  return *std::make_unique<T>(std::forward<Arguments>(arguments)...).release();
}

void refuses_what_is_too_long(Bench& bench) {
  const auto& hosted = leave<const Hosted>(bench);
  auto& s = leave<Stretch>(hosted, 4096);
  auto& room = leave<Registered>(hosted, s.connection.receiver, 4096 - 32);
  Transfer received;
  s.traffic.receive(s.connection.receiver, {{&room, 0}}, received);
  void* sent = nullptr;
  int done = 0, has_left = 0, size = 0;
  for (int i = 0; i < kRounds && !done; ++i) {
    if (!sent && hosted.attempt("isend", [&] {
          return hosted.calls().send(s.connection.sender, s.from.data(), s.from.size(), 0, s.from.handle(), &sent);
        }) != Result::kSuccess)
      break;
    if (sent && !has_left &&
        hosted.attempt("test", [&] { return hosted.calls().test(sent, &has_left, &size); }) != Result::kSuccess)
      break;
    if (hosted.attempt("test", [&] { return hosted.calls().test(received.request, &done, received.sizes.data()); }) !=
        Result::kSuccess)
      break;
  }
  room.require_kept_around();
  require(received.sizes[0] <= static_cast<int>(room.size()), "nccl.data",
          "an irecv with room for {} bytes has got {}, as test says", room.size(), received.sizes[0]);
}

void survives_its_peer(Bench& bench) {
  const auto& hosted = leave<const Hosted>(bench);
  auto& s = leave<Stretch>(hosted, 4096);
  s.exchange();
  Transfer received;
  s.traffic.receive(s.connection.receiver, {{&s.to, 0}}, received);
  s.from.deregister();
  hosted.call("closeSend", "nccl.close", [&] { return hosted.calls().close_send(s.connection.sender); });
  for (int i = 0; i < kRounds; ++i) {
    int done = 0;
    const Result result = hosted.attempt(
        "test", [&] { return hosted.calls().test(received.request, &done, received.sizes.data()); });
    if (result != Result::kSuccess) break;
    require(!done, "nccl.gone", "an irecv is done, for which nothing was sent before closeSend");
  }
  hosted.attempt("closeRecv", [&] { return hosted.calls().close_receive(s.connection.receiver); });
}

// Memory as a device exports it: a file's pages from an offset on, behind other ones. It stays.
struct Exported {
  static constexpr size_t kBytes = 4096;
  explicit Exported(uint8_t fill) : file(memfd_create("dma-buf", MFD_CLOEXEC)) {
    const bool is_there = file >= 0 && ftruncate(file, 2 * kBytes) == 0;
    pages = is_there ? mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (pages == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "a file in memory");
    std::fill_n(data(), kBytes, fill);
  }
  uint8_t* data() const { return static_cast<uint8_t*>(pages) + kBytes; }
  // nullptr: the plugin refuses it.
  void* registered(const Hosted& hosted, void* comm) const {
    void* handle = nullptr;
    const Result result = hosted.attempt("regMrDmaBuf", [&] {
      return hosted.calls().register_dma_buf(comm, data(), kBytes, nccl::kCudaPointer, kBytes, file, &handle);
    });
    return result == Result::kSuccess ? handle : nullptr;
  }
  const int file;
  void* pages;
};

void registers_dma_bufs(Bench& bench) {
  const auto& hosted = leave<const Hosted>(bench);
  if (!(hosted.describe(0).pointers & nccl::kDmaBuf)) throw NotOffered{"its ptrSupport lacks NCCL_PTR_DMABUF"};
  const auto &from = leave<Exported>(uint8_t{0x5a}), &to = leave<Exported>(uint8_t{0});
  auto& connection = leave<Connection>(hosted);
  void* const source = from.registered(hosted, connection.sender);
  void* const goal = to.registered(hosted, connection.receiver);
  if (!source || !goal)
    throw NotOffered{"it refuses a file in memory as a dma-buf, and no device that exports one is known here"};
  void *data = to.data(), *memory = goal, *sent = nullptr, *received = nullptr;
  const size_t bytes = Exported::kBytes;
  int tag = 0, left = 0, came = 0, size = 0;
  const auto test = [&](void* request, int& done) {
    if (request && !done)
      hosted.call("test", "nccl.completion", [&] { return hosted.calls().test(request, &done, &size); });
  };
  hosted.until(
      [&] {
        if (!received)
          hosted.call("irecv", "nccl.null-request", [&] {
            return hosted.calls().receive(connection.receiver, 1, &data, &bytes, &tag, &memory, &received);
          });
        if (!sent)
          hosted.call("isend", "nccl.null-request", [&] {
            return hosted.calls().send(connection.sender, from.data(), bytes, tag, source, &sent);
          });
        test(sent, left);
        test(received, came);
        return left && came;
      },
      "nccl.dma-buf", [] { return std::string("a message between two dma-bufs does not end"); });
  const uint8_t* const wrong = std::find_if(to.data(), to.data() + bytes, [](uint8_t b) { return b != 0x5a; });
  if (wrong != to.data() + bytes)
    broken("nccl.dma-buf", "byte {} of {} is {:#04x}, expected 0x5a: it is not the file's", wrong - to.data(), bytes,
           *wrong);
}

void serves_several_communicators(Bench& bench) {
  Hosted one(bench);
  if (one.calls().version() < 11) throw NotOffered{"before version 11 there are no contexts"};
  {
    Stretch of_one(one, 4096);
    for (int i = 0; i < 2; ++i) {
      Hosted other(bench);
      {
        Stretch of_other(other, 4096);
        of_other.exchange();
        of_one.exchange();
      }
      other.close();
      try {
        of_one.exchange();
      } catch (const Broken& b) {
        broken("nccl.context", "after finalize of another communicator's context a comm fails: {}", b.what());
      }
    }
  }
  one.close();
}

}  // namespace

std::vector<ContractCase> nccl_edge_cases() {
  return {
      {"empty", "a message of 0 bytes", {"nccl.empty", "nccl.done", "nccl.data"}, 2, sends_nothing},
      {"largest", "a message of maxP2pBytes", {"nccl.properties", "nccl.done", "nccl.data"}, 5, sends_its_largest},
      {"too-long", "an isend longer than its irecv", {"nccl.data"}, 2, refuses_what_is_too_long},
      {"gone", "closeSend while an irecv is pending", {"nccl.gone", "nccl.done", "nccl.data"}, 2, survives_its_peer},
      {"dma-bufs", "a message from one dma-buf to another", {"nccl.dma-buf"}, 2, registers_dma_bufs},
      {"contexts",
       "two communicators, one of which ends twice",
       {"nccl.context", "nccl.done", "nccl.data"},
       5,
       serves_several_communicators},
  };
}

}  // namespace tutti::conformance::contract
