// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "job.hpp"

using namespace tutti::mpitrampoline;

namespace {

// A rank or a tag.
uint32_t number(const char* what, int value) {
  if (value < 0)
    throw Failure(
        fmt::format("{} is {}, expected 0 or more: MPI_ANY_SOURCE, MPI_ANY_TAG and MPI_PROC_NULL are not "
                    "served",
                    what, value));
  return static_cast<uint32_t>(value);
}

tutti_message message(uint32_t direction, void* data, int count, Handle type, int peer, int tag) {
  tutti_message made{};
  made.data = output(data);
  made.count = elements(count);
  made.dtype = element(type);
  made.peer = number("the peer", peer);
  made.tag = number("the tag", tag);
  made.direction = direction;
  return made;
}

void fill(Status* status, int source, int tag) {
  if (reinterpret_cast<Handle>(status) == MPI_STATUS_IGNORE) return;
  *status = {{}, source, tag, MPI_SUCCESS};
}

void start(const tutti_message& one, Handle comm, int peer, int tag, Handle* request) {
  const std::shared_ptr<Communicator> found = communicator(comm);
  tutti_request* started = nullptr;
  use(*found, [&](tutti_comm* ranks) {
    return one.direction == TUTTI_SEND
               ? tutti_send(ranks, one.data, one.count, one.dtype, one.peer, one.tag, nullptr, &started)
               : tutti_receive(ranks, one.data, one.count, one.dtype, one.peer, one.tag, nullptr, &started);
  });
  *request = add(Request{found, {started, &tutti_request_free}, peer, tag});
}

}  // namespace

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Isend(const void* data, int count, Handle type, int peer, int tag, Handle comm,
                                            Handle* request) {
  return returned("MPI_Isend", [&] {
    start(message(TUTTI_SEND, const_cast<void*>(data), count, type, peer, tag), comm, peer, tag, request);
  });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Irecv(void* data, int count, Handle type, int peer, int tag, Handle comm,
                                            Handle* request) {
  return returned("MPI_Irecv",
                  [&] { start(message(TUTTI_RECEIVE, data, count, type, peer, tag), comm, peer, tag, request); });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Wait(Handle* handle, Status* status) {
  return returned("MPI_Wait", [&] {
    if (*handle == MPI_REQUEST_NULL) return fill(status, MPI_ANY_SOURCE, MPI_ANY_TAG);
    Request waited = take_request(*handle);
    *handle = MPI_REQUEST_NULL;
    const std::lock_guard turn(waited.communicator->turn);
    const auto request = std::move(waited.request);  // freed in the turn
    if (tutti_request_wait(request.get()) != TUTTI_OK) throw Failure(tutti_request_error(request.get()));
    fill(status, waited.peer, waited.tag);
  });
}

// JAX makes its all-to-all of these, since the blocks of its arrays lie apart.
TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Sendrecv(const void* in, int in_count, Handle in_type, int to, int in_tag,
                                               void* out, int out_count, Handle out_type, int from, int out_tag,
                                               Handle comm, Status* status) {
  return returned("MPI_Sendrecv", [&] {
    const std::array both{message(TUTTI_SEND, const_cast<void*>(in), in_count, in_type, to, in_tag),
                          message(TUTTI_RECEIVE, out, out_count, out_type, from, out_tag)};
    use(*communicator(comm),
        [&](tutti_comm* ranks) { return tutti_exchange(ranks, both.data(), both.size(), nullptr, nullptr); });
    fill(status, from, out_tag);
  });
}
