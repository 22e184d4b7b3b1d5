// SPDX-License-Identifier: Apache-2.0
//
// Texts of any length between rank 0 and the others, in pieces that pass where large packets are dropped.
//
// TCP makes one packet of what waits to be sent, so small messages in a row can still become a large packet. Here the
// sender waits for an answer to each piece: no more than one piece is ever on its way from a rank to another.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace doctor {

// With the headers of Tutti, TLS, TCP and IP a piece stays below 576 bytes, which every path carries. It is short
// enough to travel together with the announcement of its send.
constexpr uint64_t piece_bytes = 200;

// Collective. The texts of all ranks, in their order, at rank 0; nothing at the others.
std::vector<std::string> gather(const tutti::Communicator& world, const std::string& text);

// Collective over rank 0 and the ranks of `to`, where rank 0 is not. The text of rank 0. The others' is not used.
std::string tell(const tutti::Communicator& world, const std::string& text, const std::vector<uint32_t>& to);

}  // namespace doctor
