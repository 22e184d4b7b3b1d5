// SPDX-License-Identifier: Apache-2.0
#include "svg_head.hpp"

#include <fmt/format.h>

#include "texts/texts.hpp"

namespace trace {
namespace {

constexpr const char* style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 11px; }
  .title { font-size: 20px; font-weight: 600; } .rank { font-size: 13px; font-weight: 600; }
  .note { fill: #6b7785; } .late { fill: #b3362b; font-weight: 600; }
  .paper { fill: #ffffff; } .band { fill: #f4f6f9; } .grid { stroke: #d9dfe7; }
  .call { fill: #cfe3fb; stroke: #2f6fb5; stroke-width: .8; } .many { fill: #a9cbf2; }
  .send { fill: #e8dcf8; stroke: #7247ab; stroke-width: .8; } .wait { fill: #d9534a; }
  .part { fill: #d8efdc; stroke: #3a8a4d; stroke-width: .8; } .join { stroke: #8a96a5; stroke-width: 1.5; }
  .message { stroke: #7247ab; stroke-width: 1.4; } .tip { fill: #7247ab; }
  .up { stroke: #c0651a; } .tip.up { fill: #c0651a; stroke: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; } .note { fill: #97a3b0; } .late { fill: #ff8d80; }
    .paper { fill: #14181d; } .band { fill: #1c222a; } .grid { stroke: #303944; }
    .call { fill: #1d3a5c; stroke: #78b0f0; } .many { fill: #35618f; }
    .send { fill: #3b2b57; stroke: #bb98ee; } .wait { fill: #e0685f; }
    .part { fill: #1f4028; stroke: #7fcf92; } .join { stroke: #6b7785; }
    .message { stroke: #bb98ee; } .tip { fill: #bb98ee; } .up { stroke: #f0a060; } .tip.up { fill: #f0a060; }
  }
</style>
)";

}  // namespace

std::string svg_head(double width, double height, const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}<rect class=\"paper\" width=\"100%\" "
      "height=\"100%\"/>\n<text class=\"title\" x=\"24\" y=\"36\">{2}</text>\n",
      width, height, texts::xml_escaped(title), style);
}

}  // namespace trace
