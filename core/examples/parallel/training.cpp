// SPDX-License-Identifier: Apache-2.0
#include "training.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "digits.hpp"
#include "ranks.hpp"

namespace training {
namespace {

constexpr size_t held_out = 360;
constexpr uint32_t default_epochs = 30;

struct Data {
  std::vector<Batch> batches;
  Batch test;
};

Batch samples_of(const digits::Samples& samples, size_t first, size_t count) {
  const auto pixels = samples.pixels.begin() + static_cast<std::ptrdiff_t>(first * digits::pixels_per_sample);
  const auto labels = samples.labels.begin() + static_cast<std::ptrdiff_t>(first);
  return {Matrix(pixels, pixels + static_cast<std::ptrdiff_t>(count * digits::pixels_per_sample)),
          std::vector<int32_t>(labels, labels + static_cast<std::ptrdiff_t>(count))};
}

Data load() {
  digits::Samples samples = digits::read(digits::default_path());
  digits::shuffle(samples, 1);
  const digits::Samples test = digits::hold_out(samples, held_out);
  Data data;
  for (size_t first = 0; first < samples.size(); first += batch_size)
    data.batches.push_back(samples_of(samples, first, std::min(batch_size, samples.size() - first)));
  data.test = samples_of(test, 0, test.size());
  return data;
}

struct Result {
  double loss = 0, accuracy = 0;  // mean of the last epoch; percent of the held-out digits
};

Result train(const Data& data, uint32_t epochs, const Way& way) {
  Result result;
  for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
    result.loss = 0;
    size_t samples = 0;
    for (const Batch& batch : data.batches) {
      result.loss += way.step(batch);
      samples += batch.labels.size();
    }
    result.loss /= static_cast<double>(samples);
  }
  const Matrix logits = way.predict(data.test.pixels);
  size_t right = 0;
  for (size_t i = 0; i < data.test.labels.size(); ++i) {
    const std::span<const double> row = std::span(logits).subspan(i * digits::classes, digits::classes);
    right += std::ranges::max_element(row) - row.begin() == data.test.labels[i];
  }
  result.accuracy = 100.0 * static_cast<double>(right) / static_cast<double>(data.test.labels.size());
  return result;
}

// What this rank did in a communicator.
std::string communication(const tutti::Communicator& world) {
  std::string text;
  char line[200];
  for (const tutti_service& row : world.services()) {
    std::snprintf(line, sizeof line, "rank %u of %-5s  %-16s %-20s over %-8s %7llu calls %12llu bytes\n", world.rank(),
                  world.name().c_str(), row.collective, *row.algorithm ? row.algorithm : "messages",
                  *row.transports ? row.transports : "-", static_cast<unsigned long long>(row.calls),
                  static_cast<unsigned long long>(row.bytes));
    text += line;
  }
  unsigned long long sent = 0;
  for (const tutti_link_traffic& row : world.traffic()) sent += row.sent_bytes;
  std::snprintf(line, sizeof line, "rank %u of %-5s  %llu bytes sent to others\n", world.rank(), world.name().c_str(),
                sent);
  return text + line;
}

void compare(const tutti::Communicator& world, uint32_t epochs, const MakeWay& make) {
  const Data data = load();
  const Way way = make(world);
  const Result together = train(data, epochs, way);
  std::string text = communication(world);
  if (way.parts)
    for (const tutti::Communicator* part : way.parts()) text += communication(*part);
  const auto alone = world.split(world.rank() == 0 ? 0 : TUTTI_NO_COLOR);
  if (alone) {
    const Result reference = train(data, epochs, make(*alone));
    const double difference = std::abs(together.loss - reference.loss) / reference.loss;
    std::printf("%u epochs      loss             held-out\n%2u ranks   %.12f   %6.2f %%\n 1 rank    %.12f   %6.2f %%\n",
                epochs, world.nranks(), together.loss, together.accuracy, reference.loss, reference.accuracy);
    ranks::require(difference <= 1e-5, "the losses differ by " + std::to_string(difference) + " of them");  // NaN fails
    if (epochs >= default_epochs)
      ranks::require(together.accuracy >= 94, "less than 94 % of the held-out digits are right");
  }
  ranks::print_in_order(world, text);
}

}  // namespace

std::vector<Dense> network() { return {{64, 32, true, 1}, {32, 32, true, 2}, {32, 64, true, 3}, {64, 10, false, 4}}; }

Batch Batch::part(size_t i, size_t n) const {
  const size_t first = part_begin(labels.size(), i, n), last = part_begin(labels.size(), i + 1, n);
  const size_t width = labels.empty() ? 0 : pixels.size() / labels.size();
  const auto slice = [](const auto& from, size_t begin, size_t end) {
    return std::remove_cvref_t<decltype(from)>(from.begin() + static_cast<std::ptrdiff_t>(begin),
                                               from.begin() + static_cast<std::ptrdiff_t>(end));
  };
  return {slice(pixels, first * width, last * width), slice(labels, first, last)};
}

int run(int argc, char** argv, const std::string& program, const std::string& about, const MakeWay& make) {
  ranks::Number epochs{"--epochs", "Passes over the training digits", default_epochs};
  return ranks::run(
      argc, argv, program, about, [&](const tutti::Communicator& world) { compare(world, epochs.value, make); },
      &epochs);
}

}  // namespace training
