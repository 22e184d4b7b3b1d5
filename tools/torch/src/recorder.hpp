// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder: the last calls of this process, in the form that torch.distributed.flight_recorder reads. It is
// on where TORCH_FR_BUFFER_SIZE, or else TORCH_NCCL_TRACE_BUFFER_SIZE, is the number of calls that are kept. torch's
// recorder of the processor's backends cannot be used: libtorch_cpu does not export
// c10d::FlightRecorder<c10::Event>::get().
#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/util/ArrayRef.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "engine.hpp"

namespace tutti::torch {

// The recorder of one process group. Any thread.
class GroupRecorder {
 public:
  // nullptr: the recorder is off. Throws where a variable is no number.
  static std::unique_ptr<GroupRecorder> make_if_on();

  // Sizes and types of a call's tensors. A list with a tensor for each rank is one tensor in torch's recordings.
  struct Tensors {
    std::vector<std::vector<int64_t>> sizes;
    std::vector<at::ScalarType> types;
    // False: the ranks' tensors have several sizes, and `sizes` has the elements of all.
    bool add(at::TensorList list);
  };
  struct Message {
    int from, to;  // -1: any rank
    int tag;
    auto operator<=>(const Message&) const = default;
  };
  struct Call {
    std::string name;  // torch's: "all_reduce"
    std::optional<Message> message;
    Tensors in, out;
    std::chrono::milliseconds timeout{0};
    OperationPtr operation;
    std::shared_ptr<const tutti_envelope> source;  // of a receive from any rank: it tells from which one after the end
  };
  // `group`: whose names are current.
  void add(const c10d::Backend& group, Call call);

  // The recorder's mutex guards these.
  struct Numbers {
    int64_t group = -1;  // the process's groups are numbered as they make their first calls
    uint64_t collectives = 0, operations = 0;
    std::map<Message, uint64_t> messages;
  };

 private:
  const std::shared_ptr<Numbers> numbers_ = std::make_shared<Numbers>();
};

// The recordings, oldest first: dictionaries as torch's recorder gives them, besides with "pg_size", and with
// "message": None, or from which rank to which one and the tag. None: the recorder is off. With the interpreter's lock.
pybind11::object flight_recordings(bool stacks);

}  // namespace tutti::torch
