// SPDX-License-Identifier: Apache-2.0
//
// The collectives on a few numbers, with the one right result of each: small whole numbers, the same in every type.
#pragma once

#include <algorithm>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

// One call with its buffers before and after, for in.size() ranks.
template <typename T>
struct WorkedExample {
  const char* title;
  std::vector<std::vector<T>> in, out;  // one row per rank; empty: the rank's role has no such buffer
  void (*run)(const tutti::Communicator&, std::span<const T> in, std::span<T> out);
  bool letters = false;  // show 0 1 ... as A0 A1 A2 A3 B0 ...
};

template <typename T>
std::vector<WorkedExample<T>> worked_examples() {
  using W = const tutti::Communicator&;
  using In = std::span<const T>;
  using Out = std::span<T>;
  const auto sum_all = [](W w, In in, Out out) { w.all_reduce<T>(in, out, tutti::Op::sum); };
  const auto sum_scatter = [](W w, In in, Out out) { w.reduce_scatter<T>(in, out, tutti::Op::sum); };
  const std::vector<T> sum{12, 15, 18}, tens{10, 20}, row{1, 2, 3}, six{1, 2, 3, 4, 5, 6};
  const std::vector<std::vector<T>> nine{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, pairs{{1, 2}, {3, 4}, {5, 6}};
  return {
      {"broadcast, root 0",
       {row, {}, {}},
       {row, row, row},
       [](W w, In in, Out out) {
         std::copy(in.begin(), in.end(), out.begin());  // the C++ wrapper broadcasts in place
         w.broadcast<T>(out, 0);
       }},
      {"reduce sum, root 0", nine, {sum, {}, {}}, [](W w, In in, Out out) { w.reduce<T>(in, out, tutti::Op::sum, 0); }},
      {"all_reduce sum", nine, {sum, sum, sum}, sum_all},
      {"all_reduce sum", {{1, 2}, {3, 4}, {2, 6}, {4, 8}}, {tens, tens, tens, tens}, sum_all},
      {"gather, root 0", pairs, {six, {}, {}}, [](W w, In in, Out out) { w.gather<T>(in, out, 0); }},
      {"all_gather", pairs, {six, six, six}, [](W w, In in, Out out) { w.all_gather<T>(in, out); }},
      {"scatter, root 0", {six, {}, {}}, pairs, [](W w, In in, Out out) { w.scatter<T>(in, out, 0); }},
      {"reduce_scatter sum", {{1, 2, 3, 4}, {5, 6, 7, 8}}, {{6, 8}, {10, 12}}, sum_scatter},
      {"reduce_scatter sum, rows of 2", {{-1, 5, 2, 2}, {3, -3, 4, 1}}, {{2, 2}, {6, 3}}, sum_scatter},
      {"reduce_scatter sum",
       {{1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}, {4, 5, 6, 7}},
       {{10}, {14}, {18}, {22}},
       sum_scatter},
      {"all_to_all",
       {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}},
       {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}},
       [](W w, In in, Out out) { w.all_to_all<T>(in, out); },
       true}};
}
