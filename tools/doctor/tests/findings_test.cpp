// SPDX-License-Identifier: Apache-2.0
//
// Each finding over made-up /proc and /sys: a healthy pair of hosts has none; one change gives one finding.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "judge.hpp"
#include "report.hpp"

namespace doctor {
namespace {

using Files = std::map<std::string, std::string>;  // path: content; "-": absent

const Files healthy{
    {"proc/self/cgroup", "0::/job/step\n"},
    {"sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"},
    {"sys/fs/cgroup/job/cpu.max", "max 100000\n"},
    {"sys/fs/cgroup/job/memory.max", "max\n"},
    {"sys/fs/cgroup/job/memory.current", "100000000\n"},
    {"sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 90000000\n"},
    {"sys/fs/cgroup/job/pids.max", "1000\n"},
    {"sys/fs/cgroup/job/pids.current", "10\n"},
    {"sys/fs/cgroup/job/step/cpu.max", "max 100000\n"},
    {"sys/devices/system/cpu/online", "0-3\n"},
    {"sys/devices/system/node/node0/cpulist", "0-3\n"},
    {"proc/sys/kernel/yama/ptrace_scope", "0\n"},
    {"proc/sys/kernel/numa_balancing", "0\n"},
    {"sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"},
    {"sys/class/net/lo/operstate", "unknown\n"},
    {"sys/class/net/lo/type", "772\n"},
    {"sys/class/net/lo/mtu", "65536\n"},
    {"sys/class/net/eth0/operstate", "up\n"},
    {"sys/class/net/eth0/type", "1\n"},
    {"sys/class/net/eth0/mtu", "9000\n"},
    {"sys/class/net/eth0/speed", "25000\n"},
    {"sys/class/net/eth0/device/vendor", "0x15b3\n"},
    {"sys/class/net/eth1/operstate", "down\n"},
    {"sys/class/net/eth1/speed", "-1\n"},
    {"sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"},
    {"sys/class/infiniband/mlx5_0/ports/1/rate", "25 Gb/sec (1X EDR)\n"},
    {"sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"},
    {"sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n"},
    {"sys/class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n"},
    {"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "RoCE v2\n"},
    {"dev/infiniband/uverbs0", ""},
    {"sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"},
    {"sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"},
    {"proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n"}};

constexpr int64_t MiB = 1 << 20;

Process healthy_process() {
  Process p;
  p.host = "node";
  p.memory_bytes = 64 << 20;
  p.cpus = {0, 1, 2, 3};
  p.open_files = 1024;
  p.most_open_files = 4096;
  p.shm_bytes = p.shm_free = uint64_t{8} << 30;
  p.cuda = 12040;
  p.settings = {{"TUTTI_LOG", "warn"}, {"TUTTI_RANK", "0"}};
  p.plugins = {{"cuda", "0.1.0"}, {"shm", "0.1.0"}};
  p.transports = {"ib", "shm", "tcp"};
  p.tcp_interfaces = {{"eth0", 9000}};
  return p;
}

// A tree in a folder of its own.
class Fixture {
 public:
  explicit Fixture(const Files& changes) {
    static int number = 0;
    root_ = std::filesystem::temp_directory_path() /
            ("tutti-doctor-" + std::to_string(getpid()) + "-" + std::to_string(++number));
    Files files = healthy;
    for (const auto& [path, content] : changes) files[path] = content;
    for (const auto& [path, content] : files) {
      if (content == "-") continue;
      std::filesystem::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << content;
    }
  }
  ~Fixture() { std::filesystem::remove_all(root_); }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

// Two ranks on two hosts that reach each other.
Job job_of(const Fixture& tree, const std::function<void(Process&)>& change) {
  Job job;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Process process = healthy_process();
    if (change) change(process);
    Facts facts = read_facts(tree.root(), process);
    facts.rank = facts.host_number = rank;
    facts.nranks = 2;
    // As they travel.
    job.ranks.push_back(nlohmann::json::parse(nlohmann::json(facts).dump()).get<Facts>());
    job.links.push_back({rank, 1 - rank, "10.0.0.1:5000", ""});
  }
  job.pairs = {{1, 0, "tcp", Pair::large_bytes}, {0, 1, "tcp", Pair::large_bytes}};
  job.clocks = {{1, 0.01, 0.001}};
  return job;
}

struct Case {
  const char* label;
  const char* finding;
  Severity severity;
  const char* words;  // in what was seen
  Files files = {};
  std::function<void(Process&)> process = {};
  std::function<void(Job&)> job = {};
};

void on_one_host(Job& job) { job.ranks[1].host_number = 0; }

constexpr auto error = Severity::error, warning = Severity::warning, note = Severity::note;
const Files first_version{{"proc/self/cgroup", "5:pids:/job\n4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n"},
                          {"sys/fs/cgroup/cgroup.controllers", "-"},
                          {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n"},
                          {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
                          {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"},
                          {"sys/fs/cgroup/pids/job/pids.max", "max\n"}};

Files with(Files files, const Files& changes) {
  for (const auto& [path, content] : changes) files[path] = content;
  return files;
}

const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";

const Case cases[] = {
    {"quota", "cpu_quota", warning, "2.5 cores, 4 are visible", {{"sys/fs/cgroup/job/cpu.max", "250000 100000\n"}}},
    {"quota of an inner group",
     "cpu_quota",
     warning,
     "step/cpu.max",
     {{"sys/fs/cgroup/job/step/cpu.max", "300000 100000\n"}}},
    {"quota, a container's view",
     "cpu_quota",
     warning,
     "2 cores",
     {{"proc/self/cgroup", "0::/../elsewhere\n"}, {"sys/fs/cgroup/cpu.max", "200000 100000"}}},
    {"quota, version 1", "cpu_quota", warning, "2 cores, 4 are visible",
     with(first_version, {{"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n"}})},
    {"memory", "memory_limit", warning, "410 MiB left of 420 MiB", {{"sys/fs/cgroup/job/memory.max", "440401920\n"}}},
    {"memory, version 1", "memory_limit", warning, "50 MiB left of 100 MiB",
     with(first_version, {{"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "104857600\n"},
                          {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "62914560\n"},
                          {"sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 10485760\n"}})},
    {"tasks", "tasks_limit", warning, "950 of 1000", {{"sys/fs/cgroup/job/pids.current", "950\n"}}},
    {"no tasks", "tasks_limit", error, "999 of 1000", {{"sys/fs/cgroup/job/pids.current", "999\n"}}},
    {"tasks, version 1", "tasks_limit", warning, "80 of 100",
     with(first_version,
          {{"sys/fs/cgroup/pids/job/pids.max", "100\n"}, {"sys/fs/cgroup/pids/job/pids.current", "80\n"}})},
    {"small shm",
     "dev_shm",
     warning,
     "64 MiB free of 64 MiB",
     {},
     [](Process& p) { p.shm_bytes = p.shm_free = 64 * MiB; }},
    {"no shm", "dev_shm", warning, "no /dev/shm", {}, [](Process& p) { p.has_shm = false; }},
    {"few files", "open_files", warning, "200 files", {}, [](Process& p) { p.open_files = 200; }},
    {"too few files", "open_files", error, "20 files", {}, [](Process& p) { p.open_files = 20; }},
    {"many ranks",
     "open_files",
     error,
     "with 1000 ranks it needs up to 2080",
     {},
     {},
     [](Job& j) { j.ranks[0].nranks = 1000; }},
    {"ptrace", "ptrace", note, "ptrace_scope is 1", {{"proc/sys/kernel/yama/ptrace_scope", "1\n"}}},
    {"huge pages",
     "huge_pages",
     note,
     "off",
     {{"sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"}}},
    {"unbound",
     "numa_binding",
     note,
     "2 of 2 NUMA nodes",
     {{"sys/devices/system/node/node0/cpulist", "0-1\n"}, {"sys/devices/system/node/node1/cpulist", "2-3\n"}}},
    {"slow", "slow_interface", warning, "eth0 runs at 100 Mbit/s", {{"sys/class/net/eth0/speed", "100\n"}}},
    {"MTU", "small_mtu", note, "MTU 1500 at 25 Gbit/s", {{"sys/class/net/eth0/mtu", "1500\n"}}},
    {"only loopback",
     "no_interface",
     warning,
     "but loopback",
     {{"sys/class/net/eth0/operstate", "down\n"}},
     [](Process& p) { p.tcp_interfaces.clear(); }},
    {"port down", "rdma_port", warning, "mlx5_0:1 is DOWN", {{port + "state", "1: DOWN\n"}}},
    {"RoCE v1 only", "rdma_gid", warning, "none of type RoCE v2", {{port + "gid_attrs/types/0", "IB/RoCE v1\n"}}},
    {"no GID",
     "rdma_gid",
     warning,
     "no GID",
     {{port + "link_layer", "InfiniBand\n"}, {port + "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n"}}},
    {"no verbs", "rdma_device", warning, "uverbs", {{"dev/infiniband/uverbs0", "-"}}},
    {"no ib",
     "rdma_plugin",
     warning,
     "no transport ib",
     {},
     [](Process& p) {
       p.transports = {"shm", "tcp"};
     }},
    {"little lockable", "locked_memory", error, "lock 8.0 MiB", {}, [](Process& p) { p.locked_memory = 8 * MiB; }},
    {"some lockable", "locked_memory", warning, "lock 128 MiB", {}, [](Process& p) { p.locked_memory = 128 * MiB; }},
    {"no driver", "gpu_driver", warning, "1 NVIDIA", {{"proc/driver/nvidia/version", "-"}}},
    {"no libcuda",
     "gpu_library",
     error,
     "570.86.15 is loaded, but CUDA does not work: no file",
     {},
     [](Process& p) { p.cuda = 0, p.cuda_problem = "no file"; }},
    {"no plugin", "gpu_plugin", warning, "plugin cuda", {}, [](Process& p) { p.plugins.erase("cuda"); }},
    {"refused", "plugin_refused", warning, "a.so: cut", {}, [](Process& p) { p.refused_plugins = {"a.so: cut"}; }},
    {"named and refused",
     "plugin_refused",
     error,
     "a.so: cut",
     {},
     [](Process& p) { p.required_refused = {"a.so: cut"}; }},
    {"unknown", "unknown_setting", warning, "TUTTI_X", {}, [](Process& p) { p.unknown_settings = {"TUTTI_X is set"}; }},
    // Between ranks.
    {"no meeting", "communicator", error, "nobody", {}, {}, [](Job& j) { j.failure = "nobody came"; }},
    {"oversubscribed",
     "more_ranks_than_cores",
     warning,
     "2 ranks on 1 core",
     {{"sys/devices/system/cpu/online", "0\n"}},
     [](Process& p) { p.cpus = {0}; },
     on_one_host},
    {"bound to one core",
     "shared_cores",
     warning,
     "ranks 3 are bound to cores of others, while 4 cores serve 4 ranks",
     {},
     {},
     [](Job& j) {
       for (uint32_t rank = 0; rank < 4; ++rank) {
         if (rank > 1) j.ranks.push_back(j.ranks[0]);
         j.ranks[rank].rank = rank;
         j.ranks[rank].host_number = 0;
         j.ranks[rank].process.cpus = rank == 0 ? std::vector<uint32_t>{0, 1, 2, 3} : std::vector<uint32_t>{1, 2};
       }
     }},
    {"affinity",
     "affinity",
     note,
     "2 of 4 cores: 1,3",
     {},
     [](Process& p) {
       p.cpus = {1, 3};
     }},
    {"quota of all ranks",
     "more_ranks_than_quota",
     warning,
     "2 ranks, and the cgroup may use 1.5 cores",
     {},
     {},
     [](Job& j) {
       on_one_host(j), j.ranks[0].cgroup.cpus = 1.5, j.ranks[0].process.cpus = {0}, j.ranks[1].process.cpus = {1, 2, 3};
     }},
    {"plugin version",
     "plugin_differs",
     warning,
     "plugin shm: \"0.1.0\" on ranks 0, \"0.2.0\" on ranks 1",
     {},
     {},
     [](Job& j) { j.ranks[1].process.plugins["shm"] = "0.2.0"; }},
    {"setting",
     "setting_differs",
     warning,
     "TUTTI_LOG: absent on ranks 1, \"warn\" on ranks 0",
     {},
     {},
     [](Job& j) { j.ranks[1].process.settings.erase("TUTTI_LOG"), j.ranks[1].process.settings["TUTTI_RANK"] = "1"; }},
    {"driver version",
     "driver_differs",
     warning,
     "\"580.1\" on ranks 1",
     {},
     {},
     [](Job& j) { j.ranks[1].nvidia_driver = "580.1"; }},
    {"MTU of hosts",
     "mtu_differs",
     warning,
     "\"9216\" on ranks 1",
     {},
     {},
     [](Job& j) { j.ranks[1].interfaces[0].mtu = 9216; }},
    {"unreachable",
     "host_unreachable",
     error,
     "rank 0's host does not reach rank 1's: 10.0.0.1:5000: refused; 10.9.0.1:5000: silent",
     {},
     {},
     [](Job& j) {
       j.links[0].problem = "refused", j.links.push_back({0, 1, "10.9.0.1:5000", "silent"});
     }},
    {"one address",
     "address_silent",
     warning,
     "10.9.0.1:5000: silent",
     {},
     {},
     [](Job& j) {
       j.links.push_back({0, 1, "10.9.0.1:5000", "silent"});
     }},
    {"black hole",
     "large_packets_dropped",
     error,
     "8 bytes arrive, 128 KiB do not within 10 s: rank 0 and rank 1 (hosts node and node; over tcp, eth0 with MTU 9000 "
     "and "
     "eth0 with MTU 9000)",
     {},
     {},
     [](Job& j) { j.pairs[0].arrived = j.pairs[1].arrived = Pair::small_bytes; }},
    {"black hole one way",
     "large_packets_dropped",
     error,
     "from rank 1 to rank 0 (hosts",
     {},
     {},
     [](Job& j) { j.pairs[0].arrived = Pair::small_bytes; }},
    {"silence",
     "pair_silent",
     error,
     "not even 8 bytes arrive within 10 s: rank 0 and rank 1 (hosts node and node)",
     {},
     {},
     [](Job& j) {
       j.pairs = {{1, 0, "", 0}, {0, 1, "", 0}};
     }},
    {"a refused transport",
     "refused_transport",
     warning,
     "cannot connect over a transport that both have: 0 - 1: tcp serves, ib was refused: rank 1: no queue pairs",
     {},
     {},
     [](Job& j) { j.refusals = {"  0 - 1: tcp serves, ib was refused: rank 1: no queue pairs"}; }},
    {"a check that broke",
     "pair_check",
     error,
     "while hosts sent each other 128 KiB: retry exceeded; 128 KiB had not arrived: from rank 1 to rank 0 (hosts",
     {},
     {},
     [](Job& j) { j.pairs[0].arrived = 0, j.pair_failure = "retry exceeded"; }},
    {"clock", "clock", warning, "2.500 s behind", {}, {}, [](Job& j) { j.clocks[0].ahead = -2.5; }},
    // Files that make no sense.
    {"broken quota", "unreadable", note, "cpu.max says \"lots\"", {{"sys/fs/cgroup/job/cpu.max", "lots\n"}}},
    {"quota without period", "unreadable", note, "cpu.max says \"1000\"", {{"sys/fs/cgroup/job/cpu.max", "1000\n"}}},
    {"broken memory",
     "unreadable",
     note,
     "memory.max says \"12 apples\"",
     {{"sys/fs/cgroup/job/memory.max", "12 apples"}}},
    {"broken list",
     "unreadable",
     note,
     "node0/cpulist says \"3-0,?\"",
     {{"sys/devices/system/node/node0/cpulist", "3-0,\xff\n"}}},
    {"broken THP", "unreadable", note, "[brackets]", {{"sys/kernel/mm/transparent_hugepage/enabled", "maybe\n"}}},
    {"broken speed", "unreadable", note, "eth0/speed says \"fast\"", {{"sys/class/net/eth0/speed", "fast\n"}}},
};

TEST(Findings, AHealthyJobHasNone) {
  for (const Files& changes : {Files{}, first_version, Files{{"proc/self/cgroup", "nonsense\n::\n:\n"}}})
    for (const Finding& found : judge(job_of(Fixture(changes), {}))) ADD_FAILURE() << found.name << ": " << found.seen;
}

TEST(Findings, OneChangeGivesOneFinding) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.label);
    Job job = job_of(Fixture(c.files), c.process);
    if (c.job) c.job(job);
    const Findings all = judge(job);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all[0].name, c.finding);
    EXPECT_EQ(all[0].severity, c.severity);
    EXPECT_NE(all[0].seen.find(c.words), std::string::npos) << all[0].seen;
    EXPECT_FALSE(all[0].cost.empty());
    EXPECT_TRUE(!all[0].mend.empty() || all[0].name == "unreadable");
    for (size_t i = 1; i < all.size(); ++i) ADD_FAILURE() << "also " << all[i].name << ": " << all[i].seen;
    EXPECT_EQ(has_errors(all), c.severity == Severity::error);
  }
}

// A broken switch has many pairs behind it.
TEST(Findings, ManyPairsAreOneFinding) {
  Job job = job_of(Fixture(Files{}), {});
  for (uint32_t rank = 2; rank < 6; ++rank) {
    job.ranks.push_back(job.ranks[1]);
    job.ranks[rank].rank = job.ranks[rank].host_number = rank;
  }
  job.pairs.clear();
  for (uint32_t from = 0; from < 6; ++from)
    for (uint32_t to = 0; to < 6; ++to)
      if (from != to) job.pairs.push_back({from, to, "tcp", from == 0 ? Pair::large_bytes : Pair::small_bytes});
  const Findings all = judge(job);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "large_packets_dropped");
  EXPECT_NE(all[0].seen.find("from rank 1 to rank 0"), std::string::npos) << all[0].seen;
  EXPECT_NE(all[0].seen.find("and 7 more"), std::string::npos) << all[0].seen;  // 5 to rank 0, 10 between the others
  EXPECT_EQ(all[0].ranks, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_NE(report_text(job, all).find("messages of 128 KiB between hosts: 5 of 30 ways carry them\n"),
            std::string::npos);
}

// The first rank may run anywhere, so it leaves core 0 to the second.
TEST(Findings, RanksThatCanMoveAsideShareNoCore) {
  Job job = job_of(Fixture(Files{}), {});
  on_one_host(job);
  job.ranks[1].process.cpus = {0};
  EXPECT_TRUE(judge(job).empty());
}

// numa_balancing matters only to ranks that are not bound, so the two come together.
TEST(Findings, NumaBalancing) {
  const Findings all = judge(job_of(Fixture(Files{{"sys/devices/system/node/node0/cpulist", "0-1\n"},
                                                  {"sys/devices/system/node/node1/cpulist", "2-3\n"},
                                                  {"proc/sys/kernel/numa_balancing", "1\n"}}),
                                    {}));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].name, "numa_balancing");
}

TEST(Findings, EqualOnesOfSeveralRanksAreOneAndErrorsComeFirst) {
  Job job = job_of(Fixture(Files{{"proc/sys/kernel/yama/ptrace_scope", "1\n"}}), [](Process& p) { p.has_shm = false; });
  job.failure = "nobody came";
  const Findings all = judge(job);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].severity, Severity::error);
  EXPECT_EQ(all[1].severity, Severity::warning);
  EXPECT_EQ(all[1].ranks, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(all[2].severity, Severity::note);
  const std::string text = report_text(job, all);
  EXPECT_EQ(text.find("ERROR   nobody came\n"), 0u) << text;
  EXPECT_NE(text.find("WARNING there is no /dev/shm [ranks 0-1 on node]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1 error, 1 warning, 1 note on 2 hosts, 2 ranks\n"), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(report_json(job, all)).at("findings").size(), 3u);
}

TEST(Findings, TransportsThatCannotServeAreLeftOutWithTheReason) {
  Job job = job_of(Fixture({}), [](Process& p) {
    p.transports = {"shm", "tcp"};
    p.idle_transports = {{"cuda-ipc", "no CUDA"}, {"ib", "no device"}};
  });
  const Findings all = judge(job);
  EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](const Finding& f) { return f.name == "rdma_plugin"; }))
      << "the transport ib is loaded";
  const std::string text = report_text(job, all);
  EXPECT_NE(text.find("    transports  shm, tcp\n      left out  cuda-ipc: no CUDA\n      left out  ib: no device\n"),
            std::string::npos)
      << text;
}

// The ranks of a host read a figure one after another; those of another host see their own.
TEST(Findings, FiguresThatChangeBetweenRanksAreOneFindingPerHost) {
  Job job = job_of(Fixture(Files{{"sys/fs/cgroup/job/memory.max", "200000000\n"}}), {});
  job.ranks[1].cgroup.memory_used += 7 << 20;
  EXPECT_EQ(judge(job).size(), 2u);
  on_one_host(job);
  const Findings all = judge(job);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].ranks, (std::vector<uint32_t>{0, 1}));
}

// Nothing there at all: a process in a bare chroot.
TEST(Findings, AnEmptyTreeIsNoCrash) {
  Job job;
  job.ranks.push_back(read_facts("/nonexistent", healthy_process()));
  for (const Finding& found : judge(job)) EXPECT_EQ(found.name, "no_interface");
}

}  // namespace
}  // namespace doctor
