// SPDX-License-Identifier: Apache-2.0
#include "growth/report.hpp"

#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "growth/exponent.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "print.hpp"
#include "report_json.hpp"
#include "table.hpp"
#include "timing.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;
constexpr int width = 8;

const char* start_name(bool threads) { return threads ? "threads" : "processes"; }

std::optional<double> exponent_of(const std::vector<GrowthRow>& rows, const GrowthColumn& column) {
  std::vector<GrowthPoint> points;
  for (const GrowthRow& row : rows) points.push_back({row.nranks, row.median.*column.value});
  return growth_exponent(points);
}

// A line of the table: what `cell` gives for each column that has a head.
template <typename Cell>
void print_line(const std::string& first, Cell&& cell) {
  print("{:>10}", first);
  for (const GrowthColumn& column : growth_columns)
    if (*column.head) print(" {:>{}}", cell(column), width);
  print("\n");
}

Json cost_json(const GrowthCost& cost) {
  Json json = Json::object();
  for (const GrowthColumn& column : growth_columns) json[column.key] = cost.*column.value;
  return json;
}

}  // namespace

GrowthCost median_of(const std::vector<GrowthCost>& rounds) {
  GrowthCost result;
  for (const GrowthColumn& column : growth_columns) {
    std::vector<double> values;
    for (const GrowthCost& round : rounds) values.push_back(round.*column.value);
    result.*column.value = median(std::move(values));
  }
  return result;
}

GrowthReport::GrowthReport(const Options& options) : options_(options) {
  const GrowthOptions& settings = *options.growth;
  print_command(options);
  print("# cores: {}  rounds: {}  splits: {}  limit: {:g} s for each size\n", std::thread::hardware_concurrency(),
        settings.rounds, settings.splits, settings.limit_s);
  print("# time: from the first rank's begin to the last rank's end; memory, files, threads: for each rank\n");
}

void GrowthReport::begin(bool threads) {
  print("#\n# ranks as {}\n", threads ? "threads of one process" : "processes");
  print_line("#    ranks", [](const GrowthColumn& column) { return column.head; });
  print_line("#         ",
             [](const GrowthColumn& column) { return *column.unit ? fmt::format("({})", column.unit) : ""; });
  std::cout.flush();
}

void GrowthReport::add(const GrowthRow& row) {
  rows_.push_back(row);
  print_line(std::to_string(row.nranks),
             [&](const GrowthColumn& column) { return fit_number(row.median.*column.value, width); });
  std::cout.flush();
}

void GrowthReport::leave_out(bool threads, uint32_t nranks, const std::string& reason) {
  left_out_.push_back({threads, nranks, reason});
  print("# {} ranks as {} are left out: {}\n", nranks, start_name(threads), reason);
  std::cout.flush();
}

void GrowthReport::end(const std::vector<GrowthRow>& rows) {
  print_line("# exponent", [&](const GrowthColumn& column) {
    const auto exponent = exponent_of(rows, column);
    return exponent ? fmt::format("{:.2f}", *exponent) : "N/A";
  });
}

std::string GrowthReport::json() const {
  const GrowthOptions& settings = *options_.growth;
  Json json = report_origin(options_.command);
  json["cores"] = std::thread::hardware_concurrency();
  json["config"] = {{"ranks", settings.sizes},
                    {"rounds", settings.rounds},
                    {"splits", settings.splits},
                    {"limit_s", settings.limit_s}};
  json["rows"] = Json::array();
  for (const GrowthRow& row : rows_) {
    Json rounds = Json::array();
    for (const GrowthCost& round : row.rounds) rounds.push_back(cost_json(round));
    json["rows"].push_back({{"as", start_name(row.threads)},
                            {"nranks", row.nranks},
                            {"median", cost_json(row.median)},
                            {"rounds", std::move(rounds)}});
  }
  json["exponents"] = Json::object();
  for (const bool threads : settings.threads) {
    std::vector<GrowthRow> rows;
    for (const GrowthRow& row : rows_)
      if (row.threads == threads) rows.push_back(row);
    Json& exponents = json["exponents"][start_name(threads)];
    for (const GrowthColumn& column : growth_columns) {
      const auto exponent = exponent_of(rows, column);
      exponents[column.key] = exponent ? Json(*exponent) : Json(nullptr);
    }
  }
  json["left_out"] = Json::array();
  for (const LeftOut& out : left_out_)
    json["left_out"].push_back({{"as", start_name(out.threads)}, {"nranks", out.nranks}, {"reason", out.reason}});
  return finished(std::move(json), left_out_.empty() ? "" : left_out_.front().reason);
}

bool GrowthReport::finish() {
  const bool written = options_.json_path.empty() || write_file(options_.json_path, json());
  return written && left_out_.empty();
}

}  // namespace perf
