// SPDX-License-Identifier: Apache-2.0
//
// The transport "faulty": tcp that can be tampered with, to see what the library makes of it.
#pragma once

#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace tutti::test::faulty {

inline std::atomic<bool> keeps_aborted{false};   // transfers that an abort has ended are never given back
inline std::atomic<bool> hides_bytes{false};     // a completed receive says that nothing has arrived
inline std::atomic<bool> holds_back{false};      // nothing arrives for now
inline std::atomic<bool> cannot_connect{false};  // connecting times out
inline std::atomic<bool> loses_peers{false};     // posting a receive fails: the peer is gone
inline std::atomic<bool> has_lost{false};        // ... and has done so
inline thread_local uint32_t not_begun = 0;      // transfers that this thread has posted since the last progress

// The endpoints of some ranks, a bit for each, cannot connect with anybody: of this status.
inline std::atomic<uint32_t> refusers{0};
inline std::atomic<tutti_status> refusal{TUTTI_NO_RESOURCES};
inline std::atomic<bool> refuses_to_open{false};  // they cannot even be opened
inline std::atomic<bool> refuses_late{false};     // they say so once another rank has connected
inline std::atomic<bool> has_connected{false};   // ... and one has
inline thread_local bool is_absent = false;      // this rank's machine has not what it needs

namespace detail {

inline const tutti_transport* tcp = nullptr;
inline const tutti_host* host = nullptr;
inline std::mutex mutex;
inline std::map<const tutti_endpoint*, uint32_t> ranks;  // with mutex

inline bool refuses(uint32_t rank) { return refusers >> rank & 1; }
inline uint32_t rank_of(const tutti_endpoint* endpoint) {
  const std::lock_guard lock(mutex);
  return ranks.at(endpoint);
}
inline tutti_status refuse(const char* what) {
  host->set_error(host->self, refusal, what);
  return refusal;
}

inline tutti_status progress(tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity, uint32_t* n) {
  *n = 0;
  not_begun = 0;
  if (holds_back) return TUTTI_OK;
  const tutti_status status = tcp->progress(endpoint, completions, capacity, n);
  if (status < 0) return status;
  const auto transfer = [](const tutti_completion& c) { return c.kind == TUTTI_COMPLETION_TRANSFER; };
  if (keeps_aborted) {
    const auto kept = [&](const tutti_completion& c) { return transfer(c) && c.status < 0; };
    *n = static_cast<uint32_t>(std::remove_if(completions, completions + *n, kept) - completions);
  }
  if (hides_bytes)
    for (uint32_t i = 0; i < *n; ++i)
      if (transfer(completions[i])) completions[i].bytes = 0;
  return status;
}

inline tutti_status post(tutti_endpoint* endpoint, const tutti_transfer* transfer) {
  not_begun += !(transfer->flags & TUTTI_TRANSFER_INLINE);
  if (!loses_peers || transfer->kind != TUTTI_TRANSFER_RECV) return tcp->post(endpoint, transfer);
  has_lost = true;
  return TUTTI_PEER_FAILED;
}

inline tutti_status query(tutti_domain* domain, tutti_transport_caps* caps) {
  if (!is_absent) return tcp->query(domain, caps);
  host->set_error(host->self, TUTTI_NOT_SUPPORTED, "its adapter is gone");
  return TUTTI_NOT_SUPPORTED;
}

inline tutti_status open_endpoint(tutti_domain* domain, const tutti_endpoint_config* config,
                                  tutti_endpoint** endpoint) {
  if (refuses_to_open && refuses(config->rank)) return refuse("no more endpoints are to be had");
  const tutti_status status = tcp->open_endpoint(domain, config, endpoint);
  const std::lock_guard lock(mutex);
  if (status == TUTTI_OK) ranks[*endpoint] = config->rank;
  return status;
}

inline void close_endpoint(tutti_endpoint* endpoint) {
  {
    const std::lock_guard lock(mutex);
    ranks.erase(endpoint);
  }
  tcp->close_endpoint(endpoint);
}

inline tutti_status connect(tutti_endpoint* endpoint, uint32_t peer, tutti_link** link) {
  *link = nullptr;
  if (cannot_connect) return TUTTI_TIMEOUT;
  const bool refuses_now = refuses(rank_of(endpoint));
  if (refuses_now && !refuses_late) return refuse("no more queue pairs are to be had");
  const tutti_status status = tcp->connect(endpoint, peer, link);
  if (!refuses_now) {
    has_connected = has_connected || status == TUTTI_OK;
    return status;
  }
  *link = nullptr;
  return has_connected ? refuse("no more queue pairs are to be had") : TUTTI_AGAIN;
}

inline tutti_status receive_pair(tutti_endpoint* endpoint, uint32_t peer, const void* data, uint64_t bytes) {
  if (refuses(rank_of(endpoint)) && !refuses_late) return refuse("no more queue pairs are to be had");
  return tcp->receive_pair(endpoint, peer, data, bytes);
}

inline tutti_transport table;
inline const void* get_interface(const char* id, uint32_t index) {
  if (index || std::strcmp(id, TUTTI_TRANSPORT_ID) != 0) return nullptr;
  table = *tcp;
  table.name = "faulty";
  table.progress = progress;
  table.post = post;
  table.query = query;
  table.open_endpoint = open_endpoint;
  table.close_endpoint = close_endpoint;
  table.connect = connect;
  table.receive_pair = receive_pair;
  return &table;
}

}  // namespace detail

// Makes the transport known to this process, before anything else.
inline void load() {
  static const tutti_plugin_info info{sizeof info, 0, "faulty", "1.0.0", "Tutti", "Apache-2.0", "for tests"};
  static const tutti_plugin_entry_table entry{sizeof entry,
                                              TUTTI_ABI_MAJOR,
                                              TUTTI_ABI_MINOR,
                                              0,
                                              &info,
                                              [](const tutti_host* given) {
                                                detail::host = given;
                                                return tutti_status{TUTTI_OK};
                                              },
                                              detail::get_interface};
  std::string error;
  detail::tcp = tutti::find_transport("tcp", &error);
  ASSERT_NE(detail::tcp, nullptr) << error;
  ASSERT_EQ(tutti_plugin_register(&entry), TUTTI_OK);
}

}  // namespace tutti::test::faulty
