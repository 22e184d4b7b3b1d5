// SPDX-License-Identifier: Apache-2.0
//
// mapped/1 over the simulated device: between ranks of one process, and between processes. Streams of one rank write
// what streams and processors of the other read, in the order that flags give.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/mapped.h>
#include <unistd.h>

#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_cuda_ipc, tutti_plugin_entry_simulated_device;
const tutti_plugin_entry_table& tutti_test::plugin_under_test() { return tutti_plugin_entry_cuda_ipc; }

namespace {

using namespace tutti_test;

constexpr uint64_t kBytes = 100'000;

tutti_status query() {
  tutti_transport_caps told{};
  return tutti_test::query(&told);
}

// The host finds the simulated device from now on.
void offer_device() {
  static const bool once = [] {
    host().table.memory_kind = [](void*, const char*) { return uint32_t{TUTTI_MEMORY_SIMULATED}; };
    host().table.list_interface = [](void*, const char* id, uint32_t index) {
      return tutti_plugin_entry_simulated_device.get_interface(id, index);
    };
    return tutti_plugin_entry_simulated_device.init(&host().table) == TUTTI_OK;
  }();
  ASSERT_TRUE(once);
  ASSERT_EQ(query(), TUTTI_OK) << Host::error;
}

const tutti_device& device() {
  return *static_cast<const tutti_device*>(tutti_plugin_entry_simulated_device.get_interface(TUTTI_DEVICE_ID, 0));
}
const tutti_executor& executor() {
  return *static_cast<const tutti_executor*>(tutti_plugin_entry_simulated_device.get_interface(TUTTI_EXECUTOR_ID, 0));
}
const tutti_mapped& mapped() {
  return *static_cast<const tutti_mapped*>(table().get_interface(table().self, TUTTI_MAPPED_ID));
}

struct Memory {
  void* address = nullptr;
  explicit Memory(uint64_t bytes = kBytes, uint32_t number = 0) {
    EXPECT_EQ(device().allocate(device().self, number, bytes, &address), TUTTI_OK) << Host::error;
  }
  ~Memory() { EXPECT_EQ(device().release(device().self, address), TUTTI_OK) << Host::error; }
  Memory(const Memory&) = delete;
};

struct Stream {
  void* handle = nullptr;
  explicit Stream(uint32_t number = 0) {
    EXPECT_EQ(executor().create_stream(executor().self, number, &handle), TUTTI_OK) << Host::error;
  }
  ~Stream() { executor().destroy_stream(executor().self, handle); }
  Stream(const Stream&) = delete;
  void run(const tutti_command& command) {
    ASSERT_EQ(executor().enqueue(executor().self, handle, &command, 1), TUTTI_OK) << Host::error;
  }
  void copy(void* to, const void* from, uint64_t bytes) {
    tutti_command c{};
    c.kind = TUTTI_COMMAND_COPY;
    c.sources = 1;
    c.src = &from;
    c.dst = to;
    c.count = bytes;
    run(c);
  }
  void flag(uint32_t kind, void* at, uint32_t value) {
    tutti_command c{};
    c.kind = kind;
    c.flag = static_cast<uint32_t*>(at);
    c.value = value;
    run(c);
  }
};

// One side of a share: where it is.
struct Place {
  tutti_share* share = nullptr;
  tutti_mapping* mapping = nullptr;
  tutti_mapped_place at{sizeof at};
  std::byte* seen(uint64_t offset = 0) const { return static_cast<std::byte*>(at.device) + offset; }
  std::atomic_ref<uint32_t> flag(uint64_t k) const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(static_cast<char*>(at.host) + 64 * k));
  }
};

constexpr tutti_mapped_device kFirst{sizeof kFirst, TUTTI_MEMORY_SIMULATED, 0, 0};
constexpr tutti_mapped_device kSecond{sizeof kSecond, TUTTI_MEMORY_SIMULATED, 1, 0};

tutti_status share(Rank& rank, uint32_t peer, uint64_t tag, void* address, uint64_t bytes, Place& place) {
  const tutti_share_config config{sizeof config, 0, tag, address, bytes, &kFirst};
  return mapped().share(rank.link(peer), &config, &place.share, &place.at);
}
tutti_status open(Rank& rank, uint32_t peer, uint64_t tag, Place& place, const tutti_mapped_device& whose = kFirst) {
  return mapped().open_mapping(rank.link(peer), tag, &whose, &place.mapping, &place.at);
}
// The answer that comes instead of TUTTI_AGAIN.
template <typename Ask>
tutti_status answer(std::vector<Rank*> ranks, Ask&& ask) {
  tutti_status status = TUTTI_AGAIN;
  EXPECT_TRUE(drive(
      std::move(ranks), [&] { return (status = ask()) != TUTTI_AGAIN; }, std::chrono::seconds(20)));
  return status;
}

TEST(Query, WithoutADeviceThatExportsItSaysSo) {
  host();
  host().table.list_interface = [](void*, const char*, uint32_t) -> const void* { return nullptr; };
  EXPECT_EQ(query(), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("no device plugin that works here exports memory"), std::string::npos) << Host::error;
}

class SameProcess : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(offer_device());
    a = std::make_unique<Rank>(0);
    b = std::make_unique<Rank>(1);
    ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  }
  std::unique_ptr<Rank> a, b;
};

TEST_F(SameProcess, RanksOfOneProcessSeeTheMemoryItself) {
  Memory memory;
  Place ours, theirs;
  EXPECT_EQ(open(*b, 0, 7, theirs), TUTTI_AGAIN) << "nothing is shared yet";
  auto* inside = static_cast<std::byte*>(memory.address) + 1000;
  ASSERT_EQ(share(*a, 1, 7, inside, kBytes - 1000, ours), TUTTI_OK) << Host::error;
  EXPECT_EQ(ours.at.host, nullptr);
  EXPECT_EQ(mapped().share_state(ours.share), TUTTI_AGAIN);
  ASSERT_EQ(answer({a.get(), b.get()}, [&] { return open(*b, 0, 7, theirs); }), TUTTI_OK) << Host::error;
  EXPECT_EQ(theirs.at.device, inside);
  EXPECT_EQ(theirs.at.bytes, kBytes - 1000);
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return mapped().share_state(ours.share); }), TUTTI_OK);
  for (int k = 0; k < 1000; ++k) a->progress(), b->progress();
  EXPECT_EQ(mapped().withdraw(ours.share), TUTTI_AGAIN) << "the peer has it mapped";
  EXPECT_EQ(mapped().close_mapping(theirs.mapping), TUTTI_OK);
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return mapped().withdraw(ours.share); }), TUTTI_OK) << Host::error;
  // The tag is free again, and an offer that nobody maps can be withdrawn.
  ASSERT_EQ(share(*a, 1, 7, inside, 10, ours), TUTTI_OK) << Host::error;
  EXPECT_EQ(share(*a, 1, 7, inside, 10, theirs), TUTTI_INVALID_ARGUMENT) << "two shares of one tag";
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return mapped().withdraw(ours.share); }), TUTTI_OK) << Host::error;
  EXPECT_EQ(open(*b, 0, 7, theirs), TUTTI_AGAIN);
}

TEST_F(SameProcess, WhatCannotBeSharedIsRefused) {
  Place place;
  uint64_t flag = 0;
  Memory memory;
  EXPECT_EQ(share(*a, 1, 1, &flag, 8, place), TUTTI_INVALID_ARGUMENT) << "host memory of the caller's";
  EXPECT_EQ(share(*a, 1, 1, memory.address, kBytes + 1, place), TUTTI_INVALID_ARGUMENT) << "more than the allocation";
  EXPECT_EQ(share(*a, 1, 1, nullptr, 0, place), TUTTI_INVALID_ARGUMENT);
  host().settings["TUTTI_SIMULATED_EXPORTS"] = "0";
  EXPECT_EQ(share(*a, 1, 1, memory.address, kBytes, place), TUTTI_NOT_SUPPORTED) << "a device that exports nothing";
  host().settings.clear();
  const tutti_mapped_device unknown{sizeof unknown, TUTTI_MEMORY_CUDA, 0, 0},
      far{sizeof far, TUTTI_MEMORY_SIMULATED, 9};
  EXPECT_EQ(open(*b, 0, 1, place, unknown), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(open(*b, 0, 1, place, far), TUTTI_INVALID_ARGUMENT);
}

TEST_F(SameProcess, APeerThatCannotMapSaysWhy) {
  Memory memory;
  Place ours, theirs;
  ASSERT_EQ(share(*a, 1, 3, memory.address, kBytes, ours), TUTTI_OK) << Host::error;
  host().settings["TUTTI_SIMULATED_PEERS"] = "0";
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return open(*b, 0, 3, theirs, kSecond); }), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return mapped().share_state(ours.share); }), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("enable_peer"), std::string::npos) << Host::error;
  host().settings.clear();
  EXPECT_EQ(mapped().withdraw(ours.share), TUTTI_OK);
}

TEST_F(SameProcess, ARankThatDeclinesIsHeard) {
  Memory memory;
  Place ours, theirs;
  ASSERT_EQ(share(*a, 1, 3, memory.address, kBytes, ours), TUTTI_OK) << Host::error;
  ASSERT_EQ(mapped().decline(b->link(0), 3, TUTTI_NOT_SUPPORTED, "no room here"), TUTTI_OK) << Host::error;
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return mapped().share_state(ours.share); }), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("no room here"), std::string::npos) << Host::error;
  EXPECT_EQ(mapped().withdraw(ours.share), TUTTI_OK);
  ASSERT_EQ(mapped().decline(a->link(1), 4, TUTTI_NO_RESOURCES, "nothing to share"), TUTTI_OK) << Host::error;
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return open(*b, 0, 4, theirs); }), TUTTI_NO_RESOURCES);
  EXPECT_NE(Host::error.find("nothing to share"), std::string::npos) << Host::error;
  EXPECT_EQ(open(*b, 0, 4, theirs), TUTTI_AGAIN) << "once";
  EXPECT_EQ(mapped().decline(a->link(1), 5, TUTTI_OK, ""), TUTTI_INVALID_ARGUMENT);
}

// An abort unmaps nothing: the owner of the memory waits for the peer as before.
TEST_F(SameProcess, AnAbortKeepsMappings) {
  Memory memory;
  Place ours, theirs;
  ASSERT_EQ(share(*a, 1, 3, memory.address, kBytes, ours), TUTTI_OK) << Host::error;
  ASSERT_EQ(answer({a.get(), b.get()}, [&] { return open(*b, 0, 3, theirs); }), TUTTI_OK) << Host::error;
  ASSERT_EQ(answer({a.get(), b.get()}, [&] { return mapped().share_state(ours.share); }), TUTTI_OK);
  for (Rank* rank : {a.get(), b.get()}) ASSERT_EQ(table().abort(rank->endpoint), TUTTI_OK);
  for (int k = 0; k < 100; ++k) {
    a->progress(), b->progress();
    ASSERT_EQ(mapped().withdraw(ours.share), TUTTI_AGAIN) << "the peer has it mapped";
  }
  EXPECT_EQ(mapped().close_mapping(theirs.mapping), TUTTI_OK);
  EXPECT_EQ(answer({a.get(), b.get()}, [&] { return mapped().withdraw(ours.share); }), TUTTI_OK) << Host::error;
}

TEST_F(SameProcess, ALinkThatHasEndedSharesNothing) {
  Memory memory;
  Place ours, theirs, more;
  ASSERT_EQ(share(*a, 1, 3, memory.address, kBytes, ours), TUTTI_OK) << Host::error;
  ASSERT_EQ(answer({a.get(), b.get()}, [&] { return open(*b, 0, 3, theirs); }), TUTTI_OK) << Host::error;
  ASSERT_EQ(answer({a.get(), b.get()}, [&] { return mapped().share_state(ours.share); }), TUTTI_OK);
  EXPECT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  EXPECT_EQ(share(*a, 1, 4, memory.address, kBytes, more), TUTTI_PEER_FAILED);
  EXPECT_EQ(open(*a, 1, 4, more), TUTTI_PEER_FAILED);
  EXPECT_EQ(mapped().withdraw(ours.share), TUTTI_PEER_FAILED) << "the peer may address it still";
  EXPECT_EQ(mapped().close_mapping(theirs.mapping), TUTTI_OK);
}

// Offers fill the socket to a peer that does not look at it; the goodbye behind them comes all the same.
TEST_F(SameProcess, APeerThatDoesNotReadHearsLaterThatItWasGivenUp) {
  Memory memory;
  for (uint64_t k = 0; k < 250; ++k) {  // two packets each
    Place ours;
    ASSERT_EQ(share(*a, 1, k, memory.address, kBytes, ours), TUTTI_OK) << Host::error;
    ASSERT_EQ(mapped().withdraw(ours.share), TUTTI_AGAIN);
  }
  ASSERT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  ASSERT_TRUE(drive({a.get(), b.get()}, [&] { return !b->failures.empty(); })) << "the goodbye was lost";
  EXPECT_NE(b->failures[0].find("gave this rank up"), std::string::npos) << b->failures[0];
}

// ---- two processes

// Rank 1 is a child process. Pair messages go over a socket; so do the test's own meetings.
class Process {
 public:
  explicit Process(const std::function<void(Process&)>& child) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    fd_ = ends[pid_ == 0];
    close(ends[pid_ != 0]);
    if (pid_ != 0) return;
    child(*this);
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Process() {
    close(fd_);
    if (pid_ > 0 && !ended_) end();
  }
  // Its exit status.
  int end() {
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void join(Rank& rank) {
    const uint32_t peer = 1 - rank.number;
    tutti_status status = TUTTI_AGAIN;
    ASSERT_TRUE(drive_with(rank, [&] { return (status = rank.connect(peer)) != TUTTI_AGAIN; }));
    ASSERT_EQ(status, TUTTI_OK) << rank.error;
  }
  // Progresses until the other process has come as far.
  void meet(Rank& rank) {
    const uint64_t mine = ++meetings_;
    ASSERT_EQ(::send(fd_, "m", 1, MSG_NOSIGNAL), 1);
    ASSERT_TRUE(drive_with(rank, [&] { return theirs_ >= mine; })) << "the other process has not come";
  }
  template <typename Ask>
  tutti_status answer(Rank& rank, Ask&& ask) {
    tutti_status status = TUTTI_AGAIN;
    EXPECT_TRUE(drive_with(rank, [&] { return (status = ask()) != TUTTI_AGAIN; })) << "no answer";
    return status;
  }
  bool drive_with(Rank& rank, const std::function<bool()>& until) {
    return drive(
        {&rank}, [&] { return pump(rank.number), until(); }, std::chrono::seconds(20));
  }

 private:
  // Carries pair messages between the two processes' PairMail.
  void pump(uint32_t me) {
    for (PairMail::Letter letter; PairMail::job().take(Shape().communicator, 1 - me, letter);) {
      letter.bytes.insert(0, 1, 'p');
      ::send(fd_, letter.bytes.data(), letter.bytes.size(), MSG_NOSIGNAL);
    }
    char text[TUTTI_PAIR_BYTES + 1];
    for (ssize_t got; (got = recv(fd_, text, sizeof text, MSG_DONTWAIT)) > 0;) {
      if (text[0] == 'm')
        ++theirs_;
      else
        PairMail::job().put(Shape().communicator, me, {1 - me, std::string(text + 1, static_cast<size_t>(got) - 1)});
    }
  }
  int fd_ = -1;
  pid_t pid_ = 0;
  bool ended_ = false;
  uint64_t meetings_ = 0, theirs_ = 0;
};

// The set-up of the tests below in a process: a device, a rank, a link, memory that streams see.
struct Side {
  explicit Side(Process& other, uint32_t number) : process(other) {
    offer_device();
    rank = std::make_unique<Rank>(number);
    process.join(*rank);
    stage.resize(kBytes);
    EXPECT_EQ(device().map_host(device().self, stage.data(), kBytes, &stage_seen), TUTTI_OK) << Host::error;
  }
  ~Side() { device().unmap_host(device().self, stage.data()); }
  void wait_for(const Place& flags, uint64_t k, uint32_t value) {
    EXPECT_TRUE(process.drive_with(*rank, [&] { return flags.flag(k).load(std::memory_order_acquire) == value; }))
        << "flag " << k << " was not set";
  }
  Process& process;
  std::unique_ptr<Rank> rank;
  std::vector<unsigned char> stage;
  void* stage_seen = nullptr;
};

// Flags 0 and 1: the parent's bytes are there; the child's answer is there. Both are streams' doing.
TEST(Processes, StreamsReadAndWriteEachOthersMemoryInTheOrderOfFlags) {
  const auto question = pattern(kBytes, 1), reply = pattern(kBytes, 2);
  Process process([&](Process& parent) {
    Side side(parent, 1);
    Place memory, flags;
    ASSERT_EQ(parent.answer(*side.rank, [&] { return open(*side.rank, 0, 1, memory, kSecond); }), TUTTI_OK)
        << Host::error;
    ASSERT_EQ(parent.answer(*side.rank, [&] { return open(*side.rank, 0, 2, flags); }), TUTTI_OK) << Host::error;
    {
      Stream stream(1);
      for (uint32_t round = 0; round < 20; ++round) {
        stream.flag(TUTTI_COMMAND_WAIT, flags.seen(), 1);
        stream.flag(TUTTI_COMMAND_WRITE, flags.seen(), 0);
        stream.copy(side.stage_seen, memory.seen(), kBytes);
        stream.flag(TUTTI_COMMAND_WRITE, flags.seen(128), round + 1);
        side.wait_for(flags, 2, round + 1);
        ASSERT_EQ(side.stage, question) << "round " << round;
        std::copy(reply.begin(), reply.end(), side.stage.begin());
        stream.copy(memory.seen(), side.stage_seen, kBytes);
        stream.flag(TUTTI_COMMAND_WRITE, flags.seen(64), 1);
        parent.meet(*side.rank);
      }
    }
    EXPECT_EQ(mapped().close_mapping(memory.mapping), TUTTI_OK);
    EXPECT_EQ(mapped().close_mapping(flags.mapping), TUTTI_OK);
    parent.meet(*side.rank);
  });
  Side side(process, 0);
  Memory mine;
  Place memory, flags;
  ASSERT_EQ(share(*side.rank, 1, 1, mine.address, kBytes, memory), TUTTI_OK) << Host::error;
  ASSERT_EQ(share(*side.rank, 1, 2, nullptr, 4096, flags), TUTTI_OK) << Host::error;
  EXPECT_EQ(flags.flag(0).load(), 0u) << "host memory is zeroed";
  {
    Stream stream;
    for (uint32_t round = 0; round < 20; ++round) {
      std::copy(question.begin(), question.end(), side.stage.begin());
      stream.copy(memory.seen(), side.stage_seen, kBytes);
      stream.flag(TUTTI_COMMAND_WRITE, flags.seen(), 1);
      side.wait_for(flags, 1, 1);
      flags.flag(1).store(0, std::memory_order_release);
      stream.copy(side.stage_seen, memory.seen(), kBytes);
      stream.flag(TUTTI_COMMAND_WRITE, flags.seen(192), round + 1);
      side.wait_for(flags, 3, round + 1);
      ASSERT_EQ(side.stage, reply) << "round " << round;
      process.meet(*side.rank);
    }
  }
  process.meet(*side.rank);
  EXPECT_EQ(process.answer(*side.rank, [&] { return mapped().withdraw(memory.share); }), TUTTI_OK) << Host::error;
  EXPECT_EQ(process.answer(*side.rank, [&] { return mapped().withdraw(flags.share); }), TUTTI_OK) << Host::error;
  EXPECT_EQ(process.end(), 0) << "the child's checks";
}

TEST(Processes, AProcessThatDiesHoldsNoMappingAndItsMemoryStaysAddressable) {
  Process process([](Process& parent) {
    Side side(parent, 1);
    Place theirs, ours;
    Memory memory;
    ASSERT_EQ(parent.answer(*side.rank, [&] { return open(*side.rank, 0, 1, theirs); }), TUTTI_OK) << Host::error;
    ASSERT_EQ(share(*side.rank, 0, 9, nullptr, 4096, ours), TUTTI_OK) << Host::error;
    parent.meet(*side.rank);
    _exit(0);
  });
  Side side(process, 0);
  Memory mine;
  Place memory, flags;
  ASSERT_EQ(share(*side.rank, 1, 1, mine.address, kBytes, memory), TUTTI_OK) << Host::error;
  ASSERT_EQ(process.answer(*side.rank, [&] { return mapped().share_state(memory.share); }), TUTTI_OK) << Host::error;
  ASSERT_EQ(process.answer(*side.rank, [&] { return open(*side.rank, 1, 9, flags); }), TUTTI_OK) << Host::error;
  process.meet(*side.rank);
  EXPECT_EQ(process.end(), 0);
  EXPECT_EQ(process.answer(*side.rank, [&] { return mapped().withdraw(memory.share); }), TUTTI_OK)
      << "a process that has ended holds no mapping: " << Host::error;
  ASSERT_TRUE(drive({side.rank.get()}, [&] { return !side.rank->failures.empty(); })) << "its death is not told";
  {  // A stream that waits for the lost peer is ended by this process.
    Stream stream;
    stream.flag(TUTTI_COMMAND_WAIT, flags.seen(), 1);
    stream.flag(TUTTI_COMMAND_WRITE, flags.seen(64), 1);
    flags.flag(0).store(1, std::memory_order_release);
    side.wait_for(flags, 1, 1);
  }
  EXPECT_EQ(mapped().close_mapping(flags.mapping), TUTTI_OK);
}

}  // namespace
