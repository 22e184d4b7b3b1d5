// SPDX-License-Identifier: Apache-2.0
//
// Tensors in the memory of a device: the simulated one, whose memory is the host's.
#include <gtest/gtest.h>

#include <thread>
#include <tutti/gradients.hpp>
#include <vector>

#include "ranks.hpp"
#include "stream_ranks.hpp"

namespace tutti::test {
namespace {

void on_device(const std::function<void(Communicator&, Stream&)>& body) {
  const std::string place = fresh_place();
  std::vector<std::thread> ranks;
  for (uint32_t r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      Communicator world(place, r, 2, "simulated:0");
      Stream stream;
      body(world, stream);
    });
  for (std::thread& rank : ranks) rank.join();
}

GradientSettings settings_on(const Stream& stream) {
  return {.op = Op::sum, .bucket_bytes = 1000, .first_bucket_bytes = 1000, .device = true, .stream = stream.handle};
}

// Types alternate: a bucket of consecutive tensors has one type, and no gaps. Marks come in another order than
// declared.
TEST(DeviceGradients, TheDeclaredOrderStaysAndBucketsAreOfConsecutiveTensors) {
  on_device([](Communicator& world, Stream& stream) {
    const std::vector<tutti_tensor> tensors{tensor<float>(100), tensor<float>(60), tensor<double>(50),
                                            tensor<float>(70)};
    float* const floats = stream.make<float>(230);
    double* const doubles = stream.make<double>(50);
    Gradients gradients(world, tensors, settings_on(stream));
    for (int step = 0; step < 3; ++step) {
      std::fill_n(floats, 230, static_cast<float>(world.rank() + 1));
      std::fill_n(doubles, 50, world.rank() + 1.0);
      gradients.ready(3, DeviceSpan<float>(floats + 160, 70));
      gradients.ready(2, DeviceSpan<double>(doubles, 50));
      gradients.ready(1, DeviceSpan<float>(floats + 100, 60));
      gradients.ready(0, DeviceSpan<float>(floats, 100));
      gradients.wait();
      EXPECT_TRUE(stream.finish());
      for (int i = 0; i < 230; ++i) ASSERT_EQ(floats[i], 3.0f) << i;
      for (int i = 0; i < 50; ++i) ASSERT_EQ(doubles[i], 3.0) << i;
      const std::vector<uint64_t> expected{0, 0, 1, 2};
      for (uint64_t t = 0; t < 4; ++t) EXPECT_EQ(gradients.bucket(t), expected[t]);
      world.barrier();
    }
    stream.free(floats);
    stream.free(doubles);
  });
}

TEST(DeviceGradients, GapsAndUnusedTensorsAreRefused) {
  on_device([](Communicator& world, Stream& stream) {
    float* const data = stream.make<float>(300);
    {
      Gradients gradients(world, std::vector<tutti_tensor>{tensor(100), tensor(100)}, settings_on(stream));
      const Failed unused = failure_of([&] { gradients.unused(1); });
      EXPECT_EQ(unused.status, TUTTI_NOT_SUPPORTED);
      EXPECT_NE(unused.text.find("fill it with zeros"), std::string::npos) << unused.text;
      gradients.ready(0, DeviceSpan<float>(data, 100));
      const Failed gap = failure_of([&] { gradients.ready(1, DeviceSpan<float>(data + 200, 100)); });
      EXPECT_EQ(gap.status, TUTTI_INVALID_USAGE);
      EXPECT_NE(gap.text.find("do not lie one after another"), std::string::npos) << gap.text;
    }
    world.barrier();
    stream.free(data);
  });
}

TEST(DeviceGradients, ATensorThatIsFreedBeforeItsBucketStartsIsFound) {
  on_device([](Communicator& world, Stream& stream) {
    float* const data = stream.make<float>(200);
    Gradients gradients(world, std::vector<tutti_tensor>{tensor(100), tensor(100)}, settings_on(stream));
    gradients.ready(0, DeviceSpan<float>(data, 100));
    stream.free(data);
    const Failed freed = failure_of([&] { gradients.ready(1, DeviceSpan<float>(data + 100, 100)); });
    EXPECT_EQ(freed.status, TUTTI_INVALID_ARGUMENT) << freed.text;
  });
}

}  // namespace
}  // namespace tutti::test
