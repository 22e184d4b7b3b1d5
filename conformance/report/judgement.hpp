// SPDX-License-Identifier: Apache-2.0
//
// Conforming or not, and why.
#pragma once

#include <string>
#include <vector>

#include "report/must_pass.hpp"
#include "result.hpp"
#include "selection.hpp"

namespace tutti::conformance {

struct Judgement {
  std::vector<std::string> reasons;  // sentences against it, the weightiest first
  std::string part;  // why it proves nothing by itself, even without reasons against it; "": it is whole
  bool conforming() const { return reasons.empty() && part.empty(); }
  std::string title() const;  // "conforming, at this level" ...
};

// The day on which a run was made: the date of its manifest.
std::string day_of(const Run& run);

// A run by itself, on a day: there is a pass, nothing is bad, every case that is must-pass passed, and no algorithm
// passed with numbers but without a proof of its schedules. A failure that a valid waiver covers does not count.
Judgement judge(const Run& run, const std::string& day);

// A run as a submission, whatever it is about: besides, its manifest is complete and the bytes went where the cases
// say.
Judgement judge_submission(const Run& run, const std::string& day);

// The subjects of a submission: those asked for, else those that the run was told to test, else all that it could test.
std::vector<Subject> subjects_of(const Selection& asked, const Run& run);

// Objections to one subject of a submission: cases of its must-pass list that the run lacks. Empty: nothing.
std::vector<std::string> reasons_against(const Subject& subject, const Run& run, const std::string& day);

}  // namespace tutti::conformance
