// SPDX-License-Identifier: Apache-2.0
//
// Checksums (TUTTI_CHECKSUM=1): a transport over a transport that seals each message. A seal is the message's number on
// its way and a 64-bit hash (XXH3) of number and bytes; it travels behind the bytes, in the same message. So a message
// that was changed, lost, doubled or overtaken on its way is noticed when the next one of its lane arrives, and its
// bytes are never handed on; nobody arriving at all is for the deadline to notice. What the sealed transport shows is
// transport/1, wait_fd/1 and rails/1 alone: each message is copied, at both ends.
//
// All ranks seal or none (the communicator compares). [any thread, as the wrapped transport]
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>

namespace tutti::core {

// What a seal takes of a message.
constexpr uint64_t seal_bytes = 16;

// The transport over `inner`, under the same name. The table lives as long as the process; asking again gives the same.
const tutti_transport* sealed(const tutti_transport* inner);

}  // namespace tutti::core
