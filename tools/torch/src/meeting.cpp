// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a process group find each other, and the barrier that names those that do not come.
#include <c10/util/StringUtil.h>

#include <array>
#include <cstring>
#include <mutex>

#include "ending.hpp"
#include "process_group.hpp"

namespace tutti::torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::mutex open_mutex;
std::vector<std::weak_ptr<Engine>> open_engines;

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t n = 0; n < ranks.size(); ++n) text += (n ? ", " : "") + std::to_string(ranks[n]);
  return text;
}

// Until all ranks have come and rank 0 has left its id: the text of it.
std::string exchange_id(c10d::Store& store, int rank, int size, milliseconds timeout, const std::string& name) {
  // A store outlives the process groups that meet over it: groups of one name are numbered.
  const std::string prefix = c10::str("tutti/", (store.add("tutti/arrivals", 1) - 1) / size, "/");
  if (rank == 0) {
    tutti_unique_id id{};
    const tutti_status status = tutti_unique_id_create(&id);
    store.set(prefix + "id", bytes_of(status < 0 ? "" : id.text));
  }
  const auto key_of = [&](int r) { return prefix + "rank/" + std::to_string(r); };
  store.set(key_of(rank), bytes_of("here"));
  if (store.add(prefix + "here", 1) == size) store.set(prefix + "all", bytes_of("here"));
  try {
    store.wait({prefix + "id", prefix + "all"}, timeout);
  } catch (const std::exception& problem) {
    std::vector<int> absent;
    for (int r = 0; r < size; ++r)
      if (!store.check({key_of(r)})) absent.push_back(r);
    if (absent.empty()) throw;
    throw Error(TUTTI_TIMEOUT, c10::str("tutti: rank ", rank, ": ", name, ": ", list_of(absent), " of ", size,
                                        " did not come within ", timeout.count(), " ms (", problem.what(), ")"));
  }
  const std::vector<uint8_t> id = store.get(prefix + "id");
  if (id.empty()) throw Error(TUTTI_SYSTEM, "tutti: " + name + ": rank 0 has no address to meet at; its log says why");
  return {id.begin(), id.end()};
}

}  // namespace

std::shared_ptr<Engine> meet(c10d::Store& store, int rank, int size, milliseconds timeout, const std::string& name) {
  const std::string id = exchange_id(store, rank, size, timeout, name);
  std::array<char, 4096> error{};
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = name.c_str();
  config.rendezvous = id.c_str();
  config.rank = static_cast<uint32_t>(rank);
  config.nranks = static_cast<uint32_t>(size);
  config.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  config.error = error.data();
  config.error_bytes = error.size();
#ifndef TUTTI_TORCH_CUDA
  config.device = "none";
#endif
  tutti_comm* comm = nullptr;
  const tutti_status status = tutti_comm_create(&config, &comm);
  if (status < 0) throw Error(status, error.data());
  auto engine = std::make_shared<Engine>(comm);
  const std::lock_guard lock(open_mutex);
  std::erase_if(open_engines, [](const auto& one) { return one.expired(); });
  open_engines.push_back(engine);
  return engine;
}

void close_all(const std::string& reason) {
  begin_ending();
  std::vector<std::weak_ptr<Engine>> engines;
  {
    const std::lock_guard lock(open_mutex);
    engines.swap(open_engines);
  }
  for (const auto& one : engines)
    if (const auto engine = one.lock()) engine->close(reason);
}

// ---- The monitored barrier ---------------------------------------------------------------------------------
//
// Each rank sends rank 0 a message; rank 0 looks for them, without a receive that would break the communicator at its
// deadline, and answers all with its verdict. A rank that comes too late finds the verdict waiting.

std::vector<int> ProcessGroup::missing(uint32_t tag, Clock::time_point deadline, bool all) {
  std::vector<int> absent;
  for (int peer = 1; peer < getSize() && (all || absent.empty()); ++peer) {
    bool found = false;
    engine_->call([&](tutti_comm* comm) -> tutti_status {
      tutti_envelope envelope{};
      envelope.struct_size = sizeof envelope;
      envelope.peer = static_cast<uint32_t>(peer);
      envelope.tag = tag;
      const tutti_status status = tutti_probe(comm, &envelope, 1'000'000);
      found = status == TUTTI_OK;
      return status == TUTTI_AGAIN && Clock::now() >= deadline ? tutti_status{TUTTI_OK} : status;
    });
    if (!found) absent.push_back(peer);
  }
  return absent;
}

void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool all) {
  constexpr uint32_t first_tag = 1u << 31;  // torch's are below
  const uint32_t tag = first_tag | (barriers_++ & 0xffffff);
  const milliseconds limit = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
  const auto message = [&](bool sends, int peer, const std::shared_ptr<int32_t>& word) {
    auto operation = std::make_shared<Operation>();
    operation->name = "tutti:monitored_barrier";
    operation->start = [=](tutti_comm* comm, tutti_request** request) {
      const auto to = static_cast<uint32_t>(peer);
      return sends ? tutti_send(comm, word.get(), 1, TUTTI_INT32, to, tag, nullptr, request)
                   : tutti_receive(comm, word.get(), 1, TUTTI_INT32, to, tag, nullptr, request);
    };
    engine_->start(operation);
    return operation;
  };
  const auto finish = [&](const OperationPtr& operation) {
    engine_->wait(*operation, UINT64_MAX);
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
