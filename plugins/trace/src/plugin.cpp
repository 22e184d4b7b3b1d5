// SPDX-License-Identifier: Apache-2.0
//
// The plugin "trace": the tracer "file".
#include <memory>
#include <tutti/sdk/plugin.hpp>

#include "trace_file.hpp"

namespace tutti::trace {
namespace {

tutti_status check_place(void*, const char* place) {
  return sdk::guard([&] { check_folder(place); });
}

tutti_status open_trace(void*, const tutti_tracer_config* given, tutti_tracing** tracing) {
  return sdk::guard([&] {
    const tutti_tracer_config config = sdk::accepted(given);
    check_folder(config.place);
    *tracing = sdk::to_handle<tutti_tracing>(new TraceFile(config));
  });
}

tutti_status write_trace(tutti_tracing* tracing, const void* records, uint64_t n) {
  return sdk::guard([&] { sdk::from_handle<TraceFile>(tracing).write(records, n); });
}

void close_trace(tutti_tracing* tracing, const void* records, uint64_t n) {
  const std::unique_ptr<TraceFile> file(&sdk::from_handle<TraceFile>(tracing));
  (void)sdk::guard([&] { file->end(records, n); });
}

constexpr tutti_tracer tracer{
    sizeof(tutti_tracer), TUTTI_TRACER_STAMP, nullptr,     "file",     "a file for each rank, for tutti-trace",
    check_place,          open_trace,         write_trace, close_trace};

}  // namespace
}  // namespace tutti::trace

TUTTI_PLUGIN(trace, "trace", "0.1.0", "Tutti", "Apache-2.0", "traces of ranks as files, for tutti-trace",
             {TUTTI_TRACER_ID, &tutti::trace::tracer});
