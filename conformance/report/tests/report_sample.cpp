// SPDX-License-Identifier: Apache-2.0
//
// report_sample good|bad FOLDER: writes a submission of a made-up run, for checks of the files by other programs and by
// eye.
#include <cstdio>
#include <cstring>
#include <exception>

#include "report/submission.hpp"
#include "sample_run.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    tutti::conformance::begin_submission(argv[2]);
    tutti::conformance::write_submission(
        std::strcmp(argv[1], "good") == 0 ? tutti::conformance::good_run() : tutti::conformance::bad_run(), argv[2]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "report_sample: %s\n", e.what());
    return 1;
  }
}
