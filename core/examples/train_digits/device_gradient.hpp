// SPDX-License-Identifier: Apache-2.0
//
// The gradient in a device's memory: a bucket is carried there, summed over the ranks and carried back, all in one
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
  // Sums a part of host() over all ranks. It must not be touched before finish().
  tutti::Request all_reduce(std::span<double> bucket) const;
  // Until everything is back on the host.
  void finish() const;

 private:
  void enqueue(tutti_command command) const;
  void copy(void* to, const void* from, uint64_t bytes) const;
  [[noreturn]] void fail(tutti_status status, const char* what) const;

  const tutti::Communicator& world_;
  tutti::DeviceTables tables_;
  size_t parameters_;
  uint32_t ordinal_ = 0;
  double* host_ = nullptr;    // pages of the host
  double* seen_ = nullptr;    // the same, as streams see them
  double* device_ = nullptr;  // of the device
  void* stream_ = nullptr;
  tutti_event* event_ = nullptr;
};
