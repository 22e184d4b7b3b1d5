// SPDX-License-Identifier: Apache-2.0
#include "fuzz/meeting.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace tutti::conformance::fuzz {
namespace {

constexpr auto longest_wait = std::chrono::seconds(25);

// A file appears whole.
void publish(const std::string& path, const std::string& bytes) {
  std::ofstream(path + ".new", std::ios::binary) << bytes;
  std::filesystem::rename(path + ".new", path);
}

std::optional<std::string> await(const std::string& path) {
  const auto until = std::chrono::steady_clock::now() + longest_wait;
  while (std::chrono::steady_clock::now() < until) {
    if (std::ifstream file(path, std::ios::binary); file) return (std::ostringstream() << file.rdbuf()).str();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

std::string id_file(const std::string& folder, uint32_t comm) { return fmt::format("{}/id-{}", folder, comm); }

}  // namespace

void publish_ids(const Program& program, const std::string& folder, uint32_t rank, uint32_t strand) {
  for (const Event& e : program.events) {
    if (e.kind != Kind::make || e.text != "id" || e.strand != strand || e.members.front() != rank) continue;
    tutti_unique_id id{};
    if (const tutti_status status = tutti_unique_id_create(&id); status < 0)
      throw std::runtime_error(fmt::format("error: tutti_unique_id_create: {}", tutti_status_text(status)));
    publish(id_file(folder, e.comm), id.text);
  }
}

std::string read_id(const std::string& folder, uint32_t comm) {
  if (const auto id = await(id_file(folder, comm))) return *id;
  throw std::runtime_error(fmt::format("error: nobody has made the id of communicator {}", comm));
}

tutti_status CallbackMeeting::gather(void* self, const void* mine, uint64_t bytes, void* all) {
  auto& me = *static_cast<CallbackMeeting*>(self);
  const auto file = [&](uint32_t member) {
    return fmt::format("{}/gather-{}-{}-{}", me.folder_, me.comm_, me.round_, member);
  };
  publish(file(me.member_), std::string(static_cast<const char*>(mine), bytes));
  for (uint32_t m = 0; m < me.n_; ++m) {
    const auto theirs = await(file(m));
    if (!theirs || theirs->size() != bytes) return TUTTI_SYSTEM;
    std::memcpy(static_cast<char*>(all) + m * bytes, theirs->data(), bytes);
  }
  ++me.round_;
  return TUTTI_OK;
}

}  // namespace tutti::conformance::fuzz
