// SPDX-License-Identifier: Apache-2.0
#include "buckets/report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "output_file.hpp"
#include "print.hpp"
#include "report_json.hpp"
#include "table.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;
constexpr double mib = 1 << 20;

const char* advancer(const ReplayRow& row) { return row.thread ? "thread" : "caller"; }

void print_row(const ReplayRow& row) {
  print("{:>10} {:>8} {:8} {:>9}", wire_name(row.wire), advancer(row), row.buckets,
        fit_number(row.sent_bytes / mib, 9));
  print(" {:>10} {:>6} {:>10} {:>10}", fit_number(row.alone_us, 10), row.speed > 0 ? fit_number(row.speed, 6) : "N/A",
        fit_number(row.compute_us, 10), fit_number(row.step_us, 10));
  print(" {:>10} {:>10} {:>7}", fit_number(row.exposed_us(), 10), fit_number(row.hideable_us(), 10),
        row.can_hide() ? fmt::format("{:.1f}", 100 * row.hidden()) : "N/A");
  print(" {:>7}\n", row.checked ? fmt::format("{}", row.wrong) : "N/A");
  std::fflush(stdout);
}

Json row_json(const ReplayRow& row) {
  return {{"wire", wire_name(row.wire)},
          {"advanced_by", advancer(row)},
          {"buckets", row.buckets},
          {"sent_bytes", row.sent_bytes},
          {"alone_us", row.alone_us},
          {"speed", row.speed > 0 ? Json(row.speed) : Json(nullptr)},
          {"compute_us", row.compute_us},
          {"step_us", row.step_us},
          {"exposed_us", row.exposed_us()},
          {"wait_us", row.wait_us},
          {"hideable_us", row.hideable_us()},
          {"hidden_percent", row.can_hide() ? Json(100 * row.hidden()) : Json(nullptr)},
          {"wrong", row.checked ? Json(row.wrong) : Json(nullptr)}};
}

}  // namespace

ReplayReport::ReplayReport(const Options& options, const Setting& setting, bool speaks)
    : options_(options), setting_(setting), speaks_(speaks) {
  if (!speaks) return;
  const BucketOptions& settings = *options.buckets;
  print_command(options);
  print(
      "# nRanks {} model: {} parameters: {} MiB: {:.1f} compute: {:.1f} ms warmup steps: {} steps: {} validation: {}\n",
      setting.nranks, settings.model.name, settings.model.parameters.size(),
      static_cast<double>(settings.model.bytes()) / mib, settings.compute_us / 1e3, settings.warm_up, settings.steps,
      options.checks);
  print("# gradients: {}  order: {}  feedback: {}  time: slowest rank  transports: {}\n",
        settings.views ? "one after another" : "apart", settings.declared_order ? "declared" : "readiness",
        settings.feedback ? "yes" : "no", setting.transports.empty() ? "none" : setting.transports);
  print_ranks(setting, options.threads > 0);
  print("#\n# {:>8} {:>8} {:>8} {:>9} {:>10} {:>6} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}\n", "wire", "advance",
        "buckets", "sent", "alone", "speed", "compute", "step", "exposed", "hideable", "hidden", "#wrong");
  print("# {:>8} {:>8} {:>8} {:>9} {:>10} {:>6} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "", "by", "", "(MiB)", "(us)", "",
        "(us)", "(us)", "(us)", "(us)", "(%)");
  std::fflush(stdout);
}

void ReplayReport::add(const ReplayRow& row) {
  rows_.push_back(row);
  wrong_ += row.wrong;
  if (speaks_) print_row(row);
}

bool ReplayReport::end(const std::string& error) {
  if (!speaks_) return true;
  if (error.empty()) print_end(wrong_, {});
  return options_.json_path.empty() || write_file(options_.json_path, json(error));
}

std::string ReplayReport::json(const std::string& error) const {
  const BucketOptions& settings = *options_.buckets;
  Json json = report_head(options_.command, setting_);
  json["model"] = {{"name", settings.model.name},
                   {"parameters", settings.model.parameters.size()},
                   {"bytes", settings.model.bytes()},
                   {"compute_us", settings.model.compute_us()}};
  json["config"] = {{"steps", settings.steps},
                    {"warm_up", settings.warm_up},
                    {"checks", options_.checks},
                    {"compute_us", settings.compute_us},
                    {"bucket_bytes", settings.bucket_bytes},
                    {"first_bucket_bytes", settings.first_bucket_bytes},
                    {"feedback", settings.feedback},
                    {"views", settings.views},
                    {"declared_order", settings.declared_order},
                    {"threads", options_.threads},
                    {"seed", options_.seed}};
  json["rows"] = Json::array();
  for (const ReplayRow& row : rows_) json["rows"].push_back(row_json(row));
  return finished(std::move(json), wrong_, error);
}

}  // namespace perf
