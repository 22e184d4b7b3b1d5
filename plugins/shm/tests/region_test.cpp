// SPDX-License-Identifier: Apache-2.0
//
// Registered memory sent by reference.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <optional>

#include "ranks.hpp"

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;

class Region : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(, Region, ::testing::Values(As::kThreads, As::kProcesses), [](const auto& which) {
  return which.param == As::kThreads ? std::string("threads") : std::string("processes");
});

// A memfd and its mapping.
struct Memory {
  explicit Memory(uint64_t size) : bytes(size), fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    REQUIRE(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    data = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  Memory(const Memory&) = delete;
  ~Memory() {
    munmap(data, bytes);
    close(fd);
  }
  uint64_t bytes;
  int fd;
  uint8_t* data;
};

// From now on the kernel refuses this process to read another one's memory, as in some containers.
void refuse_reading() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

TEST(DirectCopy, ThatItIsNotUsedIsToldOnceWithTheReason) {
  for (const bool refused : {false, true}) {
    std::optional<ranks::Setting> off;
    if (!refused) off.emplace("TUTTI_SHM_DIRECT_COPY", "0");
    ranks::run(As::kProcesses, 3, [&](Board& board, uint32_t rank) {
      if (refused) refuse_reading();
      Rank r(board, rank, 3, {});
      r.connect_all();
      tutti_test::Host& host = tutti_test::host();
      const std::string told = "copied through shared memory instead of out of the other process (process_vm_readv): ";
      r.until([&] { return host.logged(told); });
      REQUIRE(host.logged(refused ? "memory cannot be read: Operation not permitted" : "TUTTI_SHM_DIRECT_COPY=0"));
      r.meet();
      const std::lock_guard lock(host.mutex);
      REQUIRE(std::count_if(host.log.begin(), host.log.end(),
                            [&](const std::string& line) { return line.find(told) != line.npos; }) == 1);
    });
  }
}

// The receiver reads the sender's memory itself: a later store of the sender is seen through the view.
TEST_P(Region, IsReadInPlaceAndGivenBack) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    if (rank == 0) {
      Memory memory(1 << 20);
      tutti_region* region = r.register_memory(memory.data + 4096, memory.bytes - 4096, memory.fd, 4096);
      uint64_t ticket = 99, before = 0;
      ranks::fill(memory.data + 4096 + 512, 65536, 1, 0);
      REQUIRE(r.v->send_region(link, 1, region, 512, 65536, &ticket) == TUTTI_OK && ticket == 0);
      REQUIRE(r.v->released(link, 1) <= ticket);
      r.meet();  // seen
      memory.data[4096 + 512] = 0x5a;
      r.meet();  // changed
      r.meet();  // released
      REQUIRE(r.v->released(link, 1) > ticket);
      // As many as there is room for; none is released before the peer does so.
      for (uint64_t i = 0;; i++) {
        const tutti_status status = r.v->send_region(link, 2, region, i * 100, 100, &ticket);
        if (status == TUTTI_AGAIN) break;
        REQUIRE(status == TUTTI_OK && ticket == i);
        before = ticket;
      }
      REQUIRE(before >= 1 && r.v->released(link, 2) == 0);
      board.word[0] = static_cast<uint32_t>(before + 1);
      r.meet();
      r.until([&] { return r.v->released(link, 2) > before; });
      REQUIRE(r.v->send_region(link, 2, region, memory.bytes - 4096, 1, &ticket) == TUTTI_INVALID_ARGUMENT);
      REQUIRE(r.v->send_region(link, 2, region, UINT64_MAX, 2, &ticket) == TUTTI_INVALID_ARGUMENT);
      REQUIRE(r.v->send_region(link, 2, region, 0, 65537, &ticket) == TUTTI_INVALID_ARGUMENT);
      REQUIRE(r.v->send_region(link, 2, region, memory.bytes - 4096, 0, &ticket) == TUTTI_OK);
      r.meet();
      r.deregister(region);
    } else {
      uint64_t bytes = 0;
      const auto* seen = static_cast<const uint8_t*>(r.receive(0, 1, bytes));
      REQUIRE(bytes == 65536 && ranks::matches(seen, bytes, 1, 0));
      r.meet();
      r.meet();
      REQUIRE(*static_cast<const volatile uint8_t*>(seen) == 0x5a);
      r.v->release(link, 1);
      r.meet();
      r.meet();
      std::vector<uint8_t> buffer(100);
      for (uint32_t i = 0; i < board.word[0]; i++) {  // a posted receive may meet one, too
        if (i % 2 == 0) {
          r.done.clear();
          REQUIRE(r.post(Rank::transfer(link, 2, TUTTI_TRANSFER_RECV, buffer.data(), 100, 5)));
          r.until([&] { return r.done.size() == 1; });
          REQUIRE(r.done[0].status == TUTTI_OK);
        } else {
          REQUIRE(r.receive(0, 2, bytes) && bytes == 100);
          r.v->release(link, 2);
        }
      }
      REQUIRE(r.receive(0, 2, bytes) && bytes == 0);
      r.v->release(link, 2);
      r.meet();
    }
    REQUIRE(r.failed.empty());
    r.meet();
  });
}

// A region's number is used again by later registrations: each is read as itself, and a withdrawn one is unmapped.
TEST_P(Region, DeregistrationAndReuse) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    for (uint64_t i = 0; i < 50; i++) {
      if (rank == 0) {
        Memory memory(8192);
        tutti_region* region = r.register_memory(memory.data, memory.bytes, memory.fd);
        ranks::fill(memory.data, 8192, i, 3);
        uint64_t ticket = 0;
        REQUIRE(r.v->send_region(link, 3, region, 0, 8192, &ticket) == TUTTI_OK);
        r.until([&] { return r.v->released(link, 3) > ticket; });
        r.deregister(region);
        if (i % 2 == 1)  // else the next registration takes the number before the peer was told
          for (int k = 0; k < 1100; k++) r.progress();
      } else {
        uint64_t bytes = 0;
        const void* message = r.receive(0, 3, bytes);
        REQUIRE(bytes == 8192 && ranks::matches(message, bytes, i, 3));
        r.v->release(link, 3);
      }
    }
    r.meet();
    if (rank == 1) {
      for (int k = 0; k < 1100; k++) r.progress();
      if (FILE* maps = fopen("/proc/self/maps", "r")) {
        char line[512];
        while (fgets(line, sizeof line, maps))
          REQUIRE(strstr(line, "memfd:test") == nullptr || strstr(line, "rw-s") != nullptr);
        fclose(maps);
      }
    }
    REQUIRE(r.failed.empty());
    r.meet();
  });
}

// All memory of the process is read out of it: where it lies by another thread, else fetched.
TEST_P(Region, OfAllMemory) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    const uint64_t page = 4096, sizes[] = {1, 49, 5000, 65536};
    if (rank == 0) {
      // Four pages, of which the kernel reads all but the second for others.
      auto* const map =
          static_cast<uint8_t*>(mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      std::vector<uint8_t> plain(65536 + 3);
      tutti_region* const all = r.register_memory(nullptr, UINT64_MAX, -1);
      uint64_t ticket = 0, number = 0;
      const auto send = [&](const void* data, uint64_t bytes) {
        return r.v->send_region(link, 1, all, reinterpret_cast<uint64_t>(data), bytes, &ticket);
      };
      // From the peer's word on that it can.
      r.until([&] { return send(plain.data(), 0) == TUTTI_OK; });
      for (const uint64_t bytes : sizes)
        for (uint32_t k = 0; k < 3; k++) {
          ranks::fill(plain.data() + k, bytes, number++, 1);
          REQUIRE(send(plain.data() + k, bytes) == TUTTI_OK);
          r.until([&] { return r.v->released(link, 1) > ticket; });
        }
      mprotect(map + page, page, PROT_NONE);
      if (GetParam() == As::kProcesses) {
        REQUIRE(send(map + page, 10) == TUTTI_NOT_SUPPORTED && send(map, page + 1) == TUTTI_NOT_SUPPORTED);
        REQUIRE(send(map, 4 * page) == TUTTI_OK);  // only the ends were looked at
        r.until([&] { return r.failed.size() == 1; });
        REQUIRE(r.failed[0].second == "it gave this rank up");
      }
      r.deregister(all);
      munmap(map, 4 * page);
    } else {
      uint64_t bytes = 0, number = 0;
      REQUIRE(r.receive(0, 1, bytes) && bytes == 0);
      r.v->release(link, 1);
      std::vector<uint8_t> room(65536 + 1);
      for (const uint64_t size : sizes)
        for (uint32_t k = 0; k < 3; k++) {
          const void* seen = nullptr;
          std::fill(room.begin(), room.end(), uint8_t{0xee});
          const uint64_t most = k == 2 ? size - 1 : size;  // too small a room is not used
          r.until([&] {
            bytes = most;
            seen = k == 0 ? r.v->try_receive(link, 1, &bytes) : r.v->try_receive_into(link, 1, room.data(), &bytes);
            return seen != nullptr;
          });
          REQUIRE(bytes == size && ranks::matches(seen, bytes, number++, 1));
          REQUIRE((seen == room.data()) == (k == 1 && GetParam() == As::kProcesses));
          REQUIRE(room[seen == room.data() ? size : 0] == 0xee);
          bytes = 0;
          REQUIRE(r.v->try_receive(link, 1, &bytes) == seen && bytes == size);
          r.v->release(link, 1);
        }
      if (GetParam() == As::kProcesses) {
        r.until([&] { return r.v->try_receive(link, 1, &bytes) || r.failed.size() == 1; });
        REQUIRE(r.failed.size() == 1 &&
                r.failed[0].second.find("cannot be read: Bad address; set TUTTI_SHM_DIRECT_COPY=0") !=
                    std::string::npos);
      }
    }
    r.meet();
  });
}

TEST(Registration, OfAllMemoryIsRefusedWhereItIsNotToBeRead) {
  const ranks::Setting off("TUTTI_SHM_DIRECT_COPY", "0");
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    const tutti_memory all{sizeof all, TUTTI_MEMORY_HOST, nullptr, UINT64_MAX, -1, 0, 0};
    tutti_region* none = nullptr;
    REQUIRE(r.t->register_memory(r.domain, &all, &none) == TUTTI_NOT_SUPPORTED);
    r.meet();
  });
}

TEST(Registration, OfOrdinaryMemoryCannotBeSentAndBadOnesAreRefused) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    std::vector<uint8_t> plain(1000);
    tutti_region* region = r.register_memory(plain.data(), plain.size(), -1);
    uint64_t ticket;
    REQUIRE(r.v->send_region(r.links[1 - rank], 0, region, 0, 10, &ticket) == TUTTI_NOT_SUPPORTED);
    Memory memory(4096);
    tutti_memory description{sizeof description, TUTTI_MEMORY_HOST, memory.data, 4097, memory.fd, 0, 0};
    tutti_region* none = nullptr;
    REQUIRE(r.t->register_memory(r.domain, &description, &none) == TUTTI_MISMATCH);  // longer than its file
    description.kind = TUTTI_MEMORY_CUDA;
    REQUIRE(r.t->register_memory(r.domain, &description, &none) == TUTTI_NOT_SUPPORTED);
    description.kind = TUTTI_MEMORY_HOST;
    description.bytes = 0;
    REQUIRE(r.t->register_memory(r.domain, &description, &none) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(r.t->deregister_memory(r.domain, reinterpret_cast<tutti_region*>(&ticket)) == TUTTI_INVALID_ARGUMENT);
    r.meet();
  });
}

}  // namespace
