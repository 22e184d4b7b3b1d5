// SPDX-License-Identifier: Apache-2.0
//
// A meeting place as text: what make_unique_id hands out, and what rank 0 writes into a shared folder.
#pragma once
#include <string>
#include <utility>

#include "control_mesh.hpp"

namespace tutti::core {

// "id:" and hexadecimal digits. Addresses that do not fit into kMaxUniqueId are left out, the last first.
std::string id_text(const MeetingPlace& place);
// Throws Failure{TUTTI_INVALID_ARGUMENT} when the text is not one of id_text's.
MeetingPlace parse_id(const std::string& text);

// Listens on any free port of all interfaces; secret and job, a name of kIdNameBytes in hexadecimal digits, are random.
std::pair<MeetingPlace, FileDescriptor> open_meeting_place();
inline constexpr size_t kIdNameBytes = 16;

}  // namespace tutti::core
