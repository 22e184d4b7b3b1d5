// SPDX-License-Identifier: Apache-2.0
//
// connector.hpp: two ranks come to a link, with the descriptors of both and one file for the pair; what keeps them from
// it is told at both ends.
#include <gtest/gtest.h>

#include <map>
#include <tutti/sdk/local/connector.hpp>
#include <tutti/sdk/local/memory_file.hpp>

#include "two_ranks.hpp"

namespace {

using namespace tutti::sdk;
using local::Connector;

constexpr PairFormat kFormat{.transport = "test", .magic = 0x5453'5454, .version = 1};

ino_t file_of(const FileDescriptor& fd) {
  struct stat status {};
  return fstat(fd.get(), &status) == 0 ? status.st_ino : 0;
}

// One rank. Its pair messages wait in `letters` of the job.
struct End : EndpointBase {
  struct Job {
    std::map<uint32_t, std::vector<std::pair<uint32_t, std::string>>> letters;  // by receiver: sender, text
  };
  End(Job& shared, uint32_t rank, std::vector<Connector::Value> values = {{"the size", 5}}, int brought = 2)
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
                     made = file_of(fresh);
                     return fresh;
                   },
                   [this](Connector::Parts parts) {
                     line = std::move(parts.line);
                     file = file_of(parts.file);
                     for (FileDescriptor& fd : parts.descriptors) theirs.push_back(std::move(fd));
                   }}) {}

  std::vector<int> brings(int n) {
    std::vector<int> all;
    for (int i = 0; i < n; i++) all.push_back(mine.emplace_back(memfd_create("mine", MFD_CLOEXEC)).get());
    return all;
  }
  void step() {
    for (auto& [from, text] : std::exchange(job.letters[rank()], {})) connector.receive(from, text);
    member.read();
    for (const uint32_t peer : member.take_news())
      if (!line) connector.hear(peer);
    connector.advance();
  }
  std::string refused() const {
    const auto& why = connector.refusal(1 - rank());
    return why ? std::to_string(why->status()) + " " + why->what() : "";
  }

  Job& job;
  tutti_pair_messages pair;
  std::vector<FileDescriptor> mine, theirs;
  ino_t made = 0, file = 0;
  local::Station::Member member;
  local::Line line;
  Connector connector;
};

void run(End& a, End& b) {
  for (int i = 0; i < 50; i++) a.step(), b.step();
}

TEST(Connector, GivesBothEndsTheFileOfThePairAndTheOthersDescriptors) {
  for (const uint32_t caller : {0u, 1u}) {
    End::Job job;
    End a(job, 0), b(job, 1);
    (caller == 0 ? a : b).connector.begin(1 - caller);
    run(a, b);
    ASSERT_TRUE(a.line && b.line) << a.refused() << b.refused();
    EXPECT_NE(a.made, 0u);
    EXPECT_EQ(b.made, 0u) << "the lower rank makes the file";
    EXPECT_TRUE(a.file == a.made && b.file == a.made);
    ASSERT_EQ(a.theirs.size(), 2u);
    ASSERT_EQ(b.theirs.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(file_of(a.theirs[i]), file_of(b.mine[i]));
      EXPECT_EQ(file_of(b.theirs[i]), file_of(a.mine[i]));
    }
    EXPECT_EQ(a.line.send(local::Setup()), Socket::kSent);
    EXPECT_TRUE(b.line.receive().as<local::Setup>());
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
  EXPECT_FALSE(a.line || b.line);
  EXPECT_NE(a.refused().find("it passed 2 descriptors; expected 3"), std::string::npos) << a.refused();
  EXPECT_NE(b.refused().find("it cannot connect: it passed 2 descriptors"), std::string::npos) << b.refused();
  EXPECT_TRUE(b.refused().starts_with(std::to_string(TUTTI_PEER_FAILED))) << b.refused();
}

TEST(Connector, ARefusedPeerIsNotLetIn) {
  End::Job job;
  End a(job, 0), b(job, 1);
  a.connector.begin(1);
  a.connector.give_up(1);
  run(a, b);
  EXPECT_FALSE(a.line || b.line);
  EXPECT_NE(a.refused().find("rank 0 has given this rank up"), std::string::npos) << a.refused();
  EXPECT_NE(b.refused().find("rank 0 has given this rank up"), std::string::npos) << b.refused();
}

TEST(Connector, MoreThanACardOrAPacketHoldsIsRefused) {
  End::Job job;
  EXPECT_THROW(End(job, 0, {5, {"the size", 1}}), Error);
  EXPECT_THROW(End(job, 0, {}, 4), Error);
}

}  // namespace
