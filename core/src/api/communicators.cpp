// SPDX-License-Identifier: Apache-2.0
//
// The library, and the life of communicators.
#include <sys/resource.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "api/arguments.hpp"
#include "api/guards.hpp"
#include "bootstrap/bootstrap.hpp"
#include "comm/idle.hpp"
#include "net/interrupt.hpp"
#include "record/call_site.hpp"
#include "registry/host.hpp"
#include "registry/registry.hpp"
#include "registry/unknown_settings.hpp"

using namespace tutti::core;
using namespace tutti::core::api;

namespace {

// The handles of the communicators that were destroyed last are kept, so that a use after the end is an error and no
// crash; older ones are freed, so that a process that makes them for ever does not grow. Needs no memory, so that a
// process that has none can destroy a communicator.
void keep_for_a_while(tutti_comm* comm) {
  static std::mutex mutex;
  static constinit std::array<tutti_comm*, 1024> handles{};
  static size_t oldest = 0;
  const std::lock_guard lock(mutex);
  delete std::exchange(handles[oldest], comm);
  oldest = (oldest + 1) % handles.size();
}

// A communicator has descriptors for each of its links, and Debian's limit is 1,024 of them, which is meant to be raised by who
// needs more. Not beyond what a program can walk through that closes them all.
void raise_descriptor_limit() {
  static constexpr rlim_t enough = 1 << 20;
  static std::once_flag once;
  std::call_once(once, [] {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, enough);
    if (limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);  // else the first descriptor that cannot be made says so
  });
}

void write_id(const std::string& text, tutti_unique_id* id) {
  static_assert(sizeof id->text > kMaxUniqueId);
  std::memset(id->text, 0, sizeof id->text);
  std::memcpy(id->text, text.data(), std::min(text.size(), sizeof id->text - 1));
}

// Ends the communicator on all ranks; `what` goes on after "rank 3 ".
tutti_status end_by(tutti_comm* comm, const char* what, const char* reason) {
  return pinned(comm,
                [&](Communicator& c) { c.abort(fmt::format("{}: {}", what, reason ? reason : "no reason given")); });
}

}  // namespace

extern "C" {

const char* tutti_version(void) { return TUTTI_VERSION; }

tutti_status tutti_plugin_register(const tutti_plugin_entry_table* entry) {
  return logged("tutti_plugin_register", [&] {
    std::string error;
    if (const tutti_status status = register_static(entry, &error); status < 0) throw Failure(status, error);
  });
}

tutti_status tutti_comm_create(const tutti_comm_config* config, tutti_comm** comm) {
  tutti_comm_config full{};
  full.struct_size = sizeof full;
  const auto fail = [&](tutti_status status, const std::string& text) {
    uint64_t capacity = full.error_bytes;
    if (full.error)
      copy_text(text, full.error, &capacity);
    else
      log(TUTTI_LOG_ERROR, "api", text);
    return status;
  };
  if (comm) *comm = nullptr;
  if (config) {
    const tutti::SizeVerdict verdict = tutti::judge_size(config);
    if (verdict.status == TUTTI_OK || verdict.status == TUTTI_NOT_SUPPORTED) full = tutti::known_part(*config);
    if (verdict.status < 0) return fail(verdict.status, fmt::format("tutti_comm_create: {}", verdict.text));
  }
  if (!comm) return fail(TUTTI_INVALID_ARGUMENT, "tutti_comm_create: comm is NULL");
  raise_descriptor_limit();
  try {
    *comm = new tutti_comm(Configuration(full));
    warn_of_unknown_settings();
    return TUTTI_OK;
  } catch (const Failure& failure) {
    warn_of_unknown_settings();  // a misspelt one may be the cause
    return fail(failure.status, failure.text);
  } catch (const std::bad_alloc&) {
    return fail(TUTTI_NO_RESOURCES, "tutti_comm_create: out of memory");
  } catch (const std::exception& e) {
    return fail(TUTTI_INTERNAL, fmt::format("tutti_comm_create: {}", e.what()));
  }
}

tutti_status tutti_comm_destroy(tutti_comm* comm) {
  if (!comm) return TUTTI_INVALID_ARGUMENT;
  if (comm->forked() || comm->destroying.exchange(true)) return TUTTI_INVALID_USAGE;
  Communicator* const communicator = communicator_of(comm);
  tutti_status status = TUTTI_OK;
  try {
    status = communicator->end();
    if (status < 0) comm->last_words += fmt::format("; destroying it failed: {}", communicator->error_text());
  } catch (const std::exception& problem) {
    status = failure_of(problem).status;
  }
  Pin::free(*comm);
  keep_for_a_while(comm);
  return status;
}

tutti_status tutti_comm_abort(tutti_comm* comm, const char* reason) { return end_by(comm, "aborted", reason); }

tutti_status tutti_comm_revoke(tutti_comm* comm, const char* reason) {
  return end_by(comm, "revoked the communicator", reason);
}

void tutti_set_interrupt(tutti_interrupt_function ask, void* context) { Interrupt::set(ask, context); }

void tutti_set_idle(tutti_idle_function work, void* context) { Idle::set(work, context); }

void tutti_set_call_site(const char* site) { CallSite::give(site); }

tutti_status tutti_comm_lost(const tutti_comm* comm, uint32_t* ranks, uint64_t* n) {
  return pinned(comm, [&](Communicator& c) { return copy_rows(c.recovery().lost_ranks(), ranks, n); });
}

tutti_status tutti_comm_shrink(tutti_comm* comm, const tutti_options* options, tutti_comm** shrunk) {
  if (shrunk) *shrunk = nullptr;
  return guarded(comm, [&](Communicator& c) {
    const uint64_t timeout_ns = checked("shrink", options).timeout_ns;
    if (!shrunk) invalid("shrink: shrunk is NULL");
    *shrunk = c.recovery().shrink(timeout_ns).release();
  });
}

tutti_status tutti_comm_invite(tutti_comm* comm, const tutti_options* options, tutti_unique_id* id) {
  return guarded(comm, [&](Communicator& c) {
    const uint64_t timeout_ns = checked("invite", options).timeout_ns;
    if (!id) invalid("invite: id is NULL");
    write_id(c.recovery().invite(timeout_ns), id);
  });
}

tutti_status tutti_comm_grow(tutti_comm* comm, const tutti_unique_id* id, uint32_t newcomers,
                             const tutti_options* options, tutti_comm** grown) {
  if (grown) *grown = nullptr;
  return guarded(comm, [&](Communicator& c) {
    const uint64_t timeout_ns = checked("grow", options).timeout_ns;
    if (!id || !grown) invalid("grow: id or grown is NULL");
    const std::string text(id->text, strnlen(id->text, sizeof id->text));
    *grown = c.recovery().grow(text, newcomers, timeout_ns).release();
  });
}

tutti_status tutti_comm_split(tutti_comm* comm, const tutti_split* how, tutti_comm** part) {
  if (part) *part = nullptr;
  return jointly(comm, [&](Communicator& c) {
    if (!part) invalid("split: part is NULL");
    tutti_split full{};
    if (how) {
      require("split", tutti::judge_size(how));
      full = tutti::known_part(*how);
    }
    SplitCall call{full.by, full.color, full.key, full.timeout_ns, full.flags, full.name ? full.name : ""};
    auto handle = std::make_unique<tutti_comm>(nullptr);  // behind the split there may be no memory for it
    auto made = c.split(call);
    if (!made) return;
    handle->communicator = made.release();
    *part = handle.release();
  });
}

tutti_status tutti_comm_async_error(const tutti_comm* comm) {
  return pinned(comm, [](const Communicator& c) { return c.async_error(); });
}
const char* tutti_comm_error(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->error_text() : comm ? comm->last_words.c_str() : "the communicator is NULL";
}
const char* tutti_comm_name(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->name().c_str() : "";
}
uint32_t tutti_comm_rank(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->rank() : 0;
}
uint32_t tutti_comm_nranks(const tutti_comm* comm) {
  const Communicator* const communicator = communicator_of(comm);
  return communicator ? communicator->nranks() : 0;
}
tutti_status tutti_comm_host(const tutti_comm* comm, uint32_t rank, tutti_host_facts* facts) {
  return guarded(comm, [&](Communicator& c) {
    require("host", tutti::judge_offer(facts));
    check_rank("host", "rank", rank, c.nranks());
    tutti::fill_room(facts, c.host_facts(rank));
  });
}
tutti_status tutti_unique_id_create(tutti_unique_id* id) {
  if (!id) return TUTTI_INVALID_ARGUMENT;
  return logged("tutti_unique_id_create", [&] { write_id(make_unique_id(), id); });
}

}  // extern "C"
