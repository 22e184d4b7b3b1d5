// SPDX-License-Identifier: Apache-2.0
#include "timeline_svg.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cmath>

#include "svg_head.hpp"
#include "texts/texts.hpp"

namespace trace {
namespace {

constexpr double left = 112, right = 24, top = 96, width = 1120, plot = width - left - right;

// 1, 2 or 5 times a power of ten, so that the window has at most ten ticks.
double tick_of(double window) {
  const double least = window / 10, power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1., 2., 5.})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

std::string time_text(double ns, double unit) {
  return unit >= 1e9   ? fmt::format("{:g} s", ns / 1e9)
         : unit >= 1e6 ? fmt::format("{:g} ms", ns / 1e6)
                       : fmt::format("{:g} us", ns / 1e3);
}

class Picture {
 public:
  Picture(const Group& group, const Findings& findings, Span window)
      : group_(group), findings_(findings), window_(window), ranks_(chosen()) {
    row_ = std::clamp(600.0 / double(std::max<size_t>(1, ranks_.size())), 14.0, 44.0);
  }

  std::string text() {
    const double bottom = top + double(ranks_.size()) * row_;
    svg_ = svg_head(width, bottom + 40, title());
    draw_legend();
    draw_axis(bottom);
    for (size_t i = 0; i < ranks_.size(); ++i) draw_rank(*ranks_[i], top + double(i) * row_);
    return svg_ + "</svg>\n";
  }

 private:
  // All ranks, or those that were waited for most, by rank.
  std::vector<const RankTrace*> chosen() const {
    std::vector<const RankTrace*> ranks;
    for (const RankTrace& rank : group_.ranks) ranks.push_back(&rank);
    if (ranks.size() <= most_rows) return ranks;
    const auto blamed = [this](const RankTrace* r) {
      const RankFindings* f = findings_.find(r->rank);
      return f ? f->blamed_ns() : 0;
    };
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](const RankTrace* a, const RankTrace* b) { return blamed(a) > blamed(b); });
    ranks.resize(most_rows);
    std::sort(ranks.begin(), ranks.end(), [](const RankTrace* a, const RankTrace* b) { return a->rank < b->rank; });
    return ranks;
  }

  std::string title() const {
    std::string text = fmt::format("{}: {} ranks", group_.name, group_.nranks);
    if (ranks_.size() < group_.ranks.size()) text += fmt::format(", the {} most waited for", ranks_.size());
    return text;
  }

  double x(int64_t ns) const {
    return left + plot * double(ns - window_.begin) / double(std::max<int64_t>(1, window_.length()));
  }

  void draw_legend() {
    double at = 24;
    for (const auto& [css, text] : {std::pair{"call", "collective"},
                                    {"many", "several, too short to tell apart"},
                                    {"send", "send, receive"},
                                    {"wait", "waits: nothing moves"}}) {
      svg_ += fmt::format(
          "<rect class=\"{}\" x=\"{:.0f}\" y=\"52\" width=\"16\" height=\"10\" rx=\"2\"/><text class=\"note\" "
          "x=\"{:.0f}\" y=\"61\">{}</text>\n",
          css, at, at + 22, text);
      at += 44 + 6.1 * double(std::string(text).size());
    }
    if (!findings_.straggler) return;
    const RankFindings& f = *findings_.find(*findings_.straggler);
    svg_ += fmt::format("<text class=\"late\" x=\"{:.0f}\" y=\"61\">others waited {} for rank {}</text>\n", at,
                        time_text(std::round(double(f.blamed_ns()) / 1e4) * 1e4, 1e6), f.rank);
  }

  void draw_axis(double bottom) {
    const double tick = tick_of(double(window_.length()));
    for (double at = std::ceil(double(window_.begin) / tick) * tick; at <= double(window_.end); at += tick) {
      const double where = x(static_cast<int64_t>(at));
      svg_ += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"/><text class=\"note\" x=\"{0:.1f}\" y=\"{3:.0f}\" "
          "text-anchor=\"middle\">{4}</text>\n",
          where, top - 6, bottom, bottom + 18, time_text(at, tick));
    }
  }

  void box(const char* css, double from, double to, double y, double height, const std::string& tip) {
    svg_ += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", css, from, y,
                        std::max(to - from, .3), height);
    svg_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", texts::xml_escaped(tip));
  }

  // Draws spans in the order of their begin; those too narrow to be told apart as one.
  template <typename T, typename Draw, typename Blur>
  void draw_spans(const std::vector<T>& spans, Draw&& draw, Blur&& blur) const {
    constexpr double narrow = 1.5, gap = 1;
    double from = 0, to = -1;
    const auto finish = [&] {
      if (to >= from) blur(from, std::max(to, from + .3));
      to = -1;
    };
    for (const T& span : spans) {
      if (span.end < window_.begin || span.begin > window_.end) continue;
      const double a = std::max(x(span.begin), left), b = std::min(x(span.end), width - right);
      if (b - a >= narrow) {
        draw(span, a, b);
        continue;
      }
      if (to < 0 || a > to + gap) {
        finish();
        from = a;
      }
      to = std::max(to, b);
    }
    finish();
  }

  void draw_rank(const RankTrace& rank, double y) {
    const bool late = findings_.straggler == rank.rank;
    svg_ += fmt::format(
        "<rect class=\"band\" x=\"12\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\" rx=\"6\"/><text class=\"{}\" "
        "x=\"24\" y=\"{:.1f}\">rank {}{}</text>\n",
        y + 1, width - 24, row_ - 2, late ? "late" : "rank", y + row_ / 2 + 4, rank.rank, late ? " (late)" : "");
    const double upper = y + row_ * .12, height = row_ * .5, lower = y + row_ * .66, low = row_ * .2;
    draw_spans(
        rank.calls,
        [&](const Call& call, double a, double b) {
          const std::string text = call_text(call);
          box("call", a, b, upper, height,
              fmt::format("{} {}: {:.1f} us, {} {}", number_text(call), text, double(call.length()) / 1e3,
                          call.algorithm, call.transports));
          const std::string name = text.substr(0, text.find('('));
          if (b - a > 7.0 * double(name.size()) && row_ >= 24)
            svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", a + 4, upper + height / 2 + 4, name);
        },
        [&](double a, double b) { box("many", a, b, upper, height, ""); });
    draw_spans(
        rank.transfers,
        [&](const Transfer& t, double a, double b) {
          box("send", a, b, upper, height,
              fmt::format("{} rank {}, tag {}: {} bytes, {:.1f} us", t.sending ? "send to" : "receive from", t.peer,
                          t.tag, t.bytes, double(t.length()) / 1e3));
        },
        [&](double a, double b) { box("many", a, b, upper, height, ""); });
    draw_spans(
        rank.waits,
        [&](const Step& wait, double a, double b) {
          box("wait", a, b, lower, low,
              wait.peer == UINT32_MAX ? fmt::format("{:.1f} us", double(wait.length()) / 1e3)
                                      : fmt::format("{:.1f} us for rank {}", double(wait.length()) / 1e3, wait.peer));
        },
        [&](double a, double b) { box("wait", a, b, lower, low, ""); });
  }

  const Group& group_;
  const Findings& findings_;
  const Span window_;
  const std::vector<const RankTrace*> ranks_;
  double row_ = 44;
  std::string svg_;
};

}  // namespace

std::string timeline_svg(const Group& group, const Findings& findings, Span window) {
  return Picture(group, findings, window).text();
}

}  // namespace trace
