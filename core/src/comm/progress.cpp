// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace tutti::core {

ActiveEngines& ActiveEngines::process() {
  static auto* engines = new ActiveEngines();
  return *engines;
}

void ActiveEngines::add(Engine* engine) noexcept {
  if (engine->listed_.load(std::memory_order_relaxed)) return;  // only its own threads list and remove it
  const std::lock_guard lock(mutex_);
  if (engine->listed_) return;
  engine->listed_ = true;
  engine->next_ = first_;
  first_ = engine;
  count_.fetch_add(1, std::memory_order_relaxed);
  if (waits_ == 0) return;
  if (background_) return listed_.notify_all();
  try {
    start_background();
  } catch (const std::exception&) {  // no thread can be started: the next engine tries again
  }
}

void ActiveEngines::remove(Engine* engine) {
  std::unique_lock lock(mutex_);
  if (!engine->listed_) return;
  engine->leaves_ = true;
  ring([engine](const EngineSleep& sleep) { return std::ranges::count(sleep.watched_, engine) != 0; });
  // A visitor goes on from here to the next one: it is unlinked once there is none.
  left_.wait(lock, [engine] { return engine->visitors_ == 0 && !engine->is_watched(); });
  Engine** at = &first_;
  while (*at != engine) at = &(*at)->next_;
  *at = engine->next_;
  engine->listed_ = false;
  engine->leaves_ = false;
  count_.fetch_sub(1, std::memory_order_relaxed);
}

Engine* ActiveEngines::next(Engine* last, const Engine* self) {
  const std::lock_guard lock(mutex_);
  Engine* engine = last ? last->next_ : first_;
  if (last && --last->visitors_ == 0 && last->leaves_) left_.notify_all();
  while (engine && (engine == self || engine->leaves_)) engine = engine->next_;
  if (engine) ++engine->visitors_;
  return engine;
}

bool ActiveEngines::progress_others(const Engine* self) {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  bool others = false;
  for (Engine* engine = nullptr; (engine = next(engine, self));) others |= engine->try_progress();
  return others;
}

void ActiveEngines::join_others(const Engine* self, EngineSleep& sleep) {
  for (Engine* engine = nullptr; (engine = next(engine, self));) engine->join(sleep);
}

// ---- Sleeps ------------------------------------------------------------------------------------------------

EngineSleep::EngineSleep() { ActiveEngines::process().add(*this); }
EngineSleep::~EngineSleep() { ActiveEngines::process().remove(*this); }

void ActiveEngines::add(EngineSleep& sleep) {
  const std::lock_guard lock(mutex_);
  sleep.next_ = sleeps_;
  sleeps_ = &sleep;
  sleepers_.fetch_add(1);
}

void ActiveEngines::remove(EngineSleep& sleep) {
  const std::lock_guard lock(mutex_);
  EngineSleep** at = &sleeps_;
  while (*at != &sleep) at = &(*at)->next_;
  *at = sleep.next_;
  sleepers_.fetch_sub(1);
  sleep.control_sleeps_.clear();  // before an engine may go
  for (Engine* engine : sleep.watched_)
    if (engine->watchers_.fetch_sub(1) == 1 && engine->leaves_) left_.notify_all();
}

void EngineSleep::watch(Engine& engine) {
  const std::lock_guard lock(ActiveEngines::process().mutex_);
  watched_.push_back(&engine);
  engine.watchers_.fetch_add(1);
}

void EngineSleep::watch(ControlPlane& control) { bell_.store(control_sleeps_.emplace_back(control).fd()); }

// The mutex is held.
template <typename Which>
void ActiveEngines::ring(Which&& which) {
  constexpr uint64_t once = 1;
  for (EngineSleep* sleep = sleeps_; sleep; sleep = sleep->next_)
    if (const int bell = sleep->bell_.load(); bell >= 0 && which(*sleep))
      if (::write(bell, &once, sizeof once) < 0) continue;  // it is readable already
}

void ActiveEngines::wake(const Engine& engine) {
  const std::lock_guard lock(mutex_);
  ring([&engine](const EngineSleep& sleep) { return std::ranges::count(sleep.watched_, &engine) != 0; });
}

void ActiveEngines::wake_all() {
  if (sleepers_.load() == 0) return;
  const std::lock_guard lock(mutex_);
  ring([](const EngineSleep&) { return true; });
}

void EngineSleep::pass(uint64_t most_ns) {
  const int bell = bell_.load();
  if (short_ || bell < 0) return std::this_thread::sleep_for(std::chrono::microseconds(20));
  if (cancelled_) {
    sched_yield();
    return;
  }
  fds_.push_back({bell, POLLIN, 0});
  const timespec limit{0, static_cast<long>(std::min<uint64_t>(most_ns, 20'000'000))};
  ppoll(fds_.data(), fds_.size(), &limit, nullptr);
}

// ---- In the background -------------------------------------------------------------------------------------

void ActiveEngines::run(const Background& background) {
  constexpr std::chrono::microseconds rest(50);
  for (std::unique_lock lock(mutex_); !background.stop;) {
    if (!first_) {
      listed_.wait(lock);
      continue;
    }
    lock.unlock();
    progress_others(nullptr);
    std::this_thread::sleep_for(rest);
    lock.lock();
  }
}

// The mutex is held.
void ActiveEngines::start_background() {
  auto background = std::make_unique<Background>();
  background->thread = std::thread([this, b = background.get()] { run(*b); });
  background_ = std::move(background);
}

BackgroundProgress::BackgroundProgress() {
  ActiveEngines& engines = ActiveEngines::process();
  const std::lock_guard lock(engines.mutex_);
  if (engines.first_ && !engines.background_) engines.start_background();
  ++engines.waits_;
}

BackgroundProgress::~BackgroundProgress() {
  ActiveEngines& engines = ActiveEngines::process();
  std::unique_ptr<ActiveEngines::Background> last;
  {
    const std::lock_guard lock(engines.mutex_);
    if (--engines.waits_ != 0) return;
    last = std::move(engines.background_);
    if (last) last->stop = true;
    engines.listed_.notify_all();
  }
  if (last) last->thread.join();
}

}  // namespace tutti::core
