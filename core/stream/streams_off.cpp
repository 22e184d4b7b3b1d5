// SPDX-License-Identifier: Apache-2.0
//
// All that this crate has in a library that is built with TUTTI_STREAM=OFF: its communicators are bound to no device.
#include "base/failure.hpp"
#include "stream/streams.hpp"

namespace tutti::core {

bool Streams::exist() { return false; }
std::unique_ptr<Streams> Streams::make(StreamSetup, StreamComm&) {
  throw Failure(TUTTI_INTERNAL, "a communicator is bound to a device, but this libtutti was built with TUTTI_STREAM=OFF");
}

}  // namespace tutti::core
