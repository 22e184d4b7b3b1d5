// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "msccl.hpp"
#include "mscclpp.hpp"
#include "plan.hpp"
#include "schedule.hpp"

namespace tutti::plans {
namespace {

namespace fs = std::filesystem;

constexpr size_t longest_name = 64;
constexpr size_t most_plans = 256;  // as many interfaces of a kind as the core takes from a plugin

// A plan with its table. The table's functions set `current`, by which the SDK's checks find it.
struct Imported {
  Scheduled scheduled;
  std::string name, summary, file;
  tutti_algorithm table{};
};

struct Current {
  static inline thread_local const Imported* plan = nullptr;
  static inline thread_local const char* name = nullptr;
  static inline thread_local uint64_t collectives = 0;
  static std::string supports(const sdk::Query& query) { return plan->scheduled.refusal(query); }
  static void schedule(const sdk::Query& query, sdk::Schedule& schedule) { plan->scheduled.schedule(query, schedule); }
  static void set(void* self) {
    plan = static_cast<const Imported*>(self);
    name = plan->name.c_str();
    collectives = plan->table.collectives;
  }
};

// FNV-1a over all that the schedules depend on.
uint64_t digest_of(const std::string& name, const std::string& text) {
  uint64_t digest = 0xcbf29ce484222325u;
  for (const std::string* part : {&name, &text})
    for (const char c : *part) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return digest ? digest : 1;
}

std::string read_file(const std::string& file) {
  std::error_code error;
  if (const fs::file_status status = fs::status(file, error); error || !fs::is_regular_file(status))
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_IMPORT: {}: {}", file,
                     error ? error.message() : "is neither a file nor a folder");
  const auto bytes = fs::file_size(file, error);
  if (!error && bytes > Limits::file_bytes)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_IMPORT: {}: has {} bytes, and a plan at most {}", file, bytes,
                     uint64_t{Limits::file_bytes});
  std::ifstream stream(file, std::ios::binary);
  std::string text(error ? 0 : bytes, '\0');
  if (!stream || !stream.read(text.data(), static_cast<std::streamsize>(text.size())))
    throw sdk::system_error(errno, "TUTTI_IMPORT: {} cannot be read", file);
  return text;
}

// TUTTI_ALGO takes small letters, digits, '-' and '_'.
std::string algorithm_name(const std::string& given, const std::string& file) {
  std::string name;
  for (const char c : given.empty() ? fs::path(file).stem().string() : given) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += upper ? static_cast<char>(c - 'A' + 'a') : kept ? c : '_';
  }
  if (name.size() > longest_name) name.resize(longest_name);
  return name;
}

std::vector<std::string> files_of(const std::string& setting) {
  std::vector<std::string> files;
  for (size_t begin = 0; begin <= setting.size();) {
    const size_t end = std::min(setting.find(':', begin), setting.size());
    const std::string path = setting.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (const auto ending = entry.path().extension(); ending == ".xml" || ending == ".json")
        inside.push_back(entry.path().string());
    if (error) throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_IMPORT: {}: {}", path, error.message());
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

}  // namespace

// The text decides which of the formats it is.
std::shared_ptr<const tutti_algorithm> import_plan(const std::string& file, const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  Plan plan = first != text.npos && text[first] == '{' ? read_mscclpp(file, text) : read_msccl(file, text);
  const std::string name = algorithm_name(plan.name, file);
  auto imported = std::make_shared<Imported>(Imported{Scheduled(plan), name, "", file, {}});
  imported->summary = fmt::format("{} of {} ranks, imported from {}", sdk::collective_text(plan.collective), plan.ranks,
                                  fs::path(file).filename().string());
  tutti_algorithm& table = imported->table;
  table.struct_size = sizeof table;
  table.self = imported.get();
  table.name = imported->name.c_str();
  table.summary = imported->summary.c_str();
  table.collectives = uint64_t{1} << plan.collective;
  table.supports = [](void* self, const tutti_query* query) {
    Current::set(self);
    return sdk::AlgorithmTable<Current>::supports(nullptr, query);
  };
  table.schedule = [](void* self, const tutti_query* query, const tutti_schedule_sink* sink) {
    Current::set(self);
    return sdk::AlgorithmTable<Current>::schedule(nullptr, query, sink);
  };
  table.digest = digest_of(name, text);
  return {imported, &imported->table};
}

std::vector<const tutti_algorithm*> import_plans(const std::string& setting) {
  static auto* const kept = new std::vector<std::shared_ptr<const tutti_algorithm>>();  // as long as the process
  std::vector<const tutti_algorithm*> tables;
  std::map<std::string, std::string> file_of_name;
  for (const std::string& file : files_of(setting)) {
    auto imported = import_plan(file, read_file(file));
    const std::string name = imported->name;
    if (const auto [at, fresh] = file_of_name.try_emplace(name, file); !fresh)
      throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_IMPORT: {}: its name, {}, is that of the plan in {}: change one",
                       file, name, at->second);
    if (tables.size() == most_plans)
      throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_IMPORT: names more than {} plans", most_plans);
    tables.push_back(imported.get());
    kept->push_back(std::move(imported));
  }
  return tables;
}

}  // namespace tutti::plans
