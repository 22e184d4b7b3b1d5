// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "bootstrap/authentication.hpp"
#include "harness/virtual_time/virtual_time.hpp"
#include "meeting.hpp"
#include "meeting_fixture.hpp"
#include "unique_id.hpp"

namespace tutti::core::test {
namespace {

using tutti::test::late;
using tutti::test::VirtualTime;

class FolderMeeting : public ::testing::Test {
 protected:
  FolderMeeting() {
    folder_ = std::filesystem::temp_directory_path() / ("tutti-folder-test-" + to_hex(random_bytes(6)));
    std::filesystem::create_directory(folder_);
  }
  ~FolderMeeting() override { std::filesystem::remove_all(folder_); }

  Rendezvous at(uint32_t rank, uint32_t nranks) const {
    Rendezvous meeting;
    meeting.where = "file:" + folder_.string();
    meeting.rank = rank;
    meeting.nranks = nranks;
    meeting.log = quiet;
    meeting.environment = environment_of({});
    return meeting;
  }
  std::filesystem::path file() const { return folder_ / kFolderFile; }
  void leave(const std::string& text) const { std::ofstream(file()) << text; }

  void meet_late() const {
    expect_no_failures(run_ranks(3, [&](uint32_t rank) {
      if (rank == 0) std::this_thread::sleep_for(100ms);  // the others see what lies there first
      gather_and_check(*make_bootstrap(at(rank, 3), 60s), 3);
    }));
  }

  std::filesystem::path folder_;
};

TEST_F(FolderMeeting, RanksMeetAndNothingRemains) {
  for (int run = 0; run < 3; ++run) {
    meet_late();
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  }
}

TEST_F(FolderMeeting, TheFileIsItsUsersOnly) {
  const VirtualTime time;
  std::thread rank0([&] { failure_of([&] { make_bootstrap(at(0, 2), 30s); }); });
  while (!std::filesystem::exists(file())) std::this_thread::sleep_for(1ms);
  struct stat status = {};
  EXPECT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  rank0.join();
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "a failed meeting leaves its file";
}

TEST_F(FolderMeeting, AStaleFileOfADeadRunIsPassedOver) {
  leave(id_text(open_meeting_place().first));  // its listener is closed again
  meet_late();
}

TEST_F(FolderMeeting, AStaleFileWhosePortIsAnothersNowIsPassedOver) {
  auto [id, listener] = open_meeting_place();
  id.secret = random_bytes(kSecretBytes);  // whoever listens does not know the secret
  leave(id_text(id));
  std::atomic<bool> over = false;
  std::thread another([&, socket = std::move(listener)] {
    while (!over) {
      const FileDescriptor guest(::accept(socket.get(), nullptr, nullptr));
      if (guest) (void)::send(guest.get(), "220 some mail server\r\n", 22, MSG_NOSIGNAL);
      std::this_thread::sleep_for(1ms);
    }
  });
  meet_late();
  over = true;
  another.join();
}

TEST_F(FolderMeeting, GarbageIsPassedOver) {
  for (const std::string text : {"", "hello", "id:", "id:0011"}) {
    leave(text);
    meet_late();
  }
}

TEST_F(FolderMeeting, AnotherWorldIsPassedOverAndNamedInTheEnd) {
  const VirtualTime time;
  const auto failures = run_ranks(2, [&](uint32_t rank) { make_bootstrap(at(rank, 2 + rank), 3s); });
  EXPECT_GE(time.passed(), 3s);
  EXPECT_LT(time.passed(), tutti::test::late(3s));
  expect_failure(failures[0], TUTTI_TIMEOUT, {"rank 1 of 2", "turned away", "one of 3"});
  expect_failure(failures[1], TUTTI_TIMEOUT, {"rank 1: ", file().string()});
}

TEST_F(FolderMeeting, ErrorsSayWhy) {
  const VirtualTime time;
  expect_failure(failure_of([&] { make_bootstrap(at(1, 2), 30s); }), TUTTI_TIMEOUT, {"is not there yet", "30 s"});
  EXPECT_GE(time.passed(), 30s);
  EXPECT_LT(time.passed(), late(30s));
  Rendezvous meeting = at(0, 2);
  meeting.where += "/absent";
  expect_failure(failure_of([&] { make_bootstrap(meeting, 30s); }), TUTTI_NOT_FOUND, {"/absent", "create one"});
  std::filesystem::create_symlink("/etc/passwd", file());
  expect_failure(failure_of([&] { make_bootstrap(at(1, 2), 30s); }), TUTTI_TIMEOUT, {"tutti-meeting"});
}

}  // namespace
}  // namespace tutti::core::test
