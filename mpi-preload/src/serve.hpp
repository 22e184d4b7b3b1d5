// SPDX-License-Identifier: Apache-2.0
//
// The way of a call of MPI: over Tutti, or to the function of MPI's library that it would have reached without this
// one.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>

#include "call.hpp"
#include "collectives.hpp"
#include "pending.hpp"

namespace tutti::mpi {

// Is MPI initialized, and not finalized? Ends the process if its library is not the one that this file was built for.
bool is_running();
void set_running(bool running);

// The communicator if Tutti's has been made.
Communicator* if_met(MPI_Comm comm);
// The communicator of a call, ready to serve it; otherwise `verdict` tells why not. Verdict::served and no
// communicator: making Tutti's communicator failed, and the error, `code`, has been raised.
Communicator* prepare(Function function, MPI_Comm comm, Verdict& verdict, int& code);
// Collective: makes Tutti's communicator of a new MPI communicator. MPI_SUCCESS, or the code of a raised error.
int meet(MPI_Comm comm);
// Collective over `whole`: makes Tutti's communicator of `part`, whose ranks have one color; nullptr with
// TUTTI_NO_COLOR: this rank is in none. MPI_SUCCESS, or the code of a raised error.
int become_part(const Communicator& whole, Communicator* part, uint32_t color);
// A call that MPI's library carries out.
void fall_through(Function function, Verdict verdict, const std::string& subject, MPI_Comm comm);

// `begin(call)` begins the call over Tutti and returns a verdict; `pmpi()` calls MPI's library. A request makes it
// non-blocking.
template <typename Begin, typename Pmpi, typename... Request>
int serve(Function blocking, MPI_Comm comm, Begin begin, Pmpi pmpi, Request... request) {
  constexpr bool is_blocking = sizeof...(Request) == 0;
  const Function function = is_blocking ? blocking : non_blocking(blocking);
  Verdict verdict = Verdict::served;
  int code = MPI_SUCCESS;
  std::string subject;
  if (Communicator* communicator = prepare(function, comm, verdict, code)) {
    const std::lock_guard lock(communicator->mutex());
    // A blocking call's memory is this thread's stack.
    std::conditional_t<is_blocking, std::optional<Call>, std::unique_ptr<Call>> call;
    if constexpr (is_blocking)
      call.emplace(*communicator, function);
    else
      call = std::make_unique<Call>(*communicator, function);
    verdict = begin(*call);
    if (verdict == Verdict::served) {
      count(function, verdict);
      if constexpr (!is_blocking) return make_request(std::move(call), request...);
      return call->finish();
    }
    subject = call->subject();
  } else if (verdict == Verdict::served) {
    return code;
  }
  fall_through(function, verdict, subject, comm);
  return pmpi();
}

}  // namespace tutti::mpi
