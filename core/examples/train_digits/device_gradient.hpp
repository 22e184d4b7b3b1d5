// SPDX-License-Identifier: Apache-2.0
//
// The gradient in a device's memory: its parts are carried there, summed over the ranks and carried back, all in one
// stream of the device, while the host goes on.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <span>
#include <string>
#include <tutti/tutti.hpp>

class DeviceGradient {
 public:
  // `name`: of the device, "cuda" for instance; of several of the kind, rank r takes number r modulo their count.
  DeviceGradient(const tutti::Communicator& world, const std::string& name, size_t parameters);
  ~DeviceGradient();
  DeviceGradient(const DeviceGradient&) = delete;
  DeviceGradient& operator=(const DeviceGradient&) = delete;

  // The host's side, which the device sees.
  std::span<double> host() const { return {host_, parameters_}; }
  // Where work on the parts belongs.
  void* stream() const { return stream_; }
  // Carries a part of host() to the device, where it is then.
  tutti::DeviceSpan<double> send(std::span<double> part) const;
  // Carries everything back; returns when it is there.
  void fetch() const;

 private:
  void enqueue(tutti_command command) const;
  void copy(void* to, const void* from, uint64_t bytes) const;
  [[noreturn]] void fail(tutti_status status, const char* what) const;

  tutti::DeviceTables tables_;
  size_t parameters_;
  uint32_t ordinal_ = 0;
  double* host_ = nullptr;    // pages of the host
  double* seen_ = nullptr;    // the same, as streams see them
  double* device_ = nullptr;  // of the device
  void* stream_ = nullptr;
  tutti_event* event_ = nullptr;
};
