// SPDX-License-Identifier: Apache-2.0
//
// connector.hpp: two ranks come to a link, with the descriptors of both and one file for the pair; what keeps them from
// it is told at both ends, and no end is ready while the other may still fail.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <map>
#include <tutti/sdk/local/connector.hpp>
#include <tutti/sdk/local/memory_file.hpp>

#include "two_ranks.hpp"

namespace {

using namespace tutti::sdk;

struct Link {
  local::Line own;
  ino_t file = 0;
  std::vector<FileDescriptor> theirs;
  local::Line& line() { return own; }
};
using Connector = local::Connector<Link>;

constexpr PairFormat kFormat{.transport = "test", .magic = 0x5453'5454, .version = 1};

ino_t file_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// One rank. Its pair messages wait in `letters` of the job.
struct End : EndpointBase {
  struct Job {
    std::map<uint32_t, std::vector<std::pair<uint32_t, std::string>>> letters;  // by receiver: sender, text
    bool held = false;                                                          // none is delivered now
  };
  End(Job& shared, uint32_t rank, std::vector<local::EqualValue> values = {{"the size", 5}}, int brought = 2)
      : EndpointBase("test", config_of(rank), 8),
        job(shared),
        pair{sizeof pair, 0, this,
             [](void* self, uint32_t peer, const void* data, uint64_t bytes) -> tutti_status {
               End& me = *static_cast<End*>(self);
               me.job.letters[peer].emplace_back(me.rank(), std::string(static_cast<const char*>(data), bytes));
               return TUTTI_OK;
             }},
        member(std::make_shared<local::Station>(), 4096),
        connector(*this, config_of(rank, &pair), kFormat, std::move(values), brings(brought), member,
                  {[this] {
                     FileDescriptor fresh = local::make_memory_file("test", 4096);
                     made = file_of(fresh.get());
                     return fresh;
                   },
                   [this](Connector::Parts parts) {
                     if (fails) throw Error(TUTTI_NO_RESOURCES, "there is no room");
                     auto link = std::make_unique<Link>();
                     link->own = std::move(parts.line);
                     link->file = file_of(parts.file);
                     for (FileDescriptor& fd : parts.descriptors) link->theirs.push_back(std::move(fd));
                     can_fail = false;
                     return link;
                   },
                   [this](uint32_t, std::unique_ptr<Link> given) { link = std::move(given); }}) {}

  std::vector<int> brings(int n) {
    std::vector<int> all;
    for (int i = 0; i < n; i++) all.push_back(mine.emplace_back(memfd_create("mine", MFD_CLOEXEC)).get());
    return all;
  }
  void step() {
    if (!job.held)
      for (auto& [from, text] : std::exchange(job.letters[rank()], {})) connector.receive(from, text);
    try {
      member.read();
    } catch (const Error& error) {
      connector.refuse_guests(error);
    }
    for (const uint32_t peer : member.take_news())
      if (!link) connector.hear(peer);
    connector.advance();
  }
  std::string refused() const {
    const auto& why = connector.refusal(1 - rank());
    return why ? std::to_string(why->status()) + " " + why->what() : "";
  }

  Job& job;
  tutti_pair_messages pair;
  std::vector<FileDescriptor> mine;
  ino_t made = 0;
  bool fails = false, can_fail = true;
  local::Station::Member member;
  std::unique_ptr<Link> link;
  Connector connector;
};

void run(End& a, End& b) {
  for (int i = 0; i < 50; i++)
    for (End* end : {&a, &b}) {
      end->step();
      EXPECT_FALSE(a.link && b.can_fail);
      EXPECT_FALSE(b.link && a.can_fail);
    }
}
// Neither has a link, and both say so with this status.
void expect_refused(const End& a, const End& b, tutti_status status) {
  for (const End* end : {&a, &b}) {
    EXPECT_FALSE(end->link);
    EXPECT_TRUE(end->refused().starts_with(std::to_string(status))) << end->refused();
  }
}

TEST(Connector, GivesBothEndsTheFileOfThePairAndTheOthersDescriptors) {
  for (const uint32_t caller : {0u, 1u}) {
    End::Job job;
    End a(job, 0), b(job, 1);
    (caller == 0 ? a : b).connector.begin(1 - caller);
    run(a, b);
    ASSERT_TRUE(a.link && b.link) << a.refused() << b.refused();
    EXPECT_NE(a.made, 0u);
    EXPECT_EQ(b.made, 0u) << "the lower rank makes the file";
    EXPECT_TRUE(a.link->file == a.made && b.link->file == a.made);
    ASSERT_EQ(a.link->theirs.size(), 2u);
    ASSERT_EQ(b.link->theirs.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(file_of(a.link->theirs[i].get()), file_of(b.mine[i].get()));
      EXPECT_EQ(file_of(b.link->theirs[i].get()), file_of(a.mine[i].get()));
    }
    EXPECT_EQ(a.link->own.send(local::Setup()), Socket::kSent);
    EXPECT_TRUE(b.link->own.receive().as<local::Setup>());
    EXPECT_FALSE(a.connector.is_busy() || b.connector.is_busy());
  }
}

TEST(Connector, ValuesThatDifferAreToldAtBothEnds) {
  End::Job job;
  End a(job, 0, {{"the size", 5}, {"the depth", 1}}), b(job, 1, {{"the size", 5}, {"the depth", 2}});
  a.connector.begin(1);
  run(a, b);
  for (const End* end : {&a, &b}) {
    EXPECT_TRUE(end->refused().starts_with(std::to_string(TUTTI_MISMATCH))) << end->refused();
    EXPECT_NE(end->refused().find("the depth is"), std::string::npos) << end->refused();
    EXPECT_EQ(end->refused().find("the size"), std::string::npos) << "it is equal";
  }
}

// The other end hears what went wrong at one end: here the lower rank expects three descriptors.
TEST(Connector, AnErrorIsToldAtTheOtherEndToo) {
  End::Job job;
  End a(job, 0, {{"the size", 5}}, 3), b(job, 1);
  a.connector.begin(1);
  run(a, b);
  expect_refused(a, b, TUTTI_MISMATCH);
  EXPECT_NE(a.refused().find("it passed 2 descriptors; expected 3"), std::string::npos) << a.refused();
  EXPECT_NE(b.refused().find("it cannot connect: it passed 2 descriptors"), std::string::npos) << b.refused();
}

// The line of an end that cannot make its link closes before its reason has come, or after.
TEST(Connector, AnEndThatCannotMakeItsLinkRefusesTheOther) {
  for (const uint32_t failing : {0u, 1u})
    for (const bool late : {false, true}) {
      End::Job job;
      End a(job, 0), b(job, 1);
      (failing == 0 ? a : b).fails = true;
      a.connector.begin(1);
      a.step(), b.step();  // both Cards are sent, and the higher rank has come
      if (late) {
        a.step();  // makes its end, or refuses
        job.held = true;
        run(a, b);
        const End& other = failing == 0 ? b : a;
        EXPECT_EQ(other.refused(), "");
        EXPECT_FALSE(other.link);
        job.held = false;
      }
      run(a, b);
      expect_refused(a, b, TUTTI_NO_RESOURCES);
      EXPECT_FALSE(a.connector.is_busy() || b.connector.is_busy());
    }
}

// This process may open no more descriptors when a guest is at the door.
TEST(Connector, ADoorwayThatCannotOpenRefusesThoseThatCome) {
  End::Job job;
  End a(job, 0), b(job, 1);
  a.connector.begin(1);
  a.step(), b.step();
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  ASSERT_EQ(close(next), 0);
  const rlimit none{static_cast<rlim_t>(next), usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  run(a, b);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  expect_refused(a, b, TUTTI_SYSTEM);
  EXPECT_NE(b.refused().find("it cannot connect: accepting a connection: Too many open files"), std::string::npos)
      << b.refused();
}

TEST(Connector, ReadinessThatNobodyHasAskedForIsRefused) {
  End::Job job;
  End a(job, 0);
  a.connector.begin(1);
  EXPECT_THROW(a.connector.receive(1, kFormat.encode(local::Ready::number, local::Ready())), Error);
}

TEST(Connector, ARefusedPeerIsNotLetIn) {
  End::Job job;
  End a(job, 0), b(job, 1);
  a.connector.begin(1);
  a.connector.give_up(1);
  run(a, b);
  expect_refused(a, b, TUTTI_PEER_FAILED);
  EXPECT_NE(a.refused().find("rank 0 has given this rank up"), std::string::npos) << a.refused();
  EXPECT_NE(b.refused().find("rank 0 has given this rank up"), std::string::npos) << b.refused();
}

TEST(Connector, MoreThanACardOrAPacketHoldsIsRefused) {
  End::Job job;
  EXPECT_THROW(End(job, 0, {5, {"the size", 1}}), Error);
  EXPECT_THROW(End(job, 0, {}, 4), Error);
}

}  // namespace
