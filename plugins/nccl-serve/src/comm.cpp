// SPDX-License-Identifier: Apache-2.0
#include "comm.hpp"

#include <algorithm>

#include "address.hpp"

namespace tutti::nccl::serve {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kRoundsOfLetters = 64;  // rounds between two looks at the meeting socket of a whole link

}  // namespace

sdk::Error refusal_of(std::string_view letter, const std::string& who) {
  tutti_status status = TUTTI_INTERNAL;
  if (!read(letter.substr(0, sizeof status), status) || status >= 0)
    return sdk::error(TUTTI_INTERNAL, "{} sent {} bytes as a refusal, which is not one of this protocol", who,
                      letter.size());
  std::string words(letter.substr(sizeof status));
  for (char& c : words)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return sdk::error(status, "{} refuses: {}", who, words);
}

Comm::Comm(Setup setup)
    : served_(setup.served),
      mailbox_(std::move(setup.mailbox)),
      fragment_bytes_(setup.fragment_bytes),
      rank_(setup.rank),
      peer_says_("the peer at " + Address::peer_of(mailbox_.socket()).text()),
      deadline_(Clock::now() + served_.settings().connect_timeout) {
  pair_.struct_size = sizeof pair_;
  pair_.self = this;
  pair_.send = send_pair;
  try {
    open_endpoint(setup.token, setup.traffic_class);
  } catch (const sdk::Error& e) {
    refuse(e);
    throw;
  }
}

void Comm::refuse(const sdk::Error& why) {
  mailbox_.put(LetterKind::kRefusal, bytes_of(why.status()) + std::string(why.what()).substr(0, 1024));
}

void Comm::open_endpoint(const Token& token, int traffic_class) {
  const std::string address = Address::local_of(mailbox_.socket()).host();
  tutti_endpoint_config config{};
  config.struct_size = sizeof config;
  config.rank = rank_;
  config.nranks = 2;
  config.lanes = 1;
  config.name = rank_ == kSender ? "sendComm" : "recvComm";
  std::memcpy(&config.communicator_id, token.data(), sizeof config.communicator_id);
  config.pair = &pair_;
  config.address = address.c_str();
  config.timeout_ns = static_cast<uint64_t>(served_.settings().connect_timeout.count());
  if (traffic_class > 0 && traffic_class <= 255) config.traffic_class = static_cast<uint32_t>(traffic_class);
  const std::lock_guard lock(served_.control());
  const tutti_status status = served_.table().open_endpoint(served_.domain(), &config, &endpoint_);
  if (status != TUTTI_OK) throw transport_error(status, served_.name(), "open_endpoint");
}

Comm::~Comm() {
  // The letter comes first: without it the end of the connection is a loss.
  mailbox_.put(LetterKind::kBye, bytes_of(Bye{announced_}));
  mailbox_.advance();
  if (!endpoint_) return;
  const std::lock_guard lock(served_.control());
  served_.table().close_endpoint(endpoint_);
}

tutti_status Comm::send_pair(void* self, uint32_t peer, const void* data, uint64_t bytes) {
  Comm& comm = *static_cast<Comm*>(self);
  if (peer != comm.peer() || bytes > TUTTI_PAIR_BYTES) return TUTTI_INVALID_ARGUMENT;
  if (comm.mailbox_.put(LetterKind::kPair, {static_cast<const char*>(data), bytes})) return TUTTI_OK;
  return comm.mailbox_.is_over() ? TUTTI_PEER_FAILED : TUTTI_AGAIN;
}

// ---- Connecting

bool Comm::connect() {
  check();
  progress();
  check();
  if (link_) return true;
  try {
    const tutti_status status = served_.table().connect(endpoint_, peer(), &link_);
    if (status != TUTTI_OK) link_ = nullptr;
    if (status < 0) throw transport_error(status, served_.name(), "connect");
    if (!link_ && peer_is_gone())
      throw sdk::error(TUTTI_PEER_FAILED, "{} has ended before it was connected: {}", peer_says_,
                       bye_ ? "it has closed its comm" : mailbox_.problem());
    if (!link_ && Clock::now() > deadline_)
      throw sdk::error(TUTTI_TIMEOUT, "{} is not connected by transport {} within {} s (TUTTI_CONNECT_TIMEOUT)",
                       peer_says_, served_.name(),
                       std::chrono::duration<double>(served_.settings().connect_timeout).count());
  } catch (const sdk::Error& e) {
    refuse(e);
    failure_ = e;
  }
  check();
  return link_ != nullptr;
}

void Comm::read_letters() {
  mailbox_.advance();
  while (const auto letter = mailbox_.take()) {
    if (letter->kind == LetterKind::kPair) {
      const tutti_status status =
          served_.table().receive_pair(endpoint_, peer(), letter->body.data(), letter->body.size());
      if (status < 0) throw transport_error(status, served_.name(), "receive_pair");
    } else if (Bye bye; letter->kind == LetterKind::kBye && read(letter->body, bye)) {
      bye_ = bye;
    } else if (letter->kind == LetterKind::kRefusal) {
      throw refusal_of(letter->body, peer_says_);
    } else {
      throw sdk::error(TUTTI_INTERNAL, "{} sent a letter of kind {:08x} with {} bytes, which is not of this protocol",
                       peer_says_, static_cast<uint32_t>(letter->kind), letter->body.size());
    }
  }
}

// ---- Moving

void Comm::check() const {
  if (failure_) throw *failure_;
}

bool Comm::has_pending() const {
  return std::ranges::any_of(requests_, [](const Request& r) { return r.comm && !r.done(); });
}

void Comm::progress() {
  if (failure_) return;
  try {
    if (!link_ || rounds_++ % kRoundsOfLetters == 0) read_letters();
    move_out();
    if (move_in())
      move_out();
    else if (peer_is_gone())
      look_for_the_end();
  } catch (const sdk::Error& e) {
    failure_ = e;
  }
}

void Comm::begin() try {
  if (!failure_) move_out();
} catch (const sdk::Error& e) {
  failure_ = e;
}

void Comm::move_out() {
  if (!link_) return;
  for (; !controls_.empty(); controls_.pop()) {
    const Control& control = controls_.front();
    const tutti_status status = served_.table().send_control(link_, control.bytes.data(), control.size);
    if (status == TUTTI_AGAIN) break;
    if (status < 0) throw transport_error(status, served_.name(), "send_control");
    if (rank_ == kSender) ++announced_;
    if (control.part_of) moved(*control.part_of, 0, 1);
  }
  const uint32_t most = served_.caps().max_outstanding;
  for (; !pieces_.empty() && (most == 0 || posted_.size() < most); posted_.push(pieces_.pop())) {
    const Piece& piece = pieces_.front();
    const Request::Entry& entry = piece.request->entries[static_cast<size_t>(piece.entry)];
    tutti_transfer transfer{};
    transfer.link = link_;
    transfer.kind = rank_ == kSender ? TUTTI_TRANSFER_SEND : TUTTI_TRANSFER_RECV;
    transfer.data = entry.data + piece.offset;
    transfer.bytes = piece.bytes;
    transfer.region = entry.memory->region;
    transfer.cookie = next_cookie_ + posted_.size();
    const tutti_status status = served_.table().post(endpoint_, &transfer);
    if (status == TUTTI_AGAIN) break;
    if (status < 0) throw transport_error(status, served_.name(), "post");
  }
}

// True: something has happened.
bool Comm::move_in() {
  std::array<tutti_completion, 32> room;
  uint32_t n = 0;
  const tutti_status status = served_.table().progress(endpoint_, room.data(), room.size(), &n);
  if (status < 0) throw transport_error(status, served_.name(), "progress");
  if (n > room.size())
    throw sdk::error(TUTTI_INTERNAL, "transport {} reports {} completions, expected at most {}", served_.name(), n,
                     room.size());
  std::optional<sdk::Error> failed;
  for (uint32_t i = 0; i < n; ++i) {
    const tutti_completion& c = room[i];
    if (c.kind == TUTTI_COMPLETION_CONTROL) {
      on_control({static_cast<const char*>(c.data), c.bytes});
    } else if (c.kind == TUTTI_COMPLETION_PEER_FAILED) {
      throw sdk::error(TUTTI_PEER_FAILED, "{} is lost: {}", peer_says_,
                       c.data ? static_cast<const char*>(c.data) : "no reason given");
    } else if (c.status == TUTTI_OK) {
      transfer_over(c);
    } else if (!failed) {  // the record with the reason may follow
      failed = sdk::error(c.status, "{}: a transfer over transport {} has ended with status {}", peer_says_,
                          served_.name(), c.status);
    }
  }
  if (failed) throw *failed;
  return n > 0;
}

void Comm::transfer_over(const tutti_completion& completion) {
  if (posted_.empty() || completion.cookie != next_cookie_)
    throw sdk::error(TUTTI_INTERNAL, "transport {} has completed transfer {}, expected {}: not in the order of posting",
                     served_.name(), completion.cookie, next_cookie_);
  ++next_cookie_;
  const Piece piece = posted_.pop();
  moved(*piece.request, piece.entry, piece.bytes);
}

void Comm::look_for_the_end() const {
  if (!link_ || !has_pending()) return;
  // Messages sent before an orderly end still come; the end of a process takes everything with it.
  const std::string why = bye_ ? deserted() : mailbox_.problem();
  if (!why.empty()) throw sdk::error(TUTTI_PEER_FAILED, "{} is gone while requests were pending: {}", peer_says_, why);
}

// ---- Requests

Request* Comm::new_request(int n) {
  if (free_.empty()) free_.push_back(&requests_.emplace_back());
  Request* request = free_.back();
  free_.pop_back();
  *request = {};
  request->comm = this;
  request->n = request->unfinished = n;
  return request;
}

void Comm::push_control(std::string_view head, std::string_view body, Request* part_of) {
  Control control{{}, head.size() + body.size(), part_of};
  head.copy(control.bytes.data(), head.size());
  body.copy(control.bytes.data() + head.size(), body.size());
  controls_.push(control);
}

void Comm::push_pieces(Request& request, int entry) {
  const uint64_t bytes = request.entries[static_cast<size_t>(entry)].bytes;
  for (uint64_t at = 0; at < bytes; at += fragment_bytes_)
    pieces_.push({&request, entry, at, std::min(fragment_bytes_, bytes - at)});
}

void Comm::flush(Request& request) {
  for (int i = 0; i < request.n; ++i) {
    Request::Entry& entry = request.entries[static_cast<size_t>(i)];
    if (entry.left == 0) continue;
    const tutti_status status = served_.table().flush(link_, entry.memory->region, entry.data, entry.bytes);
    if (status < 0) throw transport_error(status, served_.name(), "flush");
    if (status == TUTTI_OK) moved(request, i, entry.left);
  }
}

bool Comm::test(Request& request, int* sizes) {
  if (!request.done()) {
    if (request.is_flush && !failure_) flush(request);
    progress();
    if (!request.done()) {
      check();
      return false;
    }
  }
  for (int i = 0; sizes && i < request.n; ++i)
    sizes[i] = static_cast<int>(request.entries[static_cast<size_t>(i)].bytes);
  request.comm = nullptr;
  free_.push_back(&request);
  return true;
}

}  // namespace tutti::nccl::serve
