// SPDX-License-Identifier: Apache-2.0
//
// Samples with one edit each: refused, with the place and the reason.
#include <gtest/gtest.h>

#include "imported.hpp"

namespace tutti::test {
namespace {

struct Edit {
  const char* name;
  const char* sample;
  const char* from;  // its first occurrence ...
  const char* to;    // ... becomes this
  const char* error;  // what the error says, from the line on
};

const Edit edits[] = {
    {"no_xml", "all_gather.xml", "</gpu>", "</gp>", "9: is not XML: mismatched tag"},
};

class WrongPlans : public testing::TestWithParam<Edit> {};

TEST_P(WrongPlans, AreRefusedWithTheirPlace) {
  const Edit& edit = GetParam();
  std::string text = content(std::string(SAMPLES) + "/" + edit.sample);
  const size_t at = text.find(edit.from);
  ASSERT_NE(at, text.npos) << "the sample has no " << edit.from;
  text.replace(at, std::string(edit.from).size(), edit.to);
  const std::string file = write_plan(edit.sample, text);
  EXPECT_TRUE(import(file).empty());
  EXPECT_NE(import_error.find(file + ":" + edit.error), std::string::npos) << import_error;
}

INSTANTIATE_TEST_SUITE_P(Edits, WrongPlans, testing::ValuesIn(edits), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::test
