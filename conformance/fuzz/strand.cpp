// SPDX-License-Identifier: Apache-2.0
#include "fuzz/strand.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "fuzz/child.hpp"

namespace tutti::conformance::fuzz {
namespace {

// "rank 1" stands in the text, and not only as a part of "rank 12".
bool names_rank(const std::string& text, uint32_t rank) {
  const std::string wanted = fmt::format("rank {}", rank);
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1))
    if (at + wanted.size() == text.size() || !std::isdigit(static_cast<unsigned char>(text[at + wanted.size()])))
      return true;
  return false;
}

bool is_call(Kind kind) {
  return kind == Kind::collective || kind == Kind::exchange || kind == Kind::message || kind == Kind::send ||
         kind == Kind::receive;
}

}  // namespace

Strand::Strand(const Program& program, const std::string& folder, const Whereabouts& whereabouts, uint32_t rank,
               uint32_t strand)
    : program_(program),
      fault_(fault_of(program)),
      folder_(folder),
      whereabouts_(whereabouts),
      rank_(rank),
      strand_(strand) {}

void Strand::run() {
  publish_ids(program_, folder_, rank_, strand_);
  for (const Event& event : program_.events) {
    if (event.strand != strand_) continue;
    whereabouts_.of(rank_, strand_).store(event.id, std::memory_order_relaxed);
    const bool ends = event.kind == Kind::destroy || event.kind == Kind::shrink;
    if (ends || event.kind == Kind::make) settle(event.comm);
    if (takes_part(program_, event, rank_)) carry_out(event);
    begun_.insert(event.id);
    if (is_call(event.kind)) used_.insert(event.comm);
    if (event.kind == Kind::destroy) used_.erase(event.comm);
  }
  whereabouts_.of(rank_, strand_).store(Whereabouts::ending, std::memory_order_relaxed);
  finish();
  whereabouts_.of(rank_, strand_).store(Whereabouts::done, std::memory_order_relaxed);
}

void Strand::carry_out(const Event& e) {
  switch (e.kind) {
    case Kind::make:
      return make(e);
    case Kind::shrink:
      return shrink(e);
    case Kind::destroy:
      return destroy(e.comm);
    case Kind::collective:
    case Kind::exchange:
      return start(e, false);
    case Kind::message:
      return start(e, e.rank == rank_);
    case Kind::send:
      return start(e, true);
    case Kind::receive:
      return start(e, false);
    case Kind::wait:
      return wait(e);
    case Kind::test:
      return test(e);
    case Kind::sleep:
      return std::this_thread::sleep_for(std::chrono::milliseconds(e.ms));
    case Kind::stop:
      return stop_for(e.ms);
    case Kind::fork:
      return fork_child(e);
    case Kind::kill:
      kill(getpid(), SIGKILL);
      return;
    case Kind::quit:
      _exit(0);
    case Kind::abort:
    case Kind::revoke:
      return end_comm(e);
  }
}

// ---- Communicators -----------------------------------------------------------------------------------------------

void Strand::make(const Event& e) {
  Comm& comm = comms_[e.comm];
  comm.members = e.members;
  comm.rank = index_of(e.members, rank_);
  const std::string name = fmt::format("c{}", e.comm);
  std::string meeting = fmt::format("file:{}/meet-{}", folder_, e.comm);
  if (e.text == "local") meeting = fmt::format("local:{}-{}", folder_, e.comm);
  if (e.text == "id") meeting = read_id(folder_, e.comm);
  std::string error(4000, '\0');
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.flags = e.flags;
  config.name = name.c_str();
  config.windows = e.windows;
  config.lanes = e.lanes;
  if (!e.transports.empty()) config.transports = e.transports.c_str();
  config.error = error.data();
  config.error_bytes = error.size();
  if (e.text != "env") {
    config.rendezvous = meeting.c_str();
    config.rank = comm.rank;
    config.nranks = static_cast<uint32_t>(e.members.size());
  }
  if (e.text == "callback") {
    comm.callback = std::make_unique<CallbackMeeting>(folder_, e.comm, comm.rank, config.nranks);
    config.all_gather = CallbackMeeting::gather;
    config.all_gather_context = comm.callback.get();
  }
  ++whereabouts_.calls();
  const tutti_status status = tutti_comm_create(&config, &comm.handle);  // writes `error`
  accept(e, e.comm, status, error.c_str());
}

void Strand::shrink(const Event& e) {
  end_pending_of(e.comm);
  const Comm& old = comms_.at(e.comm);
  if (!old.handle) return;
  Comm& comm = comms_[e.made];
  comm.members = members_of(program_, e.made);
  comm.rank = index_of(comm.members, rank_);
  ++whereabouts_.calls();
  const tutti_status status = tutti_comm_shrink(old.handle, nullptr, &comm.handle);
  if (!accept(e, e.made, status, status < 0 ? tutti_comm_error(old.handle) : "")) return;
  if (tutti_comm_nranks(comm.handle) != comm.members.size() || tutti_comm_rank(comm.handle) != comm.rank)
    throw Finding(fmt::format("wrong: rank {}: \"{}\" gave a communicator where it is rank {} of {}, expected {} of {}",
                              rank_, to_text(e), tutti_comm_rank(comm.handle), tutti_comm_nranks(comm.handle),
                              comm.rank, comm.members.size()));
}

void Strand::end_comm(const Event& e) {
  Comm& comm = comms_.at(e.comm);
  if (!comm.handle || comm.broken) return;
  ++whereabouts_.calls();
  const std::string reason = fmt::format("event {}", e.id);
  const tutti_status status = e.kind == Kind::abort ? tutti_comm_abort(comm.handle, reason.c_str())
                                                    : tutti_comm_revoke(comm.handle, reason.c_str());
  if (status < 0)
    throw Finding(fmt::format("error: rank {}: \"{}\": {}", rank_, to_text(e), tutti_status_text(status)));
}

void Strand::destroy(uint32_t id) {
  end_pending_of(id);
  const auto found = comms_.find(id);
  if (found == comms_.end()) return;
  if (tutti_comm* const handle = found->second.handle) {
    ++whereabouts_.calls();
    const tutti_status status = tutti_comm_destroy(handle);
    if (status < 0 && !may_break(program_, id))
      throw Finding(fmt::format("error: rank {}: destroying communicator {}: {}: {}", rank_, id,
                                tutti_status_text(status), tutti_comm_error(handle)));
  }
  comms_.erase(found);
}

// ---- Calls -------------------------------------------------------------------------------------------------------

void Strand::start(const Event& e, bool sends) {
  const Comm& comm = comms_.at(e.comm);
  const bool asynchronous = e.is_asynchronous(rank_);
  for (uint32_t i = 0; i < e.times && comm.handle && !comm.broken; ++i) {
    Pending one{e.id, e.comm, nullptr, make_work(program_, e, comm.members, comm.rank, sends)};
    ++whereabouts_.calls();
    const tutti_status status = one.work->start(comm.handle, asynchronous ? &one.request : nullptr);
    if (!accept(e, e.comm, status, status < 0 ? tutti_comm_error(comm.handle) : "")) return;
    pending_.push_back(std::move(one));
    if (!asynchronous) end_pending(pending_.size() - 1, "");
  }
}

void Strand::end_pending(size_t at, const std::string& way) {
  const Pending one = std::move(pending_[at]);
  pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(at));
  const Event& event = event_of(one.event);
  if (one.request) {
    tutti_status status = TUTTI_OK;
    ++whereabouts_.calls();
    if (way == "wait_for")
      while ((status = tutti_request_wait_for(one.request, 2'000'000)) == TUTTI_AGAIN) {
      }
    else if (way == "test")
      while ((status = tutti_request_test(one.request)) == TUTTI_AGAIN) std::this_thread::yield();
    else if (way != "free")
      status = tutti_request_wait(one.request);
    const std::string text = status < 0 ? tutti_request_error(one.request) : "";
    tutti_request_free(one.request);
    if (!accept(event, one.comm, status, text)) return;
    // A request that was only freed does not tell whether it failed.
    if (way == "free" && may_break(program_, one.comm)) return;
  }
  if (const std::string wrong = one.work->judge(); !wrong.empty())
    throw Finding(fmt::format("wrong: rank {}: \"{}\": {}", rank_, to_text(event), wrong));
}

void Strand::end_pending_of(uint32_t comm) {
  for (size_t at = 0; at < pending_.size();)
    if (pending_[at].comm == comm && can_end(pending_[at].event))
      end_pending(at, "wait");
    else
      ++at;
}

// The other half of a message may still lie ahead.
bool Strand::can_end(uint32_t event) const {
  const uint32_t link = event_of(event).link;
  return !link || begun_.count(link) || event > link;
}

void Strand::wait(const Event& e) {
  for (const uint32_t id : e.list)
    while (const auto at = place_of(id)) end_pending(*at, e.text);
}

void Strand::test(const Event& e) {
  for (const uint32_t id : e.list) {
    const auto at = place_of(id);
    if (!at) continue;
    ++whereabouts_.calls();
    if (tutti_request_test(pending_[*at].request) != TUTTI_AGAIN) end_pending(*at, "wait");
  }
}

bool Strand::accept(const Event& e, uint32_t id, tutti_status status, const std::string& text) {
  if (status == TUTTI_OK) return true;
  Comm& comm = comms_.at(id);
  comm.broken = true;
  const char* kind = status == TUTTI_TIMEOUT ? "stall" : "error";
  if (status > 0 || !may_break(program_, id))
    throw Finding(fmt::format("{}: rank {}: \"{}\": {}: {}", kind, rank_, to_text(e), tutti_status_text(status), text));
  const uint32_t guilty = index_of(comm.members, fault_.rank());
  if (!names_rank(text, guilty))
    throw Finding(fmt::format("{}: rank {}: \"{}\": {}: {}\n  expected an error that names rank {}, because of \"{}\"",
                              kind, rank_, to_text(e), tutti_status_text(status), text, guilty,
                              to_text(*fault_.event)));
  return false;
}

void Strand::fork_child(const Event& e) {
  std::vector<tutti_request*> requests;
  std::vector<tutti_comm*> comms;
  for (const Pending& p : pending_) requests.push_back(p.request);
  for (const auto& [id, comm] : comms_)
    if (comm.handle) comms.push_back(comm.handle);
  const pid_t child = start_child(e.text, e.ms, requests, comms);
  if (e.text == "hold") {
    children_.push_back(child);
  } else if (const std::string end = end_of_child(child); !end.empty()) {
    throw Finding(fmt::format("child: rank {}: the child of \"{}\" {}", rank_, to_text(e), end));
  }
}

void Strand::settle(uint32_t but) {
  if (program_.overlap) return;
  Event barrier;
  barrier.kind = Kind::collective;
  barrier.collective = TUTTI_BARRIER;
  barrier.strand = strand_;
  for (const uint32_t id : used_) {
    const auto found = comms_.find(id);
    if (id == but || found == comms_.end() || !found->second.handle) continue;
    end_pending_of(id);
    barrier.comm = id;
    if (found->second.broken) continue;
    ++whereabouts_.calls();
    const tutti_status status = tutti_barrier(found->second.handle, nullptr, nullptr);
    accept(barrier, id, status, status < 0 ? tutti_comm_error(found->second.handle) : "");
  }
  used_ = but && used_.count(but) ? std::set<uint32_t>{but} : std::set<uint32_t>{};
}

void Strand::finish() {
  settle(0);
  while (!pending_.empty()) end_pending(0, "wait");
  // All ranks destroy in one order; where they wait for each other outside Tutti comes last.
  std::vector<uint32_t> order;
  for (const bool callback : {false, true})
    for (const auto& [id, comm] : comms_)
      if ((comm.callback != nullptr) == callback) order.push_back(id);
  for (const uint32_t id : order) destroy(id);
  for (const pid_t child : children_)
    if (const std::string end = end_of_child(child); !end.empty())
      throw Finding(fmt::format("child: rank {}: a child that only held descriptors {}", rank_, end));
}

std::optional<size_t> Strand::place_of(uint32_t event) const {
  for (size_t at = 0; at < pending_.size(); ++at)
    if (pending_[at].event == event) return at;
  return std::nullopt;
}

const Event& Strand::event_of(uint32_t id) const {
  return *std::find_if(program_.events.begin(), program_.events.end(), [&](const Event& e) { return e.id == id; });
}

}  // namespace tutti::conformance::fuzz
