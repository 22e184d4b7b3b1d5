// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/environment.hpp"

#include <charconv>
#include <vector>

#include "base/make_failure.hpp"
#include "bootstrap/authentication.hpp"

namespace tutti::core {
namespace {

struct Launcher {
  const char* name;
  const char *rank, *size;
  const char *local_rank, *local_size;  // the size is nullptr: told otherwise; both: not told
  const char *host, *port;              // of rank 0; nullptr: told otherwise
};
constexpr Launcher kLaunchers[] = {
    {"TUTTI_*", "TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_WORLD_SIZE", "TUTTI_ADDR",
     "TUTTI_PORT"},
    {"Kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr, nullptr, nullptr},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, nullptr, nullptr},
};
const Launcher &kOurs = kLaunchers[0], &kTorchrun = kLaunchers[2];
// The size is told by PMIx only.
constexpr Launcher kPmix{"PMIx", "PMIX_RANK", nullptr, nullptr, nullptr, nullptr, nullptr};
constexpr size_t kMaxJobName = 128;

class EnvironmentReader {
 public:
  explicit EnvironmentReader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> value(const char* name) const {
    const char* found = lookup_(name);
    return found == nullptr ? std::nullopt : std::optional<std::string>(found);
  }
  // A value that is not empty.
  std::optional<std::string> text(const char* name) const {
    auto found = value(name);
    if (found && found->empty()) throw refusal("{} is set but empty: give it a value or unset it", name);
    return found;
  }
  template <typename T>
  std::optional<T> number(const char* name, T least, T most) const {
    const auto found = text(name);
    if (!found) return std::nullopt;
    T number = 0;
    const char* last = found->data() + found->size();
    const auto [end, error] = std::from_chars(found->data(), last, number);
    if (error != std::errc() || end != last || number < least || number > most)
      throw refusal("{}=\"{}\" is not a whole number from {} to {}", name, *found, least, most);
    return number;
  }
  // Two numbers of which one makes no sense without the other, index < size.
  std::optional<std::pair<uint32_t, uint32_t>> pair(const char* index_name, const char* size_name) const {
    const auto index = number(index_name, 0u, kMaxRanks - 1);
    const auto size = number(size_name, 1u, kMaxRanks);
    if (!index && !size) return std::nullopt;
    if (!index || !size)
      throw refusal("{} is set but {} is not: set both or none", index ? index_name : size_name,
                    index ? size_name : index_name);
    if (*index >= *size) throw refusal("{}={} is not below {}={}", index_name, *index, size_name, *size);
    return std::pair(*index, *size);
  }

 private:
  const EnvironmentLookup& lookup_;
};

// "node[07-12,20],other" -> "node07"; "node[1-3]-ib" -> "node1-ib".
std::string first_host(const std::string& list, const char* variable) {
  const size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') return list.substr(0, open);
  const size_t close = list.find(']', open);
  const size_t end = list.find_first_of("-,]", open);
  if (close == std::string::npos || end == open + 1)
    throw refusal("{}=\"{}\" is not a list of hosts as Slurm writes them", variable, list);
  const size_t tail = list.find(',', close);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) +
         list.substr(close + 1, tail == std::string::npos ? tail : tail - close - 1);
}

// The node-th number of "2(x4),1".
std::optional<uint32_t> tasks_of_node(const std::string& list, uint64_t node, const char* variable) {
  const auto bad = [&] { return refusal("{}=\"{}\" is not a list like 2(x4),1", variable, list); };
  const char* at = list.data();
  const char* last = at + list.size();
  std::optional<uint32_t> found;
  while (true) {
    uint32_t tasks = 0;
    uint64_t times = 1;
    auto parsed = std::from_chars(at, last, tasks);
    if (parsed.ec != std::errc() || tasks == 0) throw bad();
    at = parsed.ptr;
    if (last - at > 2 && at[0] == '(' && at[1] == 'x') {
      parsed = std::from_chars(at + 2, last, times);
      if (parsed.ec != std::errc() || parsed.ptr == last || *parsed.ptr != ')') throw bad();
      at = parsed.ptr + 1;
    }
    if (!found && node < times) found = tasks;
    if (!found) node -= times;
    if (at == last) return found;
    if (*at++ != ',') throw bad();
  }
}

void read_slurm_local(const EnvironmentReader& reader, Environment& out) {
  const auto local = reader.number("SLURM_LOCALID", 0u, kMaxRanks - 1);
  const auto node = reader.number("SLURM_NODEID", 0u, kMaxRanks - 1);
  const char* variable =
      reader.value("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const auto list = reader.text(variable);
  if (!local || !node || !list) return;
  const auto tasks = tasks_of_node(*list, *node, variable);
  if (!tasks) return;
  if (*local >= *tasks)
    throw refusal("SLURM_LOCALID={} is not below node {}'s {} tasks of {}=\"{}\"", *local, *node, *tasks, variable,
                  *list);
  out.local_rank = local;
  out.local_nranks = tasks;
}

void read_local(const EnvironmentReader& reader, const Launcher& launcher, Environment& out) {
  auto local = reader.pair(kOurs.local_rank, kOurs.local_size);
  std::string named = kOurs.local_size;
  if (!local && launcher.local_rank == nullptr) return;
  if (!local && launcher.local_size == nullptr) return read_slurm_local(reader, out);
  if (!local) {
    local = reader.pair(launcher.local_rank, launcher.local_size);
    named = launcher.local_size;
  }
  if (!local) return;
  if (out.nranks != 0 && local->second > out.nranks)
    throw refusal("{}={} is larger than the world: {}={}", named, local->second, launcher.size, out.nranks);
  out.local_rank = local->first;
  out.local_nranks = local->second;
}

// The body of a batch script is told that it is task 0 of all, though no other task runs until srun starts them.
void refuse_batch_body(const EnvironmentReader& reader, uint32_t rank, uint32_t nranks) {
  if (rank != 0 || nranks == 1) return;
  for (const char* of_step : {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"})
    if (reader.value(of_step)) return;
  throw refusal(
      "SLURM_PROCID=0 and SLURM_NTASKS={}, but no SLURM_STEP_ID: srun has not started this "
      "process, so it is the body of a batch script and has no peers. Start the ranks by "
      "srun, or set TUTTI_RANK=0 and TUTTI_WORLD_SIZE=1 to run alone",
      nranks);
}

// True where a set rank or size need not mean that this launcher has started the process.
bool is_not_meant(const EnvironmentReader& reader, const Launcher& launcher) {
  const std::string_view name = launcher.name;
  // Every shell of a Slurm allocation has the number of tasks; only what srun has started has a rank.
  if (name == "Slurm") return !reader.value(launcher.rank);
  // Every pod of an Indexed Job has its index, and a launcher in the pod gives ranks of its own.
  if (name == "Kubernetes")
    return !reader.value(launcher.rank) || !reader.value(launcher.size) || reader.value(kTorchrun.rank);
  return false;
}

const Launcher* read_identity(const EnvironmentReader& reader, Environment& out) {
  for (const Launcher& launcher : kLaunchers) {
    if (is_not_meant(reader, launcher)) continue;
    const auto found = reader.pair(launcher.rank, launcher.size);
    if (!found) continue;
    if (launcher.name == std::string_view("Slurm")) refuse_batch_body(reader, found->first, found->second);
    out.launcher = launcher.name;
    out.rank = found->first;
    out.nranks = found->second;
    return &launcher;
  }
  if (const auto rank = reader.number(kPmix.rank, 0u, kMaxRanks - 1)) {
    if (!reader.value("PMIX_NAMESPACE"))
      throw refusal(
          "PMIX_RANK is set, but PMIX_NAMESPACE is not, so the world's size is not known: set TUTTI_RANK and "
          "TUTTI_WORLD_SIZE");
    out.launcher = kPmix.name;
    out.rank = *rank;
    out.nranks = 0;
    return &kPmix;
  }
  if (reader.value("PMIX_NAMESPACE"))
    throw refusal(
        "PMIX_NAMESPACE is set but PMIX_RANK is not, so this process's rank is not known: start the ranks by mpirun or "
        "srun --mpi=pmix, or set TUTTI_RANK=0 and TUTTI_WORLD_SIZE=1 to run alone");
  for (const Launcher* of : {&kOurs, &kTorchrun})
    for (const char* orphan : {of->local_rank, of->local_size, of->host, of->port, "TUTTI_RENDEZVOUS"})
      if (reader.value(orphan))
        throw refusal("{} is set but {} and {} are not: set them, or unset it to run alone", orphan, of->rank,
                      of->size);
  return nullptr;
}

// Slurm tells no port: one that follows from job and step is the same on all ranks and rarely another job's.
void read_slurm_place(const EnvironmentReader& reader, Environment& out) {
  const char* variable = reader.value("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (const auto list = reader.text(variable); list && out.host.empty()) {
    out.host = first_host(*list, variable);
    out.host_variable = variable;
  }
  const auto job = reader.number("SLURM_JOB_ID", uint64_t{0}, uint64_t{UINT32_MAX});
  const auto step = reader.number("SLURM_STEP_ID", uint64_t{0}, uint64_t{UINT32_MAX});
  if (!job) return;
  if (out.job.empty()) out.job = fmt::format("slurm {}.{}", *job, step.value_or(0));
  if (out.port != 0) return;
  out.port = static_cast<uint16_t>(20000 + (*job * 61 + step.value_or(0)) % 10000);
  out.port_variable = "TUTTI_PORT";
  out.port_note = "TUTTI_PORT is not set, so the port follows from SLURM_JOB_ID and SLURM_STEP_ID";
}

void read_place(const EnvironmentReader& reader, Environment& out) {
  for (const Launcher* of : {&kTorchrun, &kOurs})
    if (const auto text = reader.text(of->host)) {
      const HostPort place = parse_address(*text, of->host);
      if (place.port != 0)
        throw refusal("{}=\"{}\" has a port: set {} to the host alone and {}={}", of->host, *text, of->host, of->port,
                      place.port);
      out.host = place.host;
      out.host_variable = of->host;
    }
  const auto ours = reader.number<uint16_t>(kOurs.port, 1, 65535);
  const auto master = reader.number<uint16_t>(kTorchrun.port, 1, 65535);
  const auto store = reader.value("TORCHELASTIC_USE_AGENT_STORE");
  const bool taken = master && store && (*store == "True" || *store == "true" || *store == "1");
  if (taken && ours == master)
    throw refusal(
        "TUTTI_PORT={} is also MASTER_PORT, on which torchrun's own store listens "
        "(TORCHELASTIC_USE_AGENT_STORE): choose another TUTTI_PORT",
        *ours);
  if (taken && !ours && *master == 65535)
    throw refusal(
        "MASTER_PORT=65535 belongs to torchrun's own store (TORCHELASTIC_USE_AGENT_STORE) and there is none above "
        "it: set TUTTI_PORT");
  if (!ours && !master) return;
  out.port = ours ? *ours : static_cast<uint16_t>(*master + taken);
  out.port_variable = ours || taken ? kOurs.port : kTorchrun.port;
  if (!ours && taken)
    out.port_note = fmt::format(
        "MASTER_PORT={} belongs to torchrun's own store (TORCHELASTIC_USE_AGENT_STORE) and "
        "TUTTI_PORT is not set, so rank 0 uses MASTER_PORT+1",
        *master);
}

// The meeting/1 over which the launcher itself lets its ranks meet, where the environment says that it has one.
void read_service(const EnvironmentReader& reader, const Launcher& launcher, Environment& out) {
  const std::string_view name = launcher.name;
  const bool of_mpi = name == "Open MPI" || name == "Hydra" || name == "Slurm" || name == "PMIx";
  if (!of_mpi || out.nranks == 1 || !out.host.empty() || out.port != 0) return;
  const bool pmix = reader.value("PMIX_RANK") && reader.value("PMIX_NAMESPACE");
  const bool pmi1 = reader.value("PMI_FD").has_value();
  // Hydra may have been started by another launcher, whose variables its ranks inherit.
  if (pmi1 && (name == "Hydra" || !pmix)) out.service = "pmi1";
  if (!pmix || !out.service.empty()) return;
  out.service = "pmix";
  if (out.job.empty()) out.job = reader.value("PMIX_NAMESPACE")->substr(0, kMaxJobName);
}

void read_job(const EnvironmentReader& reader, Environment& out) {
  if (const auto job = reader.text("TUTTI_JOB")) {
    if (job->size() > kMaxJobName)
      throw refusal("TUTTI_JOB has {} characters; at most {} are allowed", job->size(), kMaxJobName);
    out.job = *job;
  } else if (const auto run = reader.value("TORCHELASTIC_RUN_ID"); run && !run->empty()) {
    // An earlier start of the same run may still be dying.
    out.job = (*run + " restart " + reader.value("TORCHELASTIC_RESTART_COUNT").value_or("0")).substr(0, kMaxJobName);
  }
  const auto secret = reader.text("TUTTI_SECRET");
  if (!secret) return;
  // The value is never shown.
  const auto bytes = from_hex(*secret);
  if (!bytes) throw refusal("TUTTI_SECRET is not an even number of hexadecimal digits");
  if (bytes->size() < kMinSecretBytes || bytes->size() > kMaxSecretBytes)
    throw refusal("TUTTI_SECRET has {} bytes; {} to {} are allowed (two hexadecimal digits each)", bytes->size(),
                  kMinSecretBytes, kMaxSecretBytes);
  out.secret = *bytes;
}

}  // namespace

Environment read_environment(const EnvironmentLookup& lookup, bool need_identity) {
  const EnvironmentReader reader(lookup);
  Environment out;
  read_job(reader, out);
  if (!need_identity) return out;
  const Launcher* launcher = read_identity(reader, out);
  if (launcher == nullptr) return out;
  out.rendezvous = reader.text("TUTTI_RENDEZVOUS").value_or("");
  read_local(reader, *launcher, out);
  read_place(reader, out);
  read_service(reader, *launcher, out);
  if (out.launcher == "Slurm") read_slurm_place(reader, out);
  return out;
}

TcpPlace place_of_launcher(const Environment& environment) {
  if (environment.host.empty() || environment.port == 0) {
    const std::string missing = !environment.host.empty() ? "MASTER_PORT is not set"
                                : environment.port != 0   ? "MASTER_ADDR is not set"
                                                          : "MASTER_ADDR and MASTER_PORT are not set";
    throw refusal(
        "{} gives rank {} of {}, but {}: the ranks cannot find each other. Set both to where rank 0 shall listen, or "
        "TUTTI_RENDEZVOUS=file:/SHARED/FOLDER{}",
        environment.launcher, environment.rank, environment.nranks, missing,
        environment.service.empty() ? ""
                                    : fmt::format(", or install Tutti's plugin {}, which asks {} for them",
                                                  environment.service, environment.launcher));
  }
  return {{environment.host, environment.port},
          environment.host_variable,
          environment.port_variable,
          environment.port_note};
}

}  // namespace tutti::core
