// SPDX-License-Identifier: Apache-2.0
//
// The judgement of plugins' files: modes and owners of files and folders, files that are cut off, foreign or damaged.
#include "registry/plugin_file.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

namespace fs = std::filesystem;

class PluginFile : public testing::Test {
 protected:
  PluginFile() {
    std::string pattern = testing::TempDir() + "plugin-file-XXXXXX";
    folder = mkdtemp(pattern.data());
    file = folder / "libtutti-any.so";
  }
  ~PluginFile() override { fs::remove_all(folder); }

  // A shared library that is surely whole: the C library.
  void copy_a_library() {
    Dl_info info{};
    ASSERT_TRUE(dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &info));
    fs::copy_file(info.dli_fname, file);
    fs::permissions(file, fs::perms(0644));
  }
  void overwrite(uint64_t at, const std::string& bytes) const {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  template <typename Value>
  void put(uint64_t at, Value value) const {
    overwrite(at, std::string(reinterpret_cast<const char*>(&value), sizeof value));
  }
  std::string defect_here() const { return defect(file.string()); }

  fs::path folder, file;
};

TEST_F(PluginFile, OneThatIsCutOffIsSeenAtEveryLength) {
  copy_a_library();
  EXPECT_EQ(defect_here(), "");
  const uint64_t whole = fs::file_size(file);
  std::vector<uint64_t> lengths{whole - 1, whole - 63, 4097, 4095, 100, 65, 64, 63, 17, 5, 4};
  for (uint64_t length = whole / 4096 * 4096; length > 0; length -= 4096) lengths.push_back(length);
  std::sort(lengths.rbegin(), lengths.rend());
  for (const uint64_t length : lengths) {
    fs::resize_file(file, length);
    const std::string said = defect_here();
    EXPECT_NE(said.find("it has " + std::to_string(length) + " bytes"), std::string::npos) << length << ": " << said;
    EXPECT_NE(said.find("install it again"), std::string::npos) << said;
    if (length >= 4096) {
      EXPECT_NE(said.find("describe " + std::to_string(whole)), std::string::npos) << length << ": " << said;
    }
  }
  for (const uint64_t length : {3, 1, 0}) {
    fs::resize_file(file, length);
    EXPECT_NE(defect_here().find("not a shared library: its " + std::to_string(length) + " bytes"), std::string::npos);
  }
}

TEST_F(PluginFile, ForeignFilesAreNamed) {
  copy_a_library();
  const auto spoilt = [&](uint64_t at, auto value) {
    fs::remove(file);
    copy_a_library();
    put(at, value);
    return defect_here();
  };
  EXPECT_NE(spoilt(EI_CLASS, uint8_t{3}).find("for another machine"), std::string::npos);
  EXPECT_NE(spoilt(EI_DATA, uint8_t{0}).find("for another machine"), std::string::npos);
  EXPECT_NE(spoilt(offsetof(Elf64_Ehdr, e_machine), uint16_t{4711}).find("and 4711; this process needs"),
            std::string::npos);
  EXPECT_NE(spoilt(offsetof(Elf64_Ehdr, e_type), uint16_t{ET_REL}).find("not a shared library: expected ELF type 3"),
            std::string::npos);
  EXPECT_NE(spoilt(0, uint32_t{0x21202020}).find("do not begin as an ELF file does"), std::string::npos);
  if (sizeof(void*) == 8) {
    for (const uint64_t beyond : {uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 63}) {
      EXPECT_NE(spoilt(offsetof(Elf64_Ehdr, e_phoff), beyond).find("cut off or damaged"), std::string::npos);
      EXPECT_NE(spoilt(offsetof(Elf64_Ehdr, e_shoff), beyond).find("cut off or damaged"), std::string::npos);
    }
    EXPECT_NE(spoilt(offsetof(Elf64_Ehdr, e_phnum), uint16_t{0}).find("not a shared library"), std::string::npos);
    EXPECT_EQ(spoilt(offsetof(Elf64_Ehdr, e_shoff), uint64_t{0}), "") << "sections may be stripped";
  }
  EXPECT_NE(defect(folder.string()).find("not a regular file"), std::string::npos);
  EXPECT_NE(defect((folder / "absent").string()).find("No such file"), std::string::npos);
}

TEST_F(PluginFile, NoiseInTheHeadersIsReadWithinBounds) {
  copy_a_library();
  std::string headers(1024, '\0');
  std::ifstream(file, std::ios::binary).read(headers.data(), static_cast<std::streamsize>(headers.size()));
  std::mt19937 random(7);
  size_t refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string noisy = headers;
    for (int i = 0; i < 4; ++i) noisy[EI_NIDENT + random() % (noisy.size() - EI_NIDENT)] = static_cast<char>(random());
    overwrite(0, noisy);
    refused += !defect_here().empty();
  }
  EXPECT_GT(refused, 100u);
}

TEST_F(PluginFile, OnlyTrustedUsersMayHaveWrittenIt) {
  std::ofstream(file) << "any";
  const Writers me{{0, geteuid()}, {}, false};
  const auto said = [&](int of_folder, int of_file, const Writers& trusted) {
    fs::permissions(folder, fs::perms(of_folder));
    fs::permissions(file, fs::perms(of_file));
    return distrust(file.string(), trusted);
  };
  EXPECT_EQ(said(0755, 0644, me), "");
  EXPECT_EQ(said(0700, 0600, me), "");
  EXPECT_EQ(said(01777, 0755, me), "") << "in a sticky folder nobody else replaces the file";
  EXPECT_EQ(said(0755, 0666, me), "its file " + file.string() +
                                      " has mode 0666, so that every user could have put code there: chmod o-w '" +
                                      file.string() + "'");
  EXPECT_NE(said(0777, 0644, me).find("its folder " + folder.string() + " has mode 0777"), std::string::npos);
  EXPECT_NE(said(01777, 0666, me).find("its file"), std::string::npos);
  // A group's members, unless the group is trusted.
  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  const std::string group = "member of group " + std::to_string(status.st_gid);
  EXPECT_NE(said(0755, 0664, me).find(group), std::string::npos);
  EXPECT_NE(said(0775, 0644, me).find(group), std::string::npos);
  EXPECT_EQ(said(0775, 0664, {{geteuid()}, {status.st_gid}, false}), "");
  EXPECT_NE(said(0777, 0664, {{geteuid()}, {status.st_gid}, false}).find("every user"), std::string::npos);
  EXPECT_EQ(said(0777, 0666, {{geteuid()}, {status.st_gid}, true}), "") << "everybody can write Tutti's library, too";
  // Owners.
  const std::string owner = "belongs to user " + std::to_string(geteuid());
  EXPECT_NE(said(0755, 0644, {{geteuid() + 1}, {}, true}).find(owner), std::string::npos);
  EXPECT_NE(said(0755, 0644, {{geteuid() + 1}, {}, true}).find("TUTTI_PLUGIN_OWNERS=" + std::to_string(geteuid())),
            std::string::npos);
}

TEST_F(PluginFile, TrustedAreRootTheUserAndWhoCanWriteTheLibrary) {
  std::ofstream(file) << "any";
  fs::permissions(folder, fs::perms(0755));
  fs::permissions(file, fs::perms(0644));
  const auto has = [](const auto& numbers, auto number) {
    return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
  };
  Writers trusted = trusted_writers(file.string());
  EXPECT_TRUE(has(trusted.users, uid_t{0}) && has(trusted.users, geteuid()) && has(trusted.groups, geteuid()));
  EXPECT_FALSE(trusted.everybody);
  const uid_t stranger = geteuid() + 4242;
  EXPECT_FALSE(has(trusted.users, stranger));
  fs::permissions(file, fs::perms(0666));
  EXPECT_TRUE(trusted_writers(file.string()).everybody);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder.c_str(), stranger, 100), 0);
    fs::permissions(folder, fs::perms(0775));
    trusted = trusted_writers(file.string());
    EXPECT_TRUE(has(trusted.users, stranger) && has(trusted.groups, gid_t{100}));
  }
  setenv("TUTTI_PLUGIN_OWNERS", "4711,4712", 1);
  trusted = trusted_writers(file.string());
  EXPECT_TRUE(has(trusted.users, uid_t{4711}) && has(trusted.users, uid_t{4712}) && has(trusted.groups, gid_t{4712}));
}

}  // namespace
}  // namespace tutti::core
