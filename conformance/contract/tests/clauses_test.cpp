// SPDX-License-Identifier: Apache-2.0
//
// The clauses of the guide are those of the table, and no case names another.
#include "contract/clauses.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "contract/contract_case.hpp"

namespace tutti::conformance {
namespace {

TEST(Clauses, GuideAndTableAreTheSame) {
  std::ifstream guide(TUTTI_GUIDE);
  ASSERT_TRUE(guide.is_open()) << TUTTI_GUIDE;
  const std::regex row(R"(^\| ([A-Z]-[0-9]+) \| (.*) \|$)");
  std::vector<std::pair<std::string, std::string>> written, listed;
  for (std::string line; std::getline(guide, line);)
    if (std::smatch match; std::regex_match(line, match, row)) written.emplace_back(match[1], match[2]);
  for (const Clause& clause : clauses()) listed.emplace_back(clause.id, clause.text);
  EXPECT_EQ(written.size(), listed.size());
  for (size_t i = 0; i < std::min(written.size(), listed.size()); ++i) EXPECT_EQ(written[i], listed[i]);
}

TEST(Clauses, IdsAreUnique) {
  std::set<std::string> ids;
  for (const Clause& clause : clauses()) EXPECT_TRUE(ids.insert(clause.id).second) << clause.id;
}

TEST(Clauses, EveryClauseIsNamedByACaseAndEveryNamedOneExists) {
  std::set<std::string> named;
  for (const auto subject : contract::all_subjects)
    named.insert(contract::common_clauses(subject).begin(), contract::common_clauses(subject).end());
  for (const auto subject : contract::all_subjects)
    for (const auto& one : contract::contract_cases(subject)) named.insert(one.clauses.begin(), one.clauses.end());
  for (const std::string& id : named) EXPECT_NE(find_clause(id), nullptr) << id;
  for (const Clause& clause : clauses())
    EXPECT_TRUE(named.contains(clause.id)) << clause.id << " is checked by no case";
}

TEST(Cases, NamesAreUniqueAndCheapestComeFirst) {
  for (const auto subject : contract::all_subjects) {
    std::set<std::string> names;
    uint32_t cost = 0;
    for (const auto& one : contract::contract_cases(subject)) {
      EXPECT_TRUE(names.insert(one.name).second) << one.name;
      EXPECT_GE(one.cost_ms, cost) << one.name;
      cost = one.cost_ms;
    }
  }
}

}  // namespace
}  // namespace tutti::conformance
