// SPDX-License-Identifier: Apache-2.0
//
// tutti-doctor: exit status 0; 1 with errors or where compare finds a difference; 2 for a wrong command line.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "meeting.hpp"
#include "options.hpp"
#include "passport.hpp"
#include "report.hpp"
#include "standard_output/standard_output.hpp"

namespace {

int examine(const doctor::Options& options) {
  const auto job = doctor::examine(doctor::read_facts("/", doctor::this_process()));
  if (!job) return 0;  // rank 0 reports
  const doctor::Findings findings = doctor::judge(*job);
  std::fputs((options.json ? report_json(*job, findings) : report_text(*job, findings)).c_str(), stdout);
  return has_errors(findings) ? 1 : 0;
}

int run(int argc, char** argv) {
  int status = 0;
  const auto options = doctor::parse_options(argc, argv, &status);
  if (!options) return status;
  try {
    switch (options->task) {
      case doctor::Options::Task::passport:
        doctor::write_passport(doctor::read_facts("/", doctor::this_process()), options->quick, options->output);
        return 0;
      case doctor::Options::Task::compare:
        return doctor::compare_passports(options->first, options->second) ? 1 : 0;
      default:
        return examine(*options);
    }
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "tutti-doctor: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti-doctor: %s\n", e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  return tools::exit_status("tutti-doctor", run(argc, argv));
}
