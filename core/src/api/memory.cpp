// SPDX-License-Identifier: Apache-2.0
//
// Memory of the process, and windows of a communicator.
#include "engine/fabric/memory.hpp"

#include <tutti/tutti.h>

#include "api/guards.hpp"
#include "engine/fabric/devices.hpp"

using namespace tutti::core;
using namespace tutti::core::api;

extern "C" {

tutti_status tutti_mem_alloc(uint64_t bytes, void** address) {
  if (!address) return TUTTI_INVALID_ARGUMENT;
  return logged("tutti_mem_alloc", [&] { *address = Memory::process().allocate(bytes); });
}
tutti_status tutti_mem_free(void* address) {
  return logged("tutti_mem_free", [&] { Memory::process().release(address); });
}
tutti_status tutti_mem_register(void* address, uint64_t bytes, int32_t fd, uint64_t fd_offset) {
  return logged("tutti_mem_register", [&] {
    if (const DeviceMemory where = find_device(address); where)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("tutti_mem_register: {} is memory of device {}: all ranks of a communicator register "
                                "device memory together by tutti_comm_register",
                                address, where.tables.memory->name));
    Memory::process().add(address, bytes, fd, fd_offset);
  });
}
tutti_status tutti_mem_deregister(void* address) {
  return logged("tutti_mem_deregister", [&] { Memory::process().remove(address); });
}

tutti_status tutti_comm_register(tutti_comm* comm, void* address, uint64_t bytes, const tutti_window_options* options,
                                 tutti_window** window) {
  return jointly(comm, [&](Communicator& c) {
    if (!window) invalid("tutti_comm_register: window is NULL, expected where to write the handle");
    const tutti_window_options known = checked("tutti_comm_register", options, TUTTI_WINDOW_ZERO_COPY);
    *window = nullptr;
    *window = c.windows().add(address, bytes, known.flags, known.timeout_ns);
  });
}
tutti_status tutti_comm_deregister(tutti_comm* comm, tutti_window* window, const tutti_window_options* options) {
  return jointly(
      comm, [&](Communicator& c) { c.windows().remove(window, checked("tutti_comm_deregister", options).timeout_ns); });
}
tutti_status tutti_comm_window(const tutti_comm* comm, const tutti_window* window, tutti_window_facts* facts) {
  return guarded(comm, [&](Communicator& c) {
    require("tutti_comm_window", tutti::judge_offer(facts));
    tutti::fill_room(facts, c.windows().facts(window));
  });
}

}  // extern "C"
