// SPDX-License-Identifier: Apache-2.0
#include "schedules.hpp"

#include <pybind11/stl.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cmath>
#include <optional>
#include <vector>

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

Plan build(const std::string& name, const std::string& collective, uint32_t nranks, uint32_t root, uint32_t lanes,
           std::vector<uint32_t> hosts, std::string parameters, bool in_place) {
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
      .def_property_readonly("ok", &Proof::ok)
      .def("__bool__", &Proof::ok)
      .def_readonly("error", &Proof::error, "\"\", or the rank, lane, step and chunk at fault.")
      .def_property_readonly(
          "fault", [](const Proof& p) { return fault_name(p.fault); }, "The kind of the error: \"deadlock\".")
      .def_readonly("same_tree", &Proof::same_tree, "All ranks reduce each chunk in one order.")
      .def_readonly("rank_order", &Proof::rank_order, "Operands come in the order of ranks.")
      .def_readonly("canonical", &Proof::canonical, "Results are reduced by the canonical tree (TUTTI_ORDER).")
      .def_readonly("steps", &Proof::steps, "Of all ranks.")
      .def_readonly("messages", &Proof::messages)
      .def_readonly("rounds", &Proof::rounds, "The longest chain of messages.")
      .def_readonly("scratch_chunks", &Proof::scratch_chunks)
      .def_readonly("bytes_sent", &Proof::bytes_sent, "By the rank that sends most, in blocks.")
      .def_readonly("bytes_lower_bound", &Proof::bytes_lower_bound);
  py::class_<Plan>(module, "Plan", "The schedules of all ranks of one operation, as an algorithm emits them.")
      .def(py::init(&build), "algorithm"_a, "collective"_a, "nranks"_a, py::kw_only(), "root"_a = 0, "lanes"_a = 8,
           "hosts"_a = std::vector<uint32_t>(), "parameters"_a = "", "in_place"_a = false)
      .def("verify", prove,
           "Proves the algorithm for these ranks, out of place and in place, for every count, type and slicing.")
      .def("seconds", seconds, "block_bytes"_a, py::kw_only(), "latency"_a = 5e-6, "bandwidth"_a = 1e10,
           "element_bytes"_a = 4, "slices"_a = 1,
           "The simulated time where all links are alike: seconds and bytes per second.")
      .def("steps", steps, "rank"_a, "The steps of a rank as texts, lane by lane.")
      .def("draw", draw, "title"_a = "", "An SVG: a band for each rank, time from left to right.")
      .def("_repr_svg_", [](const Plan& plan) { return draw(plan, ""); });
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
