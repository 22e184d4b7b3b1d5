// SPDX-License-Identifier: Apache-2.0
#include "buckets/replay.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "buckets/gradient_data.hpp"
#include "buckets/report.hpp"
#include "options.hpp"
#include "setting.hpp"
#include "timing.hpp"

namespace perf {
namespace {

// The memory of all gradients.
class GradientMemory {
 public:
  // `views`: they lie one after another in the model's order, those of one type without a gap; else each is an
  // allocation.
  GradientMemory(const Model& model, bool views) : at_(model.parameters.size()) {
    uint64_t total = 0;
    std::vector<uint64_t> offsets(at_.size());
    uint32_t dtype = 0;
    for (size_t i = 0; i < at_.size(); ++i) {
      const Parameter& parameter = model.parameters[i];
      if (parameter.dtype != dtype) total = (total + alignment - 1) / alignment * alignment;
      dtype = parameter.dtype;
      offsets[i] = total;
      total += parameter.bytes();
    }
    if (views) blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(total));
    for (size_t i = 0; i < at_.size(); ++i) {
      if (!views) blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(model.parameters[i].bytes()));
      at_[i] = blocks_.back().get() + (views ? offsets[i] : 0);
    }
  }
  void* operator[](size_t i) const { return at_[i]; }

 private:
  static constexpr uint64_t alignment = alignof(std::max_align_t);
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<std::byte*> at_;
};

class Replay {
 public:
  // `neighbours`: the ranks of this host, this one included.
  Replay(const tutti::Communicator& world, const Options& options, size_t neighbours)
      : world_(world),
        options_(options),
        settings_(*options.buckets),
        neighbours_(neighbours),
        order_(settings_.model.parameters.size()),
        memory_(settings_.model, settings_.views) {
    for (const Parameter& parameter : settings_.model.parameters)
      tensors_.push_back({parameter.count, parameter.dtype, 0, parameter.name.c_str(), {}});
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::reverse(order_);  // of those that become ready at once the last first, as the pass runs
    std::ranges::stable_sort(order_, {}, [&](size_t i) { return settings_.model.parameters[i].ready_us; });
  }

  ReplayRow measure(tutti::Wire wire, bool thread) {
    tutti::Gradients gradients(world_, tensors_,
                               {.wire = wire,
                                .feedback = settings_.feedback && wire != tutti::Wire::plain,
                                .thread = thread,
                                .bucket_bytes = settings_.bucket_bytes,
                                .first_bucket_bytes = settings_.first_bucket_bytes,
                                .declared_order = settings_.declared_order});
    ReplayRow row{.wire = wire, .thread = thread, .compute_us = settings_.compute_us};
    row.checked = options_.checks > 0;
    yields_ = neighbours_ * (thread ? 2 : 1) > std::thread::hardware_concurrency();
    for (uint32_t i = 0; i < options_.checks; ++i) row.wrong += check_step(gradients, row, "before timing");
    if (!row.checked) fill(), step(gradients, false);  // the first step tells the library the order of readiness
    for (uint32_t i = 0; i < settings_.warm_up; ++i) step(gradients, true);
    const uint64_t sent = gradients.facts().sent_bytes;
    row.alone_us = slowest(gradients, false);
    row.sent_bytes = static_cast<double>(gradients.facts().sent_bytes - sent) / settings_.steps;
    const uint64_t waited = gradients.facts().exposed_ns;
    row.step_us = slowest(gradients, true);
    row.wait_us = most({static_cast<double>(gradients.facts().exposed_ns - waited) / settings_.steps / 1e3}).front();
    row.buckets = gradients.facts().buckets;
    row.best_us = best_step_us(gradients, row.alone_us);
    for (uint32_t i = 0; i < options_.checks; ++i) row.wrong += check_step(gradients, row, "after timing");
    world_.all_reduce(std::span(&row.wrong, 1), std::span(&row.wrong, 1), tutti::Op::sum);
    return row;
  }

 private:
  double ready_us(size_t tensor) const {
    return static_cast<double>(settings_.model.parameters[tensor].ready_us) * settings_.compute_us /
           static_cast<double>(settings_.model.compute_us());
  }

  void fill() {
    ++seed_;
    for (size_t i = 0; i < tensors_.size(); ++i)
      fill_gradient(pattern(i), world_.rank(), tensors_[i].count, memory_[i]);
  }

  GradientPattern pattern(size_t tensor) const {
    return {options_.seed << 32 | seed_, tensor, world_.nranks(), tensors_[tensor].dtype};
  }

  // Stands for computing. It leaves the core to other ranks and to the library's thread where these have no other.
  void compute_until(Clock::time_point end) const {
    while (Clock::now() < end)
      if (yields_) std::this_thread::yield();
  }

  // Microseconds from its beginning until all results are there.
  double step(tutti::Gradients& gradients, bool computes) {
    world_.barrier();
    const auto begin = Clock::now();
    for (const size_t i : order_) {
      if (computes) compute_until(begin + std::chrono::nanoseconds(static_cast<int64_t>(ready_us(i) * 1e3)));
      const tutti_status status = tutti_gradients_ready(gradients.handle(), i, memory_[i], tensors_[i].count);
      if (status < 0) throw tutti::Error(status, tutti_gradients_error(gradients.handle()));
    }
    gradients.wait();
    return microseconds(Clock::now() - begin);
  }

  // Of each value the largest that a rank has.
  std::vector<double> most(std::vector<double> values) const {
    world_.all_reduce<double>(values, values, tutti::Op::max);
    return values;
  }

  double slowest(tutti::Gradients& gradients, bool computes) {
    std::vector<double> times;
    for (uint32_t i = 0; i < settings_.steps; ++i) times.push_back(step(gradients, computes));
    return median(most(std::move(times)));
  }

  // The end of the last bucket if every bucket takes its share of the time alone, by bytes, and begins as soon as its
  // last gradient is ready and the bucket before it has ended.
  double best_step_us(const tutti::Gradients& gradients, double alone_us) const {
    struct Filled {
      double ready_us = 0;
      uint64_t bytes = 0;
    };
    std::vector<Filled> buckets(gradients.facts().buckets);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      Filled& bucket = buckets.at(gradients.bucket(i));
      bucket.ready_us = std::max(bucket.ready_us, ready_us(i));
      bucket.bytes += settings_.model.parameters[i].bytes();
    }
    double end = 0;
    const auto total = static_cast<double>(settings_.model.bytes());
    for (const Filled& bucket : buckets)
      end = std::max(end, bucket.ready_us) + alone_us * static_cast<double>(bucket.bytes) / total;
    return end;
  }

  // A step on fresh gradients; this rank's wrong elements.
  uint64_t check_step(tutti::Gradients& gradients, const ReplayRow& row, const char* when) {
    fill();
    step(gradients, false);
    uint64_t wrong = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const WrongMeans found = check_mean(pattern(i), tensors_[i].count, memory_[i]);
      if (found.count > 0 && wrong == 0)
        std::fputs(fmt::format("tutti-perf: rank {}: buckets, wire {}, advanced by the {}, {}: {}: index {}: expected "
                               "{}, got {}; {} of {} elements are wrong\n",
                               world_.rank(), wire_name(row.wire), row.thread ? "thread" : "caller", when,
                               tensors_[i].name, found.first, found.expected, found.got, found.count, tensors_[i].count)
                       .c_str(),
                   stderr);
      wrong += found.count;
    }
    return wrong;
  }

  const tutti::Communicator& world_;
  const Options& options_;
  const BucketOptions& settings_;
  size_t neighbours_;
  bool yields_ = false;
  std::vector<size_t> order_;  // of parameters, as they become ready
  GradientMemory memory_;
  std::vector<tutti_tensor> tensors_;  // in the model's order, as a framework lists parameters
  uint32_t seed_ = 0;
};

size_t ranks_of_host(const Setting& setting, const std::string& host) {
  return static_cast<size_t>(std::ranges::count(setting.ranks, host, &RankIdentity::host));
}

}  // namespace

std::string misfit(const BucketOptions& options, uint32_t nranks) {
  for (const Parameter& parameter : options.model.parameters)
    if (nranks > most_exact_ranks(parameter.dtype))
      return fmt::format("buckets: {} is {}, in which the mean of more than {} ranks cannot be checked; there are {}",
                         parameter.name, tutti::dtype_name(parameter.dtype), most_exact_ranks(parameter.dtype), nranks);
  return "";
}

int replay(const tutti::Communicator& world, const Options& options) {
  const BucketOptions& settings = *options.buckets;
  const Setting setting = meet(world);
  ReplayReport report(options, setting, world.rank() == 0);
  try {
    Replay replay(world, options, ranks_of_host(setting, setting.ranks[world.rank()].host));
    double plain_us = 0;
    for (const bool thread : settings.threads)
      for (const tutti::Wire wire : settings.wires) {
        ReplayRow row = replay.measure(wire, thread);
        if (wire == tutti::Wire::plain) plain_us = row.alone_us;
        row.speed = plain_us / row.alone_us;
        report.add(row);
      }
  } catch (const std::exception& error) {
    report.end(error.what());
    throw;
  }
  const bool written = report.end("");
  return report.wrong() > 0 || !written ? 1 : 0;
}

}  // namespace perf
