// SPDX-License-Identifier: Apache-2.0
//
// A communicator's collectives on device memory: plans for streams, their issue, the channels to other processes, and
// the operations that the device has not finished. The owner advances it like everything else of the communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/fabric/devices.hpp"
#include "stream/channel_opening.hpp"
#include "stream/device_gate.hpp"
#include "stream/device_probe.hpp"
#include "stream/local_rendezvous.hpp"
#include "stream/stream_call.hpp"
#include "stream/stream_plan.hpp"
#include "stream/stream_transfer.hpp"
#include "stream/windows.hpp"

struct tutti_request;

namespace tutti::core {

class StreamRunner {
 public:
  using Setup = StreamSetup;
  explicit StreamRunner(Setup setup);
  // Memory that devices still use is not freed.
  ~StreamRunner();

  // Does this rank exchange bytes with ranks of other processes, so that somebody has to advance it meanwhile?
  bool has_channels() const { return local_.size() < setup_.topology->nranks(); }

  // Can the call's stream take it? Fills in what the device says of it; throws Failure, and nothing was issued.
  void require_stream(StreamCall& call) const;
  // Can a collective be recorded for replays? Throws Failure, and nothing was issued.
  void require_recordable(const StreamCall& call);
  // Has nobody of the process anything pending on the device, so that a call may wait for the whole device?
  bool may_synchronise() { return gate_.is_idle(); }
  // The ranks of communicators that have, for messages.
  std::string pending_users() { return gate_.pending(); }
  // Has the device load what it needs for commands; before its first call.
  void prepare(const std::function<void()>& idle);
  // The plan of a call, made if need be. `idle` is called until nothing is pending where memory has to be allocated.
  // `blocks`: where they are unequal.
  StreamPlan& find_plan(const StreamCall& call, const BlockTable* blocks, const std::function<void()>& idle);
  using Until = std::function<void(const std::function<bool()>&)>;
  // Opens the channels that the plan lacks; both ends have to come to the call. `until` waits until its argument says
  // true, or throws.
  void open_channels(const StreamCall& call, StreamPlan& plan, const Until& until);
  // All ranks come to the same call with a few bytes, and get those of all.
  using Gather = std::function<std::vector<std::string>(const std::string& mine)>;
  // The form of the call's plan that is to be issued: `plan`, or the one that uses windows. In the first call of a
  // shape whose buffers lie in windows all ranks settle whether there is such a form.
  StreamPlan& choose_form(const StreamCall& call, StreamPlan& plan, const Gather& gather, const Until& until);
  // Where the buffers of the call whose plan was found last lie in windows.
  uint64_t places_hash() const { return places_.hash(); }
  // Exports a window to other processes and imports theirs: Windows::share and drop.
  std::string share(tutti_window& window, const Until& until) { return windows_->share(window, until); }
  void drop(tutti_window& window, const Until& until) { windows_->drop(window, until); }
  // Releases what was taken back and no peer has mapped any more.
  void settle_memory() {
    if (!memory_->is_settled()) gate_.try_run([this] { memory_->settle(); });
  }
  // No call will follow. Unmaps what belongs to other ranks, and takes back what they have mapped. False: streams may
  // still use it, and it stays as it is until the process ends.
  bool end();
  // Before the transports are closed: end(), which is not tried again, and a wait, not for ever, until peers have
  // unmapped this rank's memory.
  bool end_for_good();

  // A group of sends and receives (stream_transfer.hpp) instead of a collective. Opens the channels that it lacks, both
  // ways to each peer.
  void open_channels(const std::vector<Transfer>& transfers, const Until& until);
  // The carriers of its bytes: "mapped", "tcp". Valid until the next call.
  std::span<const char* const> carriers(const std::vector<Transfer>& transfers);
  // Bytes that mapped channels have carried, or are about to, and that were read in place, by peer.
  std::vector<tutti_link_traffic> traffic() const;
  // A turn of a wait: moves what is pending. False: nothing has moved for too long, while `excused` was false. Throws
  // Failure where the communicator has ended.
  using Turn = std::function<bool(bool excused)>;
  // Puts the call's work into the stream; then issued() or failed(). The ranks of the process meet for a collective,
  // and for what they send each other. Throws Failure.
  void put(const StreamCall& call, StreamPlan& plan, const Turn& turn);
  void put(const StreamCall& call, const std::vector<Transfer>& transfers, const Turn& turn);
  // Was a call given up whose work another rank's thread is still putting into the stream? It uses what this one has.
  bool is_left_behind() { return left_behind_ && rendezvous_->issuer(); }
  // Is the begun call being recorded for later replays? Then nothing of it runs now.
  bool captures() const { return !part_->counter; }
  // The begun call has been issued: it is pending from now on, and the request stands for it until complete.
  void issued(tutti_request* request);
  // Its issue has failed, perhaps before it began, perhaps half-way: what is in the stream is pending, without a
  // request.
  void failed();

  bool pending() const { return !operations_.empty() || begins_ || !opening_.empty(); }
  size_t operations() const { return operations_.size(); }
  // Is there room for another operation in the device's queue?
  bool has_room() const;
  // Moves channels and calls `done` for each request whose work the device has finished, oldest first. False: the
  // request waits for something else, and `done` is called again. Throws Failure.
  bool advance(const std::function<bool(tutti_request*)>& done);
  // The request of the oldest operation that is pending, or nullptr.
  const tutti_request* oldest() const { return operations_.empty() ? nullptr : operations_.front().request; }
  // Has the device not come to the oldest operation yet? Work of the application in the same stream may take as long as
  // it likes.
  bool held_up() const { return !operations_.empty() && !counter_->reached(operations_.front().first); }
  // Does the oldest operation that the device has begun stand still for longer than its timeout? Throws Failure where
  // the device has failed, which it is asked now and then.
  bool overdue(uint64_t now_ns);
  // The sequence and the timeout of the oldest operation.
  std::optional<uint64_t> sequence() const {
    const Operation& oldest = operations_.front();
    return oldest.transfers ? std::nullopt : std::optional(oldest.call.sequence);
  }
  uint64_t timeout_ns() const { return operations_.front().call.timeout_ns; }
  // Where the oldest operation stands, for messages.
  std::string standpoint() const;
  // Were operations recorded whose replays wait for other processes? Nobody sees when one runs.
  bool recorded() const { return recorded_; }
  // Gives all streams what they wait for at this moment, replays too.
  void let_replays_go();
  // Gives all streams what they wait for. True when the device has finished everything.
  bool let_go();
  // To be asked once let_go() has said true or too much time has passed: what an error has to say of memory that may
  // still be in use, "; ..."; "": none is.
  std::string in_use();
  // Ends the bookkeeping of all operations, and tells their requests.
  void fail_all(const std::function<void(tutti_request*)>& done);

 private:
  struct Operation {
    uint64_t number = 0;
    tutti_request* request = nullptr;
    uint32_t first = 0, last = 0;  // of the counter
    uint64_t commands = 0;         // that may be in the device's queue
    bool counted = false;          // by the device's gate
    uint64_t last_progress_ns = 0;
    StreamCall call;
    uint64_t transfers = 0;  // instead of a collective
    Transfer transfer;       // the first of them
    std::string text() const;
  };
  // A call's way into or out of a slot, and the number of the operation's first fragment among the channel's.
  using OpenWay = std::pair<StreamChannel*, uint64_t>;

  StreamChannel& channel(const StreamTraffic& traffic) const {
    return *channels_.at({traffic.peer, traffic.lane, traffic.outgoing});
  }
  // The channel of sends and receives.
  StreamChannel& channel(uint32_t peer, bool outgoing) const { return *channels_.at({peer, setup_.lanes, outgoing}); }
  bool is_far(const Transfer& transfer) const { return transfer.bytes && !is_local(transfer.peer); }
  StreamSlot slot_of(uint32_t way, uint64_t number) const;
  void require_mapped(const StreamPlan& plan) const;
  void copy_to_output(const StreamCall& call, const StreamPlan& plan);
  std::unique_ptr<StreamPlan> bind(const Shape& shape, bool in_windows) const;
  using Forms = std::vector<std::unique_ptr<StreamPlan>>;
  StreamPlan& form_of(Forms& forms, const Shape& shape, const BlockTable* blocks) const;
  // While `body` waits for peers that come to their first such call.
  void open_with_peers(const std::string& what, const std::function<void()>& body);
  bool may_fuse(const StreamPlan& plan) const;
  void open_missing(const std::string& what, const std::vector<StreamTraffic>& traffic, const Until& until);
  bool is_local(uint32_t rank) const { return setup_.topology->same_process(rank, setup_.rank); }
  // Runs what may wait for the whole device; `idle` waits until nothing is pending there.
  void synchronise(const std::function<void()>& idle, const std::function<void()>& body);
  // The same without waiting for long: false where something stays pending.
  bool synchronise_soon(const std::function<void()>& body);
  void release_memory();
  void release_events();
  std::function<StreamWay(uint32_t peer, bool outgoing)> ways(bool in_windows) const;
  void require_scratch(uint64_t bytes, const std::function<void()>& idle);
  void replace_scratch(uint64_t bytes);
  void begin_operation(const StreamCall& call, StreamPart& part);
  void begin(const StreamCall& call, StreamPlan& plan);
  bool fill(const Turn& turn) const;
  bool gather(const Turn& turn) const;
  void require_peers(const StreamCall& call, uint64_t place);
  void leave(const Failure& why);
  Failure stood_still(const StreamCall& call) const;
  std::optional<uint32_t> end_elsewhere(uint32_t stream) const;
  void be_stuck(const std::string& why);
  // Has the device come to the end of all operations that it was given?
  bool is_done() const { return !counter_ || counter_->reached(given_); }
  Failure device_failure(tutti_status status) const;

  Setup setup_;
  DeviceGate::User gate_;
  std::vector<uint32_t> local_;  // ranks of this process
  std::shared_ptr<LocalRendezvous> rendezvous_;
  // Forms are by whether the rank's call is in place, in which ranks may differ in one call. All but those in windows
  // use the same channels. Of each there is one; where blocks are unequal one for each of the last tables, newest
  // first.
  struct Plans {
    Forms forms[2];
    bool open = false;  // all of the channels are there
    uint64_t last_used = 0;
    struct InWindows {
      std::unique_ptr<StreamPlan> form;
      bool settled = false;
      std::string refusal;  // settled: why there is no form
    } in_windows[2];
  };
  // Places of the call in windows, where all of its deciding buffers lie in windows that are used in place.
  WindowPlaces find_places(const StreamCall& call, const Plan& plan);
  void settle_all(const StreamCall& call, Plans& plans, const Gather& gather, const Until& until);
  // The application wants windows to be read in place. Each reason is told once in a row.
  void tell_why_not_in_place(const StreamCall& call, const std::string& why);
  // By shapes as all ranks have them: so all drop the same plans at the same call, and what one can record all can.
  std::unordered_map<Shape, Plans, ShapeHash> plans_;
  uint64_t plan_clock_ = 0;
  std::unique_ptr<PeerMemory> memory_;
  Channels channels_;
  std::set<std::string> told_;  // why bytes go through host memory
  std::unique_ptr<Windows> windows_;
  WindowPlaces places_;       // of the call under way
  std::string not_in_place_;  // why windows were not used in place, as the log has it
  bool ended_ = false, keeps_all_ = false;
  void* scratch_ = nullptr;
  uint64_t scratch_bytes_ = 0;
  bool recorded_ = false;
  bool scratch_captured_ = false;    // a graph has its address
  std::vector<void*> captured_;      // former scratch that graphs have addresses of
  std::vector<tutti_event*> spare_;  // for use within an issue
  // Since the first call. All operations come one after the other, also those in different streams.
  std::unique_ptr<StreamCounter> counter_, queue_;
  uint32_t given_ = 0;  // what the newest operation that the device was given stores last
  DeviceProbe probe_;
  std::vector<Operation> operations_;  // pending, oldest first
  uint64_t number_ = 0;                // of the newest operation
  uint32_t last_stream_ = 0;           // number of the stream that it is in
  uint64_t queued_ = 0;                // sum of operations' commands
  StreamPart* part_ = nullptr;         // launch_ or exchange_: which of them is begun
  StreamLaunch launch_;                // of the call being issued
  std::vector<OpenWay> ways_;          // of its plan's traffic
  StreamExchange exchange_;
  std::vector<const char*> carriers_;       // while they are told
  StreamWriter writer_;                     // for exchanges: collectives are written at the rendezvous
  std::map<uint32_t, Failure> unreadable_;  // devices of this process's ranks that this rank's cannot read
  Operation begun_;
  bool begins_ = false;  // begun_ is neither issued nor failed
  std::string opening_;  // for what channels are being opened, in words; "": none are
  const tutti_executor_caps fusing_;  // the limits of one launch; zeros: TUTTI_FUSED=0
  bool moved_ = false;
  bool stuck_ = false;           // nothing tells when the device has come to the end of a failed call
  std::string untold_;           // why, until an error has said so: "; ..."
  bool left_behind_ = false;     // a call was given up while another rank's thread put it into the stream
  bool events_are_out_ = false;  // streams of other ranks may still wait for events of this one
};

}  // namespace tutti::core
