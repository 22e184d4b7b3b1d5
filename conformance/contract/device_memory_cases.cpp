// SPDX-License-Identifier: Apache-2.0
//
// Transfers of device memory (T-40): a memfd stands for the dma-buf of a device. Its address is reserved and may not be
// accessed; the suite looks at the bytes as the device would, by a mapping of its own.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "contract_case.hpp"
#include "last_words.hpp"

namespace tutti::conformance::contract {
namespace {

// Memory that no processor may access by its address.
class SimulatedMemory {
 public:
  explicit SimulatedMemory(uint64_t bytes) : bytes_(bytes) {
    fd_ = memfd_create("device memory", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw CannotRun{"memfd_create failed"};
    void* seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (seen == MAP_FAILED || address == MAP_FAILED) throw CannotRun{"mmap failed"};
    seen_ = static_cast<uint8_t*>(seen), address_ = static_cast<uint8_t*>(address);
    watch_ = watch_memory(address_, bytes, address_, bytes, "T-40",
                          "device memory, which the processor must not access");
  }
  ~SimulatedMemory() {
    forget_memory(watch_);
    munmap(seen_, bytes_);
    munmap(address_, bytes_);
    ::close(fd_);
  }
  SimulatedMemory(const SimulatedMemory&) = delete;
  SimulatedMemory& operator=(const SimulatedMemory&) = delete;
  uint8_t* seen() const { return seen_; }        // as the device sees it
  uint8_t* address() const { return address_; }  // what transfers name
  tutti_memory description() const {
    return {sizeof(tutti_memory), TUTTI_MEMORY_SIMULATED, address_, bytes_, fd_, 0, 0};
  }

 private:
  const uint64_t bytes_;
  int fd_ = -1, watch_ = -1;
  uint8_t *seen_ = nullptr, *address_ = nullptr;
};

void flush(Bench& bench, Stage& stage, tutti_region* region, const void* data, uint64_t bytes) {
  const tutti_transport* t = bench.transport();
  tutti_status status = TUTTI_AGAIN;
  stage.until(
      [&] {
        status = call("flush", false, [&] { return t->flush(stage[1].links[0], region, data, bytes); });
        return status != TUTTI_AGAIN;
      },
      "T-40", "flush goes on returning TUTTI_AGAIN");
  require(status == TUTTI_OK, "T-40", "flush of {} bytes of device memory returned {}: {}", bytes, status_text(status),
          last_error());
}

void device_memory(Bench& bench) {
  const tutti_transport* t = bench.transport();
  const tutti_transport_caps& caps = bench.caps();
  if (!(caps.memory_kinds & uint64_t{1} << TUTTI_MEMORY_SIMULATED))
    throw NotOffered{"its memory_kinds lack the memory of the simulated device"};
  const uint64_t room = 3 * std::min<uint64_t>(caps.fragment_bytes, 1 << 20) + 4096;
  const SimulatedMemory source(room), target(room);
  Stage stage(bench);
  tutti_region *out = nullptr, *in = nullptr;
  for (const auto& [memory, rank, region] : {std::tuple{&source, 0u, &out}, {&target, 1u, &in}}) {
    const tutti_memory description = memory->description();
    const tutti_status status = call("register_memory", true, [&] {
      return t->register_memory(stage[rank].domain, &description, region);
    });
    // Real dma-bufs only: that is this machine's limit.
    if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{"it does not take a memfd as a dma-buf: " + last_error()};
    require(status == TUTTI_OK, "T-40", "register_memory of {} bytes of device memory returned {}: {}", room,
            status_text(status), last_error());
  }
  uint32_t k = 0;
  std::vector<uint8_t> expected(room);
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{1}, uint64_t{4097}, room / 3})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{3}, room / 2}) {
      if (bytes > caps.fragment_bytes) continue;
      fill(source.seen(), room, bench.seed, {0, 1, 0, ++k});
      std::memset(target.seen(), 0xEE, room), std::memset(expected.data(), 0xEE, room);
      std::memcpy(expected.data() + offset, source.seen() + offset, bytes);
      tutti_transfer send = stage[0].send(1, 0, source.address() + offset, bytes);
      tutti_transfer receive = stage[1].receive(0, 0, target.address() + offset, bytes);
      send.region = out, receive.region = in;
      Posted *sent = nullptr, *received = nullptr;
      stage.until(
          [&] {
            if (!received) received = stage[1].post(receive);
            if (!sent) sent = stage[0].post(send);
            return sent && received && sent->done && received->done;
          },
          "T-40", fmt::format("a message of {} bytes between device memories does not complete", bytes));
      const bool flushed = caps.flags & TUTTI_TRANSPORT_NEEDS_FLUSH;
      if (flushed) flush(bench, stage, in, target.address() + offset, bytes);
      const std::string difference = first_difference(expected.data(), target.seen(), room);
      require(difference.empty(), "T-40",
              "{} bytes were received into device memory at byte {} and {}, and the device does not see them: {}",
              bytes, offset, flushed ? "flush has returned TUTTI_OK" : "query asks for no flush", difference);
    }
  call("deregister_memory", true, [&] { return t->deregister_memory(stage[0].domain, out); });
  call("deregister_memory", true, [&] { return t->deregister_memory(stage[1].domain, in); });
}

}  // namespace

std::vector<ContractCase> device_memory_cases() {
  return {{"device-memory",
           "transfers of device memory, a memfd, by its descriptor; flush where it is needed",
           {"T-40", "T-20", "T-21"},
           6,
           device_memory}};
}

}  // namespace tutti::conformance::contract
