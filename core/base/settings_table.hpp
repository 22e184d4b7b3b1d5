// SPDX-License-Identifier: Apache-2.0
//
// Every setting of the core, once: its name, the value that it has where it is not set, and the words of the documents.
// core/README.md's table, `tutti-info --settings` and the hints for misspelt names are made of it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::core {

struct Setting {
  std::string_view name;
  std::string_view value;     // where it is not set, as the environment would have it; "": in words only
  std::string_view fallback;  // the same in words, for the documents; "": `value`
  std::string_view meaning;   // Markdown; its links are relative to core/
  struct Limits {
    uint64_t least, most;
  } limits = {};  // of a whole number
};

inline constexpr Setting settings[] = {
    {"TUTTI_TRANSPORT", "", "all that reach; device memory is mapped within a host",
     "which transports may be used, a [list](#lists-of-names): `shm,tcp`, `^tcp`; an unknown one is an error; one that "
     "cannot serve is left out, unless it is the only one. If it is set, they also carry device memory"},
    {"TUTTI_ALGO", "", "all; the selector decides",
     "for each collective a [list](#lists-of-names) of algorithms: `all_reduce:ring,tree;all_gather:^doubling`; "
     "with parameters of an algorithm: `all_to_all:bruck:4`"},
    {"TUTTI_DEVICE", "", "the calling thread's current device of the first kind that works here; none where none does",
     "the device that communicators are bound to: `cuda` (the calling thread's current one), `cuda:1`, "
     "`cuda:local` (by the rank's number on its host), `none`: host memory only"},
    {"TUTTI_FUSED", "on", "on, where all ranks have devices of their own",
     "`0`: small collectives on device memory are not fused into one launch that waits by itself"},
    {"TUTTI_PLUGIN_PATH", "", "",
     "colon-separated files and folders searched first; a file that is refused is an error"},
    {"TUTTI_PLUGIN_OWNERS", "", "",
     "numbers of further users whose plugins are loaded, `1000,1001`: see [Which plugins are "
     "loaded](#which-plugins-are-loaded)"},
    {"TUTTI_HOST_TIMEOUT",
     "10",
     "",
     "seconds without a sign of life from a host, 2 to 3600, after which its ranks count as lost",
     {2, 3600}},
    {"TUTTI_CONNECT_TIMEOUT", "30", "", "seconds for meeting and connecting"},
    {"TUTTI_TIMEOUT", "600", "", "seconds without progress after which an operation fails"},
    {"TUTTI_LOG", "warn", "", "`error`, `warn`, `info`, `debug`, `trace`"},
    {"TUTTI_WRAP", "", "none",
     "plugins with wrapper/1 that are put over each transport, the innermost first: `checksum`. The same on all ranks"},
    {"TUTTI_CHECKSUM", "off", "",
     "`1`: short for `checksum` as the innermost of `TUTTI_WRAP`: every message carries its number and a checksum "
     "([plugin checksum](../plugins/checksum/README.md)): one that is changed, lost, doubled or overtaken on its way "
     "is an error, never a wrong result. Costs a copy at both ends"},
    {"TUTTI_TRAFFIC_CLASS",
     "0",
     "",
     "0 to 255: the IP traffic class (DSCP and ECN bits) of what network transports send; the same on all ranks",
     {0, 255}},
    {"TUTTI_HOST_STAGING", "off", "", "`1`: transports always carry device memory through host memory, for diagnosis"},
    {"TUTTI_ORDER", "free", "",
     "`canonical`: reductions give the same bits whatever algorithm, transport, placement or memory carries them; "
     "`exact`: sums are exact and rounded once ([order](../docs/order.md), [exact sums](../docs/exact-sums.md))"},
    {"TUTTI_VERIFY", "off", "", "`1`: prove each algorithm before its first use"},
    {"TUTTI_CHECK", "off", "",
     "`1`: checked mode: before each collective all ranks compare their calls; a difference is an error on all of "
     "them that names both calls"},
    {"TUTTI_RECORDER", "on", "", "`0`: no flight record file (what each rank did last, for `tutti-info --hang`)"},
    {"TUTTI_RECORDER_DIR", "", "`$XDG_RUNTIME_DIR/tutti`, else `/tmp/tutti-UID`",
     "folder of the flight records; made with mode 0700 if it is absent; one that cannot be used is an error"},
    {"TUTTI_TRACE", "", "no trace",
     "a folder into which each rank writes what it does, for `tutti-trace` ([tracing](../docs/tracing.md)); one "
     "that is absent or cannot be written is an error. `plugin:NAME:PLACE`: another tracer (`tutti.tracer/1`)"},
    {"TUTTI_HOST_ID", "", "boot id (or host name) + network namespace",
     "ranks with the same value are on one host; they still prove that they reach each other "
     "([connecting](../docs/connecting.md#which-transport-serves-a-pair))"},
    {"TUTTI_NUMA_NODE",
     "",
     "what the system tells",
     "the number of the NUMA node of a rank and its device, where the system does not report it, or to override it",
     {0, 65535}},
    {"TUTTI_RENDEZVOUS", "env", "",
     "where ranks meet: `env`, `tcp://HOST:PORT`, `id:...`, `file:/FOLDER`, `local:NAME`, `plugin:NAME:PLACE`"},
    {"TUTTI_TUNING", "", "predicted times",
     "a tuning file of `tutti-perf --tune`: the times by which algorithms are chosen for the ranks that it was "
     "measured with; rank 0's file serves all "
     "([algorithms](../docs/algorithms.md#measured-times-instead-of-predicted-ones))"},
    {"TUTTI_SELECTOR", "", "the lowest predicted time",
     "the plugin (`tutti.selector/1`) that chooses among the algorithms; all ranks name the same"},
    {"TUTTI_RANK", "", "`RANK` (torchrun), then [Open MPI's, Hydra's, Slurm's](../docs/connecting.md#launchers)",
     "this rank's number in the job"},
    {"TUTTI_WORLD_SIZE", "", "`WORLD_SIZE`, then the launchers'", "the number of ranks"},
    {"TUTTI_LOCAL_RANK", "", "`LOCAL_RANK`, then the launchers'", "this rank's number among those of its host"},
    {"TUTTI_LOCAL_WORLD_SIZE", "", "`LOCAL_WORLD_SIZE`, then the launchers'", "the number of ranks on its host"},
    {"TUTTI_ADDR", "", "`MASTER_ADDR`", "rank 0's address (IPv6 with or without brackets)"},
    {"TUTTI_PORT", "", "`MASTER_PORT`", "rank 0's port"},
    {"TUTTI_SECRET", "", "none, with a warning",
     "hexadecimal; ranks prove that they know it before anything else is read"},
    {"TUTTI_TLS_CERTIFICATE", "", "no TLS",
     "a PEM file: this rank's certificate. Meeting, control plane and TCP are then encrypted (TLS 1.3). All three "
     "of `TUTTI_TLS_*` or none, on all ranks or none"},
    {"TUTTI_TLS_KEY", "", "", "a PEM file: the key of this rank's certificate"},
    {"TUTTI_TLS_CA", "", "", "a PEM file: the authority whose certificates are accepted"},
    {"TUTTI_JOB", "", "", "the job's name, for jobs that share a folder"},
};

}  // namespace tutti::core
