// SPDX-License-Identifier: Apache-2.0
//
// A communicator's collectives on device memory: plans for streams, their issue, the channels to other processes, and
// the operations that the device has not finished. The owner advances it like everything else of the communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "choose/selector.hpp"
#include "fabric/devices.hpp"
#include "stream/channel_opening.hpp"
#include "stream/device_gate.hpp"
#include "stream/local_rendezvous.hpp"
#include "stream/stream_plan.hpp"
#include "stream/stream_transfer.hpp"
#include "stream/windows.hpp"

struct tutti_request;

namespace tutti::core {

// A call, up to where the work is in the stream.
struct StreamCall {
  Shape shape;
  const void* in = nullptr;
  void* out = nullptr;
  DeviceMemory where;
  void* stream = nullptr;
  uint64_t timeout_ns = 0;
  uint64_t sequence = 0;  // among the communicator's collectives
  bool wants_request = false;
  bool capturing = false;  // the stream records what it is given
};

class StreamRunner {
 public:
  struct Setup {
    uint32_t rank = 0;
    DeviceMemory device;  // the rank's
    const Topology* topology = nullptr;
    Selector* selector = nullptr;
    std::vector<Link>* links = nullptr;
    uint32_t first_lane = 0;  // of the transport, for channels
    uint32_t lanes = 0;       // of collectives; sends and receives use the one behind them
    uint64_t communicator = 0;
    std::string name;  // of the communicator, for messages
    std::vector<Link>* mapped_links = nullptr;
    bool named = false;    // the application has named the transports
    bool in_host = false;  // what transports carry goes through host memory
    uint64_t scratch_limit = 0;
    const WindowList* windows = nullptr;  // that are registered
    std::function<bool(Link&)> connect;
    std::function<void()> progress;  // of the transports, where the communicator has ended
  };
  explicit StreamRunner(Setup setup);
  // Memory that devices still use is not freed.
  ~StreamRunner();

  // Does this rank exchange bytes with ranks of other processes, so that somebody has to advance it meanwhile?
  bool has_channels() const { return local_.size() < setup_.topology->nranks(); }

  // Can the call's stream take it? Returns whether it is being captured; throws Failure, and nothing was issued.
  bool require_stream(const StreamCall& call) const;
  // Can a collective be recorded for replays? Throws Failure, and nothing was issued.
  void require_recordable(const StreamCall& call);
  // Has nobody of the process anything pending on the device, so that a call may wait for the whole device?
  bool may_synchronise() { return gate_.is_idle(); }
  // The ranks of communicators that have, for messages.
  std::string pending_users() { return gate_.pending(); }
  // Has the device load what it needs for commands; before its first call.
  void prepare(const std::function<void()>& idle);
  // The plan of a call, made if need be. `idle` is called until nothing is pending where memory has to be allocated.
  StreamPlan& find_plan(const StreamCall& call, const std::function<void()>& idle);
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
  std::string share(tutti_window& window, const Until& until);
  void drop(tutti_window& window, const Until& until);
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
  void open_channels(const StreamCall& call, const std::vector<Transfer>& transfers, const Until& until);
  // Appends what carries its bytes to a text: "+mapped+tcp".
  void add_carriers(const std::vector<Transfer>& transfers, std::string& text);
  // Puts the group into the stream; then issued() or failed().
  void put(const StreamCall& call, const std::vector<Transfer>& transfers, const std::function<void()>& meanwhile);
  // The peer that the call under way waits for besides the device, as text; "": none.
  std::string waits_for() const { return exchange_.waits_for(); }
  bool awaits_peer() const { return exchange_.awaits != StreamExchange::Awaits::nothing; }
  std::string begun_text() const { return begun_.text(); }

  // Bytes that mapped channels have carried, or are about to, and that were read in place, by peer.
  struct Traffic {
    const char* carrier;
    uint32_t peer;
    uint64_t sent = 0, received = 0;
  };
  std::vector<Traffic> traffic() const;
  // Begins the call's issue. passed() tells when the work is in the stream. The rank that comes last puts the work of
  // all into their streams and calls `meanwhile` when it has to wait for the device; what that throws ends the issue.
  uint64_t begin(const StreamCall& call, StreamPlan& plan, const std::function<void()>& meanwhile);
  bool passed(uint64_t turn) {
    return rendezvous_->passed(turn, std::chrono::microseconds(has_channels() ? 20 : 1000));
  }
  // Gives up the begun call; waits for the rank whose thread is putting it into the stream, but not for ever.
  void leave(const Failure& why);
  std::string missing() { return rendezvous_->missing(); }
  std::optional<uint32_t> silent_issuer(uint64_t ns) { return rendezvous_->issuer(std::chrono::nanoseconds(ns)); }
  // Was a call given up whose work another rank's thread is still putting into the stream? It uses what this one has.
  bool is_left_behind() { return left_behind_ && rendezvous_->issuer(); }
  // Did the device take the begun call as one launch?
  bool fused() const { return launch_.fused; }
  // Is the begun call being recorded for later replays? Then nothing of it runs now.
  bool captures() const { return !begun_.end; }
  // The begun call has been issued: it is pending from now on, and the request stands for it until complete.
  void issued(tutti_request* request);
  // Its issue has failed, perhaps before it began, perhaps half-way: what is in the stream is pending, without a
  // request.
  void failed();

  bool pending() const { return !operations_.empty() || begins_ || !opening_.empty(); }
  size_t operations() const { return operations_.size(); }
  // Is there room for another operation in the device's queue?
  bool has_room() const;
  // Has the device come to the begun call's commands? Work of the application may precede them.
  bool reached() const { return !begun_.begin || poll(begun_, begun_.begin) != TUTTI_AGAIN; }
  // Moves channels and calls `done` for each request whose work the device has finished, oldest first. False: the
  // request waits for something else, and `done` is called again. Throws Failure.
  bool advance(const std::function<bool(tutti_request*)>& done);
  // The request of the oldest operation that is pending, or nullptr.
  const tutti_request* oldest() const { return operations_.empty() ? nullptr : operations_.front().request; }
  // Has the device not come to the oldest operation yet? Work of the application in the same stream may take as long as
  // it likes.
  bool held_up() const {
    return !operations_.empty() && poll(operations_.front(), operations_.front().begin) == TUTTI_AGAIN;
  }
  // Does the oldest operation that the device has begun stand still for longer than its timeout?
  bool overdue(uint64_t now_ns);
  // The sequence and the timeout of the oldest operation.
  std::optional<uint64_t> sequence() const { return operations_.front().sequence; }
  uint64_t timeout_ns() const { return operations_.front().timeout_ns; }
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
    tutti_request* request = nullptr;
    DeviceMemory where;
    void* stream = nullptr;
    tutti_event* begin = nullptr;
    tutti_event* end = nullptr;
    // Its sends are on their way when so many fragments of a channel are: the stream only fills slots.
    std::vector<std::pair<const StreamChannel*, uint64_t>> sends;
    uint64_t commands = 0;  // that may be in the device's queue
    bool counted = false;   // by the device's gate
    uint64_t timeout_ns = 0;
    std::optional<uint64_t> sequence;  // of a collective
    uint64_t last_progress_ns = 0;
    // A collective of this shape, or so many transfers, the first of which has these facts.
    Shape shape;
    uint64_t transfers = 0, bytes = 0;
    bool sending = false;
    uint32_t peer = 0, tag = 0;
    std::string text() const;
    // As new, but for the memory of `sends`.
    void clear();
  };
  // A call's way into or out of a slot.
  struct OpenWay {
    StreamChannel* channel = nullptr;
    uint64_t first = 0;  // the number of the operation's first fragment among the channel's
  };

  StreamChannel& channel(const StreamTraffic& traffic) const {
    return *channels_.at({traffic.peer, traffic.lane, traffic.outgoing});
  }
  // The channel of sends and receives.
  StreamChannel& channel(uint32_t peer, bool outgoing) const { return *channels_.at({peer, setup_.lanes, outgoing}); }
  bool is_far(const Transfer& transfer) const { return transfer.bytes && !is_local(transfer.peer); }
  void expect_ways(size_t ways);
  StreamSlot slot_of(uint32_t way, uint64_t number) const;
  void require_mapped(const StreamPlan& plan) const;
  void copy_to_output(const StreamCall& call, const StreamPlan& plan);
  void open_all(const StreamCall& call, StreamPlan& plan, const Until& until);
  Schedule schedule_with_levels(const tutti_algorithm& algorithm, const Shape& shape, uint64_t& hash) const;
  std::unique_ptr<StreamPlan> bind(const Shape& shape, bool in_windows) const;
  void wait_for_peers(const DeviceMemory& where, const std::string& what, const Until& until,
                      const std::function<bool()>& enough);
  bool may_fuse(const StreamCall& call, const StreamPlan& plan) const;
  // Opens what is missing of these ways; returns what carries them, "mapped+tcp".
  std::string open_ways(const DeviceMemory& where, const std::string& what, const std::vector<StreamTraffic>& traffic,
                        const Until& until);
  void open_missing(const DeviceMemory& where, const std::string& what, const std::vector<StreamTraffic>& traffic,
                    const Until& until);
  bool is_local(uint32_t rank) const { return setup_.topology->same_process(rank, setup_.rank); }
  // Runs what may wait for the whole device; `idle` waits until nothing is pending there.
  void synchronise(const std::function<void()>& idle, const std::function<void()>& body);
  // The same without waiting for long: false where something stays pending.
  bool synchronise_soon(const std::function<void()>& body);
  void release_memory();
  void release_events();
  StreamWay way(uint32_t from, uint32_t to, bool in_windows) const;
  void require_scratch(const DeviceMemory& where, uint64_t bytes, const std::function<void()>& idle);
  void replace_scratch(const DeviceMemory& where, uint64_t bytes);
  tutti_event* take_event(const DeviceMemory& where);
  tutti_status poll(const Operation& operation, tutti_event* event) const;
  void retire(Operation& operation);
  void begin_operation(const StreamCall& call);
  void add_begun();
  void be_stuck(const std::string& why);
  // May the device still touch the memory of calls that have failed?
  bool is_in_use();

  Setup setup_;
  DeviceGate::User gate_;
  std::vector<uint32_t> local_;  // ranks of this process
  std::shared_ptr<LocalRendezvous> rendezvous_;
  std::shared_ptr<Handovers> handovers_;
  // Forms are by whether the rank's call is in place, in which ranks may differ in one call. All but those in windows
  // use the same channels.
  struct Plans {
    std::unique_ptr<StreamPlan> forms[2];
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
  Plans::InWindows& settle(const StreamCall& call, Plans& plans, const Gather& gather, const Until& until);
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
  bool prepared_ = false;
  void* scratch_ = nullptr;
  uint64_t scratch_bytes_ = 0;
  bool recorded_ = false;
  bool scratch_captured_ = false;    // a graph has its address
  std::vector<void*> captured_;      // former scratch that graphs have addresses of
  std::vector<tutti_event*> spare_;  // for use within an issue
  std::vector<tutti_event*> free_;   // for operations' ends
  size_t events_ = 0;                // made for them
  size_t most_ways_ = 0;             // of any collective so far
  std::list<Operation> operations_;  // pending, oldest first
  std::list<Operation> idle_;        // nodes for later ones
  tutti_event* last_end_ = nullptr;  // of the newest operation
  void* last_stream_ = nullptr;
  uint64_t queued_ = 0;        // sum of operations' commands
  StreamLaunch launch_;        // of the call being issued
  std::vector<OpenWay> ways_;  // of its plan's traffic
  StreamExchange exchange_;
  std::vector<std::string_view> carriers_;  // while they are told
  StreamWriter writer_;                     // for exchanges: collectives are written at the rendezvous
  std::set<uint32_t> readable_;             // devices, by this rank's
  Operation begun_;
  bool begins_ = false;  // begun_ is neither issued nor failed
  std::string opening_;  // for what channels are being opened, in words; "": none are
  const bool fuses_;     // TUTTI_FUSED
  bool moved_ = false;
  std::vector<Operation> unfinished_;  // failed, and the device had not come to their end
  bool stuck_ = false;                 // nothing tells when the device has come to the end of a failed call
  std::string untold_;                 // why, until an error has said so: "; ..."
  bool left_behind_ = false;           // a call was given up while another rank's thread put it into the stream
  bool events_are_out_ = false;        // streams of other ranks may still wait for events of this one
};

}  // namespace tutti::core
