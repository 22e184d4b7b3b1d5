// SPDX-License-Identifier: Apache-2.0
//
// The application's locale changes nothing: not what ranks say to each other, and not what a setting means.
#include <clocale>
#include <cstdlib>
#include <locale>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

// As in some countries: 1.234,5, with a blank in place of the point. Streams that are made meanwhile write and read so,
// and no locale of the system is needed for it.
class OddLocale {
 public:
  OddLocale() : before_(std::locale::global(std::locale(std::locale(), new Numbers))) {}
  ~OddLocale() { std::locale::global(before_); }

 private:
  struct Numbers : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return ' '; }
    std::string do_grouping() const override { return "\1"; }
  };
  std::locale before_;
};

void expect_sum(Communicator& comm) {
  std::vector<int64_t> data(100, 1);
  comm.all_reduce<int64_t>(data, data, Op::sum);
  EXPECT_EQ(data, std::vector<int64_t>(100, comm.nranks()));
}

TEST(Locale, RanksUnderstandEachOther) {
  const OddLocale odd;
  for (const char* transports : {"shm", "tcp"})
    run_ranks(3,
              [](Communicator& world) {
                auto part = world.split(world.rank() % 2 + 10'000);
                ASSERT_TRUE(part);
                EXPECT_EQ(part->nranks(), world.rank() == 1 ? 1u : 2u);
                expect_sum(*part);
                Communicator copy = world.duplicate();
                expect_sum(copy);
                std::vector<int64_t> memory(100'000, 1);
                tutti_window* window = nullptr;
                ASSERT_EQ(tutti_comm_register(world.handle(), memory.data(), memory.size() * sizeof(int64_t), nullptr,
                                              &window),
                          TUTTI_OK)
                    << world.error_text();
                EXPECT_EQ(tutti_comm_deregister(world.handle(), window, nullptr), TUTTI_OK) << world.error_text();
                tutti_comm* next = nullptr;
                ASSERT_EQ(tutti_comm_shrink(world.handle(), nullptr, &next), TUTTI_OK) << world.error_text();
                EXPECT_EQ(tutti_comm_nranks(next), 3u);
                EXPECT_EQ(tutti_comm_destroy(next), TUTTI_OK);
              },
              {.transports = transports});
}

// "" where a communicator of one rank can be made with TUTTI_TIMEOUT=`text`, else the error's text.
std::string problem_of(const char* text) {
  setenv("TUTTI_TIMEOUT", text, 1);
  const std::string place = fresh_place();
  tutti_comm_config config = config_of(place, 0, 1);
  config.timeout_ns = default_timeout;
  char error[512] = "";
  config.error = error;
  config.error_bytes = sizeof error;
  tutti_comm* comm = nullptr;
  if (tutti_comm_create(&config, &comm) == TUTTI_OK) {
    EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
  }
  unsetenv("TUTTI_TIMEOUT");
  return error;
}

TEST(Locale, ANumberOfSecondsHasAPoint) {
  const OddLocale odd;
  const std::string before = std::setlocale(LC_ALL, nullptr);
  // Those of them that the system has; "" is what the user has set.
  for (const char* name : {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "cs_CZ.UTF-8", ""}) {
    if (!std::setlocale(LC_ALL, name)) continue;
    for (const char* good : {"60", "60.5", "6e1", "1e9", "1e-9"}) EXPECT_EQ(problem_of(good), "") << name;
    for (const char* bad : {"", "2,5", " 5", "5 ", "+3", "0x10", "1e-10", "0", "-1", "1e10", "nan", "inf", "5s"}) {
      const std::string expected = "TUTTI_TIMEOUT=\"" + std::string(bad) + "\" is not a positive number of seconds";
      EXPECT_NE(problem_of(bad).find(expected), std::string::npos) << name << ": " << problem_of(bad);
    }
  }
  std::setlocale(LC_ALL, before.c_str());
}

}  // namespace
}  // namespace tutti::test
