// SPDX-License-Identifier: Apache-2.0
#include "report/text_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tutti::conformance {
namespace {

// The text of errno, or why it is 0.
std::string why() { return errno ? std::strerror(errno) : "no reason given"; }

}  // namespace

std::string read_text_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw std::runtime_error(path + ": is a folder, expected a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read: " + why());
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw std::runtime_error(path + ": cannot be read: " + why());
  return text;
}

void write_text_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written: " + why());
}

void require_writable(const std::string& option, const std::string& path) {
  errno = 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app))
    throw std::invalid_argument(option + " " + path + ": cannot be written: " + why());
}

}  // namespace tutti::conformance
