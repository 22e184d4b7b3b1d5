// SPDX-License-Identifier: Apache-2.0
//
// The page of the contract is made from the table, and no case names a clause that is not there.
#include "contract/clauses.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "contract/contract_case.hpp"

namespace tutti::conformance {
namespace {

TEST(Clauses, ThePageIsMadeFromTheTable) {
  std::ifstream page(TUTTI_CONTRACT_PAGE);
  ASSERT_TRUE(page.is_open()) << TUTTI_CONTRACT_PAGE;
  std::stringstream text;
  text << page.rdbuf();
  EXPECT_EQ(text.str(), contract_page()) << "run tutti-conform contract > docs/contract.md";
  for (const Clause& clause : clauses())
    EXPECT_NE(contract_page().find(std::string("- **") + clause.id + "** "), std::string::npos)
        << clause.id << " has a letter of no section";
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
