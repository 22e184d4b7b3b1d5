/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "plugin.h"

static tutti_status init(const tutti_host* host) {
  if (host->struct_size < TUTTI_SIZE_UP_TO(tutti_host, memory_kind)) return TUTTI_INVALID_ARGUMENT;
  version1_host = host;
  return TUTTI_OK;
}

static const void* get_interface(const char* id, uint32_t index) {
  if (index == 0 && strcmp(id, TUTTI_TRANSPORT_ID) == 0) return &version1_transport;
  if (index == 0 && strcmp(id, TUTTI_ALGORITHM_ID) == 0) return &version1_algorithm;
  if (index == 0 && strcmp(id, TUTTI_MEETING_ID) == 0) return &version1_meeting;
  return NULL;
}

static const tutti_plugin_info info = {
    sizeof info, 0, "version1", "1.0.0", "Tutti", "Apache-2.0", "every stable interface, as version 1 froze it"};
TUTTI_EXPORT const tutti_plugin_entry_table tutti_plugin_entry = {
    sizeof(tutti_plugin_entry_table), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, &info, init, get_interface};
