// SPDX-License-Identifier: Apache-2.0
//
// How agree() takes another rank's introduction.
#include "comm/introduction.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <functional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "base/wire.hpp"

namespace tutti::core {
namespace {

using Change = std::function<std::string(std::string bytes)>;

// Of two ranks that are alike until `change` has changed what rank 1 says: "agreed", or why they do not.
std::string answer(const Change& change) {
  tutti_comm_config config{sizeof config};
  config.name = "world";
  const Configuration configuration(config);
  const auto gather = [&](const std::string& mine) { return std::vector{mine, change(mine)}; };
  try {
    const Agreement agreement = agree(0, configuration, {}, false, gather);
    EXPECT_NE(agreement.communicator, 0u);
    return "agreed";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, TUTTI_MISMATCH);
    return failure.text;
  }
}

Change replaced(const std::string& from, const std::string& to) {
  return [from, to](std::string bytes) {
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? bytes : bytes.replace(at, from.size(), to);
  };
}

TEST(Introduction, RanksOfOneKindAgree) {
  EXPECT_EQ(answer([](std::string bytes) { return bytes; }), "agreed");
}

TEST(Introduction, ASettingThatDiffersIsNamed) {
  EXPECT_EQ(answer(replaced("\"world\"", "\"other\"")),
            "the ranks disagree about name: rank 0 has \"world\", rank 1 has \"other\"");
}

TEST(Introduction, ARankWithOtherWrappersIsRefused) {
  setenv("TUTTI_WRAP", "checksum", 1);
  EXPECT_EQ(answer(replaced("\"checksum\"", "\"chocksum\"")),
            "the ranks disagree about wrappers (TUTTI_WRAP): rank 0 has \"checksum\", rank 1 has \"chocksum\"");
  unsetenv("TUTTI_WRAP");
}

// It has other settings, and says other things of itself.
TEST(Introduction, ARankOfAnotherVersionIsToldByItsVersion) {
  const std::string settings = WireWriter()(uint32_t{2}, std::string("version"), std::string("\"9.9\""),
                                            std::string("colour"), std::string("\"red\""))
                                   .take();
  const std::string expected = std::string("the ranks disagree about version: rank 0 has \"") + tutti_version() +
                               "\", rank 1 has \"9.9\"";
  EXPECT_EQ(answer([&](const std::string&) { return settings; }), expected);
  EXPECT_EQ(answer([&](const std::string&) { return settings + "anything"; }), expected);
}

TEST(Introduction, BytesThatAreNoneAreRefused) {
  const std::string who = "rank 1's introduction", versions = ": do all ranks run the same version of Tutti?";
  EXPECT_EQ(answer([](const std::string&) { return R"({"version":"0.0.1"})"; }),
            who + ": 1869181810 bytes announced, 11 left" + versions);
  EXPECT_EQ(answer([](const std::string&) { return ""; }), who + ": 4 bytes announced, 0 left" + versions);
  EXPECT_EQ(answer([](const std::string& bytes) { return bytes + "more"; }), who + ": 4 bytes too many" + versions);
  EXPECT_NE(answer([](const std::string& bytes) { return bytes.substr(0, bytes.size() - 1); }).find(versions),
            std::string::npos);
  EXPECT_EQ(answer(replaced("\"world\"", "\"\x1b[31m\"")).find(who + " has an impossible \"value\": expected a text"),
            0u);
}

}  // namespace
}  // namespace tutti::core
