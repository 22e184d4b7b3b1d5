// SPDX-License-Identifier: Apache-2.0
//
// The page: page/page.html with its style, its script and the run's data put in. It loads nothing from anywhere.
#include <fmt/format.h>

#include <map>
#include <string_view>

#include "page_parts.hpp"  // made from page/ by CMakeLists.txt
#include "report/document.hpp"
#include "report/judgement.hpp"
#include "report/report.hpp"
#include "report/text_file.hpp"
#include "report/waivers.hpp"

namespace tutti::conformance {
namespace {

using Json = nlohmann::ordered_json;

std::string html_escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return safe;
}

// In a script element nothing may look like its end: '<' stands only in strings of JSON, where it may be escaped.
std::string for_script(const Json& data) {
  std::string safe;
  for (const char c : data.dump(-1, ' ', true, Json::error_handler_t::replace))
    safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

// Traffic, summed over ranks: the page shows no more, and a report of many ranks stays small.
Json carried(const Attestation& attestation) {
  std::map<std::string, uint64_t> sent;
  for (const Traffic& t : attestation.traffic) sent[t.transport] += t.sent_bytes;
  return sent;
}

Json over_rails(const Attestation& attestation) {
  std::map<std::string, uint64_t> sent;
  for (const RailTraffic& r : attestation.rails) sent[r.transport + " " + r.rail] += r.sent_bytes;
  return sent;
}

// The document, and what the page would otherwise have to work out.
Json page_data(const Run& run) {
  Json data = to_document(run);
  const std::string day = day_of(run);
  for (size_t i = 0; i < run.results.size(); ++i) {
    Json& result = data["results"][i];
    result["waived"] = waiver_of(run.waivers, run.results[i], day) != nullptr;
    Json& attestation = result["attestation"];
    attestation.erase("traffic");
    attestation["carried"] = carried(run.results[i].attestation);
    attestation["rails"] = over_rails(run.results[i].attestation);
  }
  for (size_t i = 0; i < run.waivers.size(); ++i) data["waivers"][i]["in_force"] = in_force(run.waivers[i], day);
  return data;
}

std::string summary(const Run& run) {
  const Judgement judgement = judge(run, day_of(run));
  const Counts c = run.counts();
  std::string text = fmt::format("<h1>{}</h1>\n<ul>\n", judgement.title());
  for (const std::string& reason : judgement.reasons) text += "<li>" + html_escaped(reason) + "</li>\n";
  return text + fmt::format("</ul>\n<p>{} passed ({} with warnings), {} failed, {} not supported, {} not run.</p>",
                            c.passed + c.warnings, c.warnings, c.failed + c.crashed + c.timed_out, c.not_supported,
                            c.not_run);
}

}  // namespace

std::string html_text(const Run& run) {
  const std::map<std::string_view, std::string> parts{
      {"TITLE", html_escaped("Tutti conformance, " + run.manifest.started)},
      {"STYLE", page_css},
      {"SCRIPT", page_js},
      {"SUMMARY", summary(run)},
      {"DATA", for_script(page_data(run))}};
  std::string text;
  std::string_view left = page_html;
  for (size_t begin; (begin = left.find('@')) != std::string_view::npos;) {
    const size_t end = left.find('@', begin + 1);
    text += left.substr(0, begin);
    text += parts.at(left.substr(begin + 1, end - begin - 1));
    left.remove_prefix(end + 1);
  }
  return text + std::string(left);
}

void write_html(const Run& run, const std::string& path) { write_text_file(path, html_text(run)); }

}  // namespace tutti::conformance
