/* SPDX-License-Identifier: Apache-2.0
 * One plugin that is wrong in the way that BAD names. */
#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>

#define OTHER_ABI 1
#define SHORT_ENTRY 2
#define NO_INIT 3
#define A_DRAFT 4
#define SHORT_TABLE 5
#define NULL_FUNCTION 6
#define INIT_FAILS 7
#define NAME_TAKEN 8
#define BAD_ID 9

static const tutti_host* host;
static tutti_status supports(void* self, const tutti_query* query) {
  (void)self, (void)query;
  return TUTTI_OK;
}
static tutti_status schedule(void* self, const tutti_query* query, const tutti_schedule_sink* sink) {
  (void)self, (void)query, (void)sink;
  return TUTTI_OK;
}
static const tutti_algorithm algorithm = {
    BAD == SHORT_TABLE ? 16 : sizeof(tutti_algorithm),
    BAD == A_DRAFT ? 0xdeadbeefu : 0,
    0,
    BAD == NAME_TAKEN ? "ring" : "bad",
    "a bad one",
    1u << TUTTI_ALL_REDUCE,
    BAD == NULL_FUNCTION ? 0 : supports,
    schedule,
};
static tutti_status init(const tutti_host* given) {
  host = given;
  if (BAD == INIT_FAILS) {
    host->set_error(host->self, TUTTI_SYSTEM, "the moon is full");
    return TUTTI_SYSTEM;
  }
  return TUTTI_OK;
}
static const void* get_interface(const char* id, uint32_t index) {
  const char* mine = TUTTI_ALGORITHM_ID;
  for (; *id && *id == *mine; ++id, ++mine) {
  }
  return *id == *mine && index == 0 ? &algorithm : 0;
}
static const tutti_plugin_info info = {sizeof info, 0, BAD == BAD_ID ? "Bad Name" : "bad", "1.0.0", "test", "Apache-2.0", "bad"};
TUTTI_EXPORT const tutti_plugin_entry_table tutti_plugin_entry = {
    BAD == SHORT_ENTRY ? 8 : sizeof(tutti_plugin_entry_table),
    BAD == OTHER_ABI ? 77 : TUTTI_ABI_MAJOR,
    TUTTI_ABI_MINOR,
    0,
    &info,
    BAD == NO_INIT ? 0 : init,
    get_interface,
};
