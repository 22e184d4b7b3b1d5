/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry of a plugin: the one symbol that a plugin exports, the table behind it, and the table of services that
 * the core passes in.
 *
 * A shared library exports exactly `tutti_plugin_entry`. Linked statically the symbol is `tutti_plugin_entry_<name>`
 * and the application passes its address to tutti_plugin_register. A plugin is never unloaded.
 */
#ifndef TUTTI_PLUGIN_ENTRY_H
#define TUTTI_PLUGIN_ENTRY_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_plugin_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char* id;      /* unique, lower case, what users type: "shm". Lives as long as the process. */
  const char* version; /* "1.2.0" */
  const char* vendor;
  const char* license; /* SPDX expression */
  const char* summary; /* one line */
} tutti_plugin_info;

/* One log line. The record and its strings live until the call returns. */
typedef struct tutti_log_record {
  uint32_t struct_size;
  uint32_t level;     /* TUTTI_LOG_* */
  const char* source; /* plugin id */
  const char* text;   /* no trailing newline */
} tutti_log_record;

/* Services of the core for plugins. Lives as long as the process. */
typedef struct tutti_host {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t reserved;
  void* self; /* first argument of every function below */
  /* [any] Writes one record. */
  void (*log)(void* self, const tutti_log_record* record);
  /* [any] The value of a setting, by its full name ("TUTTI_TCP_INTERFACE"), or NULL when it is not set. An empty
   * value is a value. The string lives as long as the process. */
  const char* (*get_config)(void* self, const char* key);
  /* [any] States why the ABI call in progress on this thread is about to return `code`. The text should say who,
   * expected against actual, and what to do. It is copied. */
  void (*set_error)(void* self, tutti_status code, const char* text);
  /* [control] The interface `id` of another loaded plugin, for plugins that wrap others; NULL when there is none. */
  const void* (*find_interface)(void* self, const char* plugin, const char* id);
  /* [any, not hot] The memory kind of the device called `name`: TUTTI_MEMORY_* if types.h has the name ("host", "cuda",
   * "simulated"), else a number that the process assigns to it once. UINT32_MAX (with set_error): not a legal name, or
   * all numbers are in use. Transports ask by name for the memory that they accept. */
  uint32_t (*memory_kind)(void* self, const char* name);
  /* [any] Optional. The text of the last set_error on this thread, for plugins that call others; "" when there is none.
   * Lives until the next set_error on this thread. */
  const char* (*get_error)(void* self);
  /* [control] Optional. The index-th table of the interface `id` among those of all loaded plugins, for plugins that
   * serve every table of a kind; NULL past the last. A table keeps its index; more may be appended. */
  const void* (*list_interface)(void* self, const char* id, uint32_t index);
} tutti_host;

/* The table that a plugin exports as its one symbol. */
typedef struct tutti_plugin_entry_table {
  uint32_t struct_size;
  uint32_t abi_major; /* TUTTI_ABI_MAJOR that the plugin was compiled with: another one is refused */
  uint32_t abi_minor; /* for information */
  uint32_t reserved;
  const tutti_plugin_info* info;
  /* [control] Called once before anything else. `host` lives as long as the process. An error refuses the plugin.
   * There is no counterpart: a plugin lives as long as the process, even if it is refused after init. */
  tutti_status (*init)(const tutti_host* host);
  /* [control, after init] The index-th interface of the kind `id` ("tutti.transport/1"), or NULL: an unknown id or
   * an index past the last. The table lives as long as the process. */
  const void* (*get_interface)(const char* id, uint32_t index);
} tutti_plugin_entry_table;

#define TUTTI_PLUGIN_ENTRY_SYMBOL "tutti_plugin_entry"

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_plugin_info, summary);
TUTTI_MANDATORY(tutti_log_record, text);
TUTTI_MANDATORY(tutti_host, memory_kind);
TUTTI_MANDATORY(tutti_plugin_entry_table, get_interface);
#endif
