// SPDX-License-Identifier: Apache-2.0
#include "lock.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tutti::python {
namespace {

std::atomic<bool> ending{false}, over{false};
std::atomic<int> coming_back{0};  // threads that have not seen `over` and do not have the lock yet
thread_local bool ends_the_program = false;
thread_local int callbacks = 0;  // that this thread is in
// A child has none of them, and does not end with its parent.
const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  ending = over = false;
  coming_back = 0;
});

// Either this thread sees `over`, or keep_others_out() sees this thread.
template <typename Take>
void come_back(Take&& take) {
  ++coming_back;
  if (over && !ends_the_program) {
    --coming_back;
    for (;;) pause();
  }
  take();
  --coming_back;
}

}  // namespace

Unlocked::~Unlocked() {
  come_back([this] { PyEval_RestoreThread(thread_); });
}

Locked::Locked() {
  come_back([this] { state_ = PyGILState_Ensure(); });
  ++callbacks;
}

Locked::~Locked() {
  --callbacks;
  PyGILState_Release(state_);
}

void begin_to_end() {
  ends_the_program = true;
  ending = true;
}

void stay_if_ending() {
  if (!ending || ends_the_program || callbacks > 0) return;
  PyEval_SaveThread();
  for (;;) pause();
}

void keep_others_out() {
  over = true;
  const Unlocked unlocked;
  while (coming_back != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace tutti::python
