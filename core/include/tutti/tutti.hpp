// SPDX-License-Identifier: Apache-2.0
//
// The C++20 face of tutti.h: RAII and spans, nothing else. Errors are exceptions of type tutti::Error.
//
//   tutti::Communicator world;                                  // from the launcher's environment
//   std::vector<float> gradient = ...;
//   world.all_reduce<float>(gradient, gradient, tutti::Op::sum);  // in place
//   tutti::Request r = world.async().all_reduce<float>(a, b, tutti::Op::avg);
//   ... r.test() ... r.wait();
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

enum class Op : uint32_t { sum = TUTTI_SUM, prod = TUTTI_PROD, min = TUTTI_MIN, max = TUTTI_MAX, avg = TUTTI_AVG };

// A failed call: what() says who, expected against actual, and what to do.
class Error : public std::runtime_error {
 public:
  Error(tutti_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  tutti_status status() const noexcept { return status_; }

 private:
  tutti_status status_;
};

// The tutti data type of a C++ arithmetic type. float16 and bfloat16 have none in C++20: use the C API.
template <typename T>
constexpr uint32_t dtype_of() {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
  static_assert(std::is_floating_point_v<T> ? sizeof(T) == 4 || sizeof(T) == 8 : sizeof(T) <= 8, "no such tutti type");
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? TUTTI_FLOAT32 : TUTTI_FLOAT64;
  constexpr uint32_t base = std::is_signed_v<T> ? TUTTI_INT8 : TUTTI_UINT8;
  return base + (sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3);
}

// An operation under way. Destroying it waits for its end.
class Request {
 public:
  Request() = default;
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

  // Advances; true once complete. Throws if the operation failed. An empty request is complete.
  bool test() { return !request_ || check(tutti_request_test(request_)); }
  void wait() {
    if (request_) check(tutti_request_wait(request_));
  }
  // false: not complete within the time; the operation goes on.
  bool wait_for(std::chrono::nanoseconds time) {
    return !request_ || check(tutti_request_wait_for(request_, static_cast<uint64_t>(time.count())));
  }

 private:
  bool check(tutti_status status) const {
    if (status < 0) throw Error(status, tutti_request_error(request_));
    return status == TUTTI_OK;
  }
  tutti_request* request_ = nullptr;
};

namespace detail {

// The collectives, shared by the blocking and the asynchronous face. Self::run decides how the request is completed.
// Two spans that determine the same size must agree. A buffer that the rank does not use may be an empty span.
template <typename Self>
class Collectives {
 public:
  template <typename T>
  auto broadcast(std::span<T> data, uint32_t root) const {
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_broadcast(c, data.data(), data.data(), data.size(), dtype_of<T>(), root, nullptr, r);
    });
  }
  template <typename T>
  auto reduce(std::span<const T> in, std::span<T> out, Op op, uint32_t root) const {
    if (rank() == root) same(in.size(), out.size(), "reduce");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_reduce(c, in.data(), out.data(), in.size(), dtype_of<T>(), code(op), root, nullptr, r);
    });
  }
  template <typename T>
  auto all_reduce(std::span<const T> in, std::span<T> out, Op op) const {
    same(in.size(), out.size(), "all_reduce");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_reduce(c, in.data(), out.data(), in.size(), dtype_of<T>(), code(op), nullptr, r);
    });
  }
  template <typename T>
  auto gather(std::span<const T> in, std::span<T> out, uint32_t root) const {
    if (rank() == root) same(in.size() * nranks(), out.size(), "gather");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_gather(c, in.data(), out.data(), in.size(), dtype_of<T>(), root, nullptr, r);
    });
  }
  template <typename T>
  auto all_gather(std::span<const T> in, std::span<T> out) const {
    same(in.size() * nranks(), out.size(), "all_gather");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_gather(c, in.data(), out.data(), in.size(), dtype_of<T>(), nullptr, r);
    });
  }
  template <typename T>
  auto scatter(std::span<const T> in, std::span<T> out, uint32_t root) const {
    if (rank() == root) same(out.size() * nranks(), in.size(), "scatter");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_scatter(c, in.data(), out.data(), out.size(), dtype_of<T>(), root, nullptr, r);
    });
  }
  template <typename T>
  auto reduce_scatter(std::span<const T> in, std::span<T> out, Op op) const {
    same(out.size() * nranks(), in.size(), "reduce_scatter");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_reduce_scatter(c, in.data(), out.data(), out.size(), dtype_of<T>(), code(op), nullptr, r);
    });
  }
  template <typename T>
  auto all_to_all(std::span<const T> in, std::span<T> out) const {
    same(in.size(), out.size(), "all_to_all");
    same(in.size() / nranks() * nranks(), in.size(), "all_to_all");
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_to_all(c, in.data(), out.data(), in.size() / nranks(), dtype_of<T>(), nullptr, r);
    });
  }
  auto barrier() const {
    return run([&](tutti_comm* c, tutti_request** r) { return tutti_barrier(c, nullptr, r); });
  }
  template <typename T>
  auto send(std::span<const T> data, uint32_t peer, uint32_t tag = 0) const {
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_send(c, data.data(), data.size(), dtype_of<T>(), peer, tag, nullptr, r);
    });
  }
  template <typename T>
  auto receive(std::span<T> data, uint32_t peer, uint32_t tag = 0) const {
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_receive(c, data.data(), data.size(), dtype_of<T>(), peer, tag, nullptr, r);
    });
  }
  auto exchange(std::span<const tutti_message> messages) const {
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_exchange(c, messages.data(), messages.size(), nullptr, r);
    });
  }

 private:
  template <typename Call>
  auto run(Call&& call) const {
    return static_cast<const Self*>(this)->run(std::forward<Call>(call));
  }
  uint32_t rank() const { return tutti_comm_rank(static_cast<const Self*>(this)->handle()); }
  uint32_t nranks() const { return tutti_comm_nranks(static_cast<const Self*>(this)->handle()); }
  static uint32_t code(Op op) { return static_cast<uint32_t>(op); }
  static void same(size_t expected, size_t actual, const char* what) {
    if (expected != actual)
      throw Error(TUTTI_INVALID_ARGUMENT, std::string(what) + ": the spans disagree: expected " +
                                              std::to_string(expected) + " elements, got " + std::to_string(actual));
  }
};

}  // namespace detail

// The asynchronous face of a communicator: every call returns a Request. Lives no longer than the communicator.
class Async : public detail::Collectives<Async> {
 public:
  explicit Async(tutti_comm* comm) : comm_(comm) {}
  tutti_comm* handle() const { return comm_; }
  template <typename Call>
  Request run(Call&& call) const {
    tutti_request* request = nullptr;
    const tutti_status status = call(comm_, &request);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return Request(request);
  }

 private:
  tutti_comm* comm_;
};

// A communicator; its own calls block. Movable, not copyable. Destroying it is collective, except where an exception
// leaves its scope: that aborts it.
class Communicator : public detail::Collectives<Communicator> {
 public:
  // From the environment, or as `config` says.
  Communicator() : Communicator(defaults()) {}
  explicit Communicator(tutti_comm_config config) {
    std::string error(4096, '\0');
    if (!config.error) {
      config.error = error.data();
      config.error_bytes = error.size();
    }
    const tutti_status status = tutti_comm_create(&config, &comm_);
    if (status < 0) throw Error(status, config.error);
  }
  // `device`: tutti_comm_config.device; "": the default.
  Communicator(const std::string& rendezvous, uint32_t rank, uint32_t nranks, const std::string& device = "")
      : Communicator(meeting(rendezvous, rank, nranks, device)) {}
  // From the environment, bound to that device.
  static Communicator on_device(const std::string& device) {
    tutti_comm_config config = defaults();
    config.device = device.c_str();
    return Communicator(config);
  }
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

  uint32_t rank() const { return tutti_comm_rank(comm_); }
  uint32_t nranks() const { return tutti_comm_nranks(comm_); }
  // The device that it is bound to, "cuda:1"; "none".
  std::string device() const {
    uint64_t bytes = 0;
    tutti_comm_device(comm_, nullptr, &bytes);
    std::string text(bytes, '\0');
    const tutti_status status = tutti_comm_device(comm_, text.data(), &bytes);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return text.c_str();
  }
  Async async() const { return Async(comm_); }
  tutti_comm* handle() const { return comm_; }
  // The handle, which is the caller's to destroy from now on.
  tutti_comm* release() { return std::exchange(comm_, nullptr); }
  void abort(const std::string& reason) const { tutti_comm_abort(comm_, reason.c_str()); }

  // After a failure (tutti.h): its description, and the next communicator, of the surviving ranks.
  void revoke(const std::string& reason) const { tutti_comm_revoke(comm_, reason.c_str()); }
  tutti_status async_error() const { return tutti_comm_async_error(comm_); }
  std::string error_text() const { return tutti_comm_error(comm_); }
  std::vector<uint32_t> lost() const { return rows<uint32_t>(tutti_comm_lost); }
  Communicator shrink() const {
    return next([&](tutti_comm** made) { return tutti_comm_shrink(comm_, nullptr, made); });
  }
  // The id with which `newcomers` processes join() while all surviving ranks call grow.
  std::string invite() const {
    tutti_unique_id id{};
    const tutti_status status = tutti_comm_invite(comm_, nullptr, &id);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
    return id.text;
  }
  Communicator grow(const std::string& id, uint32_t newcomers) const {
    tutti_unique_id copy{};
    for (size_t i = 0; i < id.size() && i + 1 < sizeof copy.text; ++i) copy.text[i] = id[i];
    return next([&](tutti_comm** made) { return tutti_comm_grow(comm_, &copy, newcomers, nullptr, made); });
  }
  static Communicator join(const std::string& id) {
    tutti_comm_config config = defaults();
    config.rendezvous = id.c_str();
    config.flags = TUTTI_COMM_JOIN;
    return Communicator(config);
  }

  template <typename Call>
  void run(Call&& call) const {
    const tutti_status status = call(comm_, nullptr);
    if (status < 0) throw Error(status, tutti_comm_error(comm_));
  }

  std::vector<tutti_service> services() const { return rows<tutti_service>(tutti_comm_services); }
  std::vector<tutti_link_traffic> traffic() const { return rows<tutti_link_traffic>(tutti_comm_traffic); }
  std::vector<tutti_rail_traffic> rails() const { return rows<tutti_rail_traffic>(tutti_comm_rails); }

 private:
  static tutti_comm_config defaults() {
    tutti_comm_config config{};
    config.struct_size = sizeof config;
    return config;
  }
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
  explicit Communicator(tutti_comm* comm) : comm_(comm) {}
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
// collective; it is not deregistered where an exception leaves its scope, since other ranks would be waited for. It may
// outlive the communicator.
class Window {
 public:
  Window() = default;
  template <typename T>
  Window(const Communicator& comm, std::span<T> memory, uint32_t flags = 0)
      : Window(comm, memory.data(), memory.size_bytes(), flags) {}
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

// Memory that transports can address directly, as an array of T. Freed on destruction.
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
  std::span<T> span() const { return {data_, count_}; }
  operator std::span<T>() const { return span(); }
  operator std::span<const T>() const { return {data_, count_}; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace tutti
