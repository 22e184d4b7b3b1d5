// SPDX-License-Identifier: Apache-2.0
//
// A job over several pretend hosts, run by `tuttirun --hosts-as-netns K`: collectives must come out right, bytes
// between ranks of one host must travel over shm and bytes between hosts over tcp, as counted by the core and, for what
// leaves a host, by its network interface. With TUTTI_TRANSPORT=tcp everything travels over tcp. Exit status 1 and a
// message when anything differs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

// Bytes that all interfaces of this network namespace but the loopback have sent.
uint64_t interface_bytes() {
  std::ifstream table("/proc/self/net/dev");
  uint64_t total = 0;
  for (std::string line; std::getline(table, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") != std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 1));
    uint64_t value = 0;
    for (int column = 0; column <= 8; ++column) numbers >> value;  // the ninth is bytes sent
    total += value;
  }
  return total;
}

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "mixed_hosts: %s\n", text.c_str());
  std::exit(1);
}

uint32_t number(const char* name) {
  const char* text = std::getenv(name);
  if (!text) fail(std::string(name) + " is not set: start this program by tuttirun --hosts-as-netns K");
  return static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

int main() {
  try {
    const bool tcp_only = std::getenv("TUTTI_TRANSPORT") && std::strcmp(std::getenv("TUTTI_TRANSPORT"), "tcp") == 0;
    const uint64_t before = interface_bytes();
    tutti_comm_config config = tutti::Communicator::defaults();
    config.algorithms = "all_to_all:direct";
    tutti::Communicator world(config);
    const uint32_t n = world.nranks(), rank = world.rank(), first = rank - number("LOCAL_RANK");
    const uint32_t last = first + number("LOCAL_WORLD_SIZE");
    for (const size_t count : {1u, 1000u, 100'003u, 1'000'001u}) {
      std::vector<int64_t> data(count), all(count * n);
      for (size_t i = 0; i < count; ++i) data[i] = static_cast<int64_t>(i) + rank;
      world.all_gather<int64_t>(data, all);
      world.all_reduce<int64_t>(data, data, tutti::Op::sum);
      const int64_t ranks = n;
      for (size_t i = 0; i < count; ++i) {
        if (data[i] != ranks * static_cast<int64_t>(i) + ranks * (ranks - 1) / 2)
          fail("all_reduce is wrong at element " + std::to_string(i));
        if (all[i + count * (n - 1)] != static_cast<int64_t>(i) + n - 1)
          fail("all_gather is wrong at element " + std::to_string(i));
      }
    }
    // Direct exchange with everybody, so that each pair has traffic.
    std::vector<int32_t> out(50'000 * n, static_cast<int32_t>(rank)), in(out.size());
    world.all_to_all<int32_t>(out, in);
    for (uint32_t r = 0; r < n; ++r)
      if (in[50'000 * r] != static_cast<int32_t>(r)) fail("all_to_all is wrong at block " + std::to_string(r));
    world.barrier();

    uint64_t left_the_host = 0;
    std::vector<bool> seen(n);
    for (const tutti_link_traffic& row : world.traffic()) {
      const bool inside = row.peer >= first && row.peer < last;
      const char* expected = inside && !tcp_only ? "shm" : "tcp";
      if (std::strcmp(row.transport, expected) != 0)
        fail("bytes with rank " + std::to_string(row.peer) + " went over " + row.transport + ", expected " + expected);
      if (row.sent_bytes == 0 || row.received_bytes == 0) fail("no bytes with rank " + std::to_string(row.peer));
      if (!inside) left_the_host += row.sent_bytes;
      seen[row.peer] = true;
    }
    for (uint32_t r = 0; r < n; ++r)
      if (r != rank && !seen[r]) fail("no traffic with rank " + std::to_string(r));

    // The host's ranks together against the host's interface: payload plus headers, never less than the payload.
    std::vector<uint64_t> sent(n);
    world.all_gather<uint64_t>({&left_the_host, 1}, sent);
    const uint64_t measured = interface_bytes() - before;
    uint64_t counted = 0;
    for (uint32_t r = first; r < last; ++r) counted += sent[r];
    if (rank == first) {
      std::printf("ranks %u to %u: %llu bytes to other hosts by the core's count, %llu by the interface's\n", first,
                  last - 1, static_cast<unsigned long long>(counted), static_cast<unsigned long long>(measured));
      if (measured < counted || measured > counted + counted / 5 + 1'000'000)
        fail("the interface's count does not fit the core's");
    }
    world.barrier();
    return 0;
  } catch (const tutti::Error& e) {
    fail(e.what());
  }
}
