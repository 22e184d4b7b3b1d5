// SPDX-License-Identifier: Apache-2.0
//
// MPI's calls that wait. While calls of Tutti are pending they become loops that advance both: a program may wait for a
// message that another rank sends when its part of a pending collective has ended.
#include "pending.hpp"

using namespace tutti::mpi;

namespace {

// `test(flag)` is a call of MPI that does not wait.
template <typename Test>
int wait_by(Test test) {
  for (uint32_t fruitless = 0;; ++fruitless) {
    advance_pending();
    int flag = 0;
    if (const int code = test(&flag); flag || code != MPI_SUCCESS) return code;
    rest_for_pending(fruitless);
  }
}

int wait_for(MPI_Request* request, MPI_Status* status) {
  return wait_by([&](int* flag) { return pmpi::Test(request, flag, status); });
}

}  // namespace

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  return any_pending() ? wait_for(request, status) : pmpi::Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  if (!any_pending()) return pmpi::Waitall(count, requests, statuses);
  return wait_by([&](int* flag) { return pmpi::Testall(count, requests, flag, statuses); });
}

int MPI_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  if (!any_pending()) return pmpi::Waitany(count, requests, index, status);
  return wait_by([&](int* flag) { return pmpi::Testany(count, requests, index, flag, status); });
}

int MPI_Waitsome(int count, MPI_Request* requests, int* n, int* indices, MPI_Status* statuses) {
  if (!any_pending()) return pmpi::Waitsome(count, requests, n, indices, statuses);
  return wait_by([&](int* flag) {
    const int code = pmpi::Testsome(count, requests, n, indices, statuses);
    *flag = *n != 0;  // MPI_UNDEFINED: no request is active
    return code;
  });
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  advance_pending();
  return pmpi::Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  advance_pending();
  return pmpi::Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  advance_pending();
  return pmpi::Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int count, MPI_Request* requests, int* n, int* indices, MPI_Status* statuses) {
  advance_pending();
  return pmpi::Testsome(count, requests, n, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  advance_pending();
  return pmpi::Request_get_status(request, flag, status);
}

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  if (!any_pending()) return pmpi::Send(data, count, type, to, tag, comm);
  MPI_Request request;
  const int code = pmpi::Isend(data, count, type, to, tag, comm, &request);
  return code == MPI_SUCCESS ? wait_for(&request, MPI_STATUS_IGNORE) : code;
}

int MPI_Ssend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  if (!any_pending()) return pmpi::Ssend(data, count, type, to, tag, comm);
  MPI_Request request;
  const int code = pmpi::Issend(data, count, type, to, tag, comm, &request);
  return code == MPI_SUCCESS ? wait_for(&request, MPI_STATUS_IGNORE) : code;
}

int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  if (!any_pending()) return pmpi::Recv(data, count, type, from, tag, comm, status);
  MPI_Request request;
  const int code = pmpi::Irecv(data, count, type, from, tag, comm, &request);
  return code == MPI_SUCCESS ? wait_for(&request, status) : code;
}

int MPI_Sendrecv(const void* out, int out_count, MPI_Datatype out_type, int to, int out_tag, void* in, int in_count,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
  if (!any_pending())
    return pmpi::Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, status);
  MPI_Request receive, send;
  if (const int code = pmpi::Irecv(in, in_count, in_type, from, in_tag, comm, &receive); code != MPI_SUCCESS)
    return code;
  if (const int code = pmpi::Isend(out, out_count, out_type, to, out_tag, comm, &send); code != MPI_SUCCESS)
    return code;
  const int sent = wait_for(&send, MPI_STATUS_IGNORE), received = wait_for(&receive, status);
  return sent == MPI_SUCCESS ? received : sent;
}

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status* status) {
  if (!any_pending()) return pmpi::Probe(from, tag, comm, status);
  return wait_by([&](int* flag) { return pmpi::Iprobe(from, tag, comm, flag, status); });
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  advance_pending();
  return pmpi::Iprobe(from, tag, comm, flag, status);
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  advance_pending();
  return pmpi::Improbe(from, tag, comm, flag, message, status);
}

int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  if (!any_pending()) return pmpi::Mprobe(from, tag, comm, message, status);
  return wait_by([&](int* flag) { return pmpi::Improbe(from, tag, comm, flag, message, status); });
}

int MPI_Op_free(MPI_Op* op) {
  if (!any_pending() || !op || !keep_until_idle(*op)) return pmpi::Op_free(op);
  *op = MPI_OP_NULL;
  return MPI_SUCCESS;
}
