// SPDX-License-Identifier: Apache-2.0
//
// The plugin's settings, read from the host's configuration and checked; README.md has the table.
#pragma once

#include <tutti/plugin/transport.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tutti/sdk/name_list.hpp>
#include <tutti/sdk/words.hpp>
#include <vector>

namespace tutti::ib {

using sdk::error;
using sdk::system_error;

// Ports that one rank uses at once. An offer of them must fit in a pair message, their keys in an announcement.
inline constexpr uint32_t kMaxRails = 4;
// Queue pairs to one peer over one rail.
inline constexpr uint32_t kMaxQueuePairs = 4;
inline constexpr uint32_t kMaxLinkPaths = kMaxRails * kMaxQueuePairs;
// How many small messages of a lane may travel before the sender knows that their RECVs are posted. This bounds the
// memory that a receiver needs for early messages.
inline constexpr uint32_t kEagerWindow = 16;
// The most RECVs, and the most waiting SENDs, per link and lane.
inline constexpr uint32_t kQueueDepth = 64;
// Credits that only frames about credits and failed rails may use.
inline constexpr uint32_t kReservedCredits = 4;
// The period of heartbeats on idle queue pairs. A peer that is gone is noticed within twice this and the adapter's
// retries.
inline constexpr std::chrono::milliseconds kHeartbeatPeriod{1000};
// A stopped queue pair completes its requests within microseconds. An adapter that takes longer than this is dead.
inline constexpr std::chrono::milliseconds kDrainLimit{2000};
// A peer without any rail gets so long to say that it lives, where this rank's own ports are up.
inline constexpr std::chrono::milliseconds kSilenceLimit{2000};
// The pause before a rail that failed again at once is tried again; it doubles up to the longest.
inline constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{30'000};
// The period at which events are looked for.
inline constexpr std::chrono::milliseconds kEventPeriod{1};
// The time for the last receives of an adapter that raises no event for them (soft-RoCE of Linux 6.1).
inline constexpr std::chrono::milliseconds kLastReceiveLimit{500};
inline constexpr char kNearIsUsers[] = "TUTTI_IB_NEAR=";
// The longest that closing an endpoint waits for completed messages to leave.
inline constexpr std::chrono::milliseconds kLinger{2000};

// TUTTI_IB_HCA, a list of names (<tutti/sdk/name_list.hpp>, as NCCL_IB_HCA): "mlx5_0:1,mlx5_2" names devices and ports
// (beginnings of names, in the order of preference), "^mlx5_1" leaves out, "=mlx5_1" wants whole names.
class HcaFilter {
 public:
  HcaFilter() = default;
  // Throws sdk::Error when the text is no filter.
  explicit HcaFilter(const std::string& text);

  bool is_set() const { return !items_.empty(); }
  bool names_ports() const { return is_set() && !list_.excludes; }
  // The position in the list that admits this port; nothing if it is left out. Without a filter all are 0.
  std::optional<size_t> admits(const std::string& device, uint32_t port) const;
  const std::string& text() const { return text_; }

 private:
  struct Item {
    std::string device;
    std::optional<uint32_t> port;
  };
  std::string text_;
  NameList list_;
  std::vector<Item> items_;
};

struct Settings {
  HcaFilter hca;
  std::optional<uint32_t> gid_index;  // TUTTI_IB_GID_INDEX; unset: chosen for each peer
  uint32_t rails = kMaxRails;
  uint32_t queue_pairs = 1;  // to one peer over one rail
  std::string near;  // PCI address of the device that rails should be close to; empty: the thread's node
  std::string near_is = kNearIsUsers;  // the origin of `near`
  uint32_t pkey_index = 0;
  std::optional<uint8_t> traffic_class, service_level;  // TUTTI_IB_TC, TUTTI_IB_SL; unset: the endpoint's
  bool peer_memory = false;  // the kernel can register CUDA's memory by its address (nvidia-peermem)
  bool relaxed_ordering = true;                         // of writes to registered memory, where the adapter can
  uint8_t timeout = 16;                                 // 4.096 us * 2^timeout
  uint8_t retry_count = 6;
  std::chrono::seconds recovery{20};  // a peer without any rail is waited for so long
  uint32_t credits = 32;  // frames in flight per peer and rail
  uint64_t eager_bytes = 8192;
  uint64_t fragment_bytes = 1 << 20;
  uint64_t stripe_bytes = 64 << 10;

  // Throws sdk::Error that names the setting, its value and what is allowed.
  static Settings read();
  // Prefers rails near the domain's device, unless the user has named another.
  void prefer_near(const tutti_domain_config& domain);
};

}  // namespace tutti::ib
