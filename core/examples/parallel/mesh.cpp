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
    const double loss = softmax_loss(net.logits(mine.pixels), mine.labels, error);
    net.gradients(std::move(error));
    // The layers' sums begin together; small ones travel as one.
    data.group(
        [&] { net.each([&](Dense& layer) { data.all_reduce(layer.gradient, layer.gradient, tutti::Op::sum); }); });
    net.each([&](Dense& layer) { layer.update(training::rate / static_cast<double>(batch.labels.size())); });
    return model.rank() == 0 ? loss : 0;  // all ranks of a pair have it
  }

  std::vector<training::Formula> formulas() {
    size_t parameters = 0;
    net.each([&](const Dense& layer) { parameters += layer.weights.size(); });
    std::vector<training::Formula> all = net.formulas(training::batch_size / data.nranks());
    all.push_back(training::all_reduce_of("the gradients", parameters, data));
    return all;
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
        return training::Way{.step = [mesh](const training::Batch& batch) { return mesh->step(batch); },
                             .predict = [mesh](const Matrix& pixels) { return mesh->net.logits(pixels); },
                             .formulas = mesh->formulas(),
                             .parts =
                                 [mesh] {
                                   return std::vector<const tutti::Communicator*>{&mesh->model, &mesh->data};
                                 }};
      });
}
