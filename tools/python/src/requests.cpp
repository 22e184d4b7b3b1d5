// SPDX-License-Identifier: Apache-2.0
//
// Requests, and groups of calls: with comm.group(): ...
#include <pybind11/stl.h>

#include <utility>

#include "operations.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;

// The block of a with statement. It ends as the calls of its face do.
class Group {
 public:
  Group(std::shared_ptr<State> state, bool blocks, uint32_t flags)
      : state_(std::move(state)), blocks_(blocks), flags_(flags) {}

  void enter() {
    state_->use([](tutti_comm* comm) { return tutti_group_begin(comm); });
    state_->group.emplace();
  }
  // An exception forgets the calls.
  void exit(const py::object& exception) {
    std::vector<Data> data = std::exchange(state_->group, std::nullopt).value_or(std::vector<Data>());
    if (!exception.is_none()) {
      if (state_->is_open()) state_->use([](tutti_comm* comm) { return tutti_group_cancel(comm); });
      return;
    }
    tutti_options options{};
    options.struct_size = sizeof options;
    options.flags = flags_;
    tutti_request* request = nullptr;
    state_->use([&](tutti_comm* comm) { return tutti_group_end(comm, &options, &request); });
    request_ = std::make_shared<Request>("group", state_, request, std::move(data), flags_ & TUTTI_PERSISTENT);
    if (blocks_) request_->finish();
  }
  std::string text() const {
    const char* const phase = request_ ? "ended" : state_->group ? "open" : "not entered";
    return "<tutti.Group, " + state_->text() + ", " + phase + ">";
  }
  std::shared_ptr<Request> request() const {
    if (!request_) raise(TUTTI_INVALID_USAGE, "Group.request: the group has not ended: it does when its block is left");
    return request_;
  }

 private:
  std::shared_ptr<State> state_;
  const bool blocks_;
  const uint32_t flags_;
  std::shared_ptr<Request> request_;
};

}  // namespace

template <typename Face>
void add_group(py::class_<Face>& face) {
  face.def(
      "group", [](const Face& f) { return Group(f.state, std::is_same_v<Face, Calls>, Face::flags); },
      "with comm.group(): the calls of this communicator that the block makes, without requests, begin and end\n"
      "together, at its end. Small collectives of one kind travel as one. An exception forgets them. Of comm.start "
      "and\n"
      "comm.persistent: with comm.start.group() as group: ...; group.request.wait().");
}
template void add_group(py::class_<Calls>&);
template void add_group(py::class_<Start>&);
template void add_group(py::class_<Persistent>&);

void add_requests(py::module_& module) {
  using namespace py::literals;
  py::class_<Request, std::shared_ptr<Request>>(
      module, "Request",
      "An operation under way. It keeps its arrays: until it is complete, outputs must not be read and inputs not\n"
      "written. `await` works too. One that is dropped before its end waits for it.")
      .def("__repr__", &Request::text)
      .def("test", &Request::test, "Advances the operation; True once it is complete. Raises its error.")
      .def("wait", &Request::wait, "seconds"_a = py::none(),
           "Waits until the operation is complete, at most `seconds`; None: without a limit of its own. False: it is "
           "not "
           "complete, and\n"
           "goes on. Raises its error: Timeout, PeerFailed, Mismatch, Aborted.")
      .def("start", &Request::start,
           "Starts the operation of a request of Communicator.persistent, which is complete. It keeps its arrays, "
           "which\n"
           "may have new contents each time.");
  py::class_<Group>(module, "Group", "Calls that begin and end together. See Calls.group.")
      .def(
          "__enter__",
          [](Group& group) -> Group& {
            group.enter();
            return group;
          },
          py::return_value_policy::reference)
      .def("__exit__",
           [](Group& group, const py::object& kind, const py::object&, const py::object&) {
             group.exit(kind);
             return false;
           })
      .def("__repr__", &Group::text)
      .def_property_readonly(
          "request", &Group::request,
          "The request of all its calls together. Raises InvalidUsage before its block has been left.");
}

}  // namespace tutti::python
