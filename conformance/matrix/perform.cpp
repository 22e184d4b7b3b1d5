// SPDX-License-Identifier: Apache-2.0
#include "matrix/perform.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "matrix/application_operators.hpp"
#include "matrix/attest.hpp"
#include "matrix/blame.hpp"
#include "matrix/buffers.hpp"

namespace tutti::conformance {
namespace {

// Beyond so many bytes ranks meet before the call and after judging: making and checking the data takes each its own
// time, longer than an operation waits for a rank that does not come.
constexpr uint64_t most_unmet = 1 << 30;

// Issues as many operations as there are buffers, in the cell's form of calling, and waits for them. A blocking call on
// a device returns when the work is in the stream, so there the stream is what is waited for.
void issue(const Cell& cell, const Communicator& comm, const std::vector<std::unique_ptr<Buffers>>& all) try {
  const OperatorOf op(comm.handle(), cell.type, cell.op);
  std::vector<Request> requests;
  for (const auto& buffers : all) {
    const auto run = [&](tutti_comm* c, tutti_request** r) { return call(cell, op.number(), c, *buffers, r); };
    buffers->upload();
    if (cell.calls == Calls::block)
      comm.run(run);
    else
      requests.push_back(comm.async().run(run));
    buffers->download();
  }
  for (size_t i = requests.size(); i-- > 0;) requests[i].wait();
  for (const auto& buffers : all) buffers->finish();
} catch (...) {
  // The streams still work on the buffers.
  for (const auto& buffers : all) try {
      buffers->finish();
    } catch (const std::exception&) {  // the failure of the call comes first
    }
  throw;
}

// One rank after the other comes late: nobody may leave before it has come.
Outcome perform_barriers(const Cell& cell, const Communicator& comm, Members& members, uint32_t rank) {
  const uint32_t n = cell.operation.nranks;
  const uint32_t rounds = std::max(3u, std::min(n, 5u));
  std::vector<std::unique_ptr<Buffers>> one;
  const Pattern pattern{cell.type, cell.op, n, 0, 0, 0};
  one.push_back(std::make_unique<Buffers>(cell, rank, Data(pattern), members.seat(rank), 0));
  for (uint32_t round = 0; round < rounds; ++round) {
    if (rank == (round * 7 + n - 1) % n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    members.enter_barrier(rank);
    issue(cell, comm, one);
    if (const uint32_t missing = members.missing_at_barrier(rank); missing < n)
      return Outcome::fail(fmt::format("barrier: it let this rank go before rank {} had entered it", missing));
  }
  return Outcome::pass();
}

}  // namespace

Outcome perform(const Cell& cell, const Mix& mix, Members& members, uint32_t rank, uint64_t seed,
                Attestation& attestation) {
  Communicator& comm = members.communicator(rank, cell.algorithm);
  const Operation& o = cell.operation;
  const Witness witness(cell, mix, comm, rank);
  const auto origin = [&](uint64_t i) { return blame(cell, mix, rank, i, witness.slices()); };
  Outcome outcome;
  if (o.collective == TUTTI_BARRIER) {
    outcome = perform_barriers(cell, comm, members, rank);
  } else {
    Pattern pattern{cell.type, cell.op, o.nranks, data_length(o), seed, 0};
    const uint32_t trials = trials_of(pattern);
    const uint32_t at_once = cell.calls == Calls::overlap ? 3 : 1;
    for (uint32_t trial = 0; trial < trials && !is_bad(outcome.verdict); trial += at_once) {
      std::vector<std::unique_ptr<Buffers>> all;
      for (uint32_t k = 0; k < at_once; ++k) {
        pattern.trial = trial + k;
        all.push_back(std::make_unique<Buffers>(cell, rank, Data(pattern), members.seat(rank), k % Seat::streams));
        all.back()->register_with(comm);
      }
      if (cell.bytes() > most_unmet) members.meet(rank);
      issue(cell, comm, all);
      for (const auto& buffers : all)
        if (const std::string wrong = buffers->judge(origin); !wrong.empty()) {
          outcome = Outcome::fail(wrong);
          break;
        }
      if (cell.bytes() > most_unmet) members.meet(rank);
    }
  }
  const std::string lie = witness.judge(attestation);
  return is_bad(outcome.verdict) || lie.empty() ? outcome : Outcome::fail(lie);
}

}  // namespace tutti::conformance
