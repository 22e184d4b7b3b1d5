// SPDX-License-Identifier: Apache-2.0
#include "engine/direct_board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t page = 4096;

uint64_t round_up(uint64_t bytes) { return (bytes + page - 1) / page * page; }
uint64_t messages_of(uint32_t nranks, uint32_t lanes) {
  return uint64_t{nranks} * nranks * lanes * DirectBoard::most_messages;
}
uint64_t words_of(uint32_t nranks, uint32_t lanes) {
  return round_up(messages_of(nranks, lanes) * 2 * sizeof(uint32_t));
}
std::string errno_text() { return std::generic_category().message(errno); }

}  // namespace

Descriptor DirectBoard::make(uint32_t nranks, uint32_t lanes) {
  const uint64_t bytes =
      words_of(nranks, lanes) + round_up(nranks * sizeof(Row)) + messages_of(nranks, lanes) * sizeof(Message);
  Descriptor file(memfd_create("tutti-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw Failure(TUTTI_NO_RESOURCES, fmt::format("no board of {} bytes: memfd: {}", bytes, errno_text()));
  return file;
}

DirectBoard::DirectBoard(Descriptor file, uint32_t rank, uint32_t nranks, uint32_t lanes)
    : file_(std::move(file)), rank_(rank), nranks_(nranks), lanes_(lanes) {
  const uint64_t rows = words_of(nranks, lanes), messages = rows + round_up(nranks * sizeof(Row));
  bytes_ = messages + messages_of(nranks, lanes) * sizeof(Message);
  struct stat state{};
  const int seals = file_ ? fcntl(file_.get(), F_GET_SEALS) : -1;
  if (!file_ || fstat(file_.get(), &state) != 0 || static_cast<uint64_t>(state.st_size) != bytes_ || seals < 0 ||
      !(seals & F_SEAL_SHRINK))
    throw Failure(TUTTI_MISMATCH, fmt::format("what came from rank 0 is no board of {} bytes", bytes_));
  // A lock belongs to an open file, and descriptors that were sent are all of one: this rank opens its own.
  alive_ = Descriptor(open(fmt::format("/proc/self/fd/{}", file_.get()).c_str(), O_RDWR | O_CLOEXEC));
  struct flock mine{};
  mine.l_type = F_WRLCK;
  mine.l_start = rank_;
  mine.l_len = 1;
  if (!alive_ || fcntl(alive_.get(), F_OFD_SETLK, &mine) != 0)
    throw Failure(TUTTI_SYSTEM, "the board cannot be locked: " + errno_text());
  mapping_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapping_ == MAP_FAILED)
    throw Failure(TUTTI_NO_RESOURCES, fmt::format("no board of {} bytes: mmap: {}", bytes_, errno_text()));
  auto* base = static_cast<std::byte*>(mapping_);
  rows_ = reinterpret_cast<Row*>(base + rows);
  messages_ = reinterpret_cast<Message*>(base + messages);
}

DirectBoard::~DirectBoard() {
  if (mapping_) munmap(mapping_, bytes_);
}

uint64_t DirectBoard::words_bytes() const { return words_of(nranks_, lanes_); }

void DirectBoard::say(Said (Row::*where)[2], const std::string& refusal) {
  Said& said = (rows_[rank_].*where)[round_ % 2];
  said.refuses = !refusal.empty();
  said.why[refusal.copy(said.why, sizeof said.why - 1)] = 0;
}

std::string DirectBoard::refusal(Said (Row::*where)[2]) const {
  for (uint32_t r = 0; r < nranks_; ++r) {
    const Said& said = (rows_[r].*where)[round_ % 2];
    if (said.refuses) return fmt::format("rank {}: {}", r, std::string(said.why, strnlen(said.why, sizeof said.why)));
  }
  return {};
}

void DirectBoard::arrive(const std::string& refusal) {
  ++round_;
  say(&Row::arrivals, refusal);
  rows_[rank_].arrived.store(round_, std::memory_order_release);
}
bool DirectBoard::all_arrived() const {
  return std::all_of(rows_, rows_ + nranks_,
                     [this](const Row& row) { return row.arrived.load(std::memory_order_acquire) >= round_; });
}
void DirectBoard::vote(const std::string& refusal) {
  say(&Row::votes, refusal);
  rows_[rank_].voted.store(round_, std::memory_order_release);
}
bool DirectBoard::all_voted() const {
  return std::all_of(rows_, rows_ + nranks_,
                     [this](const Row& row) { return row.voted.load(std::memory_order_acquire) >= round_; });
}

void DirectBoard::set_scratch(uint64_t buffer_id) { rows_[rank_].scratch.store(buffer_id, std::memory_order_relaxed); }
uint64_t DirectBoard::scratch(uint32_t rank) const { return rows_[rank].scratch.load(std::memory_order_relaxed); }

bool DirectBoard::has_given(uint32_t to, uint64_t buffer_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = given_.find(buffer_id);
  return found != given_.end() && found->second.contains(to);
}

void DirectBoard::give(uint32_t to, uint64_t buffer_id) {
  const std::lock_guard lock(mutex_);
  given_[buffer_id].insert(to);
}

bool DirectBoard::withdraw(uint64_t buffer_id) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[rank_];
  if (withdrawing_ != buffer_id) {
    const auto found = given_.find(buffer_id);
    if (found == given_.end()) return true;
    if (withdrawing_ && !keepers().empty()) return false;  // one at a time
    withdrawing_ = buffer_id;
    asked_ = std::move(found->second);
    given_.erase(found);
    row.withdrawn.store(buffer_id, std::memory_order_relaxed);
    row.withdrawals.fetch_add(1, std::memory_order_release);
  }
  if (!keepers().empty()) return false;
  withdrawing_.reset();
  return true;
}

std::string DirectBoard::holders() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const uint32_t r : keepers()) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text;
}

// Those that have not said that they unmapped what is being withdrawn.
std::vector<uint32_t> DirectBoard::keepers() const {
  std::vector<uint32_t> list;
  const uint64_t count = rows_[rank_].withdrawals.load(std::memory_order_relaxed);
  for (const uint32_t r : asked_)
    if (rows_[r].acknowledged[rank_].load(std::memory_order_acquire) < count &&
        !rows_[r].closed.load(std::memory_order_acquire) && !is_gone(r))
      list.push_back(r);
  return list;
}

std::vector<DirectBoard::Withdrawal> DirectBoard::withdrawals() const {
  std::vector<Withdrawal> list;
  for (uint32_t r = 0; r < nranks_; ++r) {
    const uint64_t count = rows_[r].withdrawals.load(std::memory_order_acquire);
    if (count != rows_[rank_].acknowledged[r].load(std::memory_order_relaxed))
      list.push_back({r, rows_[r].withdrawn.load(std::memory_order_relaxed), count});
  }
  return list;
}

void DirectBoard::acknowledge(const Withdrawal& withdrawal) {
  rows_[rank_].acknowledged[withdrawal.owner].store(withdrawal.count, std::memory_order_release);
}

void DirectBoard::close() { rows_[rank_].closed.store(1, std::memory_order_release); }

bool DirectBoard::all_closed() const {
  for (uint32_t r = 0; r < nranks_; ++r)
    if (r != rank_ && !rows_[r].closed.load(std::memory_order_acquire) && !is_gone(r)) return false;
  return true;
}

// Its lock has gone with its process.
bool DirectBoard::is_gone(uint32_t rank) const {
  struct flock theirs{};
  theirs.l_type = F_WRLCK;
  theirs.l_start = rank;
  theirs.l_len = 1;
  return fcntl(alive_.get(), F_OFD_GETLK, &theirs) == 0 && theirs.l_type == F_UNLCK;
}

}  // namespace tutti::core
