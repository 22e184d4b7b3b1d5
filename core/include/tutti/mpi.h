/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of the ranks of an MPI communicator, for programs that use both libraries. It needs <mpi.h>; libtutti
 * does not, since these functions are compiled into the program that includes them. Compile with mpicc, link libtutti.
 *
 *   tutti_comm* comm = NULL;
 *   tutti_status status = tutti_comm_create_from_mpi(MPI_COMM_WORLD, NULL, &comm);
 *
 * A program that does not use MPI needs none of it: under mpirun or srun tutti_comm_create finds the ranks by itself.
 */
#ifndef TUTTI_MPI_H
#define TUTTI_MPI_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parts of tutti_comm_create_from_mpi ------------------------------------------------------------------- */

enum { TUTTI_MPI_FAILED = 0, TUTTI_MPI_GATHERS = 1, TUTTI_MPI_MADE = 2, TUTTI_MPI_TEXT = 2048 };

/* One rank's part. The ranks agree on their states step by step, until a step has a failed rank or all are done. */
typedef struct tutti_mpi_meeting {
  MPI_Comm comm;
  int rank, nranks;
  int32_t mine;   /* the state that this rank gave last */
  int32_t lowest; /* of all ranks' states of that step; TUTTI_MPI_FAILED: no step follows */
} tutti_mpi_meeting;

static inline tutti_status tutti_mpi_fail(const tutti_comm_config* config, tutti_status status, const char* text) {
  if (config->error && config->error_bytes) snprintf(config->error, (size_t)config->error_bytes, "%s", text);
  return status;
}

/* True when all ranks give the same state, and none has failed. */
static inline int tutti_mpi_agree(tutti_mpi_meeting* meeting, int32_t state) {
  int32_t lowest_and_highest[2] = {0, 0};
  const int32_t given[2] = {state, -state};
  meeting->mine = state;
  if (MPI_Allreduce(given, lowest_and_highest, 2, MPI_INT32_T, MPI_MIN, meeting->comm) != MPI_SUCCESS)
    lowest_and_highest[0] = TUTTI_MPI_FAILED;
  meeting->lowest = lowest_and_highest[0];
  return state != TUTTI_MPI_FAILED && lowest_and_highest[0] == state && -lowest_and_highest[1] == state;
}

/* A tutti_all_gather_function. */
static inline tutti_status tutti_mpi_all_gather(void* context, const void* mine, uint64_t bytes, void* all) {
  tutti_mpi_meeting* meeting = (tutti_mpi_meeting*)context;
  if (!tutti_mpi_agree(meeting, TUTTI_MPI_GATHERS)) return TUTTI_ABORTED;
  const int count = (int)bytes; /* a few hundred */
  const int code = MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, meeting->comm);
  return code == MPI_SUCCESS ? TUTTI_OK : TUTTI_SYSTEM;
}

/* Every rank learns the status and the text of the first rank that failed; a rank that failed itself keeps its own. */
static inline tutti_status tutti_mpi_tell(tutti_mpi_meeting* meeting, tutti_status status, char* text) {
  const int32_t failed = meeting->mine == TUTTI_MPI_FAILED;
  const int32_t candidate = failed ? meeting->rank : meeting->nranks;
  int32_t first = 0;
  char theirs[sizeof(int32_t) + TUTTI_MPI_TEXT] = "";
  memcpy(theirs, &status, sizeof status);
  snprintf(theirs + sizeof status, TUTTI_MPI_TEXT, "%s", text);
  if (MPI_Allreduce(&candidate, &first, 1, MPI_INT32_T, MPI_MIN, meeting->comm) != MPI_SUCCESS ||
      first == meeting->nranks ||
      MPI_Bcast(theirs, (int)sizeof theirs, MPI_BYTE, first, meeting->comm) != MPI_SUCCESS) {
    if (!failed) snprintf(text, TUTTI_MPI_TEXT, "rank %d: MPI could not tell which rank failed", (int)meeting->rank);
    return failed ? status : TUTTI_SYSTEM;
  }
  if (failed) return status;
  memcpy(&status, theirs, sizeof status);
  const int begin =
      snprintf(text, TUTTI_MPI_TEXT, "rank %d of the MPI communicator could not make its communicator: ", (int)first);
  memcpy(text + begin, theirs + sizeof status, (size_t)(TUTTI_MPI_TEXT - begin));
  text[TUTTI_MPI_TEXT - 1] = '\0';
  return status;
}

/* This rank has a communicator and another has none. */
static inline void tutti_mpi_give_up(tutti_comm** comm) {
  tutti_comm_abort(*comm, "another rank of the MPI communicator could not make its communicator");
  tutti_comm_destroy(*comm);
  *comm = NULL;
}

/* The error in the arguments, or NULL. */
static inline const char* tutti_mpi_refusal(const tutti_comm_config* config, tutti_comm** comm) {
  if (!comm) return "tutti_comm_create_from_mpi: `comm` is NULL, expected the place of a handle";
  if (config->struct_size < TUTTI_SIZE_UP_TO(tutti_comm_config, nranks) || config->struct_size > sizeof *config)
    return "tutti_comm_create_from_mpi: tutti_comm_config.struct_size is not that of any version, expected "
           "sizeof(tutti_comm_config)";
  if (config->rendezvous || config->rank || config->nranks || config->all_gather)
    return "tutti_comm_create_from_mpi: tutti_comm_config has a rendezvous, a rank, a number of ranks or an "
           "all_gather, expected none: the MPI communicator tells them";
  if (config->flags & TUTTI_COMM_JOIN)
    return "tutti_comm_create_from_mpi: tutti_comm_config.flags has TUTTI_COMM_JOIN, expected it to be unset: a rank "
           "of an MPI communicator has its number. A newcomer calls tutti_comm_create";
  return NULL;
}

/* The reason why the MPI communicator cannot be used, or NULL. Concerns this rank alone. */
static inline const char* tutti_mpi_unusable(MPI_Comm mpi) {
  int yes = 0;
  if (MPI_Initialized(&yes) != MPI_SUCCESS || !yes)
    return "tutti_comm_create_from_mpi: MPI is not initialized: call MPI_Init first";
  if (MPI_Finalized(&yes) != MPI_SUCCESS || yes)
    return "tutti_comm_create_from_mpi: MPI has been finalized: make the communicator before MPI_Finalize";
  if (mpi == MPI_COMM_NULL)
    return "tutti_comm_create_from_mpi: the communicator is MPI_COMM_NULL: only its ranks call this function";
  if (MPI_Comm_test_inter(mpi, &yes) != MPI_SUCCESS || yes)
    return "tutti_comm_create_from_mpi: the communicator is an inter-communicator: merge it by MPI_Intercomm_merge";
  return NULL;
}

/* ---- The function ------------------------------------------------------------------------------------------ */

/* Makes a communicator of the ranks of `mpi`, with their numbers. Collective over `mpi`. It works on a duplicate of
 * `mpi`, which it frees before it returns: neither communicator needs the other afterwards, so `mpi` may be freed and
 * MPI finalized. `config`: as for tutti_comm_create; NULL: all defaults. It may differ in `error` and `device`, and has
 * no rendezvous, rank, nranks or all_gather. Errors: those of tutti_comm_create. If one rank fails, all do, with that
 * rank's status and text; only where `mpi` cannot be used at all (MPI_COMM_NULL, MPI not initialized) the error stays
 * on this rank. MPI is called by the calling thread only. If a rank does not call this, the others wait as MPI waits:
 * without limit.
 */
static inline tutti_status tutti_comm_create_from_mpi(MPI_Comm mpi, const tutti_comm_config* config,
                                                      tutti_comm** comm) {
  char text[TUTTI_MPI_TEXT] = "";
  tutti_mpi_meeting meeting;
  tutti_comm_config given;
  memset(&given, 0, sizeof given);
  given.struct_size = sizeof given;
  if (config) memcpy(&given, config, config->struct_size < sizeof given ? config->struct_size : sizeof given);
  if (config && config->struct_size == 0) given.struct_size = 0;
  const char* wrong = tutti_mpi_unusable(mpi);
  if (wrong) return tutti_mpi_fail(&given, TUTTI_INVALID_USAGE, wrong);
  if (MPI_Comm_dup(mpi, &meeting.comm) != MPI_SUCCESS)
    return tutti_mpi_fail(&given, TUTTI_SYSTEM, "tutti_comm_create_from_mpi: MPI_Comm_dup failed");
  MPI_Comm_set_errhandler(meeting.comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(meeting.comm, &meeting.rank);
  MPI_Comm_size(meeting.comm, &meeting.nranks);
  meeting.lowest = TUTTI_MPI_MADE;

  tutti_status status = TUTTI_INVALID_ARGUMENT;
  wrong = tutti_mpi_refusal(&given, comm);
  if (wrong) {
    snprintf(text, sizeof text, "%s", wrong);
  } else {
    tutti_comm_config own = given;
    own.struct_size = sizeof own;
    own.rank = (uint32_t)meeting.rank;
    own.nranks = (uint32_t)meeting.nranks;
    own.all_gather = tutti_mpi_all_gather;
    own.all_gather_context = &meeting;
    own.error = text;
    own.error_bytes = sizeof text;
    status = tutti_comm_create(&own, comm);
  }
  const int made = status == TUTTI_OK;
  if (meeting.lowest == TUTTI_MPI_FAILED || !tutti_mpi_agree(&meeting, made ? TUTTI_MPI_MADE : TUTTI_MPI_FAILED)) {
    if (made) tutti_mpi_give_up(comm);
    status = tutti_mpi_tell(&meeting, status, text);
    tutti_mpi_fail(&given, status, text);
  }
  MPI_Comm_free(&meeting.comm);
  return status;
}

#ifdef __cplusplus
}
#endif

#endif
