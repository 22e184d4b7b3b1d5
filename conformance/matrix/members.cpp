// SPDX-License-Identifier: Apache-2.0
#include "matrix/members.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <thread>

namespace tutti::conformance {
namespace {

constexpr double timeout_ns = 20e9;

// "all_reduce:ring;broadcast:ring": the algorithm for all that it knows.
std::string setting_of(const std::string& name) {
  std::string error, text;
  const tutti_algorithm* algorithm = find_algorithm(name, &error);
  if (!algorithm) throw std::runtime_error(error);
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    if (algorithm->collectives >> c & 1)
      text += (text.empty() ? "" : ";") + std::string(collective_name(c)) + ":" + name;
  return text;
}

std::atomic<uint64_t>* map_counters(const std::string& path, uint32_t n) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const uint64_t bytes = n * sizeof(std::atomic<uint64_t>);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  return static_cast<std::atomic<uint64_t>*>(memory);
}

}  // namespace

Members::Members(std::string folder, uint32_t rank, const Mix& mix, uint32_t nranks, double patience)
    : folder_(std::move(folder)),
      rank_(rank),
      nranks_(nranks),
      mix_(mix),
      threads_(mix.threads),
      timeout_ns_(static_cast<uint64_t>(timeout_ns * patience)),
      members_(nranks) {
  entered_ = map_counters(folder_ + "/barrier", nranks_);
}

Members::Members(std::string folder, uint32_t rank, const Mix& mix, const Cell& cell, double patience)
    : Members(std::move(folder), rank, mix, cell.operation.nranks, patience) {
  if (cell.on_host()) return;
  threads_ |= cell.ranks_as == RanksAs::threads;
  const Device device = make_device(cell.device);
  if (!device.unusable.empty()) throw std::runtime_error(fmt::format("device {}: {}", device.name, device.unusable));
  for (const uint32_t r : local()) members_[r].seat = std::make_unique<Seat>(device, cell.device_of(r), patience);
}

Members::~Members() {
  // Destroying is collective: ranks of one process do it side by side.
  std::vector<std::thread> threads;
  for (const uint32_t r : local()) threads.emplace_back([this, r] { members_[r].communicator.reset(); });
  for (std::thread& thread : threads) thread.join();
  munmap(entered_, nranks_ * sizeof *entered_);
}

std::vector<uint32_t> Members::local() const {
  if (!threads_) return {rank_};
  std::vector<uint32_t> all(nranks_);
  for (uint32_t r = 0; r < nranks_; ++r) all[r] = r;
  return all;
}

Communicator& Members::communicator(uint32_t rank, const std::string& algorithm) {
  Member& member = members_[rank];
  if (member.communicator && member.algorithm == algorithm) return *member.communicator;
  member.communicator.reset();
  const std::string number = std::to_string(member.made++);
  const std::string place = folder_ + "/meeting-" + number;
  std::filesystem::create_directories(place);
  const std::string rendezvous = threads_ ? "local:" + place : "file:" + place;
  const std::string transports = mix_.setting(), algorithms = setting_of(algorithm);
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = "matrix";
  config.rendezvous = rendezvous.c_str();
  config.rank = rank;
  config.nranks = nranks_;
  config.connect_timeout_ns = config.timeout_ns = timeout_ns_;
  config.lanes = matrix_lanes;
  config.transports = transports.c_str();
  config.algorithms = algorithms.c_str();
  const std::string device = member.seat ? member.seat->name() : "none";
  config.device = device.c_str();
  member.communicator = std::make_unique<Communicator>(config);
  member.algorithm = algorithm;
  return *member.communicator;
}

void Members::enter_barrier(uint32_t rank) { entered_[rank].fetch_add(1); }

void Members::meet(uint32_t rank) {
  enter_barrier(rank);
  while (missing_at_barrier(rank) < nranks_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

uint32_t Members::missing_at_barrier(uint32_t rank) const {
  const uint64_t mine = entered_[rank].load();
  for (uint32_t r = 0; r < nranks_; ++r)
    if (entered_[r].load() < mine) return r;
  return nranks_;
}

}  // namespace tutti::conformance
