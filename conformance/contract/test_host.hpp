// SPDX-License-Identifier: Apache-2.0
//
// The core's part towards a plugin, played by the suite: a host table whose callbacks check the plugin, and the guard
// through which every call into a plugin goes.
#pragma once

#include <tutti/plugin/entry.h>

#include <string>
#include <vector>

#include "broken.hpp"
#include "last_words.hpp"

namespace tutti::conformance::contract {

// Lives as long as the process.
const tutti_host* test_host();

// Other plugins that find_interface and list_interface can offer: id and file.
struct Companion {
  std::string id, path;
};
void set_companions(std::vector<Companion> companions);
const std::vector<Companion>& companions();
// The id that log records and events must bear; "" while it is not known.
void expect_source(std::string id);

// The last error of this thread's last call.
const std::string& last_error();

// One call into the plugin: watches that it returns, and what the host is told during it.
class Call {
 public:
  // `function`: a literal, for messages. `control`: a [control] function.
  Call(const char* function, bool control);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Throws Broken for what the host's callbacks saw, and E-5 when an error was not explained.
  tutti_status returned(tutti_status status);
};

template <typename Function>
tutti_status call(const char* function, bool control, Function&& body) {
  Call guard(function, control);
  return guard.returned(body());
}
// For functions that return no status.
template <typename Function>
auto plain_call(const char* function, bool control, Function&& body) {
  Call guard(function, control);
  if constexpr (std::is_void_v<decltype(body())>) {
    body();
    guard.returned(TUTTI_OK);
  } else {
    auto result = body();
    guard.returned(TUTTI_OK);
    return result;
  }
}

// Throws what callbacks outside of any call saw.
void check_host();

// A plugin file, loaded, judged (E-2 to E-4 as far as using it needs) and initialised with the test host. Never
// unloaded.
const tutti_plugin_entry_table* load_entry(const std::string& path);
const tutti_plugin_entry_table* load_plugin_under_test(const std::string& path);

}  // namespace tutti::conformance::contract
