// SPDX-License-Identifier: Apache-2.0
//
// The settings that a plugin declares: their limits, and random walks with them.
#include <cstdlib>

#include "contract_case.hpp"
#include "test_settings.hpp"

namespace tutti::conformance::contract {
namespace {

// The refusal of open_domain or query when the setting has this value; "": both take it.
std::string refusal(Bench& bench, const TestSetting& setting, const std::string& value) {
  const tutti_transport* t = bench.transport();
  setenv(setting.name.c_str(), value.c_str(), 1);
  tutti_domain_config of{};
  of.struct_size = sizeof of;
  tutti_domain* domain = nullptr;
  tutti_status status = call("open_domain", true, [&] { return t->open_domain(t->self, &of, &domain); });
  if (status == TUTTI_OK) {
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    status = call("query", true, [&] { return t->query(domain, &caps); });
    plain_call("close_domain", true, [&] { t->close_domain(domain); });
  }
  unsetenv(setting.name.c_str());
  return status == TUTTI_OK ? "" : last_error();
}

void limits(Bench& bench) {
  for (const TestSetting& setting : test_settings(bench)) {
    for (const uint64_t value : {setting.least, setting.most, draw_value(setting, bench.seed * 6 + 4)}) {
      const std::string error = refusal(bench, setting, std::to_string(value));
      require(error.empty(), "E-11", "{}={} is refused, and the plugin declares {} to {}: {}", setting.name, value,
              setting.least, setting.most, error);
    }
    std::vector<std::string> wrong{"", "x", "1x", "-1", "99999999999999999999"};
    if (setting.least > 0) wrong.push_back(std::to_string(setting.least - 1));
    if (setting.most < UINT64_MAX) wrong.push_back(std::to_string(setting.most + 1));
    if (setting.step > 1) wrong.push_back(std::to_string(setting.least + 1));
    for (const std::string& value : wrong) {
      const std::string error = refusal(bench, setting, value);
      require(!error.empty(), "E-11", "{}=\"{}\" is accepted, and the plugin declares {} to {} in steps of {}",
              setting.name, value, setting.least, setting.most, setting.step);
      require(error.find(setting.name) != std::string::npos, "E-11",
              "the error of {}=\"{}\" does not name the setting: {}", setting.name, value, error);
    }
  }
}

}  // namespace

std::vector<ContractCase> settings_cases() {
  return {{"settings", "the limits of the settings that the plugin declares", {"E-11"}, 3, limits}};
}

}  // namespace tutti::conformance::contract
