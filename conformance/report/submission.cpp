// SPDX-License-Identifier: Apache-2.0
#include "report/submission.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "machine.hpp"
#include "report/document.hpp"
#include "report/report.hpp"
#include "report/text_file.hpp"

namespace tutti::conformance {
namespace {

namespace fs = std::filesystem;

constexpr const char* json_name = "report.json";
constexpr const char* junit_name = "report.xml";
constexpr const char* html_name = "report.html";
constexpr const char* sums_name = "SHA256SUMS";
constexpr const char* summed[] = {json_name, junit_name, html_name};

std::string path_of(const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); }

// Lines of "digest  name", as sha256sum writes them.
std::map<std::string, std::string> read_sums(const std::string& path) {
  std::map<std::string, std::string> sums;
  std::istringstream lines(read_text_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 67 || line.substr(64, 2) != "  ")
      throw std::runtime_error(
          fmt::format("{}: \"{}\" is no line of sha256sum (a digest, two spaces, a name)", path, line.substr(0, 80)));
    sums[line.substr(66)] = line.substr(0, 64);
  }
  return sums;
}

void require_digests(const std::string& folder) {
  const auto sums = read_sums(path_of(folder, sums_name));
  for (const char* name : summed) {
    const std::string path = path_of(folder, name);
    const auto told = sums.find(name);
    if (told == sums.end()) throw std::runtime_error(fmt::format("{}: has no digest of {}", sums_name, name));
    if (!fs::is_regular_file(path)) throw std::runtime_error(path + ": is missing");
    if (const std::string is = sha256_of_file(path); is != told->second)
      throw std::runtime_error(
          fmt::format("{} was altered: its SHA-256 is {}, {} says {}", path, is, sums_name, told->second));
  }
}

Run read_run(const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    return from_document(nlohmann::ordered_json::parse(text));
  } catch (const std::exception& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

}  // namespace

void begin_submission(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::invalid_argument("--report " + folder + ": cannot be made: " + error.message());
  for (const char* name : {json_name, junit_name, html_name, sums_name}) {
    fs::remove(path_of(folder, name), error);
    require_writable("--report", path_of(folder, name));
  }
}

void write_submission(const Run& found, const std::string& folder) {
  // As a reader of the JSON will have it, to the last replaced character.
  const Run run = from_document(nlohmann::ordered_json::parse(json_text(found)));
  write_json(run, path_of(folder, json_name));
  write_junit(run, path_of(folder, junit_name));
  write_html(run, path_of(folder, html_name));
  std::string sums;
  for (const char* name : summed) sums += sha256_of_file(path_of(folder, name)) + "  " + name + "\n";
  write_text_file(path_of(folder, sums_name), sums);
}

Run read_submission(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw std::runtime_error(folder + ": is no folder");
  if (!fs::exists(path_of(folder, json_name)))
    throw std::runtime_error(folder + ": has no " + json_name + ": is it what `tutti-conform --report` wrote?");
  if (!fs::exists(path_of(folder, sums_name)))
    throw std::runtime_error(folder + ": has no " + sums_name + ": nothing shows that its files are whole");
  require_digests(folder);
  Run run = read_run(path_of(folder, json_name));
  if (run.manifest.suite_version == suite_version()) {
    const auto require = [&](const char* name, const std::string& text) {
      if (read_text_file(path_of(folder, name)) != text)
        throw std::runtime_error(fmt::format(
            "{} is not what {} gives: one of them was changed, and the digests with it, or another build of "
            "this version wrote them",
            path_of(folder, name), json_name));
    };
    require(junit_name, junit_text(run));
    require(html_name, html_text(run));
  }
  return run;
}

}  // namespace tutti::conformance
