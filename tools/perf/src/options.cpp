// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <tutti/sdk/text.hpp>

#include "element.hpp"

namespace perf {
namespace {

constexpr int usage_error = 2;

struct Entry {
  const char* name;
  const char* alias;
  uint32_t code;
};
constexpr Entry dtype_table[] = {{"int8", "", TUTTI_INT8},
                                 {"uint8", "", TUTTI_UINT8},
                                 {"int16", "", TUTTI_INT16},
                                 {"uint16", "", TUTTI_UINT16},
                                 {"int32", "int", TUTTI_INT32},
                                 {"uint32", "", TUTTI_UINT32},
                                 {"int64", "", TUTTI_INT64},
                                 {"uint64", "", TUTTI_UINT64},
                                 {"half", "float16", TUTTI_FLOAT16},
                                 {"float", "float32", TUTTI_FLOAT32},
                                 {"double", "float64", TUTTI_FLOAT64},
                                 {"bfloat16", "", TUTTI_BFLOAT16},
                                 {"f8e4m3", "float8_e4m3", TUTTI_FLOAT8_E4M3},
                                 {"f8e5m2", "float8_e5m2", TUTTI_FLOAT8_E5M2},
                                 {"bool", "", TUTTI_BOOL},
                                 {"complex64", "", TUTTI_COMPLEX64},
                                 {"complex128", "", TUTTI_COMPLEX128},
                                 {"float32_int32", "", TUTTI_FLOAT32_INT32},
                                 {"float64_int64", "", TUTTI_FLOAT64_INT64}};
constexpr Entry op_table[] = {{"sum", "", TUTTI_SUM},      {"prod", "", TUTTI_PROD}, {"min", "", TUTTI_MIN},
                              {"max", "", TUTTI_MAX},      {"avg", "", TUTTI_AVG},   {"band", "", TUTTI_BAND},
                              {"bor", "", TUTTI_BOR},      {"bxor", "", TUTTI_BXOR}, {"land", "", TUTTI_LAND},
                              {"lor", "", TUTTI_LOR},      {"lxor", "", TUTTI_LXOR}, {"minloc", "", TUTTI_MINLOC},
                              {"maxloc", "", TUTTI_MAXLOC}};

// The entries that `text` names, "all" naming every one.
template <size_t kSize>
std::vector<Named> choose(const Entry (&table)[kSize], const std::string& text, const char* flag) {
  std::vector<Named> chosen;
  std::string known;
  for (const Entry& entry : table) {
    known += std::string(entry.name) + ", ";
    if (text == "all" || text == entry.name || (*entry.alias && text == entry.alias))
      chosen.push_back({entry.name, entry.code});
  }
  if (chosen.empty()) throw std::invalid_argument(std::string(flag) + " " + text + ": known are " + known + "all");
  return chosen;
}

uint64_t size_or_throw(const std::string& text, const char* flag) {
  const auto size = parse_size(text);
  if (!size)
    throw std::invalid_argument(std::string(flag) + " " + text +
                                ": expected bytes, a whole number with K, M, G or T if need be");
  return *size;
}

void choose_collectives(const std::string& text, Options* options) {
  options->all = text == "all";
  for (const Collective& collective : all_collectives())
    if (options->all || find_collective(text) == &collective) options->collectives.push_back(&collective);
  if (options->collectives.empty())
    throw std::invalid_argument("collective \"" + text + "\": known are " + collective_names() + ", all");
}

// nccl-tests' -t threads of -g devices each: a rank per device, all in this process. Under a launcher each process is a
// rank already.
void take_ranks_per_process(uint64_t threads_per_process, uint64_t ranks_per_thread, Options* options) {
  constexpr uint64_t most = 4096;
  const uint64_t ranks = threads_per_process * ranks_per_thread;
  if (ranks <= 1) return;
  if (ranks > most)
    throw std::invalid_argument("-t times -g: " + std::to_string(ranks) + " ranks in a process, at most " +
                                std::to_string(most));
  if (const auto launcher = launched()) {
    const uint64_t all = ranks * tutti::whole_number(launcher->processes, 0, UINT64_MAX).value_or(0);
    throw std::invalid_argument("-t times -g is " + std::to_string(ranks) + ", but " + launcher->variable +
                                " tells of " + launcher->processes + " processes, each of which is one rank: start " +
                                std::to_string(all) + " processes instead, or use --threads " + std::to_string(ranks) +
                                " for a job of its own in each");
  }
  options->threads = static_cast<uint32_t>(ranks);
}

// Of "all" what does not go together is left out; what was named has to.
void check_operators(const Options& options) {
  const bool reduces = std::any_of(options.collectives.begin(), options.collectives.end(),
                                   [](const Collective* collective) { return collective->reduces; });
  if (!reduces || options.ops.size() > 1 || options.dtypes.size() > 1) return;
  const Named &op = options.ops[0], &dtype = options.dtypes[0];
  if (!tutti::op_is_defined(op.code, dtype.code))
    throw std::invalid_argument("-o " + op.name + " is not defined for -d " + dtype.name + ": this type has " +
                                tutti::ops_of_dtype(dtype.code));
}

void check_exact(const Options& options) {
  if (std::ranges::none_of(options.collectives, &Collective::reduces))
    throw std::invalid_argument(std::string("--exact: ") + options.collectives.front()->name +
                                " reduces nothing: name a reduction, or all");
  for (const Named& op : options.ops)
    for (const Named& dtype : options.dtypes)
      if ((op.code != TUTTI_SUM && op.code != TUTTI_AVG) || dtype.code < TUTTI_FLOAT16 || dtype.code > TUTTI_FLOAT64)
        throw std::invalid_argument(
            "--exact: exact sums are those of sum and avg (-o) of half, bfloat16, float and "
            "double (-d), not " +
            op.name + " of " + dtype.name);
}

void check_tuning(const Options& options) {
  if (options.dtypes.size() > 1 || options.ops.size() > 1 || !options.root)
    throw std::invalid_argument(
        "--tune: one type, operator and root are measured: name one instead of all (-d, -o, -r)");
  const Collective& first = *options.collectives.front();
  if (!options.all && (first.unequal || first.least_ranks > 1))
    throw std::invalid_argument(std::string("--tune: ") + first.name +
                                " has no choice of algorithms by size: name a collective of equal blocks, or all");
  if (std::getenv("TUTTI_ALGO"))
    throw std::invalid_argument("--tune: TUTTI_ALGO is set, but every algorithm is measured: unset it");
}

struct Texts {
  std::string collective, least = "32M", most, step = "1M", op = "sum", dtype = "float", root = "0",
                          memory = "ordinary", blocks = "equal";
};

void check_steps(const Options& options, bool factor_given) {
  if (options.most_bytes < options.least_bytes)
    throw std::invalid_argument("-e " + std::to_string(options.most_bytes) + ": less than -b " +
                                std::to_string(options.least_bytes));
  if (factor_given && options.step_factor < 2) throw std::invalid_argument("-f: expected a factor of at least 2");
  if (!factor_given && options.step_bytes == 0 && options.most_bytes > options.least_bytes)
    throw std::invalid_argument("-i 0: would never reach -e; expected at least 1 byte");
  if (factor_given && options.least_bytes == 0 && options.most_bytes > 0)
    throw std::invalid_argument("-b 0 with -f: 0 times a factor stays 0; use -i");
}

void interpret(const Texts& texts, bool factor_given, Options* options) {
  choose_collectives(texts.collective, options);
  options->least_bytes = size_or_throw(texts.least, "-b");
  options->most_bytes = texts.most.empty() ? options->least_bytes : size_or_throw(texts.most, "-e");
  options->step_bytes = size_or_throw(texts.step, "-i");
  check_steps(*options, factor_given);
  options->ops = choose(op_table, texts.op, "-o");
  options->dtypes = choose(dtype_table, texts.dtype, "-d");
  check_operators(*options);
  options->root.reset();
  if (texts.root != "all") {
    uint32_t root = 0;
    const char* end = texts.root.data() + texts.root.size();
    const auto [stop, code] = std::from_chars(texts.root.data(), end, root);
    if (code != std::errc() || stop != end)
      throw std::invalid_argument("-r " + texts.root + ": expected a rank, or all");
    options->root = root;
  }
  if (texts.memory != "ordinary" && texts.memory != "registered")
    throw std::invalid_argument("--memory " + texts.memory + ": known are ordinary, registered");
  options->registered = texts.memory == "registered";
  if (texts.blocks != "equal" && texts.blocks != "skewed")
    throw std::invalid_argument("--blocks " + texts.blocks + ": known are equal, skewed");
  options->skewed = texts.blocks == "skewed";
  if (options->skewed && std::ranges::none_of(options->collectives, &Collective::unequal))
    throw std::invalid_argument("--blocks skewed: " + texts.collective + " has equal blocks; name one that ends in _v");
  if (options->exact) check_exact(*options);
  if (!options->tune_path.empty()) check_tuning(*options);
}

}  // namespace

std::optional<Launcher> launched() {
  for (const char* name : {"TUTTI_WORLD_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}) {
    const char* text = std::getenv(name);
    if (text && tutti::whole_number(text, 2, UINT64_MAX)) return Launcher{name, text};
  }
  return std::nullopt;
}

std::vector<uint64_t> Options::sizes() const {
  std::vector<uint64_t> result;
  for (uint64_t size = least_bytes; size <= most_bytes;) {
    result.push_back(size);
    const uint64_t room = std::numeric_limits<uint64_t>::max();
    if (step_factor ? size > room / step_factor : size > room - step_bytes) break;
    const uint64_t next = step_factor ? size * step_factor : size + step_bytes;
    if (next == size) break;
    size = next;
  }
  return result;
}

uint64_t element_bytes(uint32_t dtype) {
  uint64_t bytes = 0;
  with_type(dtype, [&]<typename T>(T) { bytes = sizeof(T); });
  return bytes;
}

std::optional<uint64_t> parse_size(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || end - stop > 1) return std::nullopt;
  if (stop == end) return value;
  constexpr std::string_view suffixes = "KMGT";
  const size_t place = suffixes.find(tutti::to_upper(*stop));
  if (place == suffixes.npos) return std::nullopt;
  const int shift = 10 * (static_cast<int>(place) + 1);
  if (value > std::numeric_limits<uint64_t>::max() >> shift) return std::nullopt;
  return value << shift;
}

const char* report_name(Report report) {
  constexpr const char* names[] = {"rank 0", "average of ranks", "fastest rank", "slowest rank"};
  return names[static_cast<int>(report)];
}

std::optional<Options> parse_options(int argc, char** argv, int* status) {
  Options options;
  Texts texts;
  int report = static_cast<int>(options.report);
  uint32_t threads_per_process = 1, ranks_per_thread = 1;
  options.command.assign(argv, argv + argc);
  CLI::App app{"Measures and checks collectives. Start it with tuttirun, torchrun, mpirun, srun, or with --threads."};
  app.set_version_flag("--version", tutti_version());
  app.add_option("COLLECTIVE", texts.collective, collective_names() + ", or all");
  const BucketsCommand buckets(app, options);
  const GrowthCommand growth(app, options);
  app.add_option("-b,--minbytes", texts.least, "smallest size in bytes, K/M/G binary (32M)");
  app.add_option("-e,--maxbytes", texts.most, "largest size (that of -b)");
  auto* step = app.add_option("-i,--stepbytes", texts.step, "added from size to size (1M)");
  auto* factor = app.add_option("-f,--stepfactor", options.step_factor, "multiplied from size to size")->excludes(step);
  app.add_option("-n,--iters", options.iterations, "timed iterations (20)")->check(CLI::Range(1u, 1u << 30));
  app.add_option("-w,--warmup_iters", options.warm_up,
                 "iterations before the timed ones (5); unless 0 they come after 66 in which a plan tries its ways of "
                 "moving bytes");
  app.add_option("-c,--check", options.checks, "checked runs before and after the timed ones; 0: none (1)");
  app.add_option("-o,--op", texts.op, "sum, prod, min, max, avg, band, bor, bxor, land, lor, lxor or all");
  app.add_option("-d,--datatype", texts.dtype,
                 "int8 ... float, double, half, bfloat16, f8e4m3, f8e5m2, bool, complex64, complex128, float32_int32, "
                 "float64_int64 or all");
  app.add_option("-r,--root", texts.root, "root rank or all");
  app.add_option("-J,--output_file", options.json_path, "write everything as JSON too");
  auto* plot = app.add_option("--plot", options.plot_path, "draw the table into this SVG file");
  app.add_option("--peer", options.peers,
                 "NAME=FILE: draw it beside; JSON of -J, or CSV with the columns size and time_us")
      ->needs(plot)
      ->take_all();
  app.add_option("-a,--average", report, "time shown: 0 rank 0, 1 average, 2 fastest, 3 slowest rank")
      ->check(CLI::Range(0, 3));
  auto* threads = app.add_option("--threads", options.threads, "run so many ranks as threads of this process")
                      ->check(CLI::Range(1, 4096));
  app.add_option("-t,--nthreads", threads_per_process, "as nccl-tests: -t times -g ranks, threads of this process (1)")
      ->check(CLI::Range(1, 4096))
      ->excludes(threads);
  app.add_option("-g,--ngpus", ranks_per_thread, "see -t; ranks have host memory (1)")
      ->check(CLI::Range(1, 4096))
      ->excludes(threads);
  app.add_option("--memory", texts.memory,
                 "ordinary or registered buffers (tutti_mem_alloc; on a device tutti_comm_register)");
  app.add_option("--blocks", texts.blocks,
                 "equal or skewed: the blocks of collectives that end in _v; skewed ones grow with the rank (equal)");
  auto* device = app.add_option("--device", options.device,
                                "buffers on a device, cuda for instance, and collectives in its streams");
  app.add_flag("--latency", options.latency, "print minimum, p50 and p99 of single iterations");
  auto* exact =
      app.add_flag("--exact", options.exact,
                   "exact sums (TUTTI_ORDER_EXACT), measured in turn with the free order, and how many times as "
                   "long they take");
  app.add_option("--tune", options.tune_path,
                 "time every algorithm instead, and write the times into this file for TUTTI_TUNING; -J: the judgement")
      ->excludes(plot)
      ->excludes(exact)
      ->excludes(device);
  app.add_option("--seed", options.seed, "of the input data");
  *status = 0;
  try {
    app.parse(argc, argv);
    if (buckets.is_given() || growth.is_given()) {
      const std::string name = buckets.is_given() ? "buckets" : "growth";
      const std::string other = buckets.is_given() && growth.is_given() ? "growth" : texts.collective;
      if (!other.empty()) throw std::invalid_argument(name + " and " + other + ": expected one of them");
      if (buckets.is_given()) options.buckets = buckets.options();
      if (growth.is_given()) options.growth = growth.options();
      return options;
    }
    if (texts.collective.empty()) throw CLI::RequiredError("COLLECTIVE");
    options.report = static_cast<Report>(report);
    take_ranks_per_process(threads_per_process, ranks_per_thread, &options);
    interpret(texts, factor->count() > 0, &options);
    return options;
  } catch (const CLI::Success& e) {
    app.exit(e, std::cout, std::cerr);
  } catch (const std::exception& e) {
    std::cerr << "tutti-perf: " << e.what() << "\nRun with --help for more information.\n";
    *status = usage_error;
  }
  return std::nullopt;
}

}  // namespace perf
