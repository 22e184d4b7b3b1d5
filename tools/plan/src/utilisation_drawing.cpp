// SPDX-License-Identifier: Apache-2.0
//
// Links as strips of cells, one strip for each class: the darker, the busier.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "quantity.hpp"
#include "simulate.hpp"
#include "texts/texts.hpp"

namespace tutti::plan {
namespace {

constexpr double strip_left = 150, cell_width = 13, cell_height = 22, cell_top = 92;
constexpr uint32_t cells_of_a_row = 64, most_cells = 1024;

constexpr const char* strip_style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 12px; }
  .title { font-size: 18px; font-weight: 600; } .note { fill: #6b7785; } .paper { fill: #ffffff; }
  .cell { stroke: #d9dfe7; stroke-width: .6; }
  .u0 { fill: #f4f6f9; } .u1 { fill: #cfe3fb; } .u2 { fill: #9cc3ee; } .u3 { fill: #5f97d2; } .u4 { fill: #2f6fb5; }
  .u5 { fill: #b33a55; }
</style>
)";

const char* shade(double use) {
  constexpr std::pair<double, const char*> shades[] = {
      {0.01, "u0"}, {0.25, "u1"}, {0.5, "u2"}, {0.75, "u3"}, {0.9, "u4"}};
  for (const auto& [below, css] : shades)
    if (use < below) return css;
  return "u5";
}

// The busiest link of each cell's share of the links.
std::vector<double> cells_of(const Utilisation& of) {
  const size_t per_cell = (of.of_link.size() + most_cells - 1) / most_cells;
  std::vector<double> cells;
  for (size_t i = 0; i < of.of_link.size(); i += std::max<size_t>(per_cell, 1))
    cells.push_back(*std::max_element(of.of_link.begin() + long(i),
                                      of.of_link.begin() + long(std::min(i + per_cell, of.of_link.size()))));
  return cells;
}

std::string legend(double y) {
  constexpr std::pair<const char*, const char*> keys[] = {{"u0", "idle"},       {"u1", "below 25 %"},
                                                          {"u2", "below 50 %"}, {"u3", "below 75 %"},
                                                          {"u4", "below 90 %"}, {"u5", "90 % and more"}};
  std::string svg;
  double x = strip_left;
  for (const auto& [css, words] : keys) {
    svg += fmt::format(
        "<rect class=\"cell {}\" x=\"{}\" y=\"{}\" width=\"14\" height=\"14\"/><text x=\"{}\" y=\"{}\">{}"
        "</text>\n",
        css, x, y - 11, x + 20, y, words);
    x += 120;
  }
  return svg;
}

}  // namespace

std::string draw_utilisation(const Simulated& simulated, const NetworkFile& file) {
  const auto network = simulation::make_network(file.fabric_of(simulated.problem.nranks));
  std::string body = legend(66);
  double y = cell_top;
  for (const Utilisation& of : utilisations(simulated, *network)) {
    const std::vector<double> cells = cells_of(of);
    const size_t per_cell = (of.of_link.size() + most_cells - 1) / most_cells;
    body += fmt::format("<text x=\"24\" y=\"{}\">{}</text><text class=\"note\" x=\"24\" y=\"{}\">{} links{}</text>\n",
                        y + 15, texts::xml_escaped(of.name), y + 31, of.links,
                        per_cell > 1 ? fmt::format(", {} a cell", per_cell) : "");
    for (size_t i = 0; i < cells.size(); ++i)
      body += fmt::format(
          "<rect class=\"cell {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}: {:.1f} %"
          "</title></rect>\n",
          shade(cells[i]), strip_left + double(i % cells_of_a_row) * cell_width,
          y + double(i / cells_of_a_row) * cell_height, cell_width, cell_height,
          texts::xml_escaped(network->link_name(of.first + uint32_t(i * per_cell))), 100 * cells[i]);
    y += double(std::max<size_t>((cells.size() + cells_of_a_row - 1) / cells_of_a_row, 2)) * cell_height + 14;
  }
  const double width = strip_left + cells_of_a_row * cell_width + 24;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\">\n<title>{2}</title>\n{3}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"title\" x=\"24\" y=\"34\">{2}: utilisation of links in {4}</text>\n{5}</svg>\n",
      width, y + 10, texts::xml_escaped(simulated.title), strip_style, seconds_text(simulated.result.seconds), body);
}

}  // namespace tutti::plan
