// SPDX-License-Identifier: Apache-2.0
#include "clauses.hpp"

namespace tutti::conformance {
namespace {

// A clause's id is never used for another promise. `tools/check` and ctest compare these lines with the guide.
constexpr Clause table[] = {
    {"E-1", "A plugin's shared library exports `tutti_plugin_entry` and nothing else."},
    {"E-2",
     "The entry table and its info are complete: sizes of at least this revision's, `abi_major` equal to "
     "`TUTTI_ABI_MAJOR`, all four functions or tables, all five texts, an id of lower-case letters, digits, `-` and "
     "`_`."},
    {"E-3",
     "`get_interface` answers NULL for an id that it does not know and for an index past the last, and the same table "
     "each time that it is asked for one that it has. So does a transport's own `get_interface`."},
    {"E-4",
     "Every table has its revision's size and stamp, all mandatory functions, both or neither of a pair of optional "
     "ones, and, where it has a name, a lower-case one and a summary. No two tables of a kind bear one name."},
    {"E-5",
     "A function that returns an error has told `set_error` that status and a text, during the call and on its thread. "
     "(The functions of view/1 need not.)"},
    {"E-6", "`find_interface` is called only inside a call of a [control] function, on its thread."},
    {"E-7",
     "A log record or event has its size, the plugin's id as `source` and a text or name; a level is one of "
     "`TUTTI_LOG_*`, a text has no newline at its end."},
    {"E-8",
     "A struct that is longer than the callee knows is accepted when its unknown tail is zero, and refused with "
     "`TUTTI_NOT_SUPPORTED` when it is not."},
    {"E-9",
     "Of an output struct only the `struct_size` bytes that the caller has room for are written; `struct_size` then "
     "says how many were filled."},
    {"E-10",
     "What is passed in (strings, structs, arrays, address bytes, the secret) is not read after the call has returned. "
     "Only the memory of transfers and regions is, for as long as T-17 and T-35 say."},

    {"T-1",
     "`query` fills legal values, the same each time: `reach` is one of `TUTTI_REACH_*`, `fragment_bytes` at least "
     "4096, `receive_depth` at least 2, `inline_bytes` not more than `fragment_bytes`, both estimates more than 0, no "
     "unknown flag is set, and there is `flush` where `TUTTI_TRANSPORT_NEEDS_FLUSH` is."},
    {"T-2",
     "When everything that was opened is closed, the process has as many descriptors, threads and mapped bytes, and "
     "as much heap in use, as before, however often that is done."},
    {"T-3",
     "Endpoints of several communicators, of one domain or of several, are independent: neither messages nor failures "
     "of one reach another."},
    {"T-4",
     "`get_address` gives the same 1 to 4096 bytes each time and writes no more than `*bytes`. When that is too small "
     "it "
     "returns `TUTTI_NO_RESOURCES` with the needed length in `*bytes`."},
    {"T-5",
     "`connect` gives `TUTTI_AGAIN` or a link, never an error to a peer that is alive; with progress at both ends it "
     "comes to a link after finitely many calls, and later calls give the same one."},
    {"T-6",
     "Both ends may call `connect`, at the same time or one after the other. The end that does not call needs only "
     "progress, and messages flow both ways once it has asked for its link."},
    {"T-7",
     "`connect` checks the address: bytes that are truncated, too long or no address are refused with an error, and "
     "the "
     "endpoint goes on as if the call had not been made."},
    {"T-8",
     "Where a transport reaches other processes, endpoints that differ in the secret or in the communicator's id never "
     "get a link to each other. In a job without a secret (`secret_bytes` 0) the setting `meeting_address` is, while "
     "`open_endpoint` runs, the address by which the ranks have met: listen there alone."},
    {"T-9",
     "`post` takes the transfers of a batch from the first on; `*accepted` says how many. A refusal for want of room "
     "is "
     "`TUTTI_OK` with less than all, and what was refused can be posted again."},
    {"T-10",
     "A transfer that can never be right is an error, with `TUTTI_INVALID_ARGUMENT` for an unknown lane or kind and "
     "`TUTTI_NOT_SUPPORTED` for an unknown flag. `*accepted` then tells how many before it were taken, and those go "
     "on."},
    {"T-11", "Every accepted transfer completes exactly once (but an INLINE send: never), with kind TRANSFER."},
    {"T-12", "A completion carries its transfer's cookie, all 64 bits of it."},
    {"T-13", "The k-th SEND of a lane meets the k-th RECV of that lane at the other end."},
    {"T-14", "Completions of one (link, lane, kind) come in the order of posting."},
    {"T-15",
     "What a RECV finds in its memory is what the SEND's memory held, every byte, for every size and alignment."},
    {"T-16",
     "Nothing outside of [data, data + bytes) is written, nor read beyond it; the memory of a SEND is never written."},
    {"T-17",
     "A SEND completes only when its memory may be overwritten, a RECV only when its message is there to be read."},
    {"T-18", "After its completion a transfer's memory is not touched any more."},
    {"T-19",
     "A matched SEND and RECV complete whatever the state of other lanes and peers: a lane without receives holds up "
     "nothing else."},
    {"T-20", "At least `receive_depth` receives per (link, lane) are always accepted, on all lanes and links at once."},
    {"T-21",
     "A SEND that was refused is accepted after finitely many calls of progress once its RECV is posted, and nothing "
     "is "
     "lost, doubled or reordered by refusals."},
    {"T-22",
     "An INLINE send of at most `inline_bytes` (of no bytes always) is done when `post` returns: its memory may be "
     "overwritten and no record follows. A longer one, or an INLINE receive, is `TUTTI_INVALID_ARGUMENT`."},
    {"T-23",
     "A message of `fragment_bytes` passes; a transfer of one byte more is refused with `TUTTI_INVALID_ARGUMENT`."},
    {"T-24",
     "A message that is longer or shorter than its RECV completes the RECV with `TUTTI_MISMATCH`, writes nothing "
     "beyond "
     "the RECV's memory, and the lane goes on with the next."},
    {"T-25", "A message of no bytes is a message: it is matched in its turn and completes, with `data` NULL or not."},
    {"T-26", "No function blocks: each returns whatever the peers do (closing may take a few seconds)."},
    {"T-27",
     "`progress` writes at most `capacity` records and `*n` is how many; what does not fit comes with the next calls."},
    {"T-28",
     "A control message of 0 to 256 bytes is copied before `send_control` returns, needs no receive, and arrives once, "
     "whole, from the right peer, in order with its link's others. A longer one is `TUTTI_INVALID_ARGUMENT`; "
     "`TUTTI_AGAIN` ends when the receiver progresses."},
    {"T-29",
     "The data of a control message and the text of a PEER_FAILED record stay as they are until the endpoint's next "
     "`progress`; the text is not empty."},
    {"T-30",
     "`fail_peer` ends a link: every pending transfer with that peer completes with `TUTTI_PEER_FAILED`, posts and "
     "control "
     "messages are refused with it, no PEER_FAILED record follows, and other peers go on."},
    {"T-31", "After `abort` every pending transfer completes with `TUTTI_ABORTED`, and posts are refused with it."},
    {"T-32",
     "When a peer's process is gone, every pending transfer with it completes with `TUTTI_PEER_FAILED` and a "
     "PEER_FAILED "
     "record names it, once, in the same batch or the next; other peers go on."},
    {"T-33", "What was sent and completed before `close_endpoint` still arrives."},
    {"T-34",
     "`close_endpoint` returns with transfers pending and with connections under way. It drops them without a "
     "completion and does not touch their memory after it has returned."},
    {"T-35",
     "`register_memory` takes host memory of every address and length. A transfer that names its region moves what the "
     "memory holds at that moment. The memory stays as it is; memory of a kind that `memory_kinds` lacks is "
     "`TUTTI_NOT_SUPPORTED`."},
    {"T-36",
     "After `deregister_memory` the memory may go; other memory at the same address, registered or not, is other "
     "memory."},
    {"T-37",
     "`reach` is true both ways: ranks that are as far apart as it says can connect (processes of one host, from "
     "`TUTTI_REACH_HOST` on), and ranks of different processes are refused where it says `TUTTI_REACH_PROCESS`."},
    {"T-38", "Nothing counts in 31 or 32 bits: a link carries more than 2^31 bytes of one buffer right."},
    {"T-39",
     "Regions are registered and deregistered by any thread at any time, and an endpoint may be used by one thread "
     "after "
     "another."},

    {"V-1",
     "`try_receive` shows the lane's next message and its length, or NULL; asked again before `release` it shows the "
     "same "
     "bytes at the same place."},
    {"V-2", "The bytes that `try_receive` shows do not change before `release`."},
    {"V-3", "A message of no bytes is shown as a pointer that is not NULL and 0 bytes."},
    {"V-4",
     "`try_reserve` gives room for any length up to `fragment_bytes`, aligned to 64 bytes (unless shorter), or NULL; "
     "asked again before `commit` it gives the same room."},
    {"V-5", "A message is seen by the receiver after `commit`, whole, and never before."},
    {"V-6", "`release` gives room back: a sender that found none finds some after finitely many releases."},
    {"V-7",
     "Messages by view and by post share the lanes: what is committed meets a posted RECV, what is posted is shown by "
     "`try_receive`, in order."},
    {"V-8",
     "`send_region` sends the region's bytes; `released` exceeds the ticket when the receiver has released the "
     "message, "
     "not sooner, and never decreases."},
    {"V-9",
     "After a peer has failed `try_reserve` gives NULL, `released` UINT64_MAX, and the endpoint's progress goes on."},

    {"W-1", "`get_fd` gives a descriptor that poll(2) takes, the same until the endpoint is closed."},
    {"W-2",
     "Once `arm` has returned `TUTTI_OK` the descriptor becomes readable when a message, a completion, a control "
     "message, "
     "a connection or a loss is there to be progressed."},
    {"W-3", "What came before `arm` is not slept through: `arm` returns `TUTTI_AGAIN`, or the descriptor is readable."},
    {"W-4", "Where nothing happens, `arm` comes to return `TUTTI_OK` and the descriptor stays unreadable."},
    {"W-5", "`disarm` clears the descriptor; arming again works like the first time."},

    {"R-1",
     "`of_host` tells every rail once, under a name of its own, with no text missing and legal numbers, and the "
     "same each time while the host stays as it is. Where an endpoint can be opened, at least one is chosen."},
    {"R-2", "`of_endpoint` tells the rails that the endpoint uses: such as `of_host` calls chosen, by the same names."},
    {"R-3",
     "Over all rails of an endpoint `sent_bytes` and `received_bytes` never decrease and add up to the bytes of "
     "its messages. What the transport sends besides may be counted: at most a sixteenth more, and 4096 bytes a "
     "message."},

    {"A-1", "`collectives` names at least one collective and none that is unknown."},
    {"A-2", "`supports` returns `TUTTI_OK`, or `TUTTI_NOT_SUPPORTED` with a reason."},
    {"A-3",
     "A collective that `collectives` lacks and a query with unknown flags (of the low 32) are `TUTTI_NOT_SUPPORTED`, "
     "in `supports` and in `schedule`."},
    {"A-4", "The answer of `supports` does not depend on the query's rank or in-place flag."},
    {"A-5", "Where `supports` says yes, `schedule` succeeds for every rank and root; where it says no, it does not."},
    {"A-6", "The same query gives the same schedule, whatever was asked before, in every process."},
    {"A-7", "`supports` and `schedule` may be called by any number of threads at once."},
    {"A-8",
     "Cuts, scratch and flags are set at most once each and before the first step; steps, chunks, peers, dependencies "
     "and "
     "lanes are within their bounds, lanes within the query's."},
    {"A-9", "When the sink refuses something, `schedule` adds nothing more and returns the sink's status."},
    {"A-10", "Every SEND meets a receiving step of the same extents, and the other way round."},
    {"A-11", "The schedules end, without buffering and with two steps of each lane in flight."},
    {"A-12", "Every output chunk gets exactly its contributions, each once, in its place."},
    {"A-13", "Conflicting accesses are ordered by lane, dependency or message."},
    {"A-14", "Nothing but output and scratch is written; out of place, IN never."},
    {"A-15", "Each contribution is read with LOAD exactly once, each output value is written with FINAL exactly once."},
    {"A-16", "The sequence of messages is the same in place and out of place."},
    {"A-17", "A sliced schedule's scratch is free when a later slice reuses it."},

    {"D-1",
     "`query` fills legal values, the same each time: `memory_kind` is one of `TUTTI_MEMORY_*` and not "
     "`TUTTI_MEMORY_HOST`, no unknown flag is set, and `TUTTI_DEVICE_EXPORTS` is set exactly where there are "
     "`export_memory`, `import_memory` and `close_import`."},
    {"D-2", "`classify` knows every address of an allocation: its kind, its device, and an allocation that holds it."},
    {"D-3",
     "For an address that is none of the device's memory `classify` says `TUTTI_MEMORY_HOST`, never an error: NULL, "
     "the host's memory, also where streams see it, what lies behind an allocation."},
    {"D-4",
     "`buffer_id` is one for all addresses of an allocation and different for any two allocations, also when an "
     "address comes again."},
    {"D-5",
     "`allocate` gives memory aligned to 256 bytes that overlaps no other, on the device that is asked for; a device "
     "that there is not is an error."},
    {"D-6", "After `release` an address of the allocation is `TUTTI_INVALID_ARGUMENT` or `TUTTI_MEMORY_HOST`."},
    {"D-7",
     "After `map_host` streams of all devices see the caller's own memory at `*device_address`, in both directions. "
     "`unmap_host` leaves it as it is, and it can be mapped again."},
    {"D-8", "When `enable_peer` has returned `TUTTI_OK` streams of `device` read memory of `peer`."},
    {"D-9",
     "When everything that was made is given back (memory, mapped memory, streams, marks) the process has as many "
     "descriptors, threads and mapped bytes, and as much heap in use, as before, however often that is done."},
    {"D-10",
     "What `export_memory` describes, `import_memory` shows in another process of the host: the memory itself, in "
     "both directions: on the device that has it, and on each that `enable_peer` lets read that one. The record has "
     "the allocation's `bytes` and `buffer_id` as `classify` gives them, and the exported address's `offset`. The "
     "importer's `classify` knows the memory as the device's."},
    {"D-11",
     "`import_memory` refuses what it cannot trust: another form, sizes and offsets that are not the "
     "allocation's, a missing descriptor or another file's, a device that there is not, memory of its own "
     "process. `export_memory` refuses what is none of the device's memory, or was released."},
    {"D-12",
     "`close_import` ends one import: others of the same allocation and the owner's memory stay. What is no open "
     "import is refused. Nothing is left behind, however often memory is imported and closed."},
    {"D-13",
     "`export_dmabuf` gives a descriptor of which `[offset, offset + bytes)` is the memory itself, and leaves nothing "
     "behind once that is closed. Memory that is none of the device's, was released, or ends outside of its allocation "
     "is refused."},
    {"D-14",
     "`identify` gives each device 16 bytes, not all zero: the same each time and in every process of the host, and "
     "different for any two devices. A device that there is not is an error."},

    {"X-1", "COPY brings the `count` bytes of its source to `dst` and `dst2`, for every size and alignment."},
    {"X-2",
     "REDUCE gives the left fold of its sources by its operator, in the accumulator type, divided by `divisor` unless "
     "that is 0, rounded once: for every data type and operator the bits of the SDK's `arithmetic.hpp`, at every count "
     "and alignment, in `dst` and `dst2`."},
    {"X-3", "Nothing but the destinations is written."},
    {"X-4", "A destination may be exactly one of the sources."},
    {"X-5", "Commands of one stream are carried out in order."},
    {"X-6",
     "WAIT holds its stream up until `*word == value`, not for a greater one; what was written before the word was set "
     "is visible to the stream afterwards."},
    {"X-7", "WRITE sets its word after all earlier work of the stream, whose results the host then sees."},
    {"X-8",
     "AFTER holds its stream up until the work before the mark is done, as the mark stands when AFTER is enqueued."},
    {"X-9",
     "`poll_mark` says `TUTTI_AGAIN` until the work before the mark is done, and then `TUTTI_OK`. A mark can be set "
     "again."},
    {"X-10",
     "`enqueue` appends all commands or none: an unknown kind, data type or operator, or a COPY of several sources, is "
     "an error, and nothing of the batch is carried out."},
    {"X-11",
     "No function waits for the device (but `allocate`, `release`, `destroy_stream`, and `enqueue` when hundreds of "
     "commands are pending): each returns while streams are held up."},
    {"X-12",
     "`stream_state` gives the device that a stream was made on, flags of 0 while it is not captured, and for NULL one "
     "of the devices."},
    {"X-13", "All functions may be called by any number of threads at once, each on its own stream."},
    {"X-14",
     "`enqueue_fused` carries out COPY, REDUCE, WAIT and WRITE as `enqueue` does, in their order and bit for bit, "
     "after "
     "what is in the stream and before what comes behind. It returns at once. A list that it does not take is "
     "TUTTI_NOT_SUPPORTED, and nothing of it is carried out."},
};

}  // namespace

std::span<const Clause> clauses() { return table; }

const Clause* find_clause(std::string_view id) {
  for (const Clause& clause : table)
    if (id == clause.id) return &clause;
  return nullptr;
}

}  // namespace tutti::conformance
