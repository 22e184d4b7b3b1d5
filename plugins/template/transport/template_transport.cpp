// SPDX-License-Identifier: Apache-2.0
//
// A whole transport, to copy. The ranks are threads of one process. A rank owns one box for each peer, and the peer
// puts its messages into that box.
//   connect  each end tells the token of its box in a pair message; the other end finds the box by the token
//   SEND     copies its message into the peer's box and is then complete; it is refused while the lane has no room
//   RECV     waits at the receiver, whose progress takes messages out of its own box
// Every lane has room for `depth` messages of its own, so no lane can hold up another.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tutti/sdk/endpoint.hpp>
#include <tutti/sdk/transport.hpp>
#include <utility>
#include <vector>

namespace {

constexpr const char* transport_name = "template";
constexpr uint64_t fragment_bytes = 1 << 18, inline_bytes = 64;
constexpr uint32_t control_bytes = 256;
constexpr uint32_t depth = 16;                 // of each lane: messages in a box, and RECVs that wait
constexpr uint32_t control_lane = UINT32_MAX;  // control messages use a lane of their own

[[noreturn]] void refuse(tutti_status status, uint32_t peer, const std::string& why) {
  throw tutti::sdk::Error(status, std::string(transport_name) + ": rank " + std::to_string(peer) + ": " + why);
}
uint64_t random_number() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}
uint64_t this_process() {  // a number that no other process has, a forked child neither
  static const uint64_t drawn = random_number();
  return drawn ^ static_cast<uint64_t>(getpid());
}

struct Message {
  uint32_t lane;
  uint32_t mark;
  std::string bytes;
};
// The messages of one rank to another.
struct Box {
  std::deque<Message> messages;  // oldest first
  bool ended = false;            // the writer or the reader has gone
};
// The pair message of each end.
struct Hello {
  uint64_t process;  // this_process(): a box is reached only from there
  uint64_t token;    // of the box into which the receiver of this message may write
};

std::mutex mutex;                                     // held wherever boxes and tokens are touched
std::map<uint64_t, std::shared_ptr<Box>> told_boxes;  // by token, until the peer has taken the box

// A completion. A record of a control message or a loss points to `text`.
struct Event {
  tutti_completion record;
  std::string text;
};

// One rank's connection to one peer. Every function is called with the mutex held, unless it says otherwise.
struct Link {
  std::deque<Event>& events;  // the endpoint's
  const uint32_t peer;
  std::vector<std::deque<tutti_transfer>> receives;  // by lane: RECVs that wait
  std::shared_ptr<Box> in = std::make_shared<Box>();
  std::shared_ptr<Box> out = nullptr;  // the peer's box, once its Hello has come
  uint64_t token = 0;                  // of `in`, once this rank's Hello has been sent
  tutti_status failed = TUTTI_OK;      // not TUTTI_OK: this link takes nothing any more, because ...
  const char* why = "";
  bool untold = false;  // the record of a loss waits in `events`; until progress writes it there is no room

  void tell(uint32_t kind, tutti_status status, uint64_t cookie, uint64_t bytes, uint32_t mark = 0,
            std::string text = "") {
    events.push_back({{kind, status, peer, mark, cookie, bytes, nullptr, 0}, std::move(text)});
  }

  void check(const tutti_transfer& t) const {
    const auto no = [&](tutti_status status, const std::string& reason) {
      refuse(status, peer, tutti::sdk::describe(t, static_cast<uint32_t>(receives.size())) + ": " + reason);
    };
    const bool is_inline = t.flags & TUTTI_TRANSFER_INLINE, is_send = t.kind == TUTTI_TRANSFER_SEND;
    if (t.flags & ~TUTTI_TRANSFER_INLINE) no(TUTTI_NOT_SUPPORTED, "a flag is unknown");
    if (t.lane >= receives.size() || (!is_send && t.kind != TUTTI_TRANSFER_RECV) || t.region)
      no(TUTTI_INVALID_ARGUMENT, "the lane, the kind or the region is unknown");
    if (t.bytes > (is_inline ? inline_bytes : fragment_bytes) || (is_inline && !is_send))
      no(TUTTI_INVALID_ARGUMENT, "it is too long, or an INLINE RECV");
    if (failed && !untold) no(failed, why);
  }

  // Writes a message for the peer. False: no room now. After the peer has gone this goes on as if it had not: the
  // PEER_FAILED record of progress is the first that tells of a loss.
  bool put(uint32_t lane, uint32_t mark, const void* data, uint64_t bytes) {
    if (std::ranges::count(out->messages, lane, &Message::lane) == depth) return false;
    out->messages.push_back({lane, mark, std::string(static_cast<const char*>(data), bytes)});
    return true;
  }

  bool post(const tutti_transfer& t) {  // false: no room now
    check(t);
    if (untold) return false;
    if (t.kind == TUTTI_TRANSFER_RECV) {
      if (receives[t.lane].size() == depth) return false;
      receives[t.lane].push_back(t);
      return true;
    }
    if (!put(t.lane, t.mark, t.data, t.bytes)) return false;
    if (!(t.flags & TUTTI_TRANSFER_INLINE)) tell(TUTTI_COMPLETION_TRANSFER, TUTTI_OK, t.cookie, t.bytes);
    return true;
  }

  // Locks the mutex itself, because the core calls it. False: no room now.
  bool send_control(std::string_view message) {
    const std::lock_guard lock(mutex);
    if (failed && !untold) refuse(failed, peer, std::string("a control message: ") + why);
    if (message.size() > control_bytes)
      refuse(TUTTI_INVALID_ARGUMENT, peer, "a control message of " + std::to_string(message.size()) + " bytes");
    return !untold && put(control_lane, 0, message.data(), message.size());
  }

  // Gives one message to its RECV. False: there is no RECV for it yet.
  bool take(const Message& message) {
    const auto& [lane, mark, bytes] = message;
    if (lane == control_lane) {
      tell(TUTTI_COMPLETION_CONTROL, TUTTI_OK, 0, bytes.size(), 0, bytes);
      return true;
    }
    if (lane >= receives.size() || receives[lane].empty()) return false;
    const tutti_transfer t = receives[lane].front();
    receives[lane].pop_front();
    const bool fits = t.bytes == bytes.size() && t.mark == mark;
    if (fits) bytes.copy(static_cast<char*>(t.data), t.bytes);
    tell(TUTTI_COMPLETION_TRANSFER, fits ? TUTTI_OK : TUTTI_MISMATCH, t.cookie, bytes.size(), mark);
    return true;
  }

  // Takes nothing any more. Every RECV that waits completes with `status`.
  void end(tutti_status status, const char* reason) {
    for (auto& lane : receives)
      for (; !lane.empty(); lane.pop_front())
        tell(TUTTI_COMPLETION_TRANSFER, status, lane.front().cookie, lane.front().bytes);
    failed = status;
    why = reason;
    leave();
  }

  // The peer finds its boxes ended. Needs no memory.
  void leave() {
    in->ended = true;
    in->messages.clear();
    if (out) out->ended = true;
    told_boxes.erase(token);
  }

  void advance() {
    if (failed) return;
    std::erase_if(in->messages, [this](const Message& message) { return take(message); });  // from front to back
    // A peer that has gone is lost only if something is still expected of it.
    const bool receives_wait = std::ranges::any_of(receives, [](const auto& lane) { return !lane.empty(); });
    const auto is_send = [](const Message& message) { return message.lane != control_lane; };
    const bool sends_wait = out && std::ranges::any_of(out->messages, is_send);
    if (!(in->ended || (out && out->ended)) || !(receives_wait || sends_wait)) return;
    end(TUTTI_PEER_FAILED, "it has closed its endpoint or given this rank up");
    untold = true;
    tell(TUTTI_COMPLETION_PEER_FAILED, failed, 0, 0, 0,
         std::string(transport_name) + ": rank " + std::to_string(peer) + ": " + why);
  }
};

struct Domain {};  // no memory to register, nothing that endpoints share

struct Endpoint {
  tutti::sdk::PairSender pairs;
  std::deque<Event> events;
  std::deque<Event> shown;  // what the last progress wrote; its texts live until the next
  std::deque<Link> links;   // by peer

  Endpoint(Domain&, const tutti_endpoint_config& config) : pairs(config) {
    for (uint32_t peer = 0; peer < config.nranks; ++peer)
      links.push_back({events, peer, std::vector<std::deque<tutti_transfer>>(config.lanes)});
  }
  ~Endpoint() {
    const std::lock_guard lock(mutex);
    for (Link& link : links) link.leave();
  }

  Link* connect(uint32_t peer) {
    Link& link = links.at(peer);
    if (link.failed) refuse(link.failed, peer, link.why);
    say_hello(link);
    return link.out ? &link : nullptr;
  }

  // Tells the peer this rank's box, once.
  void say_hello(Link& link) {
    if (link.token != 0) return;
    link.token = random_number();
    {
      const std::lock_guard lock(mutex);
      told_boxes[link.token] = link.in;
    }
    const Hello hello{this_process(), link.token};
    pairs.send(link.peer, std::string(reinterpret_cast<const char*>(&hello), sizeof hello));
  }

  void receive_pair(uint32_t peer, std::string_view message) {
    Link& link = links.at(peer);
    if (link.failed) return;  // this rank has given the peer up
    if (message.size() != sizeof(Hello) || link.out)
      refuse(TUTTI_MISMATCH, peer,
             "a pair message of " + std::to_string(message.size()) + " bytes where one of " +
                 std::to_string(sizeof(Hello)) + " was expected. Do all ranks load the same version of this plugin?");
    Hello hello;
    std::memcpy(&hello, message.data(), sizeof hello);
    say_hello(link);  // the peer connects; it needs this rank's box whether this rank connects or not
    const std::lock_guard lock(mutex);
    if (hello.process != this_process())
      return link.end(TUTTI_SYSTEM, "it is in another process; this transport connects threads of one process");
    const auto told = told_boxes.extract(hello.token);
    link.out = told ? told.mapped() : std::make_shared<Box>();
    if (!told) link.in->ended = true;  // the peer has closed its endpoint in the meantime
  }

  bool post(const tutti_transfer& transfer) {
    const std::lock_guard lock(mutex);
    return tutti::sdk::from_handle<Link>(transfer.link).post(transfer);
  }

  uint32_t progress(std::span<tutti_completion> records) {
    pairs.flush();
    const std::lock_guard lock(mutex);
    if (events.empty())  // so that events do not pile up
      for (Link& link : links) link.advance();
    for (shown.clear(); shown.size() < records.size() && !events.empty(); events.pop_front()) {
      auto& [record, text] = shown.emplace_back(std::move(events.front()));
      if (record.kind == TUTTI_COMPLETION_PEER_FAILED) links[record.peer].untold = false;
      if (record.kind != TUTTI_COMPLETION_TRANSFER) record.data = text.c_str();
      records[shown.size() - 1] = record;
    }
    return static_cast<uint32_t>(shown.size());
  }

  void fail_peer(uint32_t peer) {
    const std::lock_guard lock(mutex);
    Link& link = links.at(peer);
    if (!link.failed) link.end(TUTTI_PEER_FAILED, "this rank has given it up");
    if (!std::exchange(link.untold, false)) return;  // else the caller knows of the loss before it was told
    std::erase_if(events, [&](const Event& event) {
      return event.record.kind == TUTTI_COMPLETION_PEER_FAILED && event.record.peer == peer;
    });
  }
  void abort() {
    const std::lock_guard lock(mutex);
    for (Link& link : links) {
      link.end(TUTTI_ABORTED, "this endpoint was aborted");
      link.untold = false;
    }
  }
};

struct Template {
  using Domain = ::Domain;
  using Endpoint = ::Endpoint;
  using Link = ::Link;
  static constexpr const char* name = transport_name;
  static constexpr const char* summary = "messages between threads of one process: a transport to copy";
  static void query(Domain&, tutti_transport_caps& caps) {
    caps.reach = TUTTI_REACH_PROCESS;
    caps.memory_kinds = 1u << TUTTI_MEMORY_HOST;
    caps.flags = TUTTI_TRANSPORT_MARKS;
    caps.inline_bytes = inline_bytes;
    caps.fragment_bytes = fragment_bytes;
    caps.receive_depth = depth;
    caps.control_bytes = control_bytes;
    caps.latency_ns = 1000;
    caps.bandwidth = 5'000'000'000;
  }
};
const tutti_transport transport = tutti::sdk::make_transport<Template>();

}  // namespace

TUTTI_PLUGIN(template, transport_name, "0.1.0", "Tutti", "Apache-2.0", Template::summary,
             {TUTTI_TRANSPORT_ID, &transport});
