// SPDX-License-Identifier: Apache-2.0
//
// host_key, host_space and boot_id, as the core has them.
#pragma once
#include <tutti/base/host_identity.hpp>
