// SPDX-License-Identifier: Apache-2.0
//
// The connections of one rank to other ranks, and those at its door that have yet to prove that they are ranks: one
// epoll for all of them. A slow or silent guest delays no other.
#pragma once
#include <sys/epoll.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tutti/base/file_descriptor.hpp>
#include <unordered_map>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "frame_stream.hpp"
#include "handshake.hpp"

namespace tutti::core {

// A connection to a rank.
struct ControlLink {
  explicit ControlLink(FrameStream s) : stream(std::move(s)) {}
  FrameStream stream;
  FileDescriptor process;  // polls readable once the rank's process has ended; empty: not watched
  bool writing = false;    // epoll watches for room
  bool left = false;       // for the owner: the rank has said goodbye
};

// One thread at a time, except wait(). The functions that are left to the owner are called from dispatch().
class Links {
 public:
  // `who` begins messages. Throws Failure{TUTTI_NO_RESOURCES}.
  Links(std::string who, const Rendezvous& rendezvous);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  virtual ~Links() = default;

 protected:
  // A guest has proved to know the secret and has sent its hello: welcome or refuse it. Otherwise its connection
  // closes.
  virtual void admit(TcpGuest& /*guest*/) {}
  // Called for each guest that is sent away.
  virtual void turned_away(const std::string& /*text*/) {}
  // A connection cannot be accepted for lack of descriptors or memory. True: the oldest guest gives way, of which there
  // is one; false: it waits.
  virtual bool starved(int /*error*/) { return false; }
  // A frame has come; a Failure thrown here means that the peer broke the protocol.
  virtual void take(uint32_t peer, const Frame& frame) = 0;
  // The link has ended, or the peer `broke` the protocol: drop it.
  virtual void ended(uint32_t peer, const std::string& why, bool broke) = 0;

  // Where others may come from now on. Beyond `most_guests` the oldest gives way.
  void open_door(FileDescriptor listener, std::string secret, size_t most_guests);
  void close_door();
  bool has_guests() const { return !guests_.empty(); }
  // Nothing happens when there is a link to the peer already.
  void add(uint32_t peer, FrameStream stream);
  // Makes a guest a peer, and serves what it has sent along with its hello.
  void welcome(TcpGuest& guest, uint32_t own_rank, uint32_t peer, uint32_t nranks);
  void refuse(TcpGuest& guest, const Failure& why);
  void watch_process(uint32_t peer, FileDescriptor process);
  void drop(uint32_t peer);
  // Puts a frame and sends what the socket takes. Nothing happens where there is no link.
  void put(uint32_t peer, std::string_view frame);
  void put(uint32_t peer, FrameKind kind, std::string_view payload) { put(peer, encode_frame(kind, payload)); }
  // Has any peer not taken all that was put?
  bool has_unsent() const;
  // Sends and reads what is possible.
  void read_link(uint32_t peer);

  // Has `action` called by dispatch() once something has happened at `fd`.
  void watch(int fd, std::function<void()> action);
  // The descriptors at which something has happened within `timeout_ms` (-1: any time), for dispatch(). Any thread.
  std::vector<int> wait(int timeout_ms) const;
  void dispatch(int fd);
  // Closes the connections of guests whose time is up.
  void turn_away_late();
  // Milliseconds until the next guest's time is up, at most `most`. -1 means without limit.
  int patience_ms(int most) const;

  // All links, now and earlier.
  Traffic all_traffic() const;

  std::map<uint32_t, ControlLink> links_;  // by rank
  uint64_t longest_ = 0;            // no peer sends longer frames
  const BootstrapLog log_;
  const std::shared_ptr<const Tls> tls_;

 private:
  void control(int fd, int operation, bool writing);
  void unwatch(int fd);
  void accept_guests();
  void turn_away(uint64_t number, const std::string& why);
  void talk(uint64_t number);
  void push(uint32_t peer);

  const std::string who_;
  const std::chrono::nanoseconds patience_;  // with a guest
  const FileDescriptor epoll_;
  FileDescriptor listener_;  // the door
  std::string secret_;
  size_t most_guests_ = 0;
  std::map<uint64_t, TcpGuest> guests_;  // by order of arrival, which is that of their limits
  uint64_t guests_seen_ = 0;
  std::unordered_map<int, std::function<void()>> watched_;  // by descriptor
  Traffic closed_traffic_;                                  // of links that are no more
};

}  // namespace tutti::core
