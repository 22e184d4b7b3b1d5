// SPDX-License-Identifier: Apache-2.0
//
// How version 1 grows: plugins of it, of an earlier and of a later minor version serve a communicator, and those that
// ask for what this core does not know, or lie about themselves, are refused by name.
//
// The plugin version1 is a binary that is kept as it was built when the interfaces became stable (version1/README.md).
// The others are made of its sources (growth/growing.c).
#include <gtest/gtest.h>
#include <tutti/registry.h>

#include <tutti/tutti.hpp>

#include "../harness/ranks.hpp"

namespace tutti::test {
namespace {

std::string file_of(const std::string& name) { return std::string(TUTTI_GROWTH) + "/libtutti-" + name + ".so"; }

// One rank of a job in which the plugin `name` serves as meeting, transport and algorithm. The meeting numbers the
// ranks, or they know their numbers.
void one_rank(const std::string& name, bool knows, uint32_t number) {
  const std::string place = "plugin:" + name + (knows ? ":growth" : ":3@growth");
  tutti_comm_config config = knows ? config_of(place, number, 3) : config_of(place, 0, 0);
  const std::string algorithms = "broadcast:" + name + ";all_reduce:" + name + ";barrier:" + name;
  config.transports = name.c_str();
  config.algorithms = algorithms.c_str();
  Communicator comm(config);
  ASSERT_EQ(comm.nranks(), 3u);
  if (knows) {
    ASSERT_EQ(comm.rank(), number);
  }
  const int32_t rank = static_cast<int32_t>(comm.rank());
  for (const size_t n : {size_t{1}, size_t{1000}, size_t{100'000}}) {
    std::vector<int32_t> in(n, rank + 1), out(n);
    in.back() = 10 * (rank + 1);
    comm.all_reduce<int32_t>(in, out, Op::sum);
    EXPECT_EQ(out.back(), 60) << n;
    EXPECT_EQ(out.front(), n == 1 ? 60 : 6) << n;
    std::vector<int32_t> told(n, rank == 2 ? 77 : 0);
    comm.broadcast<int32_t>(told, told, 2);
    EXPECT_EQ(told, std::vector<int32_t>(n, 77));
  }
  comm.barrier();
}

void serves(const std::string& name) {
  std::string error;
  ASSERT_EQ(load_plugin(file_of(name), &error), TUTTI_OK) << error;
  for (const bool knows : {false, true}) {
    std::vector<std::thread> threads;
    for (uint32_t k = 0; k < 3; ++k)
      threads.emplace_back([&, k] {
        try {
          one_rank(name, knows, k);
        } catch (const std::exception& e) {
          ADD_FAILURE() << name << ": " << e.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Growth, ThePluginOfVersion1Serves) { serves("version1"); }
TEST(Growth, AnOlderPluginServes) { serves("older"); }
TEST(Growth, ANewerPluginThatAsksForNothingServes) { serves("newer"); }
TEST(Growth, ANewerPluginMayOfferLessToAnOlderCore) { serves("cautious"); }

// The texts of two ranks that cannot make a communicator over that transport.
std::vector<std::string> both_ranks_are_refused(const char* transport) {
  const std::string place = fresh_place();
  std::vector<std::string> texts(2);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      tutti_comm_config config = config_of(place, rank, 2);
      config.transports = transport;
      try {
        const Communicator comm(config);
        texts[rank] = "it is accepted";
      } catch (const Error& refused) {
        texts[rank] = refused.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return texts;
}

// The transport of a plugin is found to be wrong when a communicator opens it.
TEST(Growth, ATransportThatAsksForMoreOrLiesIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"asking-view", "its tutti.view/1 table: tutti_view.struct_size is"},
      {"demanding", "claims the flags 0x20, which this Tutti does not know and must know"},
      {"draft-rails",
       "its tutti.rails/1 table: tutti_rails has draft stamp 0x96e2812a, this Tutti has the stable table"},
      {"short-wait", "its tutti.wait_fd/1 table: tutti_wait_fd.struct_size is"},
      {"half-marks", "its view has no set_mark or no get_mark"},
      {"tiny", "claims fragment_bytes 100 (at least 4096 is required)"},
      {"overfull", "query: tutti_transport_caps.struct_size is"},
  };
  for (const auto& [name, words] : cases) {
    std::string error;
    ASSERT_EQ(load_plugin(file_of(name), &error), TUTTI_OK) << error;
    for (const std::string& text : both_ranks_are_refused(name)) {
      EXPECT_NE(text.find(words), std::string::npos) << text;
      EXPECT_NE(text.find(std::string("transport ") + name), std::string::npos) << text;
    }
  }
}

// The last: communicators refuse to be made once the application has loaded a plugin that is refused.
TEST(Growth, ATableThatAsksForMoreIsRefused) {
  std::string error;
  EXPECT_EQ(load_plugin(file_of("asking"), &error), TUTTI_NOT_SUPPORTED);
  for (const char* words : {"libtutti-asking.so", "its tutti.transport/1 table", "tutti_transport.struct_size is",
                            "use a newer version here"})
    EXPECT_NE(error.find(words), std::string::npos) << error;
}

}  // namespace
}  // namespace tutti::test
