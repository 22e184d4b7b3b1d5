// SPDX-License-Identifier: Apache-2.0
//
// differential_test CALLS SEED: run by mpirun. All ranks make the same random calls with Tutti and with MPI and compare
// every byte of the outputs. The inputs are exact in any order of reduction, so there is no tolerance. The first
// difference ends the job, and says which call it was; the same CALLS and SEED give it again.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tutti/mpi.hpp>
#include <vector>

namespace {

int rank = 0, nranks = 0;
tutti_comm* comm = nullptr;

uint64_t mixed(uint64_t x) {  // the finalizer of splitmix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The same numbers on all ranks.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(mixed(seed)) {}
  uint64_t below(uint64_t limit) { return (state_ = mixed(state_)) % limit; }
  template <typename T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  uint64_t state_;
};

enum class Class { integer, floating, complex, boolean, pair };

struct Type {
  uint32_t tutti;
  MPI_Datatype mpi;
  size_t bytes;
  Class kind;
  const char* name;
};

struct Operator {
  uint32_t tutti;
  MPI_Op mpi;
  std::vector<Class> kinds;  // that MPI and Tutti both have
  const char* name;
};

const std::vector<Type>& types() {
  static const std::vector<Type> all = {
      {TUTTI_INT8, MPI_INT8_T, 1, Class::integer, "int8"},
      {TUTTI_INT16, MPI_INT16_T, 2, Class::integer, "int16"},
      {TUTTI_INT32, MPI_INT32_T, 4, Class::integer, "int32"},
      {TUTTI_INT64, MPI_INT64_T, 8, Class::integer, "int64"},
      {TUTTI_UINT8, MPI_UINT8_T, 1, Class::integer, "uint8"},
      {TUTTI_UINT16, MPI_UINT16_T, 2, Class::integer, "uint16"},
      {TUTTI_UINT32, MPI_UINT32_T, 4, Class::integer, "uint32"},
      {TUTTI_UINT64, MPI_UINT64_T, 8, Class::integer, "uint64"},
      {TUTTI_FLOAT32, MPI_FLOAT, 4, Class::floating, "float32"},
      {TUTTI_FLOAT64, MPI_DOUBLE, 8, Class::floating, "float64"},
      {TUTTI_COMPLEX64, MPI_C_FLOAT_COMPLEX, 8, Class::complex, "complex64"},
      {TUTTI_COMPLEX128, MPI_C_DOUBLE_COMPLEX, 16, Class::complex, "complex128"},
      {TUTTI_BOOL, MPI_C_BOOL, 1, Class::boolean, "bool"},
      {TUTTI_FLOAT32_INT32, MPI_FLOAT_INT, 8, Class::pair, "float32_int32"},
  };
  return all;
}

const std::vector<Operator>& operators() {
  using enum Class;
  static const std::vector<Operator> all = {
      {TUTTI_SUM, MPI_SUM, {integer, floating, complex}, "sum"},
      {TUTTI_PROD, MPI_PROD, {integer, floating, complex}, "prod"},
      {TUTTI_MIN, MPI_MIN, {integer, floating}, "min"},
      {TUTTI_MAX, MPI_MAX, {integer, floating}, "max"},
      {TUTTI_BAND, MPI_BAND, {integer}, "band"},
      {TUTTI_BOR, MPI_BOR, {integer}, "bor"},
      {TUTTI_BXOR, MPI_BXOR, {integer}, "bxor"},
      {TUTTI_LAND, MPI_LAND, {integer, boolean}, "land"},
      {TUTTI_LOR, MPI_LOR, {integer, boolean}, "lor"},
      {TUTTI_LXOR, MPI_LXOR, {integer, boolean}, "lxor"},
      {TUTTI_MINLOC, MPI_MINLOC, {pair}, "minloc"},
      {TUTTI_MAXLOC, MPI_MAXLOC, {pair}, "maxloc"},
  };
  return all;
}

const std::vector<std::string> collectives = {"broadcast",        "reduce",    "all_reduce",     "gather",
                                              "all_gather",       "scatter",   "reduce_scatter", "all_to_all",
                                              "gather_v",         "scatter_v", "all_gather_v",   "all_to_all_v",
                                              "reduce_scatter_v", "scan",      "exclusive_scan", "sendrecv"};

struct Call {
  uint64_t number;
  std::string collective;
  const Type* type;
  const Operator* op;  // nullptr: it does not reduce
  uint64_t count;
  int root;
  bool in_place;
  std::vector<std::vector<uint64_t>> counts;  // of the forms with unequal blocks: from rank, to rank
  int shift;                                  // of sendrecv

  std::string text() const {
    return "call " + std::to_string(number) + ": " + collective + " of " + std::to_string(count) + " " + type->name +
           (op ? std::string(", ") + op->name : "") + ", root " + std::to_string(root) + (in_place ? ", in place" : "");
  }
};

Call draw(Numbers& numbers, uint64_t number) {
  static const std::vector<uint64_t> sizes = {0, 1, 2, 3, 5, 7, 16, 17, 63, 64, 65, 100, 255, 1000, 1023, 4097, 20000};
  Call call{};
  call.number = number;
  call.collective = numbers.of(collectives);
  const bool reduces = call.collective.find("reduce") != std::string::npos || call.collective.ends_with("scan");
  do {
    call.type = &numbers.of(types());
    call.op = reduces ? &numbers.of(operators()) : nullptr;
  } while (call.op && std::ranges::find(call.op->kinds, call.type->kind) == call.op->kinds.end());
  call.count = numbers.of(sizes);
  call.root = static_cast<int>(numbers.below(nranks));
  call.in_place = numbers.below(2) == 1;
  call.shift = static_cast<int>(numbers.below(nranks));
  call.counts.assign(nranks, std::vector<uint64_t>(nranks));
  for (auto& row : call.counts)
    for (uint64_t& one : row) one = numbers.below(3) == 0 ? 0 : numbers.below(call.count + 1);
  return call;
}

// Element `index` of a rank's input. Sums of all ranks and products of eight are exact.
void write_element(const Call& call, int of_rank, uint64_t index, std::byte* at) {
  const uint64_t bits = mixed(mixed(call.number * 4096 + static_cast<uint64_t>(of_rank)) + index);
  const bool multiplies = call.op && call.op->tutti == TUTTI_PROD;
  const auto small = [&](uint64_t from) {
    const int64_t value = multiplies ? 1 + static_cast<int64_t>(from & 1) : 1 + static_cast<int64_t>(from % 1000);
    return from & 1024 ? -value : value;
  };
  const auto put = [at](const auto& value) { std::memcpy(at, &value, sizeof value); };
  switch (call.type->kind) {
    case Class::integer:
      std::memcpy(at, &bits, call.type->bytes);
      break;
    case Class::floating:
      call.type->bytes == 4 ? put(static_cast<float>(small(bits))) : put(static_cast<double>(small(bits)));
      break;
    case Class::complex: {
      const auto real = small(bits), imaginary = small(bits >> 20);
      call.type->bytes == 8 ? put(std::complex<float>(static_cast<float>(real), static_cast<float>(imaginary)))
                            : put(std::complex<double>(static_cast<double>(real), static_cast<double>(imaginary)));
      break;
    }
    case Class::boolean:
      put(static_cast<uint8_t>(bits & 1));
      break;
    case Class::pair: {
      const struct {
        float value;
        int32_t index;
      } pair{static_cast<float>(bits % 3), static_cast<int32_t>(bits >> 32 & 0xff)};  // ties are common
      put(pair);
    }
  }
}

using Bytes = std::vector<std::byte>;

Bytes input(const Call& call, uint64_t elements) {
  Bytes made(elements * call.type->bytes + 1);
  for (uint64_t i = 0; i < elements; ++i) write_element(call, rank, i, made.data() + i * call.type->bytes);
  return made;
}

[[noreturn]] void fail(const Call& call, const std::string& what) {
  std::fprintf(stderr, "rank %d of %d: %s: %s\n", rank, nranks, call.text().c_str(), what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void require(const Call& call, tutti_status status) {
  if (status != TUTTI_OK) fail(call, std::string("Tutti failed: ") + tutti_comm_error(comm));
}

// -0 is 0: the sign of a complex product's zero depends on the order.
void drop_signs_of_zeros(const Call& call, Bytes& bytes) {
  if (call.type->kind != Class::complex) return;
  const size_t part = call.type->bytes / 2;
  for (size_t at = 0; at + part <= bytes.size(); at += part) {
    double wide = 1;
    float narrow = 1;
    std::memcpy(part == 4 ? static_cast<void*>(&narrow) : &wide, bytes.data() + at, part);
    if (narrow == 0 || wide == 0) std::memset(bytes.data() + at, 0, part);
  }
}

void compare(const Call& call, Bytes mine, Bytes theirs) {
  drop_signs_of_zeros(call, mine);
  drop_signs_of_zeros(call, theirs);
  const auto [a, b] = std::ranges::mismatch(mine, theirs);
  if (a == mine.end() && b == theirs.end()) return;
  const auto at = static_cast<uint64_t>(a - mine.begin());
  fail(call, "outputs differ at byte " + std::to_string(at) + " of " + std::to_string(mine.size()) + " (element " +
                 std::to_string(at / call.type->bytes) + "): Tutti " + std::to_string(std::to_integer<int>(*a)) +
                 ", MPI " + std::to_string(std::to_integer<int>(*b)));
}

// One side's counts of a form with unequal blocks, with gaps between the blocks.
struct Blocks {
  std::vector<uint64_t> counts, displacements;
  std::vector<int> mpi_counts, mpi_displacements;
  uint64_t elements = 0;
  explicit Blocks(std::vector<uint64_t> given) : counts(std::move(given)) {
    for (size_t b = 0; b < counts.size(); ++b) {
      displacements.push_back(elements);
      mpi_counts.push_back(static_cast<int>(counts[b]));
      mpi_displacements.push_back(static_cast<int>(elements));
      elements += counts[b] + b % 3;
    }
  }
};

// A call's outputs are poisoned alike, so what a library must not touch is compared as well.
struct Outputs {
  Bytes mine, theirs;
  Outputs(const Call& call, uint64_t elements) : mine(elements * call.type->bytes + 1, std::byte{0xa5}), theirs(mine) {}
};

void equal_blocks(const Call& call) {
  const std::string& name = call.collective;
  const uint64_t n = call.count, all = n * static_cast<uint64_t>(nranks), size = call.type->bytes;
  const uint32_t type = call.type->tutti, op = call.op ? call.op->tutti : 0, root = static_cast<uint32_t>(call.root);
  const MPI_Datatype mpi = call.type->mpi;
  const MPI_Op mpi_op = call.op ? call.op->mpi : MPI_SUM;
  const int count = static_cast<int>(n);
  const bool is_root = rank == call.root;
  const bool whole_in = name == "scatter" || name == "reduce_scatter" || name == "all_to_all";
  const bool whole_out = name == "gather" || name == "all_gather" || name == "all_to_all";
  const bool has_out = (name != "reduce" && name != "gather") || is_root;
  Bytes in = input(call, whole_in ? all : n);
  Outputs out(call, whole_out ? all : n);
  // In place the input lies where the output will be, or the output lies in the input.
  const uint64_t own = static_cast<uint64_t>(rank) * n * size;
  const bool out_in_input = name == "reduce_scatter" || (name == "scatter" && is_root);
  const bool in_place = call.in_place && has_out && name != "sendrecv" && (name != "scatter" || is_root);
  const std::byte* from = in.data();
  std::byte* to = out.mine.data();
  Bytes both = in;
  if (in_place && out_in_input) {
    from = both.data();
    to = both.data() + own;
  } else if (in_place) {
    const uint64_t at = name == "gather" || name == "all_gather" ? own : 0;
    std::copy(in.begin(), in.end() - 1, out.mine.begin() + static_cast<ptrdiff_t>(at));
    from = out.mine.data() + at;
  }
  void* const theirs = out.theirs.data();
  if (name == "broadcast") {
    require(call, tutti_broadcast(comm, is_root ? from : nullptr, to, n, type, root, nullptr, nullptr));
    if (is_root) std::copy(in.begin(), in.end() - 1, out.theirs.begin());
    MPI_Bcast(theirs, count, mpi, call.root, MPI_COMM_WORLD);
  } else if (name == "reduce") {
    require(call, tutti_reduce(comm, from, has_out ? to : nullptr, n, type, op, root, nullptr, nullptr));
    MPI_Reduce(in.data(), theirs, count, mpi, mpi_op, call.root, MPI_COMM_WORLD);
  } else if (name == "all_reduce") {
    require(call, tutti_all_reduce(comm, from, to, n, type, op, nullptr, nullptr));
    MPI_Allreduce(in.data(), theirs, count, mpi, mpi_op, MPI_COMM_WORLD);
  } else if (name == "gather") {
    require(call, tutti_gather(comm, from, has_out ? to : nullptr, n, type, root, nullptr, nullptr));
    MPI_Gather(in.data(), count, mpi, theirs, count, mpi, call.root, MPI_COMM_WORLD);
  } else if (name == "all_gather") {
    require(call, tutti_all_gather(comm, from, to, n, type, nullptr, nullptr));
    MPI_Allgather(in.data(), count, mpi, theirs, count, mpi, MPI_COMM_WORLD);
  } else if (name == "scatter") {
    require(call, tutti_scatter(comm, is_root ? from : nullptr, to, n, type, root, nullptr, nullptr));
    MPI_Scatter(in.data(), count, mpi, theirs, count, mpi, call.root, MPI_COMM_WORLD);
  } else if (name == "reduce_scatter") {
    require(call, tutti_reduce_scatter(comm, from, to, n, type, op, nullptr, nullptr));
    MPI_Reduce_scatter_block(in.data(), theirs, count, mpi, mpi_op, MPI_COMM_WORLD);
  } else if (name == "all_to_all") {
    require(call, tutti_all_to_all(comm, from, to, n, type, nullptr, nullptr));
    MPI_Alltoall(in.data(), count, mpi, theirs, count, mpi, MPI_COMM_WORLD);
  } else if (name == "scan") {
    require(call, tutti_scan(comm, from, to, n, type, op, nullptr, nullptr));
    MPI_Scan(in.data(), theirs, count, mpi, mpi_op, MPI_COMM_WORLD);
  } else if (name == "exclusive_scan") {
    require(call, tutti_exclusive_scan(comm, from, to, n, type, op, nullptr, nullptr));
    MPI_Exscan(in.data(), theirs, count, mpi, mpi_op, MPI_COMM_WORLD);
    if (rank == 0) return;  // has no result
  } else {
    const int next = (rank + call.shift) % nranks, previous = (rank - call.shift + nranks) % nranks;
    tutti_message messages[2] = {};
    messages[0] = {in.data(), n, type, static_cast<uint32_t>(next), 7, TUTTI_SEND, {}};
    messages[1] = {to, n, type, static_cast<uint32_t>(previous), 7, TUTTI_RECEIVE, {}};
    require(call, tutti_exchange(comm, messages, 2, nullptr, nullptr));
    MPI_Sendrecv(in.data(), count, mpi, next, 7, theirs, count, mpi, previous, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (!has_out) return;
  if (in_place && out_in_input) std::copy_n(both.begin() + static_cast<ptrdiff_t>(own), n * size, out.mine.begin());
  compare(call, std::move(out.mine), std::move(out.theirs));
}

void unequal_blocks(const Call& call) {
  const std::string& name = call.collective;
  const uint32_t type = call.type->tutti, root = static_cast<uint32_t>(call.root);
  const MPI_Datatype mpi = call.type->mpi;
  const bool is_root = rank == call.root;
  const std::vector<uint64_t>& row = call.counts[name == "all_to_all_v" ? rank : 0];
  std::vector<uint64_t> column;
  for (const auto& one : call.counts) column.push_back(one[rank]);
  const Blocks blocks(row), arriving(column);
  const uint64_t own = row[rank];
  const int mpi_own = static_cast<int>(own);
  if (name == "gather_v" || name == "all_gather_v") {
    const Bytes in = input(call, own);
    Outputs out(call, blocks.elements);
    if (name == "gather_v") {
      require(call, tutti_gather_v(comm, in.data(), own, is_root ? out.mine.data() : nullptr, blocks.counts.data(),
                                   blocks.displacements.data(), type, root, nullptr, nullptr));
      MPI_Gatherv(in.data(), mpi_own, mpi, out.theirs.data(), blocks.mpi_counts.data(), blocks.mpi_displacements.data(),
                  mpi, call.root, MPI_COMM_WORLD);
    } else {
      require(call, tutti_all_gather_v(comm, in.data(), out.mine.data(), blocks.counts.data(),
                                       blocks.displacements.data(), type, nullptr, nullptr));
      MPI_Allgatherv(in.data(), mpi_own, mpi, out.theirs.data(), blocks.mpi_counts.data(),
                     blocks.mpi_displacements.data(), mpi, MPI_COMM_WORLD);
    }
    if (name == "all_gather_v" || is_root) compare(call, std::move(out.mine), std::move(out.theirs));
    return;
  }
  const Bytes in = input(call, blocks.elements);
  Outputs out(call, name == "all_to_all_v" ? arriving.elements : own);
  if (name == "scatter_v") {
    require(call, tutti_scatter_v(comm, is_root ? in.data() : nullptr, blocks.counts.data(),
                                  blocks.displacements.data(), out.mine.data(), own, type, root, nullptr, nullptr));
    MPI_Scatterv(in.data(), blocks.mpi_counts.data(), blocks.mpi_displacements.data(), mpi, out.theirs.data(), mpi_own,
                 mpi, call.root, MPI_COMM_WORLD);
  } else if (name == "all_to_all_v") {
    require(call,
            tutti_all_to_all_v(comm, in.data(), blocks.counts.data(), blocks.displacements.data(), out.mine.data(),
                               arriving.counts.data(), arriving.displacements.data(), type, nullptr, nullptr));
    MPI_Alltoallv(in.data(), blocks.mpi_counts.data(), blocks.mpi_displacements.data(), mpi, out.theirs.data(),
                  arriving.mpi_counts.data(), arriving.mpi_displacements.data(), mpi, MPI_COMM_WORLD);
  } else {  // MPI's blocks lie one after another
    require(call, tutti_reduce_scatter_v(comm, in.data(), out.mine.data(), blocks.counts.data(), nullptr, type,
                                         call.op->tutti, nullptr, nullptr));
    MPI_Reduce_scatter(in.data(), out.theirs.data(), blocks.mpi_counts.data(), mpi, call.op->mpi, MPI_COMM_WORLD);
  }
  compare(call, std::move(out.mine), std::move(out.theirs));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  const uint64_t calls = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (calls == 0) {
    std::fprintf(stderr, "usage: mpirun -n RANKS differential_test CALLS SEED\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  char error[TUTTI_MPI_TEXT] = "";
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.error = error;
  config.error_bytes = sizeof error;
  if (tutti_comm_create_from_mpi(MPI_COMM_WORLD, &config, &comm) != TUTTI_OK) {
    std::fprintf(stderr, "%s\n", error);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  Numbers numbers(std::strtoull(argv[2], nullptr, 10));
  for (uint64_t number = 0; number < calls; ++number) {
    const Call call = draw(numbers, number);
    call.collective.ends_with("_v") ? unequal_blocks(call) : equal_blocks(call);
  }
  tutti_comm_destroy(comm);
  MPI_Finalize();
  if (rank == 0)
    std::printf("%d ranks, seed %s: %llu calls gave the same bytes with Tutti and MPI\n", nranks, argv[2],
                static_cast<unsigned long long>(calls));
  return 0;
}
