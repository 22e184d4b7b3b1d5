// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "base/deadline.hpp"
#include "base/make_failure.hpp"
#include "base/rank_list.hpp"
#include "bootstrap/authentication.hpp"
#include "meeting.hpp"
#include "net/interrupt.hpp"
#include "packet.hpp"

namespace tutti::core {
namespace {

class LocalPlane;

// The shared state of the ranks of one meeting, guarded by the table's mutex until all have met.
struct Room {
  Room(uint32_t ranks, std::string key) : nranks(ranks), secret(std::move(key)) {}

  const uint32_t nranks;
  const std::string secret;
  std::vector<std::weak_ptr<LocalPlane>> planes = std::vector<std::weak_ptr<LocalPlane>>(nranks);  // by rank
  uint32_t met = 0;
  std::optional<Failure> broken = std::nullopt;  // why not all can meet here any more

  void deliver(Packet packet);

 private:
  struct Sent {
    Packet packet;
    std::string bytes;  // of the packet
    uint32_t next;      // target that does not have it yet
  };
  void deliver_to_targets(Sent& sent) const;

  std::mutex mutex_;
  std::deque<Sent> queue_;
  bool delivers_ = false;  // a thread is at it
};

// The control plane among threads.
class LocalPlane final : public ControlPlane {
 public:
  LocalPlane(std::shared_ptr<Room> room, uint32_t rank) : ControlPlane(rank, room->nranks), room_(std::move(room)) {}

 protected:
  void send(Packet packet) override { room_->deliver(packet); }

 private:
  friend Room;
  const std::shared_ptr<Room> room_;
};

// All ranks get all packets in one order, which keeps causes before effects: a rank that answers a flood is not heard
// before it. The thread that sends delivers, unless another one is at it, which then delivers this packet, too: so it
// stays in the queue until its targets have it, and a thread that has no memory twice leaves it to the next that sends.
void Room::deliver(Packet packet) {
  std::unique_lock lock(mutex_);
  queue_.push_back({packet, std::string(packet.bytes), packet.route == Route::flood ? 0 : packet.target});
  if (delivers_) return;
  delivers_ = true;
  std::exception_ptr problem;
  bool lacks_memory = false;
  while (!queue_.empty()) {
    Sent& sent = queue_.front();  // where it stays while others are pushed
    lock.unlock();
    const bool lacked_memory = std::exchange(lacks_memory, false);
    try {
      deliver_to_targets(sent);
    } catch (const std::bad_alloc&) {
      lacks_memory = true;
      if (lacked_memory) problem = std::current_exception();
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (!lacks_memory) queue_.pop_front();
    if (lacks_memory && lacked_memory) break;
  }
  delivers_ = false;
  if (problem) std::rethrow_exception(problem);
}

void Room::deliver_to_targets(Sent& sent) const {
  Packet packet = sent.packet;
  packet.bytes = sent.bytes;
  const bool flood = packet.route == Route::flood;
  for (const uint32_t end = flood ? nranks : packet.target + 1; sent.next < end; ++sent.next)
    if (const auto plane = planes[sent.next].lock(); plane && (!flood || sent.next != packet.origin))
      plane->deliver(packet);
}

// The meetings to which not all ranks have come yet.
struct Table {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Room>> rooms;
};

Table& table() {
  static Table& theTable = *new Table;  // threads may outlive static destruction
  return theTable;
}

// Between looks for an obstacle.
constexpr std::chrono::milliseconds kLook(50);

// Takes the rank's place in the room; says why that cannot be.
std::optional<Failure> enter(const std::shared_ptr<Room>& room, const std::string& name,
                             const std::shared_ptr<LocalPlane>& plane, uint32_t nranks) {
  const std::string who = fmt::format("bootstrap: local:{}: rank {}", name, plane->rank());
  if (room->nranks != nranks)
    return make_failure(TUTTI_MISMATCH, "{} came with a world of {} ranks, the ranks before it with one of {}", who,
                        nranks, room->nranks);
  if (room->planes[plane->rank()].lock()) return Failure(TUTTI_MISMATCH, who + " came twice");
  room->planes[plane->rank()] = plane;
  ++room->met;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Bootstrap> meet_locally(const std::string& name, uint32_t rank, uint32_t nranks, std::string secret,
                                        const Deadline& deadline, const std::function<std::string()>& obstacle) {
  auto& [mutex, changed, rooms] = table();
  std::unique_lock lock(mutex);
  std::shared_ptr<Room>& entry = rooms[name];
  if (!entry) entry = std::make_shared<Room>(nranks, secret.empty() ? random_bytes(kSecretBytes) : std::move(secret));
  const std::shared_ptr<Room> room = entry;
  const auto plane = std::make_shared<LocalPlane>(room, rank);
  // Made first: a rank that others have met, and that cannot go on, tells them that it leaves.
  auto bootstrap =
      std::make_unique<Bootstrap>(plane, room->secret, "", [] { return "local:" + to_hex(random_bytes(16)); });
  // A contradiction ends the meeting for all ranks in it.
  room->broken = enter(room, name, plane, nranks);
  if (room->broken || room->met == nranks) {
    rooms.erase(name);
    changed.notify_all();
  }
  while (room->met < nranks && !room->broken) {
    try {
      Interrupt::wait_until(changed, lock, obstacle ? deadline.sooner(kLook).at() : deadline.at());
    } catch (const Failure&) {
      lock.lock();
      if (room->met == nranks || room->broken) continue;
      room->broken = make_failure(TUTTI_ABORTED, "bootstrap: local:{}: rank {} {}", name, rank, Interrupt::reason);
      rooms.erase(name);
      changed.notify_all();
      break;
    }
    if (room->met == nranks || room->broken) continue;
    const std::string why = obstacle ? obstacle() : "";
    if (why.empty() && !deadline.passed()) continue;
    std::vector<uint32_t> missing;
    for (uint32_t r = 0; r < nranks; ++r)
      if (!room->planes[r].lock()) missing.push_back(r);
    room->broken = why.empty() ? make_failure(TUTTI_TIMEOUT, "rank {}: bootstrap: local:{}: {} did not come within {}",
                                              rank, name, rank_list(missing), deadline.text())
                               : make_failure(TUTTI_PEER_FAILED, "rank {}: bootstrap: local:{}: {}", rank, name, why);
    rooms.erase(name);
    changed.notify_all();
  }
  if (room->broken) throw Failure(*room->broken);
  return bootstrap;
}

std::unique_ptr<Bootstrap> meet_nobody(std::string secret) {
  return meet_locally("", 0, 1, std::move(secret), Deadline(std::chrono::nanoseconds(0)));
}

}  // namespace tutti::core
