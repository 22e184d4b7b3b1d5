// SPDX-License-Identifier: Apache-2.0
//
// Pipeline parallelism (Huang et al., GPipe, 2019): each rank has consecutive layers. A batch is cut into
// micro-batches, so that ranks work at the same time: while one computes the third, the next computes the second.
//
//   forward     micro-batch by micro-batch: receive activations from the rank before, compute, send to the next
//   backward    in reverse: receive d loss / d output from the next rank, compute, send to the one before
//
// More ranks than layers are refused.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "training.hpp"

namespace {

constexpr size_t micro_batches = 4;

struct Stage {
  explicit Stage(const tutti::Communicator& world) : world(world) {
    const std::vector<Dense> all = training::network();
    if (world.nranks() > all.size())
      throw std::runtime_error("the network has " + std::to_string(all.size()) + " layers, at most one rank for each");
    const auto at = [&](size_t rank) {
      return all.begin() + static_cast<std::ptrdiff_t>(part_begin(all.size(), rank, world.nranks()));
    };
    layers.assign(at(world.rank()), at(world.rank() + 1));
  }
  bool is_first() const { return world.rank() == 0; }
  bool is_last() const { return world.rank() + 1 == world.nranks(); }

  // This stage's part of the forward pass of some samples.
  std::vector<Matrix> pass(const Matrix& pixels) {
    const size_t rows = pixels.size() / training::network()[0].inputs;
    Matrix x = is_first() ? pixels : Matrix(rows * layers.front().inputs);
    if (!is_first() && rows > 0) world.receive(x, world.rank() - 1);
    std::vector<Matrix> activations = forward(layers, std::move(x));
    if (!is_last() && rows > 0) world.send(activations.back(), world.rank() + 1);
    return activations;
  }

  double step(const training::Batch& batch) {
    std::vector<std::vector<Matrix>> passes;
    for (size_t i = 0; i < micro_batches; ++i) passes.push_back(pass(batch.part(i, micro_batches).pixels));
    double loss = 0;
    for (size_t i = micro_batches; i-- > 0;) {
      Matrix error(passes[i].back().size());
      if (is_last())
        loss += softmax_loss(passes[i].back(), batch.part(i, micro_batches).labels, error);
      else if (!error.empty())
        world.receive(error, world.rank() + 1);
      const Matrix dx = backward(layers, passes[i], std::move(error));
      if (!is_first() && !dx.empty()) world.send(dx, world.rank() - 1);
    }
    update(layers, training::rate / static_cast<double>(batch.labels.size()));
    world.broadcast(std::span(&loss, 1), world.nranks() - 1);
    return loss;
  }

  Matrix predict(const Matrix& pixels) {
    Matrix logits(pixels.size() / 64 * 10);
    const std::vector<Matrix> activations = pass(pixels);
    if (is_last()) logits = activations.back();
    world.broadcast(logits, world.nranks() - 1);
    return logits;
  }

  const tutti::Communicator& world;
  std::vector<Dense> layers;
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(argc, argv, "pipeline",
                       "A network whose layers are divided among the ranks, fed by micro-batches",
                       [](const tutti::Communicator& world) {
                         const auto stage = std::make_shared<Stage>(world);
                         return training::Way{[stage](const training::Batch& batch) { return stage->step(batch); },
                                              [stage](const Matrix& pixels) { return stage->predict(pixels); }};
                       });
}
