// SPDX-License-Identifier: Apache-2.0
#include "peers.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "texts/texts.hpp"

namespace perf {
namespace {

// Only positive numbers can stand on logarithmic axes.
bool drawable(const PeerPoint& point) { return point.bytes > 0 && point.time_us > 0 && std::isfinite(point.time_us); }

std::vector<PeerPoint> read_json(const std::string& text) {
  std::vector<PeerPoint> points;
  const nlohmann::json report = nlohmann::json::parse(text);
  for (const nlohmann::json& row : report.at("rows")) {
    const nlohmann::json& side = row.at("out_of_place").is_null() ? row.at("in_place") : row.at("out_of_place");
    if (side.is_null()) continue;
    const PeerPoint point{row.at("collective").get<std::string>(), row.at("size").get<uint64_t>(),
                          side.at("time_us").get<double>()};
    if (drawable(point)) points.push_back(point);
  }
  return points;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells = texts::split(line, ',');
  for (std::string& cell : cells) {
    const size_t first = cell.find_first_not_of(" \t\r\""), last = cell.find_last_not_of(" \t\r\"");
    cell = first == cell.npos ? "" : cell.substr(first, last - first + 1);
  }
  return cells;
}

template <typename Number>
Number number_in(const std::string& cell) {
  Number value{};
  const auto [stop, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (code != std::errc() || stop != cell.data() + cell.size())
    throw std::runtime_error("\"" + cell + "\" is no number");
  return value;
}

std::vector<PeerPoint> read_csv(const std::string& text) {
  std::vector<PeerPoint> points;
  std::map<std::string, size_t> columns;
  size_t number = 0;
  for (const std::string& line : texts::split(text, '\n')) try {
      ++number;
      const std::vector<std::string> cells = cells_of(line);
      if (cells.empty() || line.front() == '#') continue;
      if (columns.empty()) {
        for (size_t i = 0; i < cells.size(); ++i) columns[cells[i]] = i;
        if (!columns.count("size") || !columns.count("time_us"))
          throw std::runtime_error("expected the columns size and time_us");
        continue;
      }
      PeerPoint point;
      if (columns.count("collective")) point.collective = cells.at(columns["collective"]);
      point.bytes = number_in<uint64_t>(cells.at(columns["size"]));
      point.time_us = number_in<double>(cells.at(columns["time_us"]));
      if (!drawable(point)) throw std::runtime_error("size and time_us must be more than 0");
      points.push_back(point);
    } catch (const std::out_of_range&) {
      throw std::runtime_error("line " + std::to_string(number) + ": it has fewer columns than the first line");
    } catch (const std::exception& problem) {
      throw std::runtime_error("line " + std::to_string(number) + ": " + problem.what());
    }
  return points;
}

}  // namespace

Peer read_peer(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string path = equals == text.npos ? "" : text.substr(equals + 1);
  const auto refuse = [&](const std::string& why) { throw std::runtime_error("--peer " + text + ": " + why); };
  if (path.empty() || equals == 0) refuse("expected NAME=FILE");
  errno = 0;
  std::ifstream file(path);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open()) refuse(std::strerror(errno));
  Peer peer{text.substr(0, equals), {}};
  try {
    const size_t first = content.find_first_not_of(" \t\r\n");
    peer.points = first != content.npos && content[first] == '{' ? read_json(content) : read_csv(content);
  } catch (const nlohmann::json::exception& problem) {
    refuse(std::string("it is not what tutti-perf -J writes: ") + problem.what());
  } catch (const std::exception& problem) {
    refuse(problem.what());
  }
  if (peer.points.empty()) refuse("it holds no measurement");
  return peer;
}

}  // namespace perf
