// SPDX-License-Identifier: Apache-2.0
//
// A link of cuda-ipc: that of the SDK (tutti/sdk/local/link.hpp), which carries host memory, and mapped/1. An Offer
// tells the peer of a share, an Answer tells whether the peer has it mapped, and Gone takes it back. Declined says that
// there will be no share, or no mapping. Order on the line is the order of the calls.
#pragma once

#include <tutti/plugin/mapped.h>

#include <deque>
#include <memory>
#include <string>
#include <tutti/sdk/local/link.hpp>
#include <vector>

#include "memory.hpp"

namespace tutti::cuda_ipc {

class Link;

// One offer of this rank.
struct Share {
  Link* link;
  std::shared_ptr<Exported> exported;
  std::unique_ptr<VisiblePages> pages;  // of host memory
  enum State : uint8_t { kOffered, kMapped, kUnmapped, kRefused } state = kOffered;
  bool withdrawn = false;
  tutti_status refusal = TUTTI_OK;
  std::string why;  // the peer's, where it could not map

  void refuse(tutti_status status, std::string reason) {
    state = kRefused;
    refusal = status;
    why = std::move(reason);
  }
};

// One offer of the peer.
struct Mapping {
  Link* link;
  Offer offer;
  sdk::FileDescriptor file;
  const Device* device = nullptr;
  bool mapped = false;
  void* base = nullptr;                 // of device memory
  std::unique_ptr<VisiblePages> pages;  // of host memory of another process

  // No error: what cannot be unmapped is told in the log.
  void unmap();
};

class Link : public sdk::local::LinkBase<Link> {
 public:
  using Domain = cuda_ipc::Domain;
  // The version counts changes of wire.hpp, of the segment's layout and of the way to a link.
  static constexpr sdk::PairFormat format{.transport = "cuda-ipc", .magic = 0x4349'5454, .version = 7};  // "TTIC"

  Link(Parts parts, Domain&) : LinkBase(std::move(parts)) {}
  ~Link();

  // mapped/1.
  Share* share(const tutti_share_config& config, tutti_mapped_place& place);
  tutti_status share_state(Share& share);
  tutti_status withdraw(Share& share);
  Mapping* open_mapping(uint64_t tag, const tutti_mapped_device& device, tutti_mapped_place& place);
  void close_mapping(Mapping& mapping);
  void decline(uint64_t tag, tutti_status status, const char* why);

  // For LinkBase.
  bool handle(sdk::Packet& packet);
  void flush() noexcept;
  bool waits_for_line() const { return !packets_.empty(); }

 private:
  struct Waiting {  // a packet that waits for room on the line
    std::string bytes;
    std::shared_ptr<Exported> with;  // whose descriptor goes with it
  };
  template <typename T>
  void tell(const T& packet, std::shared_ptr<Exported> with = nullptr);
  void handle_offer(const Offer& offer, sdk::Packet& packet);
  void handle_gone(const Gone& gone);
  void handle_answer(const Answer& answer);
  void handle_declined(const Declined& declined);
  void answer(uint64_t id, int32_t status, const char* why);
  // Somebody waits for news of the peer: the next progress looks at the lines.
  tutti_status look_again() {
    attention().lines = true;
    return TUTTI_AGAIN;
  }
  void make_host_share(Share& share, const Device& device);
  void map_host_share(Mapping& mapping, const Device& device);

  std::deque<Waiting> packets_;
  std::vector<std::unique_ptr<Share>> shares_;
  std::vector<std::unique_ptr<Mapping>> mappings_;  // mapped or not
  std::vector<Declined> declined_;                  // what the peer has declined and no share or mapping has met yet
};

}  // namespace tutti::cuda_ipc
