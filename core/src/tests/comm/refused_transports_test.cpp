// SPDX-License-Identifier: Apache-2.0
//
// A transport that cannot serve a rank or a pair is left out there, and another one serves: memory files refused, files
// too large, the boot id hidden, another user. Each rank is a process, which a test puts into its state before the
// ranks meet, or after that, before their first call.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

constexpr uint32_t kRanks = 3;
constexpr uid_t kOtherUser = 54321;

// Memory of all ranks' processes, by which they meet: a meeting over sockets or files would depend on the user as well.
struct Shared {
  pthread_barrier_t barrier;
  char meeting[kRanks][4096];
  char said[kRanks][8192];  // by each rank about its end
};

struct Place {
  Shared* shared;
  uint32_t rank;
};

tutti_status meet(void* context, const void* mine, uint64_t bytes, void* all) {
  const auto& [shared, rank] = *static_cast<Place*>(context);
  if (bytes > sizeof shared->meeting[0]) return TUTTI_NO_RESOURCES;
  std::memcpy(shared->meeting[rank], mine, bytes);
  pthread_barrier_wait(&shared->barrier);
  for (uint32_t r = 0; r < kRanks; ++r) std::memcpy(static_cast<char*>(all) + r * bytes, shared->meeting[r], bytes);
  pthread_barrier_wait(&shared->barrier);
  return TUTTI_OK;
}

// The transports by which this rank has exchanged bytes with each other one: "shm -", "- tcp".
std::string work(const Communicator& world) {
  std::vector<int64_t> in(kRanks, world.rank() + 1), out(kRanks);
  world.all_to_all<int64_t>(in, out);
  EXPECT_EQ(out, (std::vector<int64_t>{1, 2, 3}));
  void* memory = nullptr;
  EXPECT_EQ(tutti_mem_alloc(1 << 20, &memory), TUTTI_OK);
  auto* const large = static_cast<int64_t*>(memory);
  constexpr uint64_t count = (1 << 20) / sizeof(int64_t);
  std::fill(large, large + count, world.rank() + 1);
  world.all_reduce<int64_t>({large, count}, {large, count}, Op::sum);
  EXPECT_EQ(std::count(large, large + count, 6), static_cast<int64_t>(count));
  EXPECT_EQ(tutti_mem_free(memory), TUTTI_OK);
  std::string text;
  uint64_t n = 0;
  tutti_comm_traffic(world.handle(), nullptr, &n);
  std::vector<tutti_link_traffic> rows(n);
  EXPECT_EQ(tutti_comm_traffic(world.handle(), rows.data(), &n), TUTTI_OK);
  for (uint32_t peer = 0; peer < kRanks; ++peer) {
    const auto row = std::ranges::find(rows, peer, &tutti_link_traffic::peer);
    text += row == rows.end() ? "-" : row->transport;
    if (peer + 1 < kRanks) text += " ";
  }
  return text;
}

using Preparation = std::function<void(uint32_t rank)>;

// Runs the ranks, each after `prepare`, and with `prepare_call` before its first call, and returns what each says: the
// text of `use`, or its error.
std::vector<std::string> run(
    const char* transports, const Preparation& prepare, const Preparation& prepare_call = [](uint32_t) {},
    const std::function<std::string(const Communicator&)>& use = work) {
  list_transports();
  auto* const shared =
      new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, kRanks);
  std::vector<pid_t> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      std::string said;
      try {
        prepare(rank);
        Place place{shared, rank};
        tutti_comm_config config = config_of("", rank, kRanks);
        config.rendezvous = nullptr;
        config.all_gather = meet;
        config.all_gather_context = &place;
        config.transports = transports;
        const Communicator world(config);
        prepare_call(rank);
        said = use(world);
        world.barrier();
      } catch (const std::exception& e) {
        said = e.what();
      }
      said.copy(shared->said[rank], sizeof shared->said[rank] - 1);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    ranks.push_back(child);
  }
  std::vector<std::string> said;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    waitpid(ranks[rank], &status, 0);
    said.emplace_back(shared->said[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank << ": " << said.back();
  }
  munmap(shared, sizeof *shared);
  return said;
}

// From now on memfd_create fails in this process with `error`, always, or where the flags do not have all of `unless`.
void refuse_memory_files(int error, uint32_t unless = 0) {
  const uint32_t refuse = SECCOMP_RET_ERRNO | static_cast<uint32_t>(error);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, unless, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, refuse),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0) << std::strerror(errno);
}

constexpr uint32_t kNoexecSeal = 8;
const std::vector<std::string> kAllShm{"- shm shm", "shm - shm", "shm shm -"};
const std::vector<std::string> kRankOneByTcp{"- tcp shm", "tcp - tcp", "shm tcp -"};

class RefusedTransports : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "sanitizers need threads after fork";
  }
};

TEST_F(RefusedTransports, MemoryFilesThatCannotBeExecutedAreTriedFirst) {
  const int file = static_cast<int>(syscall(SYS_memfd_create, "probe", kNoexecSeal));
  if (file < 0) GTEST_SKIP() << "this kernel has no MFD_NOEXEC_SEAL";
  close(file);
  EXPECT_EQ(run(nullptr, [](uint32_t) { refuse_memory_files(EPERM, kNoexecSeal); }), kAllShm);
}

TEST_F(RefusedTransports, ARankWithoutMemoryFilesIsServedByTcp) {
  const auto refused = [](uint32_t rank) {
    if (rank == 1) refuse_memory_files(ENOSYS);
  };
  EXPECT_EQ(run(nullptr, refused), kRankOneByTcp);
  EXPECT_EQ(run("shm,tcp", refused), kRankOneByTcp);
  EXPECT_EQ(run("tcp", refused), (std::vector<std::string>{"- tcp tcp", "tcp - tcp", "tcp tcp -"}));
}

// Rank 1 makes the file of its pair with rank 2, and has rank 0's.
TEST_F(RefusedTransports, APairWithoutAMemoryFileIsServedByTcp) {
  const auto refused = [](uint32_t rank) {
    if (rank == 1) refuse_memory_files(ENOMEM);
  };
  EXPECT_EQ(run(nullptr, [](uint32_t) {}, refused), (std::vector<std::string>{"- shm shm", "shm - tcp", "shm tcp -"}));
  for (const std::string& said : run("shm", [](uint32_t) {}, refused))
    EXPECT_NE(said.find("memfd_create: Cannot allocate memory"), std::string::npos) << said;
}

// The ranks of a part agreed on their transports before, and open them when they use them.
TEST_F(RefusedTransports, APartDoesWithoutOneThatCannotBeOpenedAnyMore) {
  const auto limited = [](uint32_t rank) {
    const rlimit small{16384, 16384};
    EXPECT_EQ(rank == 1 ? setrlimit(RLIMIT_FSIZE, &small) : 0, 0);
  };
  const auto in_part = [](const Communicator& world) { return work(world.duplicate()); };
  EXPECT_EQ(run(nullptr, [](uint32_t) {}, limited, in_part), kRankOneByTcp);
}

TEST_F(RefusedTransports, TheOnlyOneThatTheUserNamedIsAnErrorOnAllRanks) {
  for (const std::string& said : run("shm", [](uint32_t rank) {
         if (rank == 1) refuse_memory_files(ENOSYS);
       }))
    EXPECT_NE(said.find("transport shm cannot serve here: shm: memfd_create: Function not implemented"),
              std::string::npos)
        << said;
}

TEST_F(RefusedTransports, WithoutAnotherOneTheErrorSaysWhyEachIsLeftOut) {
  for (const std::string& said : run("^tcp", [](uint32_t rank) {
         if (rank == 1) refuse_memory_files(ENOSYS);
       })) {
    EXPECT_NE(said.find("no transport connects rank 0 (host 0) with rank 1 (host 0)"), std::string::npos) << said;
    EXPECT_NE(said.find("shm is left out by rank 1: shm: memfd_create: Function not implemented"), std::string::npos)
        << said;
  }
}

TEST_F(RefusedTransports, ALimitOnFilesLeavesSharedMemoryOut) {
  EXPECT_EQ(run(nullptr,
                [](uint32_t rank) {
                  const rlimit small{16384, 16384};
                  EXPECT_EQ(rank == 1 ? setrlimit(RLIMIT_FSIZE, &small) : 0, 0);
                }),
            kRankOneByTcp);
}

// Ranks that cannot read the boot id prove that they are on one host. A rank that can is taken for another host's.
TEST_F(RefusedTransports, AHiddenBootIdIsNoReasonForAnotherTransport) {
  const auto hidden = [] {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("/dev/null", "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0;
  };
  const pid_t probe = fork();
  if (probe == 0) _exit(hidden() ? 0 : 1);
  int status = 0;
  waitpid(probe, &status, 0);
  if (status != 0) GTEST_SKIP() << "only root may hide it";
  const auto hide = [&] { EXPECT_TRUE(hidden()) << std::strerror(errno); };
  EXPECT_EQ(run(nullptr, [&](uint32_t) { hide(); }), kAllShm);
  EXPECT_EQ(run(nullptr, [&](uint32_t rank) { rank == 1 ? hide() : void(); }), kRankOneByTcp);
}

TEST_F(RefusedTransports, RanksOfAnotherUserAreServedByTcp) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto change = [](uint32_t rank) {
    if (rank != 1) return;
    ASSERT_EQ(setresgid(kOtherUser, kOtherUser, kOtherUser), 0);
    ASSERT_EQ(setresuid(kOtherUser, kOtherUser, kOtherUser), 0);
  };
  EXPECT_EQ(run(nullptr, change), kRankOneByTcp);
  for (const std::string& said : run("shm", change))
    EXPECT_NE(
        said.find("shm reaches only ranks of one host; rank 1 does not reach rank 0: it runs as user 0, this rank as "
                  "user 54321"),
        std::string::npos)
        << said;
}

}  // namespace
}  // namespace tutti::test
