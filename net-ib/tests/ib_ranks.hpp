// SPDX-License-Identifier: Apache-2.0
//
// Ranks over net-ib, and the cables between them.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_ib;

namespace tutti_test {

inline const tutti_plugin_entry_table& plugin_under_test() { return tutti_plugin_entry_net_ib; }

// The cables between the adapters. Cable k joins rxe{2k} (this end) and rxe{2k+1} (that end). cables_model.cpp has
// those of the model (model/adapters.hpp), cables_soft_roce.cpp those of rdma-vm.
bool cables_are_here();           // false: the test is skipped
bool cables_are_modelled();
uint64_t packets(int interface);  // that the adapter of this number sent
void cable(int rail, const std::string& state);
// Begins, or ends, losing everything that this end of cable 0 sends.
void lose_everything(bool on);
// Watches cable 0 from its far end: the traffic class of a packet of this end, or -1 while none was seen.
std::function<int()> watch_traffic_class();
// As adapters were at first; they must not be in use. May they register device memory?
void renew_cables(bool dma_buf);

// Ranks on the two ends of a cable (or two), and proof that what they said crossed it.
class OverCables : public testing::Test {
 protected:
  void SetUp() override {
    if (!cables_are_here())
      GTEST_SKIP() << "needs verbs and cables: net-ib/tests/rdma-vm --rails 2 " << program_invocation_name;
    host().settings = {{"TUTTI_IB_TIMEOUT", "14"}, {"TUTTI_IB_RETRY_CNT", "3"}};
    host().log.clear();
    renew_cables(has_dma_buf_);
    before_ = packets(0) + packets(1) + packets(2) + packets(3);
  }
  void TearDown() override {
    a.reset();
    b.reset();
    if (IsSkipped() || !crosses_ || cables_are_modelled()) return;  // the model loops nothing back
    EXPECT_GT(packets(0) + packets(1) + packets(2) + packets(3), before_) << "nothing crossed a cable";
  }
  // `rails` 1 or 2, with more settings.
  void open(int rails, const std::map<std::string, std::string>& more = {}) {
    for (const auto& [key, value] : more) host().settings[key] = value;
    host().settings["TUTTI_IB_HCA"] = rails == 1 ? "=rxe0" : "=rxe0,rxe2";
    a = std::make_unique<Rank>(0);
    ASSERT_EQ(a->open_status, TUTTI_OK) << Host::error;
    host().settings["TUTTI_IB_HCA"] = rails == 1 ? "=rxe1" : "=rxe1,rxe3";
    b = std::make_unique<Rank>(1);
    ASSERT_EQ(b->open_status, TUTTI_OK) << Host::error;
  }
  void open_joined(int rails, const std::map<std::string, std::string>& more = {}) {
    ASSERT_NO_FATAL_FAILURE(open(rails, more));
    ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  }
  bool both(const std::function<bool()>& until) { return drive({a.get(), b.get()}, until); }

  std::unique_ptr<Rank> a, b;
  bool crosses_ = true;
  bool has_dma_buf_ = false;

 private:
  uint64_t before_ = 0;
};

}  // namespace tutti_test
