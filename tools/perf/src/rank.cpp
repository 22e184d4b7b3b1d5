// SPDX-License-Identifier: Apache-2.0
#include "rank.hpp"

#include <tutti/schedule.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "buckets/replay.hpp"
#include "measure.hpp"
#include "output_file.hpp"
#include "peers.hpp"
#include "plot.hpp"
#include "report_json.hpp"
#include "setting.hpp"
#include "table.hpp"
#include "tune.hpp"

namespace perf {
namespace {

constexpr int failed = 1, usage_error = 2;

// The rows of one collective.
std::vector<Case> cases_of(const Collective& collective, const Options& options, uint32_t nranks) {
  std::vector<Named> ops = {{"none", 0}};
  if (collective.reduces) ops = options.ops;
  std::vector<uint32_t> roots = {options.root.value_or(0)};
  if (!collective.rooted) roots = {0};
  if (collective.rooted && !options.root)
    for (uint32_t root = 1; root < nranks; ++root) roots.push_back(root);
  std::vector<uint64_t> sizes = options.sizes();
  std::vector<Named> dtypes = options.dtypes;
  // A barrier has no data, hence one row.
  if (collective.origin == Origin::nothing) sizes = {0}, dtypes = {{"none", TUTTI_INT8}};
  std::vector<Case> cases;
  for (const Named& dtype : dtypes)
    for (const Named& op : ops) {
      if (op.code && !tutti::op_is_defined(op.code, dtype.code)) continue;
      for (const uint32_t root : roots)
        for (const uint64_t bytes : sizes) cases.push_back({&collective, bytes, dtype, op, root});
    }
  return cases;
}

// The output of rank 0.
class Reporter {
 public:
  Reporter(const Options& options, bool speaks) : options_(options), speaks_(speaks) {}
  // Writes the files even when the run ended early.
  ~Reporter() { write_files(); }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Before anything is measured: a file that cannot be read is better known then.
  void read_peers() {
    if (!speaks_) return;
    for (const std::string& peer : options_.peers) peers_.push_back(read_peer(peer));
  }
  void begin(const Setting& setting) {
    setting_ = setting;
    if (speaks_) print_setting(options_, setting);
  }
  void begin(const Collective& collective) const {
    if (speaks_) print_columns(collective);
  }
  void leave_out(const Collective& collective, const std::string& why) const {
    if (speaks_) std::printf("#\n# %s is left out: %s\n", collective.name, why.c_str());
  }
  void add(const Row& row) {
    rows_.push_back(row);
    for (const Side* side : {&row.out_of_place, &row.in_place}) {
      if (!side->measured) continue;
      wrong_ += side->wrong;
      bus_bandwidth_ += side->bus_bandwidth;
      ++sides_;
    }
    if (!speaks_) return;
    print_row(options_, row);
    if (const double bound = bound_us(row, setting_); bound > 0) print_bound(row, bound);
  }
  void fail(const std::string& error) { error_ = error; }
  void end(const tutti::Communicator& comm) {
    if (!speaks_) return;
    for (const tutti_rail_traffic& r : comm.rails())
      rails_.push_back({r.transport, r.rail, r.sent_bytes, r.received_bytes});
    print_rails(rails_);
    if (!options_.device.empty()) {
      print_services(comm.services(), options_.device);
      print_traffic(comm.traffic());
    }
    print_end(wrong_, average());
  }
  uint64_t wrong() const { return wrong_; }
  bool wrote_files() const { return !failed_; }

  void write_files() {
    if (!speaks_ || written_) return;
    written_ = true;
    if (!options_.json_path.empty())
      write(options_.json_path, report_json(options_, setting_, rows_, rails_, wrong_, average(), error_));
    if (!options_.plot_path.empty() && !rows_.empty())
      write(options_.plot_path, plot(options_, setting_, rows_, peers_));
  }

 private:
  void write(const std::string& path, const std::string& text) {
    if (!write_file(path, text)) failed_ = true;
  }
  double average() const { return sides_ ? bus_bandwidth_ / static_cast<double>(sides_) : 0; }

  const Options& options_;
  bool speaks_;
  Setting setting_;
  std::vector<Row> rows_;
  std::vector<Rail> rails_;
  std::vector<Peer> peers_;
  uint64_t wrong_ = 0, sides_ = 0;
  double bus_bandwidth_ = 0;
  std::string error_;
  bool written_ = false, failed_ = false;
};

// Options that only now can be seen to be wrong. "" when all is well.
std::string misfit(const Options& options, uint32_t nranks) {
  if (options.root && *options.root >= nranks)
    return "-r " + std::to_string(*options.root) + ": there are " + std::to_string(nranks) + " ranks, 0 to " +
           std::to_string(nranks - 1);
  if (options.buckets) return misfit(*options.buckets, nranks);
  if (!options.all && options.collectives.front()->least_ranks > nranks)
    return std::string(options.collectives.front()->name) + ": needs at least " +
           std::to_string(options.collectives.front()->least_ranks) + " ranks, there is " + std::to_string(nranks) +
           "; start it with tuttirun -n or --threads";
  if (!options.tune_path.empty() && nranks == 1)
    return "--tune: one rank has no choice of algorithms; start it with tuttirun -n or --threads";
  return "";
}

// Rank 0 measures while the others wait: they may share its device.
std::optional<Baseline> measure_device(const tutti::Communicator& comm, const Options& options, const Device* device) {
  std::optional<Baseline> found;
  if (!device) return found;
  comm.barrier();
  if (comm.rank() == 0) found = device->measure(comm.handle(), options.most_bytes);
  comm.barrier();
  return found;
}

void measure_each(const tutti::Communicator& comm, const Options& options, Measurer* measurer, Reporter* reporter) {
  for (const Collective* collective : options.collectives) {
    if (collective->least_ranks > comm.nranks()) {
      reporter->leave_out(*collective, "it needs " + std::to_string(collective->least_ranks) + " ranks, there are " +
                                           std::to_string(comm.nranks()));
      continue;
    }
    reporter->begin(*collective);
    for (const Case& what : cases_of(*collective, options, comm.nranks())) reporter->add(measurer->measure(what));
  }
}

int measure_all(const tutti::Communicator& comm, const Options& options, Reporter* reporter) {
  reporter->read_peers();
  std::optional<Device> device;
  if (!options.device.empty()) device.emplace(comm.device());
  Setting setting = meet(comm);
  setting.baseline = measure_device(comm, options, device ? &*device : nullptr);
  if (device) setting.devices = device->count();
  reporter->begin(setting);
  Measurer measurer(comm, options, device ? &*device : nullptr);
  try {
    measure_each(comm, options, &measurer, reporter);
  } catch (const std::exception& e) {
    comm.abort(e.what());              // the stream waits for no other rank any more
    if (device) device->end_stream();  // and its work ends before the memory that it uses is released
    throw;
  }
  reporter->end(comm);
  reporter->write_files();
  return reporter->wrong() || measurer.wrong_here() || !reporter->wrote_files() ? failed : 0;
}

int measure_and_report(const tutti::Communicator& comm, const Options& options) {
  Reporter reporter(options, comm.rank() == 0);
  try {
    return measure_all(comm, options, &reporter);
  } catch (const std::exception& e) {
    reporter.fail(e.what());
    throw;
  }
}

}  // namespace

int run_rank(const Options& options, tutti_comm_config config) {
  try {
    std::string device = "none";
    if (!options.device.empty())
      device = options.threads ? Device::setting(options.device, config.rank) : options.device + ":local";
    config.device = device.c_str();
    const tutti::Communicator comm(config);
    const std::string wrong = misfit(options, comm.nranks());
    if (!wrong.empty()) {
      if (comm.rank() == 0) std::fprintf(stderr, "tutti-perf: %s\n", wrong.c_str());
      return usage_error;
    }
    if (comm.nranks() == 1 && options.threads == 0)
      std::fprintf(stderr,
                   "tutti-perf: this is one rank: nothing is exchanged. Four: tuttirun -n 4 tutti-perf ..., or "
                   "tutti-perf --threads 4 ...\n");
    try {
      if (options.buckets) return replay(comm, options);
      if (!options.tune_path.empty()) return tune(comm, options);
      return measure_and_report(comm, options);
    } catch (const std::exception& e) {
      // The others wait for this rank: let them know at once, not at the deadline.
      comm.abort(e.what());
      std::fprintf(stderr, "tutti-perf: rank %u: %s\n", comm.rank(), e.what());
      return failed;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti-perf: %s\n", e.what());
    return failed;
  }
}

}  // namespace perf
