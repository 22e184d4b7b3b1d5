// SPDX-License-Identifier: Apache-2.0
//
// The calls of communicators in C++ (tutti.hpp): what the blocking and the asynchronous face share.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/elements.hpp>
#include <utility>

namespace tutti {

// How values are combined (types.h has the rules of rounding and of NaN).
enum class Op : uint32_t {
  sum = TUTTI_SUM,
  prod = TUTTI_PROD,
  min = TUTTI_MIN,
  max = TUTTI_MAX,
  avg = TUTTI_AVG,
  band = TUTTI_BAND,
  bor = TUTTI_BOR,
  bxor = TUTTI_BXOR,
  land = TUTTI_LAND,
  lor = TUTTI_LOR,
  lxor = TUTTI_LXOR,
  minloc = TUTTI_MINLOC,  // of float32_int32 and float64_int64
  maxloc = TUTTI_MAXLOC
};

// A failed call: what() says who, expected against actual, and what to do.
class Error : public std::runtime_error {
 public:
  Error(tutti_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  tutti_status status() const noexcept { return status_; }

 private:
  tutti_status status_;
};

// The order in which a reduction combines the ranks' contributions (TUTTI_ORDER_*).
enum class Order : uint32_t {
  communicator = TUTTI_ORDER_DEFAULT,
  free = TUTTI_ORDER_FREE,
  canonical = TUTTI_ORDER_CANONICAL,
  exact = TUTTI_ORDER_EXACT
};

// How the float32 numbers of a call travel (TUTTI_WIRE_*).
enum class Wire : uint32_t {
  plain = TUTTI_WIRE_PLAIN,
  float16 = TUTTI_WIRE_FLOAT16,
  bfloat16 = TUTTI_WIRE_BFLOAT16,
  float8 = TUTTI_WIRE_FLOAT8
};

// Options of one call: `world.all_reduce(in, out, tutti::Op::sum, {.stream = stream, .timeout = 5s})`.
struct Options {
  // A stream of the buffers' device (a cudaStream_t); nullptr: its default stream. Must be nullptr for host memory.
  void* stream = nullptr;
  // How long the operation may make no progress; 0: the communicator's. A negative timeout is TUTTI_INVALID_ARGUMENT.
  std::chrono::nanoseconds timeout{0};
  // An asynchronous call with it starts nothing: Request::start() does, any number of times (TUTTI_PERSISTENT).
  bool persistent = false;
  // The algorithms that may carry out a collective: "ring", "flat,direct", "^ring"; nullptr: the communicator's.
  const char* algorithms = nullptr;
  Order order = Order::communicator;  // of a reduction
  Wire wire = Wire::plain;            // of float32
  uint64_t tag = 0;                   // of a collective, for reports and traces; 0: none
};

namespace detail {

// Converts `argument` of `call` for the C API. Throws Error if it is negative.
inline uint64_t nanoseconds(const char* call, const char* argument, std::chrono::nanoseconds time) {
  if (time.count() < 0)
    throw Error(TUTTI_INVALID_ARGUMENT,
                std::string(call) + ": " + argument + " is " + std::to_string(time.count()) + " ns, expected 0 or more");
  return static_cast<uint64_t>(time.count());
}

// Options as the C API takes them.
class COptions {
 public:
  COptions(const char* call, const Options& options) {
    if (!options.stream && options.timeout.count() == 0 && !options.persistent && !options.algorithms &&
        options.order == Order::communicator && options.wire == Wire::plain && !options.tag)
      return;
    options_.struct_size = sizeof options_;
    options_.timeout_ns = nanoseconds(call, "Options::timeout", options.timeout);
    options_.stream = options.stream;
    options_.flags = options.persistent ? uint32_t{TUTTI_PERSISTENT} : 0;
    options_.algorithms = options.algorithms;
    options_.order = static_cast<uint32_t>(options.order);
    options_.wire = static_cast<uint32_t>(options.wire);
    options_.tag = options.tag;
  }
  const tutti_options* get() const { return options_.struct_size ? &options_ : nullptr; }

 private:
  tutti_options options_{};
};

inline tutti_message message(const void* data, size_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                             uint32_t direction) {
  tutti_message result{};
  result.data = const_cast<void*>(data);
  result.count = count;
  result.dtype = dtype;
  result.peer = peer;
  result.tag = tag;
  result.direction = direction;
  return result;
}

}  // namespace detail

// Messages that receive_any and probe ask for: from any rank, or with any tag.
inline tutti_envelope from_any(uint32_t tag) { return {sizeof(tutti_envelope), TUTTI_ANY_PEER, 0, tag, 0}; }
inline tutti_envelope any_from(uint32_t peer) { return {sizeof(tutti_envelope), TUTTI_ANY_TAG, peer, 0, 0}; }
inline tutti_envelope any_message() { return {sizeof(tutti_envelope), TUTTI_ANY_PEER | TUTTI_ANY_TAG, 0, 0, 0}; }
inline tutti_envelope from(uint32_t peer, uint32_t tag) { return {sizeof(tutti_envelope), 0, peer, tag, 0}; }

// Messages of a group: `world.exchange({tutti::send(out, next), tutti::receive(in, previous)})`. The data outlives the
// group's end.
template <Elements In>
tutti_message send(In&& data, uint32_t to, uint32_t tag = 0) {
  static_assert(detail::outlives_call<In>, "tutti: the data is a temporary: exchange would read it after its end");
  const auto span = detail::span_of(data);
  return detail::message(span.data(), span.size(), dtype_of<detail::value_t<In>>(), to, tag, TUTTI_SEND);
}
template <Elements Out>
tutti_message receive(Out&& data, uint32_t from, uint32_t tag = 0) {
  detail::require_output<Out>();
  const auto span = detail::span_of(data);
  return detail::message(span.data(), span.size(), dtype_of<detail::value_t<Out>>(), from, tag, TUTTI_RECEIVE);
}

namespace detail {

// The calls. A communicator's block until the operation is complete on this rank (on device memory: until the work is
// in the stream). Async's return a Request: until it is complete outputs must not be read, inputs not be written, and
// both must live. Calls are made by the communicator's thread. All ranks make the same collectives in the same order. A
// failure throws Error.
//
// `in` and `out` are Elements of one type, counted in elements: gather, all_gather, scatter, reduce_scatter and
// all_to_all divide the larger of the two among the ranks. Sizes that contradict each other are TUTTI_INVALID_ARGUMENT.
// A buffer that the rank does not use may be empty. In place: tutti.h. Each call has a second form for spans, whose
// type is written out: `world.all_reduce<int64_t>({&x, 1}, {&x, 1}, op)`.
template <typename Self>
class Calls {
 public:
  // root's `data` to all ranks.
  template <typename T>
  auto broadcast(std::span<T> data, uint32_t root, const Options& options = {}) const {
    return broadcast_to(std::span<const T>(data), data, root, options);
  }
  template <Elements Data>
  auto broadcast(Data&& data, uint32_t root, const Options& options = {}) const {
    require_output<Data>();
    return broadcast<value_t<Data>>(span_of(data), root, options);
  }
  // root's `in` to all ranks' `out`, the root's own included. `in` is not read elsewhere.
  template <typename T>
  auto broadcast(std::span<const T> in, std::span<T> out, uint32_t root, const Options& options = {}) const {
    if (rank() == root) same(in.size(), out.size(), "broadcast");
    return broadcast_to(in, out, root, options);
  }
  template <Elements In, Elements Out>
  auto broadcast(In&& in, Out&& out, uint32_t root, const Options& options = {}) const {
    require_call<In, Out>();
    return broadcast<value_t<Out>>(span_of(in), span_of(out), root, options);
  }

  // All ranks' `in`, combined element by element, to root's `out`.
  template <typename T>
  auto reduce(std::span<const T> in, std::span<T> out, Op op, uint32_t root, const Options& options = {}) const {
    if (rank() == root) same(in.size(), out.size(), "reduce");
    const COptions given("reduce", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_reduce(c, in.data(), out.data(), in.size(), dtype_of<T>(), code(op), root, given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto reduce(In&& in, Out&& out, Op op, uint32_t root, const Options& options = {}) const {
    require_call<In, Out>();
    return reduce<value_t<Out>>(span_of(in), span_of(out), op, root, options);
  }

  // The same to all ranks' `out`.
  template <typename T>
  auto all_reduce(std::span<const T> in, std::span<T> out, Op op, const Options& options = {}) const {
    same(in.size(), out.size(), "all_reduce");
    const COptions given("all_reduce", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_reduce(c, in.data(), out.data(), in.size(), dtype_of<T>(), code(op), given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto all_reduce(In&& in, Out&& out, Op op, const Options& options = {}) const {
    require_call<In, Out>();
    return all_reduce<value_t<Out>>(span_of(in), span_of(out), op, options);
  }

  // The `in` of ranks 0 to r, combined in the order of ranks, to rank r's `out`.
  template <typename T>
  auto scan(std::span<const T> in, std::span<T> out, Op op, const Options& options = {}) const {
    same(in.size(), out.size(), "scan");
    const COptions given("scan", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_scan(c, in.data(), out.data(), in.size(), dtype_of<T>(), code(op), given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto scan(In&& in, Out&& out, Op op, const Options& options = {}) const {
    require_call<In, Out>();
    return scan<value_t<Out>>(span_of(in), span_of(out), op, options);
  }
  // The `in` of ranks 0 to r-1 to rank r's `out`. Rank 0 leaves its `out` as it is.
  template <typename T>
  auto exclusive_scan(std::span<const T> in, std::span<T> out, Op op, const Options& options = {}) const {
    if (rank() > 0) same(in.size(), out.size(), "exclusive_scan");
    const COptions given("exclusive_scan", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_exclusive_scan(c, in.data(), out.data(), in.size(), dtype_of<T>(), code(op), given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto exclusive_scan(In&& in, Out&& out, Op op, const Options& options = {}) const {
    require_call<In, Out>();
    return exclusive_scan<value_t<Out>>(span_of(in), span_of(out), op, options);
  }

  // All ranks' `in`, in the order of ranks, to root's `out`.
  template <typename T>
  auto gather(std::span<const T> in, std::span<T> out, uint32_t root, const Options& options = {}) const {
    if (rank() == root) same(in.size() * nranks(), out.size(), "gather");
    const COptions given("gather", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_gather(c, in.data(), out.data(), in.size(), dtype_of<T>(), root, given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto gather(In&& in, Out&& out, uint32_t root, const Options& options = {}) const {
    require_call<In, Out>();
    return gather<value_t<Out>>(span_of(in), span_of(out), root, options);
  }

  // The same to all ranks' `out`.
  template <typename T>
  auto all_gather(std::span<const T> in, std::span<T> out, const Options& options = {}) const {
    same(in.size() * nranks(), out.size(), "all_gather");
    const COptions given("all_gather", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_gather(c, in.data(), out.data(), in.size(), dtype_of<T>(), given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto all_gather(In&& in, Out&& out, const Options& options = {}) const {
    require_call<In, Out>();
    return all_gather<value_t<Out>>(span_of(in), span_of(out), options);
  }

  // The k-th block of root's `in` to rank k's `out`.
  template <typename T>
  auto scatter(std::span<const T> in, std::span<T> out, uint32_t root, const Options& options = {}) const {
    if (rank() == root) same(out.size() * nranks(), in.size(), "scatter");
    const COptions given("scatter", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_scatter(c, in.data(), out.data(), out.size(), dtype_of<T>(), root, given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto scatter(In&& in, Out&& out, uint32_t root, const Options& options = {}) const {
    require_call<In, Out>();
    return scatter<value_t<Out>>(span_of(in), span_of(out), root, options);
  }

  // The k-th block of all ranks' `in`, combined, to rank k's `out`.
  template <typename T>
  auto reduce_scatter(std::span<const T> in, std::span<T> out, Op op, const Options& options = {}) const {
    same(out.size() * nranks(), in.size(), "reduce_scatter");
    const COptions given("reduce_scatter", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_reduce_scatter(c, in.data(), out.data(), out.size(), dtype_of<T>(), code(op), given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto reduce_scatter(In&& in, Out&& out, Op op, const Options& options = {}) const {
    require_call<In, Out>();
    return reduce_scatter<value_t<Out>>(span_of(in), span_of(out), op, options);
  }

  // The k-th block of rank i's `in` to the i-th block of rank k's `out`.
  template <typename T>
  auto all_to_all(std::span<const T> in, std::span<T> out, const Options& options = {}) const {
    same(in.size(), out.size(), "all_to_all");
    same(in.size() / nranks() * nranks(), in.size(), "all_to_all");
    const COptions given("all_to_all", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_all_to_all(c, in.data(), out.data(), in.size() / nranks(), dtype_of<T>(), given.get(), r);
    });
  }
  template <Elements In, Elements Out>
  auto all_to_all(In&& in, Out&& out, const Options& options = {}) const {
    require_call<In, Out>();
    return all_to_all<value_t<Out>>(span_of(in), span_of(out), options);
  }

  // No rank leaves before all have come.
  auto barrier(const Options& options = {}) const {
    const COptions given("barrier", options);
    return run([&](tutti_comm* c, tutti_request** r) { return tutti_barrier(c, given.get(), r); });
  }

  // To one rank, which must receive as many elements with the same tag. It may wait for that receive (tutti.h): ranks
  // that send to each other use exchange.
  template <typename T>
  auto send(std::span<const T> data, uint32_t peer, uint32_t tag = 0, const Options& options = {}) const {
    const COptions given("send", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_send(c, data.data(), data.size(), dtype_of<T>(), peer, tag, given.get(), r);
    });
  }
  template <Elements In>
  auto send(In&& data, uint32_t peer, uint32_t tag = 0, const Options& options = {}) const {
    require_input<In>();
    return send<value_t<In>>(span_of(data), peer, tag, options);
  }
  // From one rank. The length is the send's, else TUTTI_MISMATCH.
  template <typename T>
  auto receive(std::span<T> data, uint32_t peer, uint32_t tag = 0, const Options& options = {}) const {
    const COptions given("receive", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_receive(c, data.data(), data.size(), dtype_of<T>(), peer, tag, given.get(), r);
    });
  }
  template <Elements Out>
  auto receive(Out&& data, uint32_t peer, uint32_t tag = 0, const Options& options = {}) const {
    require_output<Out>();
    return receive<value_t<Out>>(span_of(data), peer, tag, options);
  }
  // From any rank or with any tag, as the envelope says. The envelope is written when the call completes: with async()
  // it must live until then.
  template <typename Out>
  auto receive_any(Out&& data, tutti_envelope& envelope, const Options& options = {}) const {
    require_output<Out>();
    const auto to = span_of(data);
    const COptions given("receive_any", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_receive_any(c, to.data(), to.size(), dtype_of<value_t<Out>>(), &envelope, given.get(), r);
    });
  }
  // A group of tutti::send and tutti::receive that progress together. The array may end with the call.
  auto exchange(std::span<const tutti_message> messages, const Options& options = {}) const {
    const COptions given("exchange", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_exchange(c, messages.data(), messages.size(), given.get(), r);
    });
  }
  auto exchange(std::initializer_list<tutti_message> messages, const Options& options = {}) const {
    return exchange(std::span(messages.begin(), messages.size()), options);
  }

 private:
  template <typename T>
  auto broadcast_to(std::span<const T> in, std::span<T> out, uint32_t root, const Options& options) const {
    const COptions given("broadcast", options);
    return run([&](tutti_comm* c, tutti_request** r) {
      return tutti_broadcast(c, in.data(), out.data(), out.size(), dtype_of<T>(), root, given.get(), r);
    });
  }
  template <Elements In>
  static constexpr void require_input() {
    static_assert(!Self::returns_requests || outlives_call<In>,
                  "tutti: in is a temporary: the request would read it after its end");
  }
  template <Elements In, Elements Out>
  static constexpr void require_call() {
    require_pair<In, Out>();
    require_input<In>();
  }
  template <typename Call>
  auto run(Call&& call) const {
    return static_cast<const Self*>(this)->run(std::forward<Call>(call));
  }
  uint32_t rank() const { return tutti_comm_rank(static_cast<const Self*>(this)->handle()); }
  uint32_t nranks() const { return tutti_comm_nranks(static_cast<const Self*>(this)->handle()); }
  static uint32_t code(Op op) { return static_cast<uint32_t>(op); }
  static void same(size_t expected, size_t actual, const char* what) {
    if (expected != actual)
      throw Error(TUTTI_INVALID_ARGUMENT, std::string(what) + ": the ranges disagree: expected " +
                                              std::to_string(expected) + " elements, got " + std::to_string(actual));
  }
};

}  // namespace detail

}  // namespace tutti
