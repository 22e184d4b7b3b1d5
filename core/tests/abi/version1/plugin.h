/* SPDX-License-Identifier: Apache-2.0
 *
 * The three tables of the plugin `version1` and the services that they use. README.md says what it is for. */
#ifndef VERSION1_PLUGIN_H
#define VERSION1_PLUGIN_H

#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rails.h>
#include <tutti/plugin/transport.h>

extern const tutti_host* version1_host;
extern const tutti_transport version1_transport;
extern const tutti_algorithm version1_algorithm;
extern const tutti_meeting version1_meeting;

/* Sets the error of the call in progress, a text as of printf, and returns `status`. */
tutti_status version1_refuse(tutti_status status, const char* format, ...);

/* Judges a struct that may ask for something, by the rule of sizes (docs/abi.md). `field` is its last mandatory one. */
#define VERSION1_JUDGE(type, given, field) \
  version1_judge(#type, given, (given)->struct_size, TUTTI_SIZE_UP_TO(type, field), sizeof(type))
tutti_status version1_judge(const char* type, const void* given, uint32_t bytes, uint64_t least, uint64_t known);

#endif
