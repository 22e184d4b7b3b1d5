// SPDX-License-Identifier: Apache-2.0
//
// The arguments and options of one call, checked as far as Python knows them.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data.hpp"
#include "names.hpp"
#include "number.hpp"
#include "operators.hpp"
#include "state.hpp"

namespace tutti::python {

using Counts = std::vector<Number>;

// The options of one call, as keywords.
struct CallOptions {
  uintptr_t stream = 0;
  std::optional<std::string> algorithms = {}, order = {}, wire = {};
  Number tag = {};  // none where it is no object
};

// The arguments of one call. The options live as long.
class Arguments {
 public:
  template <typename Face>
  Arguments(const Face& face, const char* call, const CallOptions& options)
      : call_(call), nranks_(tutti_comm_nranks(face.state->handle())) {
    options_.struct_size = sizeof options_;
    options_.flags = Face::flags;
    options_.stream = reinterpret_cast<void*>(options.stream);
    if (options.algorithms) options_.algorithms = options.algorithms->c_str();
    if (options.order) options_.order = value_of(call, "order", *options.order, orders, "None for the communicator's");
    if (options.wire)
      options_.wire = value_of(call, "wire", *options.wire, std::span(wires).subspan(1), "None for float32 as it is");
    if (options.tag.given) options_.tag = options.tag.value(call, "tag");
    rank_ = tutti_comm_rank(face.state->handle());
  }
  const tutti_options* options() const { return &options_; }
  uint32_t nranks() const { return nranks_; }
  bool is(uint32_t root) const { return rank_ == root; }

  const char* call() const { return call_; }

  // `given`: a name, or an Operator of this communicator. A sum of bools is "any", and a product "all".
  uint32_t op(const State& state, pybind11::handle given, const Data& data) const {
    const uint32_t op = operator_of(state, given);
    if (data.dtype() != TUTTI_BOOL) return op;
    const bool either = op == TUTTI_SUM || op == TUTTI_MAX, both = op == TUTTI_PROD || op == TUTTI_MIN;
    return either ? uint32_t{TUTTI_LOR} : both ? uint32_t{TUTTI_LAND} : op;
  }
  uint32_t rank(const char* name, const Number& given) const { return given.rank(call_, name); }
  // The elements of an argument; none for None where it `may_be_absent`.
  Data take(pybind11::handle object, const char* argument, bool written, bool may_be_absent = false) const {
    return taken(object, argument, written, may_be_absent, Elements::any);
  }
  // The same for a call with an operator.
  Data take_numbers(pybind11::handle object, const char* argument, bool written, bool may_be_absent = false) const {
    return taken(object, argument, written, may_be_absent, Elements::numbers);
  }

  void same_type(const char* one, const Data& data, const char* other, const Data& out) const {
    if (!data.has_type_of(out))
      throw pybind11::value_error(text() + one + " is " + data.type() + " and " + other + " is " + out.type());
  }
  // One block of `data` for each of `blocks` in `out`.
  void fit(const char* smaller, const Data& data, const char* larger, const Data& out, uint32_t blocks) const {
    same_type(smaller, data, larger, out);
    if (data.count() * blocks != out.count())
      throw pybind11::value_error(
          text() + smaller + " has " + std::to_string(data.count()) + " elements: expected " + larger + " to have " +
          (blocks == 1 ? "as many" : std::to_string(blocks) + " times as many, a block for each rank") + ", got " +
          std::to_string(out.count()));
  }
  // The elements of one rank's block.
  uint64_t block(const char* argument, const Data& data) const {
    if (data.count() % nranks_ == 0) return data.count() / nranks_;
    throw pybind11::value_error(text() + argument + " has " + std::to_string(data.count()) +
                          " elements: expected a multiple of the " + std::to_string(nranks_) + " ranks");
  }

  // The argument has as many elements as this rank's block.
  void fit_own(const char* argument, const Data& data, const Counts& counts) const {
    const uint64_t own = counts.at(rank_).value(call_, "counts");
    if (data.count() != own)
      throw pybind11::value_error(text() + argument + " has " + std::to_string(data.count()) + " elements: expected " +
                            std::to_string(own) + ", which is counts[" + std::to_string(rank_) + "], this rank's own");
  }
  std::string text() const { return std::string(call_) + ": "; }

 private:
  uint32_t operator_of(const State& state, pybind11::handle given) const {
    if (pybind11::isinstance<Operator>(given)) return given.cast<const Operator&>().number(state, call_);
    if (!pybind11::isinstance<pybind11::str>(given))
      throw pybind11::type_error(text() + "op is of type " + std::string(pybind11::str(pybind11::type::of(given).attr("__name__"))) +
                           ": expected a name, or what Communicator.operator() made");
    const auto name = given.cast<std::string>();
    if (const uint32_t op = op_from_name(name)) return op;
    std::string known;
    for (const uint32_t op : all_ops()) known += std::string(known.empty() ? "\"" : ", \"") + op_name(op) + "\"";
    throw pybind11::value_error(text() + "op is \"" + name + "\": expected " + known);
  }
  Data taken(pybind11::handle object, const char* argument, bool written, bool may_be_absent, Elements elements) const {
    if (object.is_none() && may_be_absent) return {};
    return Data(object, call_, argument, written, reinterpret_cast<uintptr_t>(options_.stream), elements);
  }

  const char* call_;
  uint32_t nranks_, rank_ = 0;
  tutti_options options_{};
};

}  // namespace tutti::python
