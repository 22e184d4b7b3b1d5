// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti::plans {
namespace {
constexpr size_t most_scratch = 1u << 20;  // chunks of a rank, as the core takes
}

Scheduled::Scheduled(const Plan& plan)
    : name_(plan.name), file_(plan.file), least_bytes_(plan.least_bytes), most_bytes_(plan.most_bytes) {
  choose_order(plan);
  placed_of_rank_.resize(plan.ranks);
  for (uint32_t i = 0; i < order_.placed.size(); ++i) {
    const Node& node = trace_.nodes[order_.placed[i].node];
    placed_of_rank_[node.to].push_back(i);
    if (node.from != node.to) placed_of_rank_[node.from].push_back(i);
  }
  choose_lanes();
  for (uint32_t rank = 0; rank < plan.ranks; ++rank)
    if (const size_t chunks = extents({rank, true}).size(); chunks > most_scratch)
      throw wrong(plan.file, plan.lines[rank], "gpu {}: needs {} chunks of scratch, expected at most {}", rank, chunks,
                  most_scratch);
}

// A plan for calls in place is carried out on one buffer, and serves calls out of place as well, because a schedule
// never writes its input. One for calls out of place serves those in place if its order allows it without further
// messages through scratch; else the input is copied first.
void Scheduled::choose_order(const Plan& plan) {
  const uint32_t root = find_root(plan);
  if (plan.in_place) {
    if (plan.out_of_place) carry_out(plan, {.root = root});
    trace_ = carry_out(plan, {.in_place = true, .one_place = true, .root = root});
    order_ = arrange(trace_);
    return;
  }
  trace_ = carry_out(plan, {.root = root});
  order_ = arrange(trace_);
  if (trace_.in_place_as_is) {
    Trace together = carry_out(plan, {.one_place = true, .root = root});
    Order order = arrange(together);
    if (order.buffered <= order_.buffered) {
      trace_ = std::move(together);
      order_ = std::move(order);
      return;
    }
  }
  copies_input_ = true;
}

// A lane for each channel. A step can wait for one step of another lane; where it would have to wait for more, lanes
// are joined.
void Scheduled::choose_lanes() {
  uint32_t channels = 1;
  for (const Node& node : trace_.nodes) channels = std::max(channels, node.channel + 1);
  lane_of_channel_.assign(channels, 0);
  if (copies_input_) return;  // which many steps follow
  std::iota(lane_of_channel_.begin(), lane_of_channel_.end(), 0);
  const auto join = [this](uint32_t kept, uint32_t gone) { std::ranges::replace(lane_of_channel_, gone, kept); };
  for (bool joined = true; joined;) {
    joined = false;
    for (uint32_t rank = 0; rank < trace_.shape.ranks && !joined; ++rank)
      for (const bool in_place : {false, true})
        for (const std::vector<Step> all = steps({rank, in_place}); const Step& step : all) {
          if (joined || step.follows.size() < 2) continue;
          std::map<uint32_t, uint32_t> followed;  // steps, by lane
          for (const uint32_t other : step.follows) ++followed[all[other].lane];
          const auto spared = std::ranges::find(followed, 1u, [](const auto& entry) { return entry.second; });
          if (spared != followed.end()) followed.erase(spared);
          for (const auto& [lane, count] : followed) join(step.lane, lane);
          joined = true;
        }
  }
  std::map<uint32_t, uint32_t> numbers;
  for (uint32_t& lane : lane_of_channel_)
    lane = numbers.try_emplace(lane, static_cast<uint32_t>(numbers.size())).first->second;
  lanes_ = static_cast<uint32_t>(numbers.size());
}

std::string Scheduled::refusal(const sdk::Query& q) const {
  const Shape& shape = trace_.shape;
  if (q.n != shape.ranks) return fmt::format("{} is a plan for {} ranks, and these are {}", file_, shape.ranks, q.n);
  if (shape.rooted() && q.root != trace_.root)
    return fmt::format("{} is a plan for root {}, and this is {}", file_, trace_.root, q.root);
  if (q.block_bytes == 0) return {};
  // A size class reaches from the half of its largest size to that.
  const uint64_t blocks = std::max(shape.in_blocks(), shape.out_blocks());
  if (q.block_bytes * blocks < least_bytes_ || (most_bytes_ > 0 && (q.block_bytes / 2 + 1) * blocks > most_bytes_))
    return fmt::format("{} is a plan for {} to {} bytes", file_, least_bytes_,
                       most_bytes_ > 0 ? std::to_string(most_bytes_) : "any number of");
  return {};
}

void Scheduled::schedule(const sdk::Query& q, sdk::Schedule& s) const {
  s.sliced(order_.slice_levels);
  if (sdk::alone(q, s)) return;
  s.cut_equally(trace_.shape.pieces);
  const View view{q.rank, q.in_place};
  s.declare_scratch(extents(view));
  const std::vector<Step> all = steps(view);
  std::vector<sdk::StepId> ids;
  for (const Step& step : all) {
    const uint32_t number = step.lane % q.lanes;
    sdk::Lane lane = s.lane(number).level(step.level);
    const auto emit = [&](sdk::StepHandle handle) {
      if (step.final) handle.final();
      if (step.kind == TUTTI_STEP_RECV_REDUCE) handle.incoming_left(step.left);
      for (const uint32_t other : step.follows)
        if (all[other].lane % q.lanes != number) handle.after(ids[other]);
      ids.push_back(handle);
    };
    switch (step.kind) {
      case TUTTI_STEP_SEND:
        emit(lane.send(step.peer, step.src));
        break;
      case TUTTI_STEP_RECV:
        emit(lane.recv(step.peer, step.dst));
        break;
      case TUTTI_STEP_RECV_REDUCE:
        emit(lane.recv_reduce(step.peer, step.dst, step.src));
        break;
      case TUTTI_STEP_COPY:
        emit(lane.copy(step.dst, step.src));
        break;
      default:
        emit(lane.reduce(step.dst, step.sources));
    }
  }
}

// Scratch: the trace's and the order's, then room for the input where it is copied.
std::vector<tutti_extent> Scheduled::extents(const View& view) const {
  std::vector<tutti_extent> chunks;
  for (const uint32_t piece : order_.scratch[view.rank]) chunks.push_back({0, piece});
  if (copies_input(view))
    for (uint32_t i = 0; i < trace_.shape.in_chunks(); ++i) chunks.push_back({0, i % trace_.shape.pieces});
  return chunks;
}

std::vector<Scheduled::Step> Scheduled::steps(const View& view) const {
  std::vector<Step> steps;
  const Shape& shape = trace_.shape;
  if (copies_input(view)) {
    const uint32_t chunks = shape.in_chunks();
    Step& copy = steps.emplace_back();
    copy.kind = TUTTI_STEP_COPY;
    copy.level = first_level - 1;
    copy.dst = span(view, {Buffer::in, 0}, chunks);
    copy.src = sdk::in(0, chunks);
  }
  for (const uint32_t placed : placed_of_rank_[view.rank]) add(view, order_.placed[placed], steps);
  if (!view.in_place)
    for (size_t i = 0; i < trace_.kept[view.rank].size();) {
      const std::vector<uint32_t>& kept = trace_.kept[view.rank];
      uint32_t count = 1;
      while (i + count < kept.size() && kept[i + count] == kept[i] + count) ++count;
      Step& copy = steps.emplace_back();
      copy.kind = TUTTI_STEP_COPY;
      copy.level = first_level;
      copy.dst = sdk::out(kept[i], count);
      copy.src = sdk::in(shape.in_of_out(view.rank, kept[i]), count);
      i += count;
    }
  find_conflicts(view, steps);
  return steps;
}

void Scheduled::add(const View& view, const Placed& placed, std::vector<Step>& steps) const {
  const Node& node = trace_.nodes[placed.node];
  if (placed.part == Placed::Part::late && view.rank != node.to) return;
  for (uint32_t first = 0; first < node.count;) {
    const uint32_t end = group_end(node, first);
    add_group(view, placed, first, end - first, steps);
    first = end;
  }
}

// A step can do with all chunks from `first` to the result what it does with the first: its places follow each other,
// at both ends of a message.
uint32_t Scheduled::group_end(const Node& node, uint32_t first) const {
  uint32_t end = first + 1;
  for (; end < node.count; ++end) {
    const Chunk &before = trace_.chunks[node.first + end - 1], &chunk = trace_.chunks[node.first + end];
    bool follows = chunk.dst == before.dst.next() && chunk.final == before.final && chunk.left == before.left;
    if (node.kind != Node::Kind::reduce) follows = follows && chunk.src == before.src.next();
    if (node.reduced) follows = follows && chunk.with == before.with.next();
    for (uint32_t k = 0; k < node.sources; ++k) {
      const uint32_t at = node.first_source + end * node.sources + k;
      follows = follows && trace_.sources[at] == trace_.sources[at - node.sources].next();
    }
    if (!follows) break;
  }
  return end;
}

void Scheduled::add_group(const View& view, const Placed& placed, uint32_t first, uint32_t count,
                          std::vector<Step>& steps) const {
  const Node& node = trace_.nodes[placed.node];
  const Chunk& chunk = trace_.chunks[node.first + first];
  const tutti_span buffer = sdk::scratch(placed.buffer + first, count);
  if (node.kind == Node::Kind::copy && !trace_.shape.reducing() && !copies_input_ &&
      key(view, span(view, chunk.src, 1), 0) == key(view, span(view, chunk.dst, 1), 0))
    return;  // in place it is there already
  Step& step = steps.emplace_back();
  step.lane = lane_of_channel_[node.channel];
  step.level = placed.level;
  if (node.kind == Node::Kind::message && placed.part != Placed::Part::late && view.rank == node.from) {
    step.kind = TUTTI_STEP_SEND;
    step.peer = node.to;
    step.src = span(view, chunk.src, count);
    return;
  }
  step.dst = span(view, chunk.dst, count);
  step.final = chunk.final;
  step.left = chunk.left;
  if (node.kind == Node::Kind::copy) {
    step.kind = TUTTI_STEP_COPY;
    step.src = span(view, chunk.src, count);
  } else if (node.kind == Node::Kind::reduce) {
    step.kind = TUTTI_STEP_REDUCE;
    for (uint32_t k = 0; k < node.sources; ++k)
      step.sources.push_back(span(view, trace_.sources[node.first_source + first * node.sources + k], count));
    if (step.left && node.sources == 2) std::swap(step.sources[0], step.sources[1]);
  } else if (placed.part == Placed::Part::late) {
    step.kind = node.reduced ? TUTTI_STEP_REDUCE : TUTTI_STEP_COPY;
    if (!node.reduced) step.src = buffer;
    if (node.reduced) step.sources = {span(view, chunk.with, count), buffer};
    if (node.reduced && step.left) std::swap(step.sources[0], step.sources[1]);
  } else {
    step.peer = node.from;
    step.kind = TUTTI_STEP_RECV;
    if (placed.part == Placed::Part::buffered) {
      step.dst = buffer;
      step.final = false;
    } else if (node.reduced) {
      step.kind = TUTTI_STEP_RECV_REDUCE;
      step.src = span(view, chunk.with, count);
    }
  }
}

tutti_span Scheduled::span(const View& view, Place place, uint32_t count) const {
  if (place.buffer == Buffer::out) return sdk::out(place.index, count);
  if (place.buffer == Buffer::scratch) return sdk::scratch(place.index, count);
  if (!copies_input(view)) return sdk::in(place.index, count);
  return sdk::scratch(static_cast<uint32_t>(order_.scratch[view.rank].size()) + place.index, count);
}

bool Scheduled::copies_input(const View& view) const {
  const Shape& shape = trace_.shape;
  return copies_input_ && view.in_place && shape.has_in(view.rank, trace_.root) &&
         shape.has_out(view.rank, trace_.root);
}

// A number for the memory of chunk i of a span.
uint64_t Scheduled::key(const View& view, const tutti_span& span, uint32_t i) const {
  const uint32_t chunk = span.first + i;
  if (view.in_place && span.buffer == TUTTI_BUFFER_OUT)
    if (const uint32_t in = trace_.shape.in_of_out(view.rank, chunk); in != Shape::none)
      return uint64_t{TUTTI_BUFFER_IN} << 32 | in;
  return uint64_t{span.buffer} << 32 | chunk;
}

// Conflicting steps of one lane are in order. A step follows those of other lanes, but for those that a step which it
// follows does.
void Scheduled::find_conflicts(const View& view, std::vector<Step>& steps) const {
  struct Use {
    uint32_t writer = nobody;
    std::vector<uint32_t> readers;
  };
  std::map<uint64_t, Use> uses;
  std::vector<std::vector<uint32_t>> earlier(steps.size());  // that conflict, of any lane
  for (uint32_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    std::vector<uint32_t>& mine = earlier[i];
    const auto each = [&](const tutti_span& span, auto&& use) {
      for (uint32_t k = 0; k < span.chunks; ++k) use(uses[key(view, span, k)]);
    };
    const auto read = [&](Use& use) {
      if (use.writer != nobody) mine.push_back(use.writer);
      use.readers.push_back(i);
    };
    each(step.src, read);
    for (const tutti_span& source : step.sources) each(source, read);
    each(step.dst, [&](Use& use) {
      if (use.writer != nobody) mine.push_back(use.writer);
      for (const uint32_t reader : use.readers)
        if (reader != i) mine.push_back(reader);
      use = {i, {}};
    });
    std::ranges::sort(mine);
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
    if (lanes_ == 1 && lane_of_channel_.size() == 1) continue;
    for (const uint32_t other : mine) {
      const bool implied = std::ranges::any_of(
          mine, [&](uint32_t between) { return std::ranges::binary_search(earlier[between], other); });
      if (steps[other].lane != step.lane && !implied) step.follows.push_back(other);
    }
  }
}

}  // namespace tutti::plans
