// SPDX-License-Identifier: Apache-2.0
#include "schedules.hpp"

#include <pybind11/stl.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cmath>
#include <optional>
#include <vector>

#include "number.hpp"
#include "plan/src/drawing.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

// All ranks' schedules of one operation.
struct Plan {
  const tutti_algorithm* algorithm;
  Problem problem;
  std::vector<Schedule> schedules;
};

Plan build(const std::string& name, const std::string& collective, const Number& ranks, const Number& of,
           const Number& most_lanes, const std::vector<Number>& host_of_rank, std::string parameters, bool in_place) {
  const uint32_t nranks = ranks.of_32_bits("Plan", "nranks"), root = of.rank("Plan", "root");
  const uint32_t lanes = most_lanes.of_32_bits("Plan", "lanes");
  std::vector<uint32_t> hosts;
  for (const Number& host : host_of_rank) hosts.push_back(host.of_32_bits("Plan", "hosts"));
  std::string error;
  const tutti_algorithm* algorithm = find_algorithm(name, &error);
  if (!algorithm) raise(TUTTI_NOT_FOUND, error);
  Plan plan{algorithm, {}, {}};
  plan.problem.collective = collective_from_name(collective);
  if (!plan.problem.collective) throw py::value_error("Plan: there is no collective \"" + collective + "\"");
  if (nranks == 0 || root >= nranks || (!hosts.empty() && hosts.size() != nranks))
    throw py::value_error("Plan: rank " + std::to_string(root) + " of " + std::to_string(nranks) + " as root, on " +
                          std::to_string(hosts.size()) +
                          " hosts' numbers: expected a root below nranks and a host for each rank, or none");
  plan.problem.nranks = nranks;
  plan.problem.root = root;
  plan.problem.lanes = lanes;
  plan.problem.hosts = std::move(hosts);
  plan.problem.parameters = std::move(parameters);
  plan.problem.in_place.assign(nranks, in_place);
  take_plugin_error();
  tutti_status status;
  {
    const py::gil_scoped_release unlocked;
    status = build_schedules(*algorithm, plan.problem, &plan.schedules, &error);
  }
  if (status < 0) {
    const std::string reason = take_plugin_error();
    raise(status, "Plan: " + error + (reason.empty() || error.find(reason) != std::string::npos ? "" : ": " + reason));
  }
  return plan;
}

Proof prove(const Plan& plan) {
  const py::gil_scoped_release unlocked;
  return verify_algorithm(*plan.algorithm, plan.problem);
}

double seconds(const Plan& plan, uint64_t block_bytes, double latency, double bandwidth, uint32_t element_bytes,
               uint64_t slices) {
  if (!(latency >= 0) || !(bandwidth > 0) || element_bytes == 0)
    throw py::value_error("seconds: expected a latency of 0 or more, a bandwidth and element_bytes above 0");
  CostModel model;
  model.link = [=](uint32_t, uint32_t) { return LinkCost{latency, 1 / bandwidth}; };
  const double time = simulate(plan.problem, plan.schedules, block_bytes, element_bytes, slices, model);
  if (!std::isfinite(time)) throw py::value_error("seconds: the ranks' schedules do not match: verify() says where");
  return time;
}

std::string draw(const Plan& plan, const std::string& title) {
  if (const Proof proof = verify(plan.problem, plan.schedules); !proof.ok())
    throw py::value_error("draw: the schedules are wrong: " + proof.error);
  return plan::draw(plan.problem, plan.schedules, title.empty() ? plan.algorithm->name : title);
}

std::string text(const Plan& plan) {
  size_t steps = 0;
  for (const auto& schedule : plan.schedules)
    for (const auto& lane : schedule.lanes) steps += lane.size();
  const std::string& parameters = plan.problem.parameters;
  return "<tutti.Plan " + std::string(plan.algorithm->name) + (parameters.empty() ? "" : ":" + parameters) + ", " +
         collective_name(plan.problem.collective) + " of " + std::to_string(plan.problem.nranks) + " ranks, " +
         std::to_string(steps) + " steps>";
}

std::string text(const Proof& proof) {
  if (!proof.ok()) return "<tutti.Proof, " + std::string(fault_name(proof.fault)) + ": " + proof.error + ">";
  return "<tutti.Proof, ok, " + std::to_string(proof.steps) + " steps, " + std::to_string(proof.messages) +
         " messages in " + std::to_string(proof.rounds) + " rounds>";
}

std::vector<std::vector<std::string>> steps(const Plan& plan, uint32_t rank) {
  if (rank >= plan.schedules.size())
    throw py::index_error("steps: rank " + std::to_string(rank) + " of " + std::to_string(plan.schedules.size()));
  std::vector<std::vector<std::string>> lanes;
  for (const auto& lane : plan.schedules[rank].lanes)
    for (auto& texts = lanes.emplace_back(); const tutti::Step& step : lane) texts.push_back(describe(step));
  return lanes;
}

}  // namespace

const tutti_algorithm* find_algorithm_or_null(const std::string& name) {
  std::string error;
  return find_algorithm(name, &error);
}

void add_schedules(py::module_& module) {
  py::class_<Proof>(module, "Proof",
                    "What was proved of a schedule set, or why not (docs/proof.md says what a proof is worth).")
      .def_property_readonly("ok", &Proof::ok, "Everything is proved.")
      .def("__bool__", &Proof::ok)
      .def_readonly("error", &Proof::error, "\"\", or the rank, lane, step and chunk at fault.")
      .def_property_readonly(
          "fault", [](const Proof& p) { return fault_name(p.fault); }, "The kind of the error: \"deadlock\".")
      .def_readonly("same_tree", &Proof::same_tree, "All ranks reduce each chunk in one order.")
      .def_readonly("rank_order", &Proof::rank_order, "Operands come in the order of ranks.")
      .def_readonly("canonical", &Proof::canonical, "Results are reduced by the canonical tree (TUTTI_ORDER).")
      .def_readonly("flat", &Proof::flat, "Each result is reduced in one step: serves exact sums (TUTTI_ORDER).")
      .def_readonly("steps", &Proof::steps, "The steps of all ranks.")
      .def_readonly("messages", &Proof::messages, "The messages of all ranks.")
      .def_readonly("rounds", &Proof::rounds, "The longest chain of messages.")
      .def_readonly("scratch_chunks", &Proof::scratch_chunks, "The most chunks of scratch that a rank has.")
      .def_readonly("bytes_sent", &Proof::bytes_sent, "The bytes of the rank that sends most, in blocks.")
      .def_readonly("bytes_lower_bound", &Proof::bytes_lower_bound,
                    "The fewest that a rank can send in this collective, in blocks.")
      .def("__repr__", [](const Proof& proof) { return text(proof); });
  py::class_<Plan>(
      module, "Plan",
      "The schedules of all ranks of one operation, as an algorithm emits them.\n\n"
      "algorithm    one of tutti.algorithms()\n"
      "collective   \"all_reduce\", \"broadcast\" ...\n"
      "nranks       how many ranks\n"
      "root         the rank of the root, for collectives that have one\n"
      "lanes        how many lanes the algorithm may use\n"
      "hosts        the number of each rank's host; empty: all on one\n"
      "parameters   of the algorithm: \"4\" of \"bruck:4\"\n"
      "in_place     the input lies in the output\n\n"
      "Raises tutti.NotFound for an unknown algorithm, ValueError for arguments that cannot be, and a subclass of\n"
      "tutti.Error where the algorithm does not serve them. In a notebook a plan draws itself.")
      .def(py::init(&build), "algorithm"_a, "collective"_a, "nranks"_a, py::kw_only(), "root"_a = 0, "lanes"_a = 8,
           "hosts"_a = std::vector<uint32_t>(), "parameters"_a = "", "in_place"_a = false)
      .def("verify", prove,
           "Proves the algorithm for these ranks, out of place and in place, for every count, type and slicing.")
      .def("seconds", seconds, "block_bytes"_a, py::kw_only(), "latency"_a = 5e-6, "bandwidth"_a = 1e10,
           "element_bytes"_a = 4, "slices"_a = 1,
           "The simulated time in seconds of a call with blocks of `block_bytes` bytes, where all links are alike:\n"
           "`latency` in seconds, `bandwidth` in bytes per second. `slices`: pieces that each block is cut into.")
      .def("steps", steps, "rank"_a,
           "The steps of a rank as texts: a list for each lane. Raises IndexError for a rank that it does not have.")
      .def("draw", draw, "title"_a = "",
           "An SVG as text: a band for each rank, time from left to right. Raises ValueError for schedules that are "
           "wrong.")
      .def("__repr__", [](const Plan& plan) { return text(plan); })
      .def(
          "_repr_svg_", [](const Plan& plan) { return draw(plan, ""); }, "What a notebook shows: draw().");
  module.def(
      "algorithms",
      [] {
        std::vector<std::string> names;
        for (const tutti_algorithm* algorithm : list_algorithms()) names.emplace_back(algorithm->name);
        return names;
      },
      "The names of all algorithms.");
}

}  // namespace tutti::python
