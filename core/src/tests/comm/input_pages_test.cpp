// SPDX-License-Identifier: Apache-2.0
//
// Inputs are only read, and nothing beside them is: every call with its input in pages that cannot be written, between
// pages that cannot be touched, and with its output between such pages. The bytes begin at a page, or end with one.
#include <sys/mman.h>

#include "../../../tests/harness/child_ranks.hpp"
#include "../../../tests/harness/every_call.hpp"

namespace tutti::test {
namespace {

enum class Edge { first, last };

// Elements at the first or at the last bytes of their pages, between two pages that nobody may touch.
class Pages {
 public:
  Pages(uint64_t elements, Edge edge) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t bytes = elements * sizeof(int64_t);
    inner_ = (bytes + page - 1) / page * page;
    all_ = inner_ + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    first_ = base_ + page;
    protect(PROT_READ | PROT_WRITE);
    if (elements) data_ = reinterpret_cast<int64_t*>(first_ + (edge == Edge::last ? inner_ - bytes : 0));
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(base_, all_); }
  void protect(int protection) {
    if (mprotect(first_, inner_, protection) != 0) throw std::runtime_error("mprotect failed");
  }
  int64_t* data() const { return data_; }  // NULL: no elements

 private:
  uint64_t inner_ = 0, all_ = 0;
  char *base_ = nullptr, *first_ = nullptr;
  int64_t* data_ = nullptr;
};

void carry_out(const Made& call, Edge edge) {
  Pages in(call.elements(TUTTI_BUFFER_IN), edge), out(call.elements(TUTTI_BUFFER_OUT), edge);
  call.fill(in.data());
  in.protect(PROT_READ);
  call.carry_out(in.data(), out.data());
}

class InputPages : public testing::TestWithParam<EveryCall> {};

TEST_P(InputPages, AreOnlyRead) {
  const EveryCall& what = GetParam();
  const std::string choice = what.choice();
  const test::Setup setup{what.transport.c_str(), choice.empty() ? nullptr : choice.c_str()};
  const auto body = [&](Communicator& comm) {
    const bool rooted = what.collective && has_root(what.collective);
    for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 17})  // 8 bytes, 1 MiB
      for (const Edge edge : {Edge::first, Edge::last})
        for (const uint32_t root : {0u, what.nranks - 1})
          if ((root == 0 || rooted) && !HasFailure()) carry_out({comm, what, count, root}, edge);
  };
  if (sanitized) return run_ranks(what.nranks, body, setup);  // a sanitizer's threads do not outlive a fork
  for (const Ranks kind : {Ranks::threads, Ranks::processes})
    run_in_children(kind, what.nranks, what.name(), body, setup);
}

INSTANTIATE_TEST_SUITE_P(All, InputPages, testing::ValuesIn(every_call()),
                         [](const auto& each) { return each.param.name(); });

}  // namespace
}  // namespace tutti::test
