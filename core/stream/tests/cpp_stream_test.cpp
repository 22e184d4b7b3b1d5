// SPDX-License-Identifier: Apache-2.0
//
// tutti.hpp on device memory: a pointer and a count, in a stream.
#include <tutti/tutti.hpp>

#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

TEST(CppStreams, CallsGoIntoTheStream) {
  constexpr uint32_t n = 3, count = 1000;
  std::vector<std::thread> ranks;
  for (uint32_t r = 0; r < n; ++r)
    ranks.emplace_back([r] {
      Communicator world("local:cpp-streams", r, n, "simulated:0");
      Stream stream;
      const DeviceSpan<float16> in(stream.make<float16>(count), count), out(stream.make<float16>(count), count);
      std::fill_n(in.data(), count, float16(static_cast<float>(r + 1)));  // simulated memory is the host's
      Gate gate;
      gate.hold(stream);
      const Options options{.stream = stream.handle, .timeout = std::chrono::seconds(60)};
      Request request = world.async().all_reduce(in, out, Op::sum, options);
      EXPECT_FALSE(request.test()) << "the stream has not passed the gate";
      world.all_reduce(out, out, Op::avg, options);
      world.broadcast(out, in, 1, options);
      world.exchange({send(in, (r + 1) % n), receive(out, (r + n - 1) % n)}, options);
      gate.open();
      request.wait();
      EXPECT_TRUE(stream.finish());
      for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(in.data()[i], 6.0f) << i;
      for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(out.data()[i], 6.0f) << i;
      world.barrier();
      stream.free(in.data());
      stream.free(out.data());
    });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tutti::test
