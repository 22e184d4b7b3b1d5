// SPDX-License-Identifier: Apache-2.0
//
// A plan has "gpus", those have "threadblocks", and those have "ops". Operations read and write memory of the rank, and
// of peers through remote buffers; signals order them between ranks, barriers and semaphores between thread blocks.
//
// An operation that a group of thread blocks shares (tbg_info) moves a share of its chunks in each of them. Chunks are
// then cut into parts, so many that every share is some of them, and a part is the unit of cells.
//
// Numbers in an operation count what its thread block lists, and that counts what the gpu lists: "channel_ids": [0] is
// the first of the thread block's channels of that type, whose number is that of a channel of the gpu. The k-th channel
// of a rank to a peer belongs together with the k-th one of that peer to the rank.
#include "mscclpp.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "json.hpp"
#include "shape.hpp"

namespace tutti::plans {
namespace {

constexpr uint32_t most_shares = 64;         // of a chunk
constexpr uint32_t most_objects = 1u << 16;  // channels, buffers, barriers, semaphores
enum : uint32_t { memory_channel, port_channel, channel_types };

// A run of chunks that an operation names: of the rank, or of a peer.
struct Span {
  uint32_t rank;
  Cells cells;
  uint32_t count;
};

class PlanReader {
 public:
  explicit PlanReader(const std::string& file) { plan_.file = file; }

  Plan read(std::string_view text) {
    const Json json = Json::read(plan_.file, text);
    plan_.name = json.text("name");
    const std::string collective = json.text("collective");
    plan_.collective = Shape::collective_from(collective);
    if (plan_.collective == 0)
      json.member("collective")
          .refuse(fmt::format("\"{}\": Tutti has no such collective; it takes allreduce, allgather, reducescatter, "
                              "alltoall, broadcast, reduce, gather and scatter",
                              collective));
    if (const std::string protocol = json.text("protocol"); protocol != "Simple" && protocol != "LL")
      json.member("protocol").refuse(fmt::format("\"{}\": expected Simple or LL", protocol));
    plan_.in_place = json.flag("inplace");
    plan_.out_of_place = !plan_.in_place;
    if (json.has("min_message_size")) plan_.least_bytes = json.number("min_message_size", 0, UINT64_MAX);
    if (json.has("max_message_size")) plan_.most_bytes = json.number("max_message_size", 0, UINT64_MAX);
    if (plan_.most_bytes == UINT64_MAX) plan_.most_bytes = 0;
    // How its executor runs it, which Tutti's own executors decide.
    for (const char* key :
         {"reuse_resources", "num_threads_per_block", "use_double_scratch_buffer", "buffer_alignment"})
      json.has(key);
    const std::vector<Json>& gpus = json.items("gpus");
    if (gpus.empty() || gpus.size() > Limits::ranks)
      json.member("gpus").refuse(fmt::format("has {} gpus, expected 1 to {}", gpus.size(), Limits::ranks));
    json.no_others();
    plan_.ranks = static_cast<uint32_t>(gpus.size());
    plan_.semaphores.resize(plan_.ranks);
    for (const Json& gpu : gpus)
      for (const Json& block : gpu.items("threadblocks")) count_parts(block);
    sizes(gpus);
    for (rank_ = 0; rank_ < plan_.ranks; ++rank_) list(gpus[rank_]);
    for (rank_ = 0; rank_ < plan_.ranks; ++rank_) gpu(gpus[rank_]);
    return std::move(plan_);
  }

 private:
  struct OpName {
    std::string_view name;
    void (PlanReader::*read)(const Json& op);
  };
  struct Listed {                                   // by a gpu
    std::vector<uint32_t> channels[channel_types];  // the peers
    std::vector<std::pair<uint32_t, Buffer>> buffers;
  };

  void count_parts(const Json& list) {
    for (const Json& op : list.items("ops")) {
      if (op.has("ops")) count_parts(op);
      if (!op.has("tbg_info")) continue;
      const uint64_t shares = op.member("tbg_info").number("tbg_size", 1, most_shares);
      if (const uint64_t parts = std::lcm(uint64_t{parts_}, shares); parts <= most_shares)
        parts_ = static_cast<uint32_t>(parts);
      else
        op.refuse(
            fmt::format("a group of {} thread blocks: chunks would have more than {} parts", shares, most_shares));
    }
  }

  // Chunks of all buffers, and so of a block, in parts.
  void sizes(const std::vector<Json>& gpus) {
    Shape shape{plan_.collective, plan_.ranks, 1};
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      const Json& gpu = gpus[rank];
      if (gpu.number("id", 0, Limits::ranks) != rank)
        gpu.member("id").refuse(fmt::format("gpus are in the order of their ids, and this one is {}", rank));
      const uint32_t in = chunks(gpu, "input_chunks", shape.in_blocks());
      const uint32_t out = chunks(gpu, "output_chunks", shape.out_blocks());
      const uint32_t pieces = std::max(in / shape.in_blocks(), out / shape.out_blocks());
      plan_.pieces = std::max(plan_.pieces, pieces);
      if (pieces == 0) gpu.refuse("has neither input_chunks nor output_chunks");
      if (pieces != plan_.pieces || (in > 0 && in != shape.in_blocks() * pieces) ||
          (out > 0 && out != shape.out_blocks() * pieces))
        gpu.refuse(
            fmt::format("has {} input_chunks and {} output_chunks, which are not as many for each block as the "
                        "other ones'",
                        in, out));
      plan_.lines.push_back(gpu.line());
      plan_.scratch.push_back(static_cast<uint32_t>(gpu.number("scratch_chunks", 0, Limits::cells)) * parts_);
    }
    plan_.pieces *= parts_;
  }
  static uint32_t chunks(const Json& gpu, const char* key, uint32_t blocks) {
    const auto number = static_cast<uint32_t>(gpu.number(key, 0, Limits::cells));
    if (number % blocks != 0)
      gpu.member(key).refuse(
          fmt::format("\"{}\": {} is not a multiple of the {} blocks of the buffer", key, number, blocks));
    return number;
  }

  void list(const Json& gpu) {
    Listed& listed = listed_.emplace_back();
    for (const Json& channel : gpu.items("channels")) {
      const uint32_t type = channel_type(channel, "channel_type");
      for (const uint32_t peer : peers(channel.numbers("connected_to", plan_.ranks - 1), channel))
        listed.channels[type].push_back(peer);
      channel.no_others();
    }
    for (const Json& buffer : gpu.items_or_none("remote_buffers")) {
      const auto rank = static_cast<uint32_t>(buffer.number("rank", 0, plan_.ranks - 1));
      if (rank == rank_) buffer.refuse("a remote buffer of the gpu itself");
      listed.buffers.emplace_back(rank, buffer_type(buffer));
      buffer.items("access_channel_types");
      buffer.no_others();
    }
    for (const Json& semaphore : gpu.items_or_none("semaphores")) {
      plan_.semaphores[rank_].push_back(static_cast<uint32_t>(semaphore.number("init_value", 0, most_objects)));
      semaphore.no_others();
    }
  }
  std::vector<uint32_t> peers(std::vector<uint32_t> peers, const Json& channel) const {
    if (std::ranges::find(peers, rank_) != peers.end()) channel.refuse("connects the gpu with itself");
    return peers;
  }

  static uint32_t channel_type(const Json& json, const char* key) {
    const std::string type = json.text(key);
    if (type == "switch")
      json.member(key).refuse(
          "a channel of type \"switch\" reduces and copies in the switch (multimem), which has no "
          "counterpart in messages");
    if (type != "memory" && type != "port")
      json.member(key).refuse(fmt::format("\"{}\" is no type of channel: expected memory or port", type));
    return type == "memory" ? memory_channel : port_channel;
  }
  static Buffer buffer_type(const Json& json) {
    const std::string type = json.text("type");
    if (type != "i" && type != "o" && type != "s")
      json.member("type").refuse(fmt::format("\"{}\" is no buffer: expected i, o or s", type));
    return type == "i" ? Buffer::in : type == "o" ? Buffer::out : Buffer::scratch;
  }

  void gpu(const Json& gpu) {
    for (const Json& block : gpu.items("threadblocks")) {
      const auto id = static_cast<uint32_t>(block.number("id", 0, Limits::threads - 1));
      const bool follows = !plan_.threads.empty() && plan_.threads.back().rank == rank_;
      if (const uint32_t expected = follows ? plan_.threads.back().id + 1 : 0; id != expected)
        block.member("id").refuse(
            fmt::format("thread blocks are in the order of their ids, and this one is {}", expected));
      if (plan_.threads.size() == Limits::threads)
        block.refuse(fmt::format("is one thread block more than the {} that a plan may have", Limits::threads));
      plan_.threads.push_back({rank_, id, block.line(), {}});
      thread_block(block);
      block.no_others();
    }
    gpu.no_others();
  }

  void thread_block(const Json& block) {
    for (auto& ids : channels_) ids.clear();
    for (auto& ids : buffers_) ids.clear();
    for (const Json& channel : block.items_or_none("channels")) {
      const uint32_t type = channel_type(channel, "channel_type");
      for (const uint32_t id : channel.numbers("channel_ids", most_objects)) {
        if (id >= listed_[rank_].channels[type].size())
          channel.refuse(fmt::format("channel {} is not one of the {} that gpu {} lists", id,
                                     listed_[rank_].channels[type].size(), rank_));
        channels_[type].push_back(id);
      }
      channel.has("buff");
      channel.no_others();
    }
    for (const Json& refs : block.items_or_none("remote_buffer_refs")) {
      const uint32_t type = channel_type(refs, "access_channel_type");
      for (const uint32_t id : refs.numbers("remote_buffer_ids", most_objects)) {
        if (id >= listed_[rank_].buffers.size())
          refs.refuse(fmt::format("remote buffer {} is not one of the {} that gpu {} lists", id,
                                  listed_[rank_].buffers.size(), rank_));
        buffers_[type].push_back(id);
      }
      refs.no_others();
    }
    step_ = 0;
    for (const Json& op : block.items("ops")) this->op(op);
  }

  // ---- operations

  void op(const Json& op) {
    static constexpr std::array names{OpName{"nop", &PlanReader::nothing},
                                      OpName{"flush", &PlanReader::nothing},
                                      OpName{"barrier", &PlanReader::barrier},
                                      OpName{"signal", &PlanReader::signals},
                                      OpName{"rlxsignal", &PlanReader::signals},
                                      OpName{"wait", &PlanReader::waits},
                                      OpName{"rlxwait", &PlanReader::waits},
                                      OpName{"sem_acquire", &PlanReader::acquire},
                                      OpName{"sem_release", &PlanReader::release},
                                      OpName{"put", &PlanReader::put},
                                      OpName{"pws", &PlanReader::put},
                                      OpName{"pwsf", &PlanReader::put},
                                      OpName{"ppkt", &PlanReader::put},
                                      OpName{"rppkt", &PlanReader::put},
                                      OpName{"get", &PlanReader::get},
                                      OpName{"copy", &PlanReader::copy},
                                      OpName{"cpkt", &PlanReader::copy},
                                      OpName{"upkt", &PlanReader::copy},
                                      OpName{"re", &PlanReader::reduce},
                                      OpName{"res", &PlanReader::reduce},
                                      OpName{"repkt", &PlanReader::reduce},
                                      OpName{"respkt", &PlanReader::reduce},
                                      OpName{"recpkt", &PlanReader::reduce},
                                      OpName{"recspkt", &PlanReader::reduce},
                                      OpName{"rre", &PlanReader::read_reduce},
                                      OpName{"rres", &PlanReader::read_reduce},
                                      OpName{"pipeline", &PlanReader::pipeline}};
    name_ = op.text("name");
    line_ = op.line();
    const auto found = std::ranges::find(names, std::string_view(name_), &OpName::name);
    if (found == names.end()) {
      const bool by_switch = name_.starts_with("gl") || name_.starts_with("gst");
      refuse(op, by_switch ? "reduces or copies in the switch (multimem), which has no counterpart in messages"
                           : "is no operation that Tutti knows");
    }
    share_ = {0, 1};
    if (op.has("tbg_info")) {
      const Json& group = op.member("tbg_info");
      share_.of = static_cast<uint32_t>(group.number("tbg_size", 1, most_shares));
      share_.index = static_cast<uint32_t>(group.number("tb_id", 0, share_.of - 1));
      group.no_others();
    }
    type_ =
        op.has("channel_type") && op.text("channel_type") != "none" ? channel_type(op, "channel_type") : memory_channel;
    if (op.has("reduce_op") && op.text("reduce_op") != "sum")
      refuse(op, "names another reduce_op than \"sum\"; the operator is that of the call");
    if (++ops_ > Limits::ops) refuse(op, fmt::format("is beyond the {} operations that a plan may have", Limits::ops));
    (this->*found->read)(op);
    op.no_others();
    ++step_;
  }

  [[noreturn]] void refuse(const Json& json, const std::string& why) const {
    throw wrong(plan_.file, json.line(), "gpu {}, tb {}, step {}: \"{}\" {}", rank_, plan_.threads.back().id, step_,
                name_, why);
  }
  bool is(std::initializer_list<std::string_view> names) const {
    return std::ranges::find(names, std::string_view(name_)) != names.end();
  }

  Op& add(Kind kind, uint32_t count = 0) {
    Op& op = plan_.threads.back().ops.emplace_back();
    op.kind = kind;
    op.line = line_;
    op.step = step_;
    op.channel = plan_.threads.back().id % Limits::channels;
    op.count = count;
    return op;
  }

  void nothing(const Json& op) {
    op.has("channel_ids");
    add(Kind::nop);
  }
  void barrier(const Json& op) {
    const auto blocks = static_cast<uint32_t>(op.number("num_threadblocks", 1, Limits::threads));
    add(Kind::barrier, blocks).object = static_cast<uint32_t>(op.number("barrier_id", 0, most_objects));
  }
  void acquire(const Json& op) { semaphores(op, Kind::acquire); }
  void release(const Json& op) { semaphores(op, Kind::release); }
  void semaphores(const Json& op, Kind kind) {
    for (const uint32_t id : op.numbers("semaphore_ids", most_objects)) {
      if (id >= plan_.semaphores[rank_].size())
        refuse(op, fmt::format("names semaphore {}, and gpu {} has {}", id, rank_, plan_.semaphores[rank_].size()));
      add(kind).object = id;
    }
  }
  void signals(const Json& op) { channels(op, Kind::signal); }
  void waits(const Json& op) { channels(op, Kind::wait); }
  void channels(const Json& op, Kind kind) {
    for (const uint32_t id : op.numbers("channel_ids", most_objects)) {
      if (id >= channels_[type_].size())
        refuse(op,
               fmt::format("names channel {}, and its thread block has {} of that type", id, channels_[type_].size()));
      const std::vector<uint32_t>& peers = listed_[rank_].channels[type_];
      const auto channel = peers.begin() + channels_[type_][id];
      Op& added = add(kind);
      added.peer = *channel;
      added.object = static_cast<uint32_t>(std::count(peers.begin(), channel, *channel)) * channel_types + type_;
    }
  }

  // The spans of "src_buff" or "dst_buff".
  std::vector<Span> spans(const Json& op, const char* key, size_t least) {
    std::vector<Span> spans;
    for (const Json& json : op.items(key)) {
      Span span{rank_, {}, static_cast<uint32_t>(json.number("size", 1, Limits::cells))};
      span.cells.first = static_cast<uint32_t>(json.number("index", 0, Limits::cells));
      if (json.has("switch_channel_id"))
        refuse(json, "names memory of a switch channel (multimem), which has no counterpart in messages");
      if (json.has("buffer_id")) {
        const auto id = static_cast<uint32_t>(json.number("buffer_id", 0, most_objects));
        if (id >= buffers_[type_].size())
          refuse(json, fmt::format("names remote buffer {}, and its thread block has {} for that type of channel", id,
                                   buffers_[type_].size()));
        std::tie(span.rank, span.cells.buffer) = listed_[rank_].buffers[buffers_[type_][id]];
      } else {
        span.cells.buffer = buffer_type(json);
      }
      json.no_others();
      check_end(json, span);
      span.cells.first = span.cells.first * parts_ + span.count * parts_ / share_.of * share_.index;
      span.count = span.count * parts_ / share_.of;
      spans.push_back(span);
    }
    if (spans.size() < least)
      refuse(op, fmt::format("has {} in \"{}\", expected at least {}", spans.size(), key, least));
    return spans;
  }
  void check_end(const Json& json, const Span& span) const {
    const Shape shape{plan_.collective, plan_.ranks, plan_.pieces};
    const uint32_t parts = span.cells.buffer == Buffer::in    ? shape.in_chunks()
                           : span.cells.buffer == Buffer::out ? shape.out_chunks()
                                                              : plan_.scratch[span.rank];
    const uint32_t there = parts / parts_;
    if (uint64_t{span.cells.first} + span.count > there)
      refuse(json, fmt::format("reaches {}[{}] of gpu {}, which has {} chunks there", letter(span.cells.buffer),
                               uint64_t{span.cells.first} + span.count - 1, span.rank, there));
  }
  // All spans have the length of the first.
  void same_length(const Json& op, const std::vector<Span>& spans, uint32_t count) const {
    for (const Span& span : spans)
      if (span.count != count) refuse(op, fmt::format("mixes runs of {} and of {} chunks", count, span.count));
  }
  void expect(const Json& op, const Span& span, bool local, const char* what) const {
    if ((span.rank == rank_) != local)
      refuse(op,
             fmt::format("has as {} memory of {}", what,
                         local ? "another gpu, expected the gpu's own" : "the gpu itself, expected a remote buffer"));
  }

  void put(const Json& op) {
    const std::vector<Span> src = spans(op, "src_buff", 1), dst = spans(op, "dst_buff", 1);
    for (size_t i = 0; i < dst.size(); ++i) {
      const Span& from = src[std::min(i, src.size() - 1)];
      same_length(op, {from}, dst[i].count);
      expect(op, from, true, "source");
      send(op, from.cells, dst[i], is({"ppkt", "rppkt"}));
      plan_.threads.back().ops.back().reads_packets = name_ == "rppkt";
    }
    if (is({"pws", "pwsf"}))
      channels(op, Kind::signal);
    else
      op.has("channel_ids");
  }
  void send(const Json& op, Cells src, const Span& dst, bool packets) {
    expect(op, dst, false, "destination");
    Op& added = add(Kind::put, dst.count);
    added.peer = dst.rank;
    added.src = src;
    added.dst = dst.cells;
    added.writes_packets = packets;
  }

  void get(const Json& op) {
    const std::vector<Span> src = spans(op, "src_buff", 1), dst = spans(op, "dst_buff", 1);
    if (src.size() != dst.size()) refuse(op, fmt::format("has {} sources and {} destinations", src.size(), dst.size()));
    for (size_t i = 0; i < src.size(); ++i) {
      same_length(op, {src[i]}, dst[i].count);
      expect(op, src[i], false, "source");
      expect(op, dst[i], true, "destination");
      Op& added = add(Kind::get, src[i].count);
      added.peer = src[i].rank;
      added.src = src[i].cells;
      added.dst = dst[i].cells;
    }
    op.has("channel_ids");
  }

  void copy(const Json& op) {
    const std::vector<Span> src = spans(op, "src_buff", 1), dst = spans(op, "dst_buff", 1);
    if (src.size() != 1 || dst.size() != 1) refuse(op, "has several sources or destinations");
    same_length(op, dst, src[0].count);
    expect(op, src[0], true, "source");
    expect(op, dst[0], true, "destination");
    Op& added = add(Kind::copy, src[0].count);
    added.src = src[0].cells;
    added.dst = dst[0].cells;
    added.reads_packets = name_ == "upkt";
    added.writes_packets = name_ == "cpkt";
  }

  // dst 0 = source 0 op source 1 ...; "recpkt" has a copy in packets as dst 1; what remains is sent.
  void reduce(const Json& op) {
    const bool packets = name_.ends_with("pkt"), copied = is({"recpkt", "recspkt"}),
               sent = is({"res", "respkt", "recspkt"});
    const std::vector<Span> src = spans(op, "src_buff", 2), dst = spans(op, "dst_buff", copied ? 2 : 1);
    same_length(op, src, src[0].count);
    same_length(op, dst, src[0].count);
    for (const Span& span : src) expect(op, span, true, "source");
    expect(op, dst[0], true, "destination");
    Op& added = add(Kind::reduce, src[0].count);
    added.dst = dst[0].cells;
    for (const Span& span : src) added.sources.push_back(span.cells);
    added.reads_packets = packets;
    if (copied) {
      expect(op, dst[1], true, "copy");
      Op& copy = add(Kind::copy, src[0].count);
      copy.src = dst[0].cells;
      copy.dst = dst[1].cells;
      copy.writes_packets = true;
    }
    send_result(op, dst, copied ? 2 : 1, sent, packets);
  }
  void send_result(const Json& op, const std::vector<Span>& dst, size_t first, bool sent, bool packets) {
    if (!sent && dst.size() > first) refuse(op, fmt::format("has {} destinations, expected {}", dst.size(), first));
    for (size_t i = first; i < dst.size(); ++i) send(op, dst[0].cells, dst[i], packets);
  }

  // The same with sources of peers.
  void read_reduce(const Json& op) {
    const std::vector<Span> src = spans(op, "src_buff", 2), dst = spans(op, "dst_buff", 1);
    same_length(op, src, src[0].count);
    same_length(op, dst, src[0].count);
    expect(op, src[0], true, "first source");
    expect(op, dst[0], true, "destination");
    for (size_t i = 1; i < src.size(); ++i) {
      expect(op, src[i], false, "source");
      Op& added = add(Kind::get_reduce, src[i].count);
      added.peer = src[i].rank;
      added.src = src[i].cells;
      added.dst = dst[0].cells;
      added.sources = {i == 1 ? src[0].cells : dst[0].cells};
    }
    send_result(op, dst, 1, name_ == "rres", false);
  }

  // Its operations run over parts of chunks in turn, which is the same as over whole ones.
  void pipeline(const Json& op) {
    op.member("iter_context");
    for (const Json& inner : op.items("ops")) {
      if (inner.text("name") == "pipeline") refuse(inner, "stands within another one");
      this->op(inner);
      --step_;
    }
  }

  Plan plan_;
  std::vector<Listed> listed_;  // by rank
  uint32_t rank_ = 0;
  std::vector<uint32_t> channels_[channel_types], buffers_[channel_types];  // of the thread block: the gpu's numbers
  // Of the operation that is being read.
  std::string name_;
  uint32_t line_ = 0, step_ = 0, type_ = memory_channel;
  struct {
    uint32_t index, of;
  } share_{0, 1};
  uint64_t ops_ = 0;
  uint32_t parts_ = 1;  // of a chunk
};

}  // namespace

Plan read_mscclpp(const std::string& file, std::string_view text) { return PlanReader(file).read(text); }

}  // namespace tutti::plans
