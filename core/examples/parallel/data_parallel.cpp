// SPDX-License-Identifier: Apache-2.0
//
// Data parallelism with buckets (Li et al., PyTorch Distributed, 2020): every rank has all parameters and takes its
// part of the batch. The gradients are summed over the ranks while the backward pass still computes:
//
//   backward   layer by layer, the last first; each layer's gradient is marked ready as soon as it is computed
//   a bucket   of consecutive layers starts its all_reduce when its last layer is ready
//   wait       for the buckets that are still on their way; then every rank takes the same step
//
// The library's buckets do that (tutti/gradients.hpp). Their default sizes, 25 MiB and 1 MiB for the first, would make
// one bucket of this network; here a bucket takes two layers at most.
#include <cstdio>
#include <memory>
#include <tutti/gradients.hpp>

#include "training.hpp"

namespace {

struct DataParallel {
  explicit DataParallel(const tutti::Communicator& world)
      : world(world),
        layers(training::network()),
        buckets(world, tensors(),
                {.op = tutti::Op::sum, .bucket_bytes = size_t{32} << 10, .first_bucket_bytes = size_t{8} << 10}) {}

  // In the order in which their gradients are computed: the last layer first.
  std::vector<tutti_tensor> tensors() const {
    std::vector<tutti_tensor> all;
    for (size_t i = layers.size(); i-- > 0;) all.push_back(tutti::tensor<double>(layers[i].gradient.size()));
    return all;
  }

  double step(const training::Batch& batch) {
    const training::Batch part = batch.part(world.rank(), world.nranks());
    const std::vector<Matrix> activations = forward(layers, part.pixels);
    Matrix error;
    const double loss = softmax_loss(activations.back(), part.labels, error);
    for (size_t i = layers.size(); i-- > 0;) {
      error = layers[i].backward(activations[i], activations[i + 1], std::move(error));
      buckets.ready(layers.size() - 1 - i, layers[i].gradient);  // which is the bucket's until wait returns
    }
    buckets.wait();
    update(layers, training::rate / static_cast<double>(batch.labels.size()));
    return loss;
  }

  std::string report() const {
    const tutti_gradients_facts facts = buckets.facts();
    char text[160];
    std::snprintf(
        text, sizeof text,
        "rank %u: %u buckets a step, %llu of %llu complete before the step waited; it waited %.3f ms a step\n",
        world.rank(), facts.buckets, static_cast<unsigned long long>(facts.early),
        static_cast<unsigned long long>(facts.started),
        static_cast<double>(facts.exposed_ns) * 1e-6 / static_cast<double>(facts.steps));
    return text;
  }
  size_t parameters() const {
    size_t count = 0;
    for (const Dense& layer : layers) count += layer.weights.size();
    return count;
  }

  const tutti::Communicator& world;
  std::vector<Dense> layers;
  tutti::Gradients buckets;
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(
      argc, argv, "data_parallel", "Gradients in buckets that are summed while the backward pass goes on",
      [](const tutti::Communicator& world) {
        const auto way = std::make_shared<DataParallel>(world);
        return training::Way{.step = [way](const training::Batch& batch) { return way->step(batch); },
                             .predict = [way](const Matrix& pixels) { return forward(way->layers, pixels).back(); },
                             .formulas = {training::all_reduce_of("the gradient", way->parameters(), world)},
                             .sent = [way] { return way->buckets.facts().sent_bytes; },
                             .report = [way] { return way->report(); }};
      });
}
