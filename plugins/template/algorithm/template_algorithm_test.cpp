// SPDX-License-Identifier: Apache-2.0
//
// A schedule is data, so an algorithm can be proved right before it ever moves a byte.
#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/schedule.h>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_template_algorithm;

namespace {

const tutti_algorithm& line() {
  return *static_cast<const tutti_algorithm*>(
      tutti_plugin_entry_template_algorithm.get_interface(TUTTI_ALGORITHM_ID, 0));
}

TEST(Line, IsProved) {
  for (uint32_t n = 1; n <= 16; ++n)
    for (uint32_t root = 0; root < n; ++root) {
      const tutti::Proof proof =
          tutti::verify_algorithm(line(), {.collective = TUTTI_BROADCAST, .nranks = n, .root = root});
      EXPECT_TRUE(proof.ok()) << n << " ranks, root " << root << ": " << proof.error;
      EXPECT_EQ(proof.messages, n - 1);
    }
}

TEST(Line, OffersNothingElse) {
  EXPECT_EQ(line().collectives, uint64_t{1} << TUTTI_BROADCAST);
  EXPECT_EQ(tutti_plugin_entry_template_algorithm.get_interface(TUTTI_ALGORITHM_ID, 1), nullptr);
  EXPECT_EQ(tutti_plugin_entry_template_algorithm.get_interface("tutti.transport/1", 0), nullptr);
}

}  // namespace
