// SPDX-License-Identifier: Apache-2.0
//
// The help of the calls, as help(tutti.Communicator.all_reduce) shows it. The blocking calls, those of `start` and those
// of `persistent` share it.
#pragma once

#include <string>

namespace tutti::python::help {

constexpr const char* arrays_and_errors = R"(
Arrays have any shape, are C-contiguous, and are used where they lie: nothing is copied. All ranks
pass equal types and sizes. `stream`, where there is one: the handle of a stream, for device memory.

Blocks. Of Communicator.start it returns a Request, and the arrays belong to the operation until that
is complete. Raises TypeError or ValueError for arrays that cannot be used, InvalidArgument for other
wrong arguments, and Mismatch, Timeout, PeerFailed or Aborted where other ranks do not take part.)";

constexpr const char* options = R"(

`algorithms`: those that may carry out the call, as "ring", "flat,direct" or "^ring"; None: those of the
communicator. `tag`: a whole number by which reports, hang verdicts and traces name the call. Both are
equal on all ranks.)";

// For those that may travel in a wire format.
constexpr const char* wire_of_copies = R"(
`wire`: "float16", "bfloat16" or "float8", in which float32 travels in host memory; None: as it is.
Each number is rounded once, on all ranks. Equal on all ranks.)";
constexpr const char* wire_of_reductions = R"(
`wire`: "float16", "bfloat16" or "float8", in which float32 travels in host memory; None: as it is.
For sum and avg in the free order, and min and max but of float8: contributions are rounded once, and
a result that travels. Equal on all ranks.)";

// For a call that only moves elements.
inline std::string moves(const char* own) {
  return std::string(own) + R"(

Elements are of any type that is no reference: numbers, bool, strings, records, datetime64. Those of a
type that Tutti does not have travel as bytes.)" + arrays_and_errors;
}

// For a collective that only moves elements.
inline std::string copies(const char* own) { return moves(own) + options; }

// For a call with an operator.
inline std::string reduces(const char* own) {
  return std::string(own) + R"(

`op`: "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", "minloc",
"maxloc", or an Operator. Elements are bool (sum and max: any; prod and min: all), 8 to 64-bit integers,
float16, bfloat16, float32, float64, float8, complex64, complex128, or pairs of a value and an index.
`order`: "free", "canonical" or "exact", as TUTTI_ORDER; None: the communicator's.)" +
         arrays_and_errors + options;
}

constexpr const char* broadcast =
    R"(Gives every rank the elements of `data` at rank `root`. Only the root's may be read-only, without `wire`.)";
constexpr const char* gather =
    R"(Puts `data` of all ranks, n elements each, in order of rank into `out` of rank `root`: nranks * n
elements. Other ranks need no `out`.)";
constexpr const char* all_gather =
    R"(Puts `data` of all ranks, n elements each, in order of rank into `out` of every rank: nranks * n
elements.)";
constexpr const char* scatter =
    R"(Gives each rank its block of `data` of rank `root` (nranks * n elements) in `out` (n elements). Other
ranks pass None as `data`.)";
constexpr const char* all_to_all =
    R"(Sends block r of `data` to rank r, and puts the block that comes from rank r into block r of `out`;
None: of `data`. Both have nranks * n elements.)";
constexpr const char* all_gather_v =
    R"(As all_gather, with blocks of different sizes: rank r gives counts[r] elements, which begin at element
displacements[r] of `out`; None: one block after another. All ranks pass the same counts.)";
constexpr const char* all_to_all_v =
    R"(As all_to_all, with blocks of different sizes: rank r gets in_counts[r] elements of `data`, and
out_counts[r] elements come from it into `out`. Displacements, in elements, say where blocks begin;
None: one after another.)";
constexpr const char* gather_v =
    R"(As gather, with blocks of different sizes: counts[r] elements of rank r, from element displacements[r]
of `out` on; None: one block after another. `out`, `counts` and `displacements` are those of the root.)";
constexpr const char* scatter_v =
    R"(As scatter, with blocks of different sizes: rank r gets counts[r] elements from element
displacements[r] of `data` on; None: one block after another. `data`, `counts` and `displacements` are
those of the root.)";
constexpr const char* send =
    R"(Sends `data` to rank `peer`, for a receive with the same tag. `tag`: a whole number below 2**32.)";
constexpr const char* receive =
    R"(Receives into `data` what rank `peer` sends with the same tag: a message of as many bytes as `data` has.)";
constexpr const char* exchange =
    R"(Carries out a list of messages, Send(data, peer, tag) and Receive(data, peer, tag), together: none waits
for another. A rank may send to itself.)";
constexpr const char* reduce =
    R"(Reduces `data` of all ranks by `op`, element by element, into `out` of rank `root`, of as many elements;
None: into the root's `data`. Other ranks need no `out`.)";
constexpr const char* all_reduce =
    R"(Reduces `data` of all ranks by `op`, element by element, into `out` of every rank, of as many elements;
None: into `data`. All ranks get the same bits.)";
constexpr const char* reduce_scatter =
    R"(Reduces `data` of all ranks (nranks * n elements) by `op`, and gives each rank its block of the result in
`out` (n elements).)";
constexpr const char* reduce_scatter_v =
    R"(As reduce_scatter, with blocks of different sizes: rank r gets counts[r] elements of the result, from
element displacements[r] of `data` on; None: one block after another. All ranks pass the same counts.)";
constexpr const char* scan =
    R"(Reduces `data` of ranks 0 to r by `op`, in their order, into `out` of rank r, of as many elements; None:
into its `data`.)";
constexpr const char* exclusive_scan =
    R"(As scan, over ranks 0 to r-1. Rank 0 has no result: its `out` or `data` stays as it is.)";
constexpr const char* barrier =
    R"(Returns when all ranks have called it. Of Communicator.start: a Request, which is complete then. Raises
Mismatch, Timeout, PeerFailed or Aborted where other ranks do not come.)";

}  // namespace tutti::python::help
