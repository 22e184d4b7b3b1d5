// SPDX-License-Identifier: Apache-2.0
//
// How two ends find each other: listen gives a socket with a one-time token, both of which stand in the handle; the
// connecting end presents the token, and the socket becomes the comm's mailbox. Nothing that a stranger sends is read
// as anything but a token.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <tutti/sdk/file_descriptor.hpp>
#include <vector>

#include "comm.hpp"
#include "wire.hpp"

namespace tutti::nccl::serve {

class Listener {
 public:
  // Throws sdk::Error.
  Listener(Served& served, int traffic_class);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Writes kHandleBytes.
  void write_handle(void* handle) const;
  // A comm that is connected; nullptr: call again. Throws sdk::Error where a connection with the right token fails.
  std::unique_ptr<ReceiveComm> accept();

 private:
  struct Guest {
    Mailbox mailbox;
    std::string says;  // "10.0.0.2:4711"
    std::chrono::steady_clock::time_point since;
    std::unique_ptr<ReceiveComm> comm;  // once it has presented the token
  };
  void take_guests();
  bool greet(Guest& guest);
  void welcome(Guest& guest, const Hello& hello);

  Served& served_;
  const int traffic_class_;
  FileDescriptor socket_;
  Token token_;
  std::vector<Guest> guests_;
};

// One step of a connect. `handle` has kHandleBytes, where the number of a connect under way is kept. nullptr: call
// again. Throws sdk::Error. [any thread]
std::unique_ptr<SendComm> connect(Served& served, void* handle, int traffic_class);

}  // namespace tutti::nccl::serve
