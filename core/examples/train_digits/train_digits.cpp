// SPDX-License-Identifier: Apache-2.0
//
// Data-parallel training, start to end, on what Tutti offers:
//
//   broadcast    rank 0's settings and first weights
//   scatter      each rank's part of every batch
//   Gradients    the gradient, in buckets, while the backward pass goes on (backward_pass.hpp)
//   reduce       the loss and the number of right answers, to rank 0
//   all_reduce   min and max of a checksum of the weights: they must be the same bits on all ranks
//   gather       the predictions
//
// Batch b is the same samples whatever the number of ranks is, and its gradient is the sum over ranks divided by its
// number of samples, so the result does not depend on the number of ranks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "backward_pass.hpp"
#include "digits.hpp"
#include "mlp.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

constexpr size_t held_out = 360;

// One rank's rows of the training or of the held-out digits.
struct Share {
  size_t samples = 0;  // of all ranks
  size_t group = 0;    // samples of one step, of all ranks
  size_t part = 0;     // rows of one step, of this rank
  size_t steps = 0;
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  std::vector<float> weights;

  Batch batch(size_t step) const {
    return {std::span(pixels).subspan(step * part * Mlp::inputs, part * Mlp::inputs),
            std::span(labels).subspan(step * part, part), std::span(weights).subspan(step * part, part)};
  }
  size_t samples_of(size_t step) const { return std::min(group, samples - step * group); }
};

struct Data {
  digits::Samples train, test;
};

// On rank 0.
Data load(const Options& options) {
  Data data{digits::read(options.data), {}};
  if (data.train.size() < held_out + options.batch)
    throw std::runtime_error("\"" + options.data + "\" has " + std::to_string(data.train.size()) +
                             " digits; needed are 360 to hold out and at least one batch of " +
                             std::to_string(options.batch) + " (--batch)");
  digits::shuffle(data.train, options.seed);
  data.test = digits::hold_out(data.train, held_out);
  return data;
}

// Rank 0's settings go to everybody: a rank that was started with others says so instead of computing something else.
// Returns the number of training digits.
size_t agree(const tutti::Communicator& world, const Options& options, size_t train_samples) {
  const std::vector<double> mine{static_cast<double>(train_samples), static_cast<double>(options.epochs),
                                 static_cast<double>(options.batch), options.rate};
  std::vector<double> agreed = mine;
  world.broadcast<double>(agreed, 0);
  const char* names[] = {"", "--epochs", "--batch", "--rate"};
  for (size_t i = 1; i < mine.size(); ++i)
    if (mine[i] != agreed[i]) {
      char text[160];
      std::snprintf(text, sizeof text, "%s is %g here and %g on rank 0: start all ranks with the same options",
                    names[i], mine[i], agreed[i]);
      throw std::runtime_error(text);
    }
  return static_cast<size_t>(agreed[0]);
}

// Deals rank 0's `samples` (`total` of them) out to all ranks, in groups of `group`.
Share scatter(const tutti::Communicator& world, const digits::Samples& samples, size_t total, size_t group) {
  digits::Dealt dealt;
  if (world.rank() == 0) dealt = digits::deal(samples, group, world.nranks());
  Share share{total, group, (group + world.nranks() - 1) / world.nranks(), (total + group - 1) / group, {}, {}, {}};
  const size_t rows = share.steps * share.part;
  share.pixels.resize(rows * Mlp::inputs);
  share.labels.resize(rows);
  share.weights.resize(rows);
  world.scatter<float>(dealt.pixels, share.pixels, 0);
  world.scatter<int32_t>(dealt.labels, share.labels, 0);
  world.scatter<float>(dealt.weights, share.weights, 0);
  return share;
}

// The sum of the ranks' values, on rank 0.
double sum_to_root(const tutti::Communicator& world, double value) {
  double sum = 0;
  world.reduce<double>(std::span<const double>(&value, 1), std::span(&sum, 1), tutti::Op::sum, 0);
  return sum;
}

// The mean loss of the epoch's samples, each taken before the step that uses it; on rank 0.
double train_epoch(const tutti::Communicator& world, const Share& share, double rate, Mlp& mlp,
                   BackwardPass& backward) {
  double loss = 0;
  for (size_t step = 0; step < share.steps; ++step) {
    const double my_loss = mlp.forward(share.batch(step));
    backward.run(mlp);
    mlp.update(backward.gradient(), rate / static_cast<double>(share.samples_of(step)));
    loss += sum_to_root(world, my_loss);
  }
  return loss / static_cast<double>(share.samples);
}

// Percent of the held-out digits that the model names rightly; on rank 0.
double accuracy(const tutti::Communicator& world, const Share& test, const Mlp& mlp) {
  std::vector<int32_t> answers(test.labels.size());
  mlp.predict(test.pixels, answers);
  double right = 0;
  for (size_t i = 0; i < answers.size(); ++i)
    if (test.weights[i] > 0 && answers[i] == test.labels[i]) ++right;
  return 100 * sum_to_root(world, right) / static_cast<double>(test.samples);
}

// The same from the predictions themselves, gathered on rank 0, which has the labels.
double accuracy_of_gathered(const tutti::Communicator& world, const Share& test, const digits::Samples& samples,
                            const Mlp& mlp) {
  std::vector<int32_t> mine(test.part);
  mlp.predict(test.pixels, mine);
  std::vector<int32_t> all(world.rank() == 0 ? test.part * world.nranks() : 0);
  world.gather<int32_t>(mine, all, 0);
  double right = 0;
  for (size_t i = 0; i < samples.size(); ++i) right += all[i] == samples.labels[i];
  return 100 * right / static_cast<double>(test.samples);
}

// FNV-1a over the bytes of the weights; every rank must have the same.
void require_equal_weights(const tutti::Communicator& world, Mlp& mlp, uint32_t epoch) {
  uint64_t checksum = 0xcbf29ce484222325u;
  for (const std::byte byte : std::as_bytes(mlp.parameters()))
    checksum = (checksum ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  const std::vector<uint64_t> mine{checksum};
  std::vector<uint64_t> least(1), most(1);
  world.all_reduce<uint64_t>(mine, least, tutti::Op::min);
  world.all_reduce<uint64_t>(mine, most, tutti::Op::max);
  if (least != most)
    throw std::runtime_error("after epoch " + std::to_string(epoch) +
                             " the weights are not the same bits on all ranks; this rank's checksum is " +
                             std::to_string(checksum) + ", they go from " + std::to_string(least[0]) + " to " +
                             std::to_string(most[0]));
}

// The buckets of all ranks; on the host it fails when not one of them was done before its backward pass had ended: a
// device may take longer for so little.
void report_overlap(const tutti::Communicator& world, const tutti_gradients_facts& facts, const std::string& device) {
  const double early = sum_to_root(world, static_cast<double>(facts.early));
  const double started = sum_to_root(world, static_cast<double>(facts.started));
  const double waited = sum_to_root(world, static_cast<double>(facts.exposed_ns));
  if (world.rank() != 0) return;
  std::printf(
      "buckets finished before the backward pass ended: %.0f of %.0f, all ranks; waited for the others %.2f ms per "
      "rank\n",
      early, started, waited * 1e-6 / world.nranks());
  if (early == 0 && device == "host")
    throw std::runtime_error("no bucket was finished before the backward pass ended: nothing overlaps");
}

void train(const tutti::Communicator& world, const Options& options) {
  const bool root = world.rank() == 0;
  std::optional<double> expected_loss;  // read first: a wrong name should not cost a training
  if (root && !options.expect_loss.empty()) expected_loss = read_loss(options.expect_loss);
  const Data data = root ? load(options) : Data{};
  const size_t train_samples = agree(world, options, data.train.size());
  const Share train = scatter(world, data.train, train_samples, options.batch);
  const Share test = scatter(world, data.test, held_out, held_out);
  Mlp mlp;
  if (root) mlp.initialise(options.seed);
  world.broadcast<double>(mlp.parameters(), 0);
  if (root)
    std::printf("ranks %u, training digits %zu, held out %zu, steps per epoch %zu of %u digits\n", world.nranks(),
                train_samples, held_out, train.steps, options.batch);

  BackwardPass backward(world, options.device, options.wire);
  double loss = 0;
  for (uint32_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    loss = train_epoch(world, train, options.rate, mlp, backward);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    const double right = accuracy(world, test, mlp);
    if (root) {
      std::printf("epoch %3u  loss %.6f  held-out %6.2f %%  %8.2f ms\n", epoch, loss, right, time.count());
      std::fflush(stdout);  // a launcher's pipe would keep it until the end
    }
    require_equal_weights(world, mlp, epoch);
  }

  const double last_count = accuracy(world, test, mlp);
  const double right = accuracy_of_gathered(world, test, data.test, mlp);
  if (root) std::printf("weights: the same bits on all ranks after every epoch\n");
  report_overlap(world, backward.facts(), options.device);
  if (!options.expect_transport.empty()) require_transport(world, options.expect_transport);
  if (!root) return;
  print_services(world);
  std::printf("\nfinal loss %.17g, held-out accuracy %.2f %%\n", loss, right);
  if (!options.loss_file.empty()) write_loss(options.loss_file, loss);
  if (right != last_count)
    throw std::runtime_error("the gathered predictions are right for " + std::to_string(right) +
                             " %, but the ranks counted " + std::to_string(last_count) + " %");
  if (expected_loss) require_loss(loss, *expected_loss, options.expect_loss);
  if (!(std::isfinite(loss) && right >= options.min_accuracy))
    throw std::runtime_error("held-out accuracy " + std::to_string(right) + " % at loss " + std::to_string(loss) +
                             "; expected at least " + std::to_string(options.min_accuracy) + " % (--min-accuracy)");
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  const std::optional<Options> options = parse_options(argc, argv, status);
  if (!options) return status;
  try {
    const auto world = tutti::Communicator::on_device(options->device == "host" ? "none" : options->device + ":local");
    try {
      train(world, *options);
      if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        throw std::runtime_error("standard output cannot be written: what was printed is lost or cut short");
      return 0;
    } catch (const std::exception& e) {
      std::fflush(stdout);
      std::fprintf(stderr, "train_digits: rank %u: %s\n", world.rank(), e.what());
      world.abort(e.what());  // so that the other ranks do not wait for this one
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_digits: %s\n", e.what());
  }
  return 1;
}
