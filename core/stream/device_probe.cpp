// SPDX-License-Identifier: Apache-2.0
#include "stream/device_probe.hpp"

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <system_error>
#include <thread>


namespace tutti::core {
namespace {

constexpr uint64_t interval_ns = 1'000'000'000;
constexpr tutti_status unanswered = INT32_MAX;

}  // namespace

struct DeviceProbe::Question {
  DeviceTables device;
  tutti_event* event = nullptr;  // is never recorded: only the device's failure keeps it from being reached
  std::atomic<tutti_status> answer{unanswered};
  std::string why;

  void ask() {
    const tutti_executor* executor = device.executor;
    const tutti_status status = executor->query_event(executor->self, event);
    if (status < 0) why = fmt::format("device {}: {}", device.memory->name, take_plugin_error());
    answer.store(status, std::memory_order_release);
  }
  ~Question() {
    if (event) device.executor->destroy_event(device.executor->self, event);
  }
};

tutti_status DeviceProbe::open(const DeviceTables& device, uint32_t number) {
  if (question_) return TUTTI_OK;
  auto made = std::make_shared<Question>();
  made->device = device;
  const tutti_status status = device.executor->create_event(device.executor->self, number, &made->event);
  if (status >= 0) question_ = std::move(made);
  return status;
}

std::optional<Failure> DeviceProbe::poll(uint64_t now_ns) {
  if (!question_) return std::nullopt;
  if (asking_) {
    const tutti_status status = question_->answer.load(std::memory_order_acquire);
    if (status == unanswered) return std::nullopt;
    asking_ = false;
    if (status < 0) return Failure(status, question_->why);
  }
  if (!asked_ns_) asked_ns_ = now_ns;
  if (now_ns - asked_ns_ < interval_ns) return std::nullopt;
  asked_ns_ = now_ns;
  question_->answer.store(unanswered, std::memory_order_relaxed);
  try {
    std::thread([question = question_] { question->ask(); }).detach();
    asking_ = true;
  } catch (const std::system_error&) {  // no thread can be started: the next second
  }
  return std::nullopt;
}

}  // namespace tutti::core
