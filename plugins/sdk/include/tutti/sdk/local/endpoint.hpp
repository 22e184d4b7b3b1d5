// SPDX-License-Identifier: Apache-2.0
//
// One rank of one communicator of a transport within a host: its doorbell, its peers, progress, sleeping. `Link` is the
// transport's class over LinkBase (link.hpp), and Link::Domain has
//   const Settings& settings() const;
//   std::vector<EqualValue> equal_values() const;  // beside the number of lanes: what all ranks must have equal
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <span>
#include <string_view>
#include <tutti/sdk/endpoint_base.hpp>
#include <tutti/sdk/local/connector.hpp>
#include <tutti/sdk/local/link.hpp>
#include <tutti/sdk/local/station.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

struct Settings {
  uint64_t slot_bytes;    // the largest message
  uint32_t slots;         // of a lane and direction
  uint64_t stream_bytes;  // posted sends of at least so many bytes are copied with non-temporal stores
  uint64_t first = 0;     // the number of a lane's first message and of a link's first control message
};

template <typename Link>
class Endpoint : public EndpointBase {
 public:
  using Domain = typename Link::Domain;
  Endpoint(Domain& domain, const tutti_endpoint_config& config);

  Link* connect(uint32_t peer);
  void receive_pair(uint32_t peer, std::string_view message);
  bool post(const tutti_transfer& transfer);
  uint32_t progress(std::span<tutti_completion> completions);
  void fail_peer(uint32_t peer);
  void abort();

  // wait_fd/1.
  int wait_fd() const { return member_.station().descriptor(); }
  bool arm();
  void disarm();

 private:
  using Lane = local::Lane<Link>;
  // Lines seldom have news: one of so many progress calls reads them, more often while ranks are to connect.
  static constexpr uint32_t kLineInterval = 1024, kLineIntervalConnecting = 64;

  static std::string label(const char* what) { return fmt::format("tutti-{}-{}", Link::format.transport, what); }
  FileDescriptor make_segment() const;
  std::unique_ptr<Link> make_link(typename Connector<Link>::Parts parts);
  void take_link(uint32_t peer, std::unique_ptr<Link> link) noexcept;
  uint32_t deliver_control(std::span<tutti_completion> completions);
  uint32_t deliver_ends(std::span<tutti_completion> completions);
  void read_lines();
  bool has_news();
  Doorbell& doorbell() const { return member_.doorbell(); }
  uint64_t doorbell_bytes() const { return Doorbell::page_bytes(nranks()); }
  std::vector<EqualValue> equal_values() const {
    auto values = domain_.equal_values();
    values.insert(values.begin(), {"the number of lanes", lanes()});
    return values;
  }

  Domain& domain_;
  const Geometry geometry_;
  Station::Member member_;
  Connector<Link> connector_;
  Attention<Link> attention_;
  std::vector<std::unique_ptr<Link>> peers_;  // by rank
  std::vector<Link*> links_;                  // of peers_, those that there are
  bool aborted_ = false;

  uint32_t calls_ = 0;
  size_t next_active_ = 0;
  std::vector<uint64_t> control_pending_;  // ranks whose control ring is not empty yet, as bits
  bool any_control_pending_ = false;
  std::array<std::array<uint8_t, kControlBytes>, kControlDepth> control_data_;
};

template <typename Link>
Endpoint<Link>::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : EndpointBase(Link::format.transport, config, kMaxLanes),
      domain_(domain),
      geometry_{config.lanes, domain.settings().slots, domain.settings().slot_bytes},
      member_(Station::of(config.family), doorbell_bytes()),
      connector_(*this, config, Link::format, equal_values(),
                 {member_.station().doorbell_file(), member_.station().eventfd_descriptor()}, member_,
                 {[this] { return make_segment(); },
                  [this](typename Connector<Link>::Parts parts) { return make_link(std::move(parts)); },
                  [this](uint32_t peer, std::unique_ptr<Link> link) { take_link(peer, std::move(link)); }}),
      peers_(nranks()),
      control_pending_(Doorbell::control_words(nranks())) {
  check_file_limit(geometry_.segment_bytes());  // of every link
  attention_.failing.reserve(nranks());
  links_.reserve(nranks());
}

// ---- connecting

template <typename Link>
Link* Endpoint<Link>::connect(uint32_t peer) {
  check_peer(peer);
  if (aborted_) throw error(TUTTI_ABORTED, "connect after abort");
  const std::unique_ptr<Link>& link = peers_[peer];
  if (!link && !connector_.refusal(peer)) {
    connector_.begin(peer);
    attention_.lines = true;  // the next progress looks at them, once for all peers
  }
  if (connector_.refusal(peer)) throw *connector_.refusal(peer);
  if (link && link->told()) throw error(link->end_status(), "rank {}: {}", peer, link->why());
  return link.get();
}

template <typename Link>
void Endpoint<Link>::receive_pair(uint32_t peer, std::string_view message) {
  check_peer(peer);
  if (aborted_) return;
  attention_.lines = true;
  connector_.receive(peer, message);
}

template <typename Link>
FileDescriptor Endpoint<Link>::make_segment() const {
  FileDescriptor file = make_memory_file(label("segment"), geometry_.segment_bytes());
  if (const uint64_t first = domain_.settings().first) {
    const Mapping mapping(file.get(), 0, geometry_.segment_bytes(), true);
    for (const uint32_t direction : {0, 1}) {
      const Direction rings(mapping.data(), geometry_, direction);
      rings.control()->released.store(first, std::memory_order_relaxed);
      for (uint32_t lane = 0; lane < lanes(); lane++) rings.lane(lane)->released.store(first, std::memory_order_relaxed);
    }
  }
  return file;
}

template <typename Link>
std::unique_ptr<Link> Endpoint<Link>::make_link(typename Connector<Link>::Parts parts) {
  const FileDescriptor page = std::move(parts.descriptors[0]);
  FileDescriptor peer_eventfd = std::move(parts.descriptors[1]);
  check_memory_file(parts.file, geometry_.segment_bytes(), "the segment of a pair");
  const uint64_t offset = parts.card.doorbell;
  if (offset % kPage != 0 || offset > INT64_MAX - doorbell_bytes())
    throw Error(TUTTI_MISMATCH, "its doorbell page has an invalid offset");
  check_memory_file(page.get(), offset + doorbell_bytes(), "the doorbell page of a peer");
  struct stat status {};
  // An anonymous inode has no type; pipes, sockets and files, which could block the writer, have one.
  if (fstat(peer_eventfd.get(), &status) != 0 || (status.st_mode & S_IFMT) != 0)
    throw Error(TUTTI_MISMATCH, "it passed a descriptor that is not an eventfd");
  return std::make_unique<Link>(
      typename Link::Parts{geometry_, rank(), parts.peer, domain_.settings().stream_bytes, domain_.settings().first,
                           map_shared(parts.file, 0, geometry_.segment_bytes()),
                           {map_shared(page.get(), offset, doorbell_bytes()),
                            share_eventfd(parts.card.invitation.name, std::move(peer_eventfd))},
                           std::move(parts.line), &attention_},
      domain_);
}

template <typename Link>
void Endpoint<Link>::take_link(uint32_t peer, std::unique_ptr<Link> link) noexcept {
  peers_[peer] = std::move(link);
  links_.push_back(peers_[peer].get());  // has room for all
  links_.back()->read_line();            // what the peer has sent since its end was ready
}

template <typename Link>
void Endpoint<Link>::fail_peer(uint32_t peer) {
  check_peer(peer);
  connector_.give_up(peer);
  if (Link* link = peers_[peer].get()) link->end(TUTTI_PEER_FAILED, "this rank gave it up", false);
}

template <typename Link>
void Endpoint<Link>::abort() {
  aborted_ = true;
  for (uint32_t peer = 0; peer < nranks(); peer++) connector_.give_up(peer, true);
  for (Link* link : links_) link->end(TUTTI_ABORTED, "the endpoint was aborted", false);
}

// ---- post and progress

template <typename Link>
bool Endpoint<Link>::post(const tutti_transfer& transfer) {
  check_shape(transfer, geometry_.slot_bytes, kInlineBytes);
  Link& link = from_handle<Link>(transfer.link);
  if (link.peer() >= nranks() || peers_[link.peer()].get() != &link)
    throw refusal(transfer, TUTTI_INVALID_ARGUMENT, "a link of another endpoint");
  if constexpr (!requires(const tutti_memory& memory) { domain_.register_memory(memory); })
    if (transfer.region) throw refusal(transfer, TUTTI_INVALID_ARGUMENT, "a region: no memory is registered here");
  if (link.told()) throw refusal(transfer, link.end_status(), "the link has ended: " + link.why());
  return link.post(transfer);
}

template <typename Link>
uint32_t Endpoint<Link>::progress(std::span<tutti_completion> completions) {
  const uint32_t interval = links_.size() + 1 < nranks() ? kLineIntervalConnecting : kLineInterval;
  if (++calls_ % interval == 0 || attention_.lines) [[unlikely]]
    read_lines();
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

template <typename Link>
uint32_t Endpoint<Link>::deliver_control(std::span<tutti_completion> completions) {
  uint32_t n = 0;
  bool left_over = false;
  for (uint64_t w = 0; w < control_pending_.size(); w++) {
    std::atomic<uint64_t>& word = doorbell().control(w);
    if (word.load(std::memory_order_relaxed) != 0) control_pending_[w] |= word.exchange(0, std::memory_order_seq_cst);
    for (uint64_t bits = control_pending_[w]; bits != 0; bits &= bits - 1) {
      const uint64_t peer = w * 64 + static_cast<uint64_t>(std::countr_zero(bits));
      Link* link = peer < nranks() ? peers_[peer].get() : nullptr;
      if (!link && peer < nranks() && peer != rank())
        continue;  // ready at the other end, and not here yet
      bool emptied = !link;
      while (!emptied && n < completions.size() && n < control_data_.size()) {
        uint64_t bytes = 0;
        emptied = !link->receive_control(control_data_[n].data(), bytes);
        if (emptied) break;
        completions[n] = {TUTTI_COMPLETION_CONTROL, TUTTI_OK, link->peer(), 0, 0, bytes, control_data_[n].data(), 0};
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

template <typename Link>
uint32_t Endpoint<Link>::deliver_ends(std::span<tutti_completion> completions) {
  uint32_t n = 0;
  std::erase_if(attention_.failing, [&](Link* link) {
    if (link->told()) return true;  // the caller gave it up meanwhile
    if (link->active_lanes() > 0 || n == completions.size()) return false;  // its transfers end first
    link->set_told();
    completions[n++] = {TUTTI_COMPLETION_PEER_FAILED, TUTTI_PEER_FAILED, link->peer(), 0, 0, 0, link->why().c_str(), 0};
    return true;
  });
  return n;
}

template <typename Link>
void Endpoint<Link>::read_lines() {
  attention_.lines = false;
  try {
    if (!member_.read()) attention_.lines = true;  // the next call tries again
  } catch (const Error& error) {
    connector_.refuse_guests(error);
  }
  for (const uint32_t peer : member_.take_news())
    if (Link* link = peers_[peer].get())
      link->read_line();
    else
      connector_.hear(peer);
  connector_.advance();
  attention_.lines |= connector_.is_busy();
  for (Link* link : links_) link->write_line();
}

// ---- sleeping

template <typename Link>
bool Endpoint<Link>::has_news() {
  if (attention_.lines || any_control_pending_ || !attention_.failing.empty()) return true;
  for (uint64_t w = 0; w < control_pending_.size(); w++)
    if (doorbell().control(w).load(std::memory_order_seq_cst) != 0) return true;
  bool news = false;
  for (Link* link : links_)
    if (link->has_news()) news = true;
  if (!attention_.failing.empty()) return true;
  if (member_.has_news()) news = attention_.lines = true;
  return news;
}

template <typename Link>
bool Endpoint<Link>::arm() {
  member_.arm();
  if (!has_news()) return true;
  member_.disarm(false);
  return false;
}

template <typename Link>
void Endpoint<Link>::disarm() {
  member_.disarm();
  attention_.lines = true;
}

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
