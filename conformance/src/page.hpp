// SPDX-License-Identifier: Apache-2.0
//
// What a run prints for the author of a plugin: a line for each case that fails, and at the end a page that begins with
// what is most useful.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "result.hpp"

namespace tutti::conformance {

// A line for each bad result as it comes; on a terminal also the number of cases done. `verbose`: everything in full.
class ResultPrinter {
 public:
  ResultPrinter(bool verbose, size_t cases);
  ~ResultPrinter();
  ResultPrinter(const ResultPrinter&) = delete;
  ResultPrinter& operator=(const ResultPrinter&) = delete;
  void print(const Result& result);

 private:
  void clear() const;
  bool verbose_;
  size_t cases_, done_ = 0;
  bool terminal_;
};

// The bad result to begin with: the first that names a clause, else the first. Cases come cheapest first, and those of
// the contract before the matrix, which shows the consequences. nullptr: none is bad.
const Result* first_bad(const Run& run);

// The page: the verdict, the first broken clause in a sentence, what was seen, where to look, how to have it again, the
// smallest case that still fails (`smallest`; "": none was looked for), and what else is broken. Then the failures in
// full, but of one clause only the first few.
void print_page(const Run& run, const std::string& verdict, const std::string& smallest, bool verbose);

}  // namespace tutti::conformance
