// SPDX-License-Identifier: Apache-2.0
//
// Judges a plugin's file before dlopen runs its code: only trusted users can have written it, and it is whole. The
// dynamic linker maps a file without looking at its size, so a file that was cut off would end the process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tutti::core {

// The users and groups that can put code into a process through one file.
struct Writers {
  std::vector<uid_t> users;
  std::vector<gid_t> groups;
  bool everybody = false;
};

// A file's owner, its folder's owner, and those that the modes of the two let write. The mode of a sticky folder does
// not count: there only a file's owner can replace it.
Writers writers_of(const std::string& file);

// The users and groups whose plugins this process loads:
//
//   root, the effective user, and the users whose numbers the setting TUTTI_PLUGIN_OWNERS lists
//   those who can write `library`, the file that holds Tutti: their code runs in this process already
//   a group with the number of a trusted user: that user's private group
//
// Throws Failure when the setting is not a list of numbers.
Writers trusted_writers(const std::string& library);

// "" when only `trusted` ones can write the file; else a sentence that names the others and the way out.
std::string distrust(const std::string& file, const Writers& trusted);

// "" when the file is a whole shared library for this machine; else a sentence that says why not. A file is whole when
// it reaches to the end of each segment and of the tables that its ELF header names.
std::string defect(const std::string& file);

}  // namespace tutti::core
