// SPDX-License-Identifier: Apache-2.0
//
// TLS for a plugin's connections: basic_tls.hpp, which throws sdk::Error.
#pragma once

#include <tutti/net/basic_tls.hpp>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// sdk::config gives the settings of Tls::make.
using Tls = BasicTls<Error>;
using TlsSession = BasicTlsSession<Error>;

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
