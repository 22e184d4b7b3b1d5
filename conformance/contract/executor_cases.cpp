// SPDX-License-Identifier: Apache-2.0
//
// Contract cases of executor/1: what commands do, and in which order. Reductions are held against the oracle's element
// types, which share nothing with the SDK.
#include <tutti/schedule.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "contract_case.hpp"
#include "device_station.hpp"
#include "guarded_memory.hpp"
#include "oracle/element.hpp"
#include "oracle/exact_sum.hpp"

namespace tutti::conformance::contract {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(std::mt19937_64& random, uint64_t n) {
  Bytes bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

// A piece of device memory between bytes that must stay.
struct Piece {
  static constexpr uint64_t around = 512;
  uint8_t* whole = nullptr;
  uint64_t offset = 0;
  Bytes bytes;  // all of them, as last put there
  uint8_t* at() const { return whole + offset; }
};

Piece make_piece(Station& s, std::mt19937_64& random, uint64_t bytes, uint64_t offset) {
  Piece piece;
  piece.offset = Piece::around + offset;
  piece.bytes = random_bytes(random, bytes + offset + 2 * Piece::around);
  piece.whole = s.allocate(piece.bytes.size());
  s.put(piece.whole, piece.bytes);
  return piece;
}

// The piece's `expected.size()` bytes are as expected, all around them as before.
void judge_piece(Station& s, const Piece& piece, const Bytes& expected, const char* clause, const std::string& what) {
  const Bytes now = s.get(piece.whole, piece.bytes.size());
  for (uint64_t i = 0; i < now.size(); ++i) {
    const bool inside = i >= piece.offset && i < piece.offset + expected.size();
    if (now[i] == (inside ? expected[i - piece.offset] : piece.bytes[i])) continue;
    if (inside)
      broken(clause, "{}: byte {} of {} is {:#04x}, expected {:#04x}", what, i - piece.offset, expected.size(), now[i],
             expected[i - piece.offset]);
    broken("X-3", "{}: the byte {} {} the destination was written", what,
           i < piece.offset ? piece.offset - i : i - piece.offset - expected.size() + 1,
           i < piece.offset ? "before" : "behind");
  }
}

void copies(Bench& bench) {
  Station s(bench);
  std::mt19937_64 random(bench.seed);
  void* stream = s.stream();
  for (const uint64_t bytes : {0, 1, 2, 3, 15, 16, 17, 33, 255, 1000, 4095, 4097, 70'001})
    for (const auto& [shift, to] : {std::pair{0, 0}, {0, 1}, {1, 5}, {1, 3}, {3, 1}, {3, 7}}) {
      Piece source = make_piece(s, random, bytes, shift), copied = make_piece(s, random, bytes, to);
      const void* from = source.at();
      s.issue(stream, {copy(copied.at(), &from, bytes)}, "X-1");
      s.finish(stream);
      const Bytes expected(source.bytes.begin() + static_cast<long>(source.offset),
                           source.bytes.begin() + static_cast<long>(source.offset + bytes));
      const std::string what = fmt::format("COPY of {} bytes to an address of the form 256 k + {}", bytes,
                                           reinterpret_cast<uintptr_t>(copied.at()) % 256);
      judge_piece(s, copied, expected, "X-1", what);
      judge_piece(s, source, expected, "X-3", what + ", its source");
    }
}

// ---- Reductions

struct Kind {
  uint32_t dtype, op;
  const ElementType* type;
};

// An element by its bits: mostly ordinary numbers, sometimes those that break things.
uint64_t element(const ElementType& t, std::mt19937_64& random) {
  if (!t.floating()) return random() % 4 ? truncated(t, random()) : 0;
  switch (random() % 12) {
    case 0:
      return truncated(t, random());  // anything: NaN, infinities, denormals
    case 1:
      return rounded(t, random() % 2 ? 0.0 : -0.0);
    default:
      return rounded(t, std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -60));
  }
}

uint64_t not_a_number(const ElementType& t) {  // positive, quiet, without payload
  if (t.finite) return (uint64_t{1} << (t.bits() - 1)) - 1;
  return ((uint64_t{1} << (t.exponent_bits + 1)) - 1) << (t.fraction_bits - 1);
}

template <typename Accumulator>
uint64_t fold_floating(const ElementType& t, uint32_t op, const std::vector<uint64_t>& in, uint64_t divisor) {
  auto value = static_cast<Accumulator>(value_of(t, in[0]));
  for (size_t k = 1; k < in.size(); ++k) {
    const auto next = static_cast<Accumulator>(value_of(t, in[k]));
    if (op == TUTTI_SUM)
      value = value + next;
    else if (op == TUTTI_PROD)
      value = value * next;
    else if (std::isnan(value) || std::isnan(next))
      value = std::numeric_limits<Accumulator>::quiet_NaN();
    else if (value == next)  // -0 < +0
      value = std::signbit(value) == (op == TUTTI_MIN) ? value : next;
    else
      value = (op == TUTTI_MAX) == (value > next) ? value : next;
  }
  if (divisor) value = value / static_cast<Accumulator>(divisor);
  const uint64_t result = rounded(t, static_cast<double>(value));
  return is_nan(t, result) ? not_a_number(t) : result;  // float8_e4m3 overflows to NaN
}

uint64_t fold_bits(const ElementType& t, uint32_t op, const std::vector<uint64_t>& in) {
  const bool truth = t.truth() || op >= TUTTI_LAND;
  uint64_t value = in[0];
  for (size_t k = 1; k < in.size(); ++k) {
    uint64_t next = in[k];
    if (truth) value = value != 0, next = next != 0;
    value = op == TUTTI_BAND || op == TUTTI_LAND ? value & next
            : op == TUTTI_BOR || op == TUTTI_LOR ? value | next
                                                 : value ^ next;
  }
  return value;
}

uint64_t fold_integer(const ElementType& t, uint32_t op, const std::vector<uint64_t>& in, uint64_t divisor) {
  const bool is_signed = t.kind == ElementType::Kind::signed_integer;
  const auto less = [&](uint64_t a, uint64_t b) { return is_signed ? signed_of(t, a) < signed_of(t, b) : a < b; };
  uint64_t value = in[0];
  for (size_t k = 1; k < in.size(); ++k)
    value = truncated(t, op == TUTTI_SUM                           ? value + in[k]
                         : op == TUTTI_PROD                        ? value * in[k]
                         : less(value, in[k]) == (op == TUTTI_MIN) ? value
                                                                   : in[k]);
  if (!divisor) return value;
  if (!is_signed) return value / divisor;
  const int64_t number = signed_of(t, value);
  const uint64_t magnitude = (number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number)) / divisor;
  return truncated(t, number < 0 ? 0 - magnitude : magnitude);
}

uint64_t fold(const Kind& kind, const std::vector<uint64_t>& in, uint64_t divisor) {
  if (kind.op >= TUTTI_BAND && kind.op <= TUTTI_LXOR) return fold_bits(*kind.type, kind.op, in);
  if (!kind.type->floating()) return fold_integer(*kind.type, kind.op, in, divisor);
  return kind.type->bytes == 8 ? fold_floating<double>(*kind.type, kind.op, in, divisor)
                               : fold_floating<float>(*kind.type, kind.op, in, divisor);
}

// ---- The same on bytes, which are all that an element of 16 bytes has

void draw_element(const ElementType& t, std::mt19937_64& random, uint8_t* at) {
  if (!t.complex() && !t.pair()) return store(t, at, 0, element(t, random));
  const ElementType& part = *element_type(t.bytes == 16 ? "float64" : "float32");
  const ElementType& second = t.complex() ? part : *element_type(t.bytes == 16 ? "int64" : "int32");
  // Half of the values of pairs are equal.
  store(part, at, 0, t.pair() && random() % 2 ? rounded(part, 1) : element(part, random));
  store(second, at, 1, element(second, random));
}

// Folds `in` into `out`.
template <typename Part>
void fold_complex(uint32_t op, const std::vector<const uint8_t*>& in, uint64_t divisor, uint8_t* out) {
  Part sum[2], next[2];
  std::memcpy(sum, in[0], sizeof sum);
  for (size_t k = 1; k < in.size(); ++k) {
    std::memcpy(next, in[k], sizeof next);
    const Part a = sum[0], b = sum[1];
    sum[0] = op == TUTTI_SUM ? a + next[0] : a * next[0] - b * next[1];
    sum[1] = op == TUTTI_SUM ? b + next[1] : a * next[1] + b * next[0];
  }
  for (Part& part : sum) {
    if (divisor) part = part / static_cast<Part>(divisor);
    if (std::isnan(part)) part = std::numeric_limits<Part>::quiet_NaN();
  }
  std::memcpy(out, sum, sizeof sum);
}

template <typename Value, typename Index>
void fold_pairs(uint32_t op, const std::vector<const uint8_t*>& in, uint8_t* out) {
  struct Pair {
    Value value;
    Index index;
  } best{}, next{};
  const auto same = [](Value a, Value b) {
    return std::isnan(a) || std::isnan(b) ? std::isnan(a) && std::isnan(b)
                                          : a == b && std::signbit(a) == std::signbit(b);
  };
  const auto beats = [&](Value a, Value b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a);
    return (op == TUTTI_MINLOC) == (a == b ? std::signbit(a) : a < b);
  };
  std::memcpy(&best, in[0], sizeof best);
  for (size_t k = 1; k < in.size(); ++k) {
    std::memcpy(&next, in[k], sizeof next);
    if (same(best.value, next.value) ? next.index < best.index : beats(next.value, best.value)) best = next;
  }
  if (std::isnan(best.value)) best.value = std::numeric_limits<Value>::quiet_NaN();
  std::memcpy(out, &best, sizeof best);
}

void fold_bytes(const Kind& kind, const std::vector<const uint8_t*>& in, uint64_t divisor, uint8_t* out) {
  const ElementType& t = *kind.type;
  if (t.complex()) return (t.bytes == 16 ? fold_complex<double> : fold_complex<float>)(kind.op, in, divisor, out);
  if (t.pair()) return (t.bytes == 16 ? fold_pairs<double, int64_t> : fold_pairs<float, int32_t>)(kind.op, in, out);
  std::vector<uint64_t> bits;
  for (const uint8_t* at : in) bits.push_back(load(t, at, 0));
  store(t, out, 0, fold(kind, bits, divisor));
}

void exact_bytes(const ElementType& t, const std::vector<const uint8_t*>& in, uint64_t divisor, uint8_t* out) {
  std::vector<uint64_t> bits;
  for (const uint8_t* at : in) bits.push_back(load(t, at, 0));
  store(t, out, 0, exact_sum(t, bits, divisor));
}

// The types and operators that the device claims.
std::vector<Kind> kinds(const Station& s) {
  std::vector<Kind> all;
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : all_ops())
      if (reduces(s.device.caps, dtype, op)) all.push_back({dtype, op, element_type(dtype_name(dtype))});
  return all;
}

struct Reduction {
  Kind kind;
  uint64_t count, shift;  // bytes off alignment
  uint32_t sources;
  uint64_t divisor;
  int in_place = -1;  // the destination is this source
  bool exact = false;
};

// Of some elements the last source cancels the first, of some but for the last bit: what is between decides.
void cancel(const ElementType& t, std::mt19937_64& random, std::vector<Piece>& pieces, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto at = [&](Piece& piece) { return piece.bytes.data() + piece.offset + i * t.bytes; };
    if (random() % 2) store(t, at(pieces.front()), 0, truncated(t, random()));
    if (pieces.size() == 1 || random() % 2) continue;
    const uint64_t first = load(t, at(pieces.front()), 0), sign = uint64_t{1} << (t.bits() - 1);
    store(t, at(pieces.back()), 0, first ^ sign ^ random() % 2);
  }
}

void judge_reduction(Station& s, void* stream, std::mt19937_64& random, const Reduction& r, const char* clause) {
  const ElementType& t = *r.kind.type;
  const uint64_t bytes = r.count * t.bytes;
  std::vector<Piece> pieces;
  std::vector<const void*> addresses;
  for (uint32_t k = 0; k < r.sources; ++k) {
    pieces.push_back(make_piece(s, random, bytes, (r.shift * (k + 1)) % 23));
    Piece& piece = pieces.back();
    for (uint64_t i = 0; i < r.count; ++i) draw_element(t, random, piece.bytes.data() + piece.offset + i * t.bytes);
    addresses.push_back(piece.at());
  }
  if (r.exact) cancel(t, random, pieces, r.count);
  for (const Piece& piece : pieces) s.put(piece.whole, piece.bytes);
  Piece apart = make_piece(s, random, bytes, r.shift);
  Piece& out = r.in_place < 0 ? apart : pieces[static_cast<size_t>(r.in_place)];
  Bytes expected(bytes);
  for (uint64_t i = 0; i < r.count; ++i) {
    std::vector<const uint8_t*> in;
    for (const Piece& piece : pieces) in.push_back(piece.bytes.data() + piece.offset + i * t.bytes);
    if (r.exact)
      exact_bytes(t, in, r.divisor, expected.data() + i * t.bytes);
    else
      fold_bytes(r.kind, in, r.divisor, expected.data() + i * t.bytes);
  }
  tutti_command command = reduce(r.kind.dtype, r.kind.op, out.at(), addresses, r.count, r.divisor);
  if (r.exact) command.flags = TUTTI_COMMAND_EXACT;
  s.issue(stream, {command}, clause);
  s.finish(stream);
  const std::string what =
      fmt::format("{}REDUCE of {} {} elements by {}{}, {} sources{}, {} bytes off alignment", r.exact ? "exact " : "",
                  r.count, t.name, op_name(r.kind.op), r.divisor ? fmt::format(" and division by {}", r.divisor) : "",
                  r.sources, r.in_place < 0 ? "" : fmt::format(", into source {}", r.in_place), r.shift);
  const Bytes now = s.get(out.at(), bytes);
  for (uint64_t i = 0; i < r.count; ++i)
    if (const uint64_t got = load(t, now.data(), i), right = load(t, expected.data(), i); got != right) {
      std::string in;
      for (const Piece& piece : pieces)
        in += (in.empty() ? "" : ", ") + to_text(t, load(t, piece.bytes.data() + piece.offset, i));
      broken(clause, "{}: element {} is {}, expected {} from {}", what, i, to_text(t, got), to_text(t, right), in);
    }
  judge_piece(s, out, expected, clause, what);
  for (const Piece& piece : pieces)
    if (&piece != &out)
      judge_piece(s, piece,
                  Bytes(piece.bytes.begin() + static_cast<long>(piece.offset),
                        piece.bytes.begin() + static_cast<long>(piece.offset + bytes)),
                  "X-3", what + ", a source");
}

void reductions(Bench& bench) {
  Station s(bench);
  std::mt19937_64 random(bench.seed);
  void* stream = s.stream();
  uint32_t turn = 0;
  for (const Kind& kind : kinds(s)) {
    ++turn;
    const uint64_t divisor = kind.op == TUTTI_SUM ? 3 : 0;
    judge_reduction(s, stream, random, {kind, 256, 0, 2, 0}, "X-2");
    judge_reduction(s, stream, random, {kind, 97, 0, 3 + turn % 3, divisor}, "X-2");
  }
}

void exact_sums(Bench& bench) {
  Station s(bench);
  std::mt19937_64 random(bench.seed + 9);
  void* stream = s.stream();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  const std::vector<const void*> sources{from.seen, from.seen + 64};
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : all_ops()) {
      if (!reduces(s.device.caps, dtype, op)) continue;
      tutti_command command = reduce(dtype, op, to.seen, sources, 4);
      command.flags = TUTTI_COMMAND_EXACT;
      const bool claimed = op == TUTTI_SUM && (s.device.caps.exact_dtypes >> dtype & 1);
      const tutti_status status = s.enqueue(stream, {command});
      require(status == (claimed ? TUTTI_OK : TUTTI_NOT_SUPPORTED), "X-17",
              "enqueue of a REDUCE of {} by {} with TUTTI_COMMAND_EXACT, which query {}, returned {}",
              dtype_name(dtype), op_name(op), claimed ? "claims" : "does not claim", status_text(status));
      s.finish(stream);
      if (!claimed) continue;
      const Kind kind{dtype, op, element_type(dtype_name(dtype))};
      for (const Reduction& r : {Reduction{kind, 1500, 0, 3, 0, -1, true},
                                 {kind, 97, 5, 4, 4, -1, true},
                                 {kind, 33, 1, 2, 7, 1, true},
                                 {kind, 50, 3, 17, 17, 0, true},
                                 {kind, 20, 2, 257, 0, -1, true},
                                 {kind, 65, 0, 1, 3, -1, true}})
        judge_reduction(s, stream, random, r, "X-17");
    }
}

// Numbers of sources at which lists that are too short end.
void many_sources(Bench& bench) {
  Station s(bench);
  std::mt19937_64 random(bench.seed + 3);
  void* stream = s.stream();
  for (const Kind& kind : kinds(s)) {
    const bool one_of_each_size = kind.op == TUTTI_SUM && (kind.dtype == TUTTI_INT32 || kind.dtype == TUTTI_FLOAT32 ||
                                                           kind.dtype == TUTTI_BFLOAT16);
    if (!one_of_each_size) continue;
    for (const uint32_t sources : {4u, 8u, 9u, 16u, 17u, 32u, 33u, 40u, 65u, 257u})
      judge_reduction(s, stream, random, {kind, 67, sources % 5, sources, 0}, "X-2");
  }
}

// More bytes than 32 bits can count, in one command. What lies at the edges of 2^31 and 2^32 is looked at.
void giant_commands(Bench& bench) {
  constexpr uint64_t bytes = (uint64_t{1} << 32) + 8192;
  constexpr double most_seconds = 60;  // a busy machine needs more than one second for each GiB
  constexpr uint64_t edges[] = {0, (uint64_t{1} << 31) - 4, (uint64_t{1} << 32) - 4, bytes - 8};
  Station s(bench);
  void* stream = s.stream();
  uint8_t *from = s.allocate(bytes), *to = s.allocate(bytes);
  const auto mark = [](uint64_t edge, uint8_t add) {
    Bytes marks(8);
    for (uint64_t i = 0; i < 8; ++i) marks[i] = static_cast<uint8_t>(3 * i + (edge >> 24) + add);
    return marks;
  };
  for (const uint64_t edge : edges) s.put(from + edge, mark(edge, 1)), s.put(to + edge, Bytes(8, 0));
  const void* source = from;
  s.issue(stream, {copy(to, &source, bytes)}, "X-1");
  s.finish(stream, most_seconds);
  for (const uint64_t edge : edges)
    require(s.get(to + edge, 8) == mark(edge, 1), "X-1",
            "COPY of {} bytes: the 8 bytes from byte {} on were not copied: are counts or offsets of 32 bits?", bytes,
            edge);
  if (!reduces(s.device.caps, TUTTI_UINT8, TUTTI_SUM)) return;
  for (const uint64_t edge : edges) s.put(from + edge, Bytes(8, 5));
  const std::vector<const void*> both{to, from};
  s.issue(stream, {reduce(TUTTI_UINT8, TUTTI_SUM, to, both, bytes)}, "X-2");
  s.finish(stream, most_seconds);
  for (const uint64_t edge : edges)
    require(s.get(to + edge, 8) == mark(edge, 6), "X-2",
            "REDUCE of {} elements of 1 byte: the 8 elements from {} on are wrong: are counts or offsets of 32 bits?",
            bytes, edge);
}

void reduction_edges(Bench& bench) {
  Station s(bench);
  std::mt19937_64 random(bench.seed + 1);
  void* stream = s.stream();
  uint32_t turn = 0;
  for (const Kind& kind : kinds(s))
    for (const uint64_t count : {0, 1, 5, 67}) {
      ++turn;
      const Reduction r{kind, count, turn % 4 ? turn % 17 : kind.type->bytes, 2 + turn % 2, 0};
      judge_reduction(s, stream, random, r, "X-2");
    }
}

void reductions_in_place(Bench& bench) {
  Station s(bench);
  std::mt19937_64 random(bench.seed + 2);
  void* stream = s.stream();
  uint32_t turn = 0;
  for (const Kind& kind : kinds(s)) {
    ++turn;
    const Reduction r{kind, 130, turn % 5, 3, 0, static_cast<int>(turn % 3)};
    judge_reduction(s, stream, random, r, "X-4");
  }
}

// ---- Order

// A stream that is held up by a flag until it is let go.
struct Held {
  Held(Station& station, void* on) : Held(station, on, station.map(4096)) {}
  // While another stream is held up: memory that is mapped already.
  Held(Station& station, void* on, const Station::Mapped& of) : s(station), flags(of), stream(on) {
    s.issue(stream, {wait_until(s.flag_of(flags, 0), 1)}, "X-6");
  }
  void let_go() { std::atomic_ref(*reinterpret_cast<uint32_t*>(flags.host)).store(1, std::memory_order_release); }
  Station& s;
  const Station::Mapped flags;
  void* const stream;
};
// A command that runs too early has had time to show.
void a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
bool untouched(const Station::Mapped& m) {
  for (uint64_t i = 0; i < m.bytes; ++i)
    if (std::atomic_ref(m.host[i]).load(std::memory_order_relaxed) != 0) return false;
  return true;
}

// All kinds of work behind a WAIT, while it holds and after. The command that ran too early decides which clause is
// broken.
void held_up(Bench& bench) {
  Station s(bench);
  void* stream = s.stream();
  tutti_event* event = s.event();
  const Station::Mapped to = s.map(300'000), from = s.map(300'000), flags = s.map(4096);
  auto *gate = reinterpret_cast<uint32_t*>(flags.host), *told = gate + 64;
  const void* source = from.seen;
  for (uint32_t round = 1; round <= 12; ++round) {
    std::memset(from.host, static_cast<int>(round), 300'000);
    const uint32_t value = round * 0x01010101u;
    s.issue(stream,
            {wait_until(s.flag_of(flags, 0), value), copy(to.seen, &source, 300'000),
             write_flag(s.flag_of(flags, 256), round), record_event(event)},
            "X-6");
    // Another value than the one that is waited for, also a greater one, lets nothing pass.
    std::atomic_ref(*gate).store(value + 1, std::memory_order_release);
    if (round <= 3) a_moment();
    const bool marked = s.poll(event) != TUTTI_AGAIN, wrote = std::atomic_ref(*told).load() == round,
               copied = std::atomic_ref(to.host[299'999]).load() == static_cast<uint8_t>(round);
    require(!(marked && wrote && copied), "X-6", "WAIT for {:#x} let its stream go on while the flag was {:#x}", value,
            value + 1);
    require(!copied, "X-5", "a COPY was done, though a WAIT of the same stream before it holds");
    require(!wrote, "X-7", "a WRITE was done, though earlier work of its stream is held up by a WAIT");
    require(!marked, "X-9", "query_event says that work is done that is held up by a WAIT");
    std::atomic_ref(*gate).store(value, std::memory_order_release);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(10 * bench.patience);
    while (round % 2 == 0 && std::atomic_ref(*told).load(std::memory_order_acquire) != round) {
      require(std::chrono::steady_clock::now() < limit, "X-7", "the flag that WRITE sets does not become {}", round);
      std::this_thread::yield();
    }
    if (round % 2) s.until_done(event);
    for (uint64_t i = 0; i < 300'000; i += 61)
      require(std::atomic_ref(to.host[i]).load(std::memory_order_relaxed) == static_cast<uint8_t>(round),
              round % 2 ? "X-9" : "X-7", "{}, but byte {} of the COPY before it has not come",
              round % 2 ? "query_event says that the work before the event is done" : "the host sees WRITE's value", i);
    s.until_done(event);
    require(s.poll(event) == TUTTI_OK, "X-9", "query_event said done and then not");
  }
}

// The host's writes before it sets the flag that a stream waits for.
void shown_by_waits(Bench& bench) {
  Station s(bench);
  void* stream = s.stream();
  const Station::Mapped flags = s.map(4096), data = s.map(8192), to = s.map(8192);
  const void* source = data.seen;
  for (uint32_t round = 1; round <= 30; ++round) {
    s.issue(stream, {wait_until(s.flag_of(flags, 0), round), copy(to.seen, &source, 8192)}, "X-6");
    std::memset(data.host, static_cast<int>(round), 8192);
    std::atomic_ref(*reinterpret_cast<uint32_t*>(flags.host)).store(round, std::memory_order_release);
    s.finish(stream);
    for (uint64_t i = 0; i < 8192; ++i)
      require(to.host[i] == static_cast<uint8_t>(round), "X-6",
              "after WAIT a stream does not see byte {} as it was written before the flag was set", i);
  }
}

// A chain in which every copy needs the one before.
void in_order(Bench& bench) {
  Station s(bench);
  void* stream = s.stream();
  constexpr size_t links = 60, bytes = 20'000;
  std::vector<uint8_t*> chain;
  for (size_t k = 0; k <= links; ++k) chain.push_back(s.allocate(bytes));
  for (size_t k = 0; k <= links; ++k) s.put(chain[k], Bytes(bytes, static_cast<uint8_t>(k + 1)));
  std::vector<const void*> sources(chain.begin(), chain.end());
  for (size_t k = 0; k < links;) {
    std::vector<tutti_command> part;
    for (size_t end = std::min(k + 7, links); k < end; ++k) part.push_back(copy(chain[k + 1], &sources[k], bytes));
    s.issue(stream, part, "X-5");
  }
  s.finish(stream);
  require(s.get(chain.back(), bytes) == Bytes(bytes, 1), "X-5",
          "{} copies, each from where the one before wrote, do not carry the first bytes to the end: the stream's "
          "commands are not done in order",
          links);
}

void events(Bench& bench) {
  Station s(bench);
  void *first = s.stream(), *second = s.stream();
  tutti_event* event = s.event();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  std::memset(from.host, 0x33, 4096);
  const void* source = from.seen;
  for (int round = 0; round < 4; ++round) {
    std::memset(to.host, 0, to.bytes);
    Held held(s, first);
    s.issue(first, {record_event(event)}, "X-8");
    s.issue(second, {after_event(event), copy(to.seen, &source, 4096)}, "X-8");
    a_moment();
    require(untouched(to), "X-8", "what is behind AFTER was done, though the work before the event is held up");
    held.let_go();
    s.finish(second);
    require(!untouched(to), "X-8", "after the event's work was done the COPY behind AFTER was not");
    s.finish(first);
  }
  // AFTER means the event as it stands: a later setting holds nothing up.
  tutti_event* end = s.event();
  const Station::Mapped flags = s.map(4096);
  Held waiting(s, second);
  s.issue(second, {after_event(event), record_event(end)}, "X-8");
  Held later(s, first, flags);
  s.issue(first, {record_event(event)}, "X-8");
  waiting.let_go();
  s.until_done(end);
  later.let_go();
  s.finish(first);
}

void all_or_none(Bench& bench) {
  Station s(bench);
  void* stream = s.stream();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  std::memset(from.host, 0x77, 4096);
  const void* source = from.seen;
  const void* two[] = {from.seen, from.seen};
  tutti_command unknown{}, no_type = reduce(999, TUTTI_SUM, to.seen, {}, 4),
                           no_op = reduce(TUTTI_INT32, 99, to.seen, {}, 4), two_sources = copy(to.seen, two, 16);
  unknown.kind = 77;
  no_type.sources = no_op.sources = two_sources.sources = 2;
  no_type.src = no_op.src = two;
  tutti_command flagged = copy(to.seen, &source, 16), later = flagged, exact = flagged;
  flagged.flags = 1u << 31;
  exact.flags = TUTTI_COMMAND_EXACT;
  later.reserved = 1;
  const std::pair<const char*, tutti_command> wrong[] = {
      {"an unknown kind", unknown},   {"an unknown data type", no_type},
      {"an unknown operator", no_op}, {"a COPY of two sources", two_sources},
      {"an unknown flag", flagged},   {"a field set that is reserved", later},
      {"an exact COPY", exact}};
  for (const auto& [what, command] : wrong) {
    const tutti_status status =
        s.enqueue(stream, {copy(to.seen, &source, 64), command, copy(to.seen + 64, &source, 64)});
    require(status < 0, "X-10", "enqueue of a batch with {} returned {}, expected an error", what, status_text(status));
    s.finish(stream);
    require(untouched(to), "X-10", "enqueue refused a batch ({}), but commands of it were carried out", what);
  }
  s.issue(stream, {copy(to.seen, &source, 64)}, "X-10");
  s.finish(stream);
  require(!untouched(to), "X-10", "after a refused batch the stream does nothing any more");
}

// Claimed types and operators are computed, others are refused.
void claims(Bench& bench) {
  Station s(bench);
  void* stream = s.stream();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  const std::vector<const void*> sources{from.seen, from.seen + 64};
  for (uint32_t dtype = TUTTI_INT8; dtype <= TUTTI_FLOAT64_INT64; ++dtype)
    for (uint32_t op = TUTTI_SUM; op <= TUTTI_MAXLOC; ++op) {
      const tutti_status status = s.enqueue(stream, {reduce(dtype, op, to.seen, sources, 4)});
      const bool claimed = reduces(s.device.caps, dtype, op);
      require(status == (claimed ? TUTTI_OK : TUTTI_NOT_SUPPORTED), "X-15",
              "query {} data type {} and operator {}, but enqueue of a REDUCE by them returned {}",
              claimed ? "claims" : "does not claim", dtype, op, status_text(status));
    }
  s.finish(stream);
}

// The batch, and the arrays that it points to, are gone when enqueue has returned.
void batch_is_copied(Bench& bench) {
  Station s(bench);
  void* stream = s.stream();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  std::memset(from.host, 0x21, 4096);
  for (int round = 0; round < 6; ++round) {
    Held held(s, stream);
    auto sources = std::make_unique<GuardedMemory>(sizeof(void*), 0, "E-10");
    auto batch = std::make_unique<GuardedMemory>(sizeof(tutti_command), 0, "E-10");
    const void* from_seen = from.seen;
    std::memcpy(sources->data(), &from_seen, sizeof from_seen);
    tutti_command command = copy(to.seen, reinterpret_cast<const void* const*>(sources->data()), 4096);
    std::memcpy(batch->data(), &command, sizeof command);
    const tutti_executor* e = s.device.executor;
    const tutti_status status = call("enqueue", false, [&] {
      return e->enqueue(e->self, stream, reinterpret_cast<const tutti_command*>(batch->data()), 1);
    });
    require(status == TUTTI_OK, "X-10", "enqueue returned {}: {}", status_text(status), last_error());
    sources->forbid("E-10", "the sources of a command that was enqueued before");
    batch->forbid("E-10", "a batch that was enqueued before");
    held.let_go();
    s.finish(stream);
    require(std::memcmp(to.host, from.host, 4096) == 0, "E-10",
            "a COPY whose batch was gone after enqueue did not copy what it named");
  }
}

// While a stream is held up everything of [any] returns: the host lets it go only afterwards.
void nothing_waits(Bench& bench) {
  Station s(bench);
  void *held_up = s.stream(), *other = s.stream();
  tutti_event *event = s.event(), *end = s.event();
  const Station::Mapped to = s.map(4096), from = s.map(4096);
  uint8_t* memory = s.allocate(4096);
  const void* source = from.seen;
  Held held(s, held_up);
  for (int k = 0; k < 100; ++k) {
    s.issue(held_up, {copy(memory, &source, 4096), copy(to.seen, &source, 4096), record_event(event)}, "X-11");
    s.issue(other, {after_event(event)}, "X-11");
    s.poll(event);
    s.classify(memory);
  }
  s.issue(other, {record_event(end)}, "X-11");
  require(s.poll(event) == TUTTI_AGAIN, "X-9", "query_event says that work is done that is held up by a WAIT");
  held.let_go();
  s.until_done(end);
}

void stream_states(Bench& bench) {
  Station s(bench);
  const tutti_executor* e = s.device.executor;
  for (uint32_t of = 0; of < std::min(s.device.caps.devices, 4u); ++of) {
    uint32_t told = UINT32_MAX;
    uint64_t flags = UINT64_MAX;
    void* stream = s.stream(of);
    const tutti_status status =
        call("stream_state", false, [&] { return e->stream_state(e->self, stream, &told, &flags); });
    require(status == TUTTI_OK && told == of, "X-12", "stream_state of a stream of device {} returned {} and device {}",
            of, status_text(status), told);
    require(!(flags & UINT32_MAX), "X-12", "stream_state of a stream that nobody captures says flags {:#x}", flags);
    uint8_t* memory = s.allocate(100, of);
    s.put(memory, Bytes(100, 0x5c), of);
    require(s.get(memory, 100, of) == Bytes(100, 0x5c), "X-1",
            "a stream of device {} did not copy to its memory and back", of);
  }
  uint32_t told = UINT32_MAX;
  uint64_t flags = UINT64_MAX;
  const tutti_status status =
      call("stream_state", false, [&] { return e->stream_state(e->self, nullptr, &told, &flags); });
  require(status == TUTTI_OK && told < s.device.caps.devices, "X-12",
          "stream_state of the default stream (NULL) returned {} and device {} of {}", status_text(status), told,
          s.device.caps.devices);
}

// Each thread its own stream, all at once.
void threads(Bench& bench) {
  Station s(bench);
  constexpr uint32_t n = 4;
  struct Part {
    void* stream;
    tutti_event* event;
    Station::Mapped to, from;
    uint8_t* memory;
  };
  std::vector<Part> parts;
  for (uint32_t k = 0; k < n; ++k)
    parts.push_back({s.stream(k % s.device.caps.devices), s.event(k % s.device.caps.devices), s.map(4096), s.map(4096),
                     s.allocate(4096, k % s.device.caps.devices)});
  std::vector<std::string> troubles(n);
  std::vector<std::thread> running;
  for (uint32_t k = 0; k < n; ++k)
    running.emplace_back([&, k] {
      const Part& p = parts[k];
      const void *first = p.from.seen, *then = p.memory;
      try {
        for (uint32_t round = 1; round <= 50; ++round) {
          std::memset(p.from.host, static_cast<int>(round + k), 4096);
          s.issue(p.stream, {copy(p.memory, &first, 4096), copy(p.to.seen, &then, 4096), record_event(p.event)},
                  "X-13");
          s.until_done(p.event);
          if (std::memcmp(p.to.host, p.from.host, 4096) != 0)
            broken("X-13", "with {} threads at once, each on its own stream, thread {} gets wrong bytes back", n, k);
        }
      } catch (const std::exception& e) {
        troubles[k] = e.what();
      }
    });
  for (std::thread& thread : running) thread.join();
  for (uint32_t k = 0; k < n; ++k)
    require(troubles[k].empty(), "X-13", "of {} threads at once, each on its own stream, number {}: {}", n, k,
            troubles[k]);
}

}  // namespace

std::vector<ContractCase> executor_cases() {
  return {
      {"held-up", "work behind a WAIT, while it holds and after", {"X-5", "X-6", "X-7", "X-9"}, 5, held_up},
      {"events", "AFTER orders streams", {"X-8", "X-6"}, 6, events},
      {"nothing-waits", "calls while a stream is held up", {"X-11", "X-9"}, 7, nothing_waits},
      {"claims", "types and operators, claimed and not", {"X-15"}, 4, claims},
      {"all-or-none", "a wrong command, and its batch", {"X-10"}, 8, all_or_none},
      {"stream-states", "streams and their devices", {"X-12", "X-1"}, 8, stream_states},
      {"copies", "COPY of all sizes and alignments, to one place and to two", {"X-1", "X-3"}, 9, copies},
      {"batch-is-copied", "what enqueue got is gone afterwards", {"E-10", "X-10"}, 10, batch_is_copied},
      {"shown-by-waits", "what was written before the flag was set", {"X-6"}, 10, shown_by_waits},
      {"reductions", "every type and operator, bit for bit", {"X-2", "X-3"}, 25, reductions},
      {"reductions-in-place", "a destination that is one of the sources", {"X-4"}, 26, reductions_in_place},
      {"many-sources", "REDUCE of 4 to 257 sources", {"X-2", "X-3"}, 27, many_sources, 0,
       {{magnitude::sources, 257}}},
      {"giant-commands", "commands on more than 2^32 bytes", {"X-1", "X-2"}, 5000, giant_commands, uint64_t{9} << 30,
       {{magnitude::command_bytes, (uint64_t{1} << 32) + 8192}}},
      {"exact-sums", "every type and operator with TUTTI_COMMAND_EXACT", {"X-17", "X-3"}, 28, exact_sums},
      {"reduction-edges", "counts and addresses that fit no vector", {"X-2", "X-3"}, 40, reduction_edges},
      {"in-order", "a chain of copies", {"X-5"}, 12, in_order},
      {"device-threads", "four threads, each on its own stream", {"X-13"}, 30, threads},
  };
}

}  // namespace tutti::conformance::contract
