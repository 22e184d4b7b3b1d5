// SPDX-License-Identifier: Apache-2.0
//
// The main program of tutti_test_group() (TuttiTestGroup.cmake). --sources=FILE,... runs the cases of these files only, of those
// that --gtest_filter names.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kOption = "--sources=";

// Is a name in a list?
template <typename Match>
bool any_of(const std::string& list, char separator, const Match& match) {
  std::istringstream in(list);
  for (std::string one; std::getline(in, one, separator);)
    if (match(one)) return true;
  return false;
}

// The filter that leaves the cases of `sources` of those of `given`; empty if there are none.
std::string filter_of(const std::string& sources, const std::string& given) {
  const size_t minus = given.find('-');
  const std::string wanted = minus == 0 ? "*" : given.substr(0, minus);
  std::string cases;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const char* slash = std::strrchr(test.file(), '/');
      const std::string file = slash ? slash + 1 : test.file();
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (any_of(sources, ',', [&](const std::string& one) { return one == file; }) &&
          any_of(wanted, ':', [&](const std::string& one) { return fnmatch(one.c_str(), name.c_str(), 0) == 0; }))
        cases += name + ":";
    }
  }
  return cases.empty() || minus == std::string::npos ? cases : cases + given.substr(minus);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(kOption)) continue;
    const std::string sources = argv[i] + kOption.size();
    const std::string filter = filter_of(sources, testing::GTEST_FLAG(filter));
    if (filter.empty()) {
      std::fprintf(stderr, "%s: no case of %s is among --gtest_filter=%s\n", argv[0], sources.c_str(), testing::GTEST_FLAG(filter).c_str());
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
