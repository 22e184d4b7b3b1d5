// SPDX-License-Identifier: Apache-2.0
//
// Drawings of messages: as arrows between the lines of ranks, or as cells of a matrix for each round.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "drawing.hpp"
#include "texts/texts.hpp"

namespace tutti::plan {
namespace {

constexpr const char* message_style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; }
  .title { font-size: 20px; font-weight: 600; } .rank { font-size: 13px; font-weight: 600; }
  .note { font-size: 11px; fill: #6b7785; } .round { font-size: 11px; fill: #52606d; text-anchor: middle; }
  .size { font-size: 9.5px; text-anchor: middle; fill: #52606d; paint-order: stroke; stroke: #ffffff; stroke-width: 3; }
  .paper { fill: #ffffff; } .panel { fill: #f1f4f8; } .line { stroke: #c9d1da; stroke-width: 2; }
  .border { stroke: #d9dfe7; stroke-dasharray: 2 4; }
  .message { fill: none; stroke: #2f6fb5; stroke-width: 1.6; } .add { stroke: #b86a10; }
  .way { stroke: #c2255c; stroke-width: 3.2; } .off { opacity: .22; }
  .head { fill: #2f6fb5; } .add-head { fill: #b86a10; } .way-head { fill: #c2255c; }
  .cell { fill: #2f6fb5; } .cell-add { fill: #b86a10; } .cell-way { fill: #c2255c; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; } .note { fill: #97a3b0; } .round { fill: #9aa8b6; } .size { fill: #9aa8b6; stroke: #14181d; }
    .paper { fill: #14181d; } .panel { fill: #1c222a; } .line { stroke: #3b4652; } .border { stroke: #303944; }
    .message { stroke: #78b0f0; } .add { stroke: #f0ae5c; } .way { stroke: #ff7ba8; }
    .head, .cell { fill: #78b0f0; } .add-head, .cell-add { fill: #f0ae5c; } .way-head, .cell-way { fill: #ff7ba8; }
  }
</style>
)";

std::string begin_of(double width, double height, const std::string& title) {
  std::string markers;
  for (const char* head : {"head", "add-head", "way-head"})
    markers += fmt::format(
        "<marker id=\"{0}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
        "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"{0}\" d=\"M0 0L8 4L0 8z\"/></marker>",
        head);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\">\n<title>{2}</title>\n{3}<defs>{4}</defs>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"title\" x=\"24\" y=\"36\">{2}</text>\n",
      width, height, texts::xml_escaped(title), message_style, markers);
}

// The rounds that are shown: all, or the first and the last of many. 0 stands for those between.
std::vector<uint32_t> rounds_shown(uint32_t rounds, uint32_t most) {
  std::vector<uint32_t> shown;
  for (uint32_t round = 1; round <= rounds; ++round) {
    const bool between = rounds > most && round > most * 2 / 3 && round + most / 3 - 1 < rounds;
    if (!between)
      shown.push_back(round);
    else if (shown.back() != 0)
      shown.push_back(0);
  }
  return shown;
}

std::string sizes_text(const std::set<std::string>& sizes) {
  if (sizes.size() == 1) return *sizes.begin();
  return sizes.empty() ? "" : fmt::format("{} sizes", sizes.size());
}

// The messages of each round, by its number.
std::vector<std::vector<const Message*>> by_round(const Movement& movement) {
  std::vector<std::vector<const Message*>> rounds(movement.rounds + 1);
  for (const Message& message : movement.messages) rounds[message.round].push_back(&message);
  return rounds;
}

// All messages of a round from one rank to another: "1/8 + 3/8".
struct Arrow {
  const Message* message = nullptr;
  std::string sizes;
  bool followed = false;
};
std::vector<Arrow> arrows_of(std::vector<const Message*> messages) {
  std::stable_sort(messages.begin(), messages.end(), [](const Message* a, const Message* b) {
    return std::pair(a->from, a->to) < std::pair(b->from, b->to);
  });
  std::vector<Arrow> arrows;
  for (const Message* m : messages) {
    const bool same = !arrows.empty() && arrows.back().message->from == m->from && arrows.back().message->to == m->to;
    if (!same) arrows.push_back({m, "", false});
    arrows.back().sizes += (same ? " + " : "") + blocks_text(m->blocks);
    arrows.back().followed |= m->followed;
  }
  return arrows;
}

// What colours mean.
std::string legend(const Movement& movement, bool follows, const char* first) {
  const auto any = [&](bool reduces) {
    return std::any_of(movement.messages.begin(), movement.messages.end(),
                       [&](const Message& m) { return m.reduces == reduces; });
  };
  double x = 24 + 6.2 * double(std::string(first).size());
  std::string svg = fmt::format("<text class=\"note\" x=\"24\" y=\"62\">{}</text>\n", first);
  const auto entry = [&](const char* css, const char* text) {
    svg += fmt::format(
        "<path class=\"message {}\" d=\"M{:.0f} 58h26\"/><text class=\"note\" x=\"{:.0f}\" y=\"62\">{}</text>\n", css,
        x, x + 32, text);
    x += 56 + 6.2 * double(std::string(text).size());
  };
  if (any(false)) entry("", "stored by the receiver");
  if (any(true)) entry("add", "added by the receiver");
  if (follows) entry("way", "the way of the chunk");
  return svg;
}

}  // namespace

std::string draw_rounds(const Movement& movement, uint32_t nranks, const std::vector<uint32_t>& hosts,
                        const std::string& title, bool follows) {
  constexpr uint32_t most_rounds = 30;
  constexpr size_t most_labels = 160;
  constexpr double left = 120, top = 112, page = 1320;
  const std::vector<uint32_t> shown = rounds_shown(movement.rounds, most_rounds);
  const auto rounds = by_round(movement);
  const double column =
      std::clamp(page / double(std::max<size_t>(1, shown.size())), 44.0, shown.size() > 4 ? 150.0 : 300.0);
  const double row = std::clamp(620.0 / nranks, 16.0, 64.0);
  const double right = left + column * double(shown.size()), bottom = top + row * nranks;
  const auto line = [&](uint32_t rank) { return top + row * (rank + .5); };
  std::string svg = begin_of(std::max(right + 24, 760.0), bottom + 16, title);
  svg += legend(movement, follows, "numbers: share of a block;");
  for (uint32_t rank = 0; rank < nranks; ++rank)
    svg += fmt::format(
        "<text class=\"rank\" x=\"24\" y=\"{:.1f}\">rank {}{}</text><path class=\"line\" d=\"M{:.0f} "
        "{:.1f}H{:.0f}\"/>\n",
        line(rank) + 4, rank, hosts.empty() ? "" : fmt::format(", host {}", hosts[rank]), left, line(rank), right);
  size_t labels = 0;
  for (const uint32_t round : shown) labels += rounds[round].size();
  std::string arrows, sizes;
  for (size_t i = 0; i < shown.size(); ++i) {
    const double from = left + column * double(i), to = from + column;
    if (i) svg += fmt::format("<path class=\"border\" d=\"M{:.1f} {:.0f}V{:.0f}\"/>\n", from, top - 26, bottom);
    if (shown[i] == 0) {
      svg += fmt::format("<text class=\"round\" x=\"{:.1f}\" y=\"{:.0f}\">...</text>\n", (from + to) / 2, top - 14);
      continue;
    }
    const std::vector<Arrow> all = arrows_of(rounds[shown[i]]);
    std::set<std::string> texts;
    for (const Arrow& arrow : all) texts.insert(arrow.sizes);
    const bool each = texts.size() > 1 && labels <= most_labels;
    svg += fmt::format(
        "<text class=\"round\" x=\"{0:.1f}\" y=\"{1:.0f}\">{2}{3}</text><text class=\"round\" x=\"{0:.1f}\" "
        "y=\"{4:.0f}\">{5}</text>\n",
        (from + to) / 2, top - 18, column >= 70 ? "round " : "", shown[i], top - 4, each ? "" : sizes_text(texts));
    for (const bool way : {false, true})  // the way lies above
      for (const Arrow& arrow : all) {
        const Message& m = *arrow.message;
        if (arrow.followed != way) continue;
        const double a = from + column * .1, b = to - column * .1, y = line(m.from), z = line(m.to);
        const char* look = way ? "message way" : m.reduces ? "message add" : "message";
        const char* head = way ? "way-head" : m.reduces ? "add-head" : "head";
        arrows += fmt::format(
            "<path class=\"{}{}\" marker-end=\"url(#{})\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"><title>rank {} to rank "
            "{}: "
            "{} of a block</title></path>\n",
            look, follows && !way ? " off" : "", head, a, y, b, z, m.from, m.to, arrow.sizes);
        if (each)
          sizes += fmt::format("<text class=\"size\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", a + (b - a) * .2,
                               y + (z - y) * .2 + 3, arrow.sizes);
      }
  }
  return svg + arrows + sizes + "</svg>\n";
}

std::string draw_matrix(const Movement& movement, uint32_t nranks, const std::string& title, bool follows) {
  constexpr uint32_t most_rounds = 24, across = 6;
  constexpr double top = 100, gap = 40;
  const std::vector<uint32_t> shown = rounds_shown(movement.rounds, most_rounds);
  const auto rounds = by_round(movement);
  const double cell = std::max(1.0, std::floor(192.0 / nranks)), side = cell * nranks, pitch = side + gap;
  double largest = 0;
  for (const Message& m : movement.messages) largest = std::max(largest, m.blocks);
  const size_t columns = std::min<size_t>(across, std::max<size_t>(1, shown.size()));
  const double rows = std::ceil(double(shown.size()) / double(columns));
  std::string svg = begin_of(std::max(24 + pitch * double(columns), 820.0), top + pitch * rows, title);
  svg += legend(movement, follows,
                "a row sends, a column receives, both from rank 0 in the upper left corner; darker is more;");
  for (size_t i = 0; i < shown.size(); ++i) {
    const double x = 24 + pitch * double(i % columns), y = top + pitch * std::floor(double(i) / double(columns));
    if (shown[i] == 0) {
      svg += fmt::format("<text class=\"round\" x=\"{:.0f}\" y=\"{:.0f}\">... {} more rounds ...</text>\n",
                         x + side / 2, y + side / 2, movement.rounds - shown.size() + 1);
      continue;
    }
    std::vector<const Message*> messages = rounds[shown[i]];
    std::set<std::string> texts;
    for (const Message* m : messages) texts.insert(blocks_text(m->blocks));
    svg += fmt::format(
        "<text class=\"round\" x=\"{:.0f}\" y=\"{:.0f}\">round {}: {}</text><rect class=\"panel\" x=\"{:.0f}\" "
        "y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n",
        x + side / 2, y - 6, shown[i], sizes_text(texts), x, y, side, side);
    std::sort(messages.begin(), messages.end(),
              [](const Message* a, const Message* b) { return std::pair(a->from, a->to) < std::pair(b->from, b->to); });
    const auto look = [&](const Message* m) {
      const double shade = largest > 0 ? .3 + .7 * m->blocks / largest : 1;
      return fmt::format("class=\"cell{}{}\" opacity=\"{:.2g}\"",
                         m->followed  ? "-way"
                         : m->reduces ? "-add"
                                      : "",
                         follows && !m->followed ? " off" : "", shade);
    };
    // Neighbours in a row that look alike are one rectangle.
    for (size_t first = 0, last; first < messages.size(); first = last) {
      for (last = first + 1; last < messages.size() && messages[last]->from == messages[first]->from &&
                             messages[last]->to == messages[last - 1]->to + 1 &&
                             look(messages[last]) == look(messages[first]);)
        ++last;
      svg += fmt::format("<rect {} x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n",
                         look(messages[first]), x + cell * messages[first]->to, y + cell * messages[first]->from,
                         cell * double(last - first), cell);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::plan
