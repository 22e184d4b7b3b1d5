// SPDX-License-Identifier: Apache-2.0
//
// ZeRO, stage 1 (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020): data
// parallelism in which each rank keeps the optimizer's state of its shard of the parameters alone.
//
//   reduce_scatter    each rank gets the sum of its shard of the gradient
//   update            of its shard, with momentum: the state that only this rank has
//   all_gather        everyone gets all shards
//
// Together they send what an all_reduce of the gradient sends.
#include <algorithm>
#include <memory>

#include "training.hpp"

namespace {

constexpr double momentum = 0.9;

struct Zero {
  explicit Zero(const tutti::Communicator& world) : world(world), layers(training::network()) {
    size_t parameters = 0;
    for (const Dense& layer : layers) parameters += layer.weights.size();
    const size_t shard = (parameters + world.nranks() - 1) / world.nranks();
    velocity.resize(shard);
    mine.resize(shard);
    all.resize(shard * world.nranks());  // the last shard may end in padding
  }

  double step(const training::Batch& batch) {
    const training::Batch part = batch.part(world.rank(), world.nranks());
    const std::vector<Matrix> activations = forward(layers, part.pixels);
    Matrix error;
    const double loss = softmax_loss(activations.back(), part.labels, error);
    backward(layers, activations, std::move(error));

    size_t at = 0;
    for (Dense& layer : layers) {
      std::ranges::copy(layer.gradient, all.begin() + static_cast<std::ptrdiff_t>(at));
      at += layer.gradient.size();
      std::ranges::fill(layer.gradient, 0.0);
    }
    world.reduce_scatter(all, mine, tutti::Op::sum);
    const double factor = (1 - momentum) * training::rate / static_cast<double>(batch.labels.size());
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = velocity[i] = momentum * velocity[i] + factor * mine[i];
    world.all_gather(mine, all);  // the change of every parameter
    at = 0;
    for (Dense& layer : layers)
      for (double& weight : layer.weights) weight -= all[at++];
    return loss;
  }

  const tutti::Communicator& world;
  std::vector<Dense> layers;
  std::vector<double> velocity, mine, all;
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(argc, argv, "zero", "Data parallelism with the optimizer's state divided among the ranks",
                       [](const tutti::Communicator& world) {
                         const auto zero = std::make_shared<Zero>(world);
                         return training::Way{
                             .step = [zero](const training::Batch& batch) { return zero->step(batch); },
                             .predict = [zero](const Matrix& x) { return forward(zero->layers, x).back(); },
                             .formulas = {training::reduce_scatter_of("the gradient", zero->all.size(), world),
                                          training::all_gather_of("the update", zero->all.size(), world)}};
                       });
}
