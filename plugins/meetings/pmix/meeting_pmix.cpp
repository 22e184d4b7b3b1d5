// SPDX-License-Identifier: Apache-2.0
//
// meeting/1 over PMIx: the launcher's server (mpirun of Open MPI, prterun, srun --mpi=pmix) tells each process its rank
// and carries what the ranks gather. A gather is a put, a fence that collects what all have put, and a get of each.
#include <pmix.h>
#include <tutti/plugin/meeting.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <ratio>
#include <string>
#include <thread>
#include <tutti/sdk/plugin.hpp>

#include "../room_table.hpp"

namespace {

using tutti::sdk::Error;
using Clock = std::chrono::steady_clock;

// The first byte of what a rank puts.
constexpr char kGoesOn = 'g', kGivesUp = 'a';

void expect(pmix_status_t code, const std::string& what, tutti_status status = TUTTI_SYSTEM) {
  if (code != PMIX_SUCCESS)
    throw Error(status, what + ": PMIx says " + PMIx_Error_string(code) + " (" + std::to_string(code) + ")");
}

// The answer of the server. It may come after the room was closed.
struct Answer {
  void arrive(pmix_status_t status) {
    const std::lock_guard lock(mutex);
    over = true;
    code = status;
    moved.notify_all();
  }

  std::mutex mutex;
  std::condition_variable moved;
  bool over = false;
  pmix_status_t code = PMIX_SUCCESS;
};

struct Start : Answer {
  pmix_proc_t me{};
  const pid_t process = ::getpid();
};

// "1.9 s": what is left of a timeout is rarely a whole number.
std::string seconds(std::chrono::nanoseconds time) {
  const auto tenths = std::chrono::round<std::chrono::duration<int64_t, std::deci>>(time).count();
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

// Initializes the library once in the process's life, and ends it with the process: a launcher takes one that ends
// otherwise for one that has failed, and one that finalizes between two meetings spoils the others' fences.
// PMIx_Init has no deadline: it runs in a thread of its own, which a server that is stopped may hold for ever. A later
// call waits for the same start.
pmix_proc_t initialize(std::chrono::nanoseconds timeout) {
  static std::shared_ptr<Start> start;
  static pid_t owner = 0;
  if (owner == ::getpid()) return start->me;
  const char* job = std::getenv("PMIX_NAMESPACE");
  if (!job || !std::getenv("PMIX_RANK"))
    throw Error(TUTTI_NOT_FOUND,
                "there is no PMIx server: PMIX_NAMESPACE and PMIX_RANK are not set. Start the program by mpirun or by "
                "srun --mpi=pmix");
  if (start && start->process != ::getpid())
    throw Error(TUTTI_INVALID_USAGE, "this process was forked by a rank of a PMIx job: it is not a rank itself");
  if (!start) {
    start = std::make_shared<Start>();
    std::thread([mine = start] { mine->arrive(PMIx_Init(&mine->me, nullptr, 0)); }).detach();
  }
  const std::string server = "the PMIx server of PMIX_NAMESPACE=" + std::string(job);
  const std::shared_ptr<Start> mine = start;
  std::unique_lock lock(mine->mutex);
  if (!mine->moved.wait_for(lock, timeout, [&] { return mine->over; }))
    throw Error(TUTTI_TIMEOUT, server + " has not answered for " + seconds(timeout) + ". Is the launcher stopped?");
  if (mine->code != PMIX_SUCCESS) start = nullptr;  // the next call asks again
  expect(mine->code, server + " does not answer. Is the launcher that set it still there?");
  owner = ::getpid();
  std::atexit([] {
    if (owner == ::getpid()) PMIx_Finalize(nullptr, 0);
  });
  return mine->me;
}

// This process's part in one meeting.
class Room {
 public:
  static constexpr const char* protocol = "PMIx";
  explicit Room(const tutti_meeting_config& config) : timeout_(config.timeout_ns) {
    if (config.place[0] != '\0')
      throw Error(TUTTI_INVALID_ARGUMENT, "the place \"" + std::string(config.place) +
                                              "\" was given, expected none: all ranks of a PMIx job meet");
    me_ = initialize(timeout_);
    nranks_ = job_size();
    if (config.nranks != 0 && (config.nranks != nranks_ || config.rank != me_.rank))
      throw Error(TUTTI_MISMATCH, "PMIx says that this is rank " + std::to_string(me_.rank) + " of " +
                                      std::to_string(nranks_) + ", expected rank " + std::to_string(config.rank) +
                                      " of " + std::to_string(config.nranks));
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    if (aborted_) tell_the_others();
  }

  uint32_t rank() const { return me_.rank; }
  uint32_t nranks() const { return nranks_; }

  void all_gather(const void* mine, uint64_t bytes, void* all) {
    if (aborted_) throw Error(TUTTI_ABORTED, "this rank has given the meeting up");
    ++gathers_;
    const std::string key = put(kGoesOn, mine, bytes);
    await(fence());
    for (uint32_t r = 0; r < nranks_; ++r) get(r, key, static_cast<char*>(all) + r * bytes, bytes);
  }
  // [any]
  void abort() { aborted_ = true; }

 private:
  pmix_proc_t everybody() const { return process(PMIX_RANK_WILDCARD); }
  pmix_proc_t process(uint32_t rank) const {
    pmix_proc_t found = me_;
    found.rank = rank;
    return found;
  }

  uint32_t job_size() const {
    const pmix_proc_t of = everybody();
    pmix_value_t* value = nullptr;
    expect(PMIx_Get(&of, PMIX_JOB_SIZE, nullptr, 0, &value), "the number of ranks (pmix.job.size)");
    const uint32_t size = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
    PMIX_VALUE_RELEASE(value);
    if (size == 0 || me_.rank >= size)
      throw Error(TUTTI_SYSTEM, "PMIx says that this is rank " + std::to_string(me_.rank) + " of " +
                                    std::to_string(size) + ", expected a rank below the number of ranks");
    return size;
  }

  // A key is used once in a process's life: what was put stays.
  std::string put(char first, const void* mine, uint64_t bytes) {
    static uint64_t rounds = 0;  // one room at a time
    const std::string key = "tutti." + std::to_string(rounds++);
    std::string text(1, first);
    text.append(static_cast<const char*>(mine), bytes);
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = text.data();
    value.data.bo.size = text.size();
    expect(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "putting " + std::to_string(bytes) + " bytes");
    expect(PMIx_Commit(), "committing " + std::to_string(bytes) + " bytes");
    return key;
  }

  std::shared_ptr<Answer> fence() const {
    auto mine = std::make_shared<Answer>();
    auto* const theirs = new std::shared_ptr<Answer>(mine);
    const auto over = [](pmix_status_t code, void* given) {
      const std::unique_ptr<std::shared_ptr<Answer>> owned(static_cast<std::shared_ptr<Answer>*>(given));
      (*owned)->arrive(code);
    };
    const pmix_proc_t all = everybody();
    bool collects = true;
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collects, PMIX_BOOL);
    const pmix_status_t code = PMIx_Fence_nb(&all, 1, &info, 1, over, theirs);
    if (code == PMIX_OPERATION_SUCCEEDED) {
      over(PMIX_SUCCESS, theirs);
    } else if (code != PMIX_SUCCESS) {
      delete theirs;
      expect(code, "the fence of all ranks");
    }
    return mine;
  }

  void await(const std::shared_ptr<Answer>& fence) const {
    const auto deadline = Clock::now() + timeout_;
    constexpr auto kLook = std::chrono::milliseconds(20);  // for an abort of this rank's, by another thread
    std::unique_lock lock(fence->mutex);
    while (!fence->over) {
      fence->moved.wait_until(lock, std::min<Clock::time_point>(deadline, Clock::now() + kLook));
      if (fence->over) break;
      if (aborted_) throw Error(TUTTI_ABORTED, "this rank has given the meeting up");
      if (Clock::now() >= deadline)
        throw Error(TUTTI_TIMEOUT,
                    "rank " + std::to_string(me_.rank) + " of " + std::to_string(nranks_) +
                        " has waited for the others for " + seconds(timeout_) +
                        ". PMIx does not tell who is missing: has a rank ended, or not made its communicator?");
    }
    expect(fence->code, "the fence of all ranks, of which one has ended or failed", TUTTI_PEER_FAILED);
  }

  void get(uint32_t rank, const std::string& key, char* to, uint64_t bytes) const {
    const pmix_proc_t of = process(rank);
    const std::string what = "what rank " + std::to_string(rank) + " has put (" + key + ")";
    bool immediate = true;
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_IMMEDIATE, &immediate, PMIX_BOOL);
    pmix_value_t* value = nullptr;
    expect(PMIx_Get(&of, key.c_str(), &info, 1, &value), what);
    const bool fits = value->type == PMIX_BYTE_OBJECT && value->data.bo.size >= 1;
    const std::string text = fits ? std::string(value->data.bo.bytes, value->data.bo.size) : "";
    PMIX_VALUE_RELEASE(value);
    if (!text.empty() && text[0] == kGivesUp)
      throw Error(TUTTI_ABORTED, "rank " + std::to_string(rank) + " has given the meeting up");
    if (text.size() != bytes + 1)
      throw Error(TUTTI_MISMATCH, what + " has " + std::to_string(text.empty() ? 0 : text.size() - 1) +
                                      " bytes, expected " + std::to_string(bytes));
    std::memcpy(to, text.data() + 1, bytes);
  }

  // A rank that gives up before the first gather takes part in it all the same, so that the others need not wait for
  // it. Afterwards the others may have left, and nobody would come to a fence.
  void tell_the_others() noexcept {
    if (gathers_ != 0) return;
    try {
      put(kGivesUp, "", 0);
      const auto mine = fence();
      std::unique_lock lock(mine->mutex);
      mine->moved.wait_for(lock, timeout_, [&] { return mine->over; });
    } catch (const std::exception& problem) {
      tutti::sdk::log(TUTTI_LOG_WARN,
                      std::string("the other ranks cannot be told that this one gives up: ") + problem.what());
    }
  }

  const std::chrono::nanoseconds timeout_;
  pmix_proc_t me_{};
  uint32_t nranks_ = 0;
  uint64_t gathers_ = 0;
  std::atomic<bool> aborted_ = false;
};

constexpr tutti_meeting meeting =
    tutti::meetings::RoomTable<Room>::of("pmix", "the ranks of a PMIx job: mpirun, srun --mpi=pmix");

}  // namespace

TUTTI_PLUGIN(meeting_pmix, "meeting-pmix", "0.1.0", "Tutti", "Apache-2.0", "ranks meet by the launcher's PMIx server",
             {TUTTI_MEETING_ID, &meeting});
