// SPDX-License-Identifier: Apache-2.0
//
// A plugin as a whole: its symbols, its entry table, its lists of interfaces.
#include <elf.h>
#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/collective.h>
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rma.h>
#include <tutti/plugin/selector.h>
#include <tutti/plugin/tracer.h>
#include <tutti/plugin/wrapper.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "contract_case.hpp"
#include "device_station.hpp"

namespace tutti::conformance::contract {
namespace {

// The dynamic symbols that a shared library defines for others, from its ELF file.
std::vector<std::string> exported_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) throw CannotRun{"the plugin's file cannot be read"};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    throw CannotRun{"the plugin's file is no 64-bit ELF file"};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (header.e_shoff + sections.size() * sizeof sections[0] > bytes.size())
    throw CannotRun{"its section table is cut off"};
  std::memcpy(sections.data(), bytes.data() + header.e_shoff, sections.size() * sizeof sections[0]);
  std::vector<std::string> names;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& strings = sections[section.sh_link];
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (section.sh_offset + at + sizeof symbol > bytes.size()) break;
      std::memcpy(&symbol, bytes.data() + section.sh_offset + at, sizeof symbol);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || symbol.st_name >= strings.sh_size) continue;
      if (strings.sh_offset + symbol.st_name < bytes.size())
        names.emplace_back(bytes.data() + strings.sh_offset + symbol.st_name);
    }
  }
  return names;
}

void exports(Bench& bench) {
  const std::vector<std::string> names = exported_symbols(bench.path);
  require(std::count(names.begin(), names.end(), TUTTI_PLUGIN_ENTRY_SYMBOL) == 1, "E-1",
          "{} does not export " TUTTI_PLUGIN_ENTRY_SYMBOL, bench.path);
  const std::set<std::string> of_the_linker{"_init", "_fini", "__bss_start", "_edata", "_end"};
  std::string others;
  int more = 0;
  for (const std::string& name : names)
    if (name != TUTTI_PLUGIN_ENTRY_SYMBOL && !of_the_linker.contains(name) && ++more <= 5)
      others += (others.empty() ? "" : ", ") + name;
  require(more == 0, "E-1",
          "it exports {} other symbols ({}{}): link with -fvisibility=hidden and a version script (cmake/plugin.map), "
          "or two "
          "plugins in one process meet each other's",
          more, others, more > 5 ? " ..." : "");
}

void entry_table(Bench& bench) {
  const tutti_plugin_entry_table* entry = load_entry(bench.path);
  require_size(entry, "E-2", "the entry table");
  require(entry->abi_major == TUTTI_ABI_MAJOR, "E-2", "abi_major is {}, expected {}", entry->abi_major,
          TUTTI_ABI_MAJOR);
  require(entry->info, "E-2", "info is NULL");
  const std::pair<const char*, bool> functions[] = {{"init", entry->init}, {"get_interface", entry->get_interface}};
  for (const auto& [name, there] : functions) require(there, "E-2", "{} is NULL", name);
  const tutti_plugin_info& info = *entry->info;
  require_size(&info, "E-2", "info");
  const std::pair<const char*, const char*> texts[] = {{"id", info.id},
                                                       {"version", info.version},
                                                       {"vendor", info.vendor},
                                                       {"license", info.license},
                                                       {"summary", info.summary}};
  for (const auto& [name, text] : texts) require(text && *text, "E-2", "info.{} is {}", name, text ? "empty" : "NULL");
  for (const char* c = info.id; *c; ++c)
    require((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '_', "E-2",
            "the id \"{}\" is not made of lower-case letters, digits, - and _", info.id);
}

// Asks for interfaces of a kind until there are no more; `name_of` judges a table and gives its name.
template <typename Table>
void walk(Bench& bench, const char* id, void (*judge_one)(const Table*), uint32_t* count) {
  const auto get = [&](uint32_t i) { return static_cast<const Table*>(bench.get_interface(id, i)); };
  std::set<std::string> names;
  uint32_t i = 0;
  for (const Table* table = get(0); table; table = get(++i)) {
    require(i < 256, "E-3", "get_interface(\"{}\", index) gives a table for every index: past the last it must be NULL",
            id);
    judge_one(table);
    require(!(i > 0 && get(i - 1) == table), "E-3",
            "get_interface(\"{}\", {}) gives the same table as index {}: past the last it must be NULL", id, i, i - 1);
    require(get(i) == table, "E-3", "get_interface(\"{}\", {}) gave another table the second time", id, i);
    if constexpr (requires { table->name; })
      require(names.insert(table->name).second, "E-4", "two tables of {} bear the name \"{}\"", id, table->name);
  }
  for (const uint32_t beyond : {i + 1, i + 1000, UINT32_MAX})
    require(!get(beyond), "E-3", "get_interface(\"{}\", {}) gives a table, though {} is past the last", id, beyond, i);
  if (count) *count += i;
}

void judge_algorithm(const tutti_algorithm* a) {
  judge_table_of(TUTTI_ALGORITHM_ID, a);
  judge_name("algorithm", a->name, a->summary);
  require(a->supports && a->schedule, "E-4", "algorithm {}: {} is NULL", a->name,
          a->supports ? "schedule" : "supports");
}

void interfaces(Bench& bench) {
  for (const char* id : {"tutti.transport/999", "tutti.nonsense/1", "", "tutti.transport/1 ", "tutti.transport"})
    for (const uint32_t index : {0u, 1u})
      require(!bench.get_interface(id, index), "E-3",
              "get_interface(\"{}\", {}) is not NULL, but there is no such interface", id, index);
  uint32_t count = 0;
  walk<tutti_transport>(bench, TUTTI_TRANSPORT_ID, judge, &count);
  walk<tutti_algorithm>(bench, TUTTI_ALGORITHM_ID, judge_algorithm, &count);
  walk<tutti_device>(bench, TUTTI_DEVICE_ID, judge, &count);
  walk<tutti_executor>(bench, TUTTI_EXECUTOR_ID, judge, nullptr);
  for (const char* id : {TUTTI_COLLECTIVE_ID, TUTTI_MEETING_ID, TUTTI_RMA_ID, TUTTI_SELECTOR_ID, TUTTI_TRACER_ID,
                         TUTTI_WRAPPER_ID})
    count += bench.get_interface(id, 0) != nullptr;
  require(count > 0, "E-4", "the plugin offers no interface of this revision");
}

}  // namespace

std::vector<ContractCase> plugin_cases() {
  return {
      {"entry-table", "the entry table and its texts", {"E-1", "E-2"}, 1, entry_table},
      {"exports", "the library's exported symbols", {"E-1"}, 2, exports},
      {"interfaces", "what get_interface gives", {"E-3", "E-4", "E-5", "E-7"}, 2, interfaces},
  };
}

}  // namespace tutti::conformance::contract
