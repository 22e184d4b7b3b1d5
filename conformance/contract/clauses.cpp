// SPDX-License-Identifier: Apache-2.0
#include "clauses.hpp"

namespace tutti::conformance {
namespace {

// A clause's id is never used for another promise.
constexpr Clause table[] = {
    {"E-1", "A plugin's shared library must export `tutti_plugin_entry` and must not export any other symbol."},
    {"E-2",
     "The entry table and its info must be complete. Both have at least the size of this revision, `abi_major` "
     "equals `TUTTI_ABI_MAJOR`, no function, table or text is NULL, and the id consists of lower-case letters, "
     "digits, `-` and `_`."},
    {"E-3",
     "`get_interface` must return NULL for an unknown id and for an index past the last. For an id that the plugin "
     "has, it must return the same table every time. The same holds for a transport's own `get_interface`."},
    {"E-4",
     "Every table must have its revision's size and all mandatory functions, and the stamp of a draft, or 0 there if "
     "the interface is stable. It must have both functions of an optional pair or neither. A table with a name must "
     "have a lower-case name and a summary. Two tables of one kind must not have the same name."},
    {"E-5",
     "A function that returns an error must first call `set_error` on the same thread, with the same status and with "
     "a text. The functions of view/1 are exempt."},
    {"E-6",
     "A plugin must call `find_interface` and `list_interface` only within a call of one of its [control] functions, "
     "on the thread of that call."},
    {"E-7",
     "A log record must have its size, the plugin's id as `source`, one of `TUTTI_LOG_*` as its level, and a text "
     "that does not end in a newline."},
    {"E-8",
     "A plugin must accept a struct that is longer than it knows if the unknown tail is zero, and must refuse it with "
     "`TUTTI_NOT_SUPPORTED` otherwise. Tables of services (`tutti_host`, sinks) may have any unknown tail."},
    {"E-9",
     "A plugin must not write more of an output struct than the `struct_size` bytes for which the caller has room, "
     "and must set `struct_size` to the number of bytes that it filled. Room that ends before the last mandatory "
     "field is `TUTTI_INVALID_ARGUMENT`."},
    {"E-10",
     "A plugin must not read an argument (strings, structs, arrays, pair messages) after the call has returned. "
     "There are two exceptions: `tutti_endpoint_config.pair` is valid until `close_endpoint`, and the memory of "
     "transfers and regions is valid for as long as T-17 and T-35 state."},
    {"E-11",
     "A plugin that declares settings by test_settings/1 must accept each of their values from the least to the most "
     "in "
     "the stated steps, and must keep the contract with them. Any other value must be refused by `query` or "
     "`open_domain`, with an error that names the setting."},

    {"T-1",
     "`query` must return legal values, the same every time: `reach` is one of `TUTTI_REACH_*`, `fragment_bytes` is "
     "at least 4096, `receive_depth` at least 2, `control_bytes` at least `TUTTI_CONTROL_BYTES`, `inline_bytes` at "
     "most `fragment_bytes`, and no unknown flag is set. Both estimates are above 0 and within a factor of 300 of the "
     "best that can be measured. A transport that sets `TUTTI_TRANSPORT_NEEDS_FLUSH` must have `flush`."},
    {"T-2",
     "Once everything that was opened has been closed, the process must not have more descriptors, threads, mapped "
     "bytes or heap in use than before, however often that is repeated."},
    {"T-3",
     "Endpoints of different communicators must be independent, whether they belong to one domain or to several: a "
     "message or failure of one must not reach another."},
    {"T-4",
     "A transport must send pair messages only to other ranks of the communicator, with at most `TUTTI_PAIR_BYTES` "
     "bytes, and only from [progress] functions, never from `open_endpoint`. Only a transport with `receive_pair` "
     "may send them. A pair message that finds no room (`TUTTI_AGAIN`) must be sent again after progress."},
    {"T-5",
     "For a live peer `connect` must return `TUTTI_AGAIN` or a link, and an error only as T-44 states. With progress "
     "at "
     "both ends it must return a link after finitely many calls. Later calls must return the same link."},
    {"T-6",
     "Both ends may call `connect`, at the same time or one after the other. An end that has not called it must need "
     "only `progress` for the other end's connection to complete. Once an end has its link, messages must flow in "
     "both directions."},
    {"T-7",
     "`receive_pair` must check its input. A message that is truncated, too long or invalid must end in an error, of "
     "this call or of the next `connect` to that peer, and must not lead to a link. Connections to other peers must "
     "not be affected."},
    {"T-8",
     "A transport that listens for other processes must not let a stranger that connects there delay a rank or be "
     "taken for one, whatever the stranger sends: a rank presents a token that it received by pair message. With "
     "`tutti_endpoint_config.address` set, an endpoint must listen on that address only."},
    {"T-9",
     "`post` must return `TUTTI_OK` if it accepts a transfer. If it has no room, it must return `TUTTI_AGAIN`, and "
     "must "
     "allow the transfer to be posted again. Between the loss of a peer and its PEER_FAILED record, `post` and "
     "`send_control` must not return an error for that peer: they accept what they are given or have no room."},
    {"T-10",
     "`post` must refuse a transfer that can never be valid: with `TUTTI_INVALID_ARGUMENT` for an unknown lane or "
     "kind, with `TUTTI_NOT_SUPPORTED` for an unknown flag. Transfers that were accepted before must continue."},
    {"T-11",
     "Every accepted transfer must complete exactly once, with kind TRANSFER. An INLINE send must not produce a "
     "completion."},
    {"T-12",
     "A completion must carry all 64 bits of its transfer's cookie. A RECV that completes with `TUTTI_OK` must "
     "report the message's size. The reserved fields of every record must be zero."},
    {"T-13", "The k-th SEND of a lane must be matched with the k-th RECV of that lane at the other end."},
    {"T-14", "Completions of one (link, lane, kind) must be reported in the order of posting."},
    {"T-15", "A RECV must deliver every byte of the SEND's memory unchanged, for every size and alignment."},
    {"T-16",
     "The transport must not write outside of [data, data + bytes), must not read beyond it, and must never write "
     "the memory of a SEND."},
    {"T-17",
     "A SEND must not complete before its memory may be overwritten. A RECV must not complete before its message can "
     "be read."},
    {"T-18", "The transport must not access the memory of a transfer after the transfer's completion."},
    {"T-19",
     "A matched SEND and RECV must complete regardless of the state of other lanes and peers: a lane without "
     "receives must not delay any other."},
    {"T-20",
     "At least `receive_depth` receives per (link, lane) must always be accepted, on all lanes and links at the same "
     "time."},
    {"T-21",
     "A refused SEND must be accepted after finitely many calls of `progress` once its RECV is posted. Refusals must "
     "not lose, duplicate or reorder messages."},
    {"T-22",
     "An INLINE send of at most `inline_bytes` (or of no bytes) must be done when `post` returns: its memory may be "
     "overwritten and no record follows. A longer INLINE send and any INLINE receive must be refused with "
     "`TUTTI_INVALID_ARGUMENT`."},
    {"T-23",
     "A message of `fragment_bytes` must be accepted. A transfer of one byte more must be refused with "
     "`TUTTI_INVALID_ARGUMENT`."},
    {"T-24",
     "A message that is longer or shorter than its RECV must complete the RECV with `TUTTI_MISMATCH` and with the "
     "message's size, and must not be written beyond the RECV's memory. The lane must continue with the next "
     "message."},
    {"T-25",
     "A message of no bytes must be matched in its turn and complete like any other, whether `data` is NULL or not."},
    {"T-26",
     "No function may block: each must return regardless of what the peers do. Closing may take a few seconds."},
    {"T-27",
     "`progress` must write at most `capacity` records and return their number in `*n`. Records that do not fit must "
     "follow in later calls."},
    {"T-28",
     "`send_control` must copy a message of 0 to `control_bytes` bytes before it returns. The message must arrive "
     "without a posted receive, once, whole, from the right peer, and in order with the other control messages of "
     "its link. A longer one must be refused with `TUTTI_INVALID_ARGUMENT`. `TUTTI_AGAIN` must end once the receiver "
     "progresses."},
    {"T-29",
     "The data of a control message and the text of a PEER_FAILED record must stay unchanged until the endpoint's "
     "next `progress`. The text must not be empty."},
    {"T-30",
     "After `fail_peer`, where there is one, every pending transfer with that peer must complete with "
     "`TUTTI_PEER_FAILED`, and later "
     "posts and control messages to it must be refused with that status. No PEER_FAILED record may follow. Other "
     "peers must not be affected."},
    {"T-31",
     "After `abort` every pending transfer must complete with `TUTTI_ABORTED`, and later posts must be refused with "
     "that status."},
    {"T-32",
     "When a peer's process has ended, every pending transfer with it must complete with `TUTTI_PEER_FAILED`. One "
     "PEER_FAILED record must name the peer, in the same batch or the next. Other peers must not be affected."},
    {"T-33", "A message whose send completed before `close_endpoint` must still arrive."},
    {"T-34",
     "`close_endpoint` must return even if transfers are pending or connections are being opened. It must drop them "
     "without a completion and must not access their memory after it has returned."},
    {"T-35",
     "`register_memory` must accept host memory of every address and length, and must not change it. A transfer that "
     "names the region must move what the memory holds at that moment. Memory of a kind that `memory_kinds` does not "
     "contain must be refused with `TUTTI_NOT_SUPPORTED`. The memory of the whole process (NULL, UINT64_MAX bytes) may "
     "be refused with that status, too."},
    {"T-36",
     "The transport must not use the memory of a region after `deregister_memory`. It must treat later memory at the "
     "same address, registered or not, as different memory."},
    {"T-37",
     "`reach` must be exact. Ranks as far apart as it states must be able to connect (processes of one host, from "
     "`TUTTI_REACH_HOST` on). Ranks of different processes must be refused if it states `TUTTI_REACH_PROCESS`."},
    {"T-38",
     "No number may be cut to 8, 16, 31 or 32 bits: ranks and lanes beyond 256, 70,000 messages of a lane, control "
     "messages of a link and registrations of a domain, and more than 2^31 bytes of one buffer must be carried "
     "correctly."},
    {"T-39",
     "Any thread must be able to register and deregister regions at any time. An endpoint must be usable by one "
     "thread after another."},
    {"T-40",
     "If `memory_kinds` contains the memory of a device, transfers must move registered memory of that kind by its "
     "descriptor, and the processor must not access its address. Data that a RECV wrote must be visible to the device "
     "after the completion or, if the transport sets `TUTTI_TRANSPORT_NEEDS_FLUSH`, once `flush` has returned "
     "`TUTTI_OK`."},
    {"T-41",
     "While endpoints stay open, the process must not hold more descriptors, threads, mapped bytes or heap for "
     "transfers, messages and regions that have ended, however many there were."},
    {"T-42",
     "A transport that sets `TUTTI_TRANSPORT_MARKS` must carry all 32 bits of a SEND's mark. A RECV with this mark "
     "must "
     "complete with `TUTTI_OK`. One with another mark must complete with `TUTTI_MISMATCH`, and the lane must continue "
     "with the next message. Both records must report the message's mark."},
    {"T-43",
     "Endpoints with the same `tutti_endpoint_config.family` may share connections and the descriptor of `wait_fd/1`. "
     "Each must still get its own messages, wake-ups and losses only. Closing or aborting one, or giving up a peer "
     "there, must not affect the others."},
    {"T-44",
     "`connect` may return `TUTTI_OK` at one end only when the other end cannot fail any more for a reason of its own. "
     "If an end cannot connect, for example for lack of descriptors, `connect` must return the status of that end at "
     "both ends, and no PEER_FAILED record may come. Connections to other peers must not be affected."},

    {"V-1",
     "`try_receive` must return the lane's next message and its length, or NULL. Called again before `release`, it "
     "must return the same bytes at the same address."},
    {"V-2", "The bytes that `try_receive` returned must not change before `release`."},
    {"V-3", "A message of no bytes must be returned as a non-NULL pointer with a length of 0."},
    {"V-4",
     "`try_reserve` must return room for any length up to `fragment_bytes`, aligned to 64 bytes unless shorter, or "
     "NULL. Called again before `commit`, it must return the same room."},
    {"V-5", "A receiver must see a message after `commit`, whole, and must not see any part of it before."},
    {"V-6",
     "`release` must return the room of the message to the sender: a sender that found none must find some after "
     "finitely many releases."},
    {"V-7",
     "Messages by view and by post must share the lanes, in order: a committed message is matched with a posted "
     "RECV, a posted message is returned by `try_receive`."},
    {"V-8",
     "`send_region` must send the region's bytes. `released` must exceed the ticket once the receiver has released "
     "the message, must not do so earlier, and must never decrease."},
    {"V-9",
     "After a peer has failed, `try_reserve` must return NULL and `released` must return UINT64_MAX. The endpoint's "
     "progress must continue."},
    {"V-10",
     "`try_receive_into` must return the message that `try_receive` would return. It may write the message to `room` "
     "if it fits, and must then return `room`. Otherwise it must not write to `room`."},
    {"V-11",
     "A message by `commit` or `send_region` must have the mark that `set_mark` was given last for its lane, or 0. "
     "`get_mark` must return the mark of the message that `try_receive` returned, however it was sent."},

    {"W-1", "`get_fd` must return a descriptor that poll(2) accepts, the same one until the endpoint is closed."},
    {"W-2",
     "After `arm` has returned `TUTTI_OK`, the descriptor must become readable when a message, a completion, a "
     "control message, a connection or a loss can be progressed, or when there is room for a SEND or control message "
     "that was refused."},
    {"W-3",
     "An event before `arm` must not be missed: `arm` must return `TUTTI_AGAIN`, or the descriptor must be readable."},
    {"W-4",
     "While there is nothing to progress, `arm` must return `TUTTI_OK` after finitely many calls of `arm` and "
     "`progress`. The descriptor must then not be readable until an event of W-2."},
    {"W-5", "`disarm` must clear the descriptor. Arming again must work like the first time."},

    {"R-1",
     "`of_host` must report every rail once, under a unique name, with all texts and with legal numbers, and the "
     "same every time while the host does not change. If an endpoint can be opened, at least one rail must be "
     "chosen."},
    {"R-2",
     "`of_endpoint` must report the rails that the endpoint uses. Each must be one that `of_host` reports as chosen, "
     "under the same name."},
    {"R-3",
     "Over all rails of an endpoint, `sent_bytes` and `received_bytes` must never decrease and must add up to the "
     "bytes of its messages. The transport's own traffic may be counted too: at most a sixteenth more, and 4096 "
     "bytes per message."},

    {"M-1",
     "`share` must fill the place with `bytes` and with this end's addresses of the memory. For device memory `device` "
     "is its address and `host` is NULL. Host memory must have both and must be zeroed."},
    {"M-2",
     "`open_mapping` must map the peer's share of that tag. While there is no such share it must return `TUTTI_AGAIN`. "
     "A tag must be usable again after its share is gone."},
    {"M-3", "`share_state` must return `TUTTI_AGAIN` until the peer has mapped the share, and then `TUTTI_OK`."},
    {"M-4",
     "`withdraw` must return `TUTTI_AGAIN` while the peer has a mapping, and `TUTTI_OK` within finitely many calls "
     "when it has none."},
    {"M-5",
     "Both ends must address the same memory. Writes of a stream or a processor before it sets a flag must be visible "
     "to a stream or a processor of either end that has seen the flag."},
    {"M-6",
     "`share` must return `TUTTI_NOT_SUPPORTED` for a kind of device that is not shared, and an error for a device "
     "that does not exist. `open_mapping` must return an error for such a kind."},
    {"M-7",
     "If `open_mapping` of a share fails, the peer's `share_state` must return the same status with the reason, and "
     "its `withdraw` must return `TUTTI_OK`."},
    {"M-8",
     "After `fail_peer`, where there is one, `share` and `open_mapping` must return `TUTTI_PEER_FAILED`. `withdraw` of "
     "a share that the living peer has mapped must return `TUTTI_PEER_FAILED`, too. Mappings must stay addressable "
     "until they are closed."},
    {"M-9",
     "After the peer's process has ended, `withdraw` must return `TUTTI_OK` within finitely many calls, and mappings "
     "must stay addressable until they are closed."},
    {"M-10",
     "After `decline` of a tag, the peer's `share_state` must return the given status with the reason for its share of "
     "that tag, made before or later, and `withdraw` of that share must return `TUTTI_OK`. The peer's `open_mapping` "
     "of that tag must return the status once. After that the tag must be usable again."},

    {"A-1", "`collectives` must name at least one collective and must not name an unknown one."},
    {"A-2", "`supports` must return `TUTTI_OK`, or `TUTTI_NOT_SUPPORTED` with a reason."},
    {"A-3",
     "`supports` and `schedule` must return `TUTTI_NOT_SUPPORTED` for a collective that `collectives` does not "
     "contain and for a query with an unknown flag among the low 32."},
    {"A-4", "The answer of `supports` must not depend on the query's rank or in-place flag."},
    {"A-5",
     "If `supports` accepts a query, `schedule` must succeed for every rank and root. If it does not, `schedule` "
     "must not succeed."},
    {"A-6", "The same query must give the same schedule, regardless of earlier queries, in every process."},
    {"A-7", "Any number of threads must be able to call `supports` and `schedule` at the same time."},
    {"A-8",
     "An algorithm must set cuts, scratch and flags at most once each and before the first step. Steps, chunks, "
     "peers, dependencies and lanes must be within their bounds, lanes within those of the query."},
    {"A-9", "After the sink has refused a call, `schedule` must not add anything and must return the sink's status."},
    {"A-10", "Every SEND must be matched by a receiving step of the same extents, and every receiving step by a SEND."},
    {"A-11", "The schedules must complete without buffering, with two steps of each lane in flight."},
    {"A-12",
     "Every output chunk must receive exactly its contributions, each once, in its place, and in a scan in the order "
     "of ranks."},
    {"A-13", "Conflicting accesses must be ordered by lane, dependency or message."},
    {"A-14", "A schedule must write only output and scratch. Out of place it must not write IN."},
    {"A-15",
     "Each contribution must be read with LOAD exactly once. Each output value must be written with FINAL exactly "
     "once."},
    {"A-16", "The sequence of messages must be the same in place and out of place."},
    {"A-17", "The scratch of a sliced schedule must be free when a later slice reuses it."},
    {"A-18",
     "In an all_reduce all ranks must reduce the values of a chunk in the same order, up to swapped operands, so that "
     "all get the same bits, also from inexact data."},

    {"G-1",
     "`open` must join the meeting at the place that the config names. If the config has `nranks`, `*rank` and "
     "`*nranks` must be the config's."},
    {"G-2",
     "`all_gather` must write the bytes of each rank r at `all[r * bytes]` on every rank, for every number of bytes, "
     "again and again."},
    {"G-3",
     "If a rank does not come to an `all_gather`, the others' must end with `TUTTI_TIMEOUT` after `timeout_ns`."},
    {"G-4", "After `abort` of any rank, pending and later `all_gather`s of all ranks must end with `TUTTI_ABORTED`."},
    {"G-5",
     "If ranks gather different numbers of bytes, `all_gather` must not return `TUTTI_OK` on any rank, and must return "
     "`TUTTI_MISMATCH` on at least one."},
    {"G-6", "Meetings at different places must be independent. A place must be usable again after a meeting."},

    {"P-1",
     "`put` must write `bytes` bytes at `offset` of the region and nothing else, and `get` must read them, for every "
     "size and offset. Each must complete exactly once, with its cookie and the peer."},
    {"P-2",
     "An access that does not lie in the region must be refused with `TUTTI_INVALID_ARGUMENT`, without an effect and "
     "without a completion."},
    {"P-3",
     "`test_signal` must return the sum of all values that were signalled. Data put into the region before a signal "
     "must be visible once the signal is counted."},
    {"P-4",
     "`import_region` must refuse untrusted input: a key that is truncated, too long or altered, a key of another rank "
     "or communicator, and a key of a region that was withdrawn."},
    {"P-5", "After `abort` later operations must be refused with `TUTTI_ABORTED`, without an effect."},
    {"P-6",
     "`progress` must write at most `capacity` completions. Those that do not fit must follow in later calls. Reserved "
     "fields must be zero."},

    {"D-1",
     "`query` must return legal values, the same every time: `memory_kind` is the value of `tutti_host.memory_kind` "
     "and is not `TUTTI_MEMORY_HOST`, and no unknown flag is set. `TUTTI_DEVICE_EXPORTS` must be set if and only if "
     "the device has `export_memory`, `import_memory` and `close_import`."},
    {"D-2",
     "`classify` must recognise every address of an allocation, with its kind, its device, and an allocation that "
     "contains the address."},
    {"D-3",
     "For an address outside the device's memory `classify` must return `TUTTI_MEMORY_HOST` and no error: for NULL, "
     "for host memory (also where streams can access it), and for an address behind an allocation."},
    {"D-4",
     "`buffer_id` must be the same for all addresses of an allocation and different for any two allocations, also "
     "when an address is reused."},
    {"D-5",
     "`allocate` must return memory of the requested device, aligned to 256 bytes, that does not overlap any other. "
     "An unknown device must be an error."},
    {"D-6",
     "After `release`, `classify` must return `TUTTI_INVALID_ARGUMENT` or `TUTTI_MEMORY_HOST` for an address of the "
     "allocation."},
    {"D-7",
     "After `map_host`, streams of all devices must access the caller's own memory at `*device_address`, in both "
     "directions. `unmap_host` must not change the memory, and it must be possible to map it again."},
    {"D-8", "After `enable_peer` has returned `TUTTI_OK`, streams of `device` must be able to read memory of `peer`."},
    {"D-9",
     "Once all memory, mapped memory, streams and events have been released, the process must not have more "
     "descriptors, threads, mapped bytes or heap in use than before, however often that is repeated."},
    {"D-10",
     "`import_memory` must give another process of the host access to the exported memory itself, in both directions, "
     "on its own device and on each device that `enable_peer` allows to read it. The record must have the allocation's "
     "`bytes` and `buffer_id` as `classify` returns them, and the `offset` of the exported address. The importer's "
     "`classify` must recognise the memory as the device's."},
    {"D-11",
     "`import_memory` must refuse untrusted input: an unknown form, sizes or offsets that are not the allocation's, a "
     "missing descriptor or that of another file, an unknown device, and memory of its own process. `export_memory` "
     "must refuse memory that is not the device's or has been released."},
    {"D-12",
     "`close_import` must end one import and must not affect other imports of the allocation or the owner's memory. "
     "It must refuse an address that is not an open import. However often memory is imported and closed, nothing may "
     "be left behind."},
    {"D-13",
     "`export_dmabuf` must return a descriptor of which `[offset, offset + bytes)` is the memory itself, and must "
     "not leave anything behind once that is closed. It must refuse memory that is not the device's, has been "
     "released, or ends outside of its allocation."},
    {"D-14",
     "`identify` must return 16 bytes for each device, not all zero: the same every time and in every process of the "
     "host, and different for any two devices. An unknown device must be an error."},

    {"X-1", "COPY must copy the `count` bytes of its source to `dst`, for every size and alignment."},
    {"X-2",
     "REDUCE must compute the left fold of its sources in the accumulator type, divide by `divisor` unless it is 0, "
     "and round once. For every data type and operator that it claims, the result in `dst` must equal that of the "
     "SDK's `arithmetic.hpp` bit for bit, at every count and alignment."},
    {"X-3", "A command must not write anything but its destinations."},
    {"X-4", "A command must accept a destination that is exactly one of its sources."},
    {"X-5", "Commands of one stream must be carried out in order."},
    {"X-6",
     "WAIT must hold up its stream until `*flag == value`, and must not accept a greater value. The stream must then "
     "see everything that was written before the flag was set."},
    {"X-7",
     "WRITE must set its flag after all earlier work of the stream, and the host must then see the results of that "
     "work."},
    {"X-8",
     "AFTER must hold up its stream until the work before the event is done, as the event was set when AFTER was "
     "enqueued."},
    {"X-9",
     "`query_event` must return `TUTTI_AGAIN` until the work before the event is done, and `TUTTI_OK` afterwards. It "
     "must be possible to set an event again."},
    {"X-10",
     "`enqueue` must append all commands of a batch or none. An unknown kind, flag, data type or operator, a "
     "reserved field that is set, or a COPY of several sources must be an error, and no command of that batch may be "
     "carried out."},
    {"X-11",
     "No function may wait for the device: each must return while streams are held up. Exempt are `allocate`, "
     "`release`, `map_host`, `unmap_host`, `enable_peer`, `import_memory`, `close_import`, `prepare`, "
     "`destroy_stream`, "
     "and `enqueue` when hundreds of commands are pending or `prepare` was not called."},
    {"X-12",
     "`stream_state` must return the device on which a stream was made, and no flag while it is not captured. For "
     "NULL it must return one of the devices."},
    {"X-13", "Any number of threads must be able to call all functions at the same time, each on its own stream."},
    {"X-14",
     "`enqueue_fused` must carry out COPY, REDUCE, WAIT and WRITE as `enqueue` does: in order, bit for bit, after "
     "earlier work of the stream and before later work. It must return at once. It must refuse a list that it does "
     "not support with `TUTTI_NOT_SUPPORTED`, and must not carry out any of it."},
    {"X-15",
     "`dtypes` and `ops` must be exact: REDUCE must accept a type and an operator that are both in the masks and go "
     "together (docs/types.md), and must refuse any other with `TUTTI_NOT_SUPPORTED`."},
    {"X-16",
     "`query` of an executor must be exact. `enqueue_fused` must accept each list of COPY, REDUCE, WAIT and WRITE "
     "within "
     "`max_fused_commands` and `max_fused_bytes`. It must refuse a list beyond one of them with `TUTTI_NOT_SUPPORTED`, "
     "and "
     "must not carry out any of it. An unknown device must be an error."},
    {"X-17",
     "REDUCE by `TUTTI_SUM` with `TUTTI_COMMAND_EXACT` must give the real sum of its sources, divided by `divisor` "
     "unless it is 0, rounded once, with the bits of the SDK's `exact_sum.hpp`. `exact_dtypes` must be exact: with "
     "that flag any other type or operator must be refused with `TUTTI_NOT_SUPPORTED`."},

    {"nccl.table",
     "A network plugin must export `ncclNetPlugin_v6` to `ncclNetPlugin_v12`, at least one of them. The newest "
     "table is used. It must have a name and every function except `iflush`, `regMrDmaBuf` and those of later "
     "versions."},
    {"nccl.init",
     "`init` must return ncclSuccess if the plugin can be used, and `devices` must then report at least one "
     "adapter."},
    {"nccl.properties",
     "`getProperties` must describe each adapter, the same every time. `name` must not be NULL. `ptrSupport` must "
     "contain NCCL_PTR_HOST and no unknown bit, and NCCL_PTR_DMABUF only with `regMrDmaBuf`. `maxComms`, "
     "`maxRecvs` and, from version 9 on, `maxP2pBytes` must be above 0. A message of `maxP2pBytes` must be accepted. "
     "`speed` may be 0 where it is not known."},
    {"nccl.listen", "`listen` must return a listenComm whenever it returns ncclSuccess."},
    {"nccl.handle",
     "`listen` must not write more than the 128 bytes of the handle, and a copy of the handle must work."},
    {"nccl.connect",
     "`connect` and `accept` must return ncclSuccess with a NULL comm until the other end is there. With calls at "
     "both ends each must return a comm after finitely many calls, whichever is called first."},
    {"nccl.never-blocks", "No function may wait for the peer."},
    {"nccl.registration",
     "`regMr` must accept host memory of any address and length and must not change it. `deregMr` must return "
     "ncclSuccess."},
    {"nccl.null-request",
     "`isend` and `irecv` that cannot start must return ncclSuccess and set the request to NULL. They must start "
     "when called again, after finitely many calls of `test` at the other end."},
    {"nccl.requests",
     "Each comm must accept NCCL_NET_MAX_REQUESTS requests at a time (8 before version 8, 32 since), and a "
     "sendComm `maxRecvs` times as many."},
    {"nccl.request-identity", "A request must not be returned again before `test` has reported it done."},
    {"nccl.completion",
     "`test` must return ncclSuccess and must report each request done after finitely many calls at both ends. Where "
     "`maxRecvs` is 1 the requests of a comm are tested in the order of posting, as NCCL does."},
    {"nccl.done",
     "`test` must not report an irecv done before all bytes are in memory, nor an isend before its memory may be "
     "overwritten."},
    {"nccl.data",
     "An irecv must write the bytes that were sent, and must not write outside of its memory, also where the isend is "
     "longer."},
    {"nccl.size", "`test` must report how many bytes were sent, also where the irecv has room for more."},
    {"nccl.empty", "A message of 0 bytes must be sent and received as any other."},
    {"nccl.group",
     "A grouped irecv must be done when all of its messages are there, and `test` must then report the size of "
     "each, in the order of the irecv."},
    {"nccl.tags",
     "A message must arrive in the irecv of the group that has its tag, whatever the order of the isends."},
    {"nccl.order", "Messages must be matched with irecvs in the order of posting."},
    {"nccl.flush",
     "`iflush` of memory that was registered as NCCL_PTR_CUDA must return ncclSuccess. When its request is done, or at "
     "once if that is NULL, the received bytes must be visible."},
    {"nccl.dma-buf",
     "Where `ptrSupport` has NCCL_PTR_DMABUF, `regMrDmaBuf` must register the bytes of the descriptor from the offset "
     "on as the memory of the address, and messages must be sent from and received in them."},
    {"nccl.comms", "A comm that waits must not delay another one."},
    {"nccl.gone",
     "`test` must not report an irecv done that got no message since the peer closed its sendComm. It must return an "
     "error or report it not done, and closeRecv must return."},
    {"nccl.context",
     "From version 11 on `init` may be called for each communicator, and its context is passed to `listen` and "
     "`connect`. A comm must not depend on another communicator's context. `finalize` must return ncclSuccess, and "
     "`init` must succeed after it."},
    {"nccl.close",
     "The close functions must return ncclSuccess when no request is pending, and must not leave descriptors, "
     "threads or memory behind."},
};

}  // namespace

std::span<const Clause> clauses() { return table; }

const Clause* find_clause(std::string_view id) {
  for (const Clause& clause : table)
    if (id == clause.id) return &clause;
  return nullptr;
}

}  // namespace tutti::conformance
