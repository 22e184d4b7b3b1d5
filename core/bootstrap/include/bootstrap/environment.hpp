// SPDX-License-Identifier: Apache-2.0
//
// The environment variables of launchers, one line per launcher: rank and size; local rank and size; rank 0's address
// and port.
//
//   (ours)    TUTTI_RANK, TUTTI_WORLD_SIZE; TUTTI_LOCAL_RANK, TUTTI_LOCAL_WORLD_SIZE; TUTTI_ADDR, TUTTI_PORT
//   Kubernetes  JOB_COMPLETION_INDEX, WORLD_SIZE where RANK is not set; none; none
//   torchrun  RANK, WORLD_SIZE; LOCAL_RANK, LOCAL_WORLD_SIZE; MASTER_ADDR, MASTER_PORT
//   Open MPI  OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE; OMPI_COMM_WORLD_LOCAL_RANK, ..._LOCAL_SIZE; none
//   Hydra     PMI_RANK, PMI_SIZE; MPI_LOCALRANKID, MPI_LOCALNRANKS; none
//   Slurm     SLURM_PROCID, SLURM_NTASKS; SLURM_LOCALID, SLURM_(STEP_)TASKS_PER_NODE; first host, from job id
//   PMIx      PMIX_RANK, told by its server; none; none
//
// Ranks of the launchers from Open MPI on meet over the launcher itself where neither an address nor a port is set:
// with PMIX_RANK and PMIX_NAMESPACE by plugin:pmix, with PMI_FD by plugin:pmi1 (Hydra: the latter first).
//
// The first line that has its rank or size set gives both. The local pair is TUTTI_LOCAL_* or of the same line. The
// address is TUTTI_ADDR, MASTER_ADDR or of the same line, the port likewise; IPv6 with or without brackets.
// TUTTI_RENDEZVOUS names another rendezvous ("file:/folder"). Unset is not empty: an empty value is refused.
// TUTTI_SECRET is the job's secret in hexadecimal digits, TUTTI_JOB a name by which jobs that meet by mistake tell each
// other apart.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "net/socket_address.hpp"

namespace tutti::core {

struct Environment {
  std::string launcher;  // "torchrun"; empty: there is none
  uint32_t rank = 0;
  uint32_t nranks = 1;  // 0: `service` tells it
  std::optional<uint32_t> local_rank, local_nranks;
  std::string rendezvous;  // TUTTI_RENDEZVOUS
  std::string service;     // the meeting/1 of the launcher, "pmix"; empty: there is none, or an address is set
  std::string host;        // where rank 0 listens; empty: not told
  std::string host_variable;
  uint16_t port = 0;  // 0: not told
  std::string port_variable;
  std::string port_note;  // why the port is not the variable's own value, for messages
  std::string secret;     // bytes
  std::string job;
};

// Reads each variable once. Throws Failure{TUTTI_INVALID_ARGUMENT} naming the variable and its value, or, of half a
// set, what is missing. `need_identity` false: rank and size are known otherwise, and what tells them is not read.
Environment read_environment(const EnvironmentLookup& lookup, bool need_identity);

// The address at which rank 0 listens, and the variables that name it.
struct TcpPlace {
  HostPort where;
  std::string host_variable, port_variable;
  std::string note;
};
// Throws Failure{TUTTI_INVALID_ARGUMENT} saying what to set when the environment does not tell.
TcpPlace place_of_launcher(const Environment& environment);

}  // namespace tutti::core
