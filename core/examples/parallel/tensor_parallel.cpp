// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism: every rank takes all samples and a part of two layers (tensor_parallel.hpp).
#include "tensor_parallel.hpp"

#include <memory>

int main(int argc, char** argv) {
  return training::run(argc, argv, "tensor_parallel", "A network whose wide layers are divided among the ranks",
                       [](const tutti::Communicator& world) {
                         const auto net = std::make_shared<TensorParallel>(world);
                         const auto step = [net, root = world.rank() == 0](const training::Batch& batch) {
                           Matrix error;
                           const double loss = softmax_loss(net->logits(batch.pixels), batch.labels, error);
                           net->gradients(std::move(error));
                           const double rate = training::rate / static_cast<double>(batch.labels.size());
                           net->each([&](Dense& layer) { layer.update(rate); });
                           return root ? loss : 0;  // all ranks have it
                         };
                         return training::Way{.step = step,
                                              .predict = [net](const Matrix& pixels) { return net->logits(pixels); },
                                              .formulas = net->formulas(training::batch_size)};
                       });
}
