// SPDX-License-Identifier: Apache-2.0
//
// Contract cases of device/1's optional functions: memory that another process of the host maps.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "contract_case.hpp"
#include "device_station.hpp"
#include "family.hpp"
#include "usage.hpp"

namespace tutti::conformance::contract {
namespace {

constexpr uint64_t memory_bytes = 300'000, offset = 70'001;

std::vector<uint8_t> pattern(uint8_t seed) {
  std::vector<uint8_t> bytes(memory_bytes);
  for (uint64_t i = 0; i < memory_bytes; ++i) bytes[i] = static_cast<uint8_t>(seed + i * 7 + i / 4096);
  return bytes;
}

// An export on its way: the record, and the descriptor beside it, if there is one.
struct Parcel {
  tutti_memory_export record{};
  int32_t fd = -1;
  Parcel() = default;
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;
  ~Parcel() {
    if (fd >= 0) close(fd);
  }
};

// Between the process that exports (0) and the one that imports (1).
class Post {
 public:
  Post() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) != 0) throw CannotRun{"socketpair failed"};
  }
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;
  ~Post() {
    for (const int end : ends_) close(end);
  }
  void send(const Parcel& parcel) const {
    msghdr message{};
    iovec part{const_cast<tutti_memory_export*>(&parcel.record), sizeof parcel.record};
    message.msg_iov = &part, message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (parcel.fd >= 0) {
      message.msg_control = control, message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      *header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
      std::memcpy(CMSG_DATA(header), &parcel.fd, sizeof(int));
    }
    if (sendmsg(ends_[0], &message, MSG_NOSIGNAL) != sizeof parcel.record) throw CannotRun{"sendmsg failed"};
  }
  void receive(Parcel& parcel) const {
    msghdr message{};
    iovec part{&parcel.record, sizeof parcel.record};
    message.msg_iov = &part, message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    message.msg_control = control, message.msg_controllen = sizeof control;
    if (recvmsg(ends_[1], &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof parcel.record)
      throw CannotRun{"recvmsg failed"};
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&parcel.fd, CMSG_DATA(header), sizeof(int));
  }

 private:
  int ends_[2];
};

void needs_exports(const Station& s) {
  if (!s.device.memory->export_memory) throw NotOffered{"it has no export_memory"};
}

tutti_status try_export(Station& s, const void* address, Parcel& parcel) {
  const tutti_device* d = s.device.memory;
  return call("export_memory", false, [&] { return d->export_memory(d->self, address, &parcel.record, &parcel.fd); });
}

void export_it(Station& s, const void* address, Parcel& parcel) {
  const tutti_status status = try_export(s, address, parcel);
  if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("export_memory says: {}", last_error())};
  require(status == TUTTI_OK, "D-10", "export_memory of memory of the device returned {}: {}", status_text(status),
          last_error());
}

tutti_status try_import(Station& s, uint32_t device, const tutti_memory_export& record, int32_t fd, void** base) {
  const tutti_device* d = s.device.memory;
  *base = nullptr;
  return call("import_memory", false, [&] { return d->import_memory(d->self, device, &record, fd, base); });
}

uint8_t* import_it(Station& s, uint32_t device, const Parcel& parcel, const char* clause) {
  void* base = nullptr;
  const tutti_status status = try_import(s, device, parcel.record, parcel.fd, &base);
  require(status == TUTTI_OK && base, clause, "import_memory of what another process exported returned {}: {}",
          status_text(status), last_error());
  return static_cast<uint8_t*>(base);
}

tutti_status close_import(Station& s, void* base) {
  const tutti_device* d = s.device.memory;
  return call("close_import", false, [&] { return d->close_import(d->self, base); });
}

// `exporter` runs in process 0, `importer` in process 1, which has what 0 exported of an allocation of pattern(1).
void between_processes(Bench& bench, void (*importer)(Station& s, Family& family, const Parcel& parcel),
                       void (*exporter)(Station& s, Family& family, uint8_t* memory)) {
  const Post post;
  Family::run(bench, 2, [&](Family& family, uint32_t rank) {
    Station s(bench);
    needs_exports(s);
    Parcel parcel;
    if (rank == 0) {
      uint8_t* memory = s.allocate(memory_bytes);
      s.put(memory, pattern(1));
      export_it(s, memory + offset, parcel);
      const tutti_pointer p = s.classify(memory + offset);
      require(memory + offset == static_cast<uint8_t*>(p.base) + parcel.record.offset, "D-10",
              "export_memory of byte {} of an allocation says offset {}",
              memory + offset - static_cast<uint8_t*>(p.base), parcel.record.offset);
      require(parcel.record.bytes == p.bytes && parcel.record.buffer_id == p.buffer_id, "D-10",
              "export_memory says {} bytes and buffer_id {}, classify of the same address {} and {}",
              parcel.record.bytes, parcel.record.buffer_id, p.bytes, p.buffer_id);
      require(parcel.record.data_bytes <= sizeof parcel.record.data && !parcel.record.reserved &&
                  std::all_of(parcel.record.data + parcel.record.data_bytes, std::end(parcel.record.data),
                              [](uint8_t byte) { return byte == 0; }),
              "D-10", "export_memory says {} bytes of data of at most {}, and what is behind them is zero",
              parcel.record.data_bytes, sizeof parcel.record.data);
      post.send(parcel);
      exporter(s, family, memory);
    } else {
      post.receive(parcel);
      importer(s, family, parcel);
    }
    family.meet();
  });
}

// The beginning of the allocation that contains the exported byte `offset`.
uint8_t* begin_of(uint8_t* base, const Parcel& parcel) { return base + parcel.record.offset - offset; }

// The last device, if it reads memory of the first, which is the exporter's; else that one.
uint32_t importing_device(Station& s) {
  const tutti_device* d = s.device.memory;
  const uint32_t last = s.device.caps.devices - 1;
  if (last == 0) return 0;
  return call("enable_peer", false, [&] { return d->enable_peer(d->self, last, 0); }) == TUTTI_OK ? last : 0;
}

void shared_memory(Bench& bench) {
  between_processes(
      bench,
      [](Station& s, Family& family, const Parcel& parcel) {
        const uint32_t device = importing_device(s);
        uint8_t* base = import_it(s, device, parcel, "D-10");
        uint8_t* memory = begin_of(base, parcel);
        const tutti_pointer p = s.classify(memory + offset);
        require(p.kind == s.device.caps.memory_kind, "D-10",
                "classify of imported memory says memory kind {}, expected {}", p.kind, s.device.caps.memory_kind);
        require(s.get(memory, memory_bytes, device) == pattern(1), "D-10",
                "imported memory does not hold what its owner put there before");
        family.meet();  // now the owner writes
        family.meet();
        require(s.get(memory, memory_bytes, device) == pattern(2), "D-10",
                "the owner wrote into its memory, and imported memory still shows what was there before: import_memory "
                "must show the memory itself, not a copy");
        s.put(memory, pattern(3), device);
        family.meet();  // now the owner reads
        family.meet();
        require(close_import(s, base) == TUTTI_OK, "D-12", "close_import returned an error: {}", last_error());
      },
      [](Station& s, Family& family, uint8_t* memory) {
        family.meet();
        s.put(memory, pattern(2));
        family.meet();
        family.meet();
        require(s.get(memory, memory_bytes) == pattern(3), "D-10",
                "another process wrote into imported memory, and its owner does not see it");
        family.meet();
      });
}

void twice(Bench& bench) {
  between_processes(
      bench,
      [](Station& s, Family& family, const Parcel& parcel) {
        uint8_t* first = import_it(s, 0, parcel, "D-10");
        uint8_t* second = import_it(s, 0, parcel, "D-10");
        require(close_import(s, first) == TUTTI_OK, "D-12", "close_import returned an error: {}", last_error());
        require(s.get(begin_of(second, parcel), memory_bytes) == pattern(1), "D-12",
                "one of two imports of an allocation was closed, and the other no longer shows the memory");
        require(close_import(s, second) == TUTTI_OK, "D-12", "close_import of the second of two imports: {}",
                last_error());
        int local = 0;
        for (void* nothing : {static_cast<void*>(&local), static_cast<void*>(s.allocate(5000))})
          require(close_import(s, nothing) < 0, "D-12",
                  "close_import of {}, which was never imported, returned TUTTI_OK", nothing);
        const auto live = [&](uint32_t lives) {
          for (uint32_t k = 0; k < lives; ++k) close_import(s, import_it(s, 0, parcel, "D-12"));
        };
        require_no_growth("D-12", "importing memory and closing the import", 300, 100, live);
        family.meet();
      },
      [](Station& s, Family& family, uint8_t* memory) {
        family.meet();
        require(s.get(memory, memory_bytes) == pattern(1), "D-12",
                "another process closed its imports, and the owner's memory has changed");
      });
}

void wrong_exports(Bench& bench) {
  between_processes(
      bench,
      [](Station& s, Family&, const Parcel& parcel) {
        const auto refused = [&](const tutti_memory_export& record, int32_t fd, uint32_t device, const char* what) {
          void* base = nullptr;
          const tutti_status status = try_import(s, device, record, fd, &base);
          require(status < 0, "D-11", "import_memory took {}: its bytes are untrusted input, to be refused", what);
        };
        tutti_memory_export wrong = parcel.record;
        wrong.form ^= 0x5a5a0000u;
        refused(wrong, parcel.fd, 0, "a record of a form that there is not");
        wrong = parcel.record;
        for (const uint32_t length : {0u, wrong.data_bytes - 1, wrong.data_bytes + 1, UINT32_MAX}) {
          wrong.data_bytes = length;
          if (length != parcel.record.data_bytes)
            refused(wrong, parcel.fd, 0, "a record that says another length of its data");
        }
        wrong = parcel.record;
        wrong.offset = wrong.bytes;
        refused(wrong, parcel.fd, 0, "a record whose offset lies at the end of its allocation");
        wrong.offset = UINT64_MAX;
        refused(wrong, parcel.fd, 0, "a record whose offset is 2^64 - 1");
        wrong = parcel.record;
        wrong.bytes += uint64_t{1} << 40;
        refused(wrong, parcel.fd, 0, "a record that says a tebibyte more than was allocated");
        refused(parcel.record, parcel.fd, s.device.caps.devices, "a device that there is not");
        const int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        refused(parcel.record, other, 0, "a descriptor that has nothing to do with the record");
        close(other);
        if (parcel.fd >= 0) refused(parcel.record, -1, 0, "a record without its descriptor");
        uint8_t* base = import_it(s, 0, parcel, "D-11");  // after all that
        require(s.get(begin_of(base, parcel), memory_bytes) == pattern(1), "D-11",
                "after refusals imported memory does not show the owner's");
        close_import(s, base);
      },
      [](Station& s, Family&, uint8_t* memory) {
        Parcel own;
        export_it(s, memory, own);
        void* base = nullptr;
        require(try_import(s, 0, own.record, own.fd, &base) < 0, "D-11",
                "import_memory took what its own process had exported: the address itself is to be used");
        int local = 0;
        for (const void* nothing : {static_cast<const void*>(&local), static_cast<const void*>(nullptr)}) {
          Parcel none;
          require(try_export(s, nothing, none) < 0, "D-11", "export_memory took {}, which is none of the device's",
                  nothing);
        }
        uint8_t* gone = s.allocate(9000);
        s.release(gone);
        Parcel none;
        require(try_export(s, gone, none) < 0, "D-11", "export_memory took memory that had been released");
      });
}

// The contents of a descriptor can be read if it can be mapped; not every device's dma-buf can.
void require_same_bytes(int fd, uint64_t at, const std::vector<uint8_t>& expected) {
  const uint64_t end = at + expected.size();
  void* mapped = mmap(nullptr, end, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return;
  const bool same = std::memcmp(static_cast<const uint8_t*>(mapped) + at, expected.data(), expected.size()) == 0;
  munmap(mapped, end);
  require(same, "D-13", "at offset {} of export_dmabuf's descriptor there are other bytes than in the memory", at);
}

void dmabufs(Bench& bench) {
  Station s(bench);
  const tutti_device* d = s.device.memory;
  if (!TUTTI_HAS(tutti_device, d, export_dmabuf)) throw NotOffered{"it has no export_dmabuf"};
  const auto try_dmabuf = [&](const void* address, uint64_t bytes, Parcel& parcel, uint64_t* at) {
    return call("export_dmabuf", false, [&] { return d->export_dmabuf(d->self, address, bytes, &parcel.fd, at); });
  };
  uint8_t* memory = s.allocate(memory_bytes);
  const auto checked = [&](uint64_t from, uint64_t bytes) {
    Parcel parcel;
    uint64_t at = 0;
    const tutti_status status = try_dmabuf(memory + from, bytes, parcel, &at);
    if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("export_dmabuf says: {}", last_error())};
    require(status == TUTTI_OK && parcel.fd >= 0, "D-13", "export_dmabuf of {} bytes at byte {} returned {}: {}", bytes,
            from, status_text(status), last_error());
    const off_t size = lseek(parcel.fd, 0, SEEK_END);
    require(size < 0 || (at <= static_cast<uint64_t>(size) && bytes <= static_cast<uint64_t>(size) - at), "D-13",
            "export_dmabuf says that {} bytes lie at offset {} of a descriptor that has {} bytes", bytes, at, size);
    for (const uint8_t seed : {uint8_t{1}, uint8_t{2}}) {  // the memory itself, not a copy
      const auto all = pattern(seed);
      s.put(memory, all);
      const auto first = all.begin() + static_cast<ptrdiff_t>(from);
      require_same_bytes(parcel.fd, at, {first, first + static_cast<ptrdiff_t>(bytes)});
    }
  };
  checked(0, memory_bytes);
  checked(offset, memory_bytes - offset);
  checked(offset, 1);
  const auto refused = [&](const void* address, uint64_t bytes, const char* what) {
    Parcel none;
    uint64_t at = 0;
    require(try_dmabuf(address, bytes, none, &at) < 0, "D-13", "export_dmabuf took {}", what);
  };
  int local = 0;
  refused(&local, sizeof local, "memory of the host");
  refused(nullptr, 1, "NULL");
  const tutti_pointer p = s.classify(memory);
  const auto left = static_cast<uint64_t>(static_cast<uint8_t*>(p.base) + p.bytes - (memory + offset));
  refused(memory + offset, left + 1, "one byte more than its allocation has");
  refused(memory + offset, UINT64_MAX, "2^64 - 1 bytes");
  uint8_t* gone = s.allocate(9000);
  s.release(gone);
  refused(gone, 9000, "memory that had been released");
  require_no_growth("D-13", "exporting memory as a dma-buf and closing it", 300, 100, [&](uint32_t lives) {
    for (uint32_t k = 0; k < lives; ++k) {
      Parcel parcel;
      uint64_t at = 0;
      try_dmabuf(memory, memory_bytes, parcel, &at);
    }
  });
}

}  // namespace

std::vector<ContractCase> export_cases() {
  return {
      {"exports", "two processes see one memory", {"D-10", "D-12", "X-1", "X-9"}, 25, shared_memory},
      {"exports-wrong", "wrong records and descriptors", {"D-10", "D-11", "X-1", "X-9"}, 25, wrong_exports},
      {"dmabufs", "memory for adapters", {"D-13"}, 25, dmabufs},
      {"exports-twice", "imported, closed, and nothing is left", {"D-10", "D-12", "X-1", "X-9"}, 40, twice},
  };
}

}  // namespace tutti::conformance::contract
