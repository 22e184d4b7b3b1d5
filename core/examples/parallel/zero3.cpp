// SPDX-License-Identifier: Apache-2.0
//
// Sharded parameters, as ZeRO's stage 3 (Rajbhandari et al., 2020) and PyTorch's FSDP have them: data parallelism in
// which each rank keeps 1/n of every layer's parameters, and the whole of a layer only while it computes with it.
//
//   forward    all_gather of a layer's parameters; the next layer's is under way while this one is computed
//   backward   the same once more, from the last layer to the first; then a reduce_scatter of the layer's gradient,
//              which goes on while the layers before are computed
//   update     of this rank's shards alone
//
// It sends 3 D (n-1)/n, where an all_reduce of the gradient would send 2 D (n-1)/n: the price of the memory.
#include <cstdio>
#include <memory>

#include "sharded_layer.hpp"
#include "training.hpp"

namespace {

struct Sharded {
  explicit Sharded(const tutti::Communicator& world) : world(world) {
    for (const Dense& layer : training::network()) layers.emplace_back(world, layer, memory);
  }

  std::vector<Matrix> pass(const Matrix& pixels) {
    std::vector<Matrix> activations{pixels};
    layers.front().gather();
    for (size_t i = 0; i < layers.size(); ++i) {
      const Dense& whole = layers[i].whole();
      if (i + 1 < layers.size()) layers[i + 1].gather();
      activations.push_back(whole.forward(activations.back()));
      layers[i].drop();
    }
    return activations;
  }

  double step(const training::Batch& batch) {
    const training::Batch part = batch.part(world.rank(), world.nranks());
    const std::vector<Matrix> activations = pass(part.pixels);
    Matrix error;
    const double loss = softmax_loss(activations.back(), part.labels, error);
    layers.back().gather();
    for (size_t i = layers.size(); i-- > 0;) {
      Dense& whole = layers[i].whole();
      if (i > 0) layers[i - 1].gather();
      error = whole.backward(activations[i], activations[i + 1], std::move(error));
      layers[i].drop();
      layers[i].scatter();
    }
    for (ShardedLayer& layer : layers) layer.update(training::rate / static_cast<double>(batch.labels.size()));
    return loss;
  }

  size_t parameters() const {
    size_t count = 0;
    for (const ShardedLayer& layer : layers) count += layer.padded();
    return count;
  }
  std::string report() const {
    char text[120];
    std::snprintf(text, sizeof text, "rank %u kept 1 in %u of %zu parameters, and at most %zu more at a time\n",
                  world.rank(), world.nranks(), parameters(), memory.most);
    return text;
  }

  const tutti::Communicator& world;
  Memory memory;
  std::vector<ShardedLayer> layers;
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(
      argc, argv, "zero3", "Parameters divided among the ranks, gathered layer by layer",
      [](const tutti::Communicator& world) {
        const auto sharded = std::make_shared<Sharded>(world);
        return training::Way{
            .step = [sharded](const training::Batch& batch) { return sharded->step(batch); },
            .predict = [sharded](const Matrix& pixels) { return sharded->pass(pixels).back(); },
            .formulas = {training::all_gather_of("parameters, twice", 2 * sharded->parameters(), world),
                         training::reduce_scatter_of("the gradient", sharded->parameters(), world)},
            .report = [sharded] { return sharded->report(); }};
      });
}
