// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::conformance::contract {
namespace {

using Clock = std::chrono::steady_clock;

const char* kind_text(uint16_t kind) { return kind == TUTTI_TRANSFER_SEND ? "SEND" : "RECV"; }

std::string describe(const Posted& posted) {
  const tutti_transfer& t = posted.transfer;
  return fmt::format("the {} of {} bytes with rank {} on lane {} (cookie {:#x})", kind_text(t.kind), t.bytes,
                     posted.peer, t.lane, t.cookie);
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Bytes that a call gets and that may not be read after it: touching the last few hundred of them breaks E-10.
class Passed {
 public:
  Passed(std::string_view bytes, const char* what) : memory_(std::max<size_t>(bytes.size(), 1)), what_(what) {
    std::memcpy(memory_.data(), bytes.data(), bytes.size());
  }
  ~Passed() {
    constexpr size_t kept = 256;
    static auto* old = new std::deque<GuardedMemory>();
    static std::mutex mutex;
    memory_.forbid("E-10", what_);
    const std::lock_guard lock(mutex);
    old->push_back(std::move(memory_));
    if (old->size() > kept) old->pop_front();
  }
  uint8_t* data() { return memory_.data(); }

 private:
  GuardedMemory memory_;
  const char* const what_;
};

// Sets the soft limit of open files while it lives; 0: changes nothing.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(uint64_t most) : is_set_(most != 0) {
    if (is_set_) set(most);
  }
  ~DescriptorLimit() {
    if (is_set_) setrlimit(RLIMIT_NOFILE, &usual_);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  void set(uint64_t most) {
    if (getrlimit(RLIMIT_NOFILE, &usual_) != 0) throw CannotRun{"getrlimit fails"};
    const rlimit less{most, usual_.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &less) != 0) throw CannotRun{"setrlimit fails"};
  }
  const bool is_set_;
  rlimit usual_{};
};

}  // namespace

Rank::Rank(Bench& b, const RankOptions& given) : links(given.nranks), options(given), bench(b) {
  const tutti_transport* t = bench.transport();
  bench.caps();
  domain = options.domain;
  if (!domain) {
    owns_domain_ = true;
    tutti_domain_config of{};
    of.struct_size = sizeof of;
    const tutti_status status = call("open_domain", true, [&] { return t->open_domain(t->self, &of, &domain); });
    std::memset(&of, '#', sizeof of);
    require(status == TUTTI_OK && domain, "T-3", "open_domain returned {}: {}", status_text(status), last_error());
  }
  // The config's own memory is guarded and gone after the call.
  constexpr std::string_view text("a communicator of the suite\0", 28);
  Passed name(text, "the name that an earlier open_endpoint got");
  Passed address(options.address + '\0', "the address that an earlier open_endpoint got");
  pair_ = {sizeof pair_, 0, this, send_pair};
  tutti_endpoint_config config{};
  config.struct_size = sizeof config;
  config.rank = options.rank;
  config.nranks = options.nranks;
  config.lanes = options.lanes;
  config.name = reinterpret_cast<const char*>(name.data());
  config.communicator_id = options.communicator;
  config.pair = &pair_;
  config.address = options.address.empty() ? nullptr : reinterpret_cast<const char*>(address.data());
  config.timeout_ns = 30'000'000'000;
  config.family = options.family;
  const tutti_status status = call("open_endpoint", true, [&] {
    const std::lock_guard lock(control_mutex());
    return t->open_endpoint(domain, &config, &endpoint);
  });
  std::memset(&config, '#', sizeof config);
  may_send_pairs_ = true;
  judge_pair_messages();
  require(status == TUTTI_OK && endpoint, "T-3", "open_endpoint for rank {} of {} with {} lanes returned {}: {}",
          options.rank, options.nranks, options.lanes, status_text(status), last_error());
}

Rank::~Rank() {
  try {
    close();
  } catch (...) {
  }
}

void Rank::close_endpoint() {
  if (tutti_endpoint* closing = std::exchange(endpoint, nullptr))
    plain_call("close_endpoint", true, [&] {
      const std::lock_guard lock(control_mutex());
      bench.transport()->close_endpoint(closing);
    });
}

void Rank::close() {
  const tutti_transport* t = bench.transport();
  close_endpoint();
  if (!owns_domain_) return;
  if (tutti_domain* closing = std::exchange(domain, nullptr))
    plain_call("close_domain", true, [&] { t->close_domain(closing); });
}

tutti_status Rank::connect(uint32_t peer) {
  const DescriptorLimit limit(descriptor_limit);
  tutti_link* link = nullptr;
  const tutti_status status = call("connect", false, [&] { return bench.transport()->connect(endpoint, peer, &link); });
  judge_pair_messages();
  if (status != TUTTI_OK) return status;
  require(link != nullptr, "T-5", "connect returned TUTTI_OK and no link");
  require(!links[peer] || links[peer] == link, "T-5", "connect to the connected rank {} gave another link than before",
          peer);
  links[peer] = link;
  return status;
}

bool Rank::has_pairs() const { return TUTTI_HAS(tutti_transport, bench.transport(), receive_pair); }

tutti_status Rank::receive_pair(uint32_t from, std::string_view bytes) {
  Passed message(bytes, "a pair message that an earlier receive_pair got");
  const tutti_status status = call("receive_pair", false, [&] {
    return bench.transport()->receive_pair(endpoint, from, message.data(), bytes.size());
  });
  judge_pair_messages();
  return status;
}

// Called by the plugin: what is wrong is kept until its call has returned.
tutti_status Rank::send_pair(void* self, uint32_t peer, const void* data, uint64_t bytes) {
  Rank& me = *static_cast<Rank*>(self);
  if (!me.may_send_pairs_)
    me.wrong_pair_ = "is sent within open_endpoint";
  else if (peer >= me.options.nranks || peer == me.options.rank)
    me.wrong_pair_ = fmt::format("goes to rank {}; there are {}", peer, me.options.nranks);
  else if (bytes > TUTTI_PAIR_BYTES || (bytes && !data))
    me.wrong_pair_ =
        fmt::format("has {} bytes{}; at most {} are carried", bytes, data ? "" : " at NULL", TUTTI_PAIR_BYTES);
  else if (!me.has_pairs())
    me.wrong_pair_ = "is sent by a transport that has no receive_pair";
  if (!me.wrong_pair_.empty()) return TUTTI_INVALID_ARGUMENT;
  return me.options.mail->put(me.options.rank, peer, {static_cast<const char*>(data), bytes}) ? TUTTI_OK : TUTTI_AGAIN;
}

void Rank::judge_pair_messages() {
  require(wrong_pair_.empty(), "T-4", "rank {} of {}: a pair message {}", options.rank, options.nranks, wrong_pair_);
}

uint64_t Rank::new_cookie() { return mix(++serial_ << 8 | options.rank); }

tutti_transfer Rank::send(uint32_t peer, uint32_t lane, const void* data, uint64_t bytes, uint16_t flags) {
  tutti_transfer t{};
  t.link = links[peer];
  t.lane = lane;
  t.kind = TUTTI_TRANSFER_SEND;
  t.flags = flags;
  t.data = const_cast<void*>(data);
  t.bytes = bytes;
  t.cookie = new_cookie();
  return t;
}

tutti_transfer Rank::receive(uint32_t peer, uint32_t lane, void* data, uint64_t bytes) {
  tutti_transfer t = send(peer, lane, data, bytes);
  t.kind = TUTTI_TRANSFER_RECV;
  return t;
}

Posted* Rank::enter(const tutti_transfer& transfer) {
  auto entry = std::make_unique<Posted>();
  entry->transfer = transfer;
  entry->peer = static_cast<uint32_t>(std::find(links.begin(), links.end(), transfer.link) - links.begin());
  if (transfer.flags & TUTTI_TRANSFER_INLINE)
    entry->done = true;
  else
    ++pending_, in_order_[{entry->peer, transfer.lane, transfer.kind}].push_back(entry.get());
  return (ledger_[transfer.cookie] = std::move(entry)).get();
}

Posted* Rank::post(const tutti_transfer& transfer, tutti_status* answer) {
  tutti_transfer copy = transfer;
  const tutti_status status = call("post", false, [&] { return bench.transport()->post(endpoint, &copy); });
  std::memset(&copy, '#', sizeof copy);  // E-10
  if (answer) {
    *answer = status;
  } else if (status != TUTTI_OK && status != TUTTI_AGAIN) {
    const bool small = (transfer.flags & TUTTI_TRANSFER_INLINE) != 0;
    const bool never = status == TUTTI_INVALID_ARGUMENT || status == TUTTI_NOT_SUPPORTED;
    broken(never && small                                               ? "T-22"
           : never && transfer.bytes + 1 >= bench.caps().fragment_bytes ? "T-23"
                                                                        : "T-9",
           "post of a{} {} of {} bytes on lane {} with rank {}, which is right (query says inline_bytes {}, "
           "fragment_bytes "
           "{}), returned {}: {}",
           small ? "n INLINE" : "", kind_text(transfer.kind), transfer.bytes, transfer.lane,
           std::find(links.begin(), links.end(), transfer.link) - links.begin(), bench.caps().inline_bytes,
           bench.caps().fragment_bytes, status_text(status), last_error());
  }
  return status == TUTTI_OK ? enter(transfer) : nullptr;
}

tutti_status Rank::send_control(uint32_t peer, std::string_view message) {
  Passed copy(message, "the message that an earlier send_control got");
  return call("send_control", false,
              [&] { return bench.transport()->send_control(links[peer], copy.data(), message.size()); });
}

uint32_t Rank::progress(uint32_t capacity) {
  const DescriptorLimit limit(descriptor_limit);
  if (options.mail)
    for (Letter letter; options.mail->take(options.rank, letter);) {
      if (!has_pairs()) continue;
      const tutti_status status = receive_pair(letter.from, letter.bytes);
      require(status == TUTTI_OK || failures_expected, "T-5",
              "receive_pair at rank {} of a message of {} bytes from rank {} returned {}: {}", options.rank,
              letter.bytes.size(), letter.from, status_text(status), last_error());
    }
  // Records end at an untouchable page: writing one too many shows.
  static thread_local std::map<uint32_t, GuardedMemory> arrays;
  auto found = arrays.find(capacity);
  if (found == arrays.end())
    found = arrays.emplace(capacity, GuardedMemory(capacity * sizeof(tutti_completion), 0, "T-27")).first;
  auto* records = reinterpret_cast<tutti_completion*>(found->second.data());
  uint32_t n = 0xdead;
  const tutti_status status =
      call("progress", false, [&] { return bench.transport()->progress(endpoint, records, capacity, &n); });
  require(status == TUTTI_OK, "T-32", "progress of rank {} returned {}: {}", options.rank, status_text(status),
          last_error());
  records_ += n;
  require(n <= capacity, "T-27", "progress with room for {} records says that it wrote {}", capacity, n);
  for (uint32_t i = 0; i < n; ++i) {
    const tutti_completion& r = records[i];
    require((r.mark == 0 || r.kind == TUTTI_COMPLETION_TRANSFER) && r.reserved1 == 0, "T-12",
            "a record (kind {}) has the mark {:#x} and {:#x} in its reserved field, expected 0", r.kind, r.mark,
            r.reserved1);
    if (r.kind == TUTTI_COMPLETION_TRANSFER) {
      settle(r);
      continue;
    }
    require(r.kind == TUTTI_COMPLETION_CONTROL || r.kind == TUTTI_COMPLETION_PEER_FAILED, "T-11",
            "progress wrote a record of kind {}, which there is not", r.kind);
    require(r.peer < options.nranks && r.peer != options.rank, r.kind == TUTTI_COMPLETION_CONTROL ? "T-28" : "T-32",
            "a record (kind {}) names rank {} as the peer of rank {} of {}", r.kind, r.peer, options.rank,
            options.nranks);
    std::string data;
    if (r.kind == TUTTI_COMPLETION_CONTROL) {
      require(r.bytes <= bench.caps().control_bytes, "T-28", "a control message of {} bytes arrived", r.bytes);
      if (r.bytes > 0) data.assign(static_cast<const char*>(r.data), r.bytes);
    } else {
      require(r.data && *static_cast<const char*>(r.data), "T-29",
              "the PEER_FAILED record of rank {} has no text that says why", r.peer);
      data = static_cast<const char*>(r.data);
      require(failures_expected, "T-32", "rank {} was told that rank {} is lost, which it is not: {}", options.rank,
              r.peer, data);
    }
    events.push_back({r.kind, r.status, r.peer, std::move(data)});
  }
  return n;
}

void Rank::settle(const tutti_completion& record) {
  const auto found = ledger_.find(record.cookie);
  if (found == ledger_.end())
    broken("T-12", "a completion carries the cookie {:#x}, which no transfer of rank {} had{}", record.cookie,
           options.rank, [&] {
             for (const auto& [cookie, posted] : ledger_)
               if (!posted->done && static_cast<uint32_t>(cookie) == static_cast<uint32_t>(record.cookie))
                 return fmt::format("; {:#x} had: are 64 bits kept?", cookie);
             return std::string();
           }());
  Posted& posted = *found->second;
  if (posted.transfer.flags & TUTTI_TRANSFER_INLINE)
    broken("T-22", "a record came for {}, which is INLINE: it was complete when post returned", describe(posted));
  require(!posted.done, "T-11", "{} completed a second time", describe(posted));
  auto& queue = in_order_[{posted.peer, posted.transfer.lane, posted.transfer.kind}];
  require(overtaken_ != &posted, "T-14", "{} completed before {}, which was posted earlier",
          overtaking_ ? describe(*overtaking_) : "", describe(posted));
  require(record.status <= 0, "T-11", "{} completed with status {}", describe(posted), status_text(record.status));
  if (queue.front() != &posted && !overtaken_) overtaken_ = queue.front(), overtaking_ = &posted;
  std::erase(queue, &posted);
  posted.done = true;
  posted.status = record.status;
  posted.reported = record.bytes;
  posted.reported_mark = record.mark;
  judge_mark(posted);
  --pending_;
  if (const auto on_done = std::exchange(posted.on_done, nullptr)) on_done(posted);
}

void Rank::judge_mark(const Posted& posted) {
  const bool tells = bench.caps().flags & TUTTI_TRANSPORT_MARKS && posted.transfer.kind == TUTTI_TRANSFER_RECV &&
                     (posted.status == TUTTI_OK || posted.status == TUTTI_MISMATCH);
  if (!tells)
    require(posted.reported_mark == 0, "T-12", "the record of {} has the mark {:#x}, expected 0", describe(posted),
            posted.reported_mark);
  else if (posted.status == TUTTI_OK)
    require(posted.reported_mark == posted.transfer.mark, "T-42",
            "{} has the mark {:#x} and completed with TUTTI_OK, and its record has {:#x}", describe(posted),
            posted.transfer.mark, posted.reported_mark);
}

std::string Rank::overtaken() const {
  if (!overtaken_) return "";
  return fmt::format("{} of rank {} never completes, and {}, which was posted later, has", describe(*overtaken_),
                     options.rank, describe(*overtaking_));
}

tutti_status Rank::fail_peer(uint32_t peer) {
  return call("fail_peer", false, [&] { return bench.transport()->fail_peer(endpoint, peer); });
}
tutti_status Rank::abort() {
  return call("abort", false, [&] { return bench.transport()->abort(endpoint); });
}

// ---- Stage

Stage::Stage(Bench& b, const StageOptions& options) : bench(b) {
  static uint64_t communicators = 0;
  const uint64_t id = options.communicator ? options.communicator : mix(bench.seed + ++communicators * 1000003);
  for (uint32_t r = 0; r < options.nranks; ++r) {
    RankOptions rank;
    rank.rank = r;
    rank.nranks = options.nranks;
    rank.lanes = options.lanes;
    rank.communicator = id;
    rank.mail = &mail;
    ranks.push_back(std::make_unique<Rank>(bench, rank));
  }
  if (options.connect) connect_all();
}

void Stage::connect_all() {
  std::string missing;
  until([&] { return (missing = connect()).empty(); }, "T-5",
        [&] { return "connect goes on returning TUTTI_AGAIN though both ends progress: " + missing; });
}

std::string Stage::connect() {
  std::string missing;
  for (auto& rank : ranks)
    for (uint32_t peer = 0; peer < ranks.size(); ++peer) {
      if (peer == rank->options.rank || rank->links[peer]) continue;
      const tutti_status status = rank->connect(peer);
      require(status >= 0, "T-5", "rank {}'s connect to rank {}, which is there, returned {}: {}", rank->options.rank,
              peer, status_text(status), last_error());
      if (status == TUTTI_AGAIN) missing = fmt::format("rank {} to rank {}", rank->options.rank, peer);
    }
  return missing;
}

void Stage::progress(uint32_t capacity) {
  for (auto& rank : ranks)
    if (rank->endpoint) rank->progress(capacity);
}

uint64_t Stage::records() const {
  uint64_t n = 0;
  for (const auto& rank : ranks) n += rank->records();
  return n;
}

void Stage::until(const std::function<bool()>& holds, const char* clause, const std::function<std::string()>& text) {
  constexpr uint64_t least_rounds = 20'000;  // a machine that is busy with others has not been waited for yet
  auto begin = Clock::now();
  uint64_t news = 0;
  for (uint64_t rounds = 0; !holds(); ++rounds) {
    progress();
    if (rounds % 256 == 255) {
      std::this_thread::yield();
      const uint64_t so_far = records();
      if (std::exchange(news, so_far) != so_far) begin = Clock::now(), rounds = 0;
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      if (waited < bench.patience || (rounds < least_rounds && waited < 10 * bench.patience)) continue;
      for (const auto& rank : ranks) require(rank->overtaken().empty(), "T-11", "{}", rank->overtaken());
      broken(clause, "{} (waited {:.0f} s, {} calls of progress of each rank)", text(), waited, rounds);
    }
  }
}

void Stage::drain(const char* clause) {
  until([&] { return std::all_of(ranks.begin(), ranks.end(), [](auto& rank) { return rank->pending() == 0; }); },
        clause,
        [&] {
          std::string text = "transfers that were accepted and matched never complete:";
          for (auto& rank : ranks) text += fmt::format(" rank {} has {} pending;", rank->options.rank, rank->pending());
          return text;
        });
}

void Stage::settle() {
  const auto begin = Clock::now();
  for (int round = 0; round < 200 || Clock::now() - begin < std::chrono::milliseconds(2); ++round) progress();
}

// ---- Message

void fill(uint8_t* data, uint64_t bytes, uint64_t seed, const Label& label) {
  uint64_t state = mix(seed ^ mix(uint64_t{label.from} << 48 | uint64_t{label.to} << 32 | label.lane) ^ mix(label.k));
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = mix(state++);
    std::memcpy(data + at, &word, std::min<uint64_t>(8, bytes - at));
  }
}

namespace {
constexpr uint8_t overwritten = 0x5B;

bool all_are(const uint8_t* data, uint64_t bytes, uint8_t value) {
  return bytes > 0 && std::all_of(data, data + bytes, [&](uint8_t b) { return b == value; });
}
}  // namespace

Message::Message(Stage& stage, const Label& l, uint64_t n, uint16_t send_flags, size_t slack)
    : label(l), bytes(n), stage_(stage), flags_(send_flags), source_(n, slack), target_(n, slack) {
  fill(source_.data(), bytes, stage.bench.seed, label);
  source_.forbid_writing();
}

bool Message::post_send() {
  Posted* posted =
      stage_[label.from].post(stage_[label.from].send(label.to, label.lane, source_.data(), bytes, flags_));
  if (!posted) return false;
  send_posted_ = true;
  if (flags_ & TUTTI_TRANSFER_INLINE)
    on_sent();
  else
    posted->on_done = [this](Posted& p) {
      require(p.status == TUTTI_OK, "T-11", "{} completed with {}", describe(p), status_text(p.status));
      on_sent();
    };
  return true;
}

bool Message::post_receive() {
  Posted* posted = stage_[label.to].post(stage_[label.to].receive(label.from, label.lane, target_.data(), bytes));
  if (!posted) return false;
  receive_posted_ = true;
  posted->on_done = [this](Posted& p) { on_received(p); };
  return true;
}

void Message::on_sent() {
  sent_ = true;
  source_.allow();
  std::memset(source_.data(), overwritten, bytes);
  if (received_) source_.forbid("T-18", "the memory of a SEND that had completed, and whose message had been received");
}

void Message::on_received(const Posted& posted) {
  require(send_posted_, bytes > 0 ? "T-17" : "T-25",
          "RECV {} of {} bytes on lane {} completed before its SEND was posted", label.k, bytes, label.lane);
  if (posted.status == TUTTI_MISMATCH)
    broken(
        bytes > 0 ? "T-13" : "T-25",
        "message {} of lane {} has {} bytes, and its RECV met one of another size: was {} message dropped, doubled or "
        "overtaken?",
        label.k, label.lane, bytes, bytes > 0 ? "a" : "the empty");
  const bool closed = !stage_[label.from].endpoint;
  if (closed && !sent_ && posted.status == TUTTI_PEER_FAILED) return;  // closing dropped its SEND, which was pending
  require(posted.status == TUTTI_OK, closed ? "T-33" : "T-11", "{}{} completed with {}",
          closed ? "its SEND had completed before the sender closed, and " : "", describe(posted),
          status_text(posted.status));
  received_ = true;
  judge_bytes();
  require(posted.reported == bytes, "T-12", "{} completed and reports {} bytes", describe(posted), posted.reported);
  target_.check_surroundings();
  target_.forbid("T-18", "the memory of a RECV that had completed");
  if (sent_) source_.forbid("T-18", "the memory of a SEND that had completed, and whose message had been received");
}

void Message::judge_bytes() {
  judge_message(stage_.bench.seed, label, stage_[label.to].options.lanes, target_.data(), bytes,
                flags_ & TUTTI_TRANSFER_INLINE);
}

void judge_message(uint64_t seed, const Label& label, uint32_t lanes, const uint8_t* got, uint64_t bytes,
                   bool was_inline) {
  std::vector<uint8_t> expected(bytes);
  fill(expected.data(), bytes, seed, label);
  const std::string difference = first_difference(expected.data(), got, bytes);
  if (difference.empty()) return;
  const std::string who = fmt::format("message {} of {} bytes from rank {} to rank {} on lane {}", label.k, bytes,
                                      label.from, label.to, label.lane);
  std::vector<uint8_t> other(bytes);
  for (uint32_t lane = 0; bytes >= 4 && lane < lanes; ++lane)
    for (uint32_t k = label.k < 40 ? 0 : label.k - 40; k < label.k + 40; ++k) {
      fill(other.data(), bytes, seed, {label.from, label.to, lane, k});
      if (std::equal(other.begin(), other.end(), got))
        broken("T-13", "{}: its RECV got the bytes of message {} of lane {} instead", who, k, lane);
    }
  if (all_are(got, bytes, overwritten))
    broken(was_inline ? "T-22" : "T-17",
           "{} arrived as what was written into the SEND's memory after {}: the SEND was not done with its memory", who,
           was_inline ? "its INLINE post had returned" : "its completion");
  if (all_are(got, bytes, GuardedMemory::fresh))
    broken("T-17", "{}: its RECV completed with TUTTI_OK, and nothing had been written to its memory", who);
  broken("T-15", "{} arrived wrong: {}", who, difference);
}

}  // namespace tutti::conformance::contract
