// SPDX-License-Identifier: Apache-2.0
//
// Groups of sends and receives of device or host memory, with what is to come, over each way that bytes can take.
#pragma once

#include <algorithm>
#include <map>

#include "stream_ranks.hpp"

namespace tutti::test {

inline constexpr uint64_t slot = 1u << 20;

struct Layout {
  const char* name;
  uint32_t per_process;  // 0: all
  const char* transports;
};
inline constexpr Layout layouts[] = {
    {"mapped", 1, nullptr}, {"staged", 1, "shm"}, {"threads", 0, nullptr}, {"mixed", 2, nullptr}};

inline void run(const Layout& layout, uint32_t n, const Body& body) {
  SCOPED_TRACE(layout.name);
  run_processes(n, layout.per_process ? layout.per_process : n, body, "", [&](uint32_t) {
    if (layout.transports) setenv("TUTTI_TRANSPORT", layout.transports, 1);
  });
}

// The k-th message from one rank to another: bytes that differ between messages and between fragments. `each` is called
// with each stretch of it: where it is, how many bytes, and what they are.
template <typename Each>
void for_each_stretch(uint32_t from, uint32_t to, uint64_t k, uint64_t bytes, Each&& each) {
  static const std::vector<uint8_t> pattern = [] {
    std::vector<uint8_t> made(65521);
    uint64_t random = 1;
    for (uint8_t& byte : made)
      byte = static_cast<uint8_t>(1 + ((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % 255);
    return made;
  }();
  uint64_t at = (from * 3779 + to * 1409 + k * 211) % pattern.size();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t n = std::min(bytes - done, pattern.size() - at);
    each(done, n, pattern.data() + at);
    done += n;
    at = 0;
  }
}

// A group under construction, on device or host memory, with what is to come.
class Group {
 public:
  Group(tutti_comm* comm, Stream* stream) : comm_(comm), stream_(stream), rank_(tutti_comm_rank(comm)) {}
  ~Group() {
    for (const Buffer& b : buffers_)
      if (stream_)
        stream_->free(b.data);
      else
        delete[] b.data;
  }
  void send(uint32_t to, uint64_t bytes, uint32_t tag) {
    uint8_t* data = make(bytes);
    const uint64_t k = sent_[to]++;
    for_each_stretch(rank_, to, k, bytes,
                     [&](uint64_t at, uint64_t n, const uint8_t* from) { std::memcpy(data + at, from, n); });
    buffers_.push_back({data, bytes, rank_, to, k});
    messages.push_back({bytes ? data : nullptr, bytes, TUTTI_UINT8, to, tag, TUTTI_SEND});
  }
  void receive(uint32_t from, uint64_t bytes, uint32_t tag) {
    uint8_t* data = make(bytes);
    buffers_.push_back({data, bytes, from, rank_, received_[from]++});
    messages.push_back({bytes ? data : nullptr, bytes, TUTTI_UINT8, from, tag, TUTTI_RECEIVE});
  }
  void check() const {
    for (const Buffer& b : buffers_) {
      for_each_stretch(b.from, b.to, b.k, b.bytes, [&](uint64_t at, uint64_t n, const uint8_t* expected) {
        EXPECT_EQ(std::memcmp(b.data + at, expected, n), 0) << "behind " << at << " of message " << b.k << " of "
                                                            << b.bytes << " bytes from " << b.from << " to " << b.to;
      });
      for (uint64_t i = b.bytes; i < b.bytes + guard; ++i) ASSERT_EQ(b.data[i], 0) << "behind the message";
    }
  }
  tutti_status go(tutti_request** request = nullptr, uint64_t timeout_ns = 0) const {
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = stream_ ? stream_->handle : nullptr;
    options.timeout_ns = timeout_ns;
    return tutti_exchange(comm_, messages.data(), messages.size(), &options, request);
  }
  std::vector<tutti_message> messages;

 private:
  static constexpr uint64_t guard = 16;
  struct Buffer {
    uint8_t* data;
    uint64_t bytes;
    uint32_t from, to;
    uint64_t k;
  };
  uint8_t* make(uint64_t bytes) const {
    auto* data = stream_ ? stream_->make<uint8_t>(bytes + guard) : new uint8_t[bytes + guard];
    std::memset(data, 0, bytes + guard);
    return data;
  }
  tutti_comm* comm_;
  Stream* stream_;
  uint32_t rank_;
  std::map<uint32_t, uint64_t> sent_, received_;
  std::vector<Buffer> buffers_;
};

// Every rank with every rank, itself included, in different sizes.
inline void add_all_to_all(Group& group, uint32_t rank, uint32_t n, uint64_t unit) {
  const auto size = [&](uint32_t from, uint32_t to) { return (uint64_t{from} * 3 + to) % 5 * unit + from; };
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t to = (rank + i) % n, from = (rank + n - i) % n;
    group.send(to, size(rank, to), rank * n + to);
    group.receive(from, size(from, rank), from * n + rank);
  }
}

}  // namespace tutti::test
