// SPDX-License-Identifier: Apache-2.0
#include "perfetto.hpp"

#include <tutti/schedule.h>

#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "findings.hpp"

namespace trace {
namespace {

using Json = nlohmann::ordered_json;

// Rows of a rank. Spans that overlap get rows of their own, since the format wants them nested.
enum : uint32_t { calls_row = 0, waits_row = 100, transfers_row = 200, lanes_row = 1000, rows_per_lane = 32 };

const char* step_name(uint32_t kind) {
  switch (kind) {
    case TUTTI_STEP_SEND:
      return "send";
    case TUTTI_STEP_RECV:
      return "recv";
    case TUTTI_STEP_RECV_REDUCE:
      return "recv_reduce";
    case TUTTI_STEP_REDUCE:
      return "reduce";
    case TUTTI_STEP_COPY:
      return "copy";
    case TUTTI_STEP_SIGNAL:
      return "signal";
    default:
      return "nop";
  }
}

double microseconds(int64_t ns) { return double(ns) / 1000; }

class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) { out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"; }

  void group(const Group& group, uint32_t first_process) {
    rows_.clear();
    where_.clear();
    for (const RankTrace& rank : group.ranks) {
      process_ = first_process + rank.rank;
      name("process_name", 0,
           group.name + " rank " + std::to_string(rank.rank) + " (" + rank.host + ", process " +
               std::to_string(rank.pid) + ")");
      event({{"ph", "M"}, {"pid", process_}, {"name", "process_sort_index"}, {"args", {{"sort_index", process_}}}});
      for (const Call& call : rank.calls) write(call);
      for (const Step& wait : rank.waits) write_wait(wait);
      for (const Transfer& transfer : rank.transfers) write(transfer);
      for (const Step& step : rank.steps) write(step);
    }
    for (const Message& message : match_messages(group)) arrow(message);
  }

  void end() { out_ << "\n]}\n"; }

 private:
  void event(const Json& json) {
    out_ << (first_ ? "" : ",\n") << json.dump(-1, ' ', false, Json::error_handler_t::replace);
    first_ = false;
  }
  void name(const char* what, uint32_t row, const std::string& text) {
    event({{"ph", "M"}, {"pid", process_}, {"tid", row}, {"name", what}, {"args", {{"name", text}}}});
  }

  // The first of `most` rows that is free from the span's begin on.
  uint32_t row_of(const Span& span, uint32_t first, uint32_t most, const std::string& title) {
    std::vector<int64_t>& ends = rows_[{process_, first}];
    uint32_t i = 0;
    while (i < ends.size() && ends[i] > span.begin && i + 1 < most) ++i;
    if (i == ends.size()) {
      ends.push_back(0);
      name("thread_name", first + i, i ? title + " (" + std::to_string(i + 1) + ")" : title);
    }
    ends[i] = std::max(ends[i], span.end);
    return first + i;
  }

  Json begin(const Span& span, const std::string& what, const char* category, uint32_t row) const {
    return {{"ph", "X"},
            {"pid", process_},
            {"tid", row},
            {"ts", microseconds(span.begin)},
            {"dur", microseconds(span.length())},
            {"name", what},
            {"cat", category}};
  }

  void write(const Call& call) {
    Json json = begin(call, call_text(call), "call", row_of(call, calls_row, waits_row, "calls"));
    json["args"] = {{"sequence", call.sequence}, {"algorithm", call.algorithm}, {"transports", call.transports},
                    {"slices", call.slices},     {"in place", call.in_place},   {"root", call.root},
                    {"status", call.status}};
    if (call.tag) json["args"]["tag"] = call.tag;
    event(json);
  }
  void write_wait(const Step& wait) {
    const std::string whom = wait.peer == UINT32_MAX ? "wait" : "wait for rank " + std::to_string(wait.peer);
    Json json = begin(wait, whom, "wait", row_of(wait, waits_row, 1, "waits"));
    json["args"] = {{"sequence", wait.sequence}, {"sending", bool(wait.flags & TUTTI_TRACE_SENDING)},
                    {"bytes", wait.bytes},       {"lane", wait.lane},
                    {"step", wait.step},         {"transport", wait.transport}};
    event(json);
  }
  void write(const Transfer& t) {
    const std::string what = (t.sending ? "send to rank " : "receive from rank ") + std::to_string(t.peer);
    Json json = begin(t, what, "transfer", row_of(t, transfers_row, lanes_row - transfers_row, "sends and receives"));
    json["args"] = {{"number", t.number}, {"bytes", t.bytes}, {"tag", t.tag}, {"status", t.status}};
    event(json);
  }
  void write(const Step& s) {
    std::string what = step_name(s.kind);
    if (s.peer != UINT32_MAX) what += (s.flags & TUTTI_TRACE_SENDING ? " to " : " from ") + std::to_string(s.peer);
    const uint32_t row = row_of(s, lanes_row + s.lane * rows_per_lane, rows_per_lane, "lane " + std::to_string(s.lane));
    where_[&s] = {process_, row};
    Json json = begin(s, what, "step", row);
    json["args"] = {
        {"sequence", s.sequence}, {"bytes", s.bytes}, {"step", s.step}, {"slice", s.slice}, {"transport", s.transport}};
    event(json);
  }
  void arrow(const Message& message) {
    const auto [from, from_row] = where_.at(message.send);
    const auto [to, to_row] = where_.at(message.receive);
    ++arrows_;
    event({{"ph", "s"},
           {"pid", from},
           {"tid", from_row},
           {"ts", microseconds(message.send->begin)},
           {"id", arrows_},
           {"name", "message"},
           {"cat", "message"}});
    event({{"ph", "f"},
           {"bp", "e"},
           {"pid", to},
           {"tid", to_row},
           {"ts", microseconds(message.receive->end)},
           {"id", arrows_},
           {"name", "message"},
           {"cat", "message"}});
  }

  std::ostream& out_;
  bool first_ = true;
  uint32_t process_ = 0;
  uint64_t arrows_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<int64_t>> rows_;  // by process and first row: where each ends
  std::unordered_map<const Step*, std::pair<uint32_t, uint32_t>> where_;
};

}  // namespace

void write_perfetto(std::ostream& out, const Timeline& timeline) {
  Writer writer(out);
  uint32_t process = 1;
  for (const Group& group : timeline.groups) {
    writer.group(group, process);
    process += group.nranks;
  }
  writer.end();
}

}  // namespace trace
