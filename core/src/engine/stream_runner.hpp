// SPDX-License-Identifier: Apache-2.0
//
// A communicator's collectives on device memory: plans for streams, their issue, the channels to other processes, and
// the operations that the device has not finished. The owner advances it like everything else of the communicator.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/channel_opening.hpp"
#include "engine/direct_memory.hpp"
#include "engine/selector.hpp"
#include "engine/stream_meeting.hpp"
#include "engine/stream_plan.hpp"
#include "engine/stream_transfer.hpp"

struct tutti_request;

namespace tutti::core {

// Where a call's buffers lie.
struct DeviceMemory {
  DeviceTables tables;
  uint32_t device = 0;
};

// The device that holds an address, or one without tables: host memory. Throws Failure for memory that was freed.
DeviceMemory find_device(const void* address);
// The only device there is, as that of a stream, for calls without buffers.
DeviceMemory find_device_of_stream(void* stream);
// Are there devices in this process? Looks for plugins once; cheap.
bool have_devices();

class StreamRunner {
 public:
  struct Place {
    uint32_t rank = 0;
    const Topology* topology = nullptr;
    Selector* selector = nullptr;
    std::vector<Link>* links = nullptr;
    uint32_t first_lane = 0;  // of the transport, for channels
    uint32_t lanes = 0;       // of collectives; sends and receives use the one behind them
    uint64_t communicator = 0;
    MemoryExchange* exchange = nullptr;  // nullptr: ranks of other processes are reached over transports
    bool in_host = false;                // what transports carry goes through host memory
    uint64_t scratch_limit = 0;
    std::shared_ptr<DirectBoard> board;  // nullptr: buffers are not read directly, for this reason
    std::string no_board;
    std::function<bool(Link&)> connect;
  };
  explicit StreamRunner(Place place);
  // What devices still use is not freed.
  ~StreamRunner();

  // Does this rank exchange bytes with ranks of other processes, so that somebody has to advance it meanwhile?
  bool has_channels() const { return local_.size() < place_.topology->nranks(); }

  // A call, up to where the work is in the stream.
  struct Call {
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
  // Can the call's stream take it? Returns whether it is being captured; throws Failure, and nothing was issued.
  bool require_stream(const Call& call) const;
  // Can a collective be recorded for replays? Throws Failure, and nothing was issued.
  void require_recordable(const Call& call) const;
  // This rank's device is the one of its first call. Throws Failure for another.
  void require_device(const DeviceMemory& where, const std::function<void()>& idle);
  // The plan of a call, made if need be. `idle` is called until nothing is pending where memory has to be allocated.
  StreamPlan& find_plan(const Call& call, const std::function<void()>& idle);
  using Until = std::function<void(const std::function<bool()>&)>;
  // In the first collective: who else is on this rank's device? All ranks come to the call.
  void take_census(const Call& call, const Until& until);
  // Opens the channels that the plan lacks; both ends have to come to the call. `until` waits until its argument says
  // true, or throws.
  void open_channels(const Call& call, StreamPlan& plan, const Until& until);
  // The form of the call's plan that is to be issued: `plan`, or its direct form where all ranks agree on that; for
  // large calls they meet.
  StreamPlan& settle_form(const Call& call, StreamPlan& plan, const Until& until);
  // Unmaps what other processes take back, where that is possible now.
  void heed() {
    if (direct_ && operations_.empty() && !begins_ && !stuck_) direct_->heed();
  }
  // No call will follow. Whoever takes back memory meanwhile need not wait.
  void end() {
    if (direct_ && operations_.empty() && !stuck_) direct_->close();
  }

  // A group of sends and receives (stream_transfer.hpp) instead of a collective: none is empty, and all are matched.
  // Opens the channels that it lacks, both ways to each peer. Returns what carries its bytes: "mapped+tcp".
  std::string open_channels(const Call& call, const std::vector<Transfer>& transfers, const Until& until);
  // Puts the group into the stream; then issued() or failed().
  void put(const Call& call, const std::vector<Transfer>& transfers, const std::function<void()>& meanwhile);
  // What the call under way waits for besides the device, in words; "": nothing.
  const std::string& waits_for() const { return exchange_.waits_for; }
  const std::string& begun_text() const { return begun_.text; }

  // What mapped channels have carried, or are about to, and what was read directly, by peer.
  struct Traffic {
    const char* carrier;
    uint32_t peer;
    uint64_t sent = 0, received = 0;
  };
  std::vector<Traffic> traffic() const;
  // Begins the call's issue. passed() tells when the work is in the stream. The rank that comes last puts the work of
  // all into their streams and calls `meanwhile` when it has to wait for the device; what that throws ends the issue.
  uint64_t begin(const Call& call, StreamPlan& plan, const std::function<void()>& meanwhile);
  bool passed(uint64_t turn) { return meeting_->passed(turn, std::chrono::microseconds(has_channels() ? 20 : 1000)); }
  void leave(const Failure& why) { meeting_->leave(place_.rank, why); }
  std::string missing() { return meeting_->missing(); }
  // Did the device take the begun call as one launch?
  bool fused() const { return launch_.fused; }
  // Is the begun call being recorded for later replays? Then nothing of it runs now.
  bool captures() const { return !begun_.end; }
  // The begun call has been issued: it is pending from now on, and the request stands for it until complete.
  void issued(tutti_request* request);
  // Its issue has failed, perhaps half-way: what is in the stream is pending, without a request.
  void failed();

  bool pending() const { return !operations_.empty() || begins_ || !opening_.empty(); }
  size_t operations() const { return operations_.size(); }
  // Is there room for another operation in the device's queue?
  bool has_room() const;
  // Has the device come to the begun call's commands? Work of the application may precede them.
  bool reached() const { return !begun_.begin || poll(begun_, begun_.begin) != TUTTI_AGAIN; }
  // Moves channels and calls `done` for each request whose work the device has finished. Throws Failure.
  bool advance(const std::function<void(tutti_request*)>& done);
  // Has the device not come to the oldest operation yet? Work of the application in the same stream may take as long as
  // it likes.
  bool held_up() const {
    return !operations_.empty() && poll(operations_.front(), operations_.front().begin) == TUTTI_AGAIN;
  }
  // Does the oldest operation that the device has begun stand still for longer than its timeout?
  bool overdue(uint64_t now_ns);
  // Of the oldest operation.
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
  // Ends the bookkeeping of all operations, and tells their requests.
  void fail_all(const std::function<void(tutti_request*)>& done);

 private:
  struct Operation {
    tutti_request* request = nullptr;
    DeviceMemory where;
    void* stream = nullptr;
    tutti_mark* begin = nullptr;
    tutti_mark* end = nullptr;
    // What it sends is on its way when so many fragments of a channel are: the stream only fills slots.
    std::vector<std::pair<const StreamChannel*, uint64_t>> sends;
    uint64_t commands = 0;  // that may be in the device's queue
    uint64_t timeout_ns = 0;
    std::optional<uint64_t> sequence;  // of a collective
    uint64_t last_progress_ns = 0;
    std::string text;
  };

  StreamChannel& channel(const StreamTraffic& traffic) const {
    return *channels_.at({traffic.peer, traffic.lane, traffic.outgoing});
  }
  void require_mapped(const StreamPlan& plan) const;
  void open_all(const Call& call, StreamPlan& plan, const Until& until);
  std::unique_ptr<StreamPlan> bind(const Call& call, bool direct) const;
  void tell_why_not_direct(const Call& call, const StreamPlan& plan, const std::string& why);
  void wait_for_peers(const DeviceMemory& where, const std::string& what, const Until& until,
                      const std::function<bool()>& enough);
  bool may_fuse(const Call& call, const StreamPlan& plan) const;
  // Opens what is missing of these ways; returns what carries them, "mapped+tcp".
  std::string open_ways(const DeviceMemory& where, const std::string& what, const std::vector<StreamTraffic>& traffic,
                        const Until& until);
  void open_missing(const DeviceMemory& where, const std::string& what, const std::vector<StreamTraffic>& traffic,
                    const Until& until);
  bool is_local(uint32_t rank) const { return place_.topology->same_process(rank, place_.rank); }
  void close_channels();
  StreamWay way(uint32_t from, uint32_t to, bool direct) const;
  void require_scratch(const DeviceMemory& where, uint64_t bytes, const std::function<void()>& idle);
  tutti_mark* take_mark(const DeviceMemory& where);
  tutti_status poll(const Operation& operation, tutti_mark* mark) const;
  void retire(Operation& operation);

  Place place_;
  std::vector<uint32_t> local_;  // ranks of this process
  std::shared_ptr<StreamMeeting> meeting_;
  std::shared_ptr<StreamBoard> board_;
  std::unordered_map<Shape, std::unique_ptr<StreamPlan>, ShapeHash> plans_;
  Channels channels_;
  EarlyNotices early_notices_;
  std::set<std::string> told_;            // why bytes go through host memory
  DeviceMemory home_;                     // of all calls so far: scratch and marks belong to it
  std::unique_ptr<DirectMemory> direct_;  // nullptr: there is no board
  std::string not_direct_;                // why a call was not direct, as the log has it
  bool prepared_ = false;
  void* scratch_ = nullptr;
  uint64_t scratch_bytes_ = 0;
  bool recorded_ = false;
  bool scratch_captured_ = false;   // a graph has its address
  std::vector<void*> captured_;     // former scratch that graphs have addresses of
  std::vector<tutti_mark*> spare_;  // for use within an issue
  std::vector<tutti_mark*> free_;   // for operations' ends
  std::deque<Operation> operations_;
  tutti_mark* last_end_ = nullptr;  // of the newest operation
  void* last_stream_ = nullptr;
  uint64_t queued_ = 0;  // sum of operations' commands
  StreamLaunch launch_;  // of the call being issued
  StreamExchange exchange_;
  std::set<uint32_t> readable_;  // devices, by this rank's
  Operation begun_;
  bool begins_ = false;        // begun_ is neither issued nor failed
  std::string opening_;        // for what channels are being opened, in words; "": none are
  std::optional<bool> alone_;  // on the device, as far as the census knows; none taken yet
  const bool fuses_;           // TUTTI_FUSED
  bool moved_ = false;
  bool stuck_ = false;  // the device did not come to an end after a failure
};

}  // namespace tutti::core
