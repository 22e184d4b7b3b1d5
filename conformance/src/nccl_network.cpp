// SPDX-License-Identifier: Apache-2.0
#include "nccl_network.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "contract/contract_process.hpp"

namespace tutti::conformance {
namespace {

namespace fs = std::filesystem;

// The transport of the hosted network.
std::string hosted_transport() {
  for (const tutti_transport* transport : list_transports())
    if (std::string(transport->name).starts_with(nccl_prefix)) return transport->name;
  throw std::invalid_argument(
      "--nccl-net: the plugin nccl-net, which hosts network plugins of NCCL, was not found: name "
      "libtutti-nccl-net.so or its folder in TUTTI_PLUGIN_PATH");
}

// Loads and initialises the network in a process of its own, which may crash or hang.
void require_usable(Selection& selection) {
  using namespace contract;
  constexpr double seconds = 10;
  const ContractCase& loads = contract_cases(Subject::nccl).front();
  const Outcome outcome =
      run_contract_case({Subject::nccl, nccl_network_file(), selection.nccl_net, {}, {}}, loads, selection.seed,
                        seconds * selection.patience, static_cast<uint32_t>(3000 * seconds * selection.patience));
  if (outcome.verdict == Verdict::pass) {
    std::istringstream told(outcome.message);
    std::getline(told, selection.nccl_table.name, '\t');
    std::getline(told, selection.nccl_table.version, '\t');
    std::getline(told, selection.nccl_table.file);
    return;
  }
  throw std::invalid_argument(
      fmt::format("--nccl-net: {} cannot be tested: {}. Expected: a library that exports one of ncclNetPlugin_v6 to "
                  "ncclNetPlugin_v12, whose init succeeds and which has an adapter; name its file, or NAME of a "
                  "libnccl-net-NAME.so in LD_LIBRARY_PATH",
                  selection.nccl_net, outcome.message));
}

}  // namespace

std::string nccl_network_file() {
  const char* const named = std::getenv(nccl_net_variable);
  const std::string text = named ? named : "";
  return text.empty() || text.find('/') != text.npos || text.ends_with(".so") ? text : "libnccl-net-" + text + ".so";
}

void host_nccl_network(Selection& selection) {
  std::string& named = selection.nccl_net;
  std::error_code ignored;
  if (fs::is_directory(named, ignored))
    throw std::invalid_argument("--nccl-net: " + named + " is a folder: name the file in it");
  if (fs::exists(named, ignored))
    named = fs::absolute(named);
  else if (named.find('/') != std::string::npos)
    throw std::invalid_argument("--nccl-net: " + named + " cannot be loaded: there is no such file");
  setenv(nccl_net_variable, named.c_str(), 1);
  require_usable(selection);
  const std::string transport = hosted_transport();
  if (std::find(selection.transports.begin(), selection.transports.end(), transport) == selection.transports.end())
    selection.transports.push_back(transport);
}

}  // namespace tutti::conformance
