// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::core {

// Descriptors that a forked child closes at once: a child that kept the connections of its parent open would hide its
// parent's death. (Programs that are executed do not have them anyway: close-on-exec.) Any thread.
void close_in_children(int fd);
// Before the descriptor is closed here.
void forget_in_children(int fd);

}  // namespace tutti::core
