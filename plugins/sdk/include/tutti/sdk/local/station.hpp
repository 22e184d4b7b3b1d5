// SPDX-License-Identifier: Apache-2.0
//
// The things that the endpoints of one rank share, so that a rank of many communicators needs no descriptors for each
// of them: a doorway, one descriptor to sleep on, the file with their doorbell pages, and a socket to each other rank's
// station. The sockets carry Lines: each link has one, as if it had a socket of its own.
//
//   station A                                 station B
//     Member (endpoint of world)  ---- Line 0 ----  Member
//     Member (endpoint of a part) ---- Line 2 ----  Member
//                  one Connection, a unix socket
//
// A member that reads the sockets hands the others what is theirs, and wakes those that sleep.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/local/host_barrier.hpp>
#include <tutti/sdk/local/memory_file.hpp>
#include <tutti/sdk/local/segment.hpp>
#include <tutti/sdk/local/shared_by_key.hpp>
#include <tutti/sdk/sleeper.hpp>
#include <utility>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

class Station;
struct LineEnd;

// An endpoint's end of what two ranks say to each other: packets of at most Packet::kMaxPayload bytes, whole and in
// order, with descriptors, and at last that the other end is closed. [progress], as the endpoint that owns it.
class Line {
 public:
  Line() = default;
  Line(std::shared_ptr<Station> station, std::shared_ptr<LineEnd> end)
      : station_(std::move(station)), end_(std::move(end)) {}
  Line(Line&& other) noexcept = default;
  Line& operator=(Line&& other) noexcept {
    close();
    station_ = std::move(other.station_);
    end_ = std::move(other.end_);
    return *this;
  }
  ~Line() { close(); }
  explicit operator bool() const { return end_ != nullptr; }

  // Closes the line at the other end, too, after a last packet of a few bytes.
  template <typename T>
  void close(const T& last) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(LastWord));
    close({reinterpret_cast<const char*>(&last), sizeof last});
  }
  void close() noexcept { close(std::string_view()); }
  // As Socket's. A line that is closed here is closed at its other end, too.
  Packet receive();
  Socket::Sent send_bytes(std::string_view packet, std::span<const int> descriptors) noexcept;
  template <typename T>
  Socket::Sent send(const T& what, std::span<const int> descriptors = {}) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= Packet::kMaxPayload);
    return send_bytes({reinterpret_cast<const char*>(&what), sizeof what}, descriptors);
  }
  template <typename T>
  Socket::Sent send(const T& what, std::initializer_list<int> descriptors) noexcept {
    return send(what, std::span(descriptors.begin(), descriptors.size()));
  }
  // It has ended because there was no memory here for what the other end sent.
  bool lacked_memory() const;
  // The process at the other end; 0: it is not known here.
  pid_t process() const;
  // The other end's station has this name: members of this one may speak to it over the same socket.
  void name_station(const Token& name);

 private:
  friend class Station;
  using LastWord = std::array<char, 16>;
  void close(std::string_view last) noexcept;

  std::shared_ptr<Station> station_;
  std::shared_ptr<LineEnd> end_;
};

// [any thread, except where Member states otherwise]
class Station : public std::enable_shared_from_this<Station> {
 public:
  class Member;
  // Before each packet of a connection but the first one, which is a Knock and opens line 0.
  struct Header {
    enum Kind : uint32_t { kPacket = 1, kOpen, kClose };
    uint32_t line;
    uint32_t kind;
  };
  static_assert(sizeof(Header) == Packet::kMaxBytes - Packet::kMaxPayload);

  // A rank that has come to a member by its invitation.
  struct Guest {
    uint32_t peer;
    Line line;
    Packet packet;  // what it brought; may be truncated
  };

  // One endpoint's part. [progress], as the endpoint that owns it.
  class Member {
   public:
    // With a doorbell page of so many bytes. Throws Error.
    Member(std::shared_ptr<Station> station, uint64_t page_bytes);
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    Station& station() const { return *station_; }
    Doorbell& doorbell() const { return *reinterpret_cast<Doorbell*>(page_->data()); }
    // Where the page begins in the station's file.
    uint64_t page_offset() const { return page_offset_; }

    // Lets `peer` come to this member once; a number that it presents besides the invitation's token.
    std::pair<Invitation, uint32_t> invite(uint32_t peer);
    void uninvite(uint32_t peer);
    // The peers that are invited and have not come.
    std::vector<uint32_t> awaited();
    // Goes to the doorway of a peer that has invited this member. Nothing: it is crowded now. Throws Error.
    std::optional<Line> visit(uint32_t peer, const Invitation& invitation, uint32_t number,
                              const std::vector<int>& descriptors);

    // Reads what has come for all members. False: another thread is at the station, and nothing was read; progress
    // waits for no lock. Throws Error where no connection can be accepted and this one waits for one.
    bool read();
    // The same before a sleep; another thread at the station counts as news.
    bool has_news();
    // The peers whose lines have something to receive, and those who have come.
    std::vector<uint32_t> take_news();
    std::vector<Guest> take_guests();

    // Sleeping: between arm and disarm, a ring of the doorbell makes the station's descriptor readable. Disarming
    // clears it, unless it is to be readable for others; after an arm() that did not lead to sleep there is no need to.
    void arm();
    void disarm(bool clears = true);

   private:
    friend class Station;
    const std::shared_ptr<Station> station_;
    const uint64_t page_offset_;
    const std::shared_ptr<Mapping> page_;
    std::atomic<bool> armed_{false};
    // The station's mutex guards these. `has_news_`: there are some, for those who do not hold it.
    std::atomic<bool> has_news_{false};
    std::vector<uint32_t> news_;  // has room for all lines
    size_t lines_ = 0;
    std::vector<Guest> guests_;
    std::map<uint32_t, uint32_t> invited_;  // numbers, by peer
    std::optional<Error> trouble_;          // a guest could not be let in
  };

  // The station of this process's endpoints of one family (tutti_endpoint_config), or for 0 a new one. Throws Error.
  static std::shared_ptr<Station> of(uint64_t family) {
    static auto& stations = *new SharedByKey<uint64_t, Station>;  // threads may outlive static destruction
    if (family == 0) return std::make_shared<Station>();
    return stations.get(
        family, [](const Station&) { return true; }, [] { return std::make_unique<Station>(); });
  }
  Station() : eventfd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!eventfd_) throw system_error(errno, "{}: eventfd", plugin_id);
    sleeper_.watch(eventfd_.get(), EPOLLIN, kEventfd);
    sleeper_.watch(door_.fd(), EPOLLIN, kDoorway);
  }

  // Readable when a member has something to do.
  int descriptor() const { return sleeper_.descriptor(); }
  int eventfd_descriptor() const { return eventfd_.get(); }
  // The file of all members' doorbell pages.
  int doorbell_file() const { return pages_.descriptor(); }
  // Has this station's name, and no token.
  const Invitation& place() const { return door_.place(); }
  void check_place(const Invitation& place) const { door_.check_place(place); }
  // A line over a connected socket, whose other end speaks as a station that has come; for tests.
  Line adopt(Member& member, uint32_t peer, Socket socket);

 private:
  friend class Line;
  friend struct LineEnd;
  static constexpr uint64_t kEventfd = UINT32_MAX, kDoorway = UINT32_MAX - 1;
  // A line with more packets than that, which nobody receives, is closed: no rank sends so many.
  static constexpr size_t kMostWaiting = 1u << 16;

  struct Closing {
    uint32_t line;
    size_t bytes;  // of the last word
    Line::LastWord last;
  };
  // A packet for a member. Files among its descriptors are held once in a process, however many lines they came by.
  struct Held {
    Packet packet;
    std::array<std::shared_ptr<FileDescriptor>, Packet::kMaxDescriptors> files;
  };
  static Held hold(Packet packet);
  static Packet give(Held held);

  // A socket to another station. Lines have even numbers where the end that has dialed opens them, else odd ones.
  struct Connection {
    uint64_t mark;
    Socket socket;
    uint32_t next_line;
    bool is_let_in;  // at the other station, whose member may have withdrawn the invitation
    std::optional<Token> name;  // of the other station
    std::map<uint32_t, std::shared_ptr<LineEnd>> lines;
    std::vector<Closing>
        closing;  // of which the other station was not told: its socket was full. Has room for all lines
    bool waits_for_room = false;  // the sleeper tells of it
  };
  // One file, of which each member has whole pages. It grows and cannot shrink.
  class Pages {
   public:
    int descriptor() const { return file_.get(); }
    uint64_t take(uint64_t bytes);
    void give_back(uint64_t offset, uint64_t bytes) {
      std::fill_n(used_.begin() + static_cast<ptrdiff_t>(offset / kPage), bytes / kPage, false);
    }

   private:
    FileDescriptor file_;
    std::vector<bool> used_;  // by page
  };

  Connection& connect(Socket socket, uint32_t next_line) {
    const uint64_t mark = next_mark_++;
    sleeper_.watch(socket.get(), EPOLLIN, mark);
    Connection made{mark, std::move(socket), next_line, next_line == 1, {}, {}, {}};
    return connections_.emplace(mark, std::move(made)).first->second;
  }
  static std::shared_ptr<LineEnd> open(Connection& connection, uint32_t line, Member& member, uint32_t peer);
  static Socket::Sent send(Connection& connection, uint32_t line, Header::Kind kind, std::string_view payload,
                           std::span<const int> descriptors = {}) noexcept {
    std::array<char, Packet::kMaxBytes> packet;
    const Header header{line, kind};
    std::memcpy(packet.data(), &header, sizeof header);
    if (!payload.empty()) std::memcpy(packet.data() + sizeof header, payload.data(), payload.size());
    return connection.socket.send_bytes({packet.data(), sizeof header + payload.size()}, descriptors);
  }

  uint64_t take_page(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return pages_.take(bytes);
  }
  void give_back_page(uint64_t offset, uint64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    pages_.give_back(offset, bytes);
  }

  // The mutex is held in the following. `reader`: the member that reads, which needs no waking; or nullptr.
  void read_all(Member& reader);
  void read(uint64_t mark, const Member* reader);
  void take(Connection& connection, Packet& packet, const Member* reader);
  void let_in(Connection& connection, uint32_t line, Packet& packet, const Member* reader);
  void welcome(uint32_t number, Connection& connection, uint32_t line, Packet& packet, const Member* reader);
  void trouble(Member& member, const Error& why, const Member* reader);
  static Error out_of_memory() { return {TUTTI_NO_RESOURCES, "out of memory"}; }  // as short as a string has room for
  void drop(uint64_t mark, const Member* reader);
  void note(LineEnd& end, const Member* reader);
  void wake(Member& member, const Member* reader);
  void close(LineEnd& end, std::string_view last) noexcept;
  // Closes a line at its other end.
  void hang_up(Connection& connection, uint32_t line, std::string_view last = {}) noexcept;
  void tell_closed(Connection& connection) noexcept;
  void ring() const noexcept {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the descriptor is readable anyhow.
    [[maybe_unused]] const ssize_t written = write(eventfd_.get(), &one, sizeof one);
  }
  void read_eventfd() noexcept;
  // Is there nothing to read? Without the mutex.
  bool is_idle() const noexcept {
    if (is_busy_.load(std::memory_order_seq_cst)) return false;
    pollfd waits{sleeper_.descriptor(), POLLIN, 0};
    return poll(&waits, 1, 0) == 0;
  }

  std::mutex mutex_;
  std::atomic<bool> is_busy_{false};  // there are strangers at the doorway
  Sleeper sleeper_;
  FileDescriptor eventfd_;
  Doorway door_;
  Pages pages_;
  std::map<uint64_t, Connection> connections_;  // by mark
  uint64_t next_mark_ = 0;
  std::map<uint32_t, std::pair<Member*, uint32_t>> invited_;  // member and peer, by the number of the invitation
  uint32_t next_number_ = 0;
  std::vector<Member*> members_;
};

struct LineEnd {
  Station::Connection* connection;  // nullptr: the other end is closed
  uint32_t line;
  Station::Member* member;  // nullptr: this end is closed
  uint32_t peer;
  bool noted = false;  // in the member's news
  bool lacked_memory = false;
  std::deque<Station::Held> packets;
};

// ---- lines

inline void Line::close(std::string_view last) noexcept {
  if (!end_) return;
  const std::lock_guard lock(station_->mutex_);
  station_->close(*end_, last);
  end_ = nullptr;
}

inline Packet Line::receive() {
  Packet packet;
  packet.outcome = Packet::kClosed;
  if (!end_) return packet;
  const std::lock_guard lock(station_->mutex_);
  if (end_->packets.empty() && end_->connection) station_->read(end_->connection->mark, end_->member);
  end_->noted = false;
  if (!end_->packets.empty()) {
    packet = Station::give(std::move(end_->packets.front()));
    end_->packets.pop_front();
  } else if (end_->connection) {
    packet.outcome = Packet::kNothing;
  }
  return packet;
}

inline Socket::Sent Line::send_bytes(std::string_view packet, std::span<const int> descriptors) noexcept {
  if (!end_) return Socket::kGone;
  const std::lock_guard lock(station_->mutex_);
  if (!end_->connection) return Socket::kGone;
  return Station::send(*end_->connection, end_->line, Station::Header::kPacket, packet, descriptors);
}

inline bool Line::lacked_memory() const {
  if (!end_) return false;
  const std::lock_guard lock(station_->mutex_);
  return end_->lacked_memory;
}

inline pid_t Line::process() const {
  if (!end_) return 0;
  const std::lock_guard lock(station_->mutex_);
  return end_->connection ? end_->connection->socket.process() : 0;
}

inline void Line::name_station(const Token& name) {
  if (!end_) return;
  const std::lock_guard lock(station_->mutex_);
  if (end_->connection && !end_->connection->name) end_->connection->name = name;
}

// ---- members

inline Station::Member::Member(std::shared_ptr<Station> station, uint64_t page_bytes)
    : station_(std::move(station)), page_offset_(station_->take_page(page_bytes)), page_([&] {
        try {
          return map_shared(station_->doorbell_file(), page_offset_, page_bytes);
        } catch (...) {
          station_->give_back_page(page_offset_, page_bytes);
          throw;
        }
      }()) {
  // It may have been another member's, whose peers can still ring.
  for (uint64_t at = 0; at < page_bytes; at += sizeof(uint64_t))
    std::atomic_ref(*reinterpret_cast<uint64_t*>(page_->data() + at)).store(0, std::memory_order_relaxed);
  doorbell().barriers.store(host_barrier_ready(), std::memory_order_relaxed);
  try {
    const std::lock_guard lock(station_->mutex_);
    station_->members_.push_back(this);
  } catch (...) {
    station_->give_back_page(page_offset_, page_bytes);
    throw;
  }
}

inline Station::Member::~Member() {
  take_guests();
  station_->give_back_page(page_offset_, page_->bytes());
  const std::lock_guard lock(station_->mutex_);
  for (const auto& [peer, number] : invited_) {
    station_->door_.uninvite(number);
    station_->invited_.erase(number);
  }
  std::erase(station_->members_, this);
}

inline std::pair<Invitation, uint32_t> Station::Member::invite(uint32_t peer) {
  uninvite(peer);
  const std::lock_guard lock(station_->mutex_);
  const uint32_t number = invited_[peer] = station_->next_number_++;
  station_->invited_[number] = {this, peer};
  return {station_->door_.invite(number), number};
}

inline void Station::Member::uninvite(uint32_t peer) {
  const std::lock_guard lock(station_->mutex_);
  const auto found = invited_.find(peer);
  if (found == invited_.end()) return;
  station_->door_.uninvite(found->second);
  station_->invited_.erase(found->second);
  invited_.erase(found);
}

inline std::vector<uint32_t> Station::Member::awaited() {
  const std::lock_guard lock(station_->mutex_);
  std::vector<uint32_t> peers;
  for (const auto& [peer, number] : invited_) peers.push_back(peer);
  return peers;
}

inline std::optional<Line> Station::Member::visit(uint32_t peer, const Invitation& invitation, uint32_t number,
                                                  const std::vector<int>& descriptors) {
  const std::lock_guard lock(station_->mutex_);
  for (auto& [mark, connection] : station_->connections_) {
    if (connection.name != invitation.name || !connection.is_let_in) continue;
    const Knock knock{.guest = number, .token = invitation.token};
    const uint32_t line = connection.next_line;
    std::shared_ptr<LineEnd> end = open(connection, line, *this, peer);
    const Socket::Sent sent =
        send(connection, line, Header::kOpen, {reinterpret_cast<const char*>(&knock), sizeof knock}, descriptors);
    if (sent == Socket::kSent) {
      connection.next_line += 2;
      return Line(station_, std::move(end));
    }
    connection.lines.erase(line);
    --lines_;
    if (sent == Socket::kGone) throw Error(TUTTI_PEER_FAILED, "it closed the connection");
    return std::nullopt;
  }
  std::optional<Socket> socket = station_->door_.visit(invitation, number, descriptors);
  if (!socket) return std::nullopt;
  Connection& connection = station_->connect(std::move(*socket), 2);
  connection.name = invitation.name;
  return Line(station_, open(connection, 0, *this, peer));
}

inline bool Station::Member::read() {
  if (!has_news_.load(std::memory_order_seq_cst) && station_->is_idle()) return true;
  const std::unique_lock lock(station_->mutex_, std::try_to_lock);
  if (!lock) return false;
  station_->read_all(*this);
  if (trouble_) throw *std::exchange(trouble_, std::nullopt);
  return true;
}

inline bool Station::Member::has_news() {
  if (has_news_.load(std::memory_order_seq_cst)) return true;
  if (station_->is_idle()) return false;
  const std::unique_lock lock(station_->mutex_, std::try_to_lock);
  if (!lock) return true;
  station_->read_all(*this);
  return has_news_.load(std::memory_order_relaxed);
}

inline std::vector<uint32_t> Station::Member::take_news() {
  if (!has_news_.load(std::memory_order_seq_cst)) return {};
  const std::lock_guard lock(station_->mutex_);
  std::vector<uint32_t> news = news_;
  news_.clear();
  has_news_.store(!guests_.empty() || trouble_, std::memory_order_seq_cst);
  return news;
}

inline std::vector<Station::Guest> Station::Member::take_guests() {
  if (!has_news_.load(std::memory_order_seq_cst)) return {};
  const std::lock_guard lock(station_->mutex_);
  std::vector<Guest> guests = std::exchange(guests_, {});
  has_news_.store(!news_.empty() || trouble_, std::memory_order_seq_cst);
  return guests;
}

// A thread that notes news stores them first and looks for armed members then; this one arms first and looks for news
// then.
inline void Station::Member::arm() {
  armed_.store(true, std::memory_order_seq_cst);
  doorbell().sleeps.store(1, std::memory_order_seq_cst);
  if (host_barrier_ready()) host_barrier();
}

// Where another thread is at the station the descriptor stays readable until the next read().
inline void Station::Member::disarm(bool clears) {
  doorbell().sleeps.store(0, std::memory_order_seq_cst);
  armed_.store(false, std::memory_order_seq_cst);
  if (!clears) return;
  if (const std::unique_lock lock(station_->mutex_, std::try_to_lock); lock) station_->read_eventfd();
}

// ---- the station

inline uint64_t Station::Pages::take(uint64_t bytes) {
  const size_t pages = bytes / kPage;
  size_t first = 0, free = 0;
  for (size_t page = 0; page < used_.size() && free < pages; ++page) {
    free = used_[page] ? 0 : free + 1;
    if (free == 1) first = page;
  }
  if (free == 0) first = used_.size();
  if (first + pages > used_.size()) {
    if (!file_) file_ = make_memory_file(fmt::format("tutti-{}-doorbells", plugin_id), 0, true);
    resize_memory_file(file_.get(), (first + pages) * kPage);
    used_.resize(first + pages);
  }
  std::fill_n(used_.begin() + static_cast<ptrdiff_t>(first), pages, true);
  return first * kPage;
}

inline std::shared_ptr<LineEnd> Station::open(Connection& connection, uint32_t line, Member& member, uint32_t peer) {
  connection.closing.reserve(connection.closing.size() + connection.lines.size() + 2);
  member.news_.reserve(member.news_.size() + member.lines_ + 1);
  auto& end = connection.lines[line] = std::make_shared<LineEnd>(LineEnd{&connection, line, &member, peer});
  ++member.lines_;
  return end;
}

inline Line Station::adopt(Member& member, uint32_t peer, Socket socket) {
  const std::lock_guard lock(mutex_);
  return Line(shared_from_this(), open(connect(std::move(socket), 1), 0, member, peer));
}

inline void Station::read_all(Member& reader) {
  bool knocked = door_.has_strangers();
  for (auto& [mark, connection] : connections_)
    if (connection.waits_for_room) tell_closed(connection);
  std::vector<uint64_t> marks;
  for (const epoll_event& event : sleeper_.ready())
    if (event.data.u64 == kDoorway)
      knocked = true;
    else if (event.data.u64 == kEventfd)
      read_eventfd();
    else
      marks.push_back(event.data.u64);
  for (const uint64_t mark : marks) read(mark, &reader);
  if (!knocked) return;
  try {
    door_.look([&](uint32_t number, Socket socket, Packet& packet) {
      Member& member = *invited_.at(number).first;
      try {
        welcome(number, connect(std::move(socket), 1), 0, packet, &reader);
      } catch (const Error& error) {
        trouble(member, error, &reader);
      } catch (const std::bad_alloc&) {
        trouble(member, out_of_memory(), &reader);
      }
    });
  } catch (const Error& error) {  // it is not known who was to come, so all that wait for a peer get it
    for (const auto& [number, invited] : invited_) trouble(*invited.first, error, &reader);
  } catch (const std::bad_alloc&) {
    for (const auto& [number, invited] : invited_) trouble(*invited.first, out_of_memory(), &reader);
  }
  is_busy_.store(door_.has_strangers(), std::memory_order_seq_cst);
}

inline void Station::read(uint64_t mark, const Member* reader) {
  for (auto found = connections_.find(mark); found != connections_.end(); found = connections_.find(mark)) {
    Packet packet = found->second.socket.receive();
    if (packet.outcome == Packet::kNothing) return;
    if (packet.outcome == Packet::kClosed || packet.bytes < sizeof(Header)) return drop(mark, reader);
    take(found->second, packet, reader);
  }
}

inline void Station::take(Connection& connection, Packet& packet, const Member* reader) {
  connection.is_let_in = true;
  Header header;
  std::memcpy(&header, packet.data.data(), sizeof header);
  packet.bytes -= sizeof header;
  std::memmove(packet.data.data(), packet.data.data() + sizeof header, packet.bytes);
  const auto found = connection.lines.find(header.line);
  if (header.kind == Header::kOpen && found == connection.lines.end())
    return let_in(connection, header.line, packet, reader);
  if (found == connection.lines.end()) return;  // closed here, and the other end does not know it yet
  const std::shared_ptr<LineEnd> end = found->second;
  bool ends = header.kind != Header::kPacket || end->packets.size() == kMostWaiting;
  if (!ends) try {
      end->packets.push_back(hold(std::move(packet)));
    } catch (const std::bad_alloc&) {
      ends = end->lacked_memory = true;  // it cannot miss one
    }
  if (ends) {
    end->connection = nullptr;
    connection.lines.erase(found);
    if (header.kind != Header::kClose) hang_up(connection, header.line);
  }
  note(*end, reader);
}

inline Station::Held Station::hold(Packet packet) {
  // Anonymous inodes, of eventfds say, are all one.
  using File = std::pair<dev_t, ino_t>;
  static auto& files = *new SharedByKey<File, FileDescriptor>;  // threads may outlive static destruction
  Held held;
  for (size_t i = 0; i < packet.descriptor_count; ++i) {
    struct stat status {};
    if (fstat(packet.descriptors[i].get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    held.files[i] = files.get(
        File{status.st_dev, status.st_ino}, [](const FileDescriptor&) { return true; },
        [&] { return std::make_unique<FileDescriptor>(std::move(packet.descriptors[i])); });
    packet.descriptors[i].reset();
  }
  held.packet = std::move(packet);
  return held;
}

inline Packet Station::give(Held held) {
  for (size_t i = 0; i < held.packet.descriptor_count; ++i) {
    if (!held.files[i]) continue;
    held.packet.descriptors[i] = FileDescriptor(fcntl(held.files[i]->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!held.packet.descriptors[i]) held.packet.truncated = true;
  }
  return std::move(held.packet);
}

inline void Station::let_in(Connection& connection, uint32_t line, Packet& packet, const Member* reader) {
  const std::optional<uint32_t> number =
      line % 2 == connection.next_line % 2 ? std::nullopt : door_.presented({packet.data.data(), packet.bytes});
  if (!number) {
    log(TUTTI_LOG_WARN, "a connection without a valid token was refused");
    connection.closing.reserve(connection.closing.size() + connection.lines.size() + 2);
    return hang_up(connection, line);
  }
  Member& member = *invited_.at(*number).first;
  try {
    welcome(*number, connection, line, packet, reader);
  } catch (const std::bad_alloc&) {
    trouble(member, out_of_memory(), reader);
  }
}

inline void Station::welcome(uint32_t number, Connection& connection, uint32_t line, Packet& packet,
                             const Member* reader) {
  const auto [member, peer] = invited_.at(number);
  member->guests_.reserve(member->guests_.size() + 1);  // a Guest must not end here, where the mutex is held
  std::shared_ptr<LineEnd> end = open(connection, line, *member, peer);
  invited_.erase(number);
  member->invited_.erase(peer);
  member->guests_.push_back({peer, Line(shared_from_this(), std::move(end)), std::move(packet)});
  wake(*member, reader);
}

// A peer that was to come cannot: those that the member still awaits are refused.
inline void Station::trouble(Member& member, const Error& why, const Member* reader) {
  member.trouble_ = why;
  wake(member, reader);
}

inline void Station::drop(uint64_t mark, const Member* reader) {
  const auto connection = connections_.extract(mark);
  for (const auto& [line, end] : connection.mapped().lines) {
    end->connection = nullptr;
    note(*end, reader);
  }
}

inline void Station::note(LineEnd& end, const Member* reader) {
  if (!end.member || std::exchange(end.noted, true)) return;
  end.member->news_.push_back(end.peer);
  wake(*end.member, reader);
}

inline void Station::wake(Member& member, const Member* reader) {
  member.has_news_.store(true, std::memory_order_seq_cst);
  if (&member == reader || !member.armed_.load(std::memory_order_seq_cst)) return;
  member.doorbell().sleeps.store(0, std::memory_order_seq_cst);
  ring();  // also where a peer has cleared the word before: it may have ended before it rang
}

inline void Station::close(LineEnd& end, std::string_view last) noexcept {
  if (Member* const member = std::exchange(end.member, nullptr)) --member->lines_;
  if (Connection* const connection = std::exchange(end.connection, nullptr)) {
    connection->lines.erase(end.line);
    hang_up(*connection, end.line, last);
  }
}

inline void Station::hang_up(Connection& connection, uint32_t line, std::string_view last) noexcept {
  Closing closing{line, last.size(), {}};
  last.copy(closing.last.data(), closing.last.size());
  connection.closing.push_back(closing);
  tell_closed(connection);
}

inline void Station::tell_closed(Connection& connection) noexcept {
  std::erase_if(connection.closing, [&](Closing& closing) {
    if (closing.bytes > 0) {
      if (send(connection, closing.line, Header::kPacket, {closing.last.data(), closing.bytes}) == Socket::kFull)
        return false;
      closing.bytes = 0;
    }
    return send(connection, closing.line, Header::kClose, {}) != Socket::kFull;
  });
  const bool waits = !connection.closing.empty();
  if (waits == connection.waits_for_room) return;
  try {
    sleeper_.change(connection.socket.get(), waits ? EPOLLIN | EPOLLOUT : EPOLLIN, connection.mark);
    connection.waits_for_room = waits;
  } catch (const std::exception&) {  // another close tries again
  }
}

// A member that was rung and is not awake yet still needs the descriptor to be readable. A ring clears the word first
// and writes then: one that is read here too early is seen by its word.
inline void Station::read_eventfd() noexcept {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(eventfd_.get(), &count, sizeof count);
  for (const Member* member : members_)
    if (member->armed_.load(std::memory_order_seq_cst) && member->doorbell().sleeps.load(std::memory_order_seq_cst) == 0)
      return ring();
}

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
