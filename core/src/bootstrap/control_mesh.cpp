// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_mesh.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>

#include "bootstrap/authentication.hpp"
#include "bootstrap/child_descriptors.hpp"
#include "bootstrap/frame_stream.hpp"
#include "bootstrap/introduction.hpp"
#include "bootstrap/mesh_frames.hpp"
#include "bootstrap/rank_list.hpp"
#include "bootstrap/tcp_guest.hpp"

namespace tutti::core {
namespace {

constexpr size_t kReadTurn = 256 << 10;
constexpr std::chrono::milliseconds kLastWords(200);
constexpr size_t kMaxGuests = 256;
// Roll calls whose way back is remembered; older ones have long been given up.
constexpr size_t kMaxRoutes = 1 << 16;
// How long one of several addresses is tried at first; each round doubles it.
constexpr std::chrono::milliseconds kFirstAttempt(500), kLongestAttempt(8000);

// In which kernel and process-id space this is: ranks for which it is equal see each other's processes.
std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status = {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &status) != 0) return "";
  return boot + ":" + std::to_string(status.st_ino);
}

class ControlMesh final : public ControlPlane {
 public:
  ControlMesh(const ControlMeshConfig& config, Descriptor listener, std::vector<MeshAddress> ranks);
  ~ControlMesh() override;

  // Connects to the lower neighbours and awaits the higher ones.
  void link_up(const ControlMeshConfig& config, const Deadline& deadline);
  std::string who(uint32_t rank) const override { return ranks_[rank].who; }

 protected:
  void say_goodbye() override;
  void spread(NoticeKind kind, std::string_view bytes) override;
  void reply(uint32_t asker, uint64_t number, std::string_view bytes) override;

 private:
  struct Link {
    explicit Link(FrameStream s) : stream(std::move(s)) {}
    FrameStream stream;
    Descriptor process;  // polls readable once the neighbour's process has ended
    bool writing = false;
    bool left = false;
  };
  // What came over links, to be looked at without the lock.
  struct Arrival {
    enum class What { notice, reply, loss, left } what;
    uint32_t rank = 0;
    uint64_t number = 0;
    NoticeKind kind = NoticeKind::loss;
    std::string bytes;
  };

  void add_link(uint32_t peer, FrameStream stream);
  void connect_to_rank(const ControlMeshConfig& config, uint32_t peer, const Deadline& deadline);
  [[noreturn]] void not_linked(const std::vector<uint32_t>& ranks, const Deadline& deadline, const std::string& why);

  // The thread. With the lock:
  void serve_event(int fd);
  void accept_guests();
  void turn_away_late();
  int patience_ms() const;
  void talk(int fd);
  void admit(int fd);
  void serve_link(uint32_t peer);
  void take(uint32_t peer, const Frame& frame);
  void take_notice(uint32_t peer, const Frame& frame);
  void take_reply(const Frame& frame);
  void drop_link(uint32_t peer, std::string why);
  void put(uint32_t peer, const EncodedFrame& frame);
  void push(uint32_t peer);
  void watch(int fd, int operation, bool writing);
  void unwatch(int fd);
  // ... and without it:
  void run();
  void look_at(const Arrival& arrival);

  const std::string secret_, token_;
  const std::chrono::nanoseconds handshake_limit_;
  const std::shared_ptr<const Tls> tls_;
  const BootstrapLog log_;
  const std::vector<MeshAddress> ranks_;

  std::mutex mutex_;  // guards all that follows
  std::condition_variable linked_;
  Descriptor epoll_, stop_event_, listener_;
  std::map<int, TcpGuest> guests_;
  std::map<uint32_t, Link> links_;
  std::unordered_map<int, uint32_t> peer_of_;  // of a stream or a process descriptor
  int starved_ = 0;                            // why a connection could not be accepted
  std::vector<Arrival> arrivals_;
  uint64_t sent_ = 0;                                         // own notices
  std::vector<uint64_t> seen_;                                // by origin: the last notice
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> routes_;  // of a roll call (who asked, its number): where from
  bool stopping_ = false;
  std::thread thread_;
};

ControlMesh::ControlMesh(const ControlMeshConfig& config, Descriptor listener, std::vector<MeshAddress> ranks)
    : ControlPlane(config.rank, config.nranks),
      secret_(config.secret + ranks[0].token),
      token_(ranks[0].token),
      handshake_limit_(config.handshake_limit),
      tls_(config.tls),
      log_(config.log),
      ranks_(std::move(ranks)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(std::move(listener)),
      seen_(nranks_) {
  if (!epoll_ || !stop_event_) throw Failure(TUTTI_NO_RESOURCES, me() + "epoll, eventfd: " + std::strerror(errno));
  watch(stop_event_.get(), EPOLL_CTL_ADD, false);
  watch(listener_.get(), EPOLL_CTL_ADD, false);
  thread_ = std::thread([this] { run(); });
}

ControlMesh::~ControlMesh() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(stop_event_.get(), &one, sizeof one);
  thread_.join();
  for (const auto& [fd, peer] : peer_of_) forget_in_children(fd);
}

// ---- Linking -----------------------------------------------------------------------------------------------

void ControlMesh::link_up(const ControlMeshConfig& config, const Deadline& deadline) {
  const auto neighbours = mesh_neighbours(rank_, nranks_);
  for (const uint32_t peer : neighbours)
    if (peer < rank_) connect_to_rank(config, peer, deadline);
  std::unique_lock lock(mutex_);
  while (links_.size() < neighbours.size()) {
    linked_.wait_for(lock, std::chrono::milliseconds(20));
    if (links_.size() == neighbours.size()) break;
    if (starved_)
      throw Failure(TUTTI_NO_RESOURCES, me() + "a rank's connection cannot be accepted: " + std::strerror(starved_) +
                                            "; a rank needs some 30 descriptors (ulimit -n)");
    std::vector<uint32_t> missing;
    for (const uint32_t peer : neighbours)
      if (!links_.count(peer)) missing.push_back(peer);
    lock.unlock();
    if (const std::string problem = config.meeting_problem(); !problem.empty())
      throw Failure(TUTTI_PEER_FAILED, me() + problem);
    if (const auto loss = first_cause()) throw Failure(loss->status, me() + loss->text());
    if (deadline.passed()) not_linked(missing, deadline, "it did not connect to this rank");
    lock.lock();
  }
  unwatch(listener_.get());
  listener_ = Descriptor();
  for (const auto& [fd, guest] : guests_) unwatch(fd);
  guests_.clear();
}

void ControlMesh::connect_to_rank(const ControlMeshConfig& config, uint32_t peer, const Deadline& deadline) {
  const Caller caller{rank_, nranks_, peer, secret_, token_, true, true, tls_};
  auto attempt = kFirstAttempt;
  std::string problem = "it offers no address";
  while (true) {
    for (const SocketAddress& address : ranks_[peer].addresses) try {
        FrameStream stream = introduce(caller, address, deadline.sooner(attempt), deadline).stream;
        const std::lock_guard lock(mutex_);
        return add_link(peer, std::move(stream));
      } catch (const Discouraged& why) {
        problem = why.problem;
      }
    if (const std::string lost = config.meeting_problem(); !lost.empty()) throw Failure(TUTTI_PEER_FAILED, me() + lost);
    if (const auto loss = first_cause()) throw Failure(loss->status, me() + loss->text());
    if (deadline.passed()) not_linked({peer}, deadline, "last attempt: " + problem);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    attempt = std::min(attempt * 2, kLongestAttempt);
  }
}

void ControlMesh::not_linked(const std::vector<uint32_t>& ranks, const Deadline& deadline, const std::string& why) {
  std::string where;
  for (const SocketAddress& address : ranks_[ranks[0]].addresses)
    where += (where.empty() ? " at " : " or ") + address.text();
  throw Failure(TUTTI_TIMEOUT, rank_list(ranks) + " and rank " + std::to_string(rank_) +
                                   " could not be connected within " + deadline.text() + ": " + why + " (rank " +
                                   std::to_string(ranks[0]) + " is " + ranks_[ranks[0]].who + where +
                                   "); does a firewall keep ports of this job's hosts closed?");
}

// The lock is held.
void ControlMesh::add_link(uint32_t peer, FrameStream stream) {
  const auto [place, fresh] = links_.try_emplace(peer, std::move(stream));
  if (!fresh) return;
  Link& link = place->second;
  peer_of_[link.stream.fd()] = peer;
  close_in_children(link.stream.fd());
  watch(link.stream.fd(), EPOLL_CTL_ADD, false);
  if (!ranks_[peer].space.empty() && ranks_[peer].space == ranks_[rank_].space &&
      ranks_[peer].process != ranks_[rank_].process) {
    link.process = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, ranks_[peer].process, 0)));
    if (link.process) {
      peer_of_[link.process.get()] = peer;
      watch(link.process.get(), EPOLL_CTL_ADD, false);
    }
  }
  linked_.notify_all();
}

// ---- Sending -----------------------------------------------------------------------------------------------

void ControlMesh::spread(NoticeKind kind, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const EncodedFrame frame = encode_frame(FrameKind::notice, encode(MeshNotice{rank_, ++sent_, kind, bytes}));
  for (auto& [peer, link] : links_) put(peer, frame);
}

void ControlMesh::reply(uint32_t asker, uint64_t number, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const auto route = routes_.find({asker, number});
  if (route != routes_.end())
    put(route->second, encode_frame(FrameKind::reply, encode(MeshReply{asker, number, rank_, bytes})));
}

void ControlMesh::say_goodbye() {
  const Deadline deadline(kLastWords);
  std::unique_lock lock(mutex_);
  const EncodedFrame frame = encode_frame(FrameKind::goodbye, "");
  for (auto& [peer, link] : links_) put(peer, frame);
  const auto unsent = [&] {
    return std::any_of(links_.begin(), links_.end(), [](const auto& l) { return l.second.stream.unsent(); });
  };
  while (unsent() && !deadline.passed()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

void ControlMesh::put(uint32_t peer, const EncodedFrame& frame) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  found->second.stream.put(frame);
  push(peer);
}

void ControlMesh::push(uint32_t peer) {
  Link& link = links_.at(peer);
  link.stream.flush();
  if (link.stream.unsent() == link.writing) return;
  link.writing = link.stream.unsent();
  watch(link.stream.fd(), EPOLL_CTL_MOD, link.writing);
}

// ---- The thread --------------------------------------------------------------------------------------------

void ControlMesh::run() {
  epoll_event events[64];
  std::vector<Arrival> arrivals;
  int patience = -1;
  while (true) {
    const int n = ::epoll_wait(epoll_.get(), events, 64, patience);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (int i = 0; i < n; ++i) try {
          serve_event(events[i].data.fd);
        } catch (const std::exception& e) {  // out of memory or descriptors: what else lives goes on
          log_(TUTTI_LOG_ERROR, me() + e.what());
        }
      turn_away_late();
      patience = patience_ms();
      arrivals.swap(arrivals_);
    }
    for (const Arrival& arrival : arrivals) look_at(arrival);
    arrivals.clear();
  }
}

void ControlMesh::look_at(const Arrival& arrival) try {
  switch (arrival.what) {
    case Arrival::What::notice:
      return deliver(arrival.rank, arrival.kind, arrival.bytes);
    case Arrival::What::reply:
      return deliver_reply(arrival.rank, arrival.number, arrival.bytes);
    case Arrival::What::left:
      return deliver(arrival.rank, NoticeKind::left, "");
    case Arrival::What::loss:
      return notice_loss(arrival.rank, arrival.bytes);
  }
} catch (const std::exception& e) {
  notice_loss(arrival.rank, std::string("broke the control plane's protocol: ") + e.what());
}

void ControlMesh::serve_event(int fd) {
  if (listener_ && fd == listener_.get()) return accept_guests();
  if (guests_.count(fd)) return talk(fd);
  const auto found = peer_of_.find(fd);
  if (found == peer_of_.end()) return;
  const uint32_t peer = found->second;
  Link& link = links_.at(peer);
  const bool ended = link.process && fd == link.process.get();
  push(peer);
  serve_link(peer);
  // Its last words lie in the connection, which has just been read.
  if (ended && links_.count(peer)) drop_link(peer, "its process has ended");
}

void ControlMesh::accept_guests() {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (out_of_resources(errno)) starved_ = errno;
      return;
    }
    if (guests_.size() >= kMaxGuests) {  // the oldest makes room
      const auto oldest =
          std::ranges::min_element(guests_, {}, [](const auto& guest) { return guest.second.limit().at(); });
      unwatch(oldest->first);
      guests_.erase(oldest);
    }
    const int fd = socket.get();
    std::string from = SocketAddress::peer_of(fd).text();
    guests_.try_emplace(fd, std::move(socket), std::move(from), Deadline(handshake_limit_), tls_.get());
    watch(fd, EPOLL_CTL_ADD, false);
  }
}

// How long until a guest has had its time; -1: there is none.
int ControlMesh::patience_ms() const {
  int first = -1;
  for (const auto& [fd, guest] : guests_) first = guest.limit().poll_ms(first < 0 ? INT_MAX : first);
  return first;
}

void ControlMesh::turn_away_late() {
  for (auto at = guests_.begin(); at != guests_.end();) {
    const bool over = at->second.limit().passed();
    if (over) unwatch(at->first);
    at = over ? guests_.erase(at) : std::next(at);
  }
}

void ControlMesh::talk(int fd) {
  TcpGuest& guest = guests_.at(fd);
  switch (guest.advance(secret_)) {
    case TcpGuest::State::talking:
      return;
    case TcpGuest::State::introduced:
      return admit(fd);
    case TcpGuest::State::turned_away:
      log_(TUTTI_LOG_DEBUG, me() + "turned away " + guest.from() + ": " + guest.why());
      unwatch(fd);
      guests_.erase(fd);
  }
}

void ControlMesh::admit(int fd) {
  TcpGuest& guest = guests_.at(fd);
  const Hello& hello = guest.hello();
  const auto neighbours = mesh_neighbours(rank_, nranks_);
  const bool expected = hello.job == token_ && hello.nranks == nranks_ && hello.rank > rank_ &&
                        std::binary_search(neighbours.begin(), neighbours.end(), hello.rank) &&
                        !links_.count(hello.rank);
  if (expected) {
    FrameStream stream = std::move(guest.stream());
    unwatch(fd);
    stream.put(FrameKind::welcome, encode_welcome({rank_, hello.rank, nranks_}));
    const uint32_t peer = hello.rank;
    guests_.erase(fd);
    add_link(peer, std::move(stream));
    push(peer);
    return serve_link(peer);
  }
  guest.stream().put(FrameKind::error,
                     encode_error(Failure(TUTTI_MISMATCH, me() + "rank " + std::to_string(hello.rank) +
                                                              " of another communicator came")));
  guest.stream().flush();
  unwatch(fd);
  guests_.erase(fd);
}

void ControlMesh::serve_link(uint32_t peer) {
  Link& link = links_.at(peer);
  try {
    link.stream.fill(kReadTurn);
    while (const auto frame = link.stream.next(kMaxMeshFrame)) take(peer, *frame);
  } catch (const Failure& failure) {
    return drop_link(peer, "broke the control plane's protocol: " + failure.text);
  }
  if (link.stream.ended()) drop_link(peer, link.stream.end());
}

void ControlMesh::take(uint32_t peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::notice:
      return take_notice(peer, frame);
    case FrameKind::reply:
      return take_reply(frame);
    case FrameKind::goodbye:
      links_.at(peer).left = true;
      arrivals_.push_back({Arrival::What::left, peer, 0, NoticeKind::left, ""});
      return;
    default:
      throw Failure(TUTTI_MISMATCH, "frame " + std::to_string(static_cast<uint32_t>(frame.kind)) +
                                        " came, which is none of the control plane");
  }
}

void ControlMesh::take_notice(uint32_t peer, const Frame& frame) {
  const MeshNotice notice = decode_notice(frame.payload, nranks_);
  if (notice.origin == rank_ || notice.number <= seen_[notice.origin]) return;  // it came another way before
  seen_[notice.origin] = notice.number;
  if (notice.kind == NoticeKind::ask) {
    if (routes_.size() >= kMaxRoutes) routes_.clear();
    routes_[{notice.origin, roll_call_number(notice.bytes)}] = peer;
  }
  const EncodedFrame onward = encode_frame(FrameKind::notice, frame.payload);
  for (auto& [other, link] : links_)
    if (other != peer && other != notice.origin) put(other, onward);
  arrivals_.push_back({Arrival::What::notice, notice.origin, 0, notice.kind, std::string(notice.bytes)});
}

void ControlMesh::take_reply(const Frame& frame) {
  const MeshReply reply = decode_reply(frame.payload, nranks_);
  if (reply.asker == rank_) {
    arrivals_.push_back({Arrival::What::reply, reply.origin, reply.number, NoticeKind::ask, std::string(reply.bytes)});
    return;
  }
  const auto route = routes_.find({reply.asker, reply.number});
  if (route != routes_.end()) put(route->second, encode_frame(FrameKind::reply, frame.payload));
}

void ControlMesh::drop_link(uint32_t peer, std::string why) {
  Link& link = links_.at(peer);
  const bool broke = why.starts_with("broke");
  if (!link.left) {
    pollfd process = {link.process.get(), POLLIN, 0};
    const bool ended = !link.process || ::poll(&process, 1, 100) == 1;
    std::string reason = broke   ? why
                         : ended ? "died: " + ranks_[peer].who + " ended without a goodbye (" + why + ")"
                                 : "is out of reach: the control connection from rank " + std::to_string(rank_) +
                                       " to " + ranks_[peer].who + " broke: " + why;
    arrivals_.push_back({Arrival::What::loss, peer, 0, NoticeKind::loss, std::move(reason)});
  }
  for (const int fd : {link.stream.fd(), link.process.get()}) {
    if (fd < 0) continue;
    unwatch(fd);
    forget_in_children(fd);
    peer_of_.erase(fd);
  }
  links_.erase(peer);
}

void ControlMesh::watch(int fd, int operation, bool writing) {
  epoll_event event = {};
  event.events = EPOLLIN | (writing ? static_cast<uint32_t>(EPOLLOUT) : 0u);
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw Failure(TUTTI_NO_RESOURCES, me() + "epoll_ctl: " + std::strerror(errno));
}

void ControlMesh::unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

Descriptor listen_for(const ControlMeshConfig& config, uint16_t* port) {
  Descriptor listener;
  if (config.everywhere || config.address.family() == AF_UNSPEC) {
    listener = listen_anywhere(0);
  } else {
    listener = listen_on(SocketAddress::from_bytes(config.address.bytes(), 0));
  }
  if (!listener)
    throw Failure(TUTTI_SYSTEM, "rank " + std::to_string(config.rank) +
                                    ": control plane: cannot listen on any port: " + std::strerror(errno));
  *port = SocketAddress::local_of(listener.get()).port();
  return listener;
}

// By which addresses others may reach this rank, the likeliest first.
std::vector<SocketAddress> offered_addresses(const ControlMeshConfig& config, uint16_t port) {
  std::vector<SocketAddress> all;
  if (config.address.family() != AF_UNSPEC) all.push_back(SocketAddress::from_bytes(config.address.bytes(), port));
  if (config.everywhere || all.empty())
    for (const SocketAddress& address : own_addresses(port))
      if (std::find(all.begin(), all.end(), address) == all.end() && all.size() < kMaxMeshAddresses)
        all.push_back(address);
  return all;
}

}  // namespace

std::vector<uint32_t> mesh_neighbours(uint32_t rank, uint32_t nranks) {
  std::set<uint32_t> all;
  for (uint64_t distance = 1; distance < nranks; distance *= 2) {
    all.insert(static_cast<uint32_t>((rank + distance) % nranks));
    all.insert(static_cast<uint32_t>((rank + nranks - distance) % nranks));
  }
  all.erase(rank);
  return {all.begin(), all.end()};
}

std::shared_ptr<ControlPlane> make_control_mesh(const ControlMeshConfig& config, std::chrono::nanoseconds timeout) {
  const Deadline deadline(timeout);
  uint16_t port = 0;
  Descriptor listener = listen_for(config, &port);
  MeshAddress mine;
  mine.addresses = offered_addresses(config, port);
  mine.who = this_process();
  mine.space = process_space();
  mine.process = static_cast<uint32_t>(::getpid());
  mine.token = to_hex(random_bytes(16));
  std::vector<MeshAddress> ranks;
  const auto all = config.all_gather(encode(mine));
  for (const std::string& bytes : all) ranks.push_back(decode_address(bytes));
  auto mesh = std::make_shared<ControlMesh>(config, std::move(listener), std::move(ranks));
  try {
    mesh->link_up(config, deadline);
    // Nobody goes on before all are linked: what is sent from now on reaches everybody.
    config.all_gather("linked");
  } catch (const Failure& failure) {
    mesh->announce(config.rank, failure.status, "could not take part in the control plane: " + failure.text);
    mesh->leave(false);
    throw;
  }
  return mesh;
}

}  // namespace tutti::core
