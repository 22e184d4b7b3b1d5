// SPDX-License-Identifier: Apache-2.0
//
// Where the program makes the call that this thread is in, for reports of waits. Nothing is done for it when a call
// begins: find() walks up the stack. A language with a stack of its own gives its text instead (tutti_set_call_site).
// Each thread has its own.
#pragma once

#include <tutti/flight_record.h>

#include <array>
#include <string>

namespace tutti::core {

class CallSite {
 public:
  // NUL-terminated.
  using Text = std::array<char, sizeof(tutti_flight_state::site)>;

  // nullptr: find() walks up the stack. Of a longer text its end is kept.
  static void give(const char* text) noexcept;
  // Is there a text that was given?
  static bool is_given() noexcept;
  // The text that was given; else the return address into the program, as "symbol+0x4a" where the symbol is known and
  // else as "file+0x12f0", from the start of the file's image. "": not known, as where the program contains the
  // library. Costs some microseconds.
  static Text find() noexcept;
};

}  // namespace tutti::core
