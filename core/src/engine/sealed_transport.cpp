// SPDX-License-Identifier: Apache-2.0
#include "engine/sealed_transport.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <tutti/plugin/rails.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/host.hpp"

namespace tutti::core {
namespace {

// Fragments stay multiples of 64 bytes.
constexpr uint64_t fragment_reserve = 64;
static_assert(fragment_reserve >= seal_bytes);

struct Seal {
  uint64_t number;
  uint64_t hash;
};
static_assert(sizeof(Seal) == seal_bytes);

uint64_t hash_of(const void* data, uint64_t bytes, uint64_t number) {
  return XXH3_64bits_withSeed(data, bytes, number);
}

std::unique_ptr<std::byte[]> sealed_copy(const void* data, uint64_t bytes, uint64_t number) {
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes + seal_bytes);
  if (bytes) std::memcpy(copy.get(), data, bytes);
  const Seal seal{number, hash_of(copy.get(), bytes, number)};
  std::memcpy(copy.get() + bytes, &seal, sizeof seal);
  return copy;
}

// "" when the message of `bytes` with its seal behind is number `expected`; else what is wrong with it.
std::string broken(const std::byte* data, uint64_t bytes, uint64_t expected) {
  Seal seal{};
  std::memcpy(&seal, data + bytes, sizeof seal);
  if (seal.hash != hash_of(data, bytes, seal.number))
    return fmt::format("its {} bytes were changed on the way: their checksum is wrong", bytes);
  if (seal.number != expected)
    return fmt::format("it is number {} where number {} was due: a message was lost, doubled or overtaken", seal.number,
                       expected);
  return {};
}

tutti_status fail(tutti_status status, const std::string& text) {
  host_table()->set_error(host_table()->self, status, text.c_str());
  return status;
}

class Endpoint;

struct SealedLink {
  Endpoint* endpoint = nullptr;
  tutti_link* inner = nullptr;
  uint32_t peer = 0;
  struct Way {
    uint64_t sent = 0, received = 0;  // numbers of the next messages
    std::deque<uint64_t> waiting;     // records of sends taken from the caller and refused by the wrapped transport
  };
  std::vector<Way> lanes;
  Way control;
};

struct Domain {
  const tutti_transport* api;
  tutti_domain* inner;
};

class Endpoint {
 public:
  Endpoint(const tutti_transport* transport, tutti_endpoint* inner, uint32_t lanes, uint64_t inline_bytes)
      : api(transport),
        wait_fd(static_cast<const tutti_wait_fd*>(api->get_interface(api->self, TUTTI_WAIT_FD_ID))),
        endpoint(inner),
        lanes_(lanes),
        inline_bytes_(inline_bytes) {}
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() { api->close_endpoint(endpoint); }

  tutti_status connect(uint32_t peer, const void* address, uint64_t bytes, tutti_link** link) {
    tutti_link* inner = nullptr;
    const tutti_status status = api->connect(endpoint, peer, address, bytes, &inner);
    if (status != TUTTI_OK) return status;
    SealedLink& to = link_to(peer);
    to.inner = inner;
    *link = reinterpret_cast<tutti_link*>(&to);
    return TUTTI_OK;
  }
  tutti_status post(const tutti_transfer& transfer, bool* taken);
  tutti_status progress(tutti_completion* completions, uint32_t capacity, uint32_t* n);
  tutti_status send_control(SealedLink& link, const void* data, uint64_t bytes);
  bool waits() const { return waiting_ != 0; }

  const tutti_transport* const api;
  const tutti_wait_fd* const wait_fd;
  tutti_endpoint* const endpoint;

 private:
  // A transfer of the caller's and the memory in which its message is sealed or arrives.
  struct Record {
    tutti_transfer transfer{};
    SealedLink* link = nullptr;
    bool silent = false;  // INLINE: it has completed for the caller
    std::unique_ptr<std::byte[]> message;
  };
  // The peer may have connected first: then `inner` comes later.
  SealedLink& link_to(uint32_t peer) {
    auto& link = links_[peer];
    if (!link) {
      link = std::make_unique<SealedLink>();
      link->endpoint = this;
      link->peer = peer;
      link->lanes.resize(lanes_);
    }
    return *link;
  }
  tutti_status hand_over(uint64_t id, bool* taken);
  void hand_over_waiting();
  tutti_status finish(const tutti_completion& completion);
  tutti_status open_control(const tutti_completion& completion);

  uint32_t lanes_;
  uint64_t inline_bytes_;  // of the wrapped transport
  std::map<uint32_t, std::unique_ptr<SealedLink>> links_;
  std::unordered_map<uint64_t, Record> records_;
  uint64_t next_record_ = 1;
  uint64_t waiting_ = 0;
  std::deque<tutti_completion> ready_;  // for the caller
  std::deque<std::string> texts_;       // what ready_ and the last answers point to
};

tutti_status Endpoint::post(const tutti_transfer& transfer, bool* taken) {
  SealedLink& link = *reinterpret_cast<SealedLink*>(transfer.link);
  if (transfer.lane >= lanes_ || (transfer.kind != TUTTI_TRANSFER_SEND && transfer.kind != TUTTI_TRANSFER_RECV))
    return fail(TUTTI_INVALID_ARGUMENT, fmt::format("no lane {} or no kind {}", transfer.lane, transfer.kind));
  SealedLink::Way& way = link.lanes[transfer.lane];
  const bool sends = transfer.kind == TUTTI_TRANSFER_SEND;
  if (sends && !way.waiting.empty()) return TUTTI_OK;
  const uint64_t id = next_record_++;
  Record& record = records_[id];
  record.transfer = transfer;
  record.link = &link;
  record.silent = (transfer.flags & TUTTI_TRANSFER_INLINE) != 0;
  record.message = sends ? sealed_copy(transfer.data, transfer.bytes, way.sent)
                         : std::make_unique_for_overwrite<std::byte[]>(transfer.bytes + seal_bytes);
  const tutti_status status = hand_over(id, taken);
  const bool waits = sends && !*taken && !record.silent && status >= 0;
  if (*taken && sends) ++way.sent;
  if (!*taken && !waits) records_.erase(id);
  if (!waits) return status;
  ++way.sent;
  // It is sealed already: it waits here, and those behind it outside.
  way.waiting.push_back(id);
  ++waiting_;
  *taken = true;
  return TUTTI_OK;
}

tutti_status Endpoint::hand_over(uint64_t id, bool* taken) {
  Record& record = records_.at(id);
  tutti_transfer inner = record.transfer;
  inner.link = record.link->inner;
  inner.data = record.message.get();
  inner.bytes += seal_bytes;
  const bool inlined = record.silent && inner.bytes <= inline_bytes_;
  inner.flags = inlined ? TUTTI_TRANSFER_INLINE : 0;
  inner.region = nullptr;
  inner.cookie = id;
  uint32_t accepted = 0;
  const tutti_status status = api->post(endpoint, &inner, 1, &accepted);
  *taken = accepted == 1;
  if (*taken && inlined) records_.erase(id);
  return status;
}

void Endpoint::hand_over_waiting() {
  if (!waiting_) return;
  for (auto& [peer, link] : links_)
    for (SealedLink::Way& way : link->lanes)
      while (!way.waiting.empty()) {
        const uint64_t id = way.waiting.front();
        bool taken = false;
        const tutti_status status = hand_over(id, &taken);
        if (!taken && status >= 0) break;
        if (status < 0) {
          tutti_completion ended{};
          ended.kind = TUTTI_COMPLETION_TRANSFER;
          ended.status = status;
          ended.peer = peer;
          ended.cookie = records_.at(id).transfer.cookie;
          if (!records_.at(id).silent) ready_.push_back(ended);
          records_.erase(id);
        }
        way.waiting.pop_front();
        --waiting_;
      }
}

tutti_status Endpoint::progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) {
  constexpr uint32_t batch = 32;
  tutti_completion found[batch];
  uint32_t arrived = 0;
  if (ready_.empty()) {
    texts_.clear();
    const tutti_status status = api->progress(endpoint, found, batch, &arrived);
    if (status < 0) return status;
    tutti_status worst = TUTTI_OK;
    for (uint32_t i = 0; i < arrived; ++i)
      if (const tutti_status one = finish(found[i]); one < 0) worst = one;
    hand_over_waiting();
    if (worst < 0) return worst;
  }
  for (; *n < capacity && !ready_.empty(); ready_.pop_front()) completions[(*n)++] = ready_.front();
  return TUTTI_OK;
}

// Puts a completion into the caller's terms; an error when a message arrived broken.
tutti_status Endpoint::finish(const tutti_completion& completion) {
  if (completion.kind == TUTTI_COMPLETION_CONTROL) return open_control(completion);
  tutti_completion ended = completion;
  if (completion.kind != TUTTI_COMPLETION_TRANSFER) {
    if (completion.data) ended.data = texts_.emplace_back(static_cast<const char*>(completion.data)).c_str();
    ready_.push_back(ended);
    return TUTTI_OK;
  }
  const auto found = records_.find(completion.cookie);
  if (found == records_.end()) return fail(TUTTI_INTERNAL, "it completes a transfer that was never posted");
  const Record record = std::move(found->second);
  records_.erase(found);
  const tutti_transfer& transfer = record.transfer;
  ended.cookie = transfer.cookie;
  ended.bytes = transfer.bytes;
  std::string wrong;
  if (transfer.kind == TUTTI_TRANSFER_RECV && completion.status == TUTTI_OK) {
    wrong = broken(record.message.get(), transfer.bytes, record.link->lanes[transfer.lane].received++);
    if (!wrong.empty()) ended.status = TUTTI_INTERNAL;
    if (wrong.empty() && transfer.bytes) std::memcpy(transfer.data, record.message.get(), transfer.bytes);
  }
  if (!record.silent) ready_.push_back(ended);
  if (wrong.empty()) return TUTTI_OK;
  return fail(TUTTI_INTERNAL, fmt::format("a message from rank {} on lane {} did not arrive as it was sent: {}",
                                          record.link->peer, transfer.lane, wrong));
}

tutti_status Endpoint::open_control(const tutti_completion& completion) {
  const auto* data = static_cast<const std::byte*>(completion.data);
  const uint64_t expected = link_to(completion.peer).control.received++;
  const std::string wrong = completion.bytes < seal_bytes ? fmt::format("it has {} bytes", completion.bytes)
                                                          : broken(data, completion.bytes - seal_bytes, expected);
  if (!wrong.empty())
    return fail(TUTTI_INTERNAL, fmt::format("a control message from rank {} did not arrive as it was sent: {}",
                                            completion.peer, wrong));
  tutti_completion opened = completion;
  opened.bytes -= seal_bytes;
  opened.data = texts_.emplace_back(reinterpret_cast<const char*>(data), opened.bytes).data();
  ready_.push_back(opened);
  return TUTTI_OK;
}

tutti_status Endpoint::send_control(SealedLink& link, const void* data, uint64_t bytes) {
  if (bytes > TUTTI_CONTROL_BYTES - seal_bytes)
    return fail(TUTTI_INVALID_ARGUMENT, fmt::format("a control message of {} bytes, with a seal at most {}", bytes,
                                                    TUTTI_CONTROL_BYTES - seal_bytes));
  const auto message = sealed_copy(data, bytes, link.control.sent);
  const tutti_status status = api->send_control(link.inner, message.get(), bytes + seal_bytes);
  if (status == TUTTI_OK) ++link.control.sent;
  return status;
}

// Memory is all that can run out.
template <typename Body>
tutti_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& e) {
    return fail(TUTTI_NO_RESOURCES, fmt::format("checksums: {}", e.what()));
  }
}

const tutti_transport* inner_of(void* self) { return static_cast<const tutti_transport*>(self); }
Domain& domain_of(tutti_domain* domain) { return *reinterpret_cast<Domain*>(domain); }
Endpoint& endpoint_of(tutti_endpoint* endpoint) { return *reinterpret_cast<Endpoint*>(endpoint); }

tutti_status query(void* self, tutti_transport_caps* caps) {
  const tutti_status status = inner_of(self)->query(inner_of(self)->self, caps);
  if (status != TUTTI_OK) return status;
  caps->memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;  // processors compute the checksums
  if (TUTTI_HAS_FIELD(tutti_transport_caps, caps, flags)) caps->flags = 0;
  caps->fragment_bytes -= fragment_reserve;
  caps->inline_bytes -= std::min(caps->inline_bytes, seal_bytes);
  return status;
}

tutti_status open_domain(void* self, tutti_domain** domain) {
  return guarded([&] {
    auto made = std::make_unique<Domain>(Domain{inner_of(self), nullptr});
    const tutti_status status = made->api->open_domain(made->api->self, &made->inner);
    if (status == TUTTI_OK) *domain = reinterpret_cast<tutti_domain*>(made.release());
    return status;
  });
}

void close_domain(tutti_domain* domain) {
  domain_of(domain).api->close_domain(domain_of(domain).inner);
  delete &domain_of(domain);
}

tutti_status open_endpoint(tutti_domain* domain, const tutti_endpoint_config* config, tutti_endpoint** endpoint) {
  return guarded([&] {
    const tutti_transport* api = domain_of(domain).api;
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    tutti_status status = api->query(api->self, &caps);
    if (status < 0) return status;
    tutti_endpoint* inner = nullptr;
    status = api->open_endpoint(domain_of(domain).inner, config, &inner);
    if (status == TUTTI_OK)
      *endpoint = reinterpret_cast<tutti_endpoint*>(new Endpoint(api, inner, config->lanes, caps.inline_bytes));
    return status;
  });
}

tutti_status post(tutti_endpoint* endpoint, const tutti_transfer* transfers, uint32_t n, uint32_t* accepted) {
  *accepted = 0;
  return guarded([&]() -> tutti_status {
    for (; *accepted < n; ++*accepted) {
      bool taken = false;
      const tutti_status status = endpoint_of(endpoint).post(transfers[*accepted], &taken);
      if (!taken) return status;
    }
    return TUTTI_OK;
  });
}

const tutti_wait_fd* wait_table() {
  static const tutti_wait_fd table{
      sizeof(tutti_wait_fd), TUTTI_WAIT_FD_STAMP,
      [](tutti_endpoint* e, int32_t* fd) { return endpoint_of(e).wait_fd->get_fd(endpoint_of(e).endpoint, fd); },
      [](tutti_endpoint* e) -> tutti_status {
        return endpoint_of(e).waits() ? tutti_status{TUTTI_AGAIN}
                                      : endpoint_of(e).wait_fd->arm(endpoint_of(e).endpoint);
      },
      [](tutti_endpoint* e) { endpoint_of(e).wait_fd->disarm(endpoint_of(e).endpoint); }};
  return &table;
}

const tutti_rails* rails_of(const tutti_transport* inner) {
  return static_cast<const tutti_rails*>(inner->get_interface(inner->self, TUTTI_RAILS_ID));
}

// Without of_endpoint where the wrapped transport has none.
const tutti_rails* rails_table(bool of_endpoint) {
  static constexpr auto of_host = [](void* self, const tutti_rail_sink* sink) {
    return rails_of(inner_of(self))->of_host(inner_of(self)->self, sink);
  };
  static const tutti_rails without{sizeof(tutti_rails), TUTTI_RAILS_STAMP, of_host, nullptr};
  static const tutti_rails with{sizeof(tutti_rails), TUTTI_RAILS_STAMP, of_host,
                                [](tutti_endpoint* e, const tutti_rail_sink* sink) {
                                  return rails_of(endpoint_of(e).api)->of_endpoint(endpoint_of(e).endpoint, sink);
                                }};
  return of_endpoint ? &with : &without;
}

const void* interface_named(void* self, const char* id) {
  const tutti_transport* inner = inner_of(self);
  // One that is not whole is for the caller to refuse.
  if (std::string_view(id) == TUTTI_WAIT_FD_ID) {
    const auto* wait = static_cast<const tutti_wait_fd*>(inner->get_interface(inner->self, id));
    const bool whole = wait && wait->stamp == TUTTI_WAIT_FD_STAMP && wait->struct_size >= sizeof(tutti_wait_fd);
    return whole ? wait_table() : wait;
  }
  if (std::string_view(id) == TUTTI_RAILS_ID) {
    const tutti_rails* rails = rails_of(inner);
    const bool whole = rails && rails->stamp == TUTTI_RAILS_STAMP && TUTTI_HAS(tutti_rails, rails, of_host);
    return whole ? rails_table(TUTTI_HAS(tutti_rails, rails, of_endpoint)) : rails;
  }
  return nullptr;
}

tutti_transport table_over(const tutti_transport* inner) {
  tutti_transport table{};
  table.struct_size = sizeof table;
  table.stamp = TUTTI_TRANSPORT_STAMP;
  table.self = const_cast<tutti_transport*>(inner);
  table.name = inner->name;
  table.summary = inner->summary;
  table.query = query;
  table.open_domain = open_domain;
  table.close_domain = close_domain;
  table.open_endpoint = open_endpoint;
  table.close_endpoint = [](tutti_endpoint* endpoint) { delete &endpoint_of(endpoint); };
  table.get_address = [](tutti_endpoint* e, void* address, uint64_t* bytes) {
    return endpoint_of(e).api->get_address(endpoint_of(e).endpoint, address, bytes);
  };
  table.connect = [](tutti_endpoint* e, uint32_t peer, const void* address, uint64_t bytes, tutti_link** link) {
    return guarded([&] { return endpoint_of(e).connect(peer, address, bytes, link); });
  };
  table.post = post;
  table.progress = [](tutti_endpoint* e, tutti_completion* completions, uint32_t capacity, uint32_t* n) {
    *n = 0;
    return guarded([&] { return endpoint_of(e).progress(completions, capacity, n); });
  };
  table.send_control = [](tutti_link* link, const void* data, uint64_t bytes) {
    auto& to = *reinterpret_cast<SealedLink*>(link);
    return guarded([&] { return to.endpoint->send_control(to, data, bytes); });
  };
  table.fail_peer = [](tutti_endpoint* e, uint32_t peer) {
    return endpoint_of(e).api->fail_peer(endpoint_of(e).endpoint, peer);
  };
  table.abort = [](tutti_endpoint* e) { return endpoint_of(e).api->abort(endpoint_of(e).endpoint); };
  table.get_interface = interface_named;
  return table;
}

}  // namespace

const tutti_transport* sealed(const tutti_transport* inner) {
  static std::mutex mutex;
  static auto* tables = new std::map<const tutti_transport*, tutti_transport>();
  const std::lock_guard lock(mutex);
  return &tables->try_emplace(inner, table_over(inner)).first->second;
}

}  // namespace tutti::core
