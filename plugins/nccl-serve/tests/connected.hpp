// SPDX-License-Identifier: Apache-2.0
//
// Connections between comms of this process, for the tests (GoogleTest).
#pragma once

#include <gtest/gtest.h>

#include "driver.hpp"

namespace nccl_driver {

// Calls connect and accept until each has returned a comm.
inline void connect_both(const Plugin& plugin, Handle& handle, void* listener, void*& sender, void*& receiver) {
  ASSERT_TRUE(until([&] {
    if (!sender) {
      EXPECT_EQ(plugin.connect(handle, &sender), Result::kSuccess) << Said::all().take();
    }
    if (!receiver) {
      EXPECT_EQ(plugin->accept(listener, &receiver), Result::kSuccess) << Said::all().take();
    }
    return sender && receiver;
  }));
}

// A sendComm and its recvComm; both ends are polled by this thread.
struct Connected {
  explicit Connected(const Plugin& of) : Connected(of, of) {}
  Connected(const Plugin& from, const Plugin& to) : calls(from.calls()) {
    Handle handle;
    void* listener = nullptr;
    EXPECT_EQ(to.listen(handle, &listener), Result::kSuccess) << Said::all().take();
    if (!listener) return;
    Handle copy = handle;  // NCCL's bootstrap carries it to the other end
    EXPECT_TRUE(until([&] {
      if (!sender && connected == Result::kSuccess) connected = from.connect(copy, &sender);
      if (!receiver && accepted == Result::kSuccess) accepted = to->accept(listener, &receiver);
      return (sender || connected != Result::kSuccess) && (receiver || accepted != Result::kSuccess);
    }));
    EXPECT_EQ(to->close_listen(listener), Result::kSuccess);
  }
  ~Connected() { close(); }
  void close() {
    if (sender) {
      EXPECT_EQ(calls.close_send(std::exchange(sender, nullptr)), Result::kSuccess);
    }
    if (receiver) {
      EXPECT_EQ(calls.close_receive(std::exchange(receiver, nullptr)), Result::kSuccess);
    }
  }
  const Calls& calls;
  void *sender = nullptr, *receiver = nullptr;
  Result connected = Result::kSuccess, accepted = Result::kSuccess;
};

// Posts an isend as soon as it is taken, while the other requests are tested.
inline void post_send(Transfer& send, void* comm, Buffer& from, size_t bytes, int tag,
                      const std::vector<Transfer*>& polled = {}, size_t at = 0) {
  ASSERT_TRUE(until([&] {
    for (Transfer* other : polled) EXPECT_TRUE(other->poll());
    EXPECT_EQ(send.send(comm, from, bytes, tag, at), Result::kSuccess) << Said::all().take();
    return send.request != nullptr;
  })) << "isend is never taken";
}
inline void finish(const std::vector<Transfer*>& transfers) {
  ASSERT_TRUE(until([&] {
    bool all = true;
    for (Transfer* t : transfers) {
      EXPECT_TRUE(t->poll()) << Said::all().take();
      all &= t->done || t->result != Result::kSuccess;
    }
    return all;
  })) << "requests are never done";
}

}  // namespace nccl_driver
