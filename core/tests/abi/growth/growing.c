/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin version1 as it would be of another minor version, or as a liar would offer it. VARIANT says which; each is
 * a library of its own, and its name is that of its interfaces. */
#include <string.h>

#include "../version1/plugin.h"

#define OLDER 1       /* each table ends at its last mandatory field, and what is behind it is no table */
#define NEWER 2       /* each table is longer, with nothing there; a flag that may be ignored */
#define CAUTIOUS 3    /* a function more, which it offers only to a core that knows it */
#define ASKING 4      /* the same, which it offers to any core */
#define ASKING_VIEW 5 /* likewise in view/1 */
#define DEMANDING 6   /* a flag that must be understood */
#define DRAFT_RAILS 7 /* rails/1 as a draft had it */
#define SHORT_WAIT 8  /* a table of wait_fd/1 that ends before its last mandatory field */
#define HALF_MARKS 9  /* its messages carry marks, its view has no set_mark */
#define TINY 10       /* messages of at most 100 bytes */
#define OVERFULL 11   /* query says that it has filled more than there is room */

enum { ROOM = 512, NEXT_MINOR = TUTTI_ABI_MINOR + 1 };

static const char name[] = VARIANT_NAME;
static _Alignas(8) unsigned char tables[6][ROOM];

static void no_function(void) {}

/* Puts a table into a row of `tables`, as the variant has it. */
static void offer(unsigned row, const void* table, uint32_t bytes, uint64_t mandatory, int alters) {
  uint32_t claimed = bytes;
  memset(tables[row], VARIANT == OLDER ? 0xff : 0, ROOM);
  if (VARIANT == OLDER) claimed = bytes = (uint32_t)mandatory;
  if (VARIANT == NEWER) claimed = bytes + 24;
  memcpy(tables[row], table, bytes);
  void (*const more)(void) = no_function;
  if (alters && (VARIANT == ASKING || VARIANT == ASKING_VIEW ||
                 (VARIANT == CAUTIOUS && version1_host->abi_minor >= NEXT_MINOR))) {
    memcpy(tables[row] + bytes, &more, sizeof more);
    claimed = bytes + (uint32_t)sizeof more;
  }
  if (alters && VARIANT == SHORT_WAIT) claimed = (uint32_t)mandatory - 8;
  memcpy(tables[row], &claimed, sizeof claimed);
  if (alters && VARIANT == DRAFT_RAILS) memcpy(tables[row] + 4, "\x2a\x81\xe2\x96", 4);
}

static tutti_status query(tutti_domain* domain, tutti_transport_caps* caps) {
  const uint32_t room = caps->struct_size;
  const tutti_status status = version1_transport.query(domain, caps);
  if (VARIANT == OLDER) caps->flags = 0; /* its view ends before set_mark */
  if (VARIANT == NEWER) caps->flags |= UINT64_C(1) << 40;
  if (VARIANT == DEMANDING) caps->flags |= 1u << 5;
  if (VARIANT == TINY) caps->fragment_bytes = 100;
  if (VARIANT == OVERFULL) caps->struct_size = room + 8;
  return status;
}

static const void* optional(void* self, const char* id) {
  static const char* const ids[] = {TUTTI_VIEW_ID, TUTTI_WAIT_FD_ID, TUTTI_RAILS_ID};
  (void)self;
  for (unsigned i = 0; i < 3; ++i)
    if (strcmp(id, ids[i]) == 0) return tables[3 + i];
  return NULL;
}

static tutti_status init(const tutti_host* host) {
  version1_host = host;
  tutti_transport transport = version1_transport;
  transport.name = name;
  transport.query = query;
  transport.get_interface = optional;
  tutti_algorithm algorithm = version1_algorithm;
  algorithm.name = name;
  tutti_meeting meeting = version1_meeting;
  meeting.name = name;
  offer(0, &transport, sizeof transport, TUTTI_SIZE_UP_TO(tutti_transport, get_interface),
        VARIANT == ASKING || VARIANT == CAUTIOUS);
  offer(1, &algorithm, sizeof algorithm, TUTTI_SIZE_UP_TO(tutti_algorithm, schedule), VARIANT == CAUTIOUS);
  offer(2, &meeting, sizeof meeting, TUTTI_SIZE_UP_TO(tutti_meeting, close), VARIANT == CAUTIOUS);
  tutti_view view = *(const tutti_view*)version1_transport.get_interface(NULL, TUTTI_VIEW_ID);
  if (VARIANT == HALF_MARKS) view.set_mark = NULL;
  offer(3, &view, sizeof view, TUTTI_SIZE_UP_TO(tutti_view, commit), VARIANT == ASKING_VIEW || VARIANT == CAUTIOUS);
  offer(4, version1_transport.get_interface(NULL, TUTTI_WAIT_FD_ID), sizeof(tutti_wait_fd),
        TUTTI_SIZE_UP_TO(tutti_wait_fd, disarm), VARIANT == SHORT_WAIT || VARIANT == CAUTIOUS);
  offer(5, version1_transport.get_interface(NULL, TUTTI_RAILS_ID), sizeof(tutti_rails),
        TUTTI_SIZE_UP_TO(tutti_rails, of_host), VARIANT == DRAFT_RAILS || VARIANT == CAUTIOUS);
  return TUTTI_OK;
}

static const void* get_interface(const char* id, uint32_t index) {
  static const char* const ids[] = {TUTTI_TRANSPORT_ID, TUTTI_ALGORITHM_ID, TUTTI_MEETING_ID};
  for (unsigned i = 0; i < 3 && index == 0; ++i)
    if (strcmp(id, ids[i]) == 0) return tables[i];
  return NULL;
}

static const tutti_plugin_info info = {
    sizeof info, 0, name, "1.0.0", "Tutti", "Apache-2.0", "a plugin of another minor version"};
TUTTI_EXPORT const tutti_plugin_entry_table tutti_plugin_entry = {sizeof(tutti_plugin_entry_table),
                                                                  TUTTI_ABI_MAJOR,
                                                                  VARIANT == OLDER ? TUTTI_ABI_MINOR : NEXT_MINOR,
                                                                  0,
                                                                  &info,
                                                                  init,
                                                                  get_interface};
