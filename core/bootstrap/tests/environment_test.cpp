// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/environment.hpp"

#include <gtest/gtest.h>

#include "meeting_fixture.hpp"

namespace tutti::core {
namespace {

using Variables = std::map<std::string, std::string>;

struct Good {
  const char* what;
  Variables variables;
  const char* launcher;
  uint32_t rank, nranks;
  std::optional<uint32_t> local_rank, local_nranks;
  const char* host;
  uint16_t port;
  const char* service = "";
};
const Good kGood[] = {
    {"no launcher", {}, "", 0, 1, {}, {}, "", 0},
    {"torchrun",
     {{"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "29500"}},
     "torchrun",
     3,
     4,
     1,
     2,
     "h",
     29500},
    {"torchrun's own store has MASTER_PORT",
     {{"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "29500"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
     "torchrun",
     0,
     2,
     {},
     {},
     "h",
     29501},
    {"TUTTI_PORT beside torchrun's own store",
     {{"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "29500"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TUTTI_PORT", "4000"}},
     "torchrun",
     0,
     2,
     {},
     {},
     "h",
     4000},
    {"ours before torchrun's",
     {{"TUTTI_RANK", "0"},
      {"TUTTI_WORLD_SIZE", "2"},
      {"TUTTI_LOCAL_RANK", "0"},
      {"TUTTI_LOCAL_WORLD_SIZE", "1"},
      {"TUTTI_ADDR", "t"},
      {"TUTTI_PORT", "1"},
      {"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "2"}},
     "TUTTI_*",
     0,
     2,
     0,
     1,
     "t",
     1},
    {"Open MPI",
     {{"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMIX_RANK", "1"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "7"}},
     "Open MPI",
     1,
     2,
     1,
     2,
     "h",
     7},
    {"Open MPI without an address",
     {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "j"}},
     "Open MPI",
     1,
     2,
     {},
     {},
     "",
     0,
     "pmix"},
    {"one rank of Open MPI needs no service",
     {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "j"}},
     "Open MPI",
     0,
     1,
     {},
     {},
     "",
     0},
    {"PMIx alone", {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "j"}}, "PMIx", 1, 0, {}, {}, "", 0, "pmix"},
    {"Hydra, started by a PMIx launcher",
     {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "5"}, {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "j"}},
     "Hydra",
     1,
     2,
     {},
     {},
     "",
     0,
     "pmi1"},
    {"Slurm with PMIx",
     {{"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "2"},
      {"SLURM_STEP_NODELIST", "a[1-3]"},
      {"SLURM_JOB_ID", "100"},
      {"SLURM_STEP_ID", "2"},
      {"PMIX_RANK", "0"},
      {"PMIX_NAMESPACE", "slurm.pmix.100.2"}},
     "Slurm",
     0,
     2,
     {},
     {},
     "a1",
     26102,
     "pmix"},
    {"torchrun's ranks within a PMIx job",
     {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "j"}, {"PMI_FD", "5"}},
     "torchrun",
     1,
     2,
     {},
     {},
     "",
     0},
    {"an Indexed Job of Kubernetes",
     {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-0.job"}, {"MASTER_PORT", "29500"}},
     "Kubernetes",
     2,
     3,
     {},
     {},
     "job-0.job",
     29500},
    {"torchrun in a pod of an Indexed Job",
     {{"JOB_COMPLETION_INDEX", "1"}, {"RANK", "5"}, {"WORLD_SIZE", "8"}},
     "torchrun",
     5,
     8,
     {},
     {},
     "",
     0},
    {"a pod of an Indexed Job whose ranks do not meet", {{"JOB_COMPLETION_INDEX", "1"}}, "", 0, 1, {}, {}, "", 0},
    {"Hydra",
     {{"PMI_RANK", "1"},
      {"PMI_SIZE", "2"},
      {"MPI_LOCALRANKID", "0"},
      {"MPI_LOCALNRANKS", "1"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "7"}},
     "Hydra",
     1,
     2,
     0,
     1,
     "h",
     7},
    {"Slurm",
     {{"SLURM_PROCID", "4"},
      {"SLURM_NTASKS", "5"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "2"},
      {"SLURM_TASKS_PER_NODE", "2(x2),1"},
      {"SLURM_JOB_NODELIST", "node[07-12,20],other"},
      {"SLURM_JOB_ID", "100"},
      {"SLURM_STEP_ID", "2"}},
     "Slurm",
     4,
     5,
     0,
     1,
     "node07",
     26102},
    {"Slurm, names with a tail",
     {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", "a[1-3]-ib,b"}, {"MASTER_PORT", "9"}},
     "Slurm",
     0,
     2,
     {},
     {},
     "a1-ib",
     9},
};

struct Bad {
  const char* what;
  Variables variables;
  std::vector<std::string> words;
};
const Bad kBad[] = {
    {"empty number", {{"RANK", ""}, {"WORLD_SIZE", "2"}}, {"RANK is set but empty"}},
    {"garbage", {{"RANK", "1x"}, {"WORLD_SIZE", "2"}}, {"RANK=\"1x\""}},
    {"space", {{"RANK", " 1"}, {"WORLD_SIZE", "2"}}, {"RANK=\" 1\""}},
    {"plus", {{"RANK", "+1"}, {"WORLD_SIZE", "2"}}, {"RANK=\"+1\""}},
    {"negative", {{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, {"RANK=\"-1\""}},
    {"too large", {{"RANK", "0"}, {"WORLD_SIZE", "1048577"}}, {"WORLD_SIZE=\"1048577\"", "1048576"}},
    {"beyond 64 bits",
     {{"RANK", "0"}, {"WORLD_SIZE", "99999999999999999999"}},
     {"WORLD_SIZE=\"99999999999999999999\""}},
    {"world of none", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE=\"0\""}},
    {"rank too high", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, {"RANK=2", "WORLD_SIZE=2"}},
    {"no size", {{"RANK", "2"}}, {"RANK is set", "WORLD_SIZE is not"}},
    {"no rank", {{"WORLD_SIZE", "2"}}, {"WORLD_SIZE is set", "RANK is not"}},
    {"ours without size", {{"TUTTI_RANK", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"TUTTI_WORLD_SIZE is not"}},
    {"address alone", {{"MASTER_ADDR", "h"}}, {"MASTER_ADDR is set", "RANK and WORLD_SIZE"}},
    {"local rank alone", {{"LOCAL_RANK", "0"}}, {"LOCAL_RANK is set"}},
    {"half a local pair", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}, {"LOCAL_WORLD_SIZE is not"}},
    {"local rank too high",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
     {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}},
    {"local size above the world",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}},
     {"LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2"}},
    {"port 0", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0"}}, {"MASTER_PORT=\"0\""}},
    {"port too large", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "65536"}}, {"MASTER_PORT=\"65536\""}},
    {"address with a port",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1:80"}},
     {"MASTER_ADDR=\"10.0.0.1:80\" has a port", "MASTER_PORT=80"}},
    {"our address with a port",
     {{"TUTTI_RANK", "0"}, {"TUTTI_WORLD_SIZE", "2"}, {"TUTTI_ADDR", "[::1]:80"}},
     {"TUTTI_ADDR=\"[::1]:80\" has a port", "TUTTI_PORT=80"}},
    {"no closing bracket",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1"}},
     {"MASTER_ADDR: \"[::1\" has no closing bracket"}},
    {"something behind the bracket",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]80"}},
     {"MASTER_ADDR: \"[::1]80\" has no colon behind its closing bracket"}},
    {"empty brackets",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[]"}},
     {"MASTER_ADDR: \"[]\" has no host"}},
    {"empty address", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", ""}}, {"MASTER_ADDR is set but empty"}},
    {"our port is the store's",
     {{"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"MASTER_PORT", "5"},
      {"TUTTI_PORT", "5"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
     {"TUTTI_PORT=5", "MASTER_PORT"}},
    {"PMIx without a server", {{"PMIX_RANK", "0"}}, {"PMIX_RANK", "PMIX_NAMESPACE is not", "TUTTI_WORLD_SIZE"}},
    {"PMIx without a rank", {{"PMIX_NAMESPACE", "j"}}, {"PMIX_NAMESPACE", "PMIX_RANK is not", "TUTTI_WORLD_SIZE=1"}},
    {"index of a pod that is too high",
     {{"JOB_COMPLETION_INDEX", "3"}, {"WORLD_SIZE", "3"}},
     {"JOB_COMPLETION_INDEX=3"}},
    {"secret is no hex", {{"TUTTI_SECRET", "xyz"}}, {"TUTTI_SECRET", "hexadecimal"}},
    {"secret too short", {{"TUTTI_SECRET", "00112233"}}, {"TUTTI_SECRET has 4 bytes"}},
    {"empty secret", {{"TUTTI_SECRET", ""}}, {"TUTTI_SECRET is set but empty"}},
    {"empty job", {{"TUTTI_JOB", ""}}, {"TUTTI_JOB is set but empty"}},
    {"job too long", {{"TUTTI_JOB", std::string(129, 'j')}}, {"TUTTI_JOB has 129"}},
    {"the body of a batch script",
     {{"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "4"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "0"},
      {"SLURM_TASKS_PER_NODE", "4"},
      {"SLURM_JOB_NODELIST", "a"},
      {"SLURM_JOB_ID", "100"}},
     {"SLURM_NTASKS=4", "SLURM_STEP_ID", "batch script", "srun", "TUTTI_WORLD_SIZE=1"}},
    {"Slurm's list is broken",
     {{"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "1"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "0"},
      {"SLURM_TASKS_PER_NODE", "2(x"}},
     {"SLURM_TASKS_PER_NODE=\"2(x\""}},
    {"Slurm's hosts are broken",
     {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_NODELIST", "node[1-"}},
     {"SLURM_JOB_NODELIST=\"node[1-\""}},
};

TEST(Environment, Good) {
  for (const Good& good : kGood) {
    SCOPED_TRACE(good.what);
    const Environment found = read_environment(test::environment_of(good.variables), true);
    EXPECT_EQ(found.launcher, good.launcher);
    EXPECT_EQ(found.rank, good.rank);
    EXPECT_EQ(found.nranks, good.nranks);
    EXPECT_EQ(found.local_rank, good.local_rank);
    EXPECT_EQ(found.local_nranks, good.local_nranks);
    EXPECT_EQ(found.host, good.host);
    EXPECT_EQ(found.port, good.port);
    EXPECT_EQ(found.service, good.service);
  }
}

TEST(Environment, Bad) {
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.what);
    test::expect_failure(test::failure_of([&] { read_environment(test::environment_of(bad.variables), true); }),
                         TUTTI_INVALID_ARGUMENT, bad.words);
  }
}

TEST(Environment, AnAddressIsReadWithOrWithoutBrackets) {
  for (const char* of : {"MASTER_ADDR", "TUTTI_ADDR"})
    for (const auto& [text, host] : {std::pair("[::1]", "::1"), {"::1", "::1"}, {"[fe80::1%eth0]", "fe80::1%eth0"},
                                     {"10.0.0.1", "10.0.0.1"}, {"node-1.rack", "node-1.rack"}}) {
      const Environment found = read_environment(
          test::environment_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {of, text}, {"MASTER_PORT", "80"}}), true);
      EXPECT_EQ(found.host, host) << text;
      EXPECT_EQ(found.host_variable, of);
      EXPECT_EQ(place_of_launcher(found).where.host, host) << text;
    }
}

TEST(Environment, IdentityIsNotReadWhenItIsKnownOtherwise) {
  std::map<std::string, int> asked;
  const EnvironmentLookup lookup = [&](const char* name) -> const char* {
    ++asked[name];
    return nullptr;
  };
  read_environment(lookup, false);
  EXPECT_EQ(asked.count("RANK"), 0u);
  EXPECT_EQ(asked.count("TUTTI_SECRET"), 1u);
}

TEST(Environment, NoAddressIsAnErrorThatSaysWhatToSet) {
  const auto environment = read_environment(
      test::environment_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}), true);
  test::expect_failure(test::failure_of([&] { place_of_launcher(environment); }), TUTTI_INVALID_ARGUMENT,
                       {"Open MPI", "MASTER_PORT is not set", "TUTTI_RENDEZVOUS"});
}

TEST(Environment, ALauncherWhosePluginIsAbsentIsAnErrorThatNamesThePlugin) {
  const Rendezvous meeting = {.environment = test::environment_of({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "j"}}),
                              .log = test::quiet};
  test::expect_failure(test::failure_of([&] { make_bootstrap(meeting, std::chrono::seconds(5)); }),
                       TUTTI_INVALID_ARGUMENT, {"PMIX_RANK=1", "plugin pmix", "TUTTI_WORLD_SIZE"});
  const auto hydra =
      read_environment(test::environment_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "5"}}), true);
  test::expect_failure(test::failure_of([&] { place_of_launcher(hydra); }), TUTTI_INVALID_ARGUMENT,
                       {"Hydra", "MASTER_PORT", "plugin pmi1"});
}

TEST(Environment, TheErrorOfATakenStorePortNamesBoth) {
  test::HeldPort held;  // the "store" has held.port() - 1
  const FileDescriptor taken = listen_anywhere(held.port());
  ASSERT_TRUE(taken);
  Rendezvous meeting;
  meeting.log = test::quiet;
  meeting.environment = test::environment_of({{"RANK", "0"},
                                              {"WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", std::to_string(held.port() - 1)},
                                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  test::expect_failure(
      test::failure_of([&] { make_bootstrap(meeting, std::chrono::seconds(5)); }), TUTTI_SYSTEM,
      {"port " + std::to_string(held.port()), "MASTER_PORT=" + std::to_string(held.port() - 1), "TUTTI_PORT"});
}

TEST(Environment, JobOfTorchrunTellsRestartsApart) {
  const auto job = [](const char* restart) {
    return read_environment(
               test::environment_of({{"TORCHELASTIC_RUN_ID", "run"}, {"TORCHELASTIC_RESTART_COUNT", restart}}), false)
        .job;
  };
  EXPECT_NE(job("0"), job("1"));
}

}  // namespace
}  // namespace tutti::core
