// SPDX-License-Identifier: Apache-2.0
//
// Sockets of closed endpoints that still have bytes to send. Closing a socket while the peer sends resets the
// connection and loses the bytes that the peer's kernel has not received. So the socket stays open until the peer's
// kernel has everything. Bytes that arrive meanwhile are discarded.
#pragma once

#include <cstddef>
#include <tutti/sdk/departures.hpp>
#include <vector>

#include "stream.hpp"

namespace tutti::tcp {

// One such socket.
class Departure {
 public:
  // `rest` is what remains to be written.
  Departure(Stream stream, std::vector<char> rest);
  // Continues without blocking. True when it is finished: the peer's kernel has everything, or the connection is gone.
  bool advance();

 private:
  Stream stream_;
  std::vector<char> rest_;
  size_t done_ = 0;
  bool is_local_;
};

// Departures that were not finished when their endpoint was closed.
using Departures = sdk::Departures<Departure>;

}  // namespace tutti::tcp
