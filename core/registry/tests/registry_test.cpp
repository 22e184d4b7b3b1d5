// SPDX-License-Identifier: Apache-2.0
//
// Plugins that must be refused, each with a reason that names what was expected and what came.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

struct Bad {
  const char* file;
  const char* says;
};

TEST(Registry, RefusesWithTheReason) {
  const std::string folder = TUTTI_BAD_PLUGINS;
  const std::string text_file = testing::TempDir() + "libtutti-text-" + std::to_string(getpid()) + ".so";
  std::ofstream(text_file) << "this is no shared library";
  const std::pair<std::string, const char*> cases[] = {
      {"/nowhere/libtutti-absent.so", "it cannot be loaded"},
      {text_file, "it is not a shared library"},
      {folder + "/libbad_0.so", "exports no symbol tutti_plugin_entry"},
      {folder + "/libbad_1.so", "compiled for plugin ABI 77, this Tutti has ABI 1"},
      {folder + "/libbad_2.so", "its entry table: tutti_plugin_entry_table.struct_size is 8, expected at least 40"},
      {folder + "/libbad_3.so", "lacks info, init or get_interface"},
      {folder + "/libbad_4.so", "tutti_algorithm has draft stamp 0xdeadbeef, this Tutti has the stable table"},
      {folder + "/libbad_5.so", "its tutti.algorithm/1 table: tutti_algorithm.struct_size is 16, expected at least 56"},
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
  std::filesystem::remove(text_file);
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
  const size_t plugins = list_plugins().size();
  std::string error;
  EXPECT_EQ(load_plugin(path, &error), TUTTI_OK) << "the same file: " << error;
  EXPECT_EQ(list_plugins().size(), plugins);
  std::string folder = testing::TempDir() + "registry-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::copy(path, folder + "/libtutti-copy.so");
  EXPECT_LT(load_plugin(folder + "/libtutti-copy.so", &error), 0);
  EXPECT_NE(error.find("its id is taken by"), std::string::npos) << error;
  std::filesystem::remove_all(folder);
}

// A folder of its own for each test, with a copy of a plugin.
class CopiedPlugin : public testing::Test {
 protected:
  CopiedPlugin() {
    std::string pattern = testing::TempDir() + "registry-XXXXXX";
    folder = mkdtemp(pattern.data());
    file = folder / "libtutti-copied.so";
  }
  ~CopiedPlugin() override { std::filesystem::remove_all(folder); }
  void copy(const std::filesystem::path& plugin) const { std::filesystem::copy_file(plugin, file); }
  std::string refusal() const {
    std::string error;
    EXPECT_LT(load_plugin(file.string(), &error), 0);
    return error;
  }

  std::filesystem::path folder, file;
};

// The dynamic linker maps what the headers describe: without a look at the file's size, reading it ends the process.
TEST_F(CopiedPlugin, IsRefusedWhereverItIsCutOff) {
  for (const PluginRecord& record : list_plugins())
    if (record.loaded && record.id == "algorithms") copy(record.path);
  const uint64_t whole = std::filesystem::file_size(file);
  std::vector<uint64_t> lengths{whole - 1, whole - 64, 20000, 4097, 4095, 1000, 64, 63, 52, 16, 4};
  for (uint64_t length = whole / 4096 * 4096; length > 0; length -= 4096) lengths.push_back(length);
  std::sort(lengths.rbegin(), lengths.rend());
  for (const uint64_t length : lengths) {
    std::filesystem::resize_file(file, length);
    const std::string said = refusal();
    EXPECT_NE(said.find("it is cut off or damaged: it has " + std::to_string(length) + " bytes"), std::string::npos)
        << length << ": " << said;
  }
}

TEST_F(CopiedPlugin, IsRefusedWhereOthersCouldHaveChangedIt) {
  copy(std::string(TUTTI_BAD_PLUGINS) + "/libbad_7.so");
  const auto said = [&](mode_t of_folder, mode_t of_file) {
    EXPECT_EQ(chmod(folder.c_str(), of_folder), 0);
    EXPECT_EQ(chmod(file.c_str(), of_file), 0);
    return refusal();
  };
  const std::string loaded = "the moon is full";
  EXPECT_NE(said(0755, 0755).find(loaded), std::string::npos);
  EXPECT_NE(said(01777, 0755).find(loaded), std::string::npos);
  EXPECT_NE(said(0777, 0755).find("its folder " + folder.string() + " has mode 0777"), std::string::npos);
  EXPECT_NE(said(0755, 0666).find("its file " + file.string() + " has mode 0666"), std::string::npos);
  // By way of a link in a folder that is in order.
  const std::filesystem::path link = folder / "libtutti-link.so";
  std::filesystem::create_directory(folder / "open");
  EXPECT_EQ(chmod((folder / "open").c_str(), 0777), 0);
  std::filesystem::rename(file, folder / "open" / "libtutti-copied.so");
  std::filesystem::create_symlink(folder / "open" / "libtutti-copied.so", link);
  file = link;
  EXPECT_NE(said(0755, 0755).find("open has mode 0777"), std::string::npos);
}

TEST_F(CopiedPlugin, IsRefusedWhereAnotherUserOwnsIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  copy(std::string(TUTTI_BAD_PLUGINS) + "/libbad_7.so");
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  const uid_t stranger = 4711;
  for (const std::filesystem::path& given : {file, folder}) {
    ASSERT_EQ(chown(given.c_str(), stranger, 0), 0);
    const std::string said = refusal();
    EXPECT_NE(said.find(given.string() + " belongs to user 4711"), std::string::npos) << said;
    ASSERT_EQ(chown(given.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chown(folder.c_str(), stranger, stranger), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0775), 0);
  setenv("TUTTI_PLUGIN_OWNERS", "4711", 1);
  EXPECT_NE(refusal().find("the moon is full"), std::string::npos);
  EXPECT_EQ(setenv("TUTTI_PLUGIN_OWNERS", "", 1), 0);
}

}  // namespace
}  // namespace tutti
