// SPDX-License-Identifier: Apache-2.0
//
// Names of the vocabulary, and one line of text for a step.
#include <fmt/format.h>
#include <tutti/schedule.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace tutti {
namespace {

struct Name {
  uint32_t value;
  const char* text;
};

constexpr Name ops[] = {
    {TUTTI_SUM, "sum"},   {TUTTI_PROD, "prod"},     {TUTTI_MIN, "min"},       {TUTTI_MAX, "max"},   {TUTTI_AVG, "avg"},
    {TUTTI_BAND, "band"}, {TUTTI_BOR, "bor"},       {TUTTI_BXOR, "bxor"},     {TUTTI_LAND, "land"}, {TUTTI_LOR, "lor"},
    {TUTTI_LXOR, "lxor"}, {TUTTI_MINLOC, "minloc"}, {TUTTI_MAXLOC, "maxloc"},
};

// Sets of operators, as bits.
constexpr uint32_t set_of(std::initializer_list<uint32_t> members) {
  uint32_t set = 0;
  for (const uint32_t op : members) set |= 1u << op;
  return set;
}
constexpr uint32_t ordered = set_of({TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX, TUTTI_AVG});
constexpr uint32_t sums = set_of({TUTTI_SUM, TUTTI_PROD, TUTTI_AVG});
constexpr uint32_t places = set_of({TUTTI_MINLOC, TUTTI_MAXLOC});
constexpr uint32_t bits = set_of({TUTTI_BAND, TUTTI_BOR, TUTTI_BXOR, TUTTI_LAND, TUTTI_LOR, TUTTI_LXOR});

struct Dtype {
  uint32_t value;
  const char* text;
  uint32_t bytes, alignment;
  uint32_t ops;  // those that are defined for it
};

constexpr Dtype dtypes[] = {
    {TUTTI_INT8, "int8", 1, 1, ordered | bits},
    {TUTTI_INT16, "int16", 2, 2, ordered | bits},
    {TUTTI_INT32, "int32", 4, 4, ordered | bits},
    {TUTTI_INT64, "int64", 8, 8, ordered | bits},
    {TUTTI_UINT8, "uint8", 1, 1, ordered | bits},
    {TUTTI_UINT16, "uint16", 2, 2, ordered | bits},
    {TUTTI_UINT32, "uint32", 4, 4, ordered | bits},
    {TUTTI_UINT64, "uint64", 8, 8, ordered | bits},
    {TUTTI_FLOAT16, "float16", 2, 2, ordered},
    {TUTTI_BFLOAT16, "bfloat16", 2, 2, ordered},
    {TUTTI_FLOAT32, "float32", 4, 4, ordered},
    {TUTTI_FLOAT64, "float64", 8, 8, ordered},
    {TUTTI_FLOAT8_E4M3, "float8_e4m3", 1, 1, ordered},
    {TUTTI_FLOAT8_E5M2, "float8_e5m2", 1, 1, ordered},
    {TUTTI_BOOL, "bool", 1, 1, bits},
    {TUTTI_COMPLEX64, "complex64", 8, 4, sums},
    {TUTTI_COMPLEX128, "complex128", 16, 8, sums},
    {TUTTI_FLOAT32_INT32, "float32_int32", 8, 4, places},
    {TUTTI_FLOAT64_INT64, "float64_int64", 16, 8, places},
};

constexpr Name kinds[] = {
    {TUTTI_STEP_SEND, "send"}, {TUTTI_STEP_RECV, "recv"},     {TUTTI_STEP_RECV_REDUCE, "recv_reduce"},
    {TUTTI_STEP_COPY, "copy"}, {TUTTI_STEP_REDUCE, "reduce"}, {TUTTI_STEP_SIGNAL, "signal"},
    {TUTTI_STEP_NOP, "nop"}};

constexpr Name faults[] = {{uint32_t(Fault::none), "none"},
                           {uint32_t(Fault::form), "form"},
                           {uint32_t(Fault::unmatched), "unmatched"},
                           {uint32_t(Fault::size_mismatch), "size_mismatch"},
                           {uint32_t(Fault::deadlock), "deadlock"},
                           {uint32_t(Fault::race), "race"},
                           {uint32_t(Fault::slice_reuse), "slice_reuse"},
                           {uint32_t(Fault::wrong_result), "wrong_result"},
                           {uint32_t(Fault::overwritten), "overwritten"},
                           {uint32_t(Fault::scaling), "scaling"},
                           {uint32_t(Fault::in_place_order), "in_place_order"},
                           {uint32_t(Fault::levels), "levels"}};

template <typename Table>
const char* text_of(const Table& table, uint32_t value) {
  for (const auto& entry : table)
    if (entry.value == value) return entry.text;
  return "unknown";
}

template <typename Table>
uint32_t value_of(const Table& table, const std::string& text) {
  for (const auto& entry : table)
    if (text == entry.text) return entry.value;
  return 0;
}

const Dtype* find_dtype(uint32_t dtype) {
  for (const Dtype& entry : dtypes)
    if (entry.value == dtype) return &entry;
  return nullptr;
}

template <typename Table>
std::vector<uint32_t> values_of(const Table& table) {
  std::vector<uint32_t> values;
  for (const auto& entry : table) values.push_back(entry.value);
  return values;
}

// "sum, prod": the names of the values that are wanted.
template <typename Table, typename Wanted>
std::string list_of(const Table& table, Wanted wanted) {
  std::string text;
  for (const auto& entry : table)
    if (wanted(entry.value)) text += (text.empty() ? "" : ", ") + std::string(entry.text);
  return text;
}

std::string without_underscores(std::string text) {
  std::erase(text, '_');
  return text;
}

std::string span_text(const tutti_span& span) {
  const char* buffer = span.buffer == TUTTI_BUFFER_IN        ? "in"
                       : span.buffer == TUTTI_BUFFER_OUT     ? "out"
                       : span.buffer == TUTTI_BUFFER_SCRATCH ? "scratch"
                                                             : "?";
  if (span.chunks == 1) return fmt::format("{}[{}]", buffer, span.first);
  return fmt::format("{}[{}..{}]", buffer, span.first, uint64_t{span.first} + span.chunks - 1);
}

std::string sources_text(const Step& step) {
  std::string text;
  constexpr size_t shown = 4;
  for (size_t i = 0; i < step.sources.size(); ++i) {
    if (i == shown && step.sources.size() > shown + 1)
      return text + fmt::format(" + ... ({} in all)", step.sources.size());
    text += (i ? " + " : "") + span_text(step.sources[i]);
  }
  return text;
}

std::string action_text(const Step& step) {
  const tutti_step& op = step.op;
  switch (op.kind) {
    case TUTTI_STEP_SEND:
      return fmt::format("send to {}: {}", op.peer, span_text(op.src));
    case TUTTI_STEP_RECV:
      return fmt::format("recv from {}: {}", op.peer, span_text(op.dst));
    case TUTTI_STEP_RECV_REDUCE: {
      const std::string local = span_text(op.src);
      return fmt::format("recv_reduce from {}: {} = {}", op.peer, span_text(op.dst),
                         op.flags & TUTTI_STEP_INCOMING_LEFT ? "incoming + " + local : local + " + incoming");
    }
    case TUTTI_STEP_COPY:
      return fmt::format("copy: {} = {}", span_text(op.dst), span_text(op.src));
    case TUTTI_STEP_REDUCE:
      return fmt::format("reduce: {} = {}", span_text(op.dst), sources_text(step));
    case TUTTI_STEP_SIGNAL:
      return fmt::format("{} {}", op.flags & TUTTI_STEP_WAIT ? "wait for signal from" : "signal to", op.peer);
    case TUTTI_STEP_NOP:
      return "nop";
    default:
      return fmt::format("step of unknown kind {}", op.kind);
  }
}

}  // namespace

const char* dtype_name(uint32_t dtype) { return text_of(dtypes, dtype); }
const char* op_name(uint32_t op) { return text_of(ops, op); }
const char* step_name(uint32_t kind) { return text_of(kinds, kind); }
const char* fault_name(Fault fault) { return text_of(faults, uint32_t(fault)); }
uint32_t collective_from_name(const std::string& name) {
  if (name == "bcast") return TUTTI_BROADCAST;
  if (name == "exscan") return TUTTI_EXCLUSIVE_SCAN;
  for (uint32_t collective = 1; collective <= last_collective; ++collective)
    if (const char* text = collective_name(collective); name == text || name == without_underscores(text))
      return collective;
  return 0;
}
uint32_t dtype_from_name(const std::string& name) { return value_of(dtypes, name); }
uint32_t op_from_name(const std::string& name) { return value_of(ops, name); }

uint32_t dtype_bytes(uint32_t dtype) {
  const Dtype* found = find_dtype(dtype);
  return found ? found->bytes : 0;
}
uint32_t dtype_alignment(uint32_t dtype) {
  const Dtype* found = find_dtype(dtype);
  return found ? found->alignment : 0;
}

const std::vector<uint32_t>& all_dtypes() {
  static const std::vector<uint32_t> all = values_of(dtypes);
  return all;
}
const std::vector<uint32_t>& all_ops() {
  static const std::vector<uint32_t> all = values_of(ops);
  return all;
}

bool op_is_defined(uint32_t op, uint32_t dtype) {
  const Dtype* found = find_dtype(dtype);
  return found && op < 32 && (found->ops >> op & 1);
}
std::string ops_of_dtype(uint32_t dtype) {
  return list_of(ops, [&](uint32_t op) { return op_is_defined(op, dtype); });
}
std::string dtypes_of_op(uint32_t op) {
  return list_of(dtypes, [&](uint32_t dtype) { return op_is_defined(op, dtype); });
}

std::string describe(const Step& step) {
  std::string text = action_text(step);
  if (step.op.flags & TUTTI_STEP_LOAD) text += ", load";
  if (step.op.flags & TUTTI_STEP_FINAL) text += ", final";
  if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY)
    text += fmt::format(", after lane {} step {}", step.op.dependency_lane, step.op.dependency_step);
  return text;
}

}  // namespace tutti
