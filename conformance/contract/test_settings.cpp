// SPDX-License-Identifier: Apache-2.0
#include "test_settings.hpp"

#include <tutti/plugin/test_settings.h>

#include <cstdlib>
#include <random>
#include <sstream>

namespace tutti::conformance::contract {

std::vector<TestSetting> test_settings(Bench& bench) {
  const auto* text = static_cast<const char*>(bench.entry()->get_interface(TUTTI_TEST_SETTINGS_ID, 0));
  if (!text) throw NotOffered{"it does not offer " TUTTI_TEST_SETTINGS_ID};
  std::vector<TestSetting> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    TestSetting one;
    std::istringstream words(line);
    const bool whole = static_cast<bool>(words >> one.name >> one.least >> one.most >> one.step);
    require(whole && one.name.starts_with("TUTTI_") && one.least <= one.most && one.step > 0, "E-11",
            "its list of settings has the line \"{}\"; expected: NAME LEAST MOST STEP", line);
    all.push_back(one);
  }
  require(!all.empty(), "E-11", "its list of settings is empty");
  return all;
}

uint64_t draw_value(const TestSetting& setting, uint64_t dice) {
  const uint64_t steps = (setting.most - setting.least) / setting.step, some = dice >> 8;
  uint64_t k = 0;
  switch (dice % 6) {
    case 0:
      break;
    case 1:
      k = steps;
      break;
    case 2:
      k = std::min<uint64_t>(steps, some % 20);
      break;
    case 3:
      k = steps - std::min<uint64_t>(steps, some % 20);
      break;
    default:
      k = std::min(steps, some >> some % 50);
      break;
  }
  return setting.least + k * setting.step;
}

std::string draw_settings(Bench& bench, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (const TestSetting& setting : test_settings(bench)) {
    const uint64_t dice = random();
    if (dice % 3 == 0) continue;
    const std::string value = std::to_string(draw_value(setting, dice / 3));
    setenv(setting.name.c_str(), value.c_str(), 1);
    text += (text.empty() ? "" : " ") + setting.name + "=" + value;
  }
  return text;
}

}  // namespace tutti::conformance::contract
