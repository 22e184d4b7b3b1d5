/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that is not linked with MPI. It loads the library itself, as Python does, and looks for what that has.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void* handle;

static void* found(const char* name) {
  void* function = dlsym(RTLD_DEFAULT, name);
  if (function) return function;
  fprintf(stderr, "there is no %s\n", name);
  exit(1);
}

int main(int argc, char** argv) {
  const char* files[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"};
#if defined(OPEN_MPI)
  handle = dlopen(files[0], RTLD_NOW | RTLD_GLOBAL);
#else
  for (int f = 1; f < 3 && !handle; ++f) handle = dlopen(files[f], RTLD_NOW | RTLD_GLOBAL);
#endif
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  /* Only where the library has it: a form of MPI 4, and a persistent collective. */
  const char* may_lack[] = {"Bcast_c", "Allreduce_init"};
  for (int i = 0; i < 2; ++i) {
    char name[64], own[64];
    snprintf(name, sizeof name, "MPI_%s", may_lack[i]);
    snprintf(own, sizeof own, "PMPI_%s", may_lack[i]);
    if (dlsym(RTLD_DEFAULT, name) && !dlsym(handle, own)) {
      fprintf(stderr, "%s is there, and the MPI library has no %s\n", name, own);
      return 1;
    }
  }
#if defined(OPEN_MPI)
  MPI_Comm world = (MPI_Comm)dlsym(handle, "ompi_mpi_comm_world");
#else
  MPI_Comm world = MPI_COMM_WORLD;
#endif
  int rank = 0;
  ((int (*)(int*, char***))found("MPI_Init"))(&argc, &argv);
  ((int (*)(MPI_Comm, int*))found("MPI_Comm_rank"))(world, &rank);
  ((int (*)(MPI_Comm))found("MPI_Barrier"))(world);
  ((int (*)(void))found("MPI_Finalize"))();
  if (rank == 0) puts("passed");
  return 0;
}
