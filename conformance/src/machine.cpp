// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <dlfcn.h>
#include <openssl/evp.h>
#include <sys/utsname.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace tutti::conformance {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first line "name : value" or "name: value".
std::string value_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const size_t colon = line.find(':');
    const size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string output_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command, "r"), pclose);
  std::string text;
  for (int c; pipe && (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

uint64_t kibibytes_in(const std::string& path, const std::string& name) {
  return std::strtoull(value_in(path, name).c_str(), nullptr, 10) * 1024;
}

std::vector<std::pair<std::string, std::string>> network_interfaces() {
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/net", error)) {
    const std::string base = entry.path().string();
    std::string text = first_line(base + "/operstate");
    if (const std::string speed = first_line(base + "/speed"); !speed.empty() && speed != "-1")
      text += ", " + speed + " Mb/s";
    if (const fs::path driver = fs::read_symlink(base + "/device/driver", error); !error)
      text += ", driver " + driver.filename().string();
    found.emplace_back(entry.path().filename().string(), text);
  }
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", error)) {
    const std::string base = entry.path().string();
    found.emplace_back(entry.path().filename().string(),
                       "verbs, firmware " + first_line(base + "/fw_ver") + ", " + first_line(base + "/ports/1/rate"));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// "Debian GNU/Linux 12 (bookworm)".
std::string system_name() {
  std::ifstream file("/etc/os-release");
  const std::string key = "PRETTY_NAME=\"";
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0 && line.back() == '"') return line.substr(key.size(), line.size() - key.size() - 1);
  return {};
}

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

uint64_t available_memory() {
  uint64_t free = kibibytes_in("/proc/meminfo", "MemAvailable");
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  if (!limit.empty() && limit != "max") {
    const uint64_t most = std::strtoull(limit.c_str(), nullptr, 10);
    const uint64_t used = std::strtoull(first_line("/sys/fs/cgroup/memory.current").c_str(), nullptr, 10);
    free = std::min(free, most > used ? most - used : 0);
  }
  return free;
}

std::string sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!file || !digest || EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) != 1) return {};
  std::array<char, 65536> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0)
    EVP_DigestUpdate(digest.get(), part.data(), static_cast<size_t>(file.gcount()));
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_DigestFinal_ex(digest.get(), bytes, &length);
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    constexpr const char* digits = "0123456789abcdef";
    text += {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
  }
  return text;
}

const char* suite_version() { return TUTTI_CONFORMANCE_VERSION; }

std::vector<PluginFact> plugin_facts() {
  std::vector<PluginFact> facts;
  for (const PluginRecord& record : list_plugins())
    facts.push_back({record.id, record.version, record.vendor, record.path, sha256_of_file(record.path),
                     record.transports, record.algorithms,
                     record.loaded           ? std::string()
                     : record.reason.empty() ? "no reason given"
                                             : record.reason,
                     record.devices});
  return facts;
}

Manifest make_manifest(const Selection& selection, const std::string& command_line) {
  Manifest m;
  m.suite_version = suite_version();
  m.library_version = tutti_version();
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&tutti_version), &library) && library.dli_fname)
    m.library_sha256 = sha256_of_file(library.dli_fname);
  m.started = now_as_text();
  m.command_line = command_line;
  m.level = level_name(selection.level);
  m.transports = selection.transports;
  m.algorithms = selection.algorithms;
  m.devices = selection.devices;
  m.cases = selection.cases;
  if (selection.share.n > 1) m.share = std::to_string(selection.share.k) + "/" + std::to_string(selection.share.n);
  m.seed = selection.seed;
  m.plugins = plugin_facts();
  if (const auto& network = selection.nccl_table; !network.file.empty())
    m.plugins.push_back({network.name, "ncclNetPlugin_v" + network.version, "network plugin of NCCL", network.file,
                         sha256_of_file(network.file), {}, {}, "", {}});
  utsname system{};
  uname(&system);
  m.machine = {{"kernel", std::string(system.sysname) + " " + system.release + " " + system.machine},
               {"system", system_name()},
               {"host", system.nodename},
               {"cpu", value_in("/proc/cpuinfo", "model name")},
               {"cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
               {"memory", std::to_string(kibibytes_in("/proc/meminfo", "MemTotal"))},
               {"compiler", std::string(__VERSION__)},
               {"git", output_of("git describe --always --dirty 2>/dev/null")}};
  m.interfaces = network_interfaces();
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    if (text.rfind("TUTTI_", 0) != 0) continue;
    const size_t equal = text.find('=');
    const std::string name = text.substr(0, equal);
    // A report is for others: no secret, and no unique id, which contains one.
    const std::string value = equal == std::string::npos ? std::string() : text.substr(equal + 1);
    const bool hidden = name.find("SECRET") != std::string::npos || value.starts_with("id:");
    m.settings.emplace_back(name, hidden ? "(hidden)" : value);
  }
  std::sort(m.settings.begin(), m.settings.end());
  return m;
}

}  // namespace tutti::conformance
