// SPDX-License-Identifier: Apache-2.0
#include "sample_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "machine.hpp"
#include "report/must_pass.hpp"

namespace tutti::conformance {
namespace {

struct Offer {
  const char* algorithm;
  std::vector<const char*> collectives;
};
const std::vector<Offer> offers{
    {"bruck", {"all_gather", "all_to_all", "barrier"}},
    {"direct", {"all_gather", "all_to_all", "gather", "scatter"}},
    {"doubling", {"all_gather", "all_reduce", "barrier", "reduce_scatter"}},
    {"halving", {"all_reduce", "reduce_scatter"}},
    {"ring", {"all_gather", "all_reduce", "broadcast", "reduce_scatter"}},
    {"tree", {"all_reduce", "barrier", "broadcast", "gather", "reduce", "scatter"}},
};

Result matrix_result(const std::string& collective, const std::string& algorithm, const std::string& transport,
                     const std::string& type, uint32_t ranks, uint64_t count) {
  Result r;
  r.id = fmt::format("matrix/{}/{}/{}/{}/sum/n{}/c{}/root0/out/heap/a64", collective, algorithm, transport, type, ranks,
                     count);
  r.kind = "matrix";
  r.must_pass = type == "float32";
  r.axes = {{"collective", collective},       {"algorithm", algorithm},        {"transport", transport}, {"type", type},
            {"ranks", std::to_string(ranks)}, {"count", std::to_string(count)}};
  r.seconds = 0.01 + 0.001 * static_cast<double>(count % 97);
  r.seed = 0x9e3779b97f4a7c15u ^ (count * ranks);
  r.reproduce = fmt::format("tutti-conform --reproduce '{}@{:#x}'", r.id, r.seed);
  r.attestation.algorithm = algorithm;
  r.attestation.plan_hash = 0xfeedfacecafef00du + ranks;
  r.attestation.plugins = {"algorithms", transport == "shm+tcp" ? "shm" : transport};
  for (uint32_t rank = 0; rank < ranks; ++rank)
    r.attestation.traffic.push_back({transport == "shm+tcp" ? (rank % 2 ? "tcp" : "shm") : transport, rank,
                                     (rank + 1) % ranks, count * 4, count * 4});
  if (transport == "tcp")
    for (uint32_t rank = 0; rank < ranks; ++rank)
      r.attestation.rails.push_back({transport, "eth" + std::to_string(rank), rank, count * 4, count * 2});
  return r;
}

Result proof_result(const std::string& collective, const std::string& algorithm) {
  Result r;
  r.id = fmt::format("proof/{}/{}", collective, algorithm);
  r.kind = "proof";
  r.clauses = {"A-10", "A-12"};
  r.must_pass = true;
  r.axes = {{"collective", collective}, {"algorithm", algorithm}};
  r.seconds = 0.1;
  r.reproduce = fmt::format("tutti-conform --reproduce '{}@1'", r.id);
  return r;
}

Result contract_result(const std::string& transport, const std::string& name, std::vector<std::string> clauses) {
  Result r;
  r.id = fmt::format("contract/transport/{}/{}", transport, name);
  r.kind = "contract";
  r.clauses = std::move(clauses);
  r.must_pass = true;
  r.axes = {{"subject", "transport"}, {"transport", transport}};
  r.seconds = 0.4;
  r.seed = 7;
  r.reproduce = fmt::format("tutti-conform --reproduce '{}@0x7'", r.id);
  return r;
}

// Cases that the must-pass lists ask for and that the above does not make: a line's stars become one word each.
void complete(Run& run) {
  for (const auto& [kind, name] : {std::pair{"transport", "shm"}, {"transport", "tcp"}, {"algorithm", "ring"}})
    for (std::string id : must_pass_patterns({kind, name})) {
      for (size_t at; (at = id.find('*')) != std::string::npos;) id.replace(at, 1, "any");
      Result r;
      r.id = id;
      r.kind = id.substr(0, id.find('/'));
      r.must_pass = true;
      r.axes = {{kind, name}};
      r.seconds = 0.02;
      r.reproduce = "tutti-conform --case " + id;
      run.results.push_back(r);
    }
}

Manifest manifest() {
  Manifest m;
  m.suite_version = suite_version();
  m.library_version = "0.1.0";
  m.library_sha256 = std::string(64, '5');
  m.started = "2026-11-20T19:30:00Z";
  m.seconds = 117.4;
  m.command_line = "tutti-conform --transport shm,tcp,shm+tcp --algorithm ring --level quick --report report";
  m.level = "quick";
  m.seed = 1;
  m.transports = {"shm", "tcp", "shm+tcp"};
  m.algorithms = {"ring"};
  m.plugins = {
      {"algorithms",
       "0.1.0",
       "Tutti",
       "/opt/tutti/lib/tutti/libtutti-algorithms.so",
       std::string(64, 'a'),
       {},
       {"bruck", "direct", "doubling", "halving", "ring", "tree"},
       ""},
      {"net-tcp", "0.1.0", "Tutti", "/opt/tutti/lib/tutti/libtutti-net-tcp.so", std::string(64, 'b'), {"tcp"}, {}, ""},
      {"shm", "0.1.0", "Tutti", "/opt/tutti/lib/tutti/libtutti-shm.so", std::string(64, 'c'), {"shm"}, {}, ""},
      {"old",
       "0.0.9",
       "Somebody",
       "/opt/old/libtutti-old.so",
       std::string(64, 'd'),
       {},
       {},
       "its transport table has draft stamp 0x1, this Tutti has 0x2"}};
  m.machine = {{"kernel", "Linux 6.1.0 x86_64"},
               {"system", "Debian GNU/Linux 12 (bookworm)"},
               {"host", "n1"},
               {"cpu", "AMD EPYC 9554"},
               {"cores", "128"},
               {"memory", "809121234944"},
               {"compiler", "12.2.0"},
               {"git", "v0.1-12-gabcdef"}};
  m.interfaces = {{"eth0", "up, 100000 Mb/s, driver mlx5_core"},
                  {"mlx5_0", "verbs, firmware 28.39.1002, 400 Gb/sec (4X NDR)"}};
  m.settings = {{"TUTTI_TCP_SOCKETS", "4"}};
  return m;
}

Result& result_of(Run& run, const std::string& part) {
  return *std::find_if(run.results.begin(), run.results.end(),
                       [&](const Result& r) { return r.id.find(part) != std::string::npos; });
}

}  // namespace

Run good_run() {
  Run run;
  run.manifest = manifest();
  for (const char* transport : {"shm", "tcp", "shm+tcp"})
    for (const Offer& offer : offers)
      for (const char* collective : offer.collectives)
        for (const char* type : {"float32", "int8"})
          for (const uint32_t ranks : {3, 5, 8})
            for (const uint64_t count : {1, 1000, 65537})
              run.results.push_back(matrix_result(collective, offer.algorithm, transport, type, ranks, count));
  for (const Offer& offer : offers)
    for (const char* collective : offer.collectives) run.results.push_back(proof_result(collective, offer.algorithm));
  for (Result& r : run.results)
    if (r.id.find("/halving/") != std::string::npos && r.id.find("/n3/") != std::string::npos && !r.must_pass)
      r.outcome = Outcome::not_supported("halving: needs a power of two of ranks, there are 3");
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t clause = 1; clause <= 30; ++clause)
      run.results.push_back(contract_result(transport, fmt::format("promise-{}", clause),
                                            {fmt::format("T-{}", clause), fmt::format("T-{}", clause % 7 + 1)}));
  complete(run);
  return run;
}

Run bad_run() {
  Run run = good_run();
  result_of(run, "all_reduce/ring/tcp/int8/sum/n5/c65537").outcome = Outcome::fail(
      "rank 3: element 65535 of 65537: expected 17 (0x11), got 16 (0x10)\n"
      "the last byte of chunk 4 was last written by lane 0 step 7, recv_reduce from rank 2\n</script><b>&amp; \"odd\" "
      "\xff text",
      "T-14");
  for (const char* count : {"c1/", "c1000/"})
    result_of(run, std::string("all_gather/bruck/tcp/float32/sum/n8/") + count).outcome =
        Outcome::fail("rank 5: element 512 of 8000: expected 1187.5, got 0: it was never written");
  result_of(run, "scatter/tree/shm+tcp/float32/sum/n3/c1/").outcome = {
      Verdict::crash, "rank 1 ended by signal 11 (Segmentation fault)", ""};
  result_of(run, "barrier/bruck/shm+tcp/int8/sum/n8/c1/").outcome = {
      Verdict::timeout, "no end within 30 s; ranks 0 and 4 wait for a signal from rank 7", ""};
  result_of(run, "contract/transport/tcp/promise-9").outcome =
      Outcome::fail("a link was given to an endpoint with another secret", "T-9");
  result_of(run, "broadcast/ring/shm/float32/sum/n8/c65537").outcome = Outcome::warning(
      "performance: 4 MiB one way: 0.31 GB/s at best, while a copy through shared memory gives 6.2 GB/s here");
  result_of(run, "gather/tree/tcp/float32/sum/n8/c65537").outcome =
      Outcome::not_run("needs 9 GiB of free memory, there are 4");
  run.waivers = {{"matrix/barrier/bruck/shm+tcp/*", "the switch drops the first broadcast",
                  "https://example.org/issues/17", "2027-03-31"},
                 {"matrix/scatter/tree/*", "fixed in firmware 28.40", "https://example.org/issues/3", "2026-06-30"}};
  return run;
}

}  // namespace tutti::conformance
