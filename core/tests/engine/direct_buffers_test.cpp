// SPDX-License-Identifier: Apache-2.0
#include "engine/direct_buffers.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

// A device that says of every address what the test wants.
struct Told {
  tutti_pointer pointer{};
  tutti_device device{};
  DeviceTables tables{};
  Told() {
    device.struct_size = sizeof device;
    device.self = this;
    device.name = "told";
    device.classify = [](void* self, const void*, tutti_pointer* out) -> tutti_status {
      *out = static_cast<Told*>(self)->pointer;
      return TUTTI_OK;
    };
    tables.memory = &device;
    pointer.struct_size = sizeof pointer;
    pointer.kind = TUTTI_MEMORY_SIMULATED;
    pointer.base = bytes;
    pointer.bytes = sizeof bytes;
    pointer.buffer_id = 7;
  }
  char bytes[4096] = {};
};

std::string why_not(DirectBuffers& buffers, const Told& told, uint64_t offset, uint64_t bytes) {
  try {
    buffers.find(told.tables, told.bytes + offset, bytes);
    return {};
  } catch (const Failure& failure) {
    return failure.text;
  }
}

TEST(DirectBuffers, PlacesAreThoseOfTheAllocation) {
  Told told;
  DirectBuffers buffers;
  buffers.add(told.tables, told.bytes + 100, 200);
  const auto place = buffers.find(told.tables, told.bytes + 150, 150);
  EXPECT_EQ(place.buffer_id, 7u);
  EXPECT_EQ(place.offset, 150u);
  EXPECT_NE(why_not(buffers, told, 150, 151).find("is not registered"), std::string::npos);
  EXPECT_NE(why_not(buffers, told, 99, 10).find("is not registered"), std::string::npos);
  EXPECT_NE(why_not(buffers, told, 300, 1).find("is not registered"), std::string::npos);
  Told other;
  EXPECT_NE(why_not(buffers, other, 150, 1), "");
  EXPECT_TRUE(buffers.remove(told.bytes + 100));
  EXPECT_FALSE(buffers.remove(told.bytes + 100));
  EXPECT_NE(why_not(buffers, told, 150, 1), "");
}

// Memory was freed without a word, and other memory came at its address.
TEST(DirectBuffers, OtherMemoryAtTheSameAddressIsNotThatMemory) {
  Told told;
  DirectBuffers buffers;
  buffers.add(told.tables, told.bytes, 1000);
  EXPECT_EQ(why_not(buffers, told, 0, 1000), "");
  told.pointer.buffer_id = 8;
  EXPECT_NE(why_not(buffers, told, 0, 1000).find("is other memory than was registered"), std::string::npos);
  EXPECT_TRUE(buffers.remove(told.bytes));
  buffers.add(told.tables, told.bytes, 1000);
  EXPECT_EQ(buffers.find(told.tables, told.bytes, 1).buffer_id, 8u);
}

// What was handed out is given back when the last range of its allocation is, and not before somebody has unmapped it.
TEST(DirectBuffers, RemovingWaitsForThoseWhoMap) {
  constexpr std::chrono::milliseconds soon(5);
  Told told;
  DirectBuffers buffers;
  Descriptor file = DirectBoard::make(3, 2);
  const auto rank = [&](uint32_t r) { return std::make_shared<DirectBoard>(Descriptor(dup(file.get())), r, 3, 2); };
  const auto zero = rank(0);
  auto one = rank(1), two = rank(2);
  buffers.add(told.tables, told.bytes, 1000);
  buffers.add(told.tables, told.bytes + 1000, 1000);
  zero->give(1, 7);
  zero->give(2, 7);
  buffers.given(told.tables, 7, zero);
  EXPECT_TRUE(buffers.remove(told.bytes + 1000, soon));
  EXPECT_TRUE(one->withdrawals().empty()) << "the other range is there still";

  const auto kept = [&] {
    try {
      buffers.remove(told.bytes, soon);
      return std::string();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_TIMEOUT);
      return failure.text;
    }
  };
  EXPECT_NE(kept().find("ranks 1, 2,"), std::string::npos);
  ASSERT_EQ(one->withdrawals().size(), 1u);
  EXPECT_EQ(one->withdrawals()[0].buffer_id, 7u);
  one->acknowledge(one->withdrawals()[0]);
  EXPECT_TRUE(one->withdrawals().empty());
  EXPECT_NE(kept().find("ranks 2,"), std::string::npos);
  EXPECT_NE(why_not(buffers, told, 0, 1), "") << "no call uses it any more";
  buffers.add(told.tables, told.bytes + 2000, 1000);
  EXPECT_NE(why_not(buffers, told, 2000, 1).find("is being deregistered"), std::string::npos);
  two.reset();  // as when its process ends
  EXPECT_EQ(kept(), "");
  EXPECT_FALSE(buffers.remove(told.bytes));
  EXPECT_EQ(why_not(buffers, told, 2000, 1), "");
}

TEST(DirectBoard, RoundsAndRefusals) {
  Descriptor file = DirectBoard::make(2, 1);
  DirectBoard zero(Descriptor(dup(file.get())), 0, 2, 1), one(Descriptor(dup(file.get())), 1, 2, 1);
  zero.message(0, 1, 0, 31) = {5, 6};
  zero.arrive("");
  EXPECT_FALSE(zero.all_arrived());
  one.arrive("has no time");
  EXPECT_TRUE(zero.all_arrived() && one.all_arrived());
  EXPECT_EQ(one.message(0, 1, 0, 31).offset, 6u);
  // Rank 1 goes on to its next call before rank 0 has looked.
  EXPECT_EQ(one.refusal_at_arrival(), "rank 1: has no time");
  one.arrive("");
  EXPECT_EQ(zero.refusal_at_arrival(), "rank 1: has no time");
  zero.arrive("");
  EXPECT_EQ(zero.refusal_at_arrival() + one.refusal_at_arrival(), "");
  zero.vote(std::string(1000, 'x'));
  EXPECT_FALSE(one.all_voted());
  one.vote("");
  EXPECT_EQ(one.refusal_at_vote(), "rank 0: " + std::string(235, 'x'));
  EXPECT_THROW(DirectBoard(Descriptor(dup(file.get())), 0, 3, 1), Failure) << "another size";
  EXPECT_THROW(DirectBoard(Descriptor(dup(file.get())), 0, 2, 1), Failure) << "rank 0 is there";
}

}  // namespace
}  // namespace tutti::core
