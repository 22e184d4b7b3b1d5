// SPDX-License-Identifier: Apache-2.0
#include "last_words.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace tutti::conformance::contract {
namespace {

struct Watched {
  std::atomic<uintptr_t> begin{0}, end{0};
  uintptr_t object = 0;
  size_t length = 0;
  const char* clause = nullptr;
  const char* text = nullptr;
};
constexpr int most_watched = 8192;
Watched watched[most_watched];
std::atomic<int> next_watched{0};

// One per thread that makes ABI calls.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<const char*> function{nullptr};
  std::atomic<uint64_t> calls{0};
};
constexpr int most_slots = 64;
Slot slots[most_slots];
Slot overflow;  // of further threads: not watched for blocking

struct SlotHolder {
  Slot* slot = nullptr;
  Slot& get() {
    for (int i = 0; !slot && i < most_slots; ++i)
      if (!slots[i].taken.exchange(true)) slot = &slots[i];
    if (!slot) slot = &overflow;
    return *slot;
  }
  ~SlotHolder() {
    if (slot && slot != &overflow) slot->taken = false;
  }
};
thread_local SlotHolder holder;

int outcome_descriptor = -1;

bool is_plugin(const char* file) { return std::strstr(file, "libtutti-") || std::strstr(file, "libnccl-net-"); }

// The first place in the stack that is in a plugin's file, as "libtutti-x.so+0x1234".
void find_place(char* text, size_t capacity) {
  void* frames[48];
  const int n = backtrace(frames, 48);
  for (int i = 0; i < n; ++i) {
    Dl_info info{};
    if (!dladdr(frames[i], &info) || !info.dli_fname || !is_plugin(info.dli_fname)) continue;
    const char* file = std::strrchr(info.dli_fname, '/');
    std::snprintf(text, capacity, " at %s+0x%zx (addr2line -Cfe FILE 0x%zx tells the line)",
                  file ? file + 1 : info.dli_fname,
                  static_cast<size_t>(static_cast<char*>(frames[i]) - static_cast<char*>(info.dli_fbase)) - 1,
                  static_cast<size_t>(static_cast<char*>(frames[i]) - static_cast<char*>(info.dli_fbase)) - 1);
    return;
  }
}

// Was it reading or writing that failed? Known where the processor tells.
const char* access([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  constexpr long writing = 2;  // of the page fault's error code
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & writing ? "written" : "read";
#else
  return "touched";
#endif
}

void on_signal(int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> entered{false};
  if (entered.exchange(true)) _exit(1);
  const char* call = holder.slot ? holder.slot->function.load() : nullptr;
  char place[300] = "", text[900];
  find_place(place, sizeof place);
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (signal == SIGSEGV || signal == SIGBUS)
    for (const Watched& w : watched) {
      if (address < w.begin || address >= w.end) continue;
      char where[60];
      if (address >= w.object + w.length)
        std::snprintf(where, sizeof where, "%zu bytes behind its end", address - w.object - w.length + 1);
      else if (address < w.object)
        std::snprintf(where, sizeof where, "%zu bytes before it", w.object - address);
      else
        std::snprintf(where, sizeof where, "at byte %zu", address - w.object);
      std::snprintf(text, sizeof text, "%s (%zu bytes) was %s %s, during %s%s", w.text, w.length, access(context),
                    where, call ? call : "no call of the suite", place);
      write_outcome(outcome_descriptor, "fail", w.clause, text);
      _exit(0);
    }
  std::snprintf(text, sizeof text, "the process died of signal %d (%s) during %s%s", signal, sigabbrev_np(signal),
                call ? call : "no call of the suite", place);
  write_outcome(outcome_descriptor, "crash", "", text);
  _exit(1);
}

}  // namespace

void write_outcome(int descriptor, const char* verdict, const char* clause, const char* text) {
  for (const char* part : {verdict, "\n", clause, "\n", text}) {
    size_t left = std::strlen(part);
    while (left > 0) {
      const ssize_t n = write(descriptor, part, left);
      if (n <= 0) return;
      part += n;
      left -= static_cast<size_t>(n);
    }
  }
}

void watch_for_signals(int descriptor) {
  outcome_descriptor = descriptor;
  void* warm[4];
  backtrace(warm, 4);  // its first call allocates
  static char stack[1 << 16];
  const stack_t alternate{stack, 0, sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(signal, &action, nullptr);
}

int watch_memory(const void* begin, size_t bytes, const void* object, size_t length, const char* clause,
                 const char* text) {
  const int number = next_watched.fetch_add(1) % most_watched;
  Watched& w = watched[number];
  w.object = reinterpret_cast<uintptr_t>(object);
  w.length = length;
  w.clause = clause;
  w.text = text;
  w.begin = reinterpret_cast<uintptr_t>(begin);
  w.end = reinterpret_cast<uintptr_t>(begin) + bytes;
  return number;
}

void forget_memory(int number) { watched[number].end = 0; }

void in_call(const char* function) {
  Slot& slot = holder.get();
  slot.function.store(function, std::memory_order_relaxed);
  slot.calls.store(slot.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

const char* current_call() { return holder.slot ? holder.slot->function.load() : nullptr; }

void watch_for_blocking(int descriptor, double patience, const char* clause) {
  std::thread([descriptor, patience, clause] {
    struct Seen {
      uint64_t calls = 0;
      int ticks = 0;
    } seen[most_slots];
    constexpr double tick = 0.05;
    for (;;) {
      std::this_thread::sleep_for(std::chrono::duration<double>(tick));
      for (int i = 0; i < most_slots; ++i) {
        const char* function = slots[i].function;
        const uint64_t calls = slots[i].calls;
        seen[i].ticks = function && calls == seen[i].calls ? seen[i].ticks + 1 : 0;
        seen[i].calls = calls;
        const bool closing = function && std::strncmp(function, "close_endpoint", 14) == 0;
        const double limit = closing ? patience + 10 : patience;
        if (seen[i].ticks * tick < limit) continue;
        char text[300];
        const char* instead = "peers: do what is possible now, the rest in progress";
        if (clause[0] == 'X') instead = "the device: put the work into the stream and return";
        if (clause[0] == 'n') instead = "the peer: return ncclSuccess with a NULL comm or request and be called again";
        std::snprintf(text, sizeof text, "%s has not returned for %.0f s. It must not wait for %s", function, limit,
                      instead);
        write_outcome(descriptor, "fail", clause, text);
        _exit(0);
      }
    }
  }).detach();
}

}  // namespace tutti::conformance::contract
