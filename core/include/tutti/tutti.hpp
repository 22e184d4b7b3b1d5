// SPDX-License-Identifier: Apache-2.0
//
// The C++20 face of tutti.h: RAII and ranges, nothing else. Errors are exceptions of type tutti::Error.
//
//   tutti::Communicator world;                               // from the launcher's environment
//   std::vector<float> gradient = ...;
//   world.all_reduce(gradient, gradient, tutti::Op::sum);    // in place
//   tutti::Request r = world.async().all_reduce(a, b, tutti::Op::avg);
//   ... r.test() ... r.wait();
//
// Threads, processes, counts and in-place forms: tutti.h. docs/applications.md is the guide.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <tutti/calls.hpp>
#include <tutti/elements.hpp>
#include <tutti/operators.hpp>
#include <tutti/unequal_calls.hpp>
#include <utility>
#include <vector>

namespace tutti {

// An operation under way. Destroying it, or assigning to it, waits for its end. It may outlive its communicator, whose
// end completes it. Used by the communicator's thread.
class Request {
 public:
  Request() = default;
  // Takes ownership of a request of the C API.
  explicit Request(tutti_request* request) : request_(request) {}
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      tutti_request_free(request_);
      request_ = std::exchange(other.request_, nullptr);
    }
    return *this;
  }
  ~Request() { tutti_request_free(request_); }

  // Starts the operation of a complete request of a call with Options::persistent. Throws if it cannot.
  void start() {
    const tutti_status status = tutti_request_start(request_);
    const std::string reason = status < 0 ? tutti_request_error(request_) : "";
    if (status < 0)
      throw Error(status, !reason.empty() ? reason
                                          : "tutti::Request::start: " + std::string(tutti_status_text(status)) +
                                                ": a persistent request is started when its last start has completed, "
                                                "while its communicator lives");
  }
  // Advances; true once complete. Throws if the operation failed. An empty request is complete.
  bool test() { return !request_ || check(tutti_request_test(request_)); }
  // Until complete; throws if the operation failed.
  void wait() {
    if (request_) check(tutti_request_wait(request_));
  }
  // false: not complete within the time; the operation goes on. 0 only looks; a negative time is an error.
  bool wait_for(std::chrono::nanoseconds time) {
    const uint64_t longest = detail::nanoseconds("tutti::Request::wait_for", "time", time);
    return !request_ || check(tutti_request_wait_for(request_, longest));
  }

 private:
  bool check(tutti_status status) const {
    if (status < 0) throw Error(status, tutti_request_error(request_));
    return status == TUTTI_OK;
  }
  tutti_request* request_ = nullptr;
};

namespace detail {

// Opens a group for the calls that the body makes. An exception cancels it.
template <typename Body>
void collect(tutti_comm* comm, Body&& body) {
  if (const tutti_status status = tutti_group_begin(comm); status < 0) throw Error(status, tutti_comm_error(comm));
  try {
    body();
  } catch (...) {
    tutti_group_cancel(comm);
    throw;
  }
}

}  // namespace detail

// The asynchronous face of a communicator: every call returns a Request. Lives no longer than the communicator.
class Async : public detail::Calls<Async>, public detail::UnequalCalls<Async> {
 public:
  static constexpr bool returns_requests = true;
  explicit Async(tutti_comm* comm) : comm_(comm) {}
  tutti_comm* handle() const { return comm_; }
  template <typename Call>
  Request run(Call&& call) const {
    tutti_request* request = nullptr;
    const tutti_status status = call(comm_, &request);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return Request(request);
  }
  // As Communicator::group; with {.persistent = true} each start of the request begins the calls.
  template <typename Body>
  Request group(Body&& body, const Options& options = {}) const {
    const detail::COptions given("group", options);
    detail::collect(comm_, body);
    return run([&](tutti_comm* c, tutti_request** r) { return tutti_group_end(c, given.get(), r); });
  }

 private:
  tutti_comm* comm_;
};

// A communicator; its own calls block. Movable, not copyable: a moved-from one can only be assigned to or destroyed.
// Destroying it is collective, except where an exception leaves its scope: that aborts it. One thread at a time uses
// it; abort, revoke, async_error and lost may be called by any.
class Communicator : public detail::Calls<Communicator>, public detail::UnequalCalls<Communicator> {
 public:
  static constexpr bool returns_requests = false;
  // A configuration of defaults, with its struct_size, to fill in and make a communicator of.
  static tutti_comm_config defaults() {
    tutti_comm_config config{};
    config.struct_size = sizeof config;
    return config;
  }
  // From the environment, or as `config` says. Collective; throws when the ranks do not meet by the connect timeout.
  Communicator() : Communicator(defaults()) {}
  explicit Communicator(tutti_comm_config config) {
    if (config.struct_size == 0)  // tutti_comm_create could not even find where to write the reason
      throw Error(TUTTI_INVALID_ARGUMENT,
                  "tutti::Communicator: tutti_comm_config.struct_size is 0: it was not set. Begin with "
                  "tutti::Communicator::defaults(), or set it to sizeof(tutti_comm_config)");
    std::string error(4096, '\0');
    if (!config.error) {
      config.error = error.data();
      config.error_bytes = error.size();
    }
    const tutti_status status = tutti_comm_create(&config, &comm_);
    if (status < 0) throw Error(status, config.error);
  }
  // `rendezvous`: tutti_comm_config.rendezvous. `device`: tutti_comm_config.device; "": the default.
  Communicator(const std::string& rendezvous, uint32_t rank, uint32_t nranks, const std::string& device = "")
      : Communicator(meeting(rendezvous, rank, nranks, device)) {}
  // From the environment, bound to that device.
  static Communicator on_device(const std::string& device) {
    tutti_comm_config config = defaults();
    config.device = device.c_str();
    return Communicator(config);
  }
  // Takes ownership of a communicator of the C API.
  explicit Communicator(tutti_comm* comm) : comm_(comm) {}
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() {
    if (!comm_) return;
    // After an exception this rank will not take part in later operations, so the others must not wait for it.
    if (std::uncaught_exceptions() > exceptions_) tutti_comm_abort(comm_, "the rank left by an exception");
    tutti_comm_destroy(comm_);
  }

  std::string name() const { return tutti_comm_name(comm_); }
  uint32_t rank() const { return tutti_comm_rank(comm_); }
  uint32_t nranks() const { return tutti_comm_nranks(comm_); }
  // Where a rank is: its host, and its number among the host's ranks (tutti.h). Without an argument: this rank.
  tutti_host_facts host() const { return host(rank()); }
  tutti_host_facts host(uint32_t rank) const {
    tutti_host_facts facts{};
    facts.struct_size = sizeof facts;
    const tutti_status status = tutti_comm_host(comm_, rank, &facts);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return facts;
  }
  // The device that it is bound to, "cuda:1"; "none".
  std::string device() const {
    uint64_t bytes = 0;
    tutti_comm_device(comm_, nullptr, &bytes);
    std::string text(bytes, '\0');
    const tutti_status status = tutti_comm_device(comm_, text.data(), &bytes);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return text.c_str();
  }
  // The same calls, which return a Request at once.
  Async async() const { return Async(comm_); }
  // Calls of this communicator that `body` makes, without requests, begin and end together (tutti_group_begin):
  // world.group([&] { world.all_reduce(a, a, tutti::Op::sum); world.send(b, 1); }). Nothing begins if it throws.
  template <typename Body>
  void group(Body&& body, const Options& options = {}) const {
    async().group(body, options).wait();
  }
  // For the C API; it stays this object's.
  tutti_comm* handle() const { return comm_; }
  // Releases the handle: the caller destroys it.
  tutti_comm* release() { return std::exchange(comm_, nullptr); }
  // The message that has come and that a receive with this envelope would get: from(1, 7), from_any(7), any_message().
  // Empty: none has come within the timeout. 0 looks once; a negative timeout waits until one comes.
  std::optional<tutti_envelope> probe(tutti_envelope wanted, std::chrono::nanoseconds timeout = {}) const {
    const uint64_t limit = timeout.count() < 0 ? UINT64_MAX : static_cast<uint64_t>(timeout.count());
    const tutti_status status = tutti_probe(comm_, &wanted, limit);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return status == TUTTI_OK ? std::optional(wanted) : std::nullopt;
  }
  // Collective. The communicator of this rank's part (tutti.h): of the ranks of its color, by key and then by rank.
  // Empty: it is in none, by TUTTI_NO_COLOR.
  std::optional<Communicator> split(uint32_t color, int64_t key = 0, const std::string& name = "") const {
    return part(TUTTI_SPLIT_BY_COLOR, color, key, name);
  }
  // By place, `by` TUTTI_SPLIT_BY_HOST, _NUMA or _DEVICE. Empty: this rank's is not known.
  std::optional<Communicator> split_by(uint32_t by, int64_t key = 0, const std::string& name = "") const {
    return part(by, 0, key, name);
  }
  // Collective. A duplicate: another communicator of all its ranks.
  Communicator duplicate() const {
    return next([&](tutti_comm** made) { return tutti_comm_split(comm_, nullptr, made); });
  }
  // Ends every operation of all ranks; their errors carry the reason.
  void abort(const std::string& reason) const { tutti_comm_abort(comm_, reason.c_str()); }

  // After a failure (tutti.h): its description, and the next communicator, of the surviving ranks.
  void revoke(const std::string& reason) const { tutti_comm_revoke(comm_, reason.c_str()); }
  tutti_status async_error() const { return tutti_comm_async_error(comm_); }
  std::string error_text() const { return tutti_comm_error(comm_); }
  std::vector<uint32_t> lost() const { return rows<uint32_t>(tutti_comm_lost); }
  // Each waits for live ranks at most options.timeout; 0: the connect timeout. Options has no other use here.
  Communicator shrink(const Options& options = {}) const {
    const detail::COptions given("shrink", options);
    return next([&](tutti_comm** made) { return tutti_comm_shrink(comm_, given.get(), made); });
  }
  // The id with which `newcomers` processes join() while all surviving ranks call grow.
  std::string invite(const Options& options = {}) const {
    const detail::COptions given("invite", options);
    tutti_unique_id id{};
    const tutti_status status = tutti_comm_invite(comm_, given.get(), &id);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return id.text;
  }
  Communicator grow(const std::string& id, uint32_t newcomers, const Options& options = {}) const {
    const detail::COptions given("grow", options);
    tutti_unique_id copy{};
    for (size_t i = 0; i < id.size() && i + 1 < sizeof copy.text; ++i) copy.text[i] = id[i];
    return next([&](tutti_comm** made) { return tutti_comm_grow(comm_, &copy, newcomers, given.get(), made); });
  }
  // A process that was not among the ranks joins them; its rank is assigned.
  static Communicator join(const std::string& id) {
    tutti_comm_config config = defaults();
    config.rendezvous = id.c_str();
    config.flags = TUTTI_COMM_JOIN;
    return Communicator(config);
  }

  // Makes a blocking call of the C API, `call(comm, request)`; throws if it fails.
  template <typename Call>
  void run(Call&& call) const {
    const tutti_status status = call(comm_, nullptr);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
  }

  // How each kind of call was served, and the bytes moved with each peer and over each rail (tutti.h).
  std::vector<tutti_service> services() const { return rows<tutti_service>(tutti_comm_services); }
  std::vector<tutti_link_traffic> traffic() const { return rows<tutti_link_traffic>(tutti_comm_traffic); }
  std::vector<tutti_rail_traffic> rails() const { return rows<tutti_rail_traffic>(tutti_comm_rails); }

 private:
  static tutti_comm_config meeting(const std::string& rendezvous, uint32_t rank, uint32_t nranks,
                                   const std::string& device) {
    tutti_comm_config config = defaults();
    config.rendezvous = rendezvous.c_str();
    config.rank = rank;
    config.nranks = nranks;
    config.device = device.empty() ? nullptr : device.c_str();
    return config;
  }
  template <typename Row, typename Function>
  std::vector<Row> rows(Function function) const {
    uint64_t n = 0;
    function(comm_, nullptr, &n);
    std::vector<Row> result(n);
    function(comm_, result.data(), &n);
    result.resize(n < result.size() ? n : result.size());
    return result;
  }
  std::optional<Communicator> part(uint32_t by, uint32_t color, int64_t key, const std::string& name) const {
    tutti_split how{};
    how.struct_size = sizeof how;
    how.by = by;
    how.color = color;
    how.key = key;
    how.name = name.empty() ? nullptr : name.c_str();
    Communicator made = next([&](tutti_comm** comm) { return tutti_comm_split(comm_, &how, comm); });
    return made.comm_ ? std::optional(std::move(made)) : std::nullopt;
  }
  template <typename Make>
  Communicator next(Make&& make) const {
    tutti_comm* made = nullptr;
    const tutti_status status = make(&made);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return Communicator(made);
  }
  tutti_comm* comm_ = nullptr;
  int exceptions_ = std::uncaught_exceptions();
};

// A window (tutti.h): memory that all ranks of a communicator register together. Making and destroying it is
// collective; it is not deregistered where an exception leaves its scope, since that would wait for other ranks. It may
// outlive the communicator.
class Window {
 public:
  Window() = default;
  // `flags`: TUTTI_WINDOW_*.
  template <Elements Memory>
  Window(const Communicator& comm, Memory&& memory, uint32_t flags = 0)
      : Window(comm, detail::span_of(memory).data(), detail::span_of(memory).size_bytes(), flags) {
    detail::require_output<Memory>();
  }
  Window(const Communicator& comm, void* address, uint64_t bytes, uint32_t flags = 0) : comm_(comm.handle()) {
    tutti_window_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    const tutti_status status = tutti_comm_register(comm_, address, bytes, &options, &window_);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
  }
  Window(Window&& other) noexcept
      : comm_(other.comm_), window_(std::exchange(other.window_, nullptr)), exceptions_(other.exceptions_) {}
  Window& operator=(Window&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(window_, other.window_);
    return *this;
  }
  ~Window() {
    if (window_ && std::uncaught_exceptions() <= exceptions_) tutti_comm_deregister(comm_, window_, nullptr);
  }

  tutti_window* handle() const { return window_; }
  tutti_window_facts facts() const {
    tutti_window_facts facts{};
    facts.struct_size = sizeof facts;
    const tutti_status status = tutti_comm_window(comm_, window_, &facts);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return facts;
  }

 private:
  tutti_comm* comm_ = nullptr;
  tutti_window* window_ = nullptr;
  int exceptions_ = std::uncaught_exceptions();
};

// Memory that transports can address directly, as an array of T, zeroed. A range, for every call of every communicator.
// Freed on destruction: no operation uses it then.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    if (count > SIZE_MAX / sizeof(T))
      throw Error(TUTTI_NO_RESOURCES, "tutti::Buffer: " + std::to_string(count) + " elements cannot be addressed");
    void* address = nullptr;
    const tutti_status status = tutti_mem_alloc(count * sizeof(T), &address);
    if (status < 0)
      throw Error(status, "tutti::Buffer: cannot allocate " + std::to_string(count * sizeof(T)) +
                              " bytes: " + tutti_status_text(status));
    data_ = static_cast<T*>(address);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() {
    if (data_) tutti_mem_free(data_);
  }
  T* data() const { return data_; }
  size_t size() const { return count_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }
  std::span<T> span() const { return {data_, count_}; }
  operator std::span<T>() const { return span(); }
  operator std::span<const T>() const { return {data_, count_}; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace tutti
