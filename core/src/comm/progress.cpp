// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.hpp"

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
  } catch (const std::exception&) {  // no thread is to be had: the next engine tries again
  }
}

void ActiveEngines::remove(Engine* engine) {
  std::unique_lock lock(mutex_);
  if (!engine->listed_) return;
  engine->leaves_ = true;
  // A visitor goes on from here to the next one: it is unlinked once there is none.
  left_.wait(lock, [engine] { return engine->visitors_ == 0; });
  Engine** at = &first_;
  while (*at != engine) at = &(*at)->next_;
  *at = engine->next_;
  engine->listed_ = false;
  engine->leaves_ = false;
  count_.fetch_sub(1, std::memory_order_relaxed);
}

Engine* ActiveEngines::visit(Engine* last, const Engine* self) {
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
  for (Engine* engine = nullptr; (engine = visit(engine, self));) others |= engine->try_progress();
  return others;
}

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
