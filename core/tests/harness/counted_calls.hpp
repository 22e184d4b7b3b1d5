// SPDX-License-Identifier: Apache-2.0
//
// Counts what a call costs the thread that makes it: heap allocations and locked mutexes. For one source file of a test
// program, whose operator new, pthread_mutex_lock, sched_yield and syscall this is. The simulated device is a plugin of
// the program itself, whose own work is not counted: a true device has a driver in its place.
#pragma once

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>

#include "real_function.hpp"
#include "replaced_new.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TUTTI_TEST_CANNOT_COUNT 1  // these have functions of their own in the same place
#else
#define TUTTI_TEST_CANNOT_COUNT 0
#endif

namespace tutti::test {

struct CallCost {
  uint64_t allocations = 0, locks = 0;
  uint64_t waits = 0;        // sched_yield, and waits for a condition or for the library's own futex
  uint64_t clock_reads = 0;  // one where a wait begins, and some in each of its turns
  // `begun`: waits that the call begins, though all that they are for is there.
  bool waited(uint64_t begun) const { return waits != 0 || clock_reads > begun; }
};

namespace counting {

inline thread_local bool on = false;
inline thread_local CallCost cost;
inline std::atomic<uint64_t> queries{0};  // of events, by all threads of the process

// Does not count while it lives.
class Pause {
 public:
  Pause() : was_(on) { on = false; }
  ~Pause() { on = was_; }

 private:
  bool was_;
};

using Lock = Real<int(pthread_mutex_t*)>;
inline int lock(Lock& real, pthread_mutex_t* mutex) {
  const int error = (*real)(mutex);
  if (on && !error) ++cost.locks;
  return error;
}

}  // namespace counting

inline void note_allocation() {
  if (counting::on) ++counting::cost.allocations;
}

// The cost of `call` for this thread.
template <typename Call>
CallCost cost_of(Call&& call) {
  counting::cost = {};
  counting::on = true;
  call();
  counting::on = false;
  return counting::cost;
}

namespace counting {

inline const tutti_plugin_entry_table* inner = nullptr;
inline const tutti_device* memory = nullptr;
inline const tutti_executor* executor = nullptr;

inline const void* get_interface(const char* id, uint32_t index) {
  if (index == 0 && std::strcmp(id, TUTTI_DEVICE_ID) == 0) {
    static tutti_device table = *(memory = static_cast<const tutti_device*>(inner->get_interface(id, 0)));
    table.classify = [](void* self, const void* address, tutti_pointer* pointer) {
      const Pause pause;
      return memory->classify(self, address, pointer);
    };
    return &table;
  }
  if (index == 0 && std::strcmp(id, TUTTI_EXECUTOR_ID) == 0) {
    static tutti_executor table = *(executor = static_cast<const tutti_executor*>(inner->get_interface(id, 0)));
    table.create_event = [](void* self, uint32_t device, tutti_event** event) {
      const Pause pause;
      return executor->create_event(self, device, event);
    };
    table.stream_state = [](void* self, void* stream, uint32_t* device, uint64_t* flags) {
      const Pause pause;
      return executor->stream_state(self, stream, device, flags);
    };
    table.query_event = [](void* self, tutti_event* event) {
      ++queries;
      const Pause pause;
      return executor->query_event(self, event);
    };
    table.enqueue = [](void* self, void* stream, const tutti_command* commands, uint32_t n) {
      const Pause pause;
      return executor->enqueue(self, stream, commands, n);
    };
    table.enqueue_fused = [](void* self, void* stream, const tutti_command* commands, uint32_t n) {
      const Pause pause;
      return executor->enqueue_fused(self, stream, commands, n);
    };
    return &table;
  }
  return inner->get_interface(id, index);
}

}  // namespace counting

// Makes the device known to this process, before anything else. `path`: of the simulated device's plugin.
inline void load_counted_device(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  counting::inner = static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
  if (!counting::inner) throw std::runtime_error(std::string(path) + " is no plugin");
  static const tutti_plugin_entry_table entry{sizeof entry,          TUTTI_ABI_MAJOR,       TUTTI_ABI_MINOR,        0,
                                              counting::inner->info, counting::inner->init, counting::get_interface};
  if (tutti_plugin_register(&entry) != TUTTI_OK) throw std::runtime_error("the counted device is refused");
}

}  // namespace tutti::test

#if !TUTTI_TEST_CANNOT_COUNT
extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                      const timespec* until) {
  static constinit tutti::test::Real<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)> real(
      "pthread_cond_clockwait");
  if (tutti::test::counting::on) ++tutti::test::counting::cost.waits;
  return (*real)(condition, mutex, clock, until);
}
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static constinit tutti::test::Real<int(clockid_t, timespec*)> real("clock_gettime");
  if (tutti::test::counting::on) ++tutti::test::counting::cost.clock_reads;
  return (*real)(clock, time);
}
extern "C" int sched_yield() noexcept {
  static constinit tutti::test::Real<int()> real("sched_yield");
  if (tutti::test::counting::on) ++tutti::test::counting::cost.waits;
  return (*real)();
}
extern "C" long syscall(long number, ...) noexcept {
  static constinit tutti::test::Real<long(long, ...)> real("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& one : a) one = va_arg(list, long);
  va_end(list);
  if (tutti::test::counting::on && number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
    ++tutti::test::counting::cost.waits;
  return (*real)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static constinit tutti::test::counting::Lock real("pthread_mutex_lock");
  return tutti::test::counting::lock(real, mutex);
}
extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static constinit tutti::test::counting::Lock real("pthread_mutex_trylock");
  return tutti::test::counting::lock(real, mutex);
}
#endif
