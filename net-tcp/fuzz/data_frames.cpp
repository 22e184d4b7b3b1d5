// SPDX-License-Identifier: Apache-2.0
//
// A peer that has shown its token and then sends anything. The input is a script: what this rank posts, and
// what the peer's socket says, piece by piece. Every transfer ends, exactly once, with a status; what is received lies
// in its buffer; nothing else happens.
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <tutti/sdk/transport.hpp>
#include <vector>

#include "../src/endpoint.hpp"
#include "fuzz_input.hpp"

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_tcp;

namespace {

using namespace tutti::tcp;

constexpr uint32_t kLanes = 3, kSockets = 2;

const tutti_host& host() {
  static const tutti_host table = [] {
    tutti_host made{};
    made.struct_size = sizeof made;
    made.abi_major = TUTTI_ABI_MAJOR;
    made.log = [](void*, const tutti_log_record*) {};
    made.set_error = [](void*, tutti_status, const char*) {};
    made.get_config = [](void*, const char* key) -> const char* {
      const std::string_view name = key;
      if (name == "TUTTI_TCP_FRAGMENT_BYTES") return "8192";
      if (name == "TUTTI_TCP_EAGER_BYTES") return "4096";
      if (name == "TUTTI_TCP_SOCKETS") return "2";
      if (name == "TUTTI_TCP_INTERFACE") return "127.0.0.1";
      return nullptr;
    };
    return made;
  }();
  return table;
}

Endpoint& endpoint() {
  static Endpoint& made = [&]() -> Endpoint& {
    tutti_plugin_entry_net_tcp.init(&host());
    static Domain domain;
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.nranks = 2;
    config.lanes = kLanes;
    config.name = "fuzz";
    static tutti_pair_messages pair{};
    pair.struct_size = sizeof pair;
    pair.send = [](void*, uint32_t, const void*, uint64_t) -> tutti_status { return TUTTI_OK; };
    config.pair = &pair;
    return *new Endpoint(domain, config);
  }();
  return made;
}

// One peer's life: its sockets' far ends, and the transfers with it.
class Peer {
 public:
  Peer() {
    std::vector<Stream> near;
    for (int& far : far_) {
      int pair[2];
      FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
      far = pair[0];
      near.emplace_back(Socket(pair[1]));
      endpoint().sleeper().watch(pair[1]);
    }
    endpoint().establish(1, std::move(near));
    link_ = endpoint().connect(1);
  }
  ~Peer() {
    for (const int far : far_) ::close(far);
    if (link_->is_up()) link_->lose("the script is over");
    while (progress() > 0) {
    }
    FUZZ_CHECK(pending_.empty());
  }

  void say(size_t socket, const std::string& bytes) {
    (void)!::send(far_[socket % kSockets], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void hang_up(size_t socket) { ::shutdown(far_[socket % kSockets], SHUT_RDWR); }
  void post(bool send, uint32_t lane, uint64_t bytes, bool inlined) {
    tutti_transfer transfer{};
    transfer.link = tutti::sdk::to_handle<tutti_link>(link_);
    transfer.lane = lane;
    transfer.kind = send ? TUTTI_TRANSFER_SEND : TUTTI_TRANSFER_RECV;
    transfer.flags = send && inlined ? TUTTI_TRANSFER_INLINE : 0;
    transfer.bytes = bytes;
    transfer.cookie = ++cookies_;
    memory_.push_back(std::make_unique<char[]>(bytes));
    transfer.data = memory_.back().get();
    try {
      if (endpoint().post(transfer) && !transfer.flags) pending_[transfer.cookie] = bytes;
    } catch (const tutti::sdk::Error& error) {
      FUZZ_CHECK(error.status() < 0);
    }
  }
  void send_control(const std::string& text) {
    try {
      link_->send_control(text);
    } catch (const tutti::sdk::Error& error) {
      FUZZ_CHECK(error.status() < 0);
    }
  }
  uint32_t progress() {
    tutti_completion batch[16];
    const uint32_t n = endpoint().progress(batch);
    FUZZ_CHECK(n <= 16);
    for (uint32_t i = 0; i < n; ++i) {
      const tutti_completion& c = batch[i];
      FUZZ_CHECK(c.peer == 1);
      if (c.kind == TUTTI_COMPLETION_TRANSFER) {
        FUZZ_CHECK(pending_.erase(c.cookie) == 1);
      } else if (c.kind == TUTTI_COMPLETION_CONTROL) {
        FUZZ_CHECK(c.bytes <= kControlBytes);
        sum_ += std::string(static_cast<const char*>(c.data), c.bytes).size();
      } else {
        FUZZ_CHECK(c.kind == TUTTI_COMPLETION_PEER_FAILED && *static_cast<const char*>(c.data));
      }
    }
    // Reads everything that the rank sends, so that sockets do not fill up.
    char heard[4096];
    for (const int far : far_)
      while (::recv(far, heard, sizeof heard, MSG_DONTWAIT) > 0) {
      }
    return n;
  }

 private:
  int far_[kSockets];
  Link* link_;
  uint64_t cookies_ = 0, sum_ = 0;
  std::map<uint64_t, uint64_t> pending_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

// A frame with plausible fields, of which each may be spoilt by the script.
std::string frame(FuzzInput& input) {
  constexpr FrameKind kinds[] = {FrameKind::kData, FrameKind::kPosted, FrameKind::kWant, FrameKind::kControl,
                                 FrameKind::kBye};
  Frame made{};
  made.kind = kinds[input.byte() % std::size(kinds)];
  made.lane = input.byte() % (kLanes + 1);
  made.posted = input.byte();
  made.sequence = input.byte();
  made.bytes = input.take<uint16_t>();
  std::string bytes(reinterpret_cast<const char*>(&made), sizeof made);
  if (made.kind == FrameKind::kData || made.kind == FrameKind::kControl) bytes.append(made.bytes % 9000, 'x');
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  Peer peer;
  for (int steps = 0; !input.empty() && steps < 64; ++steps) {
    const uint8_t what = input.byte();
    switch (what % 8) {
      case 0:
      case 1:
        peer.post(what & 8, input.byte() % kLanes, input.take<uint16_t>() % 8193, what & 16);
        break;
      case 2:
        peer.say(what >> 3, input.text());
        break;
      case 3:
      case 4:
        peer.say(what >> 3, frame(input));
        break;
      case 5:
        peer.send_control(input.text());
        break;
      case 6:
        if (what == 6) peer.hang_up(input.byte());
        break;
      default:
        peer.progress();
    }
  }
  return 0;
}
