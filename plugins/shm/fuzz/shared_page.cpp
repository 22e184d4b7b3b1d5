// SPDX-License-Identifier: Apache-2.0
//
// A peer of this job that writes anything, at any place of the shared segment and of the doorbell page, and sends any
// packet on its line. The input is a script of that and of this rank's own calls. What
// this rank is shown lies where it may read, every posted transfer ends once, and nothing else happens.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <tutti/sdk/plugin.hpp>
#include <vector>

#include "../src/link.hpp"
#include "fuzz_input.hpp"

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_shm;

namespace {

using namespace tutti::shm;
using namespace tutti::sdk::local;
using tutti::sdk::FileDescriptor;
using tutti::sdk::Socket;
using tutti::shm::Link;

constexpr Geometry kGeometry{3, 2, 4096};
constexpr uint64_t kRegionBytes = 8192;

// The state that stays the same for all scripts: mapping memory is slow.
struct World {
  tutti_host host{};
  Domain* domain = nullptr;
  FileDescriptor region_file, small_file, eventfd;
  std::shared_ptr<Mapping> segment, doorbell;
  tutti_region* own_region = nullptr;
  std::unique_ptr<Station::Member> member;

  World() {
    host.struct_size = sizeof host;
    host.abi_major = TUTTI_ABI_MAJOR;
    host.log = [](void*, const tutti_log_record*) {};
    host.set_error = [](void*, tutti_status, const char*) {};
    // Both ends are in this process, where an address that the input made up would be read.
    host.get_config = [](void*, const char* key) {
      return std::string_view(key) == "TUTTI_SHM_DIRECT_COPY" ? "0" : nullptr;
    };
    tutti_plugin_entry_shm.init(&host);
    domain = new Domain();
    segment = map_shared(make_memory_file("fuzz", kGeometry.segment_bytes()).get(), 0, kGeometry.segment_bytes());
    doorbell = map_shared(make_memory_file("fuzz", kPage).get(), 0, kPage);
    region_file = make_memory_file("fuzz", kRegionBytes);
    small_file = FileDescriptor(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    eventfd = FileDescriptor(open("/dev/null", O_WRONLY | O_CLOEXEC));
    tutti_memory memory{};
    memory.struct_size = sizeof memory;
    memory.kind = TUTTI_MEMORY_HOST;
    memory.address = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_file.get(), 0);
    memory.bytes = kRegionBytes;
    memory.fd = region_file.get();
    own_region = domain->register_memory(memory);
    member = std::make_unique<Station::Member>(std::make_shared<Station>(), kPage);
  }
  // The headers of both directions; data slots may hold anything.
  void clear() {
    for (const uint32_t direction : {0u, 1u}) {
      const Direction d(segment->data(), kGeometry, direction);
      std::memset(static_cast<void*>(d.control()), 0, sizeof(ControlRing) + kGeometry.lanes * sizeof(LaneRing));
    }
    std::memset(doorbell->data(), 0, sizeof(Doorbell) + 8);
  }
};

World& world() {
  static World& made = *new World();
  return made;
}

class Pair {
 public:
  Pair() {
    world().clear();
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    far_ = Socket(FileDescriptor(pair[0]));
    attention_.failing.reserve(1);
    link_ = std::make_unique<Link>(
        Link::Parts{kGeometry,
                    0,
                    1,
                    1024,
                    0,
                    world().segment,
                    {world().doorbell, std::make_shared<FileDescriptor>(dup(world().eventfd.get()))},
                    world().member->station().adopt(*world().member, 1, Socket(FileDescriptor(pair[1]))),
                    &attention_},
        *world().domain);
  }
  ~Pair() {
    if (far_) far_.close();
    link_->read_line();
    link_->end(TUTTI_ABORTED, "the script is over", false);
    for (int i = 0; i < 64 && !attention_.active.empty(); ++i) advance();
    FUZZ_CHECK(pending_.empty());
    world().member->read();
    (void)world().member->take_news();
  }

  // ---- the peer
  void write(uint64_t offset, const std::string& bytes) {
    offset %= world().segment->bytes();
    const size_t n = std::min<size_t>(bytes.size(), world().segment->bytes() - offset);
    std::memcpy(world().segment->data() + offset, bytes.data(), n);
  }
  void write_descriptor(uint32_t lane, uint32_t number, uint32_t sequence, uint32_t kind, uint64_t bytes,
                        const RegionReference& region) {
    Descriptor& d =
        Direction(world().segment->data(), kGeometry, 1).lane(lane % kGeometry.lanes)->descriptors[number % kDepth];
    d.kind = kind;
    d.bytes = bytes;
    std::memcpy(d.payload, &region, sizeof region);
    d.sequence = sequence;
  }
  void write_control(uint32_t number, uint32_t bytes) {
    ControlSlot& slot = Direction(world().segment->data(), kGeometry, 1).control()->slots[number % kControlDepth];
    slot.bytes = bytes;
    slot.sequence = number + 1;
  }
  void release(uint32_t lane, uint64_t count) {
    Direction(world().segment->data(), kGeometry, 0).lane(lane % kGeometry.lanes)->released = count;
  }
  void offer(uint32_t id, uint32_t generation, uint64_t offset, uint64_t bytes, uint32_t how) {
    RegionOffer offer;
    offer.id = id;
    offer.generation = generation;
    offer.offset = offset;
    offer.bytes = bytes;
    const int file = how % 4 == 1   ? world().small_file.get()
                     : how % 4 == 2 ? world().eventfd.get()
                                    : world().region_file.get();
    if (how % 8 == 7)
      tell(offer);
    else
      tell(offer, {file});
  }
  void withdraw(uint32_t id, uint32_t generation) {
    RegionGone gone;
    gone.id = id;
    gone.generation = generation;
    tell(gone);
  }
  void goodbye(bool gave_up) {
    Goodbye goodbye;
    goodbye.gave_up = gave_up;
    tell(goodbye);
  }
  template <typename T>
  void tell(const T& packet, std::initializer_list<int> descriptors = {}) {
    struct {
      Station::Header header{0, Station::Header::kPacket};
      T packet;
    } whole{.packet = packet};
    far_.send(whole, descriptors);
  }
  void send_garbage(const std::string& bytes) { (void)!::send(far_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void hang_up() { far_.close(); }

  // ---- this rank
  void receive(uint32_t lane, bool give_back) {
    uint64_t bytes = 0;
    if (const void* message = link_->try_receive(lane, bytes)) {
      FUZZ_CHECK(bytes <= std::max<uint64_t>(kGeometry.slot_bytes, kInlineBytes));
      sum_ += touch(message, bytes);
      if (give_back) link_->release(lane);
    }
  }
  void send(uint32_t lane, uint64_t bytes, uint64_t commit) {
    if (void* room = link_->try_reserve(lane, bytes)) {
      if (bytes) std::memset(room, 1, bytes);
      link_->commit(lane, commit);
    }
  }
  void send_region(uint32_t lane, uint64_t offset, uint64_t bytes) {
    uint64_t ticket = 0;
    (void)link_->send_region(lane, world().own_region, offset, bytes, ticket);
    (void)link_->released(lane);
  }
  void post(bool send, uint32_t lane, uint64_t bytes) {
    tutti_transfer transfer{};
    transfer.kind = send ? TUTTI_TRANSFER_SEND : TUTTI_TRANSFER_RECV;
    transfer.lane = lane % kGeometry.lanes;
    transfer.bytes = bytes;
    transfer.cookie = ++cookies_;
    memory_.push_back(std::make_unique<char[]>(bytes));
    transfer.data = memory_.back().get();
    if (link_->post(transfer)) pending_[transfer.cookie] = bytes;
  }
  void send_control(const std::string& text) {
    try {
      link_->send_control(text);
    } catch (const tutti::sdk::Error& error) {
      FUZZ_CHECK(error.status() < 0);
    }
  }
  void receive_control() {
    std::array<uint8_t, kControlBytes> to;
    uint64_t bytes = 0;
    if (link_->receive_control(to.data(), bytes)) FUZZ_CHECK(bytes <= kControlBytes);
  }
  void advance() {
    std::array<tutti_completion, 4> batch;
    for (size_t i = 0; i < attention_.active.size();) {
      Link::Lane& lane = *attention_.active[i];
      const uint32_t n = link_->advance(lane, batch.data(), batch.size());
      FUZZ_CHECK(n <= batch.size());
      for (uint32_t c = 0; c < n; ++c) FUZZ_CHECK(pending_.erase(batch[c].cookie) == 1);
      if (lane.active)
        ++i;
      else
        attention_.active.erase(attention_.active.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  void look() {
    (void)link_->has_news();
    link_->read_line();
    link_->write_line();
  }

 private:
  static uint64_t touch(const void* data, uint64_t bytes) {
    const auto* at = static_cast<const uint8_t*>(data);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes; i += 64) sum += at[i];
    return bytes ? sum + at[bytes - 1] : sum;
  }
  Attention<Link> attention_;
  Socket far_;
  std::unique_ptr<Link> link_;
  uint64_t cookies_ = 0, sum_ = 0;
  std::map<uint64_t, uint64_t> pending_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

void hostile_step(FuzzInput& input, Pair& pair, uint8_t what) {
  switch (what % 8) {
    case 0: {
      const auto offset = input.take<uint16_t>();
      return pair.write(offset, input.text());
    }
    case 1:
    case 2: {
      const uint32_t lane = input.byte(), number = input.byte(), kind = input.byte() % 5;
      const uint64_t bytes = input.flag() ? input.take<uint64_t>() : input.take<uint16_t>();
      const RegionReference region{input.byte(), input.byte(),
                                   input.flag() ? input.take<uint64_t>() : input.take<uint16_t>()};
      return pair.write_descriptor(lane, number, input.flag() ? number + 1 : input.byte(), kind, bytes, region);
    }
    case 3: {
      const uint32_t number = input.byte();
      return pair.write_control(number, input.take<uint16_t>());
    }
    case 4: {
      const uint32_t lane = input.byte();
      return pair.release(lane, input.flag() ? input.take<uint64_t>() : input.byte());
    }
    case 5: {
      const uint32_t id = input.flag() ? input.take<uint32_t>() : input.byte() % 4, generation = input.byte();
      const uint64_t offset = input.flag() ? input.take<uint64_t>() : 0;
      const uint64_t bytes = input.flag() ? input.take<uint64_t>() : kRegionBytes;
      return pair.offer(id, generation, offset, bytes, input.byte());
    }
    case 6: {
      const uint32_t id = input.byte();
      return pair.withdraw(id, input.byte());
    }
    default:
      if (what == 7) return pair.goodbye(input.flag());
      if (what == 15) return pair.hang_up();
      return pair.send_garbage(input.text());
  }
}

void own_step(FuzzInput& input, Pair& pair, uint8_t what) {
  const uint32_t lane = input.byte() % (kGeometry.lanes + 1);
  switch (what % 8) {
    case 0:
    case 1:
      return pair.receive(lane, what & 8);
    case 2: {
      const uint64_t bytes = input.take<uint16_t>();
      return pair.send(lane, bytes, input.flag() ? bytes : input.take<uint16_t>());
    }
    case 3: {
      const uint64_t offset = input.take<uint16_t>();
      return pair.send_region(lane, offset, input.take<uint16_t>());
    }
    case 4:
      return pair.post(what & 8, lane, input.take<uint16_t>() % (kGeometry.slot_bytes + 1));
    case 5:
      return pair.send_control(input.text());
    case 6:
      return pair.receive_control();
    default:
      pair.advance();
      return pair.look();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  Pair pair;
  for (int steps = 0; !input.empty() && steps < 96; ++steps) {
    const uint8_t what = input.byte();
    if (what & 64)
      hostile_step(input, pair, what & 63);
    else
      own_step(input, pair, what & 63);
  }
  return 0;
}
