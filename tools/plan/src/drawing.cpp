// SPDX-License-Identifier: Apache-2.0
//
// The drawing of steps. Rounds go from left to right; within a round columns are by the simulated order of the steps,
// and in one lane each step has a column of its own. Messages are curves with arrow heads, dependencies are dashed.
#include "drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "texts/texts.hpp"

namespace tutti::plan {
namespace {

constexpr double box_width = 74, box_height = 30, column_width = 96, row_height = 44, band_gap = 22, left = 96,
                 top = 112, right = 24;
constexpr double widest_page = 1500;
constexpr uint32_t most_lines = 32;  // ranks, in the drawing of rounds

constexpr const char* style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; }
  .title { font-size: 20px; font-weight: 600; } .rank { font-size: 14px; font-weight: 600; }
  .lane, .note { font-size: 11px; fill: #6b7785; } .label { font-size: 10.5px; text-anchor: middle; }
  .paper { fill: #ffffff; } .band { fill: #f4f6f9; } .row { stroke: #d9dfe7; stroke-width: 1; }
  .box { stroke-width: 1.3; } .heavy { stroke-width: 2.8; }
  .send { fill: #cfe3fb; stroke: #2f6fb5; } .recv { fill: #d5f0df; stroke: #2c8453; }
  .add { fill: #fde3c4; stroke: #b86a10; } .copy { fill: #e8dcf8; stroke: #7247ab; }
  .signal { fill: #f9d5dd; stroke: #b33a55; } .nop { fill: #e6e9ee; stroke: #7b8794; }
  .message { fill: none; stroke: #52606d; stroke-width: 1.2; opacity: .7; }
  .wait { fill: none; stroke: #a05a00; stroke-width: 1.4; stroke-dasharray: 4 3; }
  .head { fill: #52606d; } .wait-head { fill: #a05a00; } .way-head { fill: #c2255c; }
  .size { font-size: 9.5px; text-anchor: middle; fill: #52606d; paint-order: stroke; stroke: #ffffff; stroke-width: 3; }
  .round { font-size: 12px; fill: #52606d; text-anchor: middle; } .border { stroke: #b9c2cd; stroke-dasharray: 2 4; }
  .way { stroke: #c2255c; stroke-width: 3; opacity: 1; } .on { stroke: #c2255c; stroke-width: 3; }
  .off { opacity: .35; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; } .lane, .note { fill: #97a3b0; }
    .paper { fill: #14181d; } .band { fill: #1c222a; }
    .row { stroke: #303944; } .send { fill: #1d3a5c; stroke: #78b0f0; }
    .recv { fill: #1b4530; stroke: #74cf9c; } .add { fill: #573a14; stroke: #f0ae5c; }
    .copy { fill: #3b2b57; stroke: #bb98ee; } .signal { fill: #55222e; stroke: #ee8ba2; }
    .nop { fill: #2b333d; stroke: #97a3b0; } .message { stroke: #9aa8b6; }
    .wait { stroke: #f0b45a; } .head { fill: #9aa8b6; } .size { fill: #9aa8b6; stroke: #14181d; }
    .round { fill: #9aa8b6; } .border { stroke: #4a5563; } .way, .on { stroke: #ff7ba8; }
    .wait-head { fill: #f0b45a; } .way-head { fill: #ff7ba8; }
  }
</style>
)";

struct Look {
  const char* css;
  const char* legend;
};

Look look_of(uint32_t kind) {
  switch (kind) {
    case TUTTI_STEP_SEND:
      return {"send", "send"};
    case TUTTI_STEP_RECV:
      return {"recv", "recv"};
    case TUTTI_STEP_RECV_REDUCE:
      return {"add", "recv_reduce"};
    case TUTTI_STEP_REDUCE:
      return {"add", "reduce"};
    case TUTTI_STEP_COPY:
      return {"copy", "copy"};
    case TUTTI_STEP_SIGNAL:
      return {"signal", "signal, wait"};
    default:
      return {"nop", "nop"};
  }
}

std::string chunk_text(const tutti_span& span) {
  const char* buffer = span.buffer == TUTTI_BUFFER_IN ? "in" : span.buffer == TUTTI_BUFFER_OUT ? "out" : "tmp";
  return span.chunks == 1 ? fmt::format("{}[{}]", buffer, span.first)
                          : fmt::format("{}[{}..{}]", buffer, span.first, span.first + span.chunks - 1);
}

// Two short lines for a box.
std::pair<std::string, std::string> label_of(const Step& step) {
  const tutti_step& op = step.op;
  switch (op.kind) {
    case TUTTI_STEP_SEND:
      return {fmt::format("send \u2192 {}", op.peer), chunk_text(op.src)};
    case TUTTI_STEP_RECV:
      return {fmt::format("recv \u2190 {}", op.peer), chunk_text(op.dst)};
    case TUTTI_STEP_RECV_REDUCE:
      return {fmt::format("add \u2190 {}", op.peer), chunk_text(op.dst)};
    case TUTTI_STEP_COPY:
      return {"copy", chunk_text(op.src) + "\u2192" + chunk_text(op.dst)};
    case TUTTI_STEP_REDUCE:
      return {fmt::format("add {}", op.sources), chunk_text(op.dst)};
    case TUTTI_STEP_SIGNAL:
      return {op.flags & TUTTI_STEP_WAIT ? "wait" : "signal",
              fmt::format("{} {}", op.flags & TUTTI_STEP_WAIT ? "\u2190" : "\u2192", op.peer)};
    default:
      return {"nop", ""};
  }
}

class Drawing {
 public:
  Drawing(const Problem& problem, const std::vector<Schedule>& schedules, const StepTimes& times,
          const Movement& movement, bool follows)
      : schedules_(schedules), hosts_(problem.hosts), times_(times), movement_(movement), follows_(follows) {
    place_rows();
    place_columns();
  }
  double width() const { return std::max(left + columns_ * column_width + right, 840.0); }

  std::string text(const std::string& title) {
    const double width = this->width(), height = bottom_ + 16;
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" "
        "role=\"img\">\n<title>{2}</title>\n{3}"
        "<defs>{4}</defs>\n"
        "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"24\" y=\"38\">{2}</text>\n",
        width, height, texts::xml_escaped(title), style, heads());
    draw_legend();
    draw_bands(width);
    draw_axis();
    draw_curves();
    draw_boxes();
    svg_ += sizes_;
    return svg_ + "</svg>\n";
  }

 private:
  struct Point {
    double x, y;
  };

  static std::string heads() {
    std::string text;
    for (const char* head : {"head", "wait-head", "way-head"})
      text += fmt::format(
          "<marker id=\"{0}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
          "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"{0}\" d=\"M0 0L8 4L0 8z\"/></marker>",
          head);
    return text;
  }

  void place_rows() {
    double y = top;
    for (const Schedule& schedule : schedules_) {
      band_tops_.push_back(y);
      y += std::max<double>(1, double(schedule.lanes.size())) * row_height + band_gap;
    }
    bottom_ = y;
  }

  // Columns by simulated time; a step stands right of its lane's previous one, of its dependency, and of the send that
  // it receives.
  void place_columns() {
    struct Entry {
      double end;
      bool receives;
      uint32_t rank, lane, step;
    };
    std::vector<Entry> entries;
    for (uint32_t rank = 0; rank < times_.size(); ++rank)
      for (uint32_t lane = 0; lane < times_[rank].size(); ++lane) {
        column_[{rank, lane}].assign(times_[rank][lane].size(), 0);
        for (uint32_t step = 0; step < times_[rank][lane].size(); ++step)
          entries.push_back({times_[rank][lane][step].end, !sends(rank, lane, step), rank, lane, step});
      }
    const auto round_of = [this](const Entry& e) { return movement_.step_round[e.rank][e.lane][e.step]; };
    std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      if (round_of(a) != round_of(b)) return round_of(a) < round_of(b);
      return a.end != b.end ? a.end < b.end : a.step < b.step;
    });
    // Lane order and messages together may be a cycle (a receive that stands before the send that it answers): where
    // nothing else can be placed, the earliest step is, whether its message has been or not.
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> placed;
    const auto place = [&](const Entry& e, bool with_message) {
      const Step& step = schedules_[e.rank].lanes[e.lane][e.step];
      const tutti_step& op = step.op;
      if (placed[{e.rank, e.lane}] != e.step) return false;
      const uint32_t round = round_of(e);
      while (round_begins_.size() < round) round_begins_.push_back(columns_drawn_);
      uint32_t column = std::max(round_begins_[round - 1], e.step ? column_[{e.rank, e.lane}][e.step - 1] + 1 : 0);
      if (op.dependency_lane != TUTTI_NO_DEPENDENCY) {
        if (placed[{e.rank, op.dependency_lane}] <= op.dependency_step) return false;
        column = std::max(column, column_[{e.rank, op.dependency_lane}][op.dependency_step] + 1);
      }
      const uint32_t partner = times_[e.rank][e.lane][e.step].partner_step;
      if (e.receives && partner != TUTTI_NO_DEPENDENCY) {
        const bool there = placed[{op.peer, e.lane}] > partner;
        if (with_message && !there) return false;
        if (there) column = std::max(column, column_[{op.peer, e.lane}][partner] + 1);
      }
      column_[{e.rank, e.lane}][e.step] = column;
      ++placed[{e.rank, e.lane}];
      columns_ = columns_drawn_ = std::max(columns_drawn_, column + 1);
      return true;
    };
    while (!entries.empty()) {
      const size_t before = entries.size();
      std::erase_if(entries, [&](const Entry& e) { return place(e, true); });
      if (entries.size() < before) continue;
      const auto one = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return place(e, false); });
      if (one == entries.end()) return;  // cannot be in a verified schedule
      entries.erase(one);
    }
  }

  bool sends(uint32_t rank, uint32_t lane, uint32_t step) const {
    const tutti_step& op = schedules_[rank].lanes[lane][step].op;
    return op.kind == TUTTI_STEP_SEND || (op.kind == TUTTI_STEP_SIGNAL && !(op.flags & TUTTI_STEP_WAIT));
  }

  // The upper left corner of a step's box.
  Point corner(uint32_t rank, uint32_t lane, uint32_t step) const {
    return {left + column_.at({rank, lane})[step] * column_width + (column_width - box_width) / 2,
            band_tops_[rank] + lane * row_height + (row_height - box_height) / 2};
  }

  // A step of the kind, or with the flag.
  bool occurs(uint32_t kind, uint32_t flag = 0) const {
    for (const Schedule& schedule : schedules_)
      for (const auto& lane : schedule.lanes)
        for (const Step& step : lane)
          if (flag ? (step.op.flags & flag) != 0 : step.op.kind == kind) return true;
    return false;
  }
  bool has_dependencies() const {
    for (const Schedule& schedule : schedules_)
      for (const auto& lane : schedule.lanes)
        for (const Step& step : lane)
          if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY) return true;
    return false;
  }

  void draw_legend() {
    double x = 24;
    for (const uint32_t kind : {TUTTI_STEP_SEND, TUTTI_STEP_RECV, TUTTI_STEP_RECV_REDUCE, TUTTI_STEP_COPY,
                                TUTTI_STEP_SIGNAL, TUTTI_STEP_NOP}) {
      if (!occurs(kind) && !(kind == TUTTI_STEP_RECV_REDUCE && occurs(TUTTI_STEP_REDUCE))) continue;
      const Look look = look_of(kind);
      const char* text = kind == TUTTI_STEP_RECV_REDUCE ? "recv_reduce, reduce" : look.legend;
      svg_ += fmt::format(
          "<rect class=\"box {}\" x=\"{:.0f}\" y=\"53\" width=\"16\" height=\"12\" rx=\"3\"/><text class=\"note\" "
          "x=\"{:.0f}\" y=\"63\">{}</text>\n",
          look.css, x, x + 22, text);
      x += 40 + 6.2 * double(std::string(text).size());
    }
    svg_ += fmt::format(
        "<path class=\"message\" marker-end=\"url(#head)\" d=\"M{:.0f} 59h30\"/><text class=\"note\" x=\"{:.0f}\" "
        "y=\"63\">message, and its share of a block</text>\n",
        x, x + 36);
    x += 226;
    if (has_dependencies()) {
      svg_ += fmt::format(
          "<path class=\"wait\" marker-end=\"url(#wait-head)\" d=\"M{:.0f} 59h30\"/><text class=\"note\" x=\"{:.0f}\" "
          "y=\"63\">dependency</text>\n",
          x, x + 36);
      x += 112;
    }
    if (occurs(0, TUTTI_STEP_FINAL))
      svg_ += fmt::format(
          "<rect class=\"box heavy add\" x=\"{:.0f}\" y=\"53\" width=\"16\" height=\"12\" rx=\"3\"/><text "
          "class=\"note\" "
          "x=\"{:.0f}\" y=\"63\">completes a result</text>\n",
          x, x + 22);
    if (follows_)
      svg_ += fmt::format(
          "<path class=\"message way\" d=\"M24 80h30\"/><text class=\"note\" x=\"60\" y=\"84\">the way of the "
          "chunk</text>\n");
  }

  void draw_axis() {
    for (size_t round = 0; round < round_begins_.size(); ++round) {
      const double from = left + round_begins_[round] * column_width;
      const double to = left + (round + 1 < round_begins_.size() ? round_begins_[round + 1] : columns_) * column_width;
      svg_ += fmt::format("<text class=\"round\" x=\"{:.0f}\" y=\"{:.0f}\">round {}</text>", (from + to) / 2, top - 8,
                          round + 1);
      if (round)
        svg_ += fmt::format("<path class=\"border\" d=\"M{:.0f} {:.0f}V{:.0f}\"/>", from, top - 18, bottom_ - band_gap);
      svg_ += "\n";
    }
  }

  void draw_bands(double width) {
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank) {
      const size_t lanes = std::max<size_t>(1, schedules_[rank].lanes.size());
      const double y = band_tops_[rank];
      svg_ += fmt::format(
          "<rect class=\"band\" x=\"12\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"8\"/>"
          "<text class=\"rank\" x=\"24\" y=\"{:.0f}\">rank {}</text>\n",
          y, width - 24, double(lanes) * row_height, y + 18, rank);
      if (!hosts_.empty())
        svg_ += fmt::format("<text class=\"note\" x=\"24\" y=\"{:.0f}\">host {}</text>\n", y + 34, hosts_[rank]);
      for (size_t lane = 0; lane < lanes; ++lane) {
        const double middle = y + (double(lane) + .5) * row_height;
        svg_ += fmt::format("<path class=\"row\" d=\"M{:.0f} {:.1f}H{:.0f}\"/>", left, middle, width - 24);
        if (lanes > 1)
          svg_ += fmt::format("<text class=\"lane\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">lane {}</text>",
                              left - 8, middle + 12, lane);
      }
      svg_ += "\n";
    }
  }

  void curve(const char* css, const char* head, Point from, Point to, const std::string& size = "") {
    // Between rows: from the lower or upper edge to the facing one; within a row: from side to side.
    const double down = to.y > from.y ? 1 : to.y < from.y ? -1 : 0;
    const Point a = down == 0 ? Point{from.x + box_width, from.y + box_height / 2}
                              : Point{from.x + box_width * .5, from.y + (down > 0 ? box_height : 0)};
    const Point b = down == 0 ? Point{to.x, to.y + box_height / 2}
                              : Point{to.x + box_width * .5, to.y + (down > 0 ? 0 : box_height)};
    const double bend = std::max(18.0, std::abs(b.y - a.y) * .45) * down, sway = down == 0 ? (b.x - a.x) * .4 : 0;
    svg_ += fmt::format(
        "<path class=\"{}\" marker-end=\"url(#{})\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\"/>\n",
        css, head, a.x, a.y, a.x + sway, a.y + bend, b.x - sway, b.y - bend, b.x, b.y);
    if (size.empty()) return;
    // Beside the sender's box, where curves have not met others yet.
    sizes_ += fmt::format("<text class=\"size\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", a.x + (down == 0 ? 11 : 15),
                          a.y + (down == 0  ? -3
                                 : down > 0 ? 11
                                            : -5),
                          size);
  }

  void draw_curves() {
    for (const Message& m : movement_.messages)
      curve(m.followed ? "message way"
            : follows_ ? "message off"
                       : "message",
            m.followed ? "way-head" : "head", corner(m.from, m.lane, m.send), corner(m.to, m.lane, m.receive),
            m.blocks > 0 ? blocks_text(m.blocks) : "");
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank)
      for (uint32_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane)
        for (uint32_t i = 0; i < schedules_[rank].lanes[lane].size(); ++i) {
          const tutti_step& op = schedules_[rank].lanes[lane][i].op;
          if (op.dependency_lane != TUTTI_NO_DEPENDENCY)
            curve("wait", "wait-head", corner(rank, op.dependency_lane, op.dependency_step), corner(rank, lane, i));
        }
  }

  void draw_boxes() {
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank)
      for (uint32_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane)
        for (uint32_t i = 0; i < schedules_[rank].lanes[lane].size(); ++i) {
          const Step& step = schedules_[rank].lanes[lane][i];
          const auto [upper, lower] = label_of(step);
          const Point at = corner(rank, lane, i);
          svg_ += fmt::format(
              "<g><title>{}</title><rect class=\"box {}{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" "
              "height=\"{:.0f}\" rx=\"7\"/>",
              texts::xml_escaped(fmt::format("rank {} lane {} step {}: {}", rank, lane, i, describe(step))),
              look_of(step.op.kind).css,
              std::string(step.op.flags & TUTTI_STEP_FINAL ? " heavy" : "") +
                  (movement_.followed[rank][lane][i] ? " on" : ""),
              at.x, at.y, box_width, box_height);
          svg_ += fmt::format(
              "<text class=\"label\" x=\"{0:.1f}\" y=\"{1:.1f}\">{2}</text><text class=\"label\" x=\"{0:.1f}\" "
              "y=\"{3:.1f}\">{4}</text></g>\n",
              at.x + box_width / 2, at.y + 12.5, upper, at.y + 24.5, lower);
        }
  }

  const std::vector<Schedule>& schedules_;
  const std::vector<uint32_t> hosts_;
  const StepTimes& times_;
  const Movement& movement_;
  const bool follows_;
  std::vector<uint32_t> round_begins_;  // columns
  uint32_t columns_drawn_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> column_;
  std::vector<double> band_tops_;
  double bottom_ = 0;
  uint32_t columns_ = 1;
  std::string svg_, sizes_;
};

}  // namespace

std::string draw(const Problem& problem, const std::vector<Schedule>& schedules, const std::string& title,
                 const DrawingOptions& options) {
  const StepTimes times = simulation::step_times(problem, schedules, 1 << 20, 4);
  const Movement movement = find_movement(problem, schedules, times, options.follow);
  const bool follows = options.follow.has_value();
  const bool automatic = options.view == View::automatic, few = problem.nranks <= most_lines;
  if (options.view == View::steps || (automatic && few)) {
    Drawing drawing(problem, schedules, times, movement, follows);
    if (!automatic || drawing.width() <= widest_page) return drawing.text(title);
  }
  if (options.view == View::rounds || (automatic && few))
    return draw_rounds(movement, problem.nranks, problem.hosts, title, follows);
  return draw_matrix(movement, problem.nranks, title, follows);
}

}  // namespace tutti::plan
