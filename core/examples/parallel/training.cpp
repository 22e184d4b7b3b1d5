// SPDX-License-Identifier: Apache-2.0
#include "training.hpp"

#include <algorithm>
#include <chrono>
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
  double step_ms = 0;             // mean
  uint64_t sent = 0;              // by this rank, in the second step
};

// The communicators of a way.
std::vector<const tutti::Communicator*> all_of(const tutti::Communicator& world, const Way& way) {
  std::vector<const tutti::Communicator*> all{&world};
  if (way.parts)
    for (const tutti::Communicator* part : way.parts()) all.push_back(part);
  return all;
}

uint64_t sent_bytes(const tutti::Communicator& world, const Way& way) {
  uint64_t sent = way.sent ? way.sent() : 0;
  for (const tutti::Communicator* comm : all_of(world, way))
    for (const tutti_link_traffic& row : comm->traffic()) sent += row.sent_bytes;
  return sent;
}

// The loss of a step, and the bytes that it sent. Between barriers, which send some of their own.
double counted_step(const tutti::Communicator& world, const Way& way, const Batch& batch, uint64_t& sent) {
  world.barrier();
  const uint64_t before = sent_bytes(world, way);
  const double loss = way.step(batch);
  sent = sent_bytes(world, way) - before;
  world.barrier();
  return loss;
}

Result train(const tutti::Communicator& world, const Data& data, uint32_t epochs, const Way& way) {
  using Clock = std::chrono::steady_clock;
  Result result;
  const Clock::time_point start = Clock::now();
  size_t steps = 0;
  for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
    result.loss = 0;
    size_t samples = 0;
    for (const Batch& batch : data.batches) {
      result.loss += ++steps == 2 ? counted_step(world, way, batch, result.sent) : way.step(batch);
      samples += batch.labels.size();
    }
    world.all_reduce(std::span(&result.loss, 1), std::span(&result.loss, 1), tutti::Op::sum);
    result.loss /= static_cast<double>(samples);
  }
  result.step_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count() / static_cast<double>(steps);
  const Matrix logits = way.predict(data.test.pixels);
  size_t right = 0;
  for (size_t i = 0; i < data.test.labels.size(); ++i) {
    const std::span<const double> row = std::span(logits).subspan(i * digits::classes, digits::classes);
    right += std::ranges::max_element(row) - row.begin() == data.test.labels[i];
  }
  result.accuracy = 100.0 * static_cast<double>(right) / static_cast<double>(data.test.labels.size());
  return result;
}

// The formulas, and what was counted: bytes of a rank in the second step, on average over the ranks.
void print_sent(const std::vector<Formula>& formulas, double counted) {
  std::printf("a step sends, mean of the ranks      formula           D bytes        bytes\n");
  double least = 0, expected = 0;
  for (const Formula& formula : formulas) {
    std::printf("  %-34s %-13s %11llu %12.0f%s\n", formula.what.c_str(), formula.text.c_str(),
                static_cast<unsigned long long>(formula.data), formula.bytes, formula.least ? "" : "  (about)");
    expected += formula.bytes;
    least += formula.least ? formula.bytes : 0;
  }
  std::printf("  %-34s %38.0f\n  %-34s %38.0f", "by the formulas", expected, "counted by the library", counted);
  if (expected > 0) std::printf("  %.2f times", counted / expected);
  std::printf("\n");
  ranks::require(counted >= least - 0.5, "fewer bytes were counted than any algorithm sends");
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

void print_result(const char* who, uint32_t ranks, const Result& result) {
  std::printf("%2u %-6s  %.12f   %6.2f %%   %8.3f ms\n", ranks, who, result.loss, result.accuracy, result.step_ms);
}

void compare(const tutti::Communicator& world, uint32_t epochs, const MakeWay& make) {
  const Data data = load();
  const Way way = make(world);
  const Result together = train(world, data, epochs, way);
  std::string text = way.report ? way.report() : "";
  for (const tutti::Communicator* comm : all_of(world, way)) text += communication(*comm);
  double sent = static_cast<double>(together.sent);
  world.all_reduce(std::span(&sent, 1), std::span(&sent, 1), tutti::Op::avg);
  const auto alone = world.split(world.rank() == 0 ? 0 : TUTTI_NO_COLOR);
  if (alone) {
    const Result reference = train(*alone, data, epochs, make(*alone));
    const double difference = std::abs(together.loss - reference.loss) / reference.loss;
    std::printf("%2u epochs  loss             held-out        a step\n", epochs);
    print_result("ranks", world.nranks(), together);
    print_result("rank", 1, reference);
    ranks::require(difference <= 1e-5, "the losses differ by " + std::to_string(difference) + " of them");  // NaN fails
    if (epochs >= default_epochs)
      ranks::require(together.accuracy >= 94, "less than 94 % of the held-out digits are right");
    print_sent(way.formulas, sent);
  }
  ranks::print_in_order(world, text);
}

// `times` (n-1)/n of D.
Formula shares_of(const char* collective, const std::string& what, const char* text, double times, size_t numbers,
                  const tutti::Communicator& comm) {
  const double n = comm.nranks();
  const uint64_t data = numbers * sizeof(double);
  return {std::string(collective) + " of " + what, text, data, times * static_cast<double>(data) * (n - 1) / n};
}

}  // namespace

std::vector<Dense> network() { return {{64, 32, true, 1}, {32, 32, true, 2}, {32, 64, true, 3}, {64, 10, false, 4}}; }

Formula all_reduce_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  return shares_of("all_reduce", what, "2 D (n-1)/n", 2, numbers, comm);
}
Formula reduce_scatter_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  return shares_of("reduce_scatter", what, "D (n-1)/n", 1, numbers, comm);
}
Formula all_gather_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  return shares_of("all_gather", what, "D (n-1)/n", 1, numbers, comm);
}
Formula all_to_all_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  Formula formula = shares_of("all_to_all_v", what, "D (n-1)/n", 1, numbers, comm);
  formula.least = false;
  return formula;
}
Formula messages_of(const std::string& what, size_t numbers, const tutti::Communicator& comm) {
  const uint64_t data = numbers * sizeof(double);
  return {"messages: " + what, "D/n", data, static_cast<double>(data) / comm.nranks()};
}

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
