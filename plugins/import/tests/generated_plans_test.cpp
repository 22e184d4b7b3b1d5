// SPDX-License-Identifier: Apache-2.0
//
// Plans of every size that this test writes, with several channels, in place and not. Their schedules are proved by the
// core, whatever the plugin thinks of them.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <sstream>

#include "imported.hpp"

namespace tutti::test {
namespace {

// An XML file on its way.
class Writer {
 public:
  Writer(const std::string& collective, uint32_t ranks, uint32_t chunks, uint32_t channels, bool in_place) {
    text_ << "<algo name=\"generated\" proto=\"Simple\" nchannels=\"" << channels << "\" nchunksperloop=\"" << chunks
          << "\" ngpus=\"" << ranks << "\" coll=\"" << collective << "\" inplace=\"" << in_place << "\">\n";
  }
  void gpu(uint32_t id, uint32_t in, uint32_t out, uint32_t scratch) {
    close(1);
    text_ << "<gpu id=\"" << id << "\" i_chunks=\"" << in << "\" o_chunks=\"" << out << "\" s_chunks=\"" << scratch
          << "\">\n";
    depth_ = 1, block_ = 0;
  }
  void block(int send, int recv, uint32_t channel) {
    close(2);
    text_ << "<tb id=\"" << block_++ << "\" send=\"" << send << "\" recv=\"" << recv << "\" chan=\"" << channel
          << "\">\n";
    depth_ = 2, step_ = 0;
  }
  // `after`: the step of another thread block, {-1, -1}: none.
  void step(const std::string& type, char src, uint32_t src_first, char dst, uint32_t dst_first, uint32_t count = 1,
            std::pair<int, int> after = {-1, -1}) {
    text_ << "<step s=\"" << step_++ << "\" type=\"" << type << "\" srcbuf=\"" << src << "\" srcoff=\"" << src_first
          << "\" dstbuf=\"" << dst << "\" dstoff=\"" << dst_first << "\" cnt=\"" << count << "\" depid=\""
          << after.first << "\" deps=\"" << after.second << "\" hasdep=\"1\"/>\n";
  }
  std::string end() {
    close(0);
    return text_.str();
  }

 private:
  void close(uint32_t depth) {
    if (depth_ == 2 && depth <= 2) text_ << "</tb>\n";
    if (depth_ >= 1 && depth <= 1) text_ << "</gpu>\n";
    if (depth == 0) text_ << "</algo>\n";
    depth_ = std::min(depth_, depth);
  }
  std::ostringstream text_;
  uint32_t depth_ = 0, block_ = 0, step_ = 0;
};

void expect_proved(const std::string& plan, uint32_t collective, uint32_t ranks, uint32_t lanes) {
  const auto all = import(write_plan("generated.xml", plan));
  ASSERT_EQ(all.size(), 1u) << import_error << "\n" << plan;
  Problem problem{.collective = collective, .nranks = ranks};
  for (problem.lanes = 1; problem.lanes <= lanes; ++problem.lanes) {
    const Proof proof = verify_algorithm(*all[0], problem);
    ASSERT_TRUE(proof.ok()) << proof.error << "\n" << plan;
    ASSERT_EQ(proof.lanes, problem.lanes);
  }
}

// A ring on each channel, as MSCCL's own rings are: chunks go around twice, reduced and then copied.
std::string ring_all_reduce(uint32_t n, uint32_t channels, bool in_place) {
  Writer writer("allreduce", n, n * channels, channels, in_place);
  const char result = in_place ? 'i' : 'o';
  for (uint32_t r = 0; r < n; ++r) {
    writer.gpu(r, n * channels, n * channels, 0);
    for (uint32_t c = 0; c < channels; ++c) {
      writer.block(static_cast<int>((r + 1) % n), static_cast<int>((r + n - 1) % n), c);
      const auto chunk = [&](uint32_t back) { return c * n + (r + 2 * n - back) % n; };
      writer.step("s", 'i', chunk(0), 'o', 0);
      for (uint32_t k = 1; k + 1 < n; ++k) writer.step("rrs", 'i', chunk(k), 'o', 0);
      writer.step("rrcs", 'i', chunk(n - 1), result, chunk(n - 1));
      for (uint32_t k = n; k + 1 < 2 * n - 1; ++k) writer.step("rcs", 'i', 0, result, chunk(k));
      writer.step("r", 'i', 0, result, chunk(2 * n - 2));
    }
  }
  return writer.end();
}

TEST(GeneratedPlans, RingsOfSeveralChannels) {
  for (const uint32_t n : {2u, 3u, 5u, 8u})
    for (const uint32_t channels : {1u, 3u})
      for (const bool in_place : {false, true})
        expect_proved(ring_all_reduce(n, channels, in_place), TUTTI_ALL_REDUCE, n, channels);
}

// Data that come on one channel go on by the other, so lanes depend on each other.
TEST(GeneratedPlans, ChainsThatChangeChannels) {
  for (const uint32_t n : {3u, 6u}) {
    Writer writer("broadcast", n, 2, 2, false);
    for (uint32_t r = 0; r < n; ++r) {
      writer.gpu(r, 2, 2, 0);
      if (r > 0) writer.block(-1, static_cast<int>(r) - 1, r % 2), writer.step("r", 'i', 0, 'o', 0, 2);
      if (r + 1 < n) writer.block(static_cast<int>(r) + 1, -1, (r + 1) % 2);
      if (r + 1 < n && r > 0) writer.step("s", 'o', 0, 'o', 0, 2, {0, 0});
      if (r == 0) writer.step("s", 'i', 0, 'o', 0, 2), writer.step("cpy", 'i', 0, 'o', 0, 2);
    }
    expect_proved(writer.end(), TUTTI_BROADCAST, n, 2);
  }
}

// Each pair swaps blocks in one buffer, relying on sends that are buffered. On one channel for all, and on one for each
// distance.
TEST(GeneratedPlans, SwapsInPlace) {
  for (const uint32_t n : {2u, 3u, 4u, 7u})
    for (const uint32_t count : {1u, 3u})
      for (const bool in_place : {false, true})
        for (const bool own_channels : {false, true}) {
          Writer writer("alltoall", n, n * count, n, in_place);
          for (uint32_t r = 0; r < n; ++r) {
            writer.gpu(r, n * count, n * count, 0);
            if (!in_place) writer.block(-1, -1, 0), writer.step("cpy", 'i', r * count, 'o', r * count, count);
            for (uint32_t p = 0; p < n; ++p) {
              if (p == r) continue;
              writer.block(static_cast<int>(p), static_cast<int>(p), own_channels ? (p + r) % n : 0);
              writer.step("s", 'i', p * count, 'o', 0, count);
              writer.step("r", 'i', 0, 'o', p * count, count);
            }
          }
          const auto all = import(write_plan("generated.xml", writer.end()));
          ASSERT_EQ(all.size(), 1u) << import_error;
          const Proof proof = verify_algorithm(*all[0], {.collective = TUTTI_ALL_TO_ALL, .nranks = n});
          ASSERT_TRUE(proof.ok()) << proof.error << "\n" << writer.end();
        }
}

// The output is written before the input has been read for the last time, so that a call in place copies it first.
TEST(GeneratedPlans, InputsThatAreReadLate) {
  for (const uint32_t n : {2u, 3u, 6u}) {
    Writer writer("allreduce", n, 2, 1, false);
    for (uint32_t r = 0; r < n; ++r) {
      writer.gpu(r, 2, 2, 2 * n);
      writer.block(-1, -1, 0);
      writer.step("cpy", 'i', 0, 'o', 0, 2);
      std::vector<uint32_t> peers;
      for (uint32_t p = 0; p < n; ++p)
        if (p != r) peers.push_back(p);
      for (uint32_t k = 0; k < peers.size(); ++k)
        writer.step("re", 's', 2 * peers[k], 'o', 0, 2, {static_cast<int>(k) + 1, 1});
      for (const uint32_t p : peers) {
        writer.block(static_cast<int>(p), static_cast<int>(p), 0);
        writer.step("s", 'i', 0, 'o', 0, 2);
        writer.step("r", 'i', 0, 's', 2 * p, 2);
      }
    }
    expect_proved(writer.end(), TUTTI_ALL_REDUCE, n, 1);
  }
}

// Scratch serves as a place for one chunk after the other, and the output for chunks of other pieces.
TEST(GeneratedPlans, CellsThatHoldSeveralChunks) {
  for (const uint32_t n : {2u, 4u}) {
    Writer writer("allgather", n, n * 3, 1, false);
    for (uint32_t r = 0; r < n; ++r) {
      writer.gpu(r, 3, n * 3, 1);
      writer.block(static_cast<int>((r + 1) % n), static_cast<int>((r + n - 1) % n), 0);
      writer.step("cpy", 'i', 2, 'o', 0);  // overwritten by what belongs there
      writer.step("cpy", 'i', 0, 'o', 3 * r, 3);
      for (uint32_t k = 0; k < n; ++k)
        for (uint32_t piece = 0; piece < 3; ++piece) {
          const uint32_t mine = (r + n - k) % n;
          if (k > 0) writer.step("r", 'i', 0, 's', 0), writer.step("cpy", 's', 0, 'o', 3 * mine + piece);
          if (k + 1 < n) writer.step("s", 'o', 3 * mine + piece, 'o', 0);
        }
    }
    expect_proved(writer.end(), TUTTI_ALL_GATHER, n, 1);
  }
}

// A single rank has nothing to exchange.
TEST(GeneratedPlans, OneRank) {
  for (const bool in_place : {false, true}) {
    Writer writer("allreduce", 1, 2, 1, in_place);
    writer.gpu(0, 2, 2, 0);
    writer.block(-1, -1, 0);
    writer.step("cpy", 'i', 0, 'o', 0, 2);
    expect_proved(writer.end(), TUTTI_ALL_REDUCE, 1, 1);
  }
}

// Sizes outside minBytes and maxBytes are refused, as far as their class tells.
TEST(GeneratedPlans, OtherSizesAreRefused) {
  std::string plan = ring_all_reduce(2, 1, true);
  plan.insert(plan.find(" coll="), " minBytes=\"1024\" maxBytes=\"4095\"");
  const auto all = import(write_plan("generated.xml", plan));
  ASSERT_EQ(all.size(), 1u) << import_error;
  for (const auto& [bytes, served] : {std::pair{0u, true}, std::pair{511u, false}, std::pair{1023u, false},
                                      std::pair{2047u, true}, std::pair{4095u, true}, std::pair{8191u, false}}) {
    const Problem problem{.collective = TUTTI_ALL_REDUCE, .nranks = 2, .block_bytes = bytes};
    const tutti_query query = make_query(problem, 0);
    EXPECT_EQ(all[0]->supports(all[0]->self, &query), served ? TUTTI_OK : TUTTI_NOT_SUPPORTED) << bytes;
  }
}

}  // namespace
}  // namespace tutti::test
