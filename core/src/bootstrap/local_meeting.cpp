// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/local_meeting.hpp"

#include <condition_variable>
#include <map>
#include <mutex>

#include "bootstrap/authentication.hpp"
#include "bootstrap/deadline.hpp"
#include "bootstrap/rank_list.hpp"

namespace tutti::core {
namespace {

using Result = std::shared_ptr<const std::vector<std::string>>;

class LocalPlane;

// What the ranks of one meeting share. Everything but the constants is guarded by `mutex`.
struct Room {
  Room(std::string name_, uint32_t nranks_, std::string secret_)
      : name(std::move(name_)),
        nranks(nranks_),
        secret(std::move(secret_)),
        present(nranks_),
        left(nranks_),
        given(nranks_),
        planes(nranks_) {}

  const std::string name;
  const uint32_t nranks;
  const std::string secret;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<char> present, left;
  uint32_t met = 0;
  std::vector<std::optional<std::string>> given;  // to the gather in progress
  uint32_t arrived = 0;
  uint64_t generation = 0;  // gathers completed; the result below is of the last one
  Result result;
  std::optional<Failure> broken;                  // this meeting serves no more gathers
  std::vector<std::weak_ptr<LocalPlane>> planes;  // by rank

  void break_off(const Failure& why) {
    if (!broken) broken = why;
    changed.notify_all();
  }
};

// The control plane among threads: a notice is delivered by the thread that sends it.
class LocalPlane final : public ControlPlane {
 public:
  LocalPlane(std::shared_ptr<Room> room, uint32_t rank) : ControlPlane(rank, room->nranks), room_(std::move(room)) {}

 protected:
  void spread(NoticeKind kind, std::string_view bytes) override {
    if (const auto cause = kind == NoticeKind::loss ? first_cause() : std::nullopt) {
      const std::lock_guard lock(room_->mutex);
      room_->break_off(Failure(TUTTI_PEER_FAILED, cause->text()));
    }
    for (uint32_t r = 0; r < nranks_; ++r)
      if (const auto plane = of(r); plane && r != rank_) plane->deliver(rank_, kind, bytes);
  }
  void reply(uint32_t asker, uint64_t number, std::string_view bytes) override {
    if (const auto plane = of(asker)) plane->deliver_reply(rank_, number, bytes);
  }

 private:
  std::shared_ptr<LocalPlane> of(uint32_t rank) const {
    const std::lock_guard lock(room_->mutex);
    return room_->planes[rank].lock();
  }

  std::shared_ptr<Room> room_;
};

struct Table {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Room>> rooms;

  void forget(const std::shared_ptr<Room>& room) {
    const std::lock_guard lock(mutex);
    const auto found = rooms.find(room->name);
    if (found != rooms.end() && found->second == room) rooms.erase(found);
  }
};

Table& table() {
  static Table& theTable = *new Table;  // threads may outlive static destruction
  return theTable;
}

class LocalMeeting final : public Bootstrap {
 public:
  LocalMeeting(std::shared_ptr<Room> room, std::shared_ptr<ControlPlane> plane, uint32_t rank)
      : Bootstrap(rank, room->nranks, room->secret), room_(std::move(room)) {
    control_ = std::move(plane);
  }

  std::string next_place() const override { return "local:" + to_hex(random_bytes(16)); }

  ~LocalMeeting() override {
    const std::lock_guard lock(room_->mutex);
    room_->left[rank_] = 1;
    room_->changed.notify_all();
  }

 protected:
  std::vector<std::string> exchange(const std::string& mine, std::chrono::nanoseconds timeout) override {
    const Deadline deadline(timeout);
    std::unique_lock lock(room_->mutex);
    if (room_->broken) throw *room_->broken;
    const uint64_t generation = room_->generation;
    room_->given[rank_] = mine;
    if (++room_->arrived == nranks_) complete();
    while (room_->generation == generation) {
      if (room_->broken) throw *room_->broken;
      refuse_leavers();
      if (!wait(lock, deadline) && room_->generation == generation) give_up(deadline);
    }
    // Nobody completes the next gather before this rank takes part in it, so the result is still this one's.
    const Result result = room_->result;
    lock.unlock();
    return *result;
  }

 private:
  bool wait(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
    return room_->changed.wait_until(lock, deadline.at()) == std::cv_status::no_timeout || !deadline.passed();
  }

  void complete() {
    auto all = std::make_shared<std::vector<std::string>>();
    all->reserve(nranks_);
    for (auto& slot : room_->given) {
      all->push_back(std::move(*slot));
      slot.reset();
    }
    room_->result = std::move(all);
    room_->arrived = 0;
    ++room_->generation;
    room_->changed.notify_all();
  }

  void refuse_leavers() {
    for (uint32_t r = 0; r < nranks_; ++r)
      if (room_->left[r] && !room_->given[r]) {
        room_->break_off(Failure(TUTTI_PEER_FAILED, "bootstrap: rank " + std::to_string(r) +
                                                        " has left while others wait for it in all_gather"));
        throw *room_->broken;
      }
  }

  [[noreturn]] void give_up(const Deadline& deadline) {
    std::vector<uint32_t> missing;
    for (uint32_t r = 0; r < nranks_; ++r)
      if (!room_->given[r]) missing.push_back(r);
    room_->break_off(Failure(TUTTI_TIMEOUT, me() + "all_gather timed out after " + deadline.text() + ": " +
                                                rank_list(missing) + " did not arrive"));
    throw *room_->broken;
  }

  std::shared_ptr<Room> room_;
};

// Takes this rank's place; a contradiction ends the meeting for everybody in it.
std::pair<std::shared_ptr<Room>, std::shared_ptr<LocalPlane>> enter(const std::string& name, uint32_t rank,
                                                                    uint32_t nranks) {
  const std::lock_guard lock(table().mutex);
  std::shared_ptr<Room>& entry = table().rooms[name];
  if (!entry) entry = std::make_shared<Room>(name, nranks, random_bytes(kSecretBytes));
  const std::shared_ptr<Room> room = entry;
  const std::lock_guard room_lock(room->mutex);
  const std::string who = "bootstrap: local:" + name + ": rank " + std::to_string(rank);
  if (room->nranks != nranks)
    room->break_off(Failure(TUTTI_MISMATCH, who + " came with a world of " + std::to_string(nranks) +
                                                " ranks, the ranks before it with one of " +
                                                std::to_string(room->nranks)));
  else if (room->present[rank])
    room->break_off(Failure(TUTTI_MISMATCH, who + " came twice"));
  if (room->broken) {
    table().rooms.erase(name);
    throw *room->broken;
  }
  auto plane = std::make_shared<LocalPlane>(room, rank);
  room->planes[rank] = plane;
  room->present[rank] = 1;
  if (++room->met == nranks) {
    table().rooms.erase(name);
    room->changed.notify_all();
  }
  return {room, std::move(plane)};
}

}  // namespace

std::unique_ptr<Bootstrap> meet_locally(const std::string& name, uint32_t rank, uint32_t nranks, std::string secret,
                                        std::chrono::nanoseconds timeout) {
  if (nranks == 1) {
    if (secret.empty()) secret = random_bytes(kSecretBytes);
    auto alone = std::make_shared<Room>(name, 1, std::move(secret));
    auto plane = std::make_shared<LocalPlane>(alone, 0);
    return std::make_unique<LocalMeeting>(std::move(alone), std::move(plane), 0);
  }
  const Deadline deadline(timeout);
  auto [room, plane] = enter(name, rank, nranks);
  std::unique_lock lock(room->mutex);
  while (room->met < nranks && !room->broken) {
    room->changed.wait_until(lock, deadline.at());
    if (room->met == nranks || room->broken || !deadline.passed()) continue;
    std::vector<uint32_t> missing;
    for (uint32_t r = 0; r < nranks; ++r)
      if (!room->present[r]) missing.push_back(r);
    room->break_off(Failure(TUTTI_TIMEOUT, "rank " + std::to_string(rank) + ": bootstrap: local:" + name + ": " +
                                               rank_list(missing) + " did not come within " + deadline.text()));
  }
  // All met: what has broken since is for the gathers to tell.
  if (room->met < nranks) {
    const Failure why = *room->broken;
    lock.unlock();
    table().forget(room);
    throw why;
  }
  lock.unlock();
  return std::make_unique<LocalMeeting>(std::move(room), std::move(plane), rank);
}

}  // namespace tutti::core
