// SPDX-License-Identifier: Apache-2.0
#include "buckets/model.hpp"

#include <fmt/format.h>
#include <tutti/plugin/types.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <tutti/sdk/text.hpp>

#include "texts/texts.hpp"

namespace perf {
namespace {

constexpr std::string_view columns = "name,shape,dtype,ready_us";
constexpr uint64_t most_elements = uint64_t{1} << 40;
constexpr uint64_t most_us = 3'600'000'000;  // an hour
constexpr size_t most_shown = 60;

// The text of a file, made fit for a terminal.
std::string shown(std::string_view text) {
  std::string line(text.substr(0, most_shown));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return '"' + line + (text.size() > most_shown ? "\"..." : "\"");
}

// One line of a file, whose faults name it.
class Line {
 public:
  Line(const std::string& path, size_t number) : path_(path), number_(number) {}

  [[noreturn]] void refuse(const std::string& text) const {
    throw std::invalid_argument(fmt::format("{} line {}: {}", path_, number_, text));
  }

  Parameter parameter(std::string_view line) const {
    const std::vector<std::string> fields = texts::split(line, ',');
    if (std::ranges::count(line, ',') != 3 || fields.size() != 4 || fields[0].empty())
      refuse(fmt::format("expected {}, as in fc.weight,1000x2048,float32,105; got {}", columns, shown(line)));
    return {fields[0], elements(fields[1]), type(fields[2]), ready(fields[3])};
  }

 private:
  uint64_t elements(const std::string& shape) const {
    uint64_t count = 1;
    std::string_view rest = shape;
    do {
      uint64_t size = 0;
      if (!tutti::take_number(rest, size) || size == 0 || !(rest.empty() || rest.front() == 'x'))
        refuse(fmt::format("shape {}: expected whole numbers of at least 1 with x between them, as in 64x3x7x7",
                           shown(shape)));
      if (size > most_elements / count) refuse(fmt::format("shape {}: more than 2^40 elements", shown(shape)));
      count *= size;
    } while (tutti::take_word(rest, "x"));
    return count;
  }

  uint32_t type(const std::string& name) const {
    constexpr std::array known{TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64};
    const uint32_t dtype = tutti::dtype_from_name(name);
    if (std::ranges::none_of(known, [&](auto one) { return static_cast<uint32_t>(one) == dtype; }))
      refuse(fmt::format("dtype {}: known are float16, bfloat16, float32, float64", shown(name)));
    return dtype;
  }

  uint64_t ready(const std::string& text) const {
    const auto us = tutti::whole_number(text, 0, most_us);
    if (!us) refuse(fmt::format("ready_us {}: expected whole microseconds, at most an hour", shown(text)));
    return *us;
  }

  const std::string& path_;
  size_t number_;
};

// Build and installation both have bin/PROGRAM and share/tutti/models.
std::filesystem::path models_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().parent_path() / "share/tutti/models";
}

std::string installed_models() {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(models_folder(), error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".csv") names.push_back(entry->path().stem());
  std::ranges::sort(names);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

uint64_t Parameter::bytes() const { return count * tutti::dtype_bytes(dtype); }

uint64_t Model::bytes() const {
  uint64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.bytes();
  return sum;
}

uint64_t Model::compute_us() const {
  uint64_t last = 0;
  for (const Parameter& parameter : parameters) last = std::max(last, parameter.ready_us);
  return last;
}

std::vector<Parameter> parse_parameters(std::string_view text, const std::string& path) {
  std::vector<Parameter> parameters;
  size_t number = 0;
  bool begun = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const Line at(path, ++number);
    if (line.empty() || line.starts_with('#')) continue;
    if (begun) {
      parameters.push_back(at.parameter(line));
    } else if (line == columns) {
      begun = true;
    } else {
      at.refuse(fmt::format("expected the names of the columns, {}; got {}", columns, shown(line)));
    }
  }
  if (parameters.empty()) throw std::invalid_argument(fmt::format("{}: it has no parameter", path));
  if (std::ranges::all_of(parameters, [](const Parameter& one) { return one.ready_us == 0; }))
    throw std::invalid_argument(fmt::format("{}: every ready_us is 0, expected when gradients are complete", path));
  return parameters;
}

Model read_model(const std::string& what) {
  const bool is_path = what.find('/') != what.npos || what.ends_with(".csv");
  const std::string path = is_path ? what : (models_folder() / (what + ".csv")).string();
  const auto text = texts::content_of(path);
  const int why = errno;
  if (!text && why == ENOENT && !is_path)
    throw std::invalid_argument(
        fmt::format("model \"{}\": known are {} (in {}), or the path of a file, which has a / "
                    "or ends with .csv",
                    what, installed_models(), models_folder().string()));
  if (!text) throw std::invalid_argument(fmt::format("{}: cannot be read: {}", path, std::strerror(why)));
  return {what, parse_parameters(*text, path)};
}

}  // namespace perf
