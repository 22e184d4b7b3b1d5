// SPDX-License-Identifier: Apache-2.0
//
// The C functions of gradients.h: arguments and handles in, status and text out.
#include <fmt/format.h>
#include <tutti/gradients.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tutti/sized.hpp>

#include "agreement.hpp"
#include "reducer.hpp"

struct tutti_gradients {
  std::unique_ptr<tutti::gradients::Reducer> reducer;
  std::string error;
};

namespace tutti::gradients {
namespace {

constexpr uint64_t default_bucket_bytes = 25 << 20, default_first_bucket_bytes = 1 << 20;
constexpr uint32_t known_flags =
    TUTTI_GRADIENTS_FEEDBACK | TUTTI_GRADIENTS_THREAD | TUTTI_GRADIENTS_DEVICE | TUTTI_GRADIENTS_DECLARED_ORDER;
constexpr uint64_t most_numbers = uint64_t{1} << 48;

[[noreturn]] void invalid(const std::string& text) { throw Error(TUTTI_INVALID_ARGUMENT, text); }

Tensor judged(const tutti_tensor& given, size_t number, uint32_t wire) {
  const std::string name = given.name ? fmt::format("{} (\"{}\")", number, given.name) : fmt::format("{}", number);
  if (dtype_bytes(given.dtype) == 0) invalid(fmt::format("tensor {}: {} is not a data type", name, given.dtype));
  if (given.count > most_numbers)
    invalid(fmt::format("tensor {} has {} elements, expected at most 2^48", name, given.count));
  if (given.reserved0 || given.reserved1[0] || given.reserved1[1])
    invalid(fmt::format("tensor {}: its reserved room is not 0: zero the struct", name));
  if (wire != TUTTI_WIRE_PLAIN && given.dtype != TUTTI_FLOAT32)
    invalid(
        fmt::format("tensor {} is {}, but wire formats are for float32: declare other types in a set of their own, "
                    "with TUTTI_WIRE_PLAIN",
                    name, dtype_name(given.dtype)));
  return {name, given.count, given.dtype};
}

// How contributions are summed.
void judge_sums(const tutti_gradients_config& config) {
  if (config.order > TUTTI_ORDER_EXACT || config.reserved)
    invalid(
        fmt::format("config.order is {} and config.reserved {}, expected TUTTI_ORDER_FREE, TUTTI_ORDER_CANONICAL, "
                    "TUTTI_ORDER_EXACT or 0 (the communicator's), and 0",
                    config.order, config.reserved));
  if (config.wire != TUTTI_WIRE_PLAIN && config.order != TUTTI_ORDER_DEFAULT)
    invalid(
        "config.order goes with TUTTI_WIRE_PLAIN: a wire format rounds the contributions before they are summed, in "
        "the "
        "order of ranks");
}

Declaration judged(const tutti_gradients_config& config, const tutti_tensor* tensors, uint64_t n) {
  if (config.flags & ~known_flags)
    throw Error(TUTTI_NOT_SUPPORTED,
                fmt::format("config.flags is {:#x}, but only {:#x} are known", config.flags, known_flags));
  if (config.wire > TUTTI_WIRE_FLOAT8)
    throw Error(TUTTI_NOT_SUPPORTED, fmt::format("config.wire is {}, expected TUTTI_WIRE_PLAIN (0), _FLOAT16 (1), "
                                                 "_BFLOAT16 (2) or _FLOAT8 (3)",
                                                 config.wire));
  if (config.op != 0 && config.op != TUTTI_SUM && config.op != TUTTI_AVG)
    invalid(fmt::format("config.op is {}, expected TUTTI_SUM or TUTTI_AVG", config.op));
  if (config.wire == TUTTI_WIRE_PLAIN && config.flags & TUTTI_GRADIENTS_FEEDBACK)
    invalid("TUTTI_GRADIENTS_FEEDBACK needs a wire format that rounds: TUTTI_WIRE_PLAIN loses nothing");
  judge_sums(config);
  const bool device = config.flags & TUTTI_GRADIENTS_DEVICE;
  if (device && (config.wire != TUTTI_WIRE_PLAIN || config.flags & TUTTI_GRADIENTS_THREAD))
    throw Error(TUTTI_NOT_SUPPORTED,
                "TUTTI_GRADIENTS_DEVICE goes with TUTTI_WIRE_PLAIN and without TUTTI_GRADIENTS_THREAD: the device's "
                "stream advances the buckets");
  if (!device && config.stream) invalid("config.stream is not NULL: it is for TUTTI_GRADIENTS_DEVICE");
  if (n == 0 || !tensors) invalid(n == 0 ? "no tensor is declared: n is 0" : "tensors is NULL");
  const uint32_t op = config.op ? config.op : uint32_t{TUTTI_AVG};
  Declaration made{{},
                   config.first_bucket_bytes ? config.first_bucket_bytes : default_first_bucket_bytes,
                   config.bucket_bytes ? config.bucket_bytes : default_bucket_bytes,
                   config.wire,
                   op,
                   config.flags,
                   config.timeout_ns,
                   config.stream,
                   config.order,
                   config.algorithms ? std::optional<std::string>(config.algorithms) : std::nullopt};
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < n; ++i) {
    made.tensors.push_back(judged(tensors[i], i, config.wire));
    const Tensor& tensor = made.tensors.back();
    if (!op_is_defined(op, tensor.dtype))
      invalid(fmt::format("tensor {} is {}, which has no {}: expected one of {}", tensor.name, dtype_name(tensor.dtype),
                          op_name(op), dtypes_of_op(op)));
    bytes += tensor.bytes();
    if (bytes > most_numbers * 16) invalid(fmt::format("the tensors up to {} have more than 2^52 bytes", tensor.name));
  }
  return made;
}

Communicator duplicate(tutti_comm* comm, const std::string& suffix) {
  const std::string name = tutti_comm_name(comm) + suffix;
  tutti_split how{};
  how.struct_size = sizeof how;
  how.name = name.c_str();
  tutti_comm* made = nullptr;
  if (const tutti_status status = tutti_comm_split(comm, &how, &made); status < 0)
    throw Error(status, tutti_comm_error(comm));
  return Communicator(made);
}

std::unique_ptr<Reducer> make(tutti_comm* comm, const tutti_gradients_config& config, const tutti_tensor* tensors,
                              uint64_t n) {
  // A rank with wrong arguments still joins the others, so that they learn it at once.
  std::optional<Declaration> declaration;
  std::optional<Error> fault;
  try {
    declaration = judged(config, tensors, n);
  } catch (const Error& error) {
    fault = error;
  }
  // The duplicates are destroyed in order on every path: an exception that is in flight would abort them.
  std::optional<Communicator> exchange = duplicate(comm, ".gradients");
  try {
    require_agreement(*exchange, fault ? nullptr : &*declaration);
  } catch (const Error& error) {
    if (!fault) fault = error;
  }
  if (fault) {
    exchange.reset();
    throw *fault;
  }
  std::optional<Communicator> gather;
  if (config.flags & TUTTI_GRADIENTS_FEEDBACK && exchange->nranks() > 1) gather = duplicate(comm, ".gradients.gather");
  return std::make_unique<Reducer>(std::move(*exchange), std::move(gather), std::move(*declaration));
}

void write_error(const tutti_gradients_config& config, const std::string& text) {
  if (!config.error || config.error_bytes == 0) return;
  const size_t n = std::min<size_t>(config.error_bytes - 1, text.size());
  std::memcpy(config.error, text.data(), n);
  config.error[n] = 0;
}

// Runs `body`; what it throws becomes a status and a text.
template <typename Body>
tutti_status guarded(tutti_gradients* gradients, Body&& body) noexcept {
  if (!gradients) return TUTTI_INVALID_ARGUMENT;
  try {
    gradients->error.clear();
    return body(*gradients->reducer);
  } catch (const Error& error) {
    gradients->error = error.what();
    return error.status();
  } catch (const std::bad_alloc&) {
    gradients->error = "out of memory";
    return TUTTI_NO_RESOURCES;
  } catch (const std::exception& error) {
    gradients->error = error.what();
    return TUTTI_INTERNAL;
  }
}

}  // namespace
}  // namespace tutti::gradients

using namespace tutti::gradients;

extern "C" {

tutti_status tutti_gradients_create(tutti_comm* comm, const tutti_gradients_config* config, const tutti_tensor* tensors,
                                    uint64_t n, tutti_gradients** gradients) {
  if (!comm || !gradients) return TUTTI_INVALID_ARGUMENT;
  *gradients = nullptr;
  tutti_gradients_config known{};
  try {
    if (config) {
      if (const tutti::SizeVerdict verdict = tutti::judge_size(config); verdict.status < 0) {
        if (config->struct_size >= TUTTI_SIZE_UP_TO(tutti_gradients_config, error_bytes))
          write_error(*config, verdict.text);
        return verdict.status;
      }
      known = tutti::known_part(*config);
    }
    auto made = std::make_unique<tutti_gradients>();
    made->reducer = make(comm, known, tensors, n);
    *gradients = made.release();
    return TUTTI_OK;
  } catch (const tutti::Error& error) {
    const std::string text = error.what();
    write_error(known, text.starts_with("rank ") && text.find(": ") < 16
                           ? text
                           : fmt::format("rank {}: {}: gradients_create: {}", tutti_comm_rank(comm),
                                         tutti_comm_name(comm), text));
    return error.status();
  } catch (const std::bad_alloc&) {
    write_error(known, "gradients_create: out of memory");
    return TUTTI_NO_RESOURCES;
  } catch (const std::exception& error) {
    write_error(known, error.what());
    return TUTTI_INTERNAL;
  }
}

tutti_status tutti_gradients_destroy(tutti_gradients* gradients) {
  delete gradients;
  return TUTTI_OK;
}

tutti_status tutti_gradients_abort(tutti_gradients* gradients, const char* reason) {
  if (!gradients) return TUTTI_INVALID_ARGUMENT;
  gradients->reducer->abort(reason);
  return TUTTI_OK;
}

tutti_status tutti_gradients_ready(tutti_gradients* gradients, uint64_t tensor, void* data, uint64_t count) {
  return guarded(gradients, [&](Reducer& reducer) {
    reducer.ready(tensor, data, count);
    return TUTTI_OK;
  });
}

tutti_status tutti_gradients_unused(tutti_gradients* gradients, uint64_t tensor) {
  return guarded(gradients, [&](Reducer& reducer) {
    reducer.unused(tensor);
    return TUTTI_OK;
  });
}

tutti_status tutti_gradients_test(tutti_gradients* gradients) {
  return guarded(gradients, [&](Reducer& reducer) { return reducer.test() ? TUTTI_OK : TUTTI_AGAIN; });
}

tutti_status tutti_gradients_wait(tutti_gradients* gradients) {
  return tutti_gradients_wait_for(gradients, UINT64_MAX);
}

tutti_status tutti_gradients_wait_for(tutti_gradients* gradients, uint64_t nanoseconds) {
  return guarded(gradients, [&](Reducer& reducer) { return reducer.wait_for(nanoseconds) ? TUTTI_OK : TUTTI_AGAIN; });
}

const char* tutti_gradients_error(const tutti_gradients* gradients) {
  return gradients ? gradients->error.c_str() : "";
}

tutti_status tutti_gradients_bucket(const tutti_gradients* gradients, uint64_t tensor, uint64_t* bucket) {
  return guarded(const_cast<tutti_gradients*>(gradients), [&](const Reducer& reducer) {
    if (!bucket) invalid("gradients_bucket: bucket is NULL, expected where to write it");
    *bucket = reducer.bucket(tensor);
    return TUTTI_OK;
  });
}

tutti_status tutti_gradients_report(const tutti_gradients* gradients, tutti_gradients_facts* facts) {
  return guarded(const_cast<tutti_gradients*>(gradients), [&](Reducer& reducer) {
    const tutti::SizeVerdict verdict = tutti::judge_offer(facts);
    if (verdict.status < 0) throw tutti::Error(verdict.status, "gradients_report: " + verdict.text);
    tutti::fill_room(facts, reducer.facts());
    return TUTTI_OK;
  });
}

}  // extern "C"
