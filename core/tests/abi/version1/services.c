/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors and sizes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

const tutti_host* version1_host;

tutti_status version1_refuse(tutti_status status, const char* format, ...) {
  char text[512] = "version1: ";
  const size_t start = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + start, sizeof text - start, format, arguments);
  va_end(arguments);
  version1_host->set_error(version1_host->self, status, text);
  return status;
}

tutti_status version1_judge(const char* type, const void* given, uint32_t bytes, uint64_t least, uint64_t known) {
  if (bytes < least || bytes > 4096)
    return version1_refuse(TUTTI_INVALID_ARGUMENT, "%s.struct_size is %u, expected at least %u", type, bytes,
                           (unsigned)least);
  for (uint64_t i = known; i < bytes; ++i)
    if (((const unsigned char*)given)[i] != 0)
      return version1_refuse(TUTTI_NOT_SUPPORTED, "%s asks for something newer than version 1", type);
  return TUTTI_OK;
}
