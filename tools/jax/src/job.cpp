// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace tutti::mpitrampoline {
namespace {

// The handles of what is made at run time follow those of the constants and are not used again, so that one that was
// freed is found out.
struct Tables {
  std::mutex mutex;
  bool finalized = false;
  std::shared_ptr<Communicator> world;
  std::map<Handle, std::shared_ptr<Communicator>> parts;
  std::map<Handle, Request> requests;
  Handle last = kConstants;
};

// Never destroyed: JAX frees communicators while the process ends.
Tables& tables() {
  static auto* const made = new Tables;
  return *made;
}

struct LastError {
  int code = MPI_SUCCESS;
  std::string text;
};
LastError& last_error() {
  thread_local LastError error;
  return error;
}

Failure not_between(const Tables& all) {
  return Failure(all.finalized ? "MPI_Finalize has been called" : "MPI_Init_thread has not been called");
}

// Destroys one of the communicators that are left. Once one has failed the others are aborted, so that all deadlines
// together are no longer than one. False if it failed.
bool destroy(Communicator& communicator, bool after_failure) {
  const std::lock_guard turn(communicator.turn);
  if (after_failure) tutti_comm_abort(communicator.comm, "MPI_Finalize failed for another communicator");
  return tutti_comm_destroy(communicator.comm) == TUTTI_OK;
}

}  // namespace

void initialize() {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  if (all.world) return;
  std::array<char, 4096> why{};
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.device = "none";
  config.error = why.data();
  config.error_bytes = why.size();
  tutti_comm* comm = nullptr;
  if (tutti_comm_create(&config, &comm) != TUTTI_OK) throw Failure(why.data());
  all.world = std::make_shared<Communicator>(comm);
  all.finalized = false;
}

bool initialized() {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  return all.world || all.finalized;
}

bool finalized() {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  return all.finalized;
}

void finalize() {
  Tables& all = tables();
  std::map<Handle, std::shared_ptr<Communicator>> parts;
  std::map<Handle, Request> requests;
  std::shared_ptr<Communicator> world;
  {
    const std::lock_guard lock(all.mutex);
    if (!all.world) return;
    parts.swap(all.parts);
    requests.swap(all.requests);
    world.swap(all.world);
    all.finalized = true;
  }
  // In the order in which they were made, which is the same on all ranks.
  bool failed = false;
  for (const auto& [handle, part] : parts) failed |= !destroy(*part, failed);
  failed |= !destroy(*world, failed);
  if (failed)
    std::fprintf(stderr, "tutti: MPI_Finalize: other ranks have failed, or did not come to MPI_Finalize in time\n");
}

Handle add(tutti_comm* comm) {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  all.parts.emplace(++all.last, std::make_shared<Communicator>(comm));
  return all.last;
}

Handle add(Request&& request) {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  all.requests.emplace(++all.last, std::move(request));
  return all.last;
}

std::shared_ptr<Communicator> communicator(Handle handle) {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  if (!all.world) throw not_between(all);
  if (handle == MPI_COMM_WORLD) return all.world;
  const auto found = all.parts.find(handle);
  if (found == all.parts.end())
    throw Failure(
        fmt::format("the communicator is {}, expected MPI_COMM_WORLD or one that MPI_Comm_split has made and "
                    "MPI_Comm_free has not freed",
                    handle_text(handle)));
  return found->second;
}

std::shared_ptr<Communicator> take_communicator(Handle handle) {
  if (handle == MPI_COMM_WORLD) throw Failure("the communicator is MPI_COMM_WORLD, which MPI_Finalize frees");
  std::shared_ptr<Communicator> taken = communicator(handle);
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  all.parts.erase(handle);
  return taken;
}

Request take_request(Handle handle) {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  if (!all.world) throw not_between(all);
  const auto found = all.requests.find(handle);
  if (found == all.requests.end())
    throw Failure(fmt::format("the request is {}, expected one of MPI_Isend or MPI_Irecv that has not been waited for",
                              handle_text(handle)));
  Request taken = std::move(found->second);
  all.requests.erase(found);
  return taken;
}

int report(const char* function, const std::string& why) {
  last_error() = {MPI_ERR_OTHER, fmt::format("{}: {}", function, why)};
  return MPI_ERR_OTHER;
}

std::string reported(int code) { return code == last_error().code ? last_error().text : ""; }

void end_job(const char* function, const std::string& why) {
  const std::string text = fmt::format("{}: {}", function, why);
  std::fprintf(stderr, "tutti: %s. The job ends\n", text.c_str());
  // Not by communicator(): the calling thread may be anywhere.
  tutti_comm* world = nullptr;
  {
    Tables& all = tables();
    const std::unique_lock lock(all.mutex, std::try_to_lock);
    if (lock && all.world) world = all.world->comm;
  }
  if (world) tutti_comm_abort(world, text.c_str());
  std::_Exit(EXIT_FAILURE);
}

void refuse(const char* function) {
  end_job(function, "libtutti-mpitrampoline.so does not serve this function: it has what JAX calls");
}

std::string handle_text(Handle handle) {
  const char* name = constant_name(handle);
  return name ? name : fmt::format("{}", handle);
}

uint32_t element(Handle type) {
  switch (type) {
    case MPI_BYTE:
    case MPI_UINT8_T:
      return TUTTI_UINT8;
    case MPI_INT8_T:
      return TUTTI_INT8;
    case MPI_INT16_T:
      return TUTTI_INT16;
    case MPI_UINT16_T:
      return TUTTI_UINT16;
    case MPI_INT32_T:
      return TUTTI_INT32;
    case MPI_UINT32_T:
      return TUTTI_UINT32;
    case MPI_INT64_T:
      return TUTTI_INT64;
    case MPI_UINT64_T:
      return TUTTI_UINT64;
    case MPI_FLOAT:
      return TUTTI_FLOAT32;
    case MPI_DOUBLE:
      return TUTTI_FLOAT64;
    case MPI_C_COMPLEX:
      return TUTTI_COMPLEX64;
    case MPI_C_DOUBLE_COMPLEX:
      return TUTTI_COMPLEX128;
  }
  throw Failure(
      fmt::format("the type is {}, expected MPI_BYTE, MPI_INT8_T to MPI_INT64_T, MPI_UINT8_T to MPI_UINT64_T, "
                  "MPI_FLOAT, MPI_DOUBLE, MPI_C_COMPLEX or MPI_C_DOUBLE_COMPLEX",
                  handle_text(type)));
}

uint32_t reduction(Handle op) {
  switch (op) {
    case MPI_SUM:
      return TUTTI_SUM;
    case MPI_PROD:
      return TUTTI_PROD;
    case MPI_MIN:
      return TUTTI_MIN;
    case MPI_MAX:
      return TUTTI_MAX;
  }
  throw Failure(fmt::format("the operator is {}, expected MPI_SUM, MPI_PROD, MPI_MIN or MPI_MAX", handle_text(op)));
}

uint64_t elements(int count) {
  if (count < 0)
    throw Failure(
        fmt::format("the count is {}, expected 0 to 2,147,483,647: an array has too many elements for MPI", count));
  return static_cast<uint64_t>(count);
}

const void* input(const void* buffer) {
  const auto address = reinterpret_cast<Handle>(buffer);
  if (address && address <= kConstants)
    throw Failure(fmt::format("the buffer is {}, expected an address", handle_text(address)));
  return buffer;
}

void* output(void* buffer) {
  input(buffer);
  return buffer;
}

}  // namespace tutti::mpitrampoline
