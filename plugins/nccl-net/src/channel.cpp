// SPDX-License-Identifier: Apache-2.0
#include "channel.hpp"

#include <algorithm>
#include <cstring>
#include <tutti/sdk/words.hpp>

#include "departures.hpp"
#include "wire.hpp"

namespace tutti::nccl {
namespace {

// A size that test left as it was. Some plugins report no sizes, and NCCL does not notice. A frame has its own length,
// and a long message the size that was announced.
constexpr int kUnset = INT32_MIN;
std::array<int, kSizes> unset_sizes() {
  std::array<int, kSizes> sizes;
  sizes.fill(kUnset);
  return sizes;
}

// Closes a comm of frames, now or later.
void depart(Comm& comm, std::unique_ptr<Rooms>& rooms, std::deque<void*> requests) {
  if (!comm.is_open()) return;
  auto fresh = std::make_unique<Rooms>(rooms->n(), rooms->bytes());
  leave_behind({std::move(comm), std::exchange(rooms, std::move(fresh)), std::move(requests)});
}

}  // namespace

// ---- Comms and rooms

Comm& Comm::operator=(Comm&& other) noexcept {
  if (this == &other) return *this;
  close();
  network_ = other.network_;
  context_ = std::move(other.context_);
  registrations_ = std::move(other.registrations_);
  sends_ = other.sends_;
  comm_ = std::exchange(other.comm_, nullptr);
  return *this;
}

void Comm::close() noexcept {
  void* comm = std::exchange(comm_, nullptr);
  if (!comm) return;
  registrations_->forget_comm(comm);
  if (sends_)
    network_->close_send(comm);
  else
    network_->close_receive(comm);
}

void Rooms::make() {
  memory_ = std::make_unique<char[]>(n_ * bytes_);
  region_.address = memory_.get();
  region_.bytes = n_ * bytes_;
}

// ---- Frames

std::optional<Ticket> FrameSender::advance() {
  if (filled_ == done_) return std::nullopt;
  Network& network = comm_.network();
  for (; begun_ != filled_; ++begun_) {
    Slot& slot = slots_[begun_ % kRooms];
    char* data = rooms_->room(begun_ % kRooms);
    slot.request = network.send(comm_.get(), data, slot.bytes, 0, comm_.handle(rooms_->region()));
    if (!slot.request) break;
  }
  if (done_ == begun_) return std::nullopt;
  std::array<int, kSizes> sizes{};
  Slot& slot = slots_[done_ % kRooms];
  void* const request = std::exchange(slot.request, nullptr);  // over if test fails
  if (!network.test(request, sizes.data(), "test of an isend")) {
    slot.request = request;
    return std::nullopt;
  }
  ++done_;
  return slot.ticket;
}

void FrameSender::close() noexcept {
  std::deque<void*> requests;
  for (; done_ != begun_; ++done_)
    if (void* request = slots_[done_ % kRooms].request) requests.push_back(request);
  depart(comm_, rooms_, std::move(requests));
}

void FrameReceiver::close() noexcept {
  std::deque<void*> requests;
  for (; done_ != begun_; ++done_)
    if (void* request = requests_[done_ % kRooms]) requests.push_back(request);
  depart(comm_, rooms_, std::move(requests));
}

void FrameReceiver::post() {
  Network& network = comm_.network();
  for (; !stopped_ && begun_ - done_ < kRooms; ++begun_) {
    char* room = rooms_->room(begun_ % kRooms);
    std::vector<Network::Piece> one{{room, rooms_->bytes(), 0, comm_.handle(rooms_->region())}};
    void* request = network.receive(comm_.get(), one);
    if (!request) break;
    requests_[begun_ % kRooms] = request;
  }
}

std::optional<std::string_view> FrameReceiver::receive() {
  post();
  if (begun_ == done_) return std::nullopt;
  Network& network = comm_.network();
  std::array<int, kSizes> sizes = unset_sizes();
  void* const request = std::exchange(requests_[done_ % kRooms], nullptr);  // over if test fails
  if (!network.test(request, sizes.data(), "test of an irecv")) {
    requests_[done_ % kRooms] = request;
    return std::nullopt;
  }
  if (sizes[0] == kUnset) {
    Frame frame;
    std::memcpy(&frame, rooms_->room(done_ % kRooms), sizeof frame);
    network.miss_sizes();
    sizes[0] = static_cast<int>(std::min(sizeof frame + payload_of(frame), uint64_t{INT32_MAX}));
  }
  if (sizes[0] < static_cast<int>(sizeof(Frame)) || static_cast<uint64_t>(sizes[0]) > rooms_->bytes())
    throw sdk::error(
        TUTTI_SYSTEM,
        "{}: test reported {} bytes for an irecv of {}: it must report what was sent, here {} bytes or more",
        network.says(), sizes[0], rooms_->bytes(), sizeof(Frame));
  return std::string_view(rooms_->room(done_ % kRooms), static_cast<size_t>(sizes[0]));
}

// ---- Long messages

bool BulkSender::begin(const Bulk& bulk) {
  const Posted& send = bulk.transfer;
  const bool in_room = !send.region;
  if (in_room && rooms_taken_ == kRooms) return false;
  char* data = send.data;
  if (in_room) {
    data = rooms_.room(next_room_);
    std::memcpy(data, send.data, send.bytes);
  }
  void* memory = comm_.handle(in_room ? rooms_.region() : *send.region);
  void* request = comm_.network().send(comm_.get(), data, send.bytes, bulk.tag, memory);
  if (!request) return false;
  if (in_room) {
    next_room_ = (next_room_ + 1) % kRooms;
    ++rooms_taken_;
  }
  begun_.push({bulk, request, in_room});
  return true;
}

std::optional<Bulk> BulkSender::advance() {
  while (!waiting_.empty() && begun_.size() < most_ && begin(waiting_.front())) waiting_.pop();
  if (begun_.empty()) return std::nullopt;
  std::array<int, kSizes> sizes{};
  constexpr const char* kTest = "test of an isend";
  if (!comm_.network().test(begun_.front().request, sizes.data(), kTest)) {
    patience_.wait(comm_.network(), kTest, begun_.front().bulk.transfer.bytes);
    return std::nullopt;
  }
  patience_.end();
  const Begun over = begun_.pop();
  if (over.in_room) --rooms_taken_;
  return over.bulk;
}

bool BulkReceiver::begin_group() {
  if (groups_.size() == most_) return false;
  Group group;
  pieces_.clear();
  size_t rooms = 0;
  for (size_t i = 0; i < waiting_.size() && i < group_; ++i) {
    Bulk bulk = waiting_[i];
    const Posted& receive = bulk.transfer;
    if (!receive.region && rooms_taken_ + rooms == kRooms) break;
    char* room = receive.region ? nullptr : rooms_.room((next_room_ + rooms++) % kRooms);
    bulk.tag = static_cast<int>((next_tag_ + i) & 0x7fff'ffff);
    void* memory = comm_.handle(receive.region ? *receive.region : rooms_.region());
    pieces_.push_back({room ? room : receive.data, receive.bytes, bulk.tag, memory});
    group.bulks.push_back(bulk);
    group.rooms.push_back(room);
  }
  if (pieces_.empty()) return false;
  group.request = comm_.network().receive(comm_.get(), pieces_);
  if (!group.request) return false;
  for (size_t i = 0; i < pieces_.size(); ++i) waiting_.pop();
  next_tag_ += static_cast<uint32_t>(pieces_.size());
  next_room_ = (next_room_ + rooms) % kRooms;
  rooms_taken_ += rooms;
  groups_.push(std::move(group));
  return true;
}

std::vector<Bulk> BulkReceiver::advance() {
  if (groups_.empty()) return {};
  std::array<int, kSizes> sizes = unset_sizes();
  constexpr const char* kTest = "test of an irecv";
  if (!comm_.network().test(groups_.front().request, sizes.data(), kTest)) {
    patience_.wait(comm_.network(), kTest, groups_.front().bulks.front().transfer.bytes);
    return {};
  }
  patience_.end();
  Group group = groups_.pop();
  for (size_t i = 0; i < group.bulks.size(); ++i) {
    const Posted& receive = group.bulks[i].transfer;
    if (sizes[i] == kUnset)
      comm_.network().miss_sizes();
    else if (sizes[i] < 0 || static_cast<uint64_t>(sizes[i]) != receive.bytes)
      throw sdk::error(TUTTI_SYSTEM,
                       "{}: test reported {} bytes for message {} of {} of an irecv, of which {} were sent",
                       comm_.network().says(), sizes[i], i, group.bulks.size(), receive.bytes);
    if (!group.rooms[i]) continue;
    std::memcpy(receive.data, group.rooms[i], receive.bytes);
    --rooms_taken_;
  }
  return std::move(group.bulks);
}

}  // namespace tutti::nccl
