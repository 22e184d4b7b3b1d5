// SPDX-License-Identifier: Apache-2.0
#include "report_json.hpp"

#include <tutti/tutti.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace perf {
namespace {

using Json = nlohmann::ordered_json;

Json latency_json(const Latency& latency) {
  return {{"min", latency.minimum}, {"p50", latency.p50}, {"p99", latency.p99}};
}

Json side_json(const Side& side) {
  if (!side.measured) return nullptr;
  Json json{{"time_us", side.time_us},           {"algbw_GBps", side.algorithm_bandwidth},
            {"busbw_GBps", side.bus_bandwidth},  {"wrong", side.checked ? Json(side.wrong) : Json(nullptr)},
            {"rank_time_us", side.rank_time_us}, {"latency_us", latency_json(side.latency)},
            {"rank_latency_us", Json::array()}};
  if (side.free_us > 0) json["free_us"] = side.free_us, json["exact_ratio"] = side.exact_ratio();
  for (const Latency& latency : side.rank_latency) json["rank_latency_us"].push_back(latency_json(latency));
  return json;
}

// Tutti's settings, without the job's secret.
Json environment_json() {
  Json json = Json::object();
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    const std::string name(text.substr(0, equals));
    if (!name.starts_with("TUTTI_") || equals == text.npos) continue;
    const bool hidden = name.find("SECRET") != name.npos || text.substr(equals + 1).starts_with("id:");
    json[name] = hidden ? "(hidden)" : std::string(text.substr(equals + 1));
  }
  return json;
}

Json row_json(const Row& row, const Setting& setting) {
  return {{"collective", row.collective->name},
          {"size", row.bytes},
          {"count", row.count},
          {"type", row.dtype},
          {"redop", row.op},
          {"root", row.root},
          {"bound_us", bound_us(row, setting)},
          {"out_of_place", side_json(row.out_of_place)},
          {"in_place", side_json(row.in_place)}};
}

}  // namespace

Json report_origin(const std::vector<std::string>& command) {
  Json json;
  json["program"] = "tutti-perf";
  json["version"] = tutti_version();
  json["abi"] = {{"major", TUTTI_ABI_MAJOR}, {"minor", TUTTI_ABI_MINOR}};
  json["command"] = command;
  json["environment"] = environment_json();
  return json;
}

Json report_head(const std::vector<std::string>& command, const Setting& setting) {
  Json json = report_origin(command);
  json["nranks"] = setting.nranks;
  json["transports"] = setting.transports;
  json["ranks"] = Json::array();
  for (const RankIdentity& rank : setting.ranks)
    json["ranks"].push_back({{"rank", rank.rank}, {"pid", rank.pid}, {"host", rank.host}});
  return json;
}

std::string finished(Json json, uint64_t wrong, const std::string& error) {
  json["wrong"] = wrong;
  return finished(std::move(json), error);
}

std::string finished(Json json, const std::string& error) {
  json["complete"] = error.empty();
  if (!error.empty()) json["error"] = error;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_json(const Options& options, const Setting& setting, const std::vector<Row>& rows,
                        const std::vector<Rail>& rails, uint64_t wrong, double average_bus_bandwidth,
                        const std::string& error) {
  Json json = report_head(options.command, setting);
  json["config"] = {{"min_bytes", options.least_bytes},
                    {"max_bytes", options.most_bytes},
                    {"iterations", options.iterations},
                    {"warm_up", options.warm_up},
                    {"checks", options.checks},
                    {"time", report_name(options.report)},
                    {"threads", options.threads},
                    {"memory", options.registered ? "registered" : "ordinary"},
                    {"blocks", options.skewed ? "skewed" : "equal"},
                    {"device", options.device},
                    {"seed", options.seed}};
  if (setting.baseline) {
    const Baseline& b = *setting.baseline;
    json["device"] = {{"name", options.device},
                      {"devices", setting.devices},
                      {"bytes", b.bytes},
                      {"copy_GBps_moved", b.copy},
                      {"reduce_GBps_moved", b.reduce},
                      {"small_copy_in_stream_us", b.in_stream_us},
                      {"small_copy_alone_us", b.alone_us}};
  }
  json["rows"] = Json::array();
  for (const Row& row : rows) json["rows"].push_back(row_json(row, setting));
  json["rails"] = Json::array();
  for (const Rail& r : rails)
    json["rails"].push_back({{"transport", r.transport},
                             {"rail", r.name},
                             {"sent_bytes", r.sent_bytes},
                             {"received_bytes", r.received_bytes}});
  json["average_busbw_GBps"] = average_bus_bandwidth;
  return finished(std::move(json), wrong, error);
}

}  // namespace perf
