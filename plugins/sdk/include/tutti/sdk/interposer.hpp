// SPDX-License-Identifier: Apache-2.0
//
// A transport over another transport. Every function of transport/1, view/1, wait_fd/1 and rails/1 is forwarded; a
// virtual function of Interposer, Domain, Endpoint or Link is a place where something may be watched, changed or
// broken:
//
//   struct Losing : tutti::sdk::Interposer {
//     Losing() : Interposer("losing", "loses empty messages") {}
//     std::string wrapped() override { return "shm"; }                 // the plugin's id
//     struct Lane : Link {
//       using Link::Link;
//       void commit(uint32_t lane, uint64_t bytes) noexcept override { if (bytes) Link::commit(lane, bytes); }
//     };
//     std::unique_ptr<Link> make_link(Endpoint& at, uint32_t peer, tutti_link* inner) override {
//       return std::make_unique<Lane>(at, peer, inner);
//     }
//   };
//   TUTTI_PLUGIN(losing, "losing", "1.0.0", "me", "Apache-2.0", "loses empty messages",
//                {TUTTI_TRANSPORT_ID, tutti::sdk::interposer_table<Losing>()});
//
// A forwarded call keeps its status and the error text that the wrapped transport gave. A function that returns a
// status may throw sdk::Error (or anything else); those of view/1 and disarm may not. Threads are those of
// tutti/plugin/transport.h. Interfaces that this header does not know are not offered, since their handles would be the
// wrong ones.
#pragma once

#include <tutti/plugin/rails.h>
#include <tutti/plugin/transport.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <tutti/sdk/transport.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

class Interposer {
 public:
  // The wrapped transport. view, wait_fd and rails are NULL where it has none.
  struct Inner {
    const tutti_transport* api = nullptr;
    const tutti_view* view = nullptr;
    const tutti_wait_fd* wait_fd = nullptr;
    const tutti_rails* rails = nullptr;
    bool by_region = false;  // view has send_region and released
    bool by_mark = false;    // view has set_mark and get_mark
  };

  class Domain {
   public:
    Domain(Interposer& transport, tutti_domain* inner)
        : transport_(transport), api_(*transport.inner().api), inner_(inner) {}
    Domain(const Domain&) = delete;
    Domain& operator=(const Domain&) = delete;
    virtual ~Domain() { api_.close_domain(inner_); }
    Interposer& transport() const { return transport_; }
    tutti_domain* inner() const { return inner_; }

    virtual tutti_status register_memory(const tutti_memory* memory, tutti_region** region) {
      if (!TUTTI_HAS(tutti_transport, &api_, register_memory))
        return report(TUTTI_NOT_SUPPORTED, "the wrapped transport registers no memory");
      return api_.register_memory(inner_, memory, region);
    }
    virtual tutti_status deregister_memory(tutti_region* region) { return api_.deregister_memory(inner_, region); }

   private:
    Interposer& transport_;
    const tutti_transport& api_;
    tutti_domain* inner_;
  };

  class Endpoint;

  class Link {
   public:
    Link(Endpoint& at, uint32_t to, tutti_link* inner) : endpoint(at), peer(to), inner_(inner) {}
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    virtual ~Link() = default;
    tutti_link* inner() const { return inner_; }
    Endpoint& endpoint;
    const uint32_t peer;

    virtual tutti_status send_control(const void* data, uint64_t bytes) {
      return endpoint.api().send_control(inner_, data, bytes);
    }
    // Called only where the wrapped transport has it.
    virtual tutti_status flush(tutti_region* region, const void* data, uint64_t bytes) {
      return endpoint.api().flush(inner_, region, data, bytes);
    }
    // view/1. Called only where the wrapped transport has the function.
    virtual const void* try_receive(uint32_t lane, uint64_t* bytes) noexcept {
      return view().try_receive(inner_, lane, bytes);
    }
    // Unless overridden it does what try_receive does: it need not use `room`.
    virtual const void* try_receive_into(uint32_t lane, [[maybe_unused]] void* room, uint64_t* bytes) noexcept {
      return try_receive(lane, bytes);
    }
    virtual void release(uint32_t lane) noexcept { view().release(inner_, lane); }
    virtual void* try_reserve(uint32_t lane, uint64_t bytes) noexcept {
      return view().try_reserve(inner_, lane, bytes);
    }
    virtual void commit(uint32_t lane, uint64_t bytes) noexcept { view().commit(inner_, lane, bytes); }
    virtual tutti_status send_region(uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                                     uint64_t* ticket) noexcept {
      return view().send_region(inner_, lane, region, offset, bytes, ticket);
    }
    virtual uint64_t released(uint32_t lane) noexcept { return view().released(inner_, lane); }
    virtual void set_mark(uint32_t lane, uint32_t mark) noexcept { view().set_mark(inner_, lane, mark); }
    virtual uint32_t get_mark(uint32_t lane) noexcept { return view().get_mark(inner_, lane); }

   private:
    const tutti_view& view() const { return *endpoint.wrapped().view; }
    tutti_link* inner_;
  };

  class Endpoint {
   public:
    Endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint* inner)
        : rank(config.rank),
          nranks(config.nranks),
          lanes(config.lanes),
          domain_(domain),
          wrapped_(domain.transport().inner()),
          inner_(inner) {}
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;
    virtual ~Endpoint() { api().close_endpoint(inner_); }
    Interposer& transport() const { return domain_.transport(); }
    const Inner& wrapped() const { return wrapped_; }
    const tutti_transport& api() const { return *wrapped_.api; }
    tutti_endpoint* inner() const { return inner_; }
    // A connected peer's link, or nullptr.
    Link* link(uint32_t peer) const {
      const auto found = links_.find(peer);
      return found == links_.end() ? nullptr : found->second.get();
    }
    const uint32_t rank, nranks, lanes;

    virtual tutti_status connect(uint32_t peer, Link** link) {
      tutti_link* inner = nullptr;
      const tutti_status status = api().connect(inner_, peer, &inner);
      if (status != TUTTI_OK) return status;
      auto& made = links_[peer];
      if (!made) made = transport().make_link(*this, peer, inner);
      *link = made.get();
      return TUTTI_OK;
    }
    // Called only where the wrapped transport has it. Pair messages of the wrapped endpoint go straight to the core.
    virtual tutti_status receive_pair(uint32_t peer, const void* data, uint64_t bytes) {
      return api().receive_pair(inner_, peer, data, bytes);
    }
    // The transfer's link is a Link* (link_of).
    virtual tutti_status post(const tutti_transfer& transfer) {
      tutti_transfer of_inner = transfer;
      of_inner.link = link_of(transfer).inner();
      return api().post(inner_, &of_inner);
    }
    virtual tutti_status progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) {
      return api().progress(inner_, completions, capacity, n);
    }
    virtual tutti_status fail_peer(uint32_t peer) { return api().fail_peer(inner_, peer); }
    virtual tutti_status abort() { return api().abort(inner_); }
    // wait_fd/1. Called only where the wrapped transport has it.
    virtual tutti_status get_fd(int32_t* fd) { return wrapped_.wait_fd->get_fd(inner_, fd); }
    virtual tutti_status arm() { return wrapped_.wait_fd->arm(inner_); }
    virtual void disarm() noexcept { wrapped_.wait_fd->disarm(inner_); }
    // rails/1. Called only where the wrapped transport has the function.
    virtual tutti_status rails(const tutti_rail_sink* sink) { return wrapped_.rails->of_endpoint(inner_, sink); }

    static Link& link_of(const tutti_transfer& transfer) { return from_handle<Link>(transfer.link); }

   private:
    Domain& domain_;
    const Inner& wrapped_;
    tutti_endpoint* inner_;
    std::map<uint32_t, std::unique_ptr<Link>> links_;
  };

  // Both strings outlive the plugin.
  Interposer(const char* name, const char* summary);
  // Over a given transport, with its name and summary: wrapped() is not called.
  explicit Interposer(const tutti_transport& over);
  Interposer(const Interposer&) = delete;
  Interposer& operator=(const Interposer&) = delete;
  virtual ~Interposer() = default;

  // The id of the plugin to wrap, unless the transport was given. Called until the plugin has been found. An Error that
  // it throws is open_domain's.
  virtual std::string wrapped() = 0;
  // The wrapped transport, for good; throws sdk::Error when there is no such plugin.
  const Inner& inner();
  const tutti_transport& table() const { return table_; }

  virtual tutti_status query(Domain& domain, tutti_transport_caps* caps) {
    return inner().api->query(domain.inner(), caps);
  }
  // True to offer this interface of the wrapped transport: TUTTI_VIEW_ID, TUTTI_WAIT_FD_ID or TUTTI_RAILS_ID.
  virtual bool shows(std::string_view) { return true; }
  // True to offer the wrapped transport's send_region.
  virtual bool shows_send_region() { return true; }
  // rails/1. Called only where the wrapped transport has it.
  virtual tutti_status rails(const tutti_rail_sink* sink) { return inner().rails->of_host(inner().api->self, sink); }
  virtual tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) {
    return inner().api->open_endpoint(domain.inner(), &config, endpoint);
  }
  virtual std::unique_ptr<Domain> make_domain(tutti_domain* inner) { return std::make_unique<Domain>(*this, inner); }
  virtual std::unique_ptr<Endpoint> make_endpoint(Domain& domain, const tutti_endpoint_config& config,
                                                  tutti_endpoint* inner) {
    return std::make_unique<Endpoint>(domain, config, inner);
  }
  virtual std::unique_ptr<Link> make_link(Endpoint& endpoint, uint32_t peer, tutti_link* inner) {
    return std::make_unique<Link>(endpoint, peer, inner);
  }

 protected:
  // The table offers no registration of memory, whatever the wrapped transport has.
  void register_no_memory() {
    table_.register_memory = nullptr;
    table_.deregister_memory = nullptr;
    table_.flush = nullptr;
  }

 private:
  void fill_transport();
  const tutti_transport* find_wrapped();
  void fill_view();
  void fill_wait_fd();
  void fill_rails();
  const void* interface_named(std::string_view id);
  static tutti_status send_region_(tutti_link* link, uint32_t lane, tutti_region* region, uint64_t offset,
                                   uint64_t bytes, uint64_t* ticket) {
    return from_handle<Link>(link).send_region(lane, region, offset, bytes, ticket);
  }
  static uint64_t released_(tutti_link* link, uint32_t lane) { return from_handle<Link>(link).released(lane); }
  static const void* try_receive_into_(tutti_link* link, uint32_t lane, void* room, uint64_t* bytes) {
    return from_handle<Link>(link).try_receive_into(lane, room, bytes);
  }
  static void set_mark_(tutti_link* link, uint32_t lane, uint32_t mark) {
    from_handle<Link>(link).set_mark(lane, mark);
  }
  static uint32_t get_mark_(tutti_link* link, uint32_t lane) { return from_handle<Link>(link).get_mark(lane); }
  static tutti_status rails_of_endpoint(tutti_endpoint* endpoint, const tutti_rail_sink* sink) {
    return guard([&] { return from_handle<Endpoint>(endpoint).rails(sink); });
  }
  static Interposer& of(void* self) { return *static_cast<Interposer*>(self); }

  std::mutex mutex_;
  Inner inner_;
  const tutti_transport* given_ = nullptr;
  tutti_transport table_{};
  tutti_view view_{};
  tutti_wait_fd wait_fd_{};
  tutti_rails rails_{};
};

// The table of the one Interposer of class T. It lives as long as the process.
template <typename T>
const tutti_transport* interposer_table() {
  static T* const interposer = new T();
  return &interposer->table();
}

inline Interposer::Interposer(const char* name, const char* summary) {
  table_.struct_size = sizeof table_;
  table_.self = this;
  table_.name = name;
  table_.summary = summary;
  fill_transport();
  fill_view();
  fill_wait_fd();
  fill_rails();
}

inline Interposer::Interposer(const tutti_transport& over) : Interposer(over.name, over.summary) {
  given_ = &over;
  inner();
}

inline const tutti_transport* Interposer::find_wrapped() {
  const std::string id = wrapped();
  const void* found = host && TUTTI_HAS(tutti_host, host, find_interface)
                          ? host->find_interface(host->self, id.c_str(), TUTTI_TRANSPORT_ID)
                          : nullptr;
  const auto* api = static_cast<const tutti_transport*>(found);
  if (!api)
    throw Error(TUTTI_NOT_FOUND, std::string(table_.name) + " cannot wrap the transport of the plugin \"" + id +
                                     "\": no such plugin is loaded, or it has no transport");
  if (api == &table_) throw Error(TUTTI_INVALID_ARGUMENT, std::string(table_.name) + " cannot wrap itself");
  if (const SizeVerdict verdict = judge_table(api); verdict.status < 0)
    throw Error(verdict.status, std::string(table_.name) + " cannot wrap " + id + ": its " + verdict.text);
  return api;
}

inline const Interposer::Inner& Interposer::inner() {
  const std::lock_guard lock(mutex_);
  if (inner_.api) return inner_;
  const tutti_transport* api = given_ ? given_ : find_wrapped();
  Inner made;
  made.view = static_cast<const tutti_view*>(api->get_interface(api->self, TUTTI_VIEW_ID));
  made.wait_fd = static_cast<const tutti_wait_fd*>(api->get_interface(api->self, TUTTI_WAIT_FD_ID));
  made.rails = static_cast<const tutti_rails*>(api->get_interface(api->self, TUTTI_RAILS_ID));
  made.by_region =
      made.view && TUTTI_HAS(tutti_view, made.view, send_region) && TUTTI_HAS(tutti_view, made.view, released);
  made.by_mark = made.view && TUTTI_HAS(tutti_view, made.view, set_mark) && TUTTI_HAS(tutti_view, made.view, get_mark);
  made.api = api;
  if (!TUTTI_HAS(tutti_transport, api, register_memory) || !TUTTI_HAS(tutti_transport, api, deregister_memory)) {
    table_.register_memory = nullptr;  // nothing to forward to: like the wrapped transport, it registers no memory
    table_.deregister_memory = nullptr;
  }
  if (!TUTTI_HAS(tutti_transport, api, flush)) table_.flush = nullptr;
  if (!TUTTI_HAS(tutti_transport, api, fail_peer)) table_.fail_peer = nullptr;
  if (!TUTTI_HAS(tutti_transport, api, receive_pair)) table_.receive_pair = nullptr;
  return inner_ = made;
}

inline void Interposer::fill_transport() {
  table_.query = [](tutti_domain* domain, tutti_transport_caps* caps) {
    auto& in = from_handle<Domain>(domain);
    return guard([&] { return in.transport().query(in, caps); });
  };
  table_.open_domain = [](void* self, const tutti_domain_config* config, tutti_domain** domain) {
    return guard([&]() -> tutti_status {
      const tutti_transport* api = of(self).inner().api;
      tutti_domain* opened = nullptr;
      const tutti_status status = api->open_domain(api->self, config, &opened);
      if (status == TUTTI_OK) *domain = to_handle<tutti_domain>(of(self).make_domain(opened).release());
      return status;
    });
  };
  table_.close_domain = [](tutti_domain* domain) { delete &from_handle<Domain>(domain); };
  table_.register_memory = [](tutti_domain* domain, const tutti_memory* memory, tutti_region** region) {
    return guard([&] { return from_handle<Domain>(domain).register_memory(memory, region); });
  };
  table_.deregister_memory = [](tutti_domain* domain, tutti_region* region) {
    return guard([&] { return from_handle<Domain>(domain).deregister_memory(region); });
  };
  table_.open_endpoint = [](tutti_domain* domain, const tutti_endpoint_config* config, tutti_endpoint** endpoint) {
    return guard([&]() -> tutti_status {
      auto& in = from_handle<Domain>(domain);
      tutti_endpoint* opened = nullptr;
      const tutti_status status = in.transport().open_endpoint(in, *config, &opened);
      if (status == TUTTI_OK)
        *endpoint = to_handle<tutti_endpoint>(in.transport().make_endpoint(in, *config, opened).release());
      return status;
    });
  };
  table_.close_endpoint = [](tutti_endpoint* endpoint) { delete &from_handle<Endpoint>(endpoint); };
  table_.receive_pair = [](tutti_endpoint* endpoint, uint32_t peer, const void* data, uint64_t bytes) {
    return guard([&] { return from_handle<Endpoint>(endpoint).receive_pair(peer, data, bytes); });
  };
  table_.connect = [](tutti_endpoint* endpoint, uint32_t peer, tutti_link** link) {
    return guard([&]() -> tutti_status {
      Link* made = nullptr;
      const tutti_status status = from_handle<Endpoint>(endpoint).connect(peer, &made);
      if (status == TUTTI_OK) *link = to_handle<tutti_link>(made);
      return status;
    });
  };
  table_.post = [](tutti_endpoint* endpoint, const tutti_transfer* transfer) {
    return guard([&] { return from_handle<Endpoint>(endpoint).post(*transfer); });
  };
  table_.progress = [](tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity, uint32_t* n) {
    *n = 0;
    return guard([&] { return from_handle<Endpoint>(endpoint).progress(completions, capacity, n); });
  };
  table_.send_control = [](tutti_link* link, const void* data, uint64_t bytes) {
    return guard([&] { return from_handle<Link>(link).send_control(data, bytes); });
  };
  table_.flush = [](tutti_link* link, tutti_region* region, const void* data, uint64_t bytes) {
    return guard([&] { return from_handle<Link>(link).flush(region, data, bytes); });
  };
  table_.fail_peer = [](tutti_endpoint* endpoint, uint32_t peer) {
    return guard([&] { return from_handle<Endpoint>(endpoint).fail_peer(peer); });
  };
  table_.abort = [](tutti_endpoint* endpoint) {
    return guard([&] { return from_handle<Endpoint>(endpoint).abort(); });
  };
  table_.get_interface = [](void* self, const char* id) -> const void* {
    const void* found = nullptr;
    guard([&] { found = of(self).interface_named(id); });
    return found;
  };
}

inline void Interposer::fill_view() {
  view_.struct_size = sizeof view_;
  view_.try_receive = [](tutti_link* link, uint32_t lane, uint64_t* bytes) {
    return from_handle<Link>(link).try_receive(lane, bytes);
  };
  view_.release = [](tutti_link* link, uint32_t lane) { from_handle<Link>(link).release(lane); };
  view_.try_reserve = [](tutti_link* link, uint32_t lane, uint64_t bytes) {
    return from_handle<Link>(link).try_reserve(lane, bytes);
  };
  view_.commit = [](tutti_link* link, uint32_t lane, uint64_t bytes) { from_handle<Link>(link).commit(lane, bytes); };
}

inline void Interposer::fill_wait_fd() {
  wait_fd_.struct_size = sizeof wait_fd_;
  wait_fd_.get_fd = [](tutti_endpoint* endpoint, int32_t* fd) {
    return guard([&] { return from_handle<Endpoint>(endpoint).get_fd(fd); });
  };
  wait_fd_.arm = [](tutti_endpoint* endpoint) { return guard([&] { return from_handle<Endpoint>(endpoint).arm(); }); };
  wait_fd_.disarm = [](tutti_endpoint* endpoint) { from_handle<Endpoint>(endpoint).disarm(); };
}

inline void Interposer::fill_rails() {
  rails_.struct_size = sizeof rails_;
  rails_.of_host = [](void* self, const tutti_rail_sink* sink) { return guard([&] { return of(self).rails(sink); }); };
}

// Several threads may call this at once while others read the tables: fields that are right already are not written
// again.
inline const void* Interposer::interface_named(std::string_view id) {
  const Inner& in = inner();
  const auto set = [this](auto& field, auto value) {
    const std::lock_guard lock(mutex_);
    if (field != value) field = value;
  };
  if (id == TUTTI_WAIT_FD_ID) return in.wait_fd && shows(id) ? &wait_fd_ : nullptr;
  if (id == TUTTI_RAILS_ID) {
    if (!in.rails || !shows(id)) return nullptr;
    set(rails_.of_endpoint, TUTTI_HAS(tutti_rails, in.rails, of_endpoint) ? rails_of_endpoint : nullptr);
    return &rails_;
  }
  if (id != TUTTI_VIEW_ID || !in.view || !shows(id)) return nullptr;
  const bool by_region = in.by_region && shows_send_region();
  set(view_.send_region, by_region ? send_region_ : nullptr);
  set(view_.released, by_region ? released_ : nullptr);
  set(view_.set_mark, in.by_mark ? set_mark_ : nullptr);
  set(view_.get_mark, in.by_mark ? get_mark_ : nullptr);
  set(view_.try_receive_into, TUTTI_HAS(tutti_view, in.view, try_receive_into) ? try_receive_into_ : nullptr);
  return &view_;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
