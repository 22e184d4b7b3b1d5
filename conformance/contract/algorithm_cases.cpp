// SPDX-License-Identifier: Apache-2.0
//
// algorithm/1: a pure function from queries to schedules that the verifier proves.
#include <sys/wait.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "contract_case.hpp"
#include "family.hpp"
#include "proofs/problems.hpp"

namespace tutti::conformance::contract {
namespace {

const tutti_algorithm* algorithm(Bench& bench) {
  for (uint32_t i = 0; i < 256; ++i) {
    const auto* table = static_cast<const tutti_algorithm*>(bench.get_interface(TUTTI_ALGORITHM_ID, i));
    if (!table) break;
    require(judge_table(table).status == TUTTI_OK && table->supports &&
                table->schedule,
            "E-4", "a table of " TUTTI_ALGORITHM_ID " is incomplete");
    judge_name("algorithm", table->name, table->summary);
    if (bench.name == table->name) return table;
  }
  throw std::runtime_error(fmt::format("the plugin {} has no algorithm \"{}\"", bench.path, bench.name));
}

// A query that owns its list of hosts.
struct Question {
  uint32_t collective, nranks, rank, root = 0, lanes = 8;
  uint64_t flags = 0;
  uint32_t ranks_per_host = 0;  // 0: all on one host

  std::string text() const {
    return fmt::format("{} on {} ranks, rank {}, root {}, {} lanes{}", collective_name(collective), nranks, rank, root,
                       lanes, flags & TUTTI_QUERY_IN_PLACE ? ", in place" : "");
  }
  template <typename Body>
  auto ask(Body&& body) const {
    std::vector<uint32_t> hosts(nranks, 0);
    for (uint32_t r = 0; ranks_per_host && r < nranks; ++r) hosts[r] = r / ranks_per_host;
    const tutti_query query{sizeof query, collective, nranks, rank, root, lanes, flags, hosts.data()};
    return body(&query);
  }
};

tutti_status supports(const tutti_algorithm* a, const Question& q) {
  return q.ask(
      [&](const tutti_query* query) { return call("supports", true, [&] { return a->supports(a->self, query); }); });
}

// A sink that checks the order and bounds of what comes, writes it down, and refuses the `refuse_at`-th call on
// request.
class Recorder {
 public:
  explicit Recorder(const Question& question, uint64_t refuse_at = UINT64_MAX)
      : question_(question), refuse_at_(refuse_at) {
    sink_.struct_size = sizeof sink_;
    sink_.self = this;
    sink_.set_cuts = [](void* self, const tutti_cut* cuts, uint32_t n) { return of(self).on_cuts(cuts, n); };
    sink_.set_scratch = [](void* self, const tutti_extent* chunks, uint32_t n, uint32_t copies) {
      return of(self).on_scratch(chunks, n, copies);
    };
    sink_.set_flags = [](void* self, uint64_t flags) { return of(self).on_flags(flags); };
    sink_.add_step = [](void* self, uint32_t lane, const tutti_step* step, const tutti_span* sources) {
      return of(self).on_step(lane, step, sources);
    };
  }
  const tutti_schedule_sink* sink() const { return &sink_; }
  const std::string& record() const { return record_; }              // equal for equal schedules
  const std::string& writes_input() const { return writes_input_; }
  const std::string& complaint() const { return complaint_; }
  uint64_t calls() const { return calls_; }
  uint64_t calls_after_refusal() const { return after_refusal_; }
  static constexpr tutti_status refusal = TUTTI_NO_RESOURCES;

 private:
  static Recorder& of(void* self) { return *static_cast<Recorder*>(self); }
  tutti_status take(const char* what, const void* data, size_t bytes) {
    if (calls_ >= refuse_at_) {
      after_refusal_ += calls_++ > refuse_at_;
      test_host()->set_error(nullptr, refusal, "the suite's sink refuses this on purpose");
      return refusal;
    }
    ++calls_;
    record_ += what;
    record_.append(static_cast<const char*>(data), bytes);
    return TUTTI_OK;
  }
  void complain(std::string text) {
    if (complaint_.empty()) complaint_ = std::move(text);
  }
  void once(bool& before, const char* what) {
    if (before) complain(fmt::format("{} is called twice", what));
    if (steps_ > 0) complain(fmt::format("{} is called after the first step", what));
    before = true;
  }
  tutti_status on_cuts(const tutti_cut* cuts, uint32_t n) {
    once(cuts_, "set_cuts");
    for (uint32_t i = 0; i < n; ++i)
      if (cuts[i].p == 0 || cuts[i].p >= cuts[i].q ||
          (i > 0 && uint64_t{cuts[i - 1].p} * cuts[i].q >= uint64_t{cuts[i].p} * cuts[i - 1].q))
        complain(
            fmt::format("cut {} of {}, {}/{}, is not strictly between its neighbours", i, n, cuts[i].p, cuts[i].q));
    return take("cuts", cuts, n * sizeof *cuts);
  }
  tutti_status on_scratch(const tutti_extent* chunks, uint32_t n, uint32_t copies) {
    once(scratch_, "set_scratch");
    record_ += static_cast<char>(copies);
    return take("scratch", chunks, n * sizeof *chunks);
  }
  tutti_status on_flags(uint64_t flags) {
    once(flags_, "set_flags");
    return take("flags", &flags, sizeof flags);
  }
  tutti_status on_step(uint32_t lane, const tutti_step* step, const tutti_span* sources) {
    ++steps_;
    if (lane >= question_.lanes)
      complain(fmt::format("a step is added to lane {}; the query allows {}", lane, question_.lanes));
    const bool writes = step->kind == TUTTI_STEP_RECV || step->kind == TUTTI_STEP_RECV_REDUCE ||
                        step->kind == TUTTI_STEP_COPY || step->kind == TUTTI_STEP_REDUCE;
    if (writes && step->dst.buffer == TUTTI_BUFFER_IN && !(question_.flags & TUTTI_QUERY_IN_PLACE))
      writes_input_ = fmt::format("step {} ({}) writes IN", steps_ - 1, step_name(step->kind));
    if (step->kind == TUTTI_STEP_REDUCE && (step->sources < 2 || !sources))
      complain("a REDUCE has fewer than two sources");
    const tutti_status status = take("step", step, sizeof *step);
    record_.append(reinterpret_cast<const char*>(&lane), sizeof lane);
    if (step->kind == TUTTI_STEP_REDUCE && sources)
      record_.append(reinterpret_cast<const char*>(sources), step->sources * sizeof *sources);
    return status;
  }

  const Question question_;
  const uint64_t refuse_at_;
  tutti_schedule_sink sink_{};
  std::string record_, complaint_, writes_input_;
  bool cuts_ = false, scratch_ = false, flags_ = false;
  uint64_t calls_ = 0, steps_ = 0, after_refusal_ = 0;
};

tutti_status schedule(const tutti_algorithm* a, const Question& q, const Recorder& recorder) {
  return q.ask([&](const tutti_query* query) {
    return call("schedule", true, [&] { return a->schedule(a->self, query, recorder.sink()); });
  });
}

// Queries on so many ranks of each host (0: all on one) that the algorithm says that it answers.
std::vector<Question> supported(const tutti_algorithm* a, std::initializer_list<uint32_t> sizes, uint32_t per_host) {
  std::vector<Question> all;
  for (uint32_t collective = 1; collective <= last_collective; ++collective)
    for (const uint32_t n : sizes)
      for (const uint32_t root : {0u, n - 1}) {
        if (root > 0 && (!has_root(collective) || n == 1)) continue;
        for (uint32_t rank = 0; rank < n; ++rank) {
          const Question q{collective, n, rank, root, 8, 0, per_host};
          if (a->collectives >> collective & 1 && supports(a, q) == TUTTI_OK) all.push_back(q);
        }
      }
  return all;
}

// Queries that the algorithm says that it answers: of these numbers of ranks, or, if it is for others only (for several
// hosts, for many ranks, for an even number), of the first numbers that it is for.
std::vector<Question> supported(const tutti_algorithm* a, std::initializer_list<uint32_t> sizes) {
  constexpr uint32_t most_ranks = 64, enough = 3;
  std::vector<Question> all = supported(a, sizes, 0);
  if (std::ranges::any_of(all, [](const Question& q) { return q.nranks > 1; })) return all;
  uint32_t found = 0;
  for (uint32_t n = 2; n <= most_ranks && found < enough; ++n)
    for (const uint32_t per_host : {0u, 1u, 2u, 4u, 8u}) {
      const std::vector<Question> more = supported(a, {n}, per_host);
      all.insert(all.end(), more.begin(), more.end());
      if (!more.empty() && ++found == enough) break;
    }
  return all;
}

void describes(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  constexpr uint64_t known = ((uint64_t{2} << last_collective) - 1) & ~uint64_t{1};
  require(a->collectives != 0, "A-1", "collectives is 0: the algorithm answers nothing");
  require((a->collectives & ~known) == 0, "A-1", "collectives {:#x} has bits that no collective has ({:#x} are known)",
          a->collectives, known);
}

void answers(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  bool any = false;
  for (uint32_t collective = 1; collective <= last_collective; ++collective) {
    if (!(a->collectives >> collective & 1)) continue;
    for (const uint32_t n : {1u, 2u, 3u, 4u, 7u, 8u, 16u, 17u})
      for (const uint32_t lanes : {1u, 2u, 8u})
        for (const uint32_t per_host : {0u, 2u}) {
          Question q{collective, n, 0, 0, lanes, 0, per_host};
          const tutti_status first = supports(a, q);
          require(first == TUTTI_OK || first == TUTTI_NOT_SUPPORTED, "A-2", "supports({}) returned {}: {}", q.text(),
                  status_text(first), last_error());
          any = any || first == TUTTI_OK;
          for (uint32_t rank = 0; rank < n; ++rank)
            for (const uint64_t flags : {uint64_t{0}, uint64_t{TUTTI_QUERY_IN_PLACE}}) {
              q.rank = rank;
              q.flags = flags;
              const tutti_status status = supports(a, q);
              require(status == first, "A-4", "supports({}) returned {}, but {} for rank 0 out of place", q.text(),
                      status_text(status), status_text(first));
            }
        }
  }
  any = any || !supported(a, {}).empty();  // it is for other numbers of ranks, or for several hosts
  require(any, "A-1", "collectives is {:#x}, but supports says no to all of them on 1 to 64 ranks", a->collectives);
}

void refuses(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  const auto both = [&](const Question& q, const std::string& what) {
    const tutti_status said = supports(a, q);
    require(said == TUTTI_NOT_SUPPORTED, "A-3", "supports of {} returned {}, expected TUTTI_NOT_SUPPORTED", what,
            status_text(said));
    const Recorder recorder(q);
    const tutti_status done = schedule(a, q, recorder);
    require(done == TUTTI_NOT_SUPPORTED, "A-3", "schedule of {} returned {}, expected TUTTI_NOT_SUPPORTED", what,
            status_text(done));
  };
  for (const uint32_t collective : {0u, last_collective + 1, 31u, 63u, 64u, UINT32_MAX})
    both({collective, 4, 0}, fmt::format("the unknown collective {}", collective));
  for (uint32_t collective = 1; collective <= last_collective; ++collective) {
    if (a->collectives >> collective & 1)
      both({collective, 4, 0, 0, 8, uint64_t{1} << 17},
           fmt::format("{} with the unknown flag 1 << 17", collective_name(collective)));
    else
      both({collective, 4, 0}, fmt::format("{}, which collectives lacks", collective_name(collective)));
  }
}

void longer_query(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  const std::vector<Question> all = supported(a, {4});
  if (all.empty()) throw NotOffered{"supports says no to all numbers of ranks to 64"};
  const Question& q = all[0];
  std::vector<uint32_t> hosts(q.nranks, 0);
  for (uint32_t r = 0; q.ranks_per_host && r < q.nranks; ++r) hosts[r] = r / q.ranks_per_host;
  struct Longer {
    tutti_query query;
    uint64_t unknown[2];
  };
  for (const uint64_t tail : {0, 1}) {
    const Longer longer{{sizeof longer, q.collective, q.nranks, q.rank, q.root, q.lanes, q.flags, hosts.data(), nullptr,
                         0, nullptr},
                        {0, tail}};
    const tutti_status status = call("supports", true, [&] { return a->supports(a->self, &longer.query); });
    require(status == (tail ? TUTTI_NOT_SUPPORTED : TUTTI_OK), "E-8",
            "supports of a query that is 16 bytes longer than this revision's, {}, returned {}",
            tail ? "the last of them not zero" : "all of them zero", status_text(status));
  }
}

void yes_means_yes(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  for (uint32_t collective = 1; collective <= last_collective; ++collective) {
    if (!(a->collectives >> collective & 1)) continue;
    for (const uint32_t n : {1u, 2u, 3u, 5u, 8u, 9u, 16u})
      for (uint32_t root = 0; root < (has_root(collective) ? n : 1); ++root)
        for (const uint32_t lanes : {1u, 8u})
          for (uint32_t rank = 0; rank < n; ++rank) {
            const Question q{collective, n, rank, root, lanes};
            const tutti_status said = supports(a, q);
            const Recorder recorder(q);
            const tutti_status done = schedule(a, q, recorder);
            require(recorder.complaint().empty(), "A-8", "schedule({}): {}", q.text(), recorder.complaint());
            require(recorder.writes_input().empty(), "A-14", "schedule({}), out of place: {}", q.text(),
                    recorder.writes_input());
            require(said == done, "A-5", "supports({}) returned {}, schedule returned {}: {}", q.text(),
                    status_text(said), status_text(done), last_error());
          }
  }
}

std::string recorded(const tutti_algorithm* a, const Question& q) {
  const Recorder recorder(q);
  const tutti_status status = schedule(a, q, recorder);
  require(status == TUTTI_OK, "A-5", "supports({}) said yes, schedule returned {}: {}", q.text(), status_text(status),
          last_error());
  return recorder.record();
}

// Asked twice, in another order, and in another process.
void pure(Bench& bench) {
  int channel[2];
  if (pipe(channel) != 0) throw CannotRun{"pipe failed"};
  Family::run(bench, 2, [&](Family&, uint32_t process) {
    const tutti_algorithm* a = algorithm(bench);
    std::vector<Question> all = supported(a, {1, 2, 3, 4, 8});
    std::mt19937_64 random(bench.seed + process);
    std::vector<size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<uint64_t> hashes(all.size()), others(all.size());
    std::vector<std::string> records(all.size());
    for (int turn = 0; turn < 2; ++turn) {
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        std::string record = recorded(a, all[i]);
        require(records[i].empty() || records[i] == record, "A-6",
                "schedule({}) gave another schedule when asked again", all[i].text());
        hashes[i] = std::hash<std::string>()(record);
        records[i] = std::move(record);
      }
    }
    auto* bytes = reinterpret_cast<char*>(process == 0 ? others.data() : hashes.data());
    for (size_t left = hashes.size() * 8; left > 0;) {
      const ssize_t n = process == 0 ? read(channel[0], bytes, left) : write(channel[1], bytes, left);
      if (process == 0) close(std::exchange(channel[1], -1));
      if (n <= 0) throw CannotRun{"the second process said nothing"};
      bytes += n;
      left -= static_cast<size_t>(n);
    }
    for (size_t i = 0; process == 0 && i < all.size(); ++i)
      require(hashes[i] == others[i], "A-6", "schedule({}) gave another schedule in another process", all[i].text());
  });
}

void reentrant(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  const std::vector<Question> all = supported(a, {2, 4, 8});
  std::vector<std::string> expected;
  for (const Question& q : all) expected.push_back(recorded(a, q));
  std::exception_ptr trouble[3];
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      try {
        for (int turn = 0; turn < 6; ++turn)
          for (size_t k = 0; k < all.size(); ++k) {
            const size_t i = (k * (t + 1) + t * 7) % all.size();
            require(recorded(a, all[i]) == expected[i], "A-7",
                    "schedule({}) gave another schedule while other threads called schedule", all[i].text());
          }
      } catch (...) {
        trouble[t] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : trouble) {
    if (!one) continue;
    try {
      std::rethrow_exception(one);
    } catch (const Broken& b) {
      throw Broken(b.clause() == "A-5" ? "A-7" : b.clause(), std::string("with three threads at once: ") + b.what());
    }
  }
}

// The sink refuses one call after another.
void sink_refuses(Bench& bench) {
  const tutti_algorithm* a = algorithm(bench);
  const std::vector<Question> all = supported(a, {2, 4, 5});
  for (const Question& q : all) {
    if (q.rank > 1) continue;
    const Recorder whole(q);
    schedule(a, q, whole);
    for (uint64_t at = 0; at < std::min<uint64_t>(whole.calls(), 12); ++at) {
      const Recorder recorder(q, at);
      const tutti_status status = schedule(a, q, recorder);
      require(status == Recorder::refusal, "A-9",
              "schedule({}): the sink refused call {} with {} and schedule returned {}: return what the sink returns",
              q.text(), at, status_text(Recorder::refusal), status_text(status));
      require(recorder.calls_after_refusal() == 0, "A-9",
              "schedule({}): the sink refused call {} and was called {} times more", q.text(), at,
              recorder.calls_after_refusal());
    }
  }
}

tutti_status supports(const tutti_algorithm* a, const Problem& p) {
  const tutti_query query = make_query(p, 0);
  return call("supports", true, [&] { return a->supports(a->self, &query); });
}

// The proof of one problem. What fails is told for the smallest problem of its kind.
void prove(const tutti_algorithm* a, const Problem& p) {
  const auto object = [&](const Problem& q) {
    if (supports(a, q) != TUTTI_OK) return Objection{};
    // With many ranks the proof takes its time: no call may be blamed for it.
    if (q.nranks > 64) return objection_to(*a, q);
    return plain_call("schedule", true, [&] { return objection_to(*a, q); });
  };
  if (!object(p)) return;
  const Problem least = shrunk(p, [&](const Problem& q) { return static_cast<bool>(object(q)); });
  const Objection objection = object(least);
  throw Broken(objection.clause,
               fmt::format("{}: {}. tutti-plan print shows the schedule", text_of(least), objection.text));
}

template <typename Body>
void for_collectives(const tutti_algorithm* a, Body&& body) {
  for (uint32_t collective = 1; collective <= last_collective; ++collective)
    if (a->collectives >> collective & 1) body(collective);
}

// Every placement and every root; lanes in turn. `thin`: each root with one placement, in turn.
void prove_all(Bench& bench, std::initializer_list<uint32_t> sizes, bool thin) {
  const tutti_algorithm* a = algorithm(bench);
  for (const uint32_t n : sizes)
    for_collectives(a, [&](uint32_t collective) {
      const auto hosts = placements(n, bench.seed + n);
      uint32_t turn = n;
      for (const uint32_t root : roots(collective, n, bench.seed + n))
        for (size_t k = 0; k < hosts.size(); ++k) {
          ++turn;
          if (thin && k != turn % hosts.size()) continue;
          Problem problem;
          problem.collective = collective;
          problem.nranks = n;
          problem.root = root;
          problem.hosts = hosts[k];
          problem.lanes = turn % 2 ? most_lanes : 1 + turn / 2 % most_lanes;
          prove(a, problem);
        }
    });
}
void prove_small(Bench& bench) { prove_all(bench, {1, 2, 3, 4, 5, 6, 7, 8, 9}, false); }
void prove_medium(Bench& bench) { prove_all(bench, {10, 11, 12, 13, 14, 15, 16, 17}, true); }
void prove_large(Bench& bench) { prove_all(bench, {24, 31, 32, 33, 48, 63, 64}, true); }

void prove_random(Bench& bench, uint32_t problems, uint32_t most) {
  const tutti_algorithm* a = algorithm(bench);
  std::mt19937_64 random(bench.seed);
  for (uint32_t k = 0; k < problems; ++k)
    for_collectives(a, [&](uint32_t collective) { prove(a, random_problem(collective, most, random)); });
}
void prove_some(Bench& bench) { prove_random(bench, 60, 24); }
void prove_many(Bench& bench) { prove_random(bench, 300, 70); }

// Numbers of ranks that are equal in 6, 7 or 8 bits, eight ranks on each host.
void prove_ranks(Bench& bench, std::initializer_list<uint32_t> sizes) {
  const tutti_algorithm* a = algorithm(bench);
  std::mt19937_64 random(bench.seed);
  for (const uint32_t n : sizes)
    for_collectives(a, [&](uint32_t collective) {
      Problem problem;
      problem.collective = collective;
      problem.nranks = n;
      problem.root = has_root(collective) ? static_cast<uint32_t>(random() % n) : 0;
      problem.hosts.resize(n);
      for (uint32_t rank = 0; rank < n; ++rank) problem.hosts[rank] = rank / 8;
      prove(a, problem);
    });
}
void prove_beyond(Bench& bench) { prove_ranks(bench, {65, 257}); }
void prove_far_beyond(Bench& bench) { prove_ranks(bench, {127, 128, 129, 192, 255, 256, 300}); }

}  // namespace

std::vector<ContractCase> algorithm_cases() {
  const std::vector<const char*> proved{"A-8",  "A-10", "A-11", "A-12", "A-13",
                                        "A-14", "A-15", "A-16", "A-17", "A-18"};
  return {
      {"describes", "its mask of collectives", {"A-1", "E-4"}, 1, describes},
      {"refuses", "unknown collectives and flags", {"A-3", "E-5"}, 1, refuses},
      {"longer-query", "a longer tutti_query", {"E-8", "E-5"}, 1, longer_query},
      {"answers", "supports on many queries", {"A-1", "A-2", "A-4", "E-5"}, 4, answers},
      {"sink-refuses", "a sink that refuses", {"A-9", "E-5"}, 4, sink_refuses},
      {"yes-means-yes", "schedule keeps what supports says", {"A-5", "A-8", "A-14", "E-5"}, 8, yes_means_yes},
      {"pure", "the same schedule each time and everywhere", {"A-5", "A-6", "E-5"}, 3, pure},
      {"proof", "the verifier, 1 to 9 ranks: all roots and placements", proved, 20, prove_small, 0,
       {{magnitude::ranks, 9}, {magnitude::lanes, most_lanes}}},
      {"proof-17", "the verifier, to 17 ranks: all roots", proved, 30, prove_medium, 0, {{magnitude::ranks, 17}}},
      {"threads", "schedule by three threads", {"A-5", "A-7", "E-5"}, 40, reentrant},
      {"proof-random", "the verifier on problems at random", proved, 100, prove_some},
      {"proof-many-ranks", "the verifier on 65 and 257 ranks", proved, 500, prove_beyond, 0, {{magnitude::ranks, 257}}},
      {"proof-64", "the verifier, up to 64 ranks", proved, 2000, prove_large},
      {"proof-random-long", "the verifier on more and larger problems at random", proved, 2001, prove_many},
      {"proof-300", "the verifier up to 300 ranks", proved, 2002, prove_far_beyond, 0, {{magnitude::ranks, 300}}},
  };
}

}  // namespace tutti::conformance::contract
