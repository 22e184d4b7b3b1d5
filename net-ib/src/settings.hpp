// SPDX-License-Identifier: Apache-2.0
//
// The plugin's settings, read from the host's configuration and checked; README.md has the table.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::ib {

// Ports that one rank uses at once. Fixed by the size of a greeting, which must fit in the smallest usual MTU.
inline constexpr uint32_t kMaxRails = 4;
// So many small messages of a lane may travel before their RECVs are known to be posted; it bounds what a receiver may
// have to hold.
inline constexpr uint32_t kEagerWindow = 16;
// RECVs, and SENDs that wait, per link and lane.
inline constexpr uint32_t kQueueDepth = 64;
// Credits that only notes about credits and failed rails may use.
inline constexpr uint32_t kReservedCredits = 4;
// Idle queue pairs are looked at this often. A peer that is gone is noticed within twice this and the adapter's
// retries.
inline constexpr std::chrono::milliseconds kHeartbeatPeriod{1000};
// How long closing an endpoint may wait for completed messages to leave.
inline constexpr std::chrono::milliseconds kLinger{2000};

// TUTTI_IB_HCA: which devices and ports may be used. "mlx5_0:1,mlx5_2" names them (beginnings of names, in the order of
// preference), "^mlx5_1" leaves out, "=mlx5_1" wants whole names; as NCCL_IB_HCA does.
class HcaFilter {
 public:
  HcaFilter() = default;
  // Throws sdk::Error when the text is no filter.
  explicit HcaFilter(const std::string& text);

  bool is_set() const { return !items_.empty(); }
  bool names_ports() const { return is_set() && !excludes_; }
  // The position in the list that admits this port, or nothing: it is left out. Without a filter all are 0.
  std::optional<size_t> admits(const std::string& device, uint32_t port) const;
  const std::string& text() const { return text_; }

 private:
  struct Item {
    std::string device;
    std::optional<uint32_t> port;
  };
  std::string text_;
  std::vector<Item> items_;
  bool excludes_ = false;
  bool whole_ = false;
};

struct Settings {
  HcaFilter hca;
  std::optional<uint32_t> gid_index;  // TUTTI_IB_GID_INDEX; unset: chosen for each peer
  uint32_t rails = kMaxRails;
  std::string near;  // TUTTI_IB_NEAR: PCI address of the device that rails should be close to; empty: the thread's node
  uint32_t pkey_index = 0;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint8_t timeout = 0;  // 4.096 us * 2^timeout
  uint8_t retry_count = 0;
  uint32_t credits = 0;  // frames in flight per peer and rail
  uint64_t eager_bytes = 0;
  uint64_t fragment_bytes = 0;
  uint64_t stripe_bytes = 0;
  std::chrono::seconds connect_timeout{0};

  // Throws sdk::Error that names the setting, its value and what is allowed.
  static Settings read();
};

}  // namespace tutti::ib
