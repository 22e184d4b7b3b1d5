// SPDX-License-Identifier: Apache-2.0
//
// nccl_serve_peer FILE VERSION TRANSPORT: the receiving end of a connection, in a process of its own. Writes its handle
// to standard output, accepts, receives one message of at most 1 MiB and then, for ever, a second one. A letter is
// written when it has accepted ('a'), and when the first message is there and right ('r').
#include <unistd.h>

#include "driver.hpp"

int main(int argc, char** argv) {
  using namespace nccl_driver;
  if (argc != 4) return 2;
  const auto tell = [](char letter) { return ::write(STDOUT_FILENO, &letter, 1) == 1; };
  Plugin plugin(argv[1], std::atoi(argv[2]), argv[3]);
  Handle handle;
  void *listener = nullptr, *comm = nullptr;
  if (plugin.result != Result::kSuccess || plugin.listen(handle, &listener) != Result::kSuccess ||
      ::write(STDOUT_FILENO, handle.data(), handle.size()) != static_cast<ssize_t>(handle.size()))
    return 3;
  if (!until([&] { return plugin->accept(listener, &comm) != Result::kSuccess || comm; }) || !comm) return 4;
  if (!tell('a')) return 5;
  Buffer first(plugin.calls(), comm, 1 << 20), second(plugin.calls(), comm, 64);
  Transfer one(plugin.calls()), other(plugin.calls());
  if (one.receive(comm, {&first}, {1}) != Result::kSuccess || other.receive(comm, {&second}, {2}) != Result::kSuccess)
    return 6;
  if (!until([&] { return !one.poll() || one.done; }) || !one.done) return 7;
  const auto n = static_cast<size_t>(one.sizes[0]);
  const Buffer expected(plugin.calls(), comm, n, 1);
  if (!first.begins_like(expected, n) || !tell('r')) return 8;
  while (other.poll() && !other.done) continue;
  return other.result == Result::kRemoteError ? 0 : 9;
}
