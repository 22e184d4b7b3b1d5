// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a communicator meet, exchange a few bytes before any transport exists, and learn of each other's
// end while it lives. The control plane carries all of it once they have met.
#pragma once
#include <tutti/plugin/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "bootstrap/control_plane.hpp"

namespace tutti {
template <typename Error>
class BasicTls;  // <tutti/sdk/basic_tls.hpp>
}

namespace tutti::core {

using Tls = BasicTls<Failure>;
class Trunk;

// The most ranks of a world.
inline constexpr uint32_t kMaxRanks = 1u << 20;

// One rank's view of the ranks that have met, and the control plane between them.
//
// Threads: one thread at a time. Ranks that are threads of one process have a Bootstrap each.
// The destructor tells the others of an orderly end; a process that ends without it counts as lost.
class Bootstrap {
 public:
  // `secret`, `address`, `next_place`: what the functions of these names give. `trunk`: lives as long as this object.
  Bootstrap(std::shared_ptr<ControlPlane> control, std::string secret, std::string address,
            std::function<std::string()> next_place, std::shared_ptr<Trunk> trunk = nullptr)
      : trunk_(std::move(trunk)),
        control_(std::move(control)),
        secret_(std::move(secret)),
        address_(std::move(address)),
        next_place_(std::move(next_place)) {}
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  // A branch has a control plane of its own; all else is as with `parent`.
  Bootstrap(std::shared_ptr<ControlPlane> control, const Bootstrap& parent, std::shared_ptr<Trunk> trunk)
      : Bootstrap(std::move(control), parent.secret_, parent.address_, parent.next_place_, std::move(trunk)) {}
  ~Bootstrap() { control_->leave(false); }

  uint32_t rank() const { return control_->rank(); }
  uint32_t nranks() const { return control_->nranks(); }

  // ControlPlane's. nanoseconds::max() waits for ever.
  std::vector<std::string> all_gather(const std::string& mine, const Deadline& deadline) {
    return control_->all_gather(mine, deadline);
  }
  std::vector<std::string> all_gather(const std::string& mine, std::chrono::nanoseconds timeout) {
    return all_gather(mine, Deadline(timeout));
  }

  // Tells all other ranks, best effort and without waiting long, that this rank ends abnormally: their gathers then
  // end, and their control planes name it. `reason` goes on after "rank 3 ".
  void announce_failure(tutti_status status, const std::string& reason) noexcept {
    control_->announce(rank(), status, reason);
  }

  // This rank goes in order, and so do all others: they need not be told. Before the destructor.
  void leave_together() noexcept { control_->leave(true); }

  // The connections that stay between the ranks: losses, notices, roll calls. Any thread, as long as this object lives.
  ControlPlane& control() { return *control_; }

  // A new rendezvous at which all ranks of this one can meet again, with the caller as rank 0.
  std::string next_place() const { return next_place_(); }

  // The numeric address by which the others reach this rank, "" where the meeting did not know it.
  const std::string& address() const { return address_; }

  // Bytes that all ranks know and, where the rendezvous is protected, nobody else. Empty: there are none.
  const std::string& secret() const { return secret_; }

 private:
  const std::shared_ptr<Trunk> trunk_;
  const std::shared_ptr<ControlPlane> control_;
  const std::string secret_, address_;
  const std::function<std::string()> next_place_;
};

// An all-gather of the application: `mine` is `bytes` long, `all` has room for nranks * bytes, in rank order. Blocks.
// It is called by make_bootstrap only.
using AllGatherFunction = tutti_status (*)(void* context, const void* mine, uint64_t bytes, void* all);
// The value of a variable, or nullptr when it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;
// Receives messages that are not errors. `level` is TUTTI_LOG_*.
using BootstrapLog = std::function<void(uint32_t level, const std::string& text)>;

// The rendezvous: place and rank.
//
//   where               meeting
//   "" or "env"         as the launcher's environment says (environment.hpp); a world of one where there is no launcher
//   "tcp://HOST:PORT"   rank 0 listens there, the others connect
//   "id:..."            a text of make_unique_id, passed around by the application
//   "file:/FOLDER"      an existing folder that all ranks share
//   "local:NAME"        ranks are threads of this process; the name is free again once all have met
//   (all_gather set)    over the application's function
struct Rendezvous {
  std::string where;
  int64_t rank = -1;    // -1: from the environment (not for local: and callbacks)
  int64_t nranks = -1;  // -1: from the environment
  // id: only. The last `newcomers` ranks do not know their numbers: they set `joins`, and rank 0 numbers them in order
  // of arrival.
  uint32_t newcomers = 0;
  bool joins = false;
  // id: and local: only. The reason why some rank cannot come, from a source of the caller's; "" while all can. The
  // thread that meets calls it now and then. nullptr: there is no such source.
  std::function<std::string()> obstacle = nullptr;
  AllGatherFunction all_gather = nullptr;
  void* context = nullptr;
  bool timed = false;  // all_gather obeys the timeout, so its time is a part of it
  EnvironmentLookup environment = nullptr;  // nullptr: getenv
  BootstrapLog log = nullptr;               // nullptr: errors and warnings to standard error
  // Rank 0 closes a connection that has not proved to be a rank within this time.
  std::chrono::nanoseconds handshake_limit = std::chrono::seconds(10);
  std::shared_ptr<const Tls> tls = nullptr;  // filled in by make_bootstrap from the environment
};

// Collective: returns when all ranks have met. Throws Failure: TUTTI_TIMEOUT naming the ranks that did not arrive,
// TUTTI_MISMATCH where ranks disagree (world size, a rank taken twice, secret, version), TUTTI_INVALID_ARGUMENT for a
// rendezvous or an environment that can never be right, TUTTI_SYSTEM with the words of the operating system. The
// deadline begins anew once an all_gather that is not timed has returned.
std::unique_ptr<Bootstrap> make_bootstrap(const Rendezvous& rendezvous, Deadline& deadline);
inline std::unique_ptr<Bootstrap> make_bootstrap(const Rendezvous& rendezvous, std::chrono::nanoseconds timeout) {
  Deadline deadline(timeout);
  return make_bootstrap(rendezvous, deadline);
}

// A meeting place in this process, as a printable text of at most kMaxUniqueId characters that starts with "id:". This
// process listens from now on; it must be the one that calls make_bootstrap as rank 0, once. The text carries the job's
// secret: hand it to the job's ranks only.
std::string make_unique_id();
inline constexpr uint64_t kMaxUniqueId = 256;

}  // namespace tutti::core
