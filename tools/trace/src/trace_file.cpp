// SPDX-License-Identifier: Apache-2.0
#include "trace_file.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "texts/texts.hpp"

namespace trace {
namespace {

uint64_t hash(const void* data, size_t bytes) {  // FNV-1a-64
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return h;
}

tutti_trace_header read_header(std::ifstream& file, const std::string& path) {
  tutti_trace_header header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (static_cast<size_t>(file.gcount()) < sizeof header)
    throw std::runtime_error(path + ": it ends after " + std::to_string(file.gcount()) +
                             " bytes, inside its header of " + std::to_string(sizeof header) +
                             ": was the disk full, or the copy cut short?");
  if (header.magic != TUTTI_TRACE_MAGIC) throw std::runtime_error(path + ": this is no trace of TUTTI_TRACE");
  if (header.version != TUTTI_TRACE_VERSION || header.header_bytes != sizeof header || header.record_bytes != 64)
    throw std::runtime_error(path + ": it was written by another version of Tutti: its format is " +
                             std::to_string(header.version) + ", this program reads " +
                             std::to_string(TUTTI_TRACE_VERSION));
  if (header.checksum != hash(&header, offsetof(tutti_trace_header, checksum)) || header.rank >= header.nranks)
    throw std::runtime_error(path + ": its header is damaged (the checksum differs)");
  return header;
}

template <typename T>
void keep(std::vector<T>& list, const char* record) {
  std::memcpy(&list.emplace_back(), record, sizeof(T));
}

// A span of time that cannot be is dropped: the file is damaged there.
template <typename T>
void keep_span(std::vector<T>& list, const char* record, uint64_t& damaged) {
  keep(list, record);
  if (list.back().begin_ticks > list.back().end_ticks) list.pop_back(), ++damaged;
}

void take(TraceFile& trace, const char* record, uint64_t& damaged) {
  uint32_t kind = 0;
  std::memcpy(&kind, record, sizeof kind);
  switch (kind) {
    case TUTTI_TRACE_SERVICE: {
      tutti_trace_service s;
      std::memcpy(&s, record, sizeof s);
      trace.services[s.service] = {texts::text_of(s.algorithm), texts::text_of(s.transports)};
      break;
    }
    case TUTTI_TRACE_TAG: {
      tutti_trace_tag t;
      std::memcpy(&t, record, sizeof t);
      trace.tags[t.sequence] = t.tag;
      break;
    }
    case TUTTI_TRACE_CALL:
      return keep_span(trace.calls, record, damaged);
    case TUTTI_TRACE_STEP:
      return keep_span(trace.steps, record, damaged);
    case TUTTI_TRACE_WAIT:
      return keep_span(trace.waits, record, damaged);
    case TUTTI_TRACE_TRANSFER:
      return keep_span(trace.transfers, record, damaged);
    case TUTTI_TRACE_CLOCK:
      return keep(trace.clocks, record);
    case TUTTI_TRACE_PEER_CLOCK:
      return keep(trace.peer_clocks, record);
    case TUTTI_TRACE_LINK:
      return keep(trace.links, record);
    case TUTTI_TRACE_LOST:
    case TUTTI_TRACE_END: {
      tutti_trace_lost l;
      std::memcpy(&l, record, sizeof l);
      trace.lost = l.lost;
      trace.ended |= kind == TUTTI_TRACE_END;
      break;
    }
    case 0:  // a hole, which no writer leaves
      ++damaged;
      break;
    default:  // of a later version
      break;
  }
}

}  // namespace

TraceFile read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": " + std::strerror(errno));
  TraceFile trace;
  trace.path = path;
  trace.header = read_header(file, path);
  trace.name = texts::text_of(trace.header.name);
  trace.host = texts::text_of(trace.header.host_name);
  trace.program = texts::text_of(trace.header.program);
  uint64_t damaged = 0;
  char record[64];
  while (file.read(record, sizeof record)) take(trace, record, damaged);
  const std::string who = "rank " + std::to_string(trace.header.rank) + " (" + path + "): ";
  if (damaged) trace.problems.push_back(who + std::to_string(damaged) + " damaged records are left out");
  if (file.gcount()) trace.problems.push_back(who + "its last record is cut short and left out");
  if (!trace.ended)
    trace.problems.push_back(who +
                             "it has no end: the rank died, was killed, runs yet, or the file is cut short; what "
                             "is there is used");
  if (trace.lost)
    trace.problems.push_back(who + std::to_string(trace.lost) +
                             " records found no room when they were written: what follows from counts is too low");
  return trace;
}

}  // namespace trace
