// SPDX-License-Identifier: Apache-2.0
#include "ib_ranks.hpp"
#include "model/adapters.hpp"

namespace tutti_test {

bool cables_are_here() { return true; }
bool cables_are_modelled() { return true; }
uint64_t packets(int interface) { return model::counts("rxe" + std::to_string(interface)).packets; }
void cable(int rail, const std::string& state) { model::set_cable(rail, state == "up"); }
void lose_everything(bool on) {
  model::change("rxe0", [&](model::Manners& manners) { manners.loses_everything = on; });
}
std::function<int()> watch_traffic_class() {
  const uint64_t before = model::counts("rxe0").sends;
  return [before] {
    const model::Counts counts = model::counts("rxe0");
    return counts.sends > before ? counts.traffic_class : -1;
  };
}
void renew_cables(bool dma_buf) {
  std::vector<model::Adapter> adapters = model::two_cables();
  for (model::Adapter& adapter : adapters) adapter.has_dma_buf = dma_buf;
  model::install(adapters);
}

}  // namespace tutti_test
