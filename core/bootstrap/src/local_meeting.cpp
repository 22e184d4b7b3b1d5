// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <map>
#include <mutex>

#include "bootstrap/authentication.hpp"
#include "bootstrap/deadline.hpp"
#include "bootstrap/rank_list.hpp"
#include "make_failure.hpp"
#include "meeting.hpp"
#include "packet.hpp"

namespace tutti::core {
namespace {

class LocalPlane;

// The shared state of the ranks of one meeting. Everything but the constants is guarded by `mutex`.
struct Room {
  Room(std::string name_, uint32_t nranks_, std::string secret_)
      : name(std::move(name_)), nranks(nranks_), secret(std::move(secret_)), present(nranks_), planes(nranks_) {}

  const std::string name;
  const uint32_t nranks;
  const std::string secret;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<char> present;
  uint32_t met = 0;
  std::optional<Failure> broken;                  // not all can meet here any more
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
  void send(Packet packet) override {
    const bool flood = packet.route == Route::flood;
    for (uint32_t r = flood ? 0 : packet.target; r < (flood ? nranks_ : packet.target + 1); ++r)
      if (const auto plane = of(r); plane && r != rank_) plane->deliver(packet);
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

// Takes this rank's place; a contradiction ends the meeting for everybody in it.
std::pair<std::shared_ptr<Room>, std::shared_ptr<LocalPlane>> enter(const std::string& name, uint32_t rank,
                                                                    uint32_t nranks) {
  const std::lock_guard lock(table().mutex);
  std::shared_ptr<Room>& entry = table().rooms[name];
  if (!entry) entry = std::make_shared<Room>(name, nranks, random_bytes(kSecretBytes));
  const std::shared_ptr<Room> room = entry;
  const std::lock_guard room_lock(room->mutex);
  const std::string who = fmt::format("bootstrap: local:{}: rank {}", name, rank);
  if (room->nranks != nranks)
    room->break_off(make_failure(TUTTI_MISMATCH,
                                 "{} came with a world of {} ranks, the ranks before it with one "
                                 "of {}",
                                 who, nranks, room->nranks));
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

std::unique_ptr<Bootstrap> in_room(const Room& room, std::shared_ptr<LocalPlane> plane) {
  return std::make_unique<Bootstrap>(std::move(plane), room.secret, "",
                                     [] { return "local:" + to_hex(random_bytes(16)); });
}

}  // namespace

std::unique_ptr<Bootstrap> meet_locally(const std::string& name, uint32_t rank, uint32_t nranks, std::string secret,
                                        std::chrono::nanoseconds timeout) {
  if (nranks == 1) {
    if (secret.empty()) secret = random_bytes(kSecretBytes);
    auto alone = std::make_shared<Room>(name, 1, std::move(secret));
    auto plane = std::make_shared<LocalPlane>(alone, 0);
    return in_room(*alone, std::move(plane));
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
    room->break_off(make_failure(TUTTI_TIMEOUT, "rank {}: bootstrap: local:{}: {} did not come within {}", rank, name,
                                 rank_list(missing), deadline.text()));
  }
  if (room->met < nranks) {
    const Failure why = *room->broken;
    lock.unlock();
    table().forget(room);
    throw why;
  }
  lock.unlock();
  return in_room(*room, std::move(plane));
}

}  // namespace tutti::core
