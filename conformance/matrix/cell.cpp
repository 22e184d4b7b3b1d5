// SPDX-License-Identifier: Apache-2.0
#include "matrix/cell.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <charconv>

#include "filters.hpp"
#include "matrix/application_operators.hpp"

namespace tutti::conformance {
namespace {

constexpr const char* places[] = {"out", "in", "some"};
constexpr const char* memories[] = {"heap", "alloc", "memfd", "some", "device", "window"};
constexpr const char* alignments[] = {"aligned", "odd", "mixed"};
constexpr const char* call_forms[] = {"block", "request", "overlap"};
constexpr const char* rank_forms[] = {"processes", "threads"};

template <typename Enum, size_t n>
bool parse(const char* const (&names)[n], const std::string& text, Enum* value) {
  for (size_t i = 0; i < n; ++i)
    if (text == names[i]) {
      *value = static_cast<Enum>(i);
      return true;
    }
  return false;
}

template <typename Number>
bool parse(const std::string& text, const char* prefix, Number* value) {
  if (text.rfind(prefix, 0) != 0) return false;
  const char* begin = text.data() + std::char_traits<char>::length(prefix);
  const char* end = text.data() + text.size();
  return std::from_chars(begin, end, *value).ptr == end && begin != end;
}

std::vector<std::string> parts_of(const std::string& id) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= id.size();) {
    const size_t end = std::min(id.find('/', begin), id.size());
    parts.push_back(id.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

const char* name_of(InPlace place) { return places[static_cast<size_t>(place)]; }
const char* name_of(Memory memory) { return memories[static_cast<size_t>(memory)]; }
const char* name_of(Alignment alignment) { return alignments[static_cast<size_t>(alignment)]; }
const char* name_of(Calls calls) { return call_forms[static_cast<size_t>(calls)]; }
const char* name_of(RanksAs ranks_as) { return rank_forms[static_cast<size_t>(ranks_as)]; }

std::string Cell::id() const {
  std::string text =
      fmt::format("matrix/{}/{}/{}/{}/{}/n{}/c{}/root{}/{}/{}/{}/{}", collective_name(operation.collective), algorithm,
                  mix, type->name, operator_name(op), operation.nranks, operation.count, operation.root,
                  name_of(place), name_of(memory), name_of(alignment), name_of(calls));
  if (!on_host()) text += fmt::format("/{}/{}/on{}", device, name_of(ranks_as), devices);
  return text;
}

uint64_t Cell::bytes() const {
  uint64_t blocks = 0;
  for (uint32_t r = 0; r < operation.nranks; ++r) {
    const uint64_t in = blocks_in(operation, r), out = blocks_out(operation, r);
    blocks += in_place_at(r) ? std::max(in, out) : in + out;
  }
  return blocks * operation.count * type->bytes;
}

std::optional<Cell> cell_from(const std::string& id) {
  const std::vector<std::string> part = parts_of(id);
  Cell cell;
  Operation& o = cell.operation;
  if ((part.size() != 13 && part.size() != 16) || part[0] != "matrix") return std::nullopt;
  o.collective = collective_from_name(part[1]);
  cell.algorithm = part[2];
  cell.mix = part[3];
  cell.type = element_type(part[4]);
  cell.op = part[5] == "none" ? 0 : operator_from_name(part[5]);
  const bool understood = parse(part[6], "n", &o.nranks) && parse(part[7], "c", &o.count) &&
                          parse(part[8], "root", &o.root) && parse(places, part[9], &cell.place) &&
                          parse(memories, part[10], &cell.memory) && parse(alignments, part[11], &cell.alignment) &&
                          parse(call_forms, part[12], &cell.calls);
  if (part.size() == 16) {
    cell.device = part[13];
    if (cell.on_host() || !parse(rank_forms, part[14], &cell.ranks_as) || !parse(part[15], "on", &cell.devices) ||
        cell.devices == 0 || cell.devices > o.nranks)
      return std::nullopt;
  }
  if (!understood || (cell.mix == mapped_way && cell.on_host()) || !cell.is_legal() || !o.collective || !cell.type ||
      o.nranks == 0 || o.root >= o.nranks || reduces(o.collective) != (cell.op != 0) ||
      (cell.op && !combines(*cell.type, cell.op)) || (is_of_application(cell.op) && !cell.on_host()))
    return std::nullopt;
  return cell;
}

}  // namespace tutti::conformance
