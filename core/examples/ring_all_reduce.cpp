// SPDX-License-Identifier: Apache-2.0
//
// The ring all-reduce, from send and receive alone. The vector is cut into n chunks. In each step every rank sends one
// chunk to (rank + 1) mod n and receives one from (rank - 1) mod n. After n-1 reduce-scatter steps, in which the
// received chunk is added to one's own, rank r has the whole sum of chunk (r + 1) mod n; n-1 all-gather steps pass the
// sums around. Each rank sends 2(n-1) chunks of D/n bytes: 2(n-1)/n * D, the least that is possible.
#include "ranks.hpp"

static uint64_t sent_bytes(const tutti::Communicator& world) {
  uint64_t sum = 0;
  for (const tutti_link_traffic& link : world.traffic()) sum += link.sent_bytes;
  return sum;
}

static void ring_all_reduce(const tutti::Communicator& world, std::span<float> data) {
  const uint32_t n = world.nranks(), rank = world.rank();
  const uint32_t next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const auto chunk = [&](uint32_t i) {  // any length: chunks differ by one element at most
    const size_t from = data.size() * (i % n) / n, to = data.size() * (i % n + 1) / n;
    return data.subspan(from, to - from);
  };
  std::vector<float> incoming(data.size() / n + 1);
  const auto exchange = [&](uint32_t send, std::span<float> into) {
    tutti::Request sent = world.async().send(chunk(send), next);
    world.receive(into, previous);
    sent.wait();
  };
  for (uint32_t step = 0; step + 1 < n; ++step) {
    const std::span<float> mine = chunk(rank + 2 * n - step - 1);
    exchange(rank + n - step, std::span(incoming).first(mine.size()));
    for (size_t i = 0; i < mine.size(); ++i) mine[i] += incoming[i];
  }
  for (uint32_t step = 0; step + 1 < n; ++step) exchange(rank + n + 1 - step, chunk(rank + n - step));
}

static void ring(const tutti::Communicator& world) {
  const uint32_t n = world.nranks();
  std::vector<float> data(840000), expected(data.size());  // divides by 1 ... 8, so that the formula is exact
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>((i * 31 + world.rank() * 17) % 1009);
  world.all_reduce(data, expected, tutti::Op::sum);  // small whole numbers: exact in any order

  const uint64_t before = sent_bytes(world);
  ring_all_reduce(world, data);
  const uint64_t sent = sent_bytes(world) - before;

  const double bytes = static_cast<double>(data.size() * sizeof(float));
  const double formula = 2.0 * (n - 1) / n * bytes;
  char text[160];
  std::snprintf(text, sizeof text, "D = %.0f bytes, sent %llu bytes, 2(n-1)/n * D = %.0f bytes", bytes,
                static_cast<unsigned long long>(sent), formula);
  ranks::print_in_order(world, "rank " + std::to_string(world.rank()) + ": " + text + "\n");
  ranks::require(data == expected, "the ring's sum differs from all_reduce");
  // The protocol's own envelopes and answers may count, the data itself only once.
  const double most = formula * 1.001 + 1024.0 * n;
  ranks::require(static_cast<double>(sent) >= formula - 4.0 * n && static_cast<double>(sent) <= most,
                 "sent more or less than the ring should: " + std::string(text));
}

int main(int argc, char** argv) {
  return ranks::run(argc, argv, "ring_all_reduce", "A ring all-reduce from send and receive alone", ring);
}
