// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a process group find each other, and the barrier that names those that do not come.
#include <ATen/Context.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "process_group.hpp"
#include "signals.hpp"

namespace tutti::torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds no_timeout(30'000);  // of a group whose maker gives none
constexpr milliseconds least_connect_timeout(5'000);

// The core's, which says what is wrong with the variable.
milliseconds connect_timeout() {
  const char* const text = std::getenv("TUTTI_CONNECT_TIMEOUT");
  double seconds = 30;
  if (text) std::from_chars(text, text + std::strlen(text), seconds);
  return milliseconds(static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) * 1000));
}

std::mutex open_mutex;
std::vector<std::weak_ptr<Engine>> open_engines;

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t n = 0; n < ranks.size(); ++n) text += (n ? ", " : "") + std::to_string(ranks[n]);
  return text;
}

// The ranks meet over a store, which may hold what earlier meetings and attempts have left, also of processes that are gone.
// Each rank leaves a fresh name under its number. Rank 0 answers each name with its offer, which has a fresh name too, and says
// "go" once all ranks whose names stand there now have taken it. A rank that comes anew replaces its name, and is answered anew.
class Meeting {
 public:
  Meeting(c10d::Store& store, int rank, int size, milliseconds timeout, const std::string& name)
      : store_(store), rank_(rank), size_(size), timeout_(timeout), name_(name), deadline_(Clock::now() + timeout) {}

  // The text of a unique id of rank 0's. Throws Error, naming the ranks that have not come in time.
  std::string id() {
    const std::string offer = rank_ == 0 ? make_offer() : take_offer();
    const std::vector<uint8_t> id = store_.get(id_of(offer));
    if (id.empty()) throw Error(TUTTI_SYSTEM, "tutti: " + name_ + ": rank 0 has no address to meet at; its log says why");
    return {id.begin(), id.end()};
  }

  milliseconds left() const {
    return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline_ - Clock::now()));
  }

 private:
  using Keys = std::vector<std::string>;
  static std::string name_of(int rank) { return "tutti/rank/" + std::to_string(rank); }
  static std::string answer_to(const std::string& name) { return "tutti/answer/" + name; }
  static std::string taken(const std::string& offer, const std::string& name) { return "tutti/taken/" + offer + "/" + name; }
  static std::string go(const std::string& offer) { return "tutti/go/" + offer; }
  static std::string id_of(const std::string& offer) { return "tutti/id/" + offer; }

  std::string make_offer() {
    const std::string offer = fresh_name();
    tutti_unique_id id{};
    const tutti_status status = tutti_unique_id_create(&id);
    store_.set(id_of(offer), bytes_of(status < 0 ? "" : id.text));
    store_.set(name_of(0), bytes_of(offer));
    Keys names, takings;
    for (int r = 1; r < size_; ++r) names.push_back(name_of(r));
    while (!wait(names, longest_slice))
      if (late()) throw absent(offer);
    for (milliseconds slice(5);; slice = std::min(slice * 2, longest_slice / 10)) {
      takings.clear();
      for (const std::string& key : names) {
        const std::string name = text_at(key);
        if (answered_.insert(name).second) store_.set(answer_to(name), bytes_of(offer));
        takings.push_back(taken(offer, name));
      }
      if (wait(takings, slice)) break;
      if (late()) throw absent(offer);
    }
    store_.set(go(offer), bytes_of("go"));
    return offer;
  }

  std::string take_offer() {
    const std::string name = fresh_name();
    store_.set(name_of(rank_), bytes_of(name));
    while (!wait({answer_to(name)}, longest_slice))
      if (late()) throw absent("");
    for (std::string offer;;) {
      // Another one, where rank 0 has been started anew meanwhile.
      if (const std::string last = text_at(answer_to(name)); last != offer) {
        offer = last;
        store_.set(taken(offer, name), bytes_of("taken"));
      }
      if (wait({go(offer)}, longest_slice)) return offer;
      if (late()) throw absent(offer);
    }
  }

  // Until all keys are there, at most so long. By looks: a store's own wait() knows no signals.
  bool wait(const Keys& keys, milliseconds slice) {
    const auto end = std::min(Clock::now() + slice, deadline_);
    for (std::chrono::microseconds pause(200);; pause = std::min<std::chrono::microseconds>(pause * 2, milliseconds(50))) {
      if (keys.empty() || store_.check(keys)) return true;
      run_signal_handlers();
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(pause);
    }
  }
  bool late() const { return Clock::now() >= deadline_; }
  std::string text_at(const std::string& key) {
    const std::vector<uint8_t> bytes = store_.get(key);
    return {bytes.begin(), bytes.end()};
  }

  // `offer`: that was made or taken, "" for none.
  Error absent(const std::string& offer) {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r)
      if (!store_.check({name_of(r)})) ranks.push_back(r);
    // The others have been here, but perhaps in an earlier attempt.
    if (ranks.empty() && offer.empty()) ranks.push_back(0);
    for (int r = 1; r < size_ && !offer.empty() && ranks.empty(); ++r)
      if (!store_.check({taken(offer, text_at(name_of(r)))})) ranks.push_back(r);
    if (ranks.empty()) ranks.push_back(0);
    return Error(TUTTI_TIMEOUT, c10::str("tutti: rank ", rank_, ": ", name_, ": ", list_of(ranks), " of ", size_,
                                         " did not come within ", timeout_.count(), " ms"));
  }

  static constexpr milliseconds longest_slice{1000};
  c10d::Store& store_;
  const int rank_, size_;
  const milliseconds timeout_;
  const std::string& name_;
  const Clock::time_point deadline_;
  std::set<std::string> answered_;
};

// Between rank 0 and another one in a monitored barrier. 0: all ranks have come.
class Message final : public Operation {
 public:
  Message(bool sends, uint32_t peer, uint32_t tag, std::shared_ptr<int32_t> word, const tutti_options& options)
      : Operation("tutti:monitored_barrier"),
        sends_(sends),
        peer_(peer),
        tag_(tag),
        word_(std::move(word)),
        options_(options) {}

 private:
  tutti_status start(tutti_comm* comm, tutti_request** request) override {
    return sends_ ? tutti_send(comm, word_.get(), 1, TUTTI_INT32, peer_, tag_, &options_, request)
                  : tutti_receive(comm, word_.get(), 1, TUTTI_INT32, peer_, tag_, &options_, request);
  }
  void finish() override {}
  void release() override {}

  const bool sends_;
  const uint32_t peer_, tag_;
  const std::shared_ptr<int32_t> word_;
  const tutti_options options_;
};

}  // namespace

std::string fresh_name() {
  std::random_device random;
  std::string name;
  for (int n = 0; n < 4; ++n) name += c10::str(random(), "-");
  return name;
}

std::shared_ptr<Engine> meet(c10d::Store& store, int rank, int size, milliseconds timeout, const std::string& name,
                             milliseconds within) {
  // One deadline for all that follows.
  if (within.count() <= 0) within = timeout.count() > 0 ? timeout : no_timeout;
  Meeting meeting(store, rank, size, within, name);
  const std::string id = meeting.id();
  std::array<char, 4096> error{};
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = name.c_str();
  config.rendezvous = id.c_str();
  config.rank = static_cast<uint32_t>(rank);
  config.nranks = static_cast<uint32_t>(size);
  config.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  // Where it is the shorter one: it is also how long links that are made later and the group's end wait for others, for which the
  // group's timeout may be too long, and what is left of it too short.
  const milliseconds left = std::max(meeting.left(), std::min(within, least_connect_timeout));
  if (timeout.count() > 0 && left < connect_timeout())
    config.connect_timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(left).count());
  config.error = error.data();
  config.error_bytes = error.size();
  if (!at::hasCUDA()) config.device = "none";
  tutti_comm* comm = nullptr;
  InterruptibleWaits waits;
  const tutti_status status = tutti_comm_create(&config, &comm);
  waits.rethrow(comm);
  if (status < 0) throw Error(status, error.data());
  auto engine = std::make_shared<Engine>(comm);
  const std::lock_guard lock(open_mutex);
  std::erase_if(open_engines, [](const auto& one) { return one.expired(); });
  open_engines.push_back(engine);
  return engine;
}

void close_all(const std::string& reason) {
  std::vector<std::weak_ptr<Engine>> engines;
  {
    const std::lock_guard lock(open_mutex);
    engines.swap(open_engines);
  }
  // Side by side: each end waits for the others' ranks, and all of them together no longer than one.
  std::vector<std::future<void>> ends;
  for (const auto& one : engines)
    if (auto engine = one.lock())
      ends.push_back(std::async(std::launch::async, [engine = std::move(engine), &reason] { engine->close(reason); }));
  for (std::future<void>& end : ends) end.wait();
  for (std::future<void>& end : ends) end.get();
}

// ---- The monitored barrier ---------------------------------------------------------------------------------
//
// Each rank sends rank 0 a message; rank 0 looks for them, without a receive that would break the communicator at its
// deadline, and answers all with its verdict. A rank that comes too late finds the verdict waiting.

std::vector<int> ProcessGroup::missing(uint32_t tag, Clock::time_point deadline, bool all) {
  std::vector<int> absent;
  for (int peer = 1; peer < getSize() && (all || absent.empty()); ++peer) {
    bool found = false, late = false;
    while (!found && !late) {
      run_signal_handlers();
      late = Clock::now() >= deadline;
      engine_->call([&](tutti_comm* comm) -> tutti_status {
        tutti_envelope envelope{};
        envelope.struct_size = sizeof envelope;
        envelope.peer = static_cast<uint32_t>(peer);
        envelope.tag = tag;
        const tutti_status status = tutti_probe(comm, &envelope, 1'000'000);
        found = status == TUTTI_OK;
        return status == TUTTI_AGAIN ? tutti_status{TUTTI_OK} : status;
      });
    }
    if (!found) absent.push_back(peer);
  }
  return absent;
}

void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool all) {
  constexpr uint32_t first_tag = 1u << 31;  // torch's are below
  const uint32_t tag = first_tag | (barriers_++ & 0xffffff);
  const milliseconds timeout = timeout_.load();
  const milliseconds limit = options.timeout == c10d::kUnsetTimeout ? timeout : options.timeout;
  tutti_options settings{};
  settings.struct_size = sizeof settings;
  if (timeout.count() > 0) settings.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  const auto message = [&](bool sends, int peer, const std::shared_ptr<int32_t>& word) {
    auto operation = std::make_shared<Message>(sends, static_cast<uint32_t>(peer), tag, word, settings);
    engine_->start(operation);
    return operation;
  };
  const auto finish = [&](const OperationPtr& operation) {
    wait_with_signals(UINT64_MAX, [&](uint64_t slice) { return engine_->wait(*operation, slice); });
    if (operation->failure) std::rethrow_exception(operation->failure);
  };
  const auto verdict = std::make_shared<int32_t>(0);
  if (getRank() != 0) {
    message(true, 0, verdict);
    const auto answer = std::make_shared<int32_t>(0);
    finish(message(false, 0, answer));
    TORCH_CHECK(*answer == 0, "Rank ", getRank(), " successfully reached monitoredBarrier, but received errors while ",
                "waiting for send/recv from rank 0: it missed others, and its error names them");
    return;
  }
  const std::vector<int> absent = missing(tag, Clock::now() + limit, all);
  *verdict = absent.empty() ? 0 : 1;
  for (int peer = 1; peer < getSize(); ++peer) {
    if (absent.empty()) finish(message(false, peer, std::make_shared<int32_t>(0)));
    message(true, peer, verdict);
  }
  if (absent.empty()) return;
  std::string who = list_of(absent);
  who.front() = 'R';
  throw Error(TUTTI_TIMEOUT, c10::str("[Rank 0]: ", who, " failed to pass monitoredBarrier in ", limit.count(),
                                      " ms: Rank 0 timed out in monitoredBarrier"));
}

}  // namespace tutti::torch
