// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/environment.hpp"

namespace tutti::core {

inline constexpr char kFolderFile[] = "tutti-meeting";

// Ranks that share a folder: rank 0 listens and writes where, with a fresh secret, into FOLDER/tutti-meeting (readable
// by its user only; whole or not at all); the others read that and connect. The file of an earlier run is told apart by
// nobody listening there, or by whoever listens not knowing the secret: the others then read the file again until the
// deadline. Rank 0 removes the file once all have met or the meeting has failed.
std::unique_ptr<Bootstrap> meet_in_folder(const Rendezvous& rendezvous, const std::string& folder,
                                          const Environment& environment, std::chrono::nanoseconds timeout);

}  // namespace tutti::core
