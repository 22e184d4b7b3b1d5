// SPDX-License-Identifier: Apache-2.0
//
// Plugins that must be refused, each with a reason that names what was expected and what came.
#include <gtest/gtest.h>
#include <tutti/registry.h>

#include <fstream>

namespace tutti {
namespace {

struct Bad {
  const char* file;
  const char* says;
};

TEST(Registry, RefusesWithTheReason) {
  const std::string folder = TUTTI_BAD_PLUGINS;
  const std::string text_file = testing::TempDir() + "/libtutti-text.so";
  std::ofstream(text_file) << "this is no shared library";
  const std::pair<std::string, const char*> cases[] = {
      {"/nowhere/libtutti-absent.so", "it cannot be loaded"},
      {text_file, "it cannot be loaded"},
      {folder + "/libbad_0.so", "exports no symbol tutti_plugin_entry"},
      {folder + "/libbad_1.so", "compiled for plugin ABI 77, this Tutti has ABI 1"},
      {folder + "/libbad_2.so", "entry table has 8 bytes"},
      {folder + "/libbad_3.so", "lacks info, init, deinit or get_interface"},
      {folder + "/libbad_4.so", "draft stamp 0xdeadbeef"},
      {folder + "/libbad_5.so", "table has 16 bytes"},
      {folder + "/libbad_6.so", "the mandatory function supports is NULL"},
      {folder + "/libbad_7.so", "the moon is full"},
      {folder + "/libbad_8.so", "the name ring of its tutti.algorithm/1 is taken"},
      {folder + "/libbad_9.so", "id must be 1 to 64 lower case letters"},
  };
  for (const auto& [path, says] : cases) {
    std::string error;
    EXPECT_LT(load_plugin(path, &error), 0) << path;
    EXPECT_NE(error.find(says), std::string::npos) << path << ": " << error;
    EXPECT_NE(error.find(path), std::string::npos) << error;
  }
}

TEST(Registry, FindsThePluginsBesideTheLibrary) {
  std::string error;
  EXPECT_NE(find_algorithm("ring", &error), nullptr) << error;
  EXPECT_NE(find_transport("shm", &error), nullptr) << error;
  EXPECT_EQ(find_transport("pigeon", &error), nullptr);
  EXPECT_NE(error.find("there is no transport \"pigeon\"; there are:"), std::string::npos) << error;
  EXPECT_NE(error.find("shm"), std::string::npos) << error;
}

TEST(Registry, AnIdUsedTwiceIsRefused) {
  std::string path;
  for (const PluginRecord& record : list_plugins())
    if (record.id == "algorithms") path = record.path;
  ASSERT_FALSE(path.empty());
  std::string error;
  EXPECT_LT(load_plugin(path, &error), 0);
  EXPECT_NE(error.find("its id is taken by"), std::string::npos) << error;
}

}  // namespace
}  // namespace tutti
