// SPDX-License-Identifier: Apache-2.0
//
// How this transport makes its sockets: closed in programs that a rank starts, never blocking, with the options of the
// settings.
#pragma once

#include <optional>
#include <string>

#include "address.hpp"
#include "stream.hpp"

namespace tutti::tcp {

using Acceptor = boost::asio::ip::tcp::acceptor;

// Listens on the first free port of the settings at an address; nothing, and why in `problem`, where there is none.
std::optional<Acceptor> listen(boost::asio::io_context& io, const LocalAddress& at, const Settings& settings,
                               std::string& problem);

// The next connection that waits, and from where; `error` is would_block where none does.
Socket accept(Acceptor& listener, const Settings& settings, std::string& from, boost::system::error_code& error);

// Begins to connect; how it went is known once the socket can be written. Throws sdk::Error.
Socket start_connecting(boost::asio::io_context& io, const PeerAddress::Listener& to, const Settings& settings);

// Has it connected by now? Throws sdk::Error where it has failed.
bool has_connected(Socket& socket);

}  // namespace tutti::tcp
