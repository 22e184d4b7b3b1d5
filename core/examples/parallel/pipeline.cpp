// SPDX-License-Identifier: Apache-2.0
//
// Pipeline parallelism: each of p ranks has consecutive layers, a stage (stage.hpp). A batch is cut into m
// micro-batches, so that stages work at the same time. The order is 1F1B (Narayanan et al., PipeDream, 2019):
//
//   at first    stage s passes p - 1 - s micro-batches forward, so that the last stage gets work
//   then        one forward, one backward, in turn
//   at last     the backward passes that are left
//
// A stage keeps the activations of at most p - s micro-batches, where all forward passes first would keep those of m.
//
// Of m + p - 1 slots of a forward and a backward pass each stage has work in m: it is idle for (p-1)/(m+p-1) of the
// time, the bubble. The program prints how long each rank waited beside that; it waits for the other programs of a busy
// machine, too. More ranks than layers are refused.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "ranks.hpp"
#include "stage.hpp"

namespace {

constexpr size_t micro_batches = 8;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Pipeline {
  explicit Pipeline(const tutti::Communicator& world) : world(world), stage(world) {}

  double step(const training::Batch& batch) {
    const Clock::time_point start = Clock::now();
    const size_t ahead = std::min<size_t>(micro_batches, world.nranks() - 1 - world.rank());
    double loss = 0;
    for (size_t i = 0; i < micro_batches + ahead; ++i) {
      if (i < micro_batches) stage.pass(batch.part(i, micro_batches).pixels);
      if (i >= ahead) loss += stage.back(batch.part(i - ahead, micro_batches).labels);
    }
    stage.update(training::rate / static_cast<double>(batch.labels.size()));
    stepped += Clock::now() - start;
    waited = stage.waited();
    return loss;
  }

  Matrix predict(const Matrix& pixels) {
    Matrix logits(pixels.size() / 64 * 10);
    const Matrix& output = stage.pass(pixels);
    if (world.rank() + 1 == world.nranks()) logits = output;
    stage.drop();
    world.broadcast(logits, world.nranks() - 1);
    return logits;
  }

  std::string report() const {
    const double p = world.nranks(), bubble = (p - 1) / (micro_batches + p - 1);
    const size_t most = std::min<size_t>(micro_batches, world.nranks() - world.rank());
    ranks::require(stage.most_kept() == most, "a stage keeps " + std::to_string(stage.most_kept()) +
                                                  " micro-batches, expected " + std::to_string(most));
    char text[160];
    std::snprintf(text, sizeof text,
                  "rank %u waited %.0f %% of its steps; (p-1)/(m+p-1) is %.0f %%. It kept %zu of %zu micro-batches\n",
                  world.rank(), 100 * (waited / stepped), 100 * bubble, most, micro_batches);
    return text;
  }

  const tutti::Communicator& world;
  Stage stage;
  Seconds waited{0}, stepped{0};
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(argc, argv, "pipeline", "A network whose layers are divided among the ranks, 1F1B",
                       [](const tutti::Communicator& world) {
                         const auto pipeline = std::make_shared<Pipeline>(world);
                         return training::Way{
                             .step = [pipeline](const training::Batch& batch) { return pipeline->step(batch); },
                             .predict = [pipeline](const Matrix& pixels) { return pipeline->predict(pixels); },
                             .formulas = {training::messages_of("all borders, both ways",
                                                                pipeline->stage.crossing(training::batch_size), world)},
                             .report = [pipeline] { return pipeline->report(); }};
                       });
}
