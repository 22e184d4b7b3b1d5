// SPDX-License-Identifier: Apache-2.0
//
// The mesh itself (control_mesh.hpp): one rank's links and the thread that serves them.
//   mesh.cpp           what goes over the links
//   control_mesh.cpp   how the links come about: listening, connecting, admitting
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control_mesh.hpp"
#include "links.hpp"
#include "packet.hpp"

namespace tutti::core {

class ControlMesh final : public ControlPlane, private Links {
 public:
  ControlMesh(const Meeting& meeting, const Rendezvous& rendezvous, Descriptor listener, const std::string& token);
  ~ControlMesh() override;

  // Connects to all neighbours; `next` is how the next rank is reached.
  void link_up(Meeting& meeting, const MeshAddress& next, const Deadline& deadline);
  // Tells all others what this rank is, and learns the same of them.
  void get_acquainted(const Deadline& deadline);
  Traffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return all_traffic();
  }
  std::string who(uint32_t rank) const override {
    const std::lock_guard lock(mutex_);
    return ranks_[rank].who;
  }

 protected:
  void say_goodbye() override;
  void send(Packet packet) override;

 private:
  // News from links, to be processed without the lock. `rank` is to blame when that fails.
  struct Arrival {
    uint32_t rank;
    std::function<void()> process;
  };

  void connect_to_rank(Meeting& meeting, uint32_t peer, const Deadline& deadline);
  // Waits for other ranks until `done`, called with the lock, holds; what else can end it is thrown.
  template <typename Done>
  void await(Meeting& meeting, uint32_t peer, const Deadline& deadline, const std::string& why, Done&& done);
  void check_others(Meeting& meeting);
  [[noreturn]] void not_linked(uint32_t peer, const Deadline& deadline, const std::string& why);

  // The thread. With the lock:
  void admit(TcpGuest& guest) override;
  // Guests are ranks, most likely: this rank cannot take part.
  bool starved(int error) override {
    starved_ = error;
    return false;
  }
  void take(uint32_t peer, const Frame& frame) override;
  void ended(uint32_t peer, const std::string& why, bool broke) override;
  void take_packet(uint32_t peer, const Frame& frame);
  void take_address(uint32_t peer, const Frame& frame);
  // Passes a packet on by its route: this rank's, or one that came from `from`.
  void pass_on(const Packet& packet, uint32_t from);
  // ... and without it:
  void run();

  const std::string secret_, token_;
  const std::shared_ptr<const Tls> tls_;
  const BootstrapLog log_;

  mutable std::mutex mutex_;        // guards all that follows, and Links
  std::condition_variable linked_;  // links have come, or, once this rank leaves, gone
  Descriptor stop_event_;
  std::vector<MeshIdentity> ranks_;
  std::map<uint32_t, MeshAddress> addresses_;  // of neighbours, as they become known
  int starved_ = 0;                            // why a connection could not be accepted
  std::vector<Arrival> arrivals_;
  std::vector<uint64_t> floods_;                              // by origin: the last flood's serial
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> routes_;  // of a roll call (who asked, its number): where from
  bool leaves_ = false;                                       // this rank has said goodbye
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::core
