// SPDX-License-Identifier: Apache-2.0
//
// How much of the communication of a data-parallel step a caller still waits for, in each wire format.
//
//   overlap_bench [MIB [LAYERS [COMPUTE_MS [STEPS]]]]      32 MiB of float32 in 16 layers, 600 ms, 5 steps
//
// A step "computes" by sleeping, as a program whose accelerator computes; so only communication takes the processor.
// Printed are medians over the steps of the slowest rank's times:
//
//   alone       all tensors are ready at once: communication alone
//   compute     what the step slept
//   step        compute and communication overlapped, from its first layer to the end of wait
//   exposed     step - compute: what the caller waited for beyond computing
//   hideable    what the best overlap could hide: a bucket of b bytes takes its share of `alone`, begins when its last
//               tensor is ready and the bucket before it has ended
//   hidden      (compute + alone - step) / hideable
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <tutti/gradients.hpp>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

struct Shape {
  size_t layers, numbers;  // of each layer
  double compute_ms;
  int steps;
};

struct Times {
  double compute = 0, step = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The slowest rank's.
double slowest(const tutti::Communicator& world, double value) {
  world.all_reduce(std::span(&value, 1), std::span(&value, 1), tutti::Op::max);
  return value;
}

Times measure(const tutti::Communicator& world, tutti::Gradients& gradients, std::vector<std::vector<float>>& layers,
              const Shape& shape, double compute_ms) {
  std::vector<double> computes, steps;
  for (int step = -1; step < shape.steps; ++step) {  // the first warms up
    world.barrier();
    const auto begin = Clock::now();
    double compute = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const auto start = Clock::now();
      if (compute_ms > 0)
        std::this_thread::sleep_for(
            std::chrono::duration<double, std::milli>(compute_ms / static_cast<double>(layers.size())));
      compute += milliseconds(Clock::now() - start);
      gradients.ready(layer, layers[layer]);
    }
    gradients.wait();
    const double total = slowest(world, milliseconds(Clock::now() - begin));
    compute = slowest(world, compute);
    if (step < 0) continue;
    steps.push_back(total);
    computes.push_back(compute);
  }
  return {median(computes), median(steps)};
}

// When the last bucket would end if every one took its share of `alone`.
double ideal_step(const tutti::Gradients& gradients, const Shape& shape, double alone, double compute) {
  const double layer_ms = alone / static_cast<double>(shape.layers);
  double end = 0;
  for (size_t layer = 0; layer < shape.layers;) {
    size_t last = layer;
    while (last + 1 < shape.layers && gradients.bucket(last + 1) == gradients.bucket(layer)) ++last;
    const double ready = compute * static_cast<double>(last + 1) / static_cast<double>(shape.layers);
    end = std::max(end, ready) + layer_ms * static_cast<double>(last + 1 - layer);
    layer = last + 1;
  }
  return end;
}

void run(const tutti::Communicator& world, const Shape& shape) {
  const struct {
    const char* name;
    tutti::Wire wire;
  } formats[] = {{"plain", tutti::Wire::plain},
                 {"float16", tutti::Wire::float16},
                 {"bfloat16", tutti::Wire::bfloat16},
                 {"float8", tutti::Wire::float8}};
  const std::vector<tutti_tensor> tensors(shape.layers, tutti::tensor(shape.numbers));
  std::vector<std::vector<float>> layers(shape.layers, std::vector<float>(shape.numbers, 0.5f));
  const double mib = static_cast<double>(shape.layers * shape.numbers * sizeof(float)) / (1 << 20);
  if (world.rank() == 0)
    std::printf("%u ranks, %.1f MiB in %zu layers, medians of %d steps\n%-9s %9s %9s %6s | %9s %9s %9s %9s %7s\n",
                world.nranks(), mib, shape.layers, shape.steps, "wire", "sent MiB", "alone ms", "speed", "compute",
                "step", "exposed", "hideable", "hidden");
  double plain = 0;
  for (const auto& format : formats) {
    tutti::Gradients gradients(
        world, tensors, {.wire = format.wire, .thread = true, .bucket_bytes = 4 << 20, .first_bucket_bytes = 1 << 20});
    const double alone = measure(world, gradients, layers, shape, 0).step;
    const double sent = static_cast<double>(gradients.facts().sent_bytes) / (shape.steps + 1) / (1 << 20);
    const Times times = measure(world, gradients, layers, shape, shape.compute_ms);
    if (plain == 0) plain = alone;
    const double hideable = times.compute + alone - ideal_step(gradients, shape, alone, times.compute);
    if (world.rank() == 0)
      std::printf("%-9s %9.1f %9.1f %5.2fx | %9.1f %9.1f %9.1f %9.1f %6.1f%%\n", format.name, sent, alone,
                  plain / alone, times.compute, times.step, times.step - times.compute, hideable,
                  100 * (times.compute + alone - times.step) / hideable);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const auto argument = [&](int i, long otherwise) { return argc > i ? std::atol(argv[i]) : otherwise; };
  const long mib = argument(1, 32), layers = argument(2, 16), compute = argument(3, 600), steps = argument(4, 5);
  if (argc > 5 || mib < 1 || layers < 1 || compute < 1 || steps < 1) {
    std::fprintf(stderr, "usage: overlap_bench [MIB [LAYERS [COMPUTE_MS [STEPS]]]], all at least 1\n");
    return 2;
  }
  const tutti::Communicator world;
  run(world, {static_cast<size_t>(layers), static_cast<size_t>(mib) * (1 << 18) / static_cast<size_t>(layers),
              static_cast<double>(compute), static_cast<int>(steps)});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "overlap_bench: %s\n", error.what());
  return 1;
}
