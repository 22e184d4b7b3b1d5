// SPDX-License-Identifier: Apache-2.0
//
// Prints the layout of every struct of the ABI and the value of every constant, one line each:
//
//   tutti_span size 16
//   tutti_span.first 4 4 uint32_t        offset, size, type
//   tutti_host mandatory 64 memory_kind  the least struct_size, and the field at its end
//   constant TUTTI_OK 0
//
// Fails when a struct has bytes that no listed field covers (implicit padding, or a field that the table misses), or
// when its size is no multiple of 8.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/collective.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/mapped.h>
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rails.h>
#include <tutti/plugin/rma.h>
#include <tutti/plugin/selector.h>
#include <tutti/plugin/tracer.h>
#include <tutti/plugin/test_settings.h>
#include <tutti/plugin/wrapper.h>
#include <tutti/plugin/transport.h>
#include <tutti/plugin/types.h>
#include <tutti/tutti.h>

static int failures = 0;
static size_t covered = 0;

static void print_field(const char* structure, const char* field, size_t offset, size_t size, const char* type) {
  if (offset != covered) {
    fprintf(stderr,
            "%s.%s is at offset %zu, but the fields before it end at %zu: implicit padding or a missing field\n",
            structure, field, offset, covered);
    ++failures;
  }
  covered = offset + size;
  printf("%s.%s %zu %zu %s\n", structure, field, offset, size, type);
}

static void end_struct(const char* structure, size_t size) {
  if (covered != size) {
    fprintf(stderr, "%s has %zu bytes, but its fields end at %zu: implicit padding or a missing field\n", structure,
            size, covered);
    ++failures;
  }
  if (size % 8 != 0) {
    fprintf(stderr, "%s has %zu bytes, which is no multiple of 8: structs grow by whole 8-byte fields\n", structure,
            size);
    ++failures;
  }
}

#define STRUCT(s) covered = 0, printf("%s size %zu\n", #s, sizeof(s));
#define FIELD(s, f, type) print_field(#s, #f, offsetof(s, f), sizeof(((const s*)0)->f), type);
#define MANDATORY(s, f) printf("%s mandatory %zu %s\n", #s, TUTTI_SIZE_UP_TO(s, f), #f);
#define END(s) end_struct(#s, sizeof(s));
#define CONSTANT(c) printf("constant %s %" PRId64 "\n", #c, (int64_t)c);
#define TEXT(c) printf("constant %s %s\n", #c, c);

static void structs_and_constants(void) {
#include "layout_fields.h"
}

int main(void) {
  structs_and_constants();
  return failures == 0 ? 0 : 1;
}
