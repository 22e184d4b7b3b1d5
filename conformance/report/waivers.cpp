// SPDX-License-Identifier: Apache-2.0
#include "report/waivers.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <stdexcept>

#include "report/text_file.hpp"
#include "suites.hpp"

namespace tutti::conformance {
namespace {

using Json = nlohmann::ordered_json;

Waiver waiver_from(const Json& entry, size_t number) {
  const std::string place = "waiver " + std::to_string(number + 1) + ": ";
  if (!entry.is_object()) throw std::runtime_error(place + "expected an object, got " + entry.type_name());
  const auto text = [&](const char* name) {
    const auto found = entry.find(name);
    if (found == entry.end() || !found->is_string() || found->get<std::string>().empty())
      throw std::runtime_error(place + "\"" + name + "\" is missing: a waiver has cases, reason, link and expires");
    return found->get<std::string>();
  };
  Waiver waiver{text("cases"), text("reason"), text("link"), text("expires")};
  if (!is_day(waiver.expires))
    throw std::runtime_error(place + "expires \"" + waiver.expires + "\" is no day: expected YYYY-MM-DD");
  return waiver;
}

}  // namespace

std::vector<Waiver> waivers_from(const Json& list) {
  if (!list.is_array()) throw std::runtime_error(std::string("waivers: expected a list, got ") + list.type_name());
  std::vector<Waiver> waivers;
  for (const Json& entry : list) waivers.push_back(waiver_from(entry, waivers.size()));
  return waivers;
}

std::vector<Waiver> read_waivers(const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    const Json document = Json::parse(text);
    if (!document.is_object() || document.value("schema", "") != waivers_schema)
      throw std::runtime_error(std::string("expected \"schema\": \"") + waivers_schema + "\"");
    return waivers_from(document.contains("waivers") ? document["waivers"] : Json());
  } catch (const std::exception& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

bool is_day(const std::string& text) {
  int year = 0, end = 0;
  unsigned month = 0, day = 0;
  if (text.size() != 10 || std::sscanf(text.c_str(), "%4d-%2u-%2u%n", &year, &month, &day, &end) != 3 || end != 10)
    return false;
  return std::chrono::year_month_day(std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)).ok();
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

bool in_force(const Waiver& waiver, const std::string& day) { return day <= waiver.expires; }

const Waiver* waiver_of(const std::vector<Waiver>& waivers, const Result& result, const std::string& day) {
  for (const Waiver& waiver : waivers)
    if (in_force(waiver, day) && matches(waiver.cases, result.id)) return &waiver;
  return nullptr;
}

}  // namespace tutti::conformance
