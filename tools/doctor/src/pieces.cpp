// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <algorithm>

namespace doctor {
namespace {

using World = tutti::Communicator;

void send_bytes(const World& world, uint32_t peer, const void* data, uint64_t bytes) {
  world.send(std::span(static_cast<const uint8_t*>(data), bytes), peer);
}

void receive_bytes(const World& world, uint32_t peer, void* data, uint64_t bytes) {
  world.receive(std::span(static_cast<uint8_t*>(data), bytes), peer);
}

void acknowledge(const World& world, uint32_t peer) {
  const uint8_t taken = 1;
  send_bytes(world, peer, &taken, sizeof taken);
}

void await_acknowledgement(const World& world, uint32_t peer) {
  uint8_t taken = 0;
  receive_bytes(world, peer, &taken, sizeof taken);
}

void send_piece(const World& world, uint32_t peer, const std::string& text, uint64_t begin) {
  send_bytes(world, peer, text.data() + begin, std::min(piece_bytes, text.size() - begin));
}

// A text that another rank sends.
class Incoming {
 public:
  Incoming(const World& world, uint32_t peer) : world_(world), peer_(peer) {
    receive_bytes(world, peer, &size_, sizeof size_);
    acknowledge(world, peer);
  }
  bool complete() const { return text_.size() == size_; }
  void receive_piece() {
    const uint64_t begin = text_.size();
    text_.resize(std::min(begin + piece_bytes, size_));
    receive_bytes(world_, peer_, text_.data() + begin, text_.size() - begin);
    acknowledge(world_, peer_);
  }
  std::string take() { return std::move(text_); }

 private:
  const World& world_;
  uint32_t peer_;
  uint64_t size_ = 0;
  std::string text_;
};

// Sends the text to all of `to`, a piece to each in turn.
void send_text(const World& world, const std::string& text, const std::vector<uint32_t>& to) {
  const uint64_t size = text.size();
  for (const uint32_t peer : to) send_bytes(world, peer, &size, sizeof size);
  for (const uint32_t peer : to) await_acknowledgement(world, peer);
  for (uint64_t begin = 0; begin < size; begin += piece_bytes) {
    for (const uint32_t peer : to) send_piece(world, peer, text, begin);
    for (const uint32_t peer : to) await_acknowledgement(world, peer);
  }
}

}  // namespace

std::vector<std::string> gather(const World& world, const std::string& text) {
  if (world.rank() != 0) {
    send_text(world, text, {0});
    return {};
  }
  std::vector<Incoming> incoming;
  for (uint32_t rank = 1; rank < world.nranks(); ++rank) incoming.emplace_back(world, rank);
  // A piece of each rank in turn, so the others' are on their way meanwhile.
  for (bool more = true; more;) {
    more = false;
    for (Incoming& one : incoming) {
      if (one.complete()) continue;
      one.receive_piece();
      more = true;
    }
  }
  std::vector<std::string> texts{text};
  for (Incoming& one : incoming) texts.push_back(one.take());
  return texts;
}

std::string tell(const World& world, const std::string& text, const std::vector<uint32_t>& to) {
  if (world.rank() == 0) {
    send_text(world, text, to);
    return text;
  }
  Incoming told(world, 0);
  while (!told.complete()) told.receive_piece();
  return told.take();
}

}  // namespace doctor
