// SPDX-License-Identifier: Apache-2.0
//
// A trace's file: in a folder that can be used, new, whole, and never longer than it may be.
#include "trace_file.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace tutti::trace {
namespace {

using Record = std::array<char, 64>;

class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest() {
    char name[] = "/tmp/tutti-trace-file-test-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TraceFileTest() override { std::filesystem::remove_all(folder_); }
  TraceFile make() const {
    return TraceFile({sizeof(tutti_tracer_config), 1, 4, sizeof(Record), 7, 99, 16384, folder_.c_str(), "a b/c"});
  }

  std::string folder_;
};

struct Contents {
  tutti_trace_header header{};
  std::vector<Record> records;
};

Contents read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Contents contents;
  file.read(reinterpret_cast<char*>(&contents.header), sizeof contents.header);
  for (Record record; file.read(record.data(), sizeof record);) contents.records.push_back(record);
  EXPECT_EQ(file.gcount(), 0) << "a record is cut short";
  return contents;
}

Record record_of(char c) {
  Record record;
  record.fill(c);
  return record;
}

void expect_refused(const std::string& folder, const std::string& why) {
  try {
    check_folder(folder);
    ADD_FAILURE() << "\"" << folder << "\" was accepted";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(error.what()).find(why + "; expected a folder that this process may write"), 0u)
        << error.what();
  }
}

TEST_F(TraceFileTest, FoldersThatCannotBeUsedAreRefused) {
  expect_refused("", "it names no folder");
  expect_refused(folder_ + "/absent", "No such file or directory");
  std::ofstream(folder_ + "/file") << "x";
  expect_refused(folder_ + "/file", "it is a file");
  if (geteuid() != 0) {  // root may write anywhere
    chmod(folder_.c_str(), 0500);
    expect_refused(folder_, "Permission denied");
    chmod(folder_.c_str(), 0700);
  }
  check_folder(folder_);
}

TEST_F(TraceFileTest, AnotherTraceIsNotOverwritten) {
  const TraceFile first = make();
  EXPECT_EQ(first.path(), folder_ + "/a_b_c-0000000000000007-1.tutti-trace");
  EXPECT_THROW(make(), sdk::Error);
}

TEST_F(TraceFileTest, ItHasItsHeaderAndItsRecordsInOrder) {
  TraceFile file = make();
  const std::vector<Record> records{record_of('a'), record_of('b'), record_of('c')};
  file.write(records.data(), 2);
  file.end(&records[2], 1);
  const Contents contents = read(file.path());
  EXPECT_EQ(contents.header.magic, TUTTI_TRACE_MAGIC);
  EXPECT_EQ(contents.header.record_bytes, sizeof(Record));
  EXPECT_STREQ(contents.header.name, "a b/c");
  EXPECT_EQ(contents.header.rank, 1u);
  EXPECT_EQ(contents.header.communicator, 7u);
  EXPECT_EQ(contents.header.clock, 99u);
  EXPECT_EQ(contents.records, records);
}

TEST_F(TraceFileTest, ItEndsWithoutARecordOfItsEnd) {
  TraceFile file = make();
  const Record record = record_of('a');
  file.write(&record, 1);
  file.end(nullptr, 0);
  EXPECT_EQ(read(file.path()).records, std::vector<Record>{record});
}

TEST_F(TraceFileTest, ItGrowsNoFurtherThanItMayAndHasRoomForItsEnd) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  TraceFile file = make();
  const Record step = record_of('s'), last = record_of('e');
  uint64_t written = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) try {
      file.write(&step, 1);
      ++written;
    } catch (const sdk::Error& error) {
      EXPECT_EQ(error.status(), TUTTI_NO_RESOURCES);
      ++refused;
    }
  file.end(&last, 1);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_LE(std::filesystem::file_size(file.path()), small.rlim_cur);
  const Contents contents = read(file.path());
  ASSERT_EQ(contents.records.size(), written + 1);
  EXPECT_GT(written, 900u);
  EXPECT_GT(refused, 1000u);
  EXPECT_EQ(contents.records.back(), last);
}

}  // namespace
}  // namespace tutti::trace
