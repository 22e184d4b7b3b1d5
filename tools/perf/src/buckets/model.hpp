// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a model, and when the backward pass completes the gradient of each.
//
// A model is a file of comma-separated values. Lines that begin with # are comments; the first other line names the
// columns, and each further one is a parameter:
//
//   name,shape,dtype,ready_us
//   fc.weight,1000x2048,float32,105
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

struct Parameter {
  std::string name;
  uint64_t count = 0;  // elements
  uint32_t dtype = 0;  // TUTTI_FLOAT16, _BFLOAT16, _FLOAT32 or _FLOAT64
  uint64_t ready_us = 0;
  uint64_t bytes() const;
};

struct Model {
  std::string name;  // as it was asked for
  std::vector<Parameter> parameters;
  uint64_t bytes() const;
  // The backward pass: until the last gradient is complete.
  uint64_t compute_us() const;
};

// `what`: a model that is installed beside the program, as resnet50, or the path of a file, which has a / or ends with
// .csv. Throws std::invalid_argument with a text for the user.
Model read_model(const std::string& what);
// The parameters in `text`, which came from `path`.
std::vector<Parameter> parse_parameters(std::string_view text, const std::string& path);

}  // namespace perf
