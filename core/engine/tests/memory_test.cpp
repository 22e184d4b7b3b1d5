// SPDX-License-Identifier: Apache-2.0
//
// The registrations of memory with transports: one that takes long holds up only the threads that need the same one,
// and memory that goes, or a domain that closes, waits for it.
#include "engine/fabric/memory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::seconds limit(60);
constexpr uint64_t bytes = 8192;

// A transport that records what is asked of it. A registration begins with `on_register`, its end with `on_deregister`.
struct Recorder {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, int> begun, made, gone;  // by address: registrations begun and made, and deregistrations
  int closed = 0, busy = 0, closed_while_busy = 0;
  bool late = false;
  std::function<void(const void*)> on_register, on_deregister;

  template <typename Change>
  void change(Change&& how) {
    const std::lock_guard lock(mutex);
    how();
    changed.notify_all();
  }
  // Waits for something that another thread does.
  template <typename Enough>
  void await(Enough&& enough) {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, limit, enough)) late = true;
  }
};

struct Slow {
  tutti_transport table{};
  Recorder record;

  Slow() {
    table.struct_size = sizeof table;
    table.name = "slow";
    table.self = this;
    table.open_domain = [](void* self, const tutti_domain_config*, tutti_domain** domain) -> tutti_status {
      *domain = reinterpret_cast<tutti_domain*>(&static_cast<Slow*>(self)->record);
      return TUTTI_OK;
    };
    table.close_domain = [](tutti_domain* domain) {
      of(domain).change([&] {
        ++of(domain).closed;
        of(domain).closed_while_busy += of(domain).busy;
      });
    };
    table.register_memory = [](tutti_domain* domain, const tutti_memory* memory,
                               tutti_region** region) -> tutti_status {
      Recorder& record = of(domain);
      record.change([&] { ++record.begun[memory->address], ++record.busy; });
      if (record.on_register) record.on_register(memory->address);
      record.change([&] { ++record.made[memory->address], --record.busy; });
      *region = static_cast<tutti_region*>(memory->address);
      return TUTTI_OK;
    };
    table.deregister_memory = [](tutti_domain* domain, tutti_region* region) -> tutti_status {
      Recorder& record = of(domain);
      record.change([&] { ++record.busy; });
      if (record.on_deregister) record.on_deregister(region);
      record.change([&] { ++record.gone[region], --record.busy; });
      return TUTTI_OK;
    };
  }
  static Recorder& of(tutti_domain* domain) { return *reinterpret_cast<Recorder*>(domain); }
  std::unique_ptr<Domain> open() { return std::make_unique<Domain>(&table, DeviceMemory{}); }
};

tutti_region* region_of(Domain& domain, void* address) { return Memory::process().find(domain, address, bytes).region; }
tutti_region* as_region(void* address) { return static_cast<tutti_region*>(address); }

// A plugin may look for devices, and so for the other one's domain, when it opens one.
TEST(Memory, ADomainThatTakesLongToOpenHoldsUpNoOtherOne) {
  struct SlowToOpen : Slow {
    std::function<void()> opens;
    SlowToOpen() {
      table.self = this;
      table.open_domain = [](void* self, const tutti_domain_config*, tutti_domain** domain) -> tutti_status {
        auto& slow = *static_cast<SlowToOpen*>(self);
        if (slow.opens) slow.opens();
        *domain = reinterpret_cast<tutti_domain*>(&slow.record);
        return TUTTI_OK;
      };
    }
  };
  SlowToOpen slow, quick;
  bool opened = false, begun = false;
  slow.opens = [&] {
    slow.record.change([&] { begun = true; });
    slow.record.await([&] { return opened; });
  };
  std::thread opens([&] { EXPECT_EQ(Domain::of(&slow.table, {}).use_count(), 1); });
  slow.record.await([&] { return begun; });
  const auto domain = Domain::of(&quick.table, {});
  EXPECT_EQ(Domain::of(&quick.table, {}), domain);
  slow.record.change([&] { opened = true; });
  opens.join();
  EXPECT_FALSE(slow.record.late) << "the second domain has waited for the first one";
}

TEST(Memory, ARegistrationThatTakesLongHoldsUpNoOtherOne) {
  Slow slow;
  Recorder& record = slow.record;
  const auto domain = slow.open();
  void* const first = Memory::process().allocate(bytes);
  void* const second = Memory::process().allocate(bytes);
  record.on_register = [&](const void* address) {
    if (address == first) record.await([&] { return record.made[second] != 0; });
  };
  std::thread registers([&] { EXPECT_EQ(region_of(*domain, first), as_region(first)); });
  record.await([&] { return record.begun[first] != 0; });
  EXPECT_EQ(region_of(*domain, second), as_region(second));
  registers.join();
  EXPECT_FALSE(record.late) << "the second registration has waited for the first one";

  // A deregistration does the same.
  record.on_deregister = [&](const void* address) {
    if (address == second) record.await([&] { return record.gone[first] != 0; });
  };
  std::thread frees([&] { Memory::process().release(second); });
  record.await([&] { return record.busy != 0; });
  Memory::process().release(first);
  frees.join();
  EXPECT_FALSE(record.late) << "the second deregistration has waited for the first one";
}

TEST(Memory, ThreadsThatNeedTheSameRegistrationShareIt) {
  Slow slow;
  Recorder& record = slow.record;
  const auto domain = slow.open();
  void* const memory = Memory::process().allocate(bytes);
  int asking = 0;
  record.on_register = [&](const void*) { record.await([&] { return asking == 4; }); };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      record.change([&] { ++asking; });
      EXPECT_EQ(region_of(*domain, memory), as_region(memory));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(record.begun[memory], 1);
  EXPECT_FALSE(record.late);
  Memory::process().release(memory);
  EXPECT_EQ(record.gone[memory], 1);
}

TEST(Memory, MemoryThatIsFreedWaitsForItsRegistration) {
  Slow slow;
  Recorder& record = slow.record;
  const auto domain = slow.open();
  void* const memory = Memory::process().allocate(bytes);
  bool go_on = false;
  record.on_register = [&](const void*) { record.await([&] { return go_on; }); };
  record.on_deregister = [&](const void*) { EXPECT_EQ(record.made[memory], 1); };
  std::thread registers([&] { region_of(*domain, memory); });
  record.await([&] { return record.begun[memory] != 0; });
  std::thread frees([&] { Memory::process().release(memory); });
  Memory::Lookup reader;
  while (reader.holds(memory, bytes)) std::this_thread::yield();
  EXPECT_THROW(Memory::process().release(memory), Failure) << "another thread frees it already";
  EXPECT_EQ(region_of(*domain, memory), nullptr);
  record.change([&] { go_on = true; });
  frees.join();
  registers.join();
  EXPECT_EQ(record.gone[memory], 1);
  EXPECT_FALSE(record.late);
}

TEST(Memory, ADomainThatClosesWaitsForADeregistration) {
  Slow slow;
  Recorder& record = slow.record;
  auto domain = slow.open();
  void* const memory = Memory::process().allocate(bytes);
  void* const other = Memory::process().allocate(bytes);
  region_of(*domain, memory);
  region_of(*domain, other);
  // The domain drops its other region, and then comes to the one that is busy.
  record.on_deregister = [&](const void* address) {
    if (address == memory) record.await([&] { return record.gone[other] != 0; });
  };
  std::thread frees([&] { Memory::process().release(memory); });
  record.await([&] { return record.busy != 0; });
  domain.reset();
  EXPECT_EQ(record.closed, 1);
  EXPECT_EQ(record.closed_while_busy, 0);
  frees.join();
  EXPECT_EQ(record.gone[memory], 1);
  Memory::process().release(other);
  EXPECT_EQ(record.gone[other], 1) << "it was the domain's no more";
}

}  // namespace
}  // namespace tutti::core
