// SPDX-License-Identifier: Apache-2.0
//
// This file takes the place of flight_folder.cpp and trace.cpp in a library that is built with TUTTI_RECORD=OFF:
// nothing is recorded outside of the process, and a setting that asks for it is an error.
#include <fmt/format.h>
#include <tutti/plugin/types.h>

#include "base/failure.hpp"
#include "base/settings.hpp"
#include "record/flight_folder.hpp"
#include "record/trace.hpp"

namespace tutti::core {
namespace {

void refuse(SettingName name) {
  if (setting(name))
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{} is set, but this libtutti was built without records of ranks "
                                                   "(TUTTI_RECORD=OFF): unset it, or use a library that has them",
                                                   name.name()));
}

[[noreturn]] void unreachable() { throw Failure(TUTTI_INTERNAL, "TUTTI_RECORD=OFF: there are no records"); }

}  // namespace

std::optional<std::string> flight_folder() {
  refuse("TUTTI_RECORDER");
  refuse("TUTTI_RECORDER_DIR");
  return std::nullopt;
}
FlightFile::FlightFile(const std::string&, uint64_t) { unreachable(); }
FlightFile::~FlightFile() = default;
void FlightFile::publish() {}
void FlightFile::remove() noexcept {}
void retain_file(const std::string&) noexcept {}

std::optional<TracePlace> trace_place() {
  refuse("TUTTI_TRACE");
  return std::nullopt;
}
Trace::Trace(const TracePlace& where, const Owner&) : tracer_(*where.tracer) { unreachable(); }
Trace::~Trace() = default;
void Trace::service(uint32_t, const std::string&, const std::string&) {}
void Trace::link(uint32_t, const char*, uint64_t, uint64_t) {}
bool Trace::find_room(uint64_t) { return false; }
void Trace::exchange_clocks(Trace*, uint32_t, const Gather&) {}

}  // namespace tutti::core
