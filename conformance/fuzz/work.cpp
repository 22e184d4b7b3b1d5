// SPDX-License-Identifier: Apache-2.0
#include "fuzz/work.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>

namespace tutti::conformance::fuzz {
namespace {

// The data of part `part` of an event are the same in all ranks.
uint64_t data_seed(const Program& program, uint32_t event, uint32_t part) {
  return (program.seed * 0x9e3779b97f4a7c15u) ^ (uint64_t{event} << 20) ^ part;
}

class CollectiveWork : public Work {
 public:
  CollectiveWork(const Program& program, const Event& event, const std::vector<uint32_t>& members, uint32_t rank) {
    const auto n = static_cast<uint32_t>(members.size());
    const bool barrier = event.collective == TUTTI_BARRIER;
    cell_.operation = {event.collective, n, rooted(event.collective) ? event.root : 0, barrier ? 0 : event.count};
    cell_.type = element_type(barrier ? "int8" : event.type);
    cell_.op = reduces(event.collective) ? event.op : 0;
    cell_.place = static_cast<InPlace>(event.place);
    cell_.memory = static_cast<Memory>(event.memory);
    cell_.alignment = static_cast<Alignment>(event.alignment);
    const Pattern pattern{cell_.type, cell_.op, n, data_length(cell_.operation), data_seed(program, event.id, 0), 0};
    buffers_ = std::make_unique<Buffers>(cell_, rank, Data(pattern), nullptr, 0);
  }
  tutti_status start(tutti_comm* comm, tutti_request** request) override {
    return call(cell_, cell_.op, comm, *buffers_, request);
  }
  std::string judge() const override { return buffers_->judge(); }

 private:
  Cell cell_;
  std::unique_ptr<Buffers> buffers_;
};

// One message's memory at one end.
class Parcel {
 public:
  Parcel(const Program& program, const Event& event, uint32_t part, uint32_t sender, bool sends)
      : type_(*element_type(event.type)),
        count_(event.count),
        data_({&type_, 0, program.ranks, std::max<uint64_t>(event.count, 1), data_seed(program, event.id, part), 0}),
        sender_(sender),
        area_(Memory::heap, event.count * type_.bytes, 0) {
    for (uint64_t i = 0; i < count_; ++i) store(type_, area_.data(), i, sends ? right(i) : truncated(type_, ~right(i)));
  }
  char* data() const { return area_.data(); }
  // The same at both ends: a send must not change what it sends.
  std::string judge() const {
    if (const std::string damage = area_.damage(); !damage.empty()) return damage;
    for (uint64_t i = 0; i < count_; ++i)
      if (const uint64_t got = load(type_, area_.data(), i); got != right(i))
        return fmt::format("element {} of {} is {}, expected {}", i, count_, to_text(type_, got),
                           to_text(type_, right(i)));
    return {};
  }

 private:
  uint64_t right(uint64_t i) const { return truncated(type_, data_.input(sender_, i)); }
  const ElementType& type_;
  uint64_t count_;
  Data data_;
  uint32_t sender_;
  Area area_;
};

class MessageWork : public Work {
 public:
  // A half of a message has the data of its first half's id, which is the smaller one.
  MessageWork(const Program& program, const Event& event, const std::vector<uint32_t>& members, bool sends)
      : event_(event),
        sends_(sends),
        peer_(index_of(members, sends ? event.peer : event.rank)),
        parcel_(program, first_half(event), 0, event.rank, sends) {}
  tutti_status start(tutti_comm* comm, tutti_request** request) override {
    const uint32_t dtype = dtype_from_name(event_.type);
    return sends_ ? tutti_send(comm, parcel_.data(), event_.count, dtype, peer_, event_.tag, nullptr, request)
                  : tutti_receive(comm, parcel_.data(), event_.count, dtype, peer_, event_.tag, nullptr, request);
  }
  std::string judge() const override {
    const std::string wrong = parcel_.judge();
    return wrong.empty() ? "" : (sends_ ? "send: " : "receive: ") + wrong;
  }

 private:
  static Event first_half(Event event) {
    if (event.link) event.id = std::min(event.id, event.link);
    return event;
  }
  const Event event_;
  const bool sends_;
  const uint32_t peer_;
  Parcel parcel_;
};

class ExchangeWork : public Work {
 public:
  ExchangeWork(const Program& program, const Event& event, const std::vector<uint32_t>& members, uint32_t rank) {
    const auto n = static_cast<uint32_t>(members.size());
    for (uint32_t k = 0; k < event.list.size(); ++k) {
      const uint32_t to = (rank + event.list[k]) % n, from = (rank + n - event.list[k]) % n;
      add(program, event, k, members[rank], to, true);
      add(program, event, k, members[from], from, false);
    }
  }
  tutti_status start(tutti_comm* comm, tutti_request** request) override {
    return tutti_exchange(comm, messages_.data(), messages_.size(), nullptr, request);
  }
  std::string judge() const override {
    for (size_t i = 0; i < parcels_.size(); ++i)
      if (const std::string wrong = parcels_[i]->judge(); !wrong.empty())
        return fmt::format("message {} of an exchange, {} rank {} of the communicator: {}", i, i % 2 ? "from" : "to",
                           messages_[i].peer, wrong);
    return {};
  }

 private:
  // Tags of groups lie above those of single messages.
  static constexpr uint32_t first_tag = 1000;
  void add(const Program& program, const Event& event, uint32_t part, uint32_t sender, uint32_t peer, bool sends) {
    parcels_.push_back(std::make_unique<Parcel>(program, event, part, sender, sends));
    messages_.push_back({parcels_.back()->data(), event.count, dtype_from_name(event.type), peer, first_tag + part,
                         sends ? uint32_t{TUTTI_SEND} : uint32_t{TUTTI_RECEIVE}});
  }
  std::vector<std::unique_ptr<Parcel>> parcels_;
  std::vector<tutti_message> messages_;
};

}  // namespace

std::unique_ptr<Work> make_work(const Program& program, const Event& event, const std::vector<uint32_t>& members,
                                uint32_t rank, bool sends) {
  if (event.kind == Kind::collective) return std::make_unique<CollectiveWork>(program, event, members, rank);
  if (event.kind == Kind::exchange) return std::make_unique<ExchangeWork>(program, event, members, rank);
  return std::make_unique<MessageWork>(program, event, members, sends);
}

}  // namespace tutti::conformance::fuzz
