// SPDX-License-Identifier: Apache-2.0
//
// A whole transport, to copy. Ranks are threads of one process and write into each other's boxes: a SEND is complete
// once its message is there, if its lane has room. A RECV waits at the receiver, whose progress takes messages out of
// the box. So a lane without a RECV holds up no other lane, and what was sent outlives its sender.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tutti/sdk/transport.hpp>
#include <vector>

namespace {
constexpr uint64_t fragment_bytes = 1 << 18, inline_bytes = 64, host_memory = 1u << TUTTI_MEMORY_HOST;
constexpr uint32_t depth = 16, control_lane = UINT32_MAX;  // depth: messages of a lane in a box, RECVs posted to it
using Message = std::pair<uint32_t, std::string>;          // its lane and its bytes
struct Box {  // what one rank wrote for another that the other has not taken yet, oldest first
  std::deque<Message> messages;
  bool ended = false;  // the writer is gone
};
struct Room {  // the ranks of one communicator
  const std::string id = "template/" + std::to_string(uint64_t{std::random_device()()} << 32 | std::random_device()());
  std::map<std::pair<uint32_t, uint32_t>, Box> boxes;  // by writer and reader
};
std::mutex mutex;                               // held wherever rooms and boxes are touched
std::map<uint64_t, std::weak_ptr<Room>> rooms;  // by communicator
[[noreturn]] void refuse(tutti_status status, uint32_t peer, const std::string& why) {
  throw tutti::sdk::Error(status, "template: rank " + std::to_string(peer) + ": " + why);
}

struct Template {
  static constexpr const char* name = "template";
  static constexpr const char* summary = "messages between threads of one process: a transport to copy";
  static void query(tutti_transport_caps& caps) {
    caps = {sizeof caps, TUTTI_REACH_PROCESS, host_memory, inline_bytes, fragment_bytes, depth, 0, 1000, 5'000'000'000};
  }
  using Receives = std::vector<std::deque<tutti_transfer>>;  // by lane
  using Event = std::pair<tutti_completion, std::string>;    // the text is what the record's data will point to
  struct Domain {};                                          // no memory to register, nothing that endpoints share
  struct Link {
    std::deque<Event>& events;  // the endpoint's
    const uint32_t peer;
    Box &out, &in;
    Receives receives;
    tutti_status failed = TUTTI_OK;
    void tell(uint32_t kind, tutti_status status, uint64_t cookie, uint64_t bytes, std::string text = "") {
      events.push_back({{kind, status, peer, 0, cookie, bytes, nullptr, 0}, std::move(text)});
    }
    bool send(uint32_t lane, const void* data, uint64_t bytes) {  // false: no room now
      if (failed || in.ended) refuse(failed ? failed : TUTTI_PEER_FAILED, peer, "is lost or was given up");
      if (std::ranges::count(out.messages, lane, &Message::first) == depth) return false;
      return out.messages.push_back({lane, {static_cast<const char*>(data), bytes}}), true;
    }
    bool send_control(std::string_view message) {
      const std::lock_guard lock(mutex);
      if (message.size() <= TUTTI_CONTROL_BYTES) return send(control_lane, message.data(), message.size());
      refuse(TUTTI_INVALID_ARGUMENT, peer, "a control message of " + std::to_string(message.size()) + " bytes");
    }
    bool post(const tutti_transfer& t) {  // false: no room now
      const bool sending = t.kind == TUTTI_TRANSFER_SEND, quiet = t.flags == TUTTI_TRANSFER_INLINE;
      if (t.flags & ~TUTTI_TRANSFER_INLINE) refuse(TUTTI_NOT_SUPPORTED, peer, "flags " + std::to_string(t.flags));
      if (t.lane >= receives.size() || (!sending && t.kind != TUTTI_TRANSFER_RECV) || t.bytes > fragment_bytes ||
          t.region || (quiet && (!sending || t.bytes > inline_bytes)))
        refuse(TUTTI_INVALID_ARGUMENT, peer,
               std::to_string(t.bytes) + " bytes on lane " + std::to_string(t.lane) +
                   ": more than there are, or unknown kind or region");
      if (failed) refuse(failed, peer, "is lost or was given up");
      if (sending ? !send(t.lane, t.data, t.bytes) : receives[t.lane].size() == depth) return false;
      if (!sending) receives[t.lane].push_back(t);
      if (sending && !quiet) tell(TUTTI_COMPLETION_TRANSFER, TUTTI_OK, t.cookie, t.bytes);
      return true;
    }
    bool take(const Message& message) {  // false: there is no RECV for it yet
      const auto& [lane, bytes] = message;
      if (lane == control_lane) return tell(TUTTI_COMPLETION_CONTROL, TUTTI_OK, 0, bytes.size(), bytes), true;
      if (lane >= receives.size() || receives[lane].empty()) return false;
      const tutti_transfer& t = receives[lane].front();
      const tutti_status status = t.bytes == bytes.size() ? TUTTI_OK : TUTTI_MISMATCH;
      if (status == TUTTI_OK) bytes.copy(static_cast<char*>(t.data), t.bytes);
      tell(TUTTI_COMPLETION_TRANSFER, status, t.cookie, t.bytes);
      return receives[lane].pop_front(), true;
    }
    void end(tutti_status status) {  // takes nothing any more, and lets the peer know
      for (auto& lane : receives)
        for (; !lane.empty(); lane.pop_front())
          tell(TUTTI_COMPLETION_TRANSFER, status, lane.front().cookie, lane.front().bytes);
      failed = status, out.ended = true, in.messages.clear();
    }
    void advance() {
      if (!failed) std::erase_if(in.messages, [this](const Message& m) { return take(m); });  // goes from front to back
      const bool in_vain = std::ranges::any_of(receives, [](auto& lane) { return !lane.empty(); });
      if (failed || !in.ended || !(in.messages.empty() || in_vain)) return;
      end(TUTTI_PEER_FAILED);
      tell(TUTTI_COMPLETION_PEER_FAILED, failed, 0, 0, "template: rank " + std::to_string(peer) + " left this rank");
    }
  };
  struct Endpoint {
    const uint32_t rank;
    std::shared_ptr<Room> room;
    std::deque<Event> events, shown;  // shown: what the last progress wrote, whose texts live until the next
    std::deque<Link> links;           // by peer
    Endpoint(Domain&, const tutti_endpoint_config& c) : rank(c.rank) {
      const std::lock_guard lock(mutex);
      std::erase_if(rooms, [](const auto& entry) { return entry.second.expired(); });
      room = rooms[c.communicator_id].lock();
      if (!room) rooms[c.communicator_id] = room = std::make_shared<Room>();
      for (uint32_t peer = 0; peer < c.nranks; ++peer)
        links.push_back({events, peer, room->boxes[{rank, peer}], room->boxes[{peer, rank}], Receives(c.lanes)});
    }
    ~Endpoint() { abort(); }
    std::string address() { return room->id + "/" + std::to_string(rank); }
    Link* connect(uint32_t peer, std::string_view address) {
      if (peer < links.size() && address == room->id + "/" + std::to_string(peer)) return &links[peer];
      refuse(TUTTI_INVALID_ARGUMENT, peer, "is not in this process and communicator: use another transport");
    }
    uint32_t post(std::span<const tutti_transfer> transfers) {
      const std::lock_guard lock(mutex);
      uint32_t n = 0;
      try {
        while (n < transfers.size() && tutti::sdk::from_handle<Link>(transfers[n].link).post(transfers[n])) ++n;
      } catch (const tutti::sdk::Error&) {
        if (n == 0) throw;  // else those before it are taken: asked again, it is the first
      }
      return n;
    }
    uint32_t progress(std::span<tutti_completion> records) {
      const std::lock_guard lock(mutex);
      if (events.empty())  // none pile up
        for (Link& link : links) link.advance();
      for (shown.clear(); shown.size() < records.size() && !events.empty(); events.pop_front()) {
        auto& [record, text] = shown.emplace_back(std::move(events.front()));
        if (record.kind != TUTTI_COMPLETION_TRANSFER) record.data = text.c_str();
        records[shown.size() - 1] = record;
      }
      return static_cast<uint32_t>(shown.size());
    }
    void fail_peer(uint32_t peer) {
      const std::lock_guard lock(mutex);
      if (!links.at(peer).failed) links[peer].end(TUTTI_PEER_FAILED);
    }
    void abort() {
      const std::lock_guard lock(mutex);
      for (Link& link : links) link.end(TUTTI_ABORTED);
    }
  };
};
const tutti_transport transport = tutti::sdk::make_transport<Template>();
}  // namespace
TUTTI_PLUGIN(template, "template", "0.1.0", "Tutti", "Apache-2.0", Template::summary, {TUTTI_TRANSPORT_ID, &transport});
