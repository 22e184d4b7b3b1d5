// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tutti/sdk/name_list.hpp>

namespace tutti {
namespace {

using Names = std::vector<std::string>;

struct Good {
  const char* text;
  bool excludes, whole;
  Names names;
};

TEST(NameList, OneCaretAndOneEqualsSignCoverTheEntireList) {
  for (const Good& good : {Good{"a", false, false, {"a"}}, Good{"b,a", false, false, {"b", "a"}},
                           Good{"^a,b", true, false, {"a", "b"}}, Good{"=a,b", false, true, {"a", "b"}},
                           Good{"^=a,b", true, true, {"a", "b"}}, Good{"a^,b=c", false, false, {"a^", "b=c"}}}) {
    const NameList list = name_list("TUTTI_ANY", good.text);
    EXPECT_EQ(list.problem, "") << good.text;
    EXPECT_EQ(list.excludes, good.excludes) << good.text;
    EXPECT_EQ(list.whole, good.whole) << good.text;
    EXPECT_EQ(list.names, good.names) << good.text;
  }
}

TEST(NameList, WhatIsNoListIsRefusedWithTheReasonAndTheForms) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "a name is empty"},          {"^", "a name is empty"},         {"=", "a name is empty"},
      {"^=", "a name is empty"},        {",", "a name is empty"},         {"a,", "a name is empty"},
      {",a", "a name is empty"},        {"a,,b", "a name is empty"},      {"^a,", "a name is empty"},
      {"a,^b", "\"^b\" has a ^"},       {"^a,^b", "\"^b\" has a ^"},      {"^^a", "\"^a\" has a ^"},
      {"=^a", "\"^a\" has a ^"},        {"a,=b", "\"=b\" has a ="},       {"=a,=b", "\"=b\" has a ="},
      {"^=a,^=b", "\"^=b\" has a ^"},   {"^a,=b", "\"=b\" has a ="},      {"==a", "\"=a\" has a ="},
      {"a,b,a", "a is named twice"},    {"a, b", "\" b\" has a blank"},   {"a\n", "\"a\n\" has a blank"},
  };
  for (const auto& [text, why] : bad) {
    const std::string problem = name_list("TUTTI_ANY", text).problem;
    EXPECT_EQ(problem.find("TUTTI_ANY=\"" + std::string(text) + "\": " + why), 0u) << problem;
    EXPECT_NE(problem.find("; expected \"a,b\" (these) or \"^a,b\" (every one except a and b"), problem.npos)
        << problem;
  }
}

TEST(NameList, AListedNameIsABeginningUnlessItIsWhole) {
  const NameList beginnings = name_list("TUTTI_ANY", "eth1"), whole = name_list("TUTTI_ANY", "=eth1");
  for (const char* name : {"eth1", "eth10"}) EXPECT_TRUE(beginnings.means("eth1", name)) << name;
  EXPECT_FALSE(beginnings.means("eth1", "eth"));
  EXPECT_TRUE(whole.means("eth1", "eth1"));
  EXPECT_FALSE(whole.means("eth1", "eth10"));
}

}  // namespace
}  // namespace tutti
