// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/devices.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <tutti/base/bits.hpp>
#include <tutti/sized.hpp>
#include <vector>

#include "base/failure.hpp"
#include "base/numa.hpp"
#include "bootstrap/environment.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

struct Working {
  DeviceTables tables;
  tutti_device_caps caps;
};

// Why a device cannot be used; "" when it can.
std::string ask(const DeviceTables& tables, tutti_device_caps& caps) {
  caps.struct_size = sizeof caps;
  if (tables.memory->query(tables.memory->self, &caps) < 0) return take_plugin_error();
  if (const SizeVerdict verdict = judge_size(&caps); verdict.status < 0) return "query: " + verdict.text;
  if (!caps.devices) return "it sees none";
  if (caps.memory_kind != TUTTI_MEMORY_HOST && caps.memory_kind < TUTTI_FIRST_NAMED_MEMORY) return {};
  const uint32_t own = host_table()->memory_kind(nullptr, tables.memory->name);
  if (own == UINT32_MAX) return take_plugin_error();
  if (caps.memory_kind == own) return {};
  return fmt::format("query says memory kind {}; expected {}, the value of tutti_host.memory_kind for its name",
                     caps.memory_kind, own);
}

// A device that does not work is left out with a line in the log.
const std::vector<Working>& working() {
  static const auto* devices = [] {
    auto* found = new std::vector<Working>();
    for (const DeviceTables& tables : list_devices()) {
      tutti_device_caps caps{};
      if (const std::string why = ask(tables, caps); why.empty())
        found->push_back({tables, caps});
      else
        log(TUTTI_LOG_INFO, tables.memory->name, fmt::format("left out: {}", why));
    }
    return found;
  }();
  return *devices;
}

}  // namespace

std::string describe(const DeviceMemory& where) {
  return where ? fmt::format("device {} {}", where.tables.memory->name, where.device) : std::string("the host");
}

tutti_pointer classify(const DeviceTables& tables, const void* address) {
  tutti_pointer pointer{};
  pointer.struct_size = sizeof pointer;
  if (const tutti_status status = tables.memory->classify(tables.memory->self, address, &pointer); status < 0)
    throw Failure(status, fmt::format("device {}: {}", tables.memory->name, take_plugin_error()));
  return pointer;
}

DeviceMemory find_device(const void* address, const DeviceMemory& first) {
  const auto ask = [address](const DeviceTables& tables) {
    const tutti_pointer pointer = address ? classify(tables, address) : tutti_pointer{};
    return pointer.kind != TUTTI_MEMORY_HOST ? DeviceMemory{tables, pointer.device} : DeviceMemory{};
  };
  if (first)
    if (const DeviceMemory found = ask(first.tables)) return found;
  for (const Working& device : working())
    if (device.tables.memory != first.tables.memory)
      if (const DeviceMemory found = ask(device.tables)) return found;
  return {};
}

const tutti_device_caps& caps_of(const DeviceTables& tables) {
  const auto found = std::ranges::find(working(), tables.memory, [](const Working& w) { return w.tables.memory; });
  if (found == working().end())
    throw Failure(TUTTI_INTERNAL, fmt::format("device {} does not work here", tables.memory->name));
  return found->caps;
}

namespace {

// "simulated: 0 to 1; cuda: none here: ...": for messages.
std::string known_devices() {
  std::string known;
  for (const DeviceTables& tables : list_devices()) {
    tutti_device_caps caps{};
    const std::string why = ask(tables, caps);
    known += fmt::format("{}{}: {}", known.empty() ? "" : "; ", tables.memory->name,
                         why.empty() ? fmt::format("0 to {}", caps.devices - 1) : "does not work here: " + why);
  }
  return known.empty() ? "no plugin brings one (tutti-info lists plugins)" : "there are " + known;
}

// The calling thread's, of a kind.
uint32_t current_device(const DeviceTables& tables) {
  uint32_t device = 0;
  uint64_t flags = 0;
  if (const tutti_status status = tables.executor->stream_state(tables.executor->self, nullptr, &device, &flags);
      status < 0)
    throw Failure(status, fmt::format("device {}: cannot tell which one is current: {}", tables.memory->name,
                                      take_plugin_error()));
  return device;
}

// The rank's number on its host, as the launcher tells it.
uint32_t local_rank(const std::string& text, const char* source) {
  const Environment environment =
      read_environment([](const char* name) -> const char* { return std::getenv(name); }, true);
  if (!environment.launcher.empty() && !environment.local_rank)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{}=\"{}\": {} does not give this rank's number on its host: set TUTTI_LOCAL_RANK and "
                              "TUTTI_LOCAL_WORLD_SIZE, or name a number instead of \"local\"",
                              source, text, environment.launcher));
  return environment.local_rank.value_or(0);
}

}  // namespace

DeviceMemory bind_device(const std::string& text, const char* source) {
  if (text == "none") return {};
  if (text.empty()) {
    if (working().empty()) return {};
    const DeviceTables& tables = working().front().tables;
    return {tables, current_device(tables)};
  }
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto found =
      std::ranges::find_if(working(), [&](const Working& device) { return name == device.tables.memory->name; });
  const auto refuse = [&](tutti_status status, const std::string& what) {
    throw Failure(status, fmt::format("{}=\"{}\": {}; {}", source, text, what, known_devices()));
  };
  if (found == working().end())
    refuse(TUTTI_NOT_FOUND, fmt::format("there is no device \"{}\" that works here (or \"none\")", name));
  if (colon == std::string::npos) return {found->tables, current_device(found->tables)};
  const std::string index = text.substr(colon + 1);
  if (index == "local") return {found->tables, local_rank(text, source) % found->caps.devices};
  uint32_t device = 0;
  const auto [end, code] = std::from_chars(index.data(), index.data() + index.size(), device);
  if (index.empty() || code != std::errc() || *end || device >= found->caps.devices)
    refuse(TUTTI_INVALID_ARGUMENT,
           fmt::format("\"{}\" is neither the number of a device {} nor \"local\"", index, name));
  return {found->tables, device};
}

DeviceFacts facts_of(const DeviceMemory& device) {
  DeviceFacts facts;
  if (!device) return facts;
  const tutti_device* memory = device.tables.memory;
  uint8_t id[16] = {};
  if (TUTTI_HAS(tutti_device, memory, identify) && memory->identify(memory->self, device.device, id) == TUTTI_OK)
    for (const uint8_t byte : id) facts.id += fmt::format("{:02x}", byte);
  else
    log(TUTTI_LOG_INFO, memory->name,
        fmt::format("cannot identify the hardware of device {}: {}", device.device, take_plugin_error()));
  tutti_device_facts told{};
  told.struct_size = sizeof told;
  told.numa = -1;
  if (TUTTI_HAS(tutti_device, memory, describe)) {
    if (const tutti_status status = memory->describe(memory->self, device.device, &told); status < 0)
      throw Failure(status, fmt::format("{}: {}", describe(device), take_plugin_error()));
    if (const SizeVerdict verdict = judge_size(&told); verdict.status < 0)
      throw Failure(TUTTI_INTERNAL, fmt::format("device {}: describe: {}", memory->name, verdict.text));
  }
  if (told.pci) facts.pci = told.pci;
  facts.numa = told.numa >= 0 ? told.numa : numa_of_pci(facts.pci);
  facts.link_latency_ns = told.link_latency_ns;
  facts.link_bandwidth = told.link_bandwidth;
  facts.copy_bandwidth = told.copy_bandwidth;
  return facts;
}

tutti_executor_caps executor_caps_of(const DeviceMemory& device) {
  tutti_executor_caps caps{};
  caps.struct_size = sizeof caps;
  const tutti_executor* executor = device.tables.executor;
  if (!TUTTI_HAS(tutti_executor, executor, query)) return caps;
  if (const tutti_status status = executor->query(executor->self, device.device, &caps); status < 0)
    throw Failure(status, fmt::format("{}: {}", describe(device), take_plugin_error()));
  if (const SizeVerdict verdict = judge_size(&caps); verdict.status < 0)
    throw Failure(TUTTI_INTERNAL, fmt::format("{}: query of its executor: {}", describe(device), verdict.text));
  return caps;
}

void require_reduction(const char* call, const DeviceTables& tables, uint32_t dtype, uint32_t op, bool exact) {
  const tutti_device_caps& caps = caps_of(tables);
  const uint32_t fold = op == TUTTI_AVG ? uint32_t{TUTTI_SUM} : op;  // a sum with a divisor
  if (!has_bit(caps.dtypes, dtype))
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("{}: device {} does not reduce {}: convert the data, or reduce it in host memory", call,
                              tables.memory->name, dtype_name(dtype)));
  if (!has_bit(caps.ops, fold))
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{}: device {} does not reduce by {}: reduce in host memory", call,
                                                   tables.memory->name, op_name(op)));
  if (exact && !has_bit(caps.exact_dtypes, dtype))
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("{}: device {} has no exact sums of {}: reduce in host memory, or use options.order = "
                              "TUTTI_ORDER_FREE for this call",
                              call, tables.memory->name, dtype_name(dtype)));
}

}  // namespace tutti::core
