// SPDX-License-Identifier: Apache-2.0
#include "passport.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <tutti/tutti.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stdexcept>

#include "judge.hpp"
#include "yardsticks.hpp"

namespace doctor {
namespace {

using Document = nlohmann::ordered_json;
constexpr double tolerance = 1.2;

Document host_of(const Facts& f) {
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  return {{"name", f.process.host},          {"processor", f.process.processor},
          {"kernel", f.process.kernel},      {"cores", f.process.cpus.size()},
          {"cores_online", f.online.size()}, {"memory_bytes", f.process.memory_bytes},
          {"numa_nodes", f.nodes.size()},    {"huge_pages", f.huge_pages},
          {"cpu_quota", f.cgroup.cpus},      {"load", load}};
}

// The load is that before the measurement.
Document measured(const Facts& facts, bool quick) {
  constexpr double short_time = 0.3, long_time = 8;  // seconds per yardstick, of which there are eight
  Document passport{{"kind", "tutti performance passport"},
                    {"version", tutti_version()},
                    {"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                    {"quick", quick},
                    {"host", host_of(facts)},
                    {"figures", Document::array()}};
  for (const Figure& f : measure(facts.process.cpus, quick ? short_time : long_time)) {
    Document figure{
        {"name", f.name}, {"unit", f.unit}, {"meaning", f.meaning}, {"better", f.more_is_better() ? "more" : "less"}};
    if (f.samples.empty())
      figure["problem"] = f.problem;
    else
      figure.update(Document{{"best", f.best()}, {"median", f.median()}, {"samples", f.samples.size()}});
    passport["figures"].push_back(std::move(figure));
  }
  return passport;
}

std::string page_of(const Document& passport) {
  const Document& host = passport["host"];
  std::string page = fmt::format("# Performance passport of {}\n\n", host["name"].get<std::string>());
  page += fmt::format(
      "{}, {} of {} cores, {}, {} NUMA node(s), Linux {}, huge pages: {}\n\n", host["processor"].get<std::string>(),
      host["cores"].get<size_t>(), host["cores_online"].get<size_t>(), bytes_text(host["memory_bytes"].get<uint64_t>()),
      host["numa_nodes"].get<size_t>(), host["kernel"].get<std::string>(), host["huge_pages"].get<std::string>());
  page += fmt::format("Measured {}{} by tutti-doctor {}; load at the start {:.2f}.\n\n",
                      passport["time"].get<std::string>(), passport["quick"].get<bool>() ? " (--quick)" : "",
                      passport["version"].get<std::string>(), host["load"].get<double>());
  page += "| figure | best | median | unit | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Document& f : passport["figures"]) {
    const std::string name = f["name"], unit = f["unit"], meaning = f["meaning"];
    page += f.contains("problem")
                ? fmt::format("| {} | - | - | {} | {}: {} |\n", name, unit, meaning, f["problem"].get<std::string>())
                : fmt::format("| {} | {:.4g} | {:.4g} | {} | {} |\n", name, f["best"].get<double>(),
                              f["median"].get<double>(), unit, meaning);
  }
  return page;
}

[[noreturn]] void cannot_write(const std::string& path) {
  throw std::runtime_error(path + " cannot be written: is the folder there, and the disk not full?");
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) cannot_write(path);
}

Document read_passport(const std::string& path) {
  std::ifstream file(path);
  Document passport = Document::parse(file, nullptr, false);
  if (!passport.is_object() || passport.value("kind", Document()) != "tutti performance passport" ||
      !passport.contains("host") || !passport["host"].is_object() || !passport.contains("figures") ||
      !passport["figures"].is_array())
    throw std::invalid_argument(path + " is no passport: expected the JSON file that tutti-doctor passport writes");
  return passport;
}

// "is more": B is better than A by more than the tolerance.
std::string verdict(double ratio, bool more_is_better) {
  if (ratio <= tolerance && ratio >= 1 / tolerance) return "";
  return (ratio > 1) == more_is_better ? "B is better" : "B is WORSE";
}

}  // namespace

void write_passport(const Facts& facts, bool quick, const std::string& name) {
  const std::string stem = name.empty() ? "tutti-passport-" + facts.process.host : name;
  if (!std::ofstream(stem + ".json", std::ios::app)) cannot_write(stem + ".json");  // known before two minutes are over
  const Document passport = measured(facts, quick);
  write_file(stem + ".json", passport.dump(2, ' ', false, Document::error_handler_t::replace) + "\n");
  const std::string page = page_of(passport);
  write_file(stem + ".md", page);
  fmt::print("{}\nwritten: {}.json, {}.md\n", page, stem, stem);
  if (passport["host"]["load"] > 0.5)
    fmt::print("The machine was busy (load {:.2f}): compare may mark differences that are not the machine's.\n",
               passport["host"]["load"].get<double>());
}

bool compare_passports(const std::string& first, const std::string& second) try {
  const Document a = read_passport(first), b = read_passport(second);
  bool differs = false;
  std::string text;
  for (const auto& [key, value] : a["host"].items())
    if (const Document other = b["host"].value(key, Document()); key != "load" && other != value)
      text += fmt::format("{}: {} / {}\n", key, value.dump(), other.dump());
  if (a.value("quick", false) != b.value("quick", false)) text += "one of them is --quick: less exact\n";
  text += fmt::format("{:24} {:>10} {:>10} {:5} {:>6}\n", "figure", "A", "B", "unit", "B/A");
  for (const Document& from : a["figures"]) {
    const std::string name = from.at("name");
    Document to = Document::object();
    for (const Document& candidate : b["figures"])
      if (candidate.at("name") == name) to = candidate;
    if (from.contains("best") != to.contains("best")) {
      text += fmt::format("{:24} only {} has it\n", name, from.contains("best") ? "A" : "B");
      differs = true;
    }
    if (!from.contains("best") || !to.contains("best")) continue;
    const double mine = from.at("best"), its = to.at("best"), ratio = mine > 0 ? its / mine : 0;
    const std::string says = verdict(ratio, from.at("better") == "more");
    differs |= !says.empty();
    text += fmt::format("{:24} {:10.4g} {:10.4g} {:5} {:6.2f}  {}\n", name, mine, its,
                        from.at("unit").get<std::string>(), ratio, says);
  }
  fmt::print("{}\n{} by more than 20 %.\n", text, differs ? "Marked figures differ" : "Nothing differs");
  return differs;
} catch (const nlohmann::json::exception& e) {
  throw std::invalid_argument(fmt::format("{} or {} is a damaged passport: {}", first, second, e.what()));
}

}  // namespace doctor
