// SPDX-License-Identifier: Apache-2.0
//
// tutti_comm_host: processes that TUTTI_HOST_ID places on two pretended hosts, and wrong arguments.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

struct Place {
  const char* name;
  uint32_t host, local_rank, local_nranks;
};
constexpr Place places[] = {
    {"east", 0, 0, 2}, {"west", 1, 0, 3}, {"west", 1, 1, 3}, {"east", 0, 1, 2}, {"west", 1, 2, 3}};
constexpr uint32_t kPlaces = std::size(places);

bool is(const tutti_host_facts& facts, const Place& place) {
  return facts.host == place.host && facts.hosts == 2 && facts.local_rank == place.local_rank &&
         facts.local_nranks == place.local_nranks && facts.reserved == 0;
}

// A rank in a process of its own; its exit status.
int rank_main(const std::string& folder, uint32_t rank) try {
  setenv("TUTTI_HOST_ID", places[rank].name, 1);
  const std::string place = "file:" + folder;
  Communicator world(config_of(place, rank, kPlaces));
  if (!is(world.host(), places[rank])) return 2;
  for (uint32_t r = 0; r < kPlaces; ++r)
    if (!is(world.host(r), places[r])) return 3;
  world.barrier();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "rank %u: %s\n", rank, e.what());
  return 1;
}

TEST(Host, TwoPretendedHosts) {
  std::string folder = std::filesystem::temp_directory_path() / "tutti-host-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < kPlaces; ++rank) {
    children.push_back(fork());
    if (children.back() == 0) _exit(rank_main(folder, rank));
  }
  for (uint32_t rank = 0; rank < kPlaces; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": status " << status;
  }
  std::filesystem::remove_all(folder);
}

TEST(Host, WrongArguments) {
  run_ranks(2, [](Communicator& world) {
    EXPECT_EQ(world.host().hosts, 1u);
    EXPECT_EQ(world.host(1).local_rank, 1u);
    EXPECT_EQ(world.host().local_nranks, 2u);
    const Failed beyond = failure_of([&] { world.host(2); });
    EXPECT_EQ(beyond.status, TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(beyond.text.find("host: rank is 2, expected less than 2 ranks"), std::string::npos) << beyond.text;
    tutti_host_facts forgotten{};
    EXPECT_EQ(tutti_comm_host(world.handle(), 0, &forgotten), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tutti_comm_error(world.handle())).find("tutti_host_facts.struct_size is 0"),
              std::string::npos);
    EXPECT_EQ(tutti_comm_host(world.handle(), 0, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_comm_host(nullptr, 0, &forgotten), TUTTI_INVALID_ARGUMENT);
    world.barrier();
    world.abort("broken on purpose");
    EXPECT_EQ(world.host(0).hosts, 1u) << "the facts outlive the communicator's health";
  });
}

}  // namespace
}  // namespace tutti::test
