// SPDX-License-Identifier: Apache-2.0
#include "sequence_svg.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cmath>

#include "findings.hpp"
#include "svg_head.hpp"
#include "texts/texts.hpp"

namespace trace {
namespace {

// 47184 as "47,184".
std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

class SequencePicture {
 public:
  explicit SequencePicture(const Sequence& sequence) : sequence_(sequence) {
    places_ = std::min(sequence.places, most_places);
    std::vector<bool> has_call(places_);
    each([&](size_t, const Event& event) {
      if (event.kind == Event::Kind::call) has_call[event.place] = true;
    });
    double at = left;
    for (size_t place = 0; place < places_; ++place) {
      const double width = has_call[place] ? wide : narrow;
      middle_.push_back(at + width / 2);
      at += width;
    }
    width_ = std::max(at + right, 520.0);
  }

  std::string text() {
    const double height = top + double(sequence_.ranks.size()) * row_height + 12;
    svg_ = svg_head(width_, height, title());
    draw_legend();
    for (size_t row = 0; row < sequence_.ranks.size(); ++row)
      svg_ += fmt::format(
          "<text class=\"rank\" x=\"24\" y=\"{0:.0f}\">rank {1}</text><path class=\"grid\" d=\"M{2:.0f} "
          "{3:.0f}H{4:.0f}\"/>\n",
          y(row) + 4, sequence_.ranks[row], left - 8, y(row), width_ - right);
    each([&](size_t row, const Event& event) {
      if (event.kind == Event::Kind::call) draw_join(row, event);
    });
    each([&](size_t row, const Event& event) {
      if (event.kind == Event::Kind::call)
        draw_call(row, event);
      else
        draw_message(row, event);
    });
    return svg_ + "</svg>\n";
  }

 private:
  static constexpr double left = 92, right = 24, top = 84, row_height = 62, box_height = 44, wide = 112, narrow = 30;

  template <typename Body>
  void each(Body&& body) const {
    for (size_t row = 0; row < sequence_.events.size(); ++row)
      for (const Event& event : sequence_.events[row])
        if (event.place < places_) body(row, event);
  }
  double y(size_t row) const { return top + (double(row) + .5) * row_height; }
  // The row of a rank; SIZE_MAX: it has none.
  size_t row_of(uint32_t rank) const {
    const auto found = std::ranges::find(sequence_.ranks, rank);
    return found == sequence_.ranks.end() ? SIZE_MAX : size_t(found - sequence_.ranks.begin());
  }

  std::string title() const {
    std::string text = fmt::format("{}: {} ranks", sequence_.program, sequence_.ranks.size());
    if (places_ < sequence_.places) text += fmt::format(", the first {} of {} places", places_, sequence_.places);
    return text;
  }

  void draw_legend() {
    bool calls = false, parts = false, down = false, up = false;
    each([&](size_t row, const Event& event) {
      (event.kind != Event::Kind::call ? (row_of(event.peer) > row) == (event.kind == Event::Kind::send) ? down : up
       : event.communicator.empty()    ? calls
                                       : parts) = true;
    });
    double at = 24;
    const auto entry = [&](bool present, const std::string& shape, const std::string& text) {
      if (!present) return;
      svg_ += fmt::format(
          "<g transform=\"translate({:.0f} 52)\">{}</g><text class=\"note\" x=\"{:.0f}\" y=\"61\">{}</text>\n", at,
          shape, at + 26, text);
      at += 48 + 6.1 * double(text.size());
    };
    entry(calls, R"(<rect class="call" width="18" height="10" rx="2"/>)", "call of all ranks");
    entry(parts, R"(<rect class="part" width="18" height="10" rx="2"/>)", "call of another communicator");
    entry(down, R"(<path class="message" d="M0 5H18"/>)", "message to a higher rank");
    entry(up, R"(<path class="message up" d="M0 5H18"/>)", "to a lower one");
    svg_ += fmt::format("<text class=\"note\" x=\"{:.0f}\" y=\"61\">order, not time</text>\n", at);
  }

  // The line behind the boxes of one call: from its first rank to its last.
  void draw_join(size_t row, const Event& event) {
    if (event.ranks.empty() || event.ranks.front() != sequence_.ranks[row]) return;
    const size_t last = row_of(event.ranks.back());
    if (last <= row) return;
    // Calls of several communicators may share a place: each has a line of its own.
    const double x = middle_[event.place] + 10 * double(row % 4) - 15;
    svg_ += fmt::format("<path class=\"join\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"/>\n", x, y(row), y(last));
  }

  void draw_call(size_t row, const Event& event) {
    const double x = middle_[event.place] - wide / 2 + 5, above = y(row) - box_height / 2;
    const std::string whole = call_text(event.call), name = whole.substr(0, whole.find('('));
    svg_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "rx=\"4\"><title>{}</title></rect>\n",
        event.communicator.empty() ? "call" : "part", x, above, wide - 10, box_height, texts::xml_escaped(whole));
    const auto line = [&](const char* css, double down, const std::string& text) {
      svg_ += fmt::format("<text{} x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n", css, x + 5, above + down,
                          texts::xml_escaped(text));
    };
    line("", 15, name);
    if (event.call.count > 0)
      line(" class=\"note\"", 28, fmt::format("{} {}", grouped(event.call.count), tutti::dtype_name(event.call.dtype)));
    if (!event.communicator.empty()) line(" class=\"note\"", 40, event.communicator);
  }

  void draw_message(size_t row, const Event& event) {
    const size_t other = row_of(event.peer);
    if (event.kind != Event::Kind::send || other == SIZE_MAX) return;
    const size_t end = std::min(event.place_of_receive.value_or(event.place + 1), places_ - 1);
    const double x1 = middle_[event.place], y1 = y(row), x2 = middle_[end], y2 = y(other);
    const double length = std::hypot(x2 - x1, y2 - y1), dx = (x2 - x1) / length, dy = (y2 - y1) / length;
    const char* up = other < row ? " up" : "";
    svg_ += fmt::format(
        "<path class=\"message{0}\" d=\"M{1:.1f} {2:.1f}L{3:.1f} {4:.1f}\"><title>rank {5} to rank {6}: {7} bytes, tag "
        "{8}"
        "</title></path><path class=\"tip{0}\" d=\"M{3:.1f} {4:.1f}L{9:.1f} {10:.1f}L{11:.1f} {12:.1f}Z\"/>\n",
        up, x1, y1, x2, y2, sequence_.ranks[row], event.peer, grouped(event.bytes), event.tag, x2 - 8 * dx + 3.5 * dy,
        y2 - 8 * dy - 3.5 * dx, x2 - 8 * dx - 3.5 * dy, y2 - 8 * dy + 3.5 * dx);
  }

  const Sequence& sequence_;
  size_t places_ = 0;
  std::vector<double> middle_;  // of each place
  double width_ = 0;
  std::string svg_;
};

}  // namespace

std::string sequence_svg(const Sequence& sequence) { return SequencePicture(sequence).text(); }

}  // namespace trace
