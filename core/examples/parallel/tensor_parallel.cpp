// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism: every rank takes all samples and a part of two layers (tensor_parallel.hpp).
#include "tensor_parallel.hpp"

#include <memory>

int main(int argc, char** argv) {
  return training::run(argc, argv, "tensor_parallel", "A network whose wide layers are divided among the ranks",
                       [](const tutti::Communicator& world) {
                         const auto net = std::make_shared<TensorParallel>(world);
                         const auto step = [net](const training::Batch& batch) {
                           Matrix error;
                           const double loss = softmax_loss(net->logits(batch.pixels), batch.labels, error);
                           net->gradients(std::move(error));
                           const double rate = training::rate / static_cast<double>(batch.labels.size());
                           net->each([&](Dense& layer) { layer.update(rate); });
                           return loss;
                         };
                         return training::Way{step, [net](const Matrix& pixels) { return net->logits(pixels); }};
                       });
}
