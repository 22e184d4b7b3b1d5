// SPDX-License-Identifier: Apache-2.0
//
// MPI_Init, MPI_Init_thread and MPI_Finalize.
#include "serve.hpp"
#include "settings.hpp"

using namespace tutti::mpi;

namespace {

int begin(int code) {
  if (code != MPI_SUCCESS) return code;
  set_running(true);
  return meet(MPI_COMM_WORLD);
}

}  // namespace

int MPI_Init(int* argc, char*** argv) {
  settings();
  require_matching_library();
  return begin(pmpi::Init(argc, argv));
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  settings();
  require_matching_library();
  return begin(pmpi::Init_thread(argc, argv, required, provided));
}

int MPI_Finalize() {
  if (is_running()) {
    complete_pending(nullptr);
    report();
    destroy_communicators();
    set_running(false);
  }
  return pmpi::Finalize();
}
