// SPDX-License-Identifier: Apache-2.0
//
// Making sockets: close-on-exec, non-blocking, with the options of the settings.
#pragma once

#include <tutti/sdk/basic_stream.hpp>
#include <tutti/sdk/tls.hpp>

#include "address.hpp"
#include "settings.hpp"

namespace tutti::tcp {

using Socket = FileDescriptor;
using Stream = BasicStream<sdk::Error>;

// Listens at an address, on the first free port of the settings, and stores the port in `at`. Throws sdk::Error.
Socket listen(Where& at, const Settings& settings);
// Accepts the next connection and stores its source in `from`. Empty, with errno set, when there is none.
Socket accept(const Socket& listener, const Settings& settings, Where& from);
// Begins to connect. The socket becomes writable when the outcome is known. Throws sdk::Error.
Socket start_connecting(const Where& to, const Settings& settings);
// True once the socket is connected. Throws sdk::Error when connecting has failed.
bool has_connected(const Socket& socket, const Settings& settings);

}  // namespace tutti::tcp
