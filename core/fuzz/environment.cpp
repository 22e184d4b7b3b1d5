// SPDX-License-Identifier: Apache-2.0
//
// Settings as a hostile or careless environment gives them: launchers' variables, addresses, unique ids, TUTTI_ALGO.
// Each is read or refused with a text; nothing else happens.
#include "bootstrap/environment.hpp"

#include <map>

#include "engine/choose/selector.hpp"
#include "fuzz_input.hpp"
#include "unique_id.hpp"

namespace {

constexpr const char* kNames[] = {"TUTTI_RANK",
                                  "TUTTI_WORLD_SIZE",
                                  "TUTTI_LOCAL_RANK",
                                  "TUTTI_LOCAL_WORLD_SIZE",
                                  "TUTTI_ADDR",
                                  "TUTTI_PORT",
                                  "TUTTI_SECRET",
                                  "TUTTI_JOB",
                                  "TUTTI_RENDEZVOUS",
                                  "RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "PMIX_RANK",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_TASKS_PER_NODE",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_JOB_NODELIST",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "PMIX_NAMESPACE",
                                  "PMI_FD",
                                  "JOB_COMPLETION_INDEX"};

template <typename Body>
void refused_or_read(Body body) {
  try {
    body();
  } catch (const tutti::core::Failure& failure) {
    FUZZ_CHECK(failure.status < 0 && !failure.text.empty());
  }
}

void read_launcher(FuzzInput& input) {
  std::map<std::string, std::string> variables;
  const bool need_identity = input.flag();
  while (!input.empty()) {
    const char* name = kNames[input.byte() % std::size(kNames)];
    std::string value = input.text();
    value.resize(std::char_traits<char>::length(value.c_str()));  // a variable ends at its first zero byte
    variables[name] = std::move(value);
  }
  const auto lookup = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  refused_or_read([&] {
    const auto environment = tutti::core::read_environment(lookup, need_identity);
    FUZZ_CHECK(environment.rank < environment.nranks || (environment.nranks == 0 && environment.launcher == "PMIx"));
    FUZZ_CHECK(!environment.local_rank || *environment.local_rank < *environment.local_nranks);
    if (!environment.launcher.empty()) (void)tutti::core::place_of_launcher(environment);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  switch (input.byte() % 4) {
    case 0:
      read_launcher(input);
      break;
    case 1:
      refused_or_read([&] {
        const auto place = tutti::core::parse_host_port(input.rest(), "fuzz");
        FUZZ_CHECK(!place.host.empty() && place.port != 0);
      });
      break;
    case 2:
      refused_or_read([&] {
        const auto id = tutti::core::parse_id("id:" + input.rest());
        FUZZ_CHECK(!id.addresses.empty() && tutti::core::parse_id(tutti::core::id_text(id)).addresses == id.addresses);
      });
      break;
    default:
      refused_or_read([&] { const tutti::core::AlgorithmFilter filter(input.rest()); });
  }
  return 0;
}
