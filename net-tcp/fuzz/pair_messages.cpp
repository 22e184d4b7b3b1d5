// SPDX-License-Identifier: Apache-2.0
//
// Peers that say anything by pair messages. The input is a script: what two peers say, and what this rank does. A
// message is understood or an error with words; the answers are messages in their turn and do not multiply; and no link
// comes about, for nobody opens a socket.
#include <map>
#include <tutti/sdk/transport.hpp>

#include "../src/endpoint.hpp"
#include "../tests/pair_message.hpp"
#include "fuzz_input.hpp"

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_tcp;

namespace {

using namespace tutti::tcp;
using tutti_test::PairMessage;

const tutti_host& host() {
  static const tutti_host table = [] {
    tutti_host made{};
    made.struct_size = sizeof made;
    made.abi_major = TUTTI_ABI_MAJOR;
    made.log = [](void*, const tutti_log_record*) {};
    made.set_error = [](void*, tutti_status, const char*) {};
    made.get_config = [](void*, const char* key) -> const char* {
      return std::string_view(key) == "TUTTI_TCP_INTERFACE" ? "127.0.0.1" : nullptr;
    };
    return made;
  }();
  return table;
}

// Rank 1 of 3, and what it has said.
struct Subject {
  static Domain& domain() {
    tutti_plugin_entry_net_tcp.init(&host());
    static Domain made;
    return made;
  }
  tutti_pair_messages pair{};
  std::map<uint32_t, std::map<PairMessage::Kind, int>> said;
  PairMessage offer;  // the last
  bool full = false;
  std::unique_ptr<Endpoint> endpoint;

  Subject() {
    pair.struct_size = sizeof pair;
    pair.self = this;
    pair.send = [](void* self, uint32_t peer, const void* data, uint64_t bytes) -> tutti_status {
      Subject& me = *static_cast<Subject*>(self);
      FUZZ_CHECK(peer != 1 && peer < 3 && bytes <= TUTTI_PAIR_BYTES);
      if (me.full) return TUTTI_AGAIN;
      const auto message = PairMessage::decode({static_cast<const char*>(data), bytes});
      ++me.said[peer][message.kind];
      if (message.kind == PairMessage::kOffer) me.offer = message;
      return TUTTI_OK;
    };
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = 1;
    config.nranks = 3;
    config.lanes = 2;
    config.pair = &pair;
    endpoint = std::make_unique<Endpoint>(domain(), config);
  }
};

// A message that could be right but for what the script spoils. Nothing answers at its listeners.
std::string message(FuzzInput& input, const Subject& subject) {
  PairMessage made = subject.offer;
  const uint8_t what = input.byte();
  made.kind = what & 1 ? PairMessage::kOffer : what & 2 ? PairMessage::kDial : PairMessage::kRefusal;
  made.status = static_cast<tutti_status>(-(what >> 5));
  made.n_listeners = 1 + (what >> 2) % 4;
  made.listeners.fill(Listener::at({boost::asio::ip::make_address("127.0.0.1"), 1}));
  if (made.kind != PairMessage::kOffer) made.text = input.text();
  std::string bytes = made.encode();
  if (what & 16) bytes[input.take<uint16_t>() % bytes.size()] ^= static_cast<char>(input.byte());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  Subject subject;
  Endpoint& endpoint = *subject.endpoint;
  std::map<uint32_t, int> heard;
  bool refused[3] = {};
  for (int steps = 0; !input.empty() && steps < 32; ++steps) {
    const uint8_t what = input.byte();
    const uint32_t peer = what & 8 ? 0 : 2;
    try {
      switch (what % 8) {
        case 0:
        case 1:
        case 2:
          ++heard[peer];
          endpoint.receive_pair(peer, what % 8 == 0 ? input.text() : message(input, subject));
          break;
        case 3:
        case 4:
          FUZZ_CHECK(!endpoint.connect(peer));
          FUZZ_CHECK(!refused[peer]);
          break;
        case 5:
          subject.full = what & 16;
          break;
        case 6:
          if (what & 16) endpoint.fail_peer(peer), refused[peer] = true;
          if (what == 6) endpoint.abort(), refused[0] = refused[2] = true;
          break;
        default:
          tutti_completion batch[4];
          FUZZ_CHECK(endpoint.progress(batch) == 0);
      }
    } catch (const tutti::sdk::Error& error) {
      FUZZ_CHECK(error.status() < 0 && *error.what());
    }
  }
  for (auto& [peer, kinds] : subject.said) {
    FUZZ_CHECK(kinds[PairMessage::kOffer] <= 1 && kinds[PairMessage::kDial] <= 1);
    FUZZ_CHECK(kinds[PairMessage::kRefusal] <= heard[peer] + 1);
  }
  return 0;
}
