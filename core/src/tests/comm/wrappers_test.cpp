// SPDX-License-Identifier: Apache-2.0
//
// TUTTI_WRAP: plugins with wrapper/1 over each transport. Two of them pass everything on and count.
#include <tutti/plugin/wrapper.h>
#include <tutti/registry.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

// A wrapper of one transport.
template <int number>
struct Passing {
  inline static std::mutex mutex;  // ranks that are threads wrap a transport side by side
  inline static const tutti_transport* inner = nullptr;
  inline static tutti_transport outer{};
  inline static std::atomic<int> opened{0};

  static tutti_status open_domain(void* self, const tutti_domain_config* config, tutti_domain** domain) {
    ++opened;
    return inner->open_domain(self, config, domain);
  }
  static tutti_status wrap(void*, const tutti_transport* given, const tutti_transport** made) {
    const std::lock_guard lock(mutex);
    if (inner != given) {
      inner = given;
      outer = *given;
      outer.open_domain = open_domain;
    }
    *made = &outer;
    return TUTTI_OK;
  }
  static const void* get_interface(const char* id, uint32_t index) {
    static const tutti_wrapper table{sizeof table, TUTTI_WRAPPER_STAMP, nullptr, "passes everything on", wrap};
    return index == 0 && std::strcmp(id, TUTTI_WRAPPER_ID) == 0 ? &table : nullptr;
  }
  static void load(const char* name) {
    static const tutti_plugin_info info{sizeof info, 0, name, "1.0.0", "Tutti", "Apache-2.0", "for tests"};
    static const tutti_plugin_entry_table entry{
        sizeof entry,    TUTTI_ABI_MAJOR,
        TUTTI_ABI_MINOR, 0,
        &info,           [](const tutti_host*) { return tutti_status{TUTTI_OK}; },
        get_interface};
    ASSERT_EQ(tutti_plugin_register(&entry), TUTTI_OK);
  }
};
using One = Passing<1>;
using Two = Passing<2>;

class Wrappers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    One::load("pass-one");
    Two::load("pass-two");
  }
  void TearDown() override {
    unsetenv("TUTTI_WRAP");
    unsetenv("TUTTI_CHECKSUM");
    One::opened = Two::opened = 0;
    One::inner = Two::inner = nullptr;
  }
};

void exchange(Communicator& world) {
  const std::vector<int64_t> in(5000, world.rank() + 1);
  std::vector<int64_t> out(5000);
  world.all_reduce<int64_t>(in, out, Op::sum);
  EXPECT_EQ(out, std::vector<int64_t>(5000, 3));
}

TEST_F(Wrappers, AreAppliedInTheListsOrder) {
  setenv("TUTTI_WRAP", "pass-two,pass-one", 1);
  run_ranks(2, exchange, {"tcp"});
  EXPECT_STREQ(Two::inner->name, "tcp");
  EXPECT_EQ(One::inner, &Two::outer) << "the first of the list is the innermost";
  EXPECT_GE(One::opened, 1);
  EXPECT_EQ(One::opened, Two::opened);
}

TEST_F(Wrappers, ChecksumHasAShortForm) {
  setenv("TUTTI_CHECKSUM", "1", 1);
  setenv("TUTTI_WRAP", "pass-one", 1);
  run_ranks(2, exchange, {"tcp"});
  ASSERT_NE(One::inner, nullptr);
  EXPECT_STREQ(One::inner->name, "tcp");
  std::string error;
  EXPECT_NE(One::inner, find_transport("tcp", &error)) << "the checksum is not below it";
}

TEST_F(Wrappers, HaveRoomInTheSmallestFragments) {
  setenv("TUTTI_TCP_FRAGMENT_BYTES", "4096", 1);
  setenv("TUTTI_WRAP", "checksum", 1);
  run_ranks(2, exchange, {"tcp"});
  unsetenv("TUTTI_TCP_FRAGMENT_BYTES");
}

TEST_F(Wrappers, ThatCannotBeAreErrors) {
  const std::pair<const char*, const char*> wrong[] = {
      {"pass-one,nonsense",
       "TUTTI_WRAP: there is no plugin \"nonsense\" with tutti.wrapper/1, or it was refused; there are: "},
      {"tcp", "TUTTI_WRAP: there is no plugin \"tcp\" with tutti.wrapper/1"},
      {"^checksum", "TUTTI_WRAP=\"^checksum\": expected a list of plugins, the innermost first, without ^"},
      {"pass-one,,pass-two", "TUTTI_WRAP=\"pass-one,,pass-two\": a name is empty"},
      {"pass-one,pass-one", "pass-one is named twice"}};
  for (const auto& [list, words] : wrong) {
    setenv("TUTTI_WRAP", list, 1);
    const std::string place = fresh_place();
    const Failed failed = failure_of([&] { Communicator world(config_of(place, 0, 1)); });
    EXPECT_LT(failed.status, 0) << list;
    EXPECT_NE(failed.text.find(words), std::string::npos) << list << ": " << failed.text;
  }
}

}  // namespace
}  // namespace tutti::test
