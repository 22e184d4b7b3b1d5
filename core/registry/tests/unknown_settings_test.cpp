// SPDX-License-Identifier: Apache-2.0
#include "registry/unknown_settings.hpp"

#include <gtest/gtest.h>
#include <tutti/registry.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/settings_table.hpp"

namespace tutti::core {
namespace {

std::string told(const std::string& name, const std::vector<std::string>& asked = {},
                 const std::vector<std::string>& plugins = {}) {
  const auto sentences = unknown_settings({name}, asked, plugins);
  return sentences.empty() ? "" : sentences[0];
}

TEST(UnknownSettings, NamesTheNearestKnownOne) {
  EXPECT_EQ(told("TUTTI_TRANSPORTS"),
            "TUTTI_TRANSPORTS is set, but there is no such setting; did you mean TUTTI_TRANSPORT?");
  EXPECT_NE(told("TUTTI_ALGOS").find("mean TUTTI_ALGO?"), std::string::npos);
  EXPECT_NE(told("TUTTI_PLUGINPATH").find("mean TUTTI_PLUGIN_PATH?"), std::string::npos);
  EXPECT_NE(told("TUTTI_SOMETHING_ELSE").find("core/README.md"), std::string::npos);
}

TEST(UnknownSettings, SaysNothingOfKnownOnes) {
  for (const Setting& one : settings) EXPECT_EQ(told(std::string(one.name)), "");
  EXPECT_EQ(told("TUTTI_PERF_DAMAGE"), "");
  EXPECT_EQ(told("TUTTI_TCP_SOCKETS", {"TUTTI_TCP_SOCKETS"}), "");
}

TEST(UnknownSettings, APluginMayAskLater) {
  EXPECT_EQ(told("TUTTI_NET_X_RAILS", {}, {"net-x"}), "");
  EXPECT_EQ(told("TUTTI_CHAOS", {}, {"chaos"}), "");
  EXPECT_NE(told("TUTTI_TCPSOCKETS", {}, {"tcp"}), "") << "the prefix is a whole word";
  EXPECT_NE(told("TUTTI_TCP_SOCKET", {"TUTTI_TCP_SOCKETS"}, {"tcp"}).find("mean TUTTI_TCP_SOCKETS?"),
            std::string::npos);
}

TEST(UnknownSettings, ManyAreCountedAndTheMisspeltOnesNamed) {
  std::vector<std::string> names;
  for (int i = 0; i < 9000; ++i) names.push_back("TUTTI_JUNK_NUMBER_" + std::to_string(i));
  names.push_back("TUTTI_TRANSPORTS");
  const auto sentences = unknown_settings(names, {}, {});
  ASSERT_EQ(sentences.size(), 9u);
  EXPECT_NE(sentences[0].find("did you mean TUTTI_TRANSPORT?"), std::string::npos) << sentences[0];
  EXPECT_EQ(sentences[1].find("TUTTI_JUNK_NUMBER_0 is set"), 0u) << sentences[1];
  EXPECT_EQ(
      sentences[8],
      "8993 more variables begin with TUTTI_, but there are no such settings; core/README.md lists what there is");
  names.resize(8);
  EXPECT_EQ(unknown_settings(names, {}, {}).size(), 8u);
  const auto sentence = unknown_settings({"TUTTI_" + std::string(100000, 'X')}, {}, {})[0];
  EXPECT_LT(sentence.size(), 300u);
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The names that are not read through base/settings.hpp, where a name that the table lacks cannot be compiled.
TEST(UnknownSettings, TheTableHasAllThatTheSourcesRead) {
  const std::filesystem::path core(TUTTI_CORE_FOLDER);
  const std::regex literal("\"(TUTTI_[A-Z_]*[A-Z])\"");
  size_t found = 0;
  const auto is_of_no_crate = [&](const std::filesystem::path& path) {
    return std::ranges::any_of(std::filesystem::relative(path, core), [](const std::filesystem::path& folder) {
      return folder == "tests" || folder == "benches" || folder == "fuzz" || folder == "examples";
    });
  };
  for (const auto& file : std::filesystem::recursive_directory_iterator(core)) {
    // unknown_settings.cpp lists how settings of others begin, and reads none.
    if (file.path().extension() != ".cpp" || file.path().filename() == "unknown_settings.cpp" ||
        is_of_no_crate(file.path()))
      continue;
    const std::string text = text_of(file.path());
    for (std::sregex_iterator match(text.begin(), text.end(), literal), end; match != end; ++match, ++found)
      EXPECT_NE(std::ranges::find(settings, (*match)[1].str(), &Setting::name), std::end(settings))
          << file.path() << " reads " << (*match)[1] << ": add it to base/settings_table.hpp";
  }
  EXPECT_GT(found, std::size(settings));
}

TEST(UnknownSettings, TheReadmeHasTheTable) {
  std::string table = "| variable | meaning | default |\n| --- | --- | --- |\n";
  for (const SettingRecord& one : list_settings())
    table += "| `" + one.name + "` | " + one.meaning + " | " + one.fallback + (one.fallback.empty() ? "|\n" : " |\n");
  EXPECT_NE(text_of(std::filesystem::path(TUTTI_CORE_FOLDER) / "README.md").find("\n\n" + table + "\n"),
            std::string::npos)
      << "the table of core/README.md is not that of base/settings_table.hpp, which is:\n"
      << table;
}

}  // namespace
}  // namespace tutti::core
