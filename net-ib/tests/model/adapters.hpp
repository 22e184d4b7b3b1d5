// SPDX-License-Identifier: Apache-2.0
//
// A model of RDMA adapters: it takes the place of libibverbs in a program that is linked with it, or that preloads it.
// Ranks that are threads, or that one thread drives, talk over its adapters. It keeps what the verbs promise and no
// more:
//   * RESET and destroying a queue pair discard the completions that were not polled. Their receive requests are gone.
//   * The error state completes nothing at once. Flushes, completions and LAST_WQE_REACHED come later.
//   * A queue pair that stops has taken receive requests from the shared queue. They come back flushed.
//   * A request occupies the send queue until a later completion was polled, a receive request until its own was.
//   * Full queues are errors. A completion queue that overruns is broken.
//   * Inline bytes are copied by the processor. Every other access is checked against its registration.
//   * Writes to a device's memory become visible late, or when the adapter reads there.
//   * Packets are lost while a port is down. A requester retries, and ends after timeout * (retries + 1).
//   * Ports, addresses and whole devices fail, and events tell of it.
// Time passes in the calls of verbs: no thread runs. Any thread may call.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti_test::model {

using Address = std::array<uint8_t, 4>;

// How an adapter with one port behaves.
struct Manners {
  std::chrono::microseconds latency{0};  // one way, of what it sends
  uint64_t bytes_per_us = 0;             // that it sends; 0: no limit
  // So much later than the error state come its flushes.
  std::chrono::milliseconds late{1};
  // ... and the completions of its receives, and LAST_WQE_REACHED after them.
  std::chrono::milliseconds receives_late{1};
  // Completions of receives cannot be polled before their queue pair is in the error state, though their sender has its
  // acknowledgement.
  bool holds_receives = false;
  bool tells_the_last = true;     // raises LAST_WQE_REACHED
  bool is_dead = false;           // a queue pair in the error state completes nothing any more
  bool refuses_a_send = false;    // the next request to send fails, once
  bool loses_everything = false;  // that it sends
  uint32_t takes_receives = 2;    // receive requests that a queue pair holds when it stops
};

// An adapter's description.
struct Adapter {
  std::string name;
  Address address{};           // its RoCE v2 GID at index 1; at index 0 is a link-local one
  bool infiniband = false;     // then the address makes its GID, and its LID is the address's last byte
  bool grh_required = false;   // InfiniBand only: queue pairs need a global route
  bool has_dma_buf = false;    // registers device memory by descriptor
  bool peer_memory = false;    // registers memory that the processor cannot read by its address (nvidia-peermem)
  bool has_shared_receives = true;
  bool has_reliable_queue_pairs = true;  // unlike EFA's
  bool has_inline = true;
  bool iwarp = false;
  uint8_t speed = 32, width = 2;  // EDR, 4 lanes: 100 Gb/s
  uint32_t pci_vendor = 0x02c9;
};

// The adapters of this process; at first rxe0 (10.1.0.1), rxe1 (10.1.0.2), rxe2 (10.2.0.1) and rxe3 (10.2.0.2). Cable k
// joins adapters 2k and 2k+1.
void install(const std::vector<Adapter>& adapters);  // none may be open
std::vector<Adapter> two_cables();  // the first ones
void change(const std::string& adapter, const std::function<void(Manners&)>& change);
// Pulls the cable, or puts it back: both ports change their state, and events tell.
void set_cable(int cable, bool up);
void set_address(const std::string& adapter, Address address);  // raises GID_CHANGE
void set_fatal(const std::string& adapter);                     // raises DEVICE_FATAL; nothing moves any more
// A queue pair of the adapter that is connected fails, told by an event only.
void fail_a_queue_pair(const std::string& adapter);

struct Counts {
  uint64_t packets = 0;         // sent, of 1 KiB
  uint64_t doorbells = 0;       // calls that posted requests to send
  uint64_t sends = 0;           // requests carried out
  uint64_t bytes = 0;           // sent
  uint64_t not_ready = 0;       // requests that found no receive request
  uint64_t relaxed_regions = 0;  // registrations with relaxed ordering
  uint64_t reads = 0;            // RDMA reads
  int traffic_class = -1;        // of the last request
};
Counts counts(const std::string& adapter);
// Of all adapters: what is open.
size_t live_queue_pairs();
// Distinct flow labels of queue pairs that were connected since install().
size_t flow_labels();
bool fork_is_safe();  // ibv_fork_init was called

}  // namespace tutti_test::model
