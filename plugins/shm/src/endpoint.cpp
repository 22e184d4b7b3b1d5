// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace tutti::shm {

namespace {
// Progress looks at the sockets, whose news are seldom, in one call of so many; more often while ranks are still to
// connect.
constexpr uint32_t kSocketInterval = 1024, kSocketIntervalConnecting = 64;

const tutti_endpoint_config& checked(const tutti_endpoint_config& config) {
  if (!TUTTI_HAS_FIELD(tutti_endpoint_config, &config, communicator_id))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "shm: tutti_endpoint_config of " + std::to_string(config.struct_size) +
                                                 " bytes; expected " + std::to_string(sizeof config));
  if (config.rank >= config.nranks || config.lanes == 0 || config.lanes > kMaxLanes)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "shm: an endpoint for rank " + std::to_string(config.rank) + " of " +
                                                 std::to_string(config.nranks) + " with " +
                                                 std::to_string(config.lanes) + " lanes; lanes must be 1 to " +
                                                 std::to_string(kMaxLanes));
  return config;
}
}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : domain_(domain),
      rank_(checked(config).rank),
      nranks_(config.nranks),
      lanes_(config.lanes),
      name_(config.name ? config.name : "a communicator"),
      secret_(config.secret_bytes ? std::string(reinterpret_cast<const char*>(config.secret), config.secret_bytes)
                                  : ""),
      communicator_(config.communicator_id),
      geometry_{config.lanes, domain.settings().slots, domain.settings().slot_bytes},
      address_(local_place()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      eventfd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      doorbell_file_(make_memory_file("tutti-shm-doorbell", Doorbell::page_bytes(nranks_))),
      doorbell_(map_shared(doorbell_file_.get(), Doorbell::page_bytes(nranks_))),
      links_(nranks_),
      given_up_(nranks_),
      control_pending_(Doorbell::control_words(nranks_)) {
  if (!epoll_ || !eventfd_) throw sdk::system_error(me() + ": epoll_create1 or eventfd", errno);
  attention_.failing.reserve(nranks_);
  address_.rank = rank_;
  random_bytes(address_.name, sizeof address_.name);
  listener_ = listen_at(address_);
  watch(listener_.get());
  watch(eventfd_.get());
}

Endpoint::~Endpoint() {
  for (const auto& link : links_)
    if (link) link->say_goodbye(false);
}

bool Endpoint::take(const tutti_transfer& transfer) {
  const auto bad = [&](const std::string& what) {
    return sdk::Error(TUTTI_INVALID_ARGUMENT, me() + ": a transfer " + what);
  };
  Link* link = reinterpret_cast<Link*>(transfer.link);
  if (!link || link->peer() >= nranks_ || links_[link->peer()].get() != link)
    throw bad("over a link of another endpoint");
  if (transfer.lane >= lanes_) throw bad("on lane " + std::to_string(transfer.lane) + " of " + std::to_string(lanes_));
  if (transfer.kind != TUTTI_TRANSFER_SEND && transfer.kind != TUTTI_TRANSFER_RECV)
    throw bad("of kind " + std::to_string(transfer.kind));
  if (transfer.flags & ~TUTTI_TRANSFER_INLINE)
    throw sdk::Error(TUTTI_NOT_SUPPORTED, me() + ": a transfer with flags " + std::to_string(transfer.flags));
  if (transfer.bytes > geometry_.slot_bytes)
    throw bad("of " + std::to_string(transfer.bytes) + " bytes; at most " + std::to_string(geometry_.slot_bytes));
  if (!transfer.data && transfer.bytes > 0) throw bad("of " + std::to_string(transfer.bytes) + " bytes at NULL");
  if ((transfer.flags & TUTTI_TRANSFER_INLINE) &&
      (transfer.kind != TUTTI_TRANSFER_SEND || transfer.bytes > kInlineBytes))
    throw bad("that is INLINE, but no send of at most " + std::to_string(kInlineBytes) + " bytes");
  if (link->state() == Link::kEnded || link->told())
    throw sdk::Error(link->end_status(),
                     me() + ": the link to rank " + std::to_string(link->peer()) + " has ended: " + link->why());
  return link->post(transfer);
}

uint32_t Endpoint::post(std::span<const tutti_transfer> transfers) {
  uint32_t accepted = 0;
  try {
    while (accepted < transfers.size() && take(transfers[accepted])) accepted++;
  } catch (const sdk::Error&) {
    // The call that begins with the bad transfer will tell of it: a status and a count cannot both be handed back.
    if (accepted == 0) throw;
  }
  return accepted;
}

uint32_t Endpoint::progress(std::span<tutti_completion> completions) {
  const uint32_t interval = link_count_ + 1 < nranks_ ? kSocketIntervalConnecting : kSocketInterval;
  if (++calls_ % interval == 0 || attention_.sockets) [[unlikely]]
    read_sockets();
  uint32_t n = deliver_control(completions);
  std::vector<Lane*>& active = attention_.active;
  for (size_t left = active.size(); left > 0 && n < completions.size(); left--) {
    if (next_active_ >= active.size()) next_active_ = 0;
    Lane* lane = active[next_active_];
    const auto room = completions.subspan(n);
    n += lane->link->advance(*lane, room.data(), static_cast<uint32_t>(room.size()));
    if (lane->active) {
      next_active_++;
    } else {
      active[next_active_] = active.back();
      active.pop_back();
    }
  }
  if (!attention_.failing.empty()) [[unlikely]]
    n += deliver_ends(completions.subspan(n));
  return n;
}

uint32_t Endpoint::deliver_control(std::span<tutti_completion> completions) {
  uint32_t n = 0;
  bool left_over = false;
  for (uint64_t w = 0; w < control_pending_.size(); w++) {
    std::atomic<uint64_t>& word = doorbell().control(w);
    if (word.load(std::memory_order_relaxed) != 0) control_pending_[w] |= word.exchange(0, std::memory_order_seq_cst);
    for (uint64_t bits = control_pending_[w]; bits != 0; bits &= bits - 1) {
      const uint64_t peer = w * 64 + static_cast<uint64_t>(std::countr_zero(bits));
      Link* link = peer < nranks_ ? links_[peer].get() : nullptr;
      if (!link && peer < nranks_ && peer != rank_)
        continue;  // complete at the other end, here it comes with its Setup
      bool emptied = !link;
      while (!emptied && n < completions.size() && n < control_data_.size()) {
        uint64_t bytes = 0;
        emptied = !link->receive_control(control_data_[n].data(), bytes);
        if (emptied) break;
        completions[n] = tutti_completion{};
        completions[n].kind = TUTTI_COMPLETION_CONTROL;
        completions[n].peer = static_cast<uint32_t>(peer);
        completions[n].bytes = bytes;
        completions[n].data = control_data_[n].data();
        n++;
      }
      if (emptied)
        control_pending_[w] &= ~(uint64_t{1} << peer % 64);
      else
        left_over = true;
    }
  }
  any_control_pending_ = left_over;
  return n;
}

uint32_t Endpoint::deliver_ends(std::span<tutti_completion> completions) {
  uint32_t n = 0;
  std::erase_if(attention_.failing, [&](Link* link) {
    if (link->active_lanes() > 0 || n == completions.size()) return false;  // its transfers end first
    link->set_told();
    if (link->state() == Link::kEnded) link->say_goodbye(true);
    completions[n] = tutti_completion{};
    completions[n].kind = TUTTI_COMPLETION_PEER_FAILED;
    completions[n].status = TUTTI_PEER_FAILED;
    completions[n].peer = link->peer();
    completions[n].data = link->why();
    n++;
    return true;
  });
  return n;
}

void Endpoint::fail_peer(uint32_t peer) {
  if (peer >= nranks_ || peer == rank_)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     me() + ": fail_peer of rank " + std::to_string(peer) + " of " + std::to_string(nranks_));
  given_up_[peer] = 1;
  std::erase_if(connections_, [&](const auto& entry) {
    return entry.second->peer == peer && entry.second->step != Connection::kAwaitHello;
  });
  Link* link = links_[peer].get();
  if (!link) return;
  link->end(TUTTI_PEER_FAILED, "this rank gave it up", false);
  link->say_goodbye(true);
}

void Endpoint::abort() {
  aborted_ = true;
  connections_.clear();
  for (const auto& link : links_)
    if (link) link->end(TUTTI_ABORTED, "the endpoint was aborted", false);
}

void Endpoint::read_sockets() {
  attention_.sockets = false;
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < n; i++) {
    const int fd = events[i].data.fd;
    if (fd == listener_.get()) {
      accept_connections();
    } else if (fd == eventfd_.get()) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
    } else if (const auto connection = connections_.find(fd); connection != connections_.end()) {
      step(*connection->second);
    } else if (const auto found = link_sockets_.find(fd); found != link_sockets_.end()) {
      found->second->read_socket();
    }
  }
  if (n == 64) attention_.sockets = true;
  // A link whose socket was closed, here or elsewhere, gives its number back.
  std::erase_if(link_sockets_, [](const auto& entry) { return entry.second->socket() != entry.first; });
  for (const auto& entry : link_sockets_) entry.second->withdraw_regions();
}

bool Endpoint::has_news() {
  if (attention_.sockets || any_control_pending_ || !attention_.failing.empty()) return true;
  for (uint64_t w = 0; w < control_pending_.size(); w++)
    if (doorbell().control(w).load(std::memory_order_seq_cst) != 0) return true;
  bool news = false;
  for (const auto& link : links_)
    if (link && link->has_news()) news = true;
  if (!attention_.failing.empty()) return true;
  epoll_event event;
  if (epoll_wait(epoll_.get(), &event, 1, 0) > 0) news = attention_.sockets = true;
  return news;
}

bool Endpoint::arm() {
  doorbell().sleeps.store(1, std::memory_order_seq_cst);
  if (!has_news()) return true;
  doorbell().sleeps.store(0, std::memory_order_seq_cst);
  return false;
}

void Endpoint::disarm() {
  doorbell().sleeps.store(0, std::memory_order_seq_cst);
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(eventfd_.get(), &count, sizeof count);
  attention_.sockets = true;
}

}  // namespace tutti::shm
