/* SPDX-License-Identifier: Apache-2.0
 * An algorithm plugin that reads a file in its init, the one that SAMPLE_FILE names, and says so by its digest. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/entry.h>

static tutti_status supports(void* self, const tutti_query* query) {
  (void)self, (void)query;
  return TUTTI_NOT_SUPPORTED;
}
static tutti_status schedule(void* self, const tutti_query* query, const tutti_schedule_sink* sink) {
  (void)self, (void)query, (void)sink;
  return TUTTI_INTERNAL;
}
static tutti_algorithm algorithm = {sizeof(tutti_algorithm),
                                    0,
                                    0,
                                    "from-file",
                                    "a schedule that was read from a file",
                                    1u << TUTTI_ALL_REDUCE,
                                    supports,
                                    schedule,
                                    0};
static tutti_status init(const tutti_host* host) {
  const char* name = getenv("SAMPLE_FILE");
  FILE* file = name ? fopen(name, "rb") : 0;
  if (!file) {
    host->set_error(host->self, TUTTI_NOT_FOUND, "SAMPLE_FILE names no file");
    return TUTTI_NOT_FOUND;
  }
  algorithm.digest = 0xcbf29ce484222325u;
  for (int byte = fgetc(file); byte != EOF; byte = fgetc(file))
    algorithm.digest = (algorithm.digest ^ (uint64_t)byte) * 0x100000001b3u;
  fclose(file);
  return TUTTI_OK;
}
static const void* get_interface(const char* id, uint32_t index) {
  const char* mine = TUTTI_ALGORITHM_ID;
  for (; *id && *id == *mine; ++id, ++mine) {
  }
  return *id == *mine && index == 0 ? &algorithm : 0;
}
static const tutti_plugin_info info = {sizeof info, 0, "from-file", "1.0.0", "test", "Apache-2.0", "a sample"};
TUTTI_EXPORT const tutti_plugin_entry_table tutti_plugin_entry = {
    sizeof(tutti_plugin_entry_table), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, &info, init, get_interface,
};
