// SPDX-License-Identifier: Apache-2.0
//
// A process's part of MPI: the communicators and requests under their handles, and how a call ends.
//
// Threads: any, as with MPI_THREAD_SERIALIZED. Calls on one communicator wait for each other.
#pragma once

#include <fmt/core.h>
#include <tutti/tutti.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "constants.hpp"

namespace tutti::mpitrampoline {

// The reason why a call fails, without the function's name.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Communicator {
  tutti_comm* const comm;
  std::mutex turn;  // held by the thread that is in a call on it

  explicit Communicator(tutti_comm* made) : comm(made) {}
};

// A send or receive that MPI_Wait will end.
struct Request {
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<tutti_request, decltype(&tutti_request_free)> request;
  int peer, tag;
};

// MPI_Init_thread: makes MPI_COMM_WORLD of the ranks that the environment tells. Nothing if it is there: JAX makes one
// client after another.
void initialize();
bool initialized(), finalized();
// MPI_Finalize: destroys all communicators. Waits for the other ranks, at most the connect timeout.
void finalize();

Handle add(tutti_comm* comm);
Handle add(Request&& request);
// Throws Failure for a handle that is not known, and before initialize() and after finalize().
std::shared_ptr<Communicator> communicator(Handle handle);
// Takes it out of the table: the handle is not known afterwards.
std::shared_ptr<Communicator> take_communicator(Handle handle);
Request take_request(Handle handle);

// `call(comm)` returns a tutti_status. Throws Failure with the communicator's text.
template <typename Call>
void use(Communicator& communicator, Call&& call) {
  const std::lock_guard turn(communicator.turn);
  const tutti_status status = call(communicator.comm);
  if (status != TUTTI_OK) throw Failure(tutti_comm_error(communicator.comm));
}

// ---- Ends of calls -----------------------------------------------------------------------------------------

// Keeps the text for MPI_Error_string on this thread, and returns the code of the error.
int report(const char* function, const std::string& why);
// The text of this thread's last error; "" where `code` is not its code.
std::string reported(int code);
// Says why on the standard error stream, tells the other ranks, and ends the process.
[[noreturn]] void end_job(const char* function, const std::string& why);
// The function is not served.
[[noreturn]] void refuse(const char* function);

// A call whose error JAX raises as an exception.
template <typename Body>
int returned(const char* function, Body&& body) {
  try {
    body();
    return MPI_SUCCESS;
  } catch (const std::exception& failure) {
    return report(function, failure.what());
  }
}

// A call whose status JAX does not look at: an error ends the job.
template <typename Body>
int ending(const char* function, Body&& body) {
  try {
    body();
    return MPI_SUCCESS;
  } catch (const std::exception& failure) {
    end_job(function, failure.what());
  }
}

// ---- Arguments ---------------------------------------------------------------------------------------------

// For messages: "MPI_REAL16", "4102".
std::string handle_text(Handle handle);
// An element's tutti type, and an operator. Throw Failure for those that are not served.
uint32_t element(Handle type);
uint32_t reduction(Handle op);
// Throws Failure if it is negative: JAX passes the lower half of a larger number.
uint64_t elements(int count);
// Throws Failure for MPI_IN_PLACE and MPI_BOTTOM.
const void* input(const void* buffer);
void* output(void* buffer);

}  // namespace tutti::mpitrampoline
