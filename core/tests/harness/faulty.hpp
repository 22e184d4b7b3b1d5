// SPDX-License-Identifier: Apache-2.0
//
// The transport "faulty": tcp whose completions can be tampered with, to see what the library makes of it.
#pragma once

#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

namespace tutti::test::faulty {

inline std::atomic<bool> keeps_aborted{false};   // transfers that an abort has ended are never given back
inline std::atomic<bool> hides_bytes{false};     // a completed receive says that nothing has arrived
inline std::atomic<bool> holds_back{false};      // nothing arrives for now
inline std::atomic<bool> cannot_connect{false};  // connecting times out
inline std::atomic<bool> loses_peers{false};     // posting a receive fails: the peer is gone
inline std::atomic<bool> has_lost{false};        // ... and has done so

namespace detail {

inline const tutti_transport* tcp = nullptr;

inline tutti_status progress(tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity, uint32_t* n) {
  *n = 0;
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

inline tutti_status post(tutti_endpoint* endpoint, const tutti_transfer* transfers, uint32_t n, uint32_t* accepted) {
  if (!loses_peers || n == 0 || transfers[0].kind != TUTTI_TRANSFER_RECV)
    return tcp->post(endpoint, transfers, n, accepted);
  *accepted = 0;
  has_lost = true;
  return TUTTI_PEER_FAILED;
}

inline tutti_status connect(tutti_endpoint* endpoint, uint32_t peer, tutti_link** link) {
  if (!cannot_connect) return tcp->connect(endpoint, peer, link);
  *link = nullptr;
  return TUTTI_TIMEOUT;
}

inline tutti_transport table;
inline const void* get_interface(const char* id, uint32_t index) {
  if (index || std::strcmp(id, TUTTI_TRANSPORT_ID) != 0) return nullptr;
  table = *tcp;
  table.name = "faulty";
  table.progress = progress;
  table.post = post;
  table.connect = connect;
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
                                              [](const tutti_host*) { return tutti_status{TUTTI_OK}; },
                                              detail::get_interface};
  std::string error;
  detail::tcp = tutti::find_transport("tcp", &error);
  ASSERT_NE(detail::tcp, nullptr) << error;
  ASSERT_EQ(tutti_plugin_register(&entry), TUTTI_OK);
}

}  // namespace tutti::test::faulty
