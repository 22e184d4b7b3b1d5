// SPDX-License-Identifier: Apache-2.0
#include "report/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "contract/clauses.hpp"
#include "report/judgement.hpp"
#include "report/waivers.hpp"

namespace tutti::conformance {
namespace {

using Json = nlohmann::ordered_json;  // the order is kept: writing, reading and writing again gives the same bytes
using Pairs = std::vector<std::pair<std::string, std::string>>;

// ---- Out: 64-bit numbers that name something are text, since not every reader of JSON keeps all their bits
// -----------

std::string hexadecimal(uint64_t value) { return fmt::format("{:#x}", value); }

Json object_of(const Pairs& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

Json manifest_of(const Manifest& m) {
  Json plugins = Json::array();
  for (const PluginFact& p : m.plugins)
    plugins.push_back({{"id", p.id},
                       {"version", p.version},
                       {"vendor", p.vendor},
                       {"path", p.path},
                       {"sha256", p.sha256},
                       {"transports", p.transports},
                       {"algorithms", p.algorithms},
                       {"devices", p.devices},
                       {"refused", p.refused}});
  return {{"suite_version", m.suite_version},
          {"library_version", m.library_version},
          {"library_sha256", m.library_sha256},
          {"started", m.started},
          {"seconds", m.seconds},
          {"command_line", m.command_line},
          {"level", m.level},
          {"seed", hexadecimal(m.seed)},
          {"transports", m.transports},
          {"algorithms", m.algorithms},
          {"devices", m.devices},
          {"cases", m.cases},
          {"share", m.share},
          {"plugins", plugins},
          {"machine", object_of(m.machine)},
          {"interfaces", object_of(m.interfaces)},
          {"settings", object_of(m.settings)}};
}

Json attestation_of(const Attestation& a) {
  Json traffic = Json::array();
  for (const Traffic& t : a.traffic)
    traffic.push_back({{"transport", t.transport},
                       {"rank", t.rank},
                       {"peer", t.peer},
                       {"sent_bytes", t.sent_bytes},
                       {"received_bytes", t.received_bytes}});
  Json rails = Json::array();
  for (const RailTraffic& r : a.rails)
    rails.push_back({{"transport", r.transport},
                     {"rail", r.rail},
                     {"rank", r.rank},
                     {"sent_bytes", r.sent_bytes},
                     {"received_bytes", r.received_bytes}});
  return {{"algorithm", a.algorithm}, {"device", a.device}, {"plan_hash", hexadecimal(a.plan_hash)},
          {"plugins", a.plugins},     {"traffic", traffic}, {"rails", rails}};
}

Json result_of(const Result& r) {
  return {{"id", r.id},
          {"kind", r.kind},
          {"verdict", verdict_key(r.outcome.verdict)},
          {"message", r.outcome.message},
          {"clause", r.outcome.clause},
          {"clauses", r.clauses},
          {"must_pass", r.must_pass},
          {"axes", object_of(r.axes)},
          {"seconds", r.seconds},
          {"seed", hexadecimal(r.seed)},
          {"reproduce", r.reproduce},
          {"attestation", attestation_of(r.attestation)}};
}

// The result of each clause of the contract in this run: how many cases name it, and their findings.
Json coverage_of(const Run& run) {
  Json coverage = Json::array();
  for (const Clause& clause : clauses()) {
    uint64_t cases = 0, passed = 0, bad = 0;
    for (const Result& r : run.results) {
      if (std::find(r.clauses.begin(), r.clauses.end(), clause.id) == r.clauses.end()) continue;
      ++cases;
      passed += r.outcome.verdict == Verdict::pass || r.outcome.verdict == Verdict::warning;
      bad += is_bad(r.outcome.verdict);
    }
    coverage.push_back({{"id", clause.id}, {"text", clause.text}, {"cases", cases}, {"passed", passed}, {"bad", bad}});
  }
  return coverage;
}

Json counts_of(const Run& run) {
  const Counts c = run.counts();
  return {{"passed", c.passed},       {"warnings", c.warnings},
          {"failed", c.failed},       {"crashed", c.crashed},
          {"timed_out", c.timed_out}, {"not_supported", c.not_supported},
          {"not_run", c.not_run},     {"must_pass_missing", c.must_pass_missing}};
}

// ---- Back: every look into a document knows where it looks
// ------------------------------------------------------------

class Value {
 public:
  Value(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  Value at(const char* key) const {
    if (!json_.is_object()) expected("an object");
    const auto found = json_.find(key);
    if (found == json_.end()) throw std::runtime_error(fmt::format("{}: \"{}\" is missing", shown(), key));
    return {*found, name_.empty() ? key : name_ + "." + key};
  }
  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  // Members that reports of earlier versions lack.
  std::vector<std::string> texts_if_there(const char* key) const {
    return has(key) ? at(key).texts() : std::vector<std::string>();
  }
  std::string text() const { return json_.is_string() ? json_.get<std::string>() : expected("a text"); }
  double number() const {
    if (!json_.is_number()) expected("a number");
    return json_.get<double>();
  }
  uint64_t whole() const {
    if (!json_.is_number_unsigned()) expected("a whole number");
    return json_.get<uint64_t>();
  }
  bool truth() const {
    if (!json_.is_boolean()) expected("true or false");
    return json_.get<bool>();
  }
  uint64_t hexadecimal() const {
    const std::string digits = text();
    size_t read = 0;
    uint64_t value = 0;
    try {
      if (digits.starts_with("0x")) value = std::stoull(digits, &read, 16);
    } catch (const std::exception&) {
      read = 0;
    }
    if (read == 0 || read != digits.size()) expected("a hexadecimal number, as \"0x1f\"");
    return value;
  }
  template <typename Take>
  void each(Take&& take) const {
    if (!json_.is_array()) expected("a list");
    for (size_t i = 0; i < json_.size(); ++i) take(Value(json_[i], fmt::format("{}[{}]", name_, i)));
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    each([&](const Value& one) { all.push_back(one.text()); });
    return all;
  }
  Pairs pairs() const {
    if (!json_.is_object()) expected("an object");
    Pairs all;
    for (const auto& [key, value] : json_.items()) all.emplace_back(key, Value(value, name_ + "." + key).text());
    return all;
  }
  const Json& json() const { return json_; }
  // Throws; the return type is for use in expressions.
  [[noreturn]] std::string expected(const std::string& what) const {
    std::string got = json_.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (got.size() > 60) got = got.substr(0, 57) + "...";
    throw std::runtime_error(fmt::format("{}: expected {}, got {}", shown(), what, got));
  }

 private:
  std::string shown() const { return name_.empty() ? "the document" : name_; }
  const Json& json_;
  std::string name_;
};

Manifest manifest_from(const Value& at) {
  Manifest m;
  m.suite_version = at.at("suite_version").text();
  m.library_version = at.at("library_version").text();
  m.library_sha256 = at.at("library_sha256").text();
  m.started = at.at("started").text();
  m.seconds = at.at("seconds").number();
  m.command_line = at.at("command_line").text();
  m.level = at.at("level").text();
  m.seed = at.at("seed").hexadecimal();
  m.transports = at.at("transports").texts();
  m.algorithms = at.at("algorithms").texts();
  m.devices = at.texts_if_there("devices");
  m.cases = at.at("cases").texts();
  if (at.has("share")) m.share = at.at("share").text();
  at.at("plugins").each([&](const Value& p) {
    m.plugins.push_back({p.at("id").text(), p.at("version").text(), p.at("vendor").text(), p.at("path").text(),
                         p.at("sha256").text(), p.at("transports").texts(), p.at("algorithms").texts(),
                         p.at("refused").text(), p.texts_if_there("devices")});
  });
  m.machine = at.at("machine").pairs();
  m.interfaces = at.at("interfaces").pairs();
  m.settings = at.at("settings").pairs();
  return m;
}

Attestation attestation_from(const Value& at) {
  Attestation a;
  a.algorithm = at.at("algorithm").text();
  if (at.has("device")) a.device = at.at("device").text();
  a.plan_hash = at.at("plan_hash").hexadecimal();
  a.plugins = at.at("plugins").texts();
  at.at("traffic").each([&](const Value& t) {
    a.traffic.push_back({t.at("transport").text(), static_cast<uint32_t>(t.at("rank").whole()),
                         static_cast<uint32_t>(t.at("peer").whole()), t.at("sent_bytes").whole(),
                         t.at("received_bytes").whole()});
  });
  if (at.has("rails"))
    at.at("rails").each([&](const Value& r) {
      a.rails.push_back({r.at("transport").text(), r.at("rail").text(), static_cast<uint32_t>(r.at("rank").whole()),
                         r.at("sent_bytes").whole(), r.at("received_bytes").whole()});
    });
  return a;
}

Result result_from(const Value& at) {
  Result r;
  r.id = at.at("id").text();
  r.kind = at.at("kind").text();
  try {
    r.outcome.verdict = verdict_from_key(at.at("verdict").text());
  } catch (const std::exception& e) {
    at.at("verdict").expected(std::string("a verdict (") + e.what() + ")");
  }
  r.outcome.message = at.at("message").text();
  r.outcome.clause = at.at("clause").text();
  r.clauses = at.at("clauses").texts();
  r.must_pass = at.at("must_pass").truth();
  r.axes = at.at("axes").pairs();
  r.seconds = at.at("seconds").number();
  r.seed = at.at("seed").hexadecimal();
  r.reproduce = at.at("reproduce").text();
  r.attestation = attestation_from(at.at("attestation"));
  return r;
}

}  // namespace

Json to_document(const Run& run) {
  const Judgement judgement = judge(run, day_of(run));
  Json results = Json::array(), waivers = Json::array();
  for (const Waiver& w : run.waivers)
    waivers.push_back({{"cases", w.cases}, {"reason", w.reason}, {"link", w.link}, {"expires", w.expires}});
  for (const Result& r : run.results) results.push_back(result_of(r));
  return {{"schema", report_schema},
          {"verdict",
           {{"conforming", judgement.conforming()}, {"title", judgement.title()}, {"reasons", judgement.reasons}}},
          {"counts", counts_of(run)},
          {"manifest", manifest_of(run.manifest)},
          {"clauses", coverage_of(run)},
          {"waivers", waivers},
          {"results", results}};
}

Run from_document(const Json& document) {
  const Value top(document, "");
  if (const std::string schema = top.at("schema").text(); schema != report_schema)
    throw std::runtime_error(
        fmt::format("schema: expected \"{}\", got \"{}\": this tutti-conform reads no other", report_schema, schema));
  Run run;
  run.manifest = manifest_from(top.at("manifest"));
  run.waivers = waivers_from(top.at("waivers").json());
  top.at("results").each([&](const Value& one) { run.results.push_back(result_from(one)); });
  const Json counts = counts_of(run);
  for (const auto& [name, value] : counts.items())
    if (const uint64_t told = top.at("counts").at(name.c_str()).whole(); told != value.get<uint64_t>())
      throw std::runtime_error(fmt::format("counts.{} is {}, but the results have {}: one of them was changed", name,
                                           told, value.get<uint64_t>()));
  top.at("verdict").at("conforming").truth();
  return run;
}

std::string document_text(const Json& document) {
  const auto text = [](const Json& part, int indent) {
    return part.dump(indent, ' ', true, Json::error_handler_t::replace);
  };
  std::string whole = "{";
  for (const auto& [name, part] : document.items()) {
    whole += (whole.size() > 1 ? ",\n" : "\n") + text(name, -1) + ": ";
    if (name != "results") {
      whole += text(part, 1);
      continue;
    }
    whole += "[";
    for (size_t i = 0; i < part.size(); ++i) whole += (i ? ",\n" : "\n") + text(part[i], -1);
    whole += "\n]";
  }
  return whole + "\n}\n";
}

}  // namespace tutti::conformance
