// SPDX-License-Identifier: Apache-2.0
//
// The library believes no completion that cannot be right.
#include "../harness/faulty.hpp"
#include "../harness/ranks.hpp"

namespace tutti::test {
namespace {

TEST(Completion, AReceiveThatTellsNoBytesIsNotTakenForAMessage) {
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<int32_t> data(1000, 1);
              comm.all_reduce<int32_t>(data, data, Op::sum);
              EXPECT_EQ(data[999], 2);
              comm.barrier();
              faulty::hides_bytes = true;
              const Failed failed = failure_of([&] { comm.all_reduce<int32_t>(data, data, Op::sum); });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH) << failed.text;
            },
            {"faulty"});
  faulty::hides_bytes = false;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tutti::test::faulty::load();
  return RUN_ALL_TESTS();
}
