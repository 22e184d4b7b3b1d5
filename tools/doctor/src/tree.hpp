// SPDX-License-Identifier: Apache-2.0
//
// Reads /proc and /sys below a root, which tests make up. An absent file is no fault; one that cannot be understood is
// remembered and counts as absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace doctor {

class Tree {
 public:
  explicit Tree(std::filesystem::path root) : root_(std::move(root)) {}

  bool has(const std::string& path) const;
  // The whole file without the line feed at its end; empty when it is absent.
  std::string text(const std::string& path) const;
  std::vector<std::string> lines(const std::string& path) const;
  // The names in a folder, sorted.
  std::vector<std::string> names(const std::string& folder) const;
  // A whole number; "max" is no_limit.
  static constexpr int64_t no_limit = INT64_MAX;
  std::optional<int64_t> number(const std::string& path);
  // The numbers of "0-3,8"; empty also where the file is absent.
  std::vector<uint32_t> list(const std::string& path);
  void fault(const std::string& path, const std::string& found, const std::string& expected);

  // A sentence for each file that was not understood.
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  std::filesystem::path root_;
  std::vector<std::string> faults_;
};

// The number that `text` is as a whole; nothing otherwise.
std::optional<int64_t> number_of(std::string_view text);

}  // namespace doctor
