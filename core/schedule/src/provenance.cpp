// SPDX-License-Identifier: Apache-2.0
#include "provenance.hpp"

#include <fmt/format.h>

#include "expression.hpp"

namespace tutti {
namespace {

// How far a value is on its way through a reducing collective.
enum class Phase : uint8_t {
  nothing,  // never written
  raw,      // user input as it came
  loaded,   // after LOAD
  final     // after FINAL
};

struct Term {
  Expressions::Id id = 0;
  Phase phase = Phase::nothing;
  bool finished_by_copy = false;  // FINAL stands at a copy, not where the last operands are reduced
};

class SymbolicExecution {
 public:
  explicit SymbolicExecution(const StepGraph& graph)
      : graph_(graph),
        problem_(graph.problem()),
        reducing_(is_reducing(problem_.collective)),
        pieces_(graph.layout(0).pieces()),
        expressions_(problem_.nranks, in_blocks(), pieces_),
        canonical_tree_(size_t{in_blocks()} * pieces_, Expressions::none) {
    base_.reserve(problem_.nranks);
    size_t total = 0;
    for (uint32_t rank = 0; rank < problem_.nranks; ++rank) {
      base_.push_back(total);
      total += graph.layout(rank).locations();
    }
    values_.resize(total);
    for (uint32_t rank = 0; rank < problem_.nranks; ++rank) {
      const RankLayout& layout = graph.layout(rank);
      for (uint32_t chunk = 0; chunk < layout.chunks(TUTTI_BUFFER_IN); ++chunk)
        values_[base_[rank] + layout.in_base() + chunk] = {expressions_.leaf(rank, chunk), Phase::raw};
    }
  }

  Finding run() {
    for (const uint32_t node : graph_.order()) {
      if (graph_.slice_of(node) != 0) continue;
      node_ = node;
      if (!carry_out(*graph_.nodes()[node].step)) return wrong_;
    }
    if (Finding finding = check_outputs()) return finding;
    return scaling_;
  }

  Trees trees() const { return trees_; }

 private:
  uint32_t in_blocks() const {
    return block_count(problem_.collective, problem_.nranks, problem_.root, problem_.root, TUTTI_BUFFER_IN);
  }

  uint32_t contributors_at(uint32_t rank) const { return contributors(problem_.collective, problem_.nranks, rank); }

  Term* at(const tutti_span& span) {
    const uint32_t rank = graph_.rank_of(node_);
    return values_.data() + base_[rank] + graph_.layout(rank).locate(span);
  }

  // The first scaling fault is kept and told only when all results are right: where both are wrong, the results say
  // more.
  void scaling_fault(const std::string& text) {
    if (!scaling_) scaling_ = {Fault::scaling, graph_.where(node_) + ": " + text};
  }

  // Reads one chunk; `load`: the step multiplies what it reads. False when nothing was ever written there.
  bool read(const tutti_span& span, uint32_t i, bool load, Term* value) {
    *value = at(span)[i];
    if (value->phase == Phase::nothing) {
      const uint32_t rank = graph_.rank_of(node_);
      wrong_ = {Fault::wrong_result, fmt::format("{}: reads {}, which nothing has written", graph_.where(node_),
                                                 graph_.layout(rank).name(graph_.layout(rank).locate(span) + i))};
      return false;
    }
    if (load != (reducing_ && value->phase == Phase::raw)) {
      scaling_fault(!load ? fmt::format("reads {}, which is raw input, without LOAD", expressions_.text(value->id))
                    : !reducing_ ? std::string("has LOAD in a collective that reduces nothing")
                                 : std::string("has LOAD, but it reads a value that is not raw input"));
    }
    if (load && value->phase == Phase::raw) value->phase = Phase::loaded;
    return true;
  }

  // A REDUCE with LOAD says that exactly its sources in IN are raw.
  bool read_source(const tutti_step& op, const tutti_span& span, uint32_t i, Term* value) {
    return read(span, i,
                (op.flags & TUTTI_STEP_LOAD) && (op.kind != TUTTI_STEP_REDUCE || span.buffer == TUTTI_BUFFER_IN),
                value);
  }

  Term reduce(std::span<const Term> operands) {
    ids_.clear();
    for (const Term& operand : operands) {
      if (operand.phase == Phase::final)
        scaling_fault(fmt::format("reduces {}, which is FINAL already", expressions_.text(operand.id)));
      ids_.push_back(operand.id);
    }
    return {expressions_.reduce(ids_), Phase::loaded};
  }

  // Moving a whole input into place does nothing to it: only a reduction, or a copy of the only contribution, completes
  // it.
  void finish(const tutti_step& op, Term* value) {
    if (!(op.flags & TUTTI_STEP_FINAL)) return;
    if (!reducing_) return scaling_fault("has FINAL in a collective that reduces nothing");
    if (value->phase == Phase::final) return scaling_fault("has FINAL, but the value is FINAL already");
    const uint32_t chunk = expressions_.first_chunk(value->id), ranks = contributors_at(graph_.rank_of(node_));
    if (!expressions_.is_complete(value->id, chunk, ranks))
      scaling_fault("has FINAL, but the value " + expressions_.explain_incomplete(value->id, chunk, ranks));
    value->phase = Phase::final;
    value->finished_by_copy = op.kind == TUTTI_STEP_COPY;
  }

  bool carry_out(const Step& step) {
    const tutti_step& op = step.op;
    switch (op.kind) {
      case TUTTI_STEP_SEND:
        payload_.resize(op.src.chunks);
        for (uint32_t i = 0; i < op.src.chunks; ++i)
          if (!read_source(op, op.src, i, &payload_[i])) return false;
        return true;
      case TUTTI_STEP_RECV:
        std::copy(payload_.begin(), payload_.end(), at(op.dst));
        return true;
      case TUTTI_STEP_RECV_REDUCE:
      case TUTTI_STEP_COPY:
      case TUTTI_STEP_REDUCE:
        return compute(step);
      default:
        return true;
    }
  }

  bool compute(const Step& step) {
    const tutti_step& op = step.op;
    for (uint32_t i = 0; i < op.dst.chunks; ++i) {
      Term value;
      if (op.kind != TUTTI_STEP_REDUCE && !read_source(op, op.src, i, &value)) return false;
      if (op.kind == TUTTI_STEP_RECV_REDUCE) {
        const Term pair[2] = {value, payload_[i]}, swapped[2] = {payload_[i], value};
        value = reduce(op.flags & TUTTI_STEP_INCOMING_LEFT ? swapped : pair);
      } else if (op.kind == TUTTI_STEP_REDUCE) {
        operands_.resize(step.sources.size());
        for (size_t s = 0; s < step.sources.size(); ++s)
          if (!read_source(op, step.sources[s], i, &operands_[s])) return false;
        value = reduce(operands_);
      }
      finish(op, &value);
      at(op.dst)[i] = value;
    }
    return true;
  }

  Finding check_outputs() {
    std::vector<Expressions::Id> first_tree(size_t{in_blocks()} * pieces_, Expressions::none);
    for (uint32_t rank = 0; rank < problem_.nranks; ++rank) {
      const RankLayout& layout = graph_.layout(rank);
      for (uint32_t chunk = 0; chunk < layout.chunks(TUTTI_BUFFER_OUT); ++chunk) {
        const Term value = values_[base_[rank] + layout.out_base() + chunk];
        const std::string text =
            reducing_ ? check_reduced(rank, chunk, value, first_tree) : check_moved(rank, chunk, value);
        if (!text.empty())
          return {Fault::wrong_result, fmt::format("rank {}: in the end out[{}] {}", rank, chunk, text)};
      }
    }
    return {};
  }

  std::string check_reduced(uint32_t rank, uint32_t chunk, Term value, std::vector<Expressions::Id>& first_tree) {
    if (value.phase == Phase::nothing) return "was never written";
    const uint32_t wanted = equal_form(problem_.collective) == TUTTI_REDUCE_SCATTER ? rank * pieces_ + chunk : chunk;
    const uint32_t ranks = contributors_at(rank);
    if (!expressions_.is_complete(value.id, wanted, ranks))
      return expressions_.explain_incomplete(value.id, wanted, ranks);
    if (is_scan(problem_.collective) && !expressions_.in_rank_order(value.id))
      return "holds the right contributions, but not in the order of ranks";
    if (value.phase != Phase::final && !scaling_)
      scaling_ = {Fault::scaling, fmt::format("rank {}: no step that had a part in out[{}] is FINAL", rank, chunk)};
    if (!expressions_.in_rank_order(value.id)) trees_.rank_order = false;
    check_canonical(wanted, ranks, value);
    if (!expressions_.is_flat(value.id) || (ranks > 1 && value.finished_by_copy)) trees_.flat = false;
    if (is_scan(problem_.collective)) return {};  // each rank has a result of its own
    Expressions::Id& first = first_tree[wanted];
    if (first == Expressions::none) first = expressions_.canonical(value.id);
    if (first != expressions_.canonical(value.id)) trees_.same = false;
    return {};
  }

  // Equal trees have equal numbers, so all ranks' results of a chunk cost one look at a tree.
  void check_canonical(uint32_t chunk, uint32_t ranks, const Term& value) {
    Expressions::Id& known = canonical_tree_[chunk];
    if (ranks > 1 && value.finished_by_copy != (problem_.collective == TUTTI_EXCLUSIVE_SCAN)) trees_.canonical = false;
    if (!trees_.canonical || known == value.id) return;
    trees_.canonical = expressions_.is_canonical(value.id, 0, ranks);
    known = value.id;
  }

  std::string check_moved(uint32_t rank, uint32_t chunk, Term value) const {
    const uint32_t block = chunk / pieces_, piece = chunk % pieces_;
    Expressions::Id wanted = 0;
    switch (equal_form(problem_.collective)) {
      case TUTTI_BROADCAST:
        wanted = expressions_.leaf(problem_.root, piece);
        break;
      case TUTTI_SCATTER:
        wanted = expressions_.leaf(problem_.root, rank * pieces_ + piece);
        break;
      case TUTTI_ALL_TO_ALL:
        wanted = expressions_.leaf(block, rank * pieces_ + piece);
        break;
      default:
        wanted = expressions_.leaf(block, piece);
        break;  // gather, all_gather
    }
    if (value.phase != Phase::nothing && value.id == wanted) return {};
    return fmt::format("should hold {}, but {}", expressions_.text(wanted),
                       value.phase == Phase::nothing ? "was never written" : "holds " + expressions_.text(value.id));
  }

  const StepGraph& graph_;
  const Problem& problem_;
  const bool reducing_;
  const uint32_t pieces_;
  Expressions expressions_;
  std::vector<Expressions::Id> canonical_tree_;  // of each chunk, where one has been seen
  std::vector<size_t> base_;
  std::vector<Term> values_;
  std::vector<Term> payload_, operands_;
  std::vector<Expressions::Id> ids_;
  uint32_t node_ = 0;
  Finding wrong_, scaling_;
  Trees trees_;
};

}  // namespace

Finding check_provenance(const StepGraph& graph, Trees* trees) {
  SymbolicExecution execution(graph);
  Finding finding = execution.run();
  *trees = execution.trees();
  return finding;
}

Finding check_barrier(const StepGraph& graph) {
  const uint32_t nranks = graph.problem().nranks;
  const size_t words = (nranks + 63) / 64;
  // The ranks that have started before a node completes; and before a rank's end.
  std::vector<uint64_t> heard(graph.nodes().size() * words, 0), ends(nranks * words, 0);
  for (const uint32_t node : graph.order()) {
    uint64_t* mine = heard.data() + node * words;
    const uint32_t rank = graph.rank_of(node);
    mine[rank / 64] |= uint64_t{1} << (rank % 64);
    graph.for_each_predecessor(node, [&](uint32_t before) {
      for (size_t word = 0; word < words; ++word) mine[word] |= heard[before * words + word];
    });
    for (size_t word = 0; word < words; ++word) ends[rank * words + word] |= mine[word];
  }
  for (uint32_t rank = 0; rank < nranks; ++rank)
    for (uint32_t other = 0; other < nranks; ++other)
      if (other != rank && !(ends[rank * words + other / 64] >> (other % 64) & 1))
        return {Fault::wrong_result,
                fmt::format("rank {} may leave the barrier before rank {} has entered it: no chain of "
                            "messages leads from rank {} to rank {}",
                            rank, other, other, rank)};
  return {};
}

}  // namespace tutti
