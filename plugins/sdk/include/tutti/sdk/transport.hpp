// SPDX-License-Identifier: Apache-2.0
//
// A transport as three small C++ classes; make_transport turns them into the table of tutti/plugin/transport.h.
// transport.h says what each function must do; here is only its C++ shape. Everything may throw sdk::Error (or anything
// else).
//
//   struct MyTransport {
//     static constexpr const char* name = "mine";
//     static constexpr const char* summary = "bytes by carrier pigeon";
//     static void query(Domain& domain, tutti_transport_caps& caps);
//     static const void* interface(std::string_view id);                              // optional: its other interfaces
//     static std::vector<sdk::RailFacts> rails();                                     // optional: rails.hpp
//     struct Domain {                                                                 // made from tutti_domain_config,
//                                                                                     // or default-constructed
//       tutti_region* register_memory(const tutti_memory&);                           // optional, with deregister
//       void deregister_memory(tutti_region*);
//     };
//     struct Link;                                                                    // has send_control, below
//     struct Endpoint {
//       Endpoint(Domain&, const tutti_endpoint_config&);
//       Link* connect(uint32_t peer);                                                 // nullptr: under way
//       void receive_pair(uint32_t peer, std::string_view message);                   // optional: pair messages
//       bool post(const tutti_transfer&);                                             // false: no room now
//       uint32_t progress(std::span<tutti_completion>);                               // how many were written
//       void fail_peer(uint32_t peer);                                                // optional
//       void abort();
//       int wait_fd() const;                                                          // optional: make_wait_fd, below
//     };
//     struct Link {
//       bool send_control(std::string_view message);                                  // false: no room now
//       bool flush(tutti_region*, const void* data, uint64_t bytes);                  // optional; false: under way
//     };
//   };
#pragma once

#include <tutti/plugin/transport.h>

#include <string_view>
#include <tutti/sdk/pair_messages.hpp>
#include <tutti/sdk/rails.hpp>
#include <type_traits>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// The view table of a link class with try_receive(lane, bytes&), release(lane), try_reserve(lane, bytes), commit(lane,
// bytes), and optionally send_region(lane, region, offset, bytes, ticket&) -> tutti_status and released(lane), and
// try_receive_into(lane, room, bytes&), and set_mark(lane, mark) and get_mark(lane) -> uint32_t. All noexcept.
template <typename Link>
constexpr tutti_view make_view() {
  tutti_view table{};
  table.struct_size = sizeof table;
  table.try_receive = [](tutti_link* link, uint32_t lane, uint64_t* bytes) -> const void* {
    return from_handle<Link>(link).try_receive(lane, *bytes);
  };
  table.release = [](tutti_link* link, uint32_t lane) { from_handle<Link>(link).release(lane); };
  table.try_reserve = [](tutti_link* link, uint32_t lane, uint64_t bytes) -> void* {
    return from_handle<Link>(link).try_reserve(lane, bytes);
  };
  table.commit = [](tutti_link* link, uint32_t lane, uint64_t bytes) { from_handle<Link>(link).commit(lane, bytes); };
  if constexpr (requires(Link & l, uint64_t & t) { l.send_region(0u, nullptr, uint64_t{}, uint64_t{}, t); }) {
    table.send_region = [](tutti_link* link, uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                           uint64_t* ticket) {
      return from_handle<Link>(link).send_region(lane, region, offset, bytes, *ticket);
    };
    table.released = [](tutti_link* link, uint32_t lane) { return from_handle<Link>(link).released(lane); };
  }
  if constexpr (requires(Link & l, uint64_t & bytes) { l.try_receive_into(0u, nullptr, bytes); })
    table.try_receive_into = [](tutti_link* link, uint32_t lane, void* room, uint64_t* bytes) -> const void* {
      return from_handle<Link>(link).try_receive_into(lane, room, *bytes);
    };
  if constexpr (requires(Link & l) { l.set_mark(0u, 0u); }) {
    table.set_mark = [](tutti_link* link, uint32_t lane, uint32_t mark) {
      from_handle<Link>(link).set_mark(lane, mark);
    };
    table.get_mark = [](tutti_link* link, uint32_t lane) -> uint32_t {
      return from_handle<Link>(link).get_mark(lane);
    };
  }
  return table;
}

// The wait_fd table of an endpoint class with wait_fd() -> int, arm() -> bool (false: something is there), disarm().
template <typename Endpoint>
constexpr tutti_wait_fd make_wait_fd() {
  tutti_wait_fd table{};
  table.struct_size = sizeof table;
  table.get_fd = [](tutti_endpoint* endpoint, int32_t* fd) {
    return guard([&] { *fd = from_handle<Endpoint>(endpoint).wait_fd(); });
  };
  table.arm = [](tutti_endpoint* endpoint) {
    return guard([&]() -> tutti_status { return from_handle<Endpoint>(endpoint).arm() ? TUTTI_OK : TUTTI_AGAIN; });
  };
  table.disarm = [](tutti_endpoint* endpoint) { from_handle<Endpoint>(endpoint).disarm(); };
  return table;
}

template <typename T>
struct TransportTable {
  using Domain = typename T::Domain;
  using Endpoint = typename T::Endpoint;
  using Link = typename T::Link;
  static constexpr bool flushes = requires(Link & l) { l.flush(nullptr, nullptr, uint64_t{}); };
  static constexpr bool registers = requires(Domain & d, const tutti_memory& m) { d.register_memory(m); };
  static constexpr bool fails_peers = requires(Endpoint & e) { e.fail_peer(0u); };
  static constexpr bool has_pairs = requires(Endpoint & e) { e.receive_pair(0u, std::string_view()); };

  static tutti_status query(tutti_domain* domain, tutti_transport_caps* caps) {
    return guard(
        [&] { fill_sized(caps, [&](tutti_transport_caps& full) { T::query(from_handle<Domain>(domain), full); }); });
  }
  static tutti_status open_domain(void*, const tutti_domain_config* config, tutti_domain** domain) {
    return guard([&] {
      const tutti_domain_config known = accepted(config);
      if constexpr (std::is_constructible_v<Domain, const tutti_domain_config&>)
        *domain = to_handle<tutti_domain>(new Domain(known));
      else
        *domain = to_handle<tutti_domain>(new Domain());
    });
  }
  static void close_domain(tutti_domain* domain) { delete &from_handle<Domain>(domain); }
  static tutti_status register_memory(tutti_domain* domain, const tutti_memory* memory, tutti_region** region) {
    return guard([&] {
      if constexpr (registers) *region = from_handle<Domain>(domain).register_memory(accepted(memory));
    });
  }
  static tutti_status deregister_memory(tutti_domain* domain, tutti_region* region) {
    return guard([&] {
      if constexpr (registers) from_handle<Domain>(domain).deregister_memory(region);
    });
  }
  static tutti_status open_endpoint(tutti_domain* domain, const tutti_endpoint_config* config,
                                    tutti_endpoint** endpoint) {
    return guard(
        [&] { *endpoint = to_handle<tutti_endpoint>(new Endpoint(from_handle<Domain>(domain), accepted(config))); });
  }
  static void close_endpoint(tutti_endpoint* endpoint) { delete &from_handle<Endpoint>(endpoint); }
  static tutti_status connect(tutti_endpoint* endpoint, uint32_t peer, tutti_link** link) {
    return guard([&]() -> tutti_status {
      Link* made = from_handle<Endpoint>(endpoint).connect(peer);
      if (!made) return TUTTI_AGAIN;
      *link = to_handle<tutti_link>(made);
      return TUTTI_OK;
    });
  }
  static tutti_status receive_pair(tutti_endpoint* endpoint, uint32_t peer, const void* data, uint64_t bytes) {
    return guard([&] {
      if constexpr (has_pairs)
        from_handle<Endpoint>(endpoint).receive_pair(peer, {static_cast<const char*>(data), bytes});
    });
  }
  static tutti_status post(tutti_endpoint* endpoint, const tutti_transfer* transfer) {
    return guard(
        [&]() -> tutti_status { return from_handle<Endpoint>(endpoint).post(*transfer) ? TUTTI_OK : TUTTI_AGAIN; });
  }
  static tutti_status progress(tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity,
                               uint32_t* n) {
    *n = 0;
    return guard([&] { *n = from_handle<Endpoint>(endpoint).progress({completions, capacity}); });
  }
  static tutti_status send_control(tutti_link* link, const void* data, uint64_t bytes) {
    return guard([&]() -> tutti_status {
      return from_handle<Link>(link).send_control({static_cast<const char*>(data), bytes}) ? TUTTI_OK : TUTTI_AGAIN;
    });
  }
  static tutti_status flush(tutti_link* link, tutti_region* region, const void* data, uint64_t bytes) {
    return guard([&]() -> tutti_status {
      if constexpr (flushes)
        if (!from_handle<Link>(link).flush(region, data, bytes)) return TUTTI_AGAIN;
      return TUTTI_OK;
    });
  }
  static tutti_status fail_peer(tutti_endpoint* endpoint, uint32_t peer) {
    return guard([&] {
      if constexpr (fails_peers) from_handle<Endpoint>(endpoint).fail_peer(peer);
    });
  }
  static tutti_status abort(tutti_endpoint* endpoint) {
    return guard([&] { from_handle<Endpoint>(endpoint).abort(); });
  }
  static const void* get_interface(void*, const char* id) {
    const std::string_view wanted = id;
    if constexpr (requires(Endpoint & e) { e.wait_fd(); }) {
      static constexpr tutti_wait_fd table = make_wait_fd<Endpoint>();
      if (wanted == TUTTI_WAIT_FD_ID) return &table;
    }
    if constexpr (requires(Link & l) { l.commit(0u, uint64_t{}); }) {
      static constexpr tutti_view table = make_view<Link>();
      if (wanted == TUTTI_VIEW_ID) return &table;
    }
    if constexpr (requires { T::rails(); }) {
      static constexpr tutti_rails table = make_rails<T>();
      if (wanted == TUTTI_RAILS_ID) return &table;
    }
    if constexpr (requires { T::interface(wanted); }) return T::interface(wanted);
    return nullptr;
  }
};

// The ABI table of a transport class.
template <typename T>
constexpr tutti_transport make_transport() {
  using Table = TransportTable<T>;
  tutti_transport table{};
  table.struct_size = sizeof table;
  table.name = T::name;
  table.summary = T::summary;
  table.query = Table::query;
  table.open_domain = Table::open_domain;
  table.close_domain = Table::close_domain;
  if constexpr (Table::registers) {
    table.register_memory = Table::register_memory;
    table.deregister_memory = Table::deregister_memory;
  }
  table.open_endpoint = Table::open_endpoint;
  table.close_endpoint = Table::close_endpoint;
  table.connect = Table::connect;
  if constexpr (Table::has_pairs) table.receive_pair = Table::receive_pair;
  table.post = Table::post;
  table.progress = Table::progress;
  table.send_control = Table::send_control;
  if constexpr (Table::fails_peers) table.fail_peer = Table::fail_peer;
  table.abort = Table::abort;
  table.get_interface = Table::get_interface;
  if constexpr (Table::flushes) table.flush = Table::flush;
  return table;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
