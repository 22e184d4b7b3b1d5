// SPDX-License-Identifier: Apache-2.0
//
// <algo> has a <gpu> for each rank, that a <tb> for each thread block, and that a <step> for each operation. A thread
// block sends to at most one peer and receives from at most one; a channel of a pair belongs to one thread block at
// each end. Steps that do several things (recv, reduce, send) become several operations of their thread block.
#include "msccl.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "shape.hpp"
#include "xml.hpp"

namespace tutti::plans {
namespace {

// The meaning of a step's type: the cells that it names, and its effect.
struct StepType {
  std::string_view name;
  bool receives, sends, reads_src, writes_dst, reduces;
};
constexpr std::array step_types{
    StepType{"s", false, true, true, false, false},     StepType{"r", true, false, false, true, false},
    StepType{"cpy", false, false, true, true, false},   StepType{"re", false, false, true, true, true},
    StepType{"rcs", true, true, false, true, false},    StepType{"rrc", true, false, true, true, true},
    StepType{"rrs", true, true, true, false, true},     StepType{"rrcs", true, true, true, true, true},
    StepType{"nop", false, false, false, false, false},
};

class Reader {
 public:
  explicit Reader(const std::string& file) { plan_.file = file; }

  Plan read(std::string_view text) {
    read_xml(
        plan_.file, text,
        {[this](Element& element, uint32_t depth) { begin(element, depth); }, [this](uint32_t depth) { end(depth); }});
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank)
      if (plan_.lines[rank] == 0)
        throw wrong(plan_.file, algo_line_, "<algo> says ngpus=\"{}\", but has no <gpu id=\"{}\">", plan_.ranks, rank);
    std::ranges::stable_sort(plan_.threads, {}, &Thread::rank);
    renumber_dependencies();
    return std::move(plan_);
  }

 private:
  // A dependency of a step, until the thread blocks have their final places.
  struct Waits {
    uint32_t thread, step;
  };
  struct Block {  // what is known of a thread block besides its operations
    int64_t send, recv, channel;
    std::vector<uint32_t> last_op;    // by step
    std::vector<bool> hasdep;         // by step
    std::map<uint32_t, Waits> waits;  // by operation
  };

  void begin(Element& element, uint32_t depth) {
    constexpr std::array known{"algo", "gpu", "tb", "step"};
    if (depth >= known.size() || element.name() != known[depth])
      element.refuse(depth >= known.size() ? "stands within a <step>, which has nothing within"
                                           : fmt::format("stands where <{}> is expected", known[depth]));
    depth == 0 ? algo(element) : depth == 1 ? gpu(element) : depth == 2 ? tb(element) : step(element);
    element.no_others();
  }
  void end(uint32_t depth) {
    if (depth == 1) end_gpu();
  }

  void algo(Element& e) {
    algo_line_ = e.line();
    plan_.name = e.text("name");
    plan_.ranks = static_cast<uint32_t>(e.number("ngpus", 1, Limits::ranks));
    const std::string collective = e.text("coll");
    plan_.collective = Shape::collective_from(collective);
    if (plan_.collective == 0)
      e.refuse(
          fmt::format("coll=\"{}\": Tutti has no such collective; it takes allreduce, allgather, reduce_scatter, "
                      "alltoall, broadcast, reduce, gather and scatter",
                      collective));
    const auto chunks = static_cast<uint32_t>(e.number("nchunksperloop", 1, Limits::cells));
    shape_ = {plan_.collective, plan_.ranks, 1};
    const uint32_t blocks = std::max(shape_.in_blocks(), shape_.out_blocks());
    if (chunks % blocks != 0)
      e.refuse(fmt::format("nchunksperloop=\"{}\" is not a multiple of {}, the blocks of {} among {} gpus", chunks,
                           blocks, collective, plan_.ranks));
    plan_.pieces = shape_.pieces = chunks / blocks;
    if (const std::string proto = e.text("proto"); proto != "Simple" && proto != "LL" && proto != "LL128")
      e.refuse(fmt::format("proto=\"{}\": expected Simple, LL or LL128", proto));
    channels_ = e.number("nchannels", 0, Limits::channels);
    plan_.in_place = e.number("inplace", 0, 1) == 1;
    plan_.out_of_place = e.number("outofplace", 0, 1, plan_.in_place ? 0 : 1) == 1;
    if (!plan_.in_place && !plan_.out_of_place) e.refuse("serves no call: neither inplace nor outofplace is 1");
    plan_.least_bytes = static_cast<uint64_t>(e.number("minBytes", 0, INT64_MAX, 0));
    plan_.most_bytes = static_cast<uint64_t>(e.number("maxBytes", 0, INT64_MAX, 0));
    plan_.scratch.resize(plan_.ranks);
    plan_.lines.resize(plan_.ranks);
  }

  void gpu(Element& e) {
    rank_ = static_cast<uint32_t>(e.number("id", 0, plan_.ranks - 1));
    if (plan_.lines[rank_] != 0)
      e.refuse(fmt::format("id=\"{}\" comes twice, first in line {}", rank_, plan_.lines[rank_]));
    plan_.lines[rank_] = e.line();
    cells_[0] = chunks(e, "i_chunks", shape_.in_chunks());
    cells_[1] = chunks(e, "o_chunks", shape_.out_chunks());
    cells_[2] = static_cast<uint32_t>(e.number("s_chunks", 0, Limits::cells));
    plan_.scratch[rank_] = cells_[2];
    first_thread_ = static_cast<uint32_t>(plan_.threads.size());
    sends_.clear(), receives_.clear();
  }
  // A file may declare fewer chunks than the collective has, if it uses no others.
  uint32_t chunks(Element& e, const char* attribute, uint32_t most) {
    const auto number = static_cast<uint32_t>(e.number(attribute, 0, Limits::cells));
    if (number > most)
      e.refuse(fmt::format("{}=\"{}\", but the buffer has {} chunks in this collective", attribute, number, most));
    return number;
  }

  void tb(Element& e) {
    const auto id = static_cast<uint32_t>(e.number("id", 0, Limits::threads - 1));
    if (id != plan_.threads.size() - first_thread_)
      e.refuse(fmt::format("id=\"{}\": thread blocks are numbered 0, 1 ... in their order, and this one is {}", id,
                           plan_.threads.size() - first_thread_));
    if (plan_.threads.size() == Limits::threads)
      e.refuse(fmt::format("is one thread block more than the {} that a plan may have", Limits::threads));
    Block block{};
    block.send = peer(e, "send");
    block.recv = peer(e, "recv");
    block.channel = e.number("chan", -1, Limits::channels - 1);
    if (block.channel < 0 && (block.send >= 0 || block.recv >= 0)) e.refuse("has a peer, but no channel (chan)");
    if (block.channel >= channels_ && block.channel >= 0 && channels_ > 0)
      e.refuse(fmt::format("chan=\"{}\", but <algo> says nchannels=\"{}\"", block.channel, channels_));
    if (block.send >= 0 && !sends_.insert({block.send, block.channel}).second)
      e.refuse(fmt::format("sends to gpu {} on channel {}, as another thread block of gpu {} does", block.send,
                           block.channel, rank_));
    if (block.recv >= 0 && !receives_.insert({block.recv, block.channel}).second)
      e.refuse(fmt::format("receives from gpu {} on channel {}, as another thread block of gpu {} does", block.recv,
                           block.channel, rank_));
    blocks_[rank_].push_back(std::move(block));
    plan_.threads.push_back({rank_, id, e.line(), {}});
  }
  int64_t peer(Element& e, const char* attribute) {
    const int64_t peer = e.number(attribute, -1, plan_.ranks - 1);
    if (peer == rank_) e.refuse(fmt::format("{}=\"{}\": a gpu cannot be its own peer", attribute, peer));
    return peer;
  }

  void step(Element& e) {
    Thread& thread = plan_.threads.back();
    Block& block = blocks_[rank_].back();
    const auto number = static_cast<uint32_t>(e.number("s", 0, Limits::ops));
    if (number != block.last_op.size())
      e.refuse(fmt::format("s=\"{}\": steps are numbered 0, 1 ... in their order, and this one is {}", number,
                           block.last_op.size()));
    op_ = Op{.line = e.line(), .step = number};
    op_.channel = static_cast<uint32_t>(std::max<int64_t>(block.channel, 0));
    const std::string name = e.text("type");
    const auto type = std::ranges::find(step_types, name, &StepType::name);
    if (type == step_types.end())
      refuse(fmt::format("type=\"{}\" is not known: expected s, r, cpy, re, rcs, rrc, rrs, rrcs or nop", name));
    const bool named = type->name != "nop";
    op_.src = cells(e, "src", named && type->reads_src);
    op_.dst = cells(e, "dst", named && type->writes_dst);
    op_.count = static_cast<uint32_t>(e.number("cnt", named ? 1 : 0, Limits::cells));
    if (type->reads_src) check_end("src", op_.src);
    if (type->writes_dst) check_end("dst", op_.dst);
    if (type->receives && block.recv < 0) refuse("receives, but its thread block has no peer to receive from (recv)");
    if (type->sends && block.send < 0) refuse("sends, but its thread block has no peer to send to (send)");
    const size_t first = thread.ops.size();
    add(*type, thread, block);
    if (ops_ += thread.ops.size() - first; ops_ > Limits::ops)
      refuse(fmt::format("is beyond the {} operations that a plan may have", Limits::ops));
    waits(e, block, static_cast<uint32_t>(first));
    block.last_op.push_back(static_cast<uint32_t>(thread.ops.size() - 1));
    block.hasdep.push_back(e.number("hasdep", 0, 1) == 1);
  }

  [[noreturn]] void refuse(const std::string& why) const { throw wrong(plan_, plan_.threads.back(), op_, "{}", why); }

  Cells cells(Element& e, const std::string& end, bool used) {
    const std::string buffer = e.text((end + "buf").c_str());
    if (buffer != "i" && buffer != "o" && buffer != "s")
      refuse(fmt::format("{}buf=\"{}\": expected i, o or s", end, buffer));
    const int64_t first = e.number((end + "off").c_str(), used ? 0 : -1, Limits::cells);
    return {buffer == "i"   ? Buffer::in
            : buffer == "o" ? Buffer::out
                            : Buffer::scratch,
            static_cast<uint32_t>(std::max<int64_t>(first, 0))};
  }
  void check_end(const char* end, const Cells& cells) const {
    const uint32_t there = cells_[static_cast<size_t>(cells.buffer)];
    if (uint64_t{cells.first} + op_.count > there)
      refuse(fmt::format("its {} reaches {}[{}], but gpu {} has {} chunks there ({}_chunks)", end, letter(cells.buffer),
                         uint64_t{cells.first} + op_.count - 1, rank_, there, letter(cells.buffer)));
  }

  void add(const StepType& type, Thread& thread, const Block& block) {
    Op first = op_;
    first.peer = static_cast<uint32_t>(block.recv);
    if (!type.receives && !type.sends) {
      first.kind = type.reduces ? Kind::reduce : type.reads_src ? Kind::copy : Kind::nop;
      if (type.reduces) first.sources = {op_.dst, op_.src};
      if (type.name == "nop") first.count = 0;
      thread.ops.push_back(first);
      return;
    }
    Op second = op_;
    second.kind = Kind::send;
    second.peer = static_cast<uint32_t>(block.send);
    if (type.receives) {
      first.kind = type.reduces ? Kind::receive_reduce : Kind::receive;
      if (!type.writes_dst) {  // what is sent on is kept nowhere
        first.dst = {Buffer::scratch, plan_.scratch[rank_]};
        plan_.scratch[rank_] += op_.count;
        if (plan_.scratch[rank_] > 4 * Limits::cells) refuse("needs more scratch than a plan may have");
      }
      second.src = first.dst;
      thread.ops.push_back(first);
    }
    if (type.sends) thread.ops.push_back(second);
  }

  void waits(Element& e, Block& block, uint32_t op) {
    const int64_t thread = e.number("depid", -1, Limits::threads - 1), step = e.number("deps", -1, Limits::ops);
    if (thread < 0) return;
    if (step < 0) refuse("names a thread block to wait for (depid), but no step of it (deps)");
    if (thread == plan_.threads.back().id)
      refuse("waits for a step of its own thread block, whose steps are in order anyway");
    block.waits[op] = {static_cast<uint32_t>(thread), static_cast<uint32_t>(step)};
  }

  void end_gpu() {
    std::vector<Block>& blocks = blocks_[rank_];
    for (uint32_t id = 0; id < blocks.size(); ++id) {
      const Thread& thread = plan_.threads[first_thread_ + id];
      for (const auto& [op, wait] : blocks[id].waits) {
        const Op& waiting = thread.ops[op];
        if (wait.thread >= blocks.size())
          throw wrong(plan_, thread, waiting, "waits for tb {}, but gpu {} has {} thread blocks", wait.thread, rank_,
                      blocks.size());
        if (wait.step >= blocks[wait.thread].last_op.size())
          throw wrong(plan_, thread, waiting, "waits for step {} of tb {}, which has {} steps", wait.step, wait.thread,
                      blocks[wait.thread].last_op.size());
        if (!blocks[wait.thread].hasdep[wait.step])
          throw wrong(plan_, thread, waiting, "waits for step {} of tb {}, which has hasdep=\"0\" and tells nobody",
                      wait.step, wait.thread);
      }
    }
  }

  // Thread blocks of all ranks have their places now.
  void renumber_dependencies() {
    std::vector<uint32_t> first(plan_.ranks, 0);
    for (uint32_t t = 0; t < plan_.threads.size(); ++t)
      if (plan_.threads[t].id == 0) first[plan_.threads[t].rank] = t;
    for (Thread& thread : plan_.threads)
      for (const auto& [op, wait] : blocks_[thread.rank][thread.id].waits) {
        thread.ops[op].after_thread = first[thread.rank] + wait.thread;
        thread.ops[op].after_op = blocks_[thread.rank][wait.thread].last_op[wait.step];
      }
  }

  Plan plan_;
  Shape shape_{};
  uint32_t algo_line_ = 1;
  int64_t channels_ = 0;
  uint32_t rank_ = 0, first_thread_ = 0;
  uint32_t cells_[3]{};                                     // that the rank declares, by Buffer
  std::set<std::pair<int64_t, int64_t>> sends_, receives_;  // (peer, channel) of the rank's thread blocks
  std::map<uint32_t, std::vector<Block>> blocks_;           // by rank
  uint64_t ops_ = 0;
  Op op_;  // the step that is being read
};

}  // namespace

Plan read_msccl(const std::string& file, std::string_view text) { return Reader(file).read(text); }

}  // namespace tutti::plans
