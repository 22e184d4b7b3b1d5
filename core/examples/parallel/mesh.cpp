// SPDX-License-Identifier: Apache-2.0
//
// A mesh of data and tensor parallelism: ranks 2 k and 2 k + 1 divide two layers between them (tensor_parallel.hpp),
// and each such pair takes its part of the batch. Communicators are the rows and columns of the mesh:
//
//   model    the ranks of one pair: activations are summed
//   data     the ranks that have the same part of the layers: gradients are summed
//
// An odd number of ranks has no pairs: then it is data parallelism alone.
#include <memory>
#include <optional>

#include "tensor_parallel.hpp"

namespace {

struct Mesh {
  explicit Mesh(const tutti::Communicator& world)
      : width(world.nranks() % 2 == 0 ? 2 : 1),
        model(*world.split(world.rank() / width, 0, "model")),
        data(*world.split(world.rank() % width, 0, "data")),
        net(model) {}

  double step(const training::Batch& batch) {
    const training::Batch mine = batch.part(data.rank(), data.nranks());
    Matrix error;
    double loss = softmax_loss(net.logits(mine.pixels), mine.labels, error);
    net.gradients(std::move(error));
    // Many small sums begin together and travel as one.
    data.group([&] {
      net.each([&](Dense& layer) { data.all_reduce(layer.gradient, layer.gradient, tutti::Op::sum); });
      data.all_reduce(std::span(&loss, 1), std::span(&loss, 1), tutti::Op::sum);
    });
    net.each([&](Dense& layer) { layer.update(training::rate / static_cast<double>(batch.labels.size())); });
    return loss;
  }

  uint32_t width;
  tutti::Communicator model, data;
  TensorParallel net;
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(
      argc, argv, "mesh", "Data and tensor parallelism at once: a mesh of ranks", [](const tutti::Communicator& world) {
        const auto mesh = std::make_shared<Mesh>(world);
        return training::Way{[mesh](const training::Batch& batch) { return mesh->step(batch); },
                             [mesh](const Matrix& pixels) { return mesh->net.logits(pixels); },
                             [mesh] {
                               return std::vector<const tutti::Communicator*>{&mesh->model, &mesh->data};
                             }};
      });
}
