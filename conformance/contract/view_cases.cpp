// SPDX-License-Identifier: Apache-2.0
//
// view/1: messages where they lie.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

// view/1 of one link, every call watched.
struct View {
  const tutti_view* table;
  tutti_link* link;
  const uint8_t* try_receive(uint32_t lane, uint64_t* bytes) const {
    *bytes = UINT64_MAX;
    return static_cast<const uint8_t*>(
        plain_call("try_receive", false, [&] { return table->try_receive(link, lane, bytes); }));
  }
  void release(uint32_t lane) const {
    plain_call("release", false, [&] { table->release(link, lane); });
  }
  uint8_t* try_reserve(uint32_t lane, uint64_t bytes) const {
    return static_cast<uint8_t*>(
        plain_call("try_reserve", false, [&] { return table->try_reserve(link, lane, bytes); }));
  }
  void commit(uint32_t lane, uint64_t bytes) const {
    plain_call("commit", false, [&] { table->commit(link, lane, bytes); });
  }
};

struct Pair {
  Stage stage;
  const tutti_view* table;
  View sender, receiver;
  explicit Pair(Bench& bench)
      : stage(bench), table(bench.view()), sender{table, stage[0].links[1]}, receiver{table, stage[1].links[0]} {}

  std::vector<uint8_t> bytes_of(const Label& label, uint64_t bytes) {
    std::vector<uint8_t> data(bytes);
    fill(data.data(), bytes, stage.bench.seed, label);
    return data;
  }
  uint8_t* reserve(uint32_t lane, uint64_t bytes, const char* clause) {
    uint8_t* room = nullptr;
    stage.until(
        [&] { return (room = sender.try_reserve(lane, bytes)) != nullptr; }, clause,
        fmt::format("try_reserve of {} bytes goes on giving NULL though the receiver has released everything", bytes));
    return room;
  }
  void write(const Label& label, uint64_t bytes, const char* clause = "V-6") {
    uint8_t* room = reserve(label.lane, bytes, clause);
    const std::vector<uint8_t> data = bytes_of(label, bytes);
    if (bytes) std::memcpy(room, data.data(), bytes);
    sender.commit(label.lane, bytes);
  }
  const uint8_t* see(const Label& label, uint64_t bytes, const char* clause = "V-5") {
    const uint8_t* shown = nullptr;
    uint64_t length = 0;
    stage.until(
        [&] { return (shown = receiver.try_receive(label.lane, &length)) != nullptr; }, bytes == 0 ? "V-3" : clause,
        fmt::format("message {} of {} bytes on lane {} was sent and try_receive goes on giving NULL{}", label.k, bytes,
                    label.lane, bytes == 0 ? "; an empty message is shown as a pointer that is not NULL" : ""));
    check(shown, length, label, bytes, "V-1");
    return shown;
  }
  void check(const uint8_t* shown, uint64_t length, const Label& label, uint64_t bytes, const char* clause) {
    require(length == bytes, clause, "try_receive shows {} bytes of message {} of lane {}, which has {}", length,
            label.k, label.lane, bytes);
    const std::string difference = first_difference(bytes_of(label, bytes).data(), shown, bytes);
    require(difference.empty(), clause, "try_receive shows message {} of lane {} wrong: {}", label.k, label.lane,
            difference);
  }
};

std::vector<uint64_t> view_sizes(Bench& bench) {
  std::vector<uint64_t> sizes{8, 1, 47, 48, 49, 63, 64, 65, 1000, 4096, 4097};
  sizes.push_back(bench.caps().fragment_bytes - 1);
  sizes.push_back(bench.caps().fragment_bytes);
  return sizes;
}

void show_and_release(Bench& bench) {
  Pair pair(bench);
  uint64_t length;
  for (uint32_t lane = 0; lane < 3; ++lane)
    require(!pair.receiver.try_receive(lane, &length), "V-1",
            "try_receive shows a message on lane {} before any was sent", lane);
  uint32_t k = 0;
  for (const uint64_t bytes : view_sizes(bench)) {
    const Label label{0, 1, k % 3, k};
    pair.write(label, bytes);
    const uint8_t* first = pair.see(label, bytes);
    for (int i = 0; i < 3; ++i) {
      pair.stage.progress();
      const uint8_t* again = pair.receiver.try_receive(label.lane, &length);
      require(again == first && length == bytes, "V-1",
              "asked again before release, try_receive shows {} bytes at {} instead of {} bytes at {}", length,
              static_cast<const void*>(again), bytes, static_cast<const void*>(first));
    }
    pair.check(first, bytes, label, bytes, "V-2");
    pair.receiver.release(label.lane);
    const uint8_t* gone = pair.receiver.try_receive(label.lane, &length);
    require(!gone, "V-1", "after release try_receive shows a message of {} bytes though no other was sent", length);
    ++k;
  }
}

void empty_views(Bench& bench) {
  Pair pair(bench);
  for (uint32_t k = 0; k < 4; ++k) {
    const uint64_t bytes = k % 2 ? 5 : 0;
    pair.write({0, 1, 0, k}, bytes);
    pair.see({0, 1, 0, k}, bytes);
    pair.receiver.release(0);
  }
  pair.write({0, 1, 1, 0}, 0);
  Posted* receive = pair.stage[1].post(pair.stage[1].receive(0, 1, nullptr, 0));
  pair.stage.until([&] { return receive->done; }, "V-7", "an empty message by commit does not complete a posted RECV");
}

// A shown message stays unchanged while the sender fills all room that it can get.
void shown_bytes_stay(Bench& bench) {
  Pair pair(bench);
  for (const uint64_t bytes : {uint64_t{24}, uint64_t{3000}, bench.caps().fragment_bytes}) {
    const Label label{0, 1, 0, static_cast<uint32_t>(bytes)};
    pair.write(label, bytes);
    const uint8_t* shown = pair.see(label, bytes);
    std::vector<Label> behind;
    for (uint32_t k = 0; k < 40; ++k) {
      uint8_t* room = pair.sender.try_reserve(0, bytes);
      if (!room) break;
      const Label next{0, 1, 0, label.k + 1 + k};
      std::memcpy(room, pair.bytes_of(next, bytes).data(), bytes);
      pair.sender.commit(0, bytes);
      behind.push_back(next);
      pair.stage.progress();
      pair.check(shown, bytes, label, bytes, "V-2");
    }
    uint64_t length;
    require(pair.receiver.try_receive(0, &length) == shown, "V-1",
            "try_receive shows another place than before, without a release between");
    pair.check(shown, bytes, label, bytes, "V-2");
    pair.receiver.release(0);
    for (const Label& next : behind) {
      pair.see(next, bytes);
      pair.receiver.release(0);
    }
  }
}

void reservations(Bench& bench) {
  Pair pair(bench);
  uint32_t k = 0;
  for (const uint64_t bytes : view_sizes(bench)) {
    const Label label{0, 1, k % 3, k};
    ++k;
    uint8_t* room = pair.reserve(label.lane, bytes, "V-4");
    require(bytes < 64 || reinterpret_cast<uintptr_t>(room) % 64 == 0, "V-4",
            "try_reserve of {} bytes gives an address that is {} bytes beyond a multiple of 64", bytes,
            reinterpret_cast<uintptr_t>(room) % 64);
    std::memcpy(room, pair.bytes_of(label, bytes).data(), bytes);
    uint64_t length;
    for (int i = 0; i < 3; ++i) {
      pair.stage.progress();
      require(pair.sender.try_reserve(label.lane, bytes) == room, "V-4",
              "asked again before commit, try_reserve gives another room than before");
      require(!pair.receiver.try_receive(label.lane, &length), "V-5",
              "try_receive shows a message of {} bytes that is reserved and not committed", length);
    }
    pair.sender.commit(label.lane, bytes);
    pair.see(label, bytes);
    pair.receiver.release(label.lane);
  }
  require(!pair.sender.try_reserve(0, bench.caps().fragment_bytes + 1), "V-4",
          "try_reserve gives room for fragment_bytes + 1");
}

// As much as there is room for; after each release there comes to be room again.
void credit(Bench& bench) {
  for (const uint64_t bytes : {uint64_t{40}, bench.caps().fragment_bytes}) {
    Pair pair(bench);
    uint32_t sent = 0, received = 0;
    constexpr uint32_t most = 400;
    for (uint32_t turn = 0; turn < 200; ++turn) {
      while (sent < received + most && pair.sender.try_reserve(0, bytes)) {
        uint8_t* room = pair.sender.try_reserve(0, bytes);
        std::memcpy(room, pair.bytes_of({0, 1, 0, sent}, bytes).data(), bytes);
        pair.sender.commit(0, bytes);
        ++sent;
      }
      require(sent > received, "V-6", "after {} messages of {} bytes, all released, try_reserve gives no room", sent,
              bytes);
      pair.see({0, 1, 0, received++}, bytes);
      pair.receiver.release(0);
      if (sent < received + most) {
        const uint32_t before = sent;
        pair.stage.until([&] { return before - received > 0 || pair.sender.try_reserve(0, bytes) != nullptr; }, "V-6",
                         fmt::format("{} of {} messages of {} bytes were released and try_reserve gives no room",
                                     received, sent, bytes));
      }
    }
    pair.stage.until(
        [&] {
          uint64_t length;
          if (received < sent && pair.receiver.try_receive(0, &length)) pair.receiver.release(0), ++received;
          return received == sent && pair.sender.try_reserve(0, bytes);
        },
        "V-6", "all messages were released and try_reserve gives no room");
  }
}

// Views and posts by turns on one lane.
void views_meet_posts(Bench& bench) {
  Pair pair(bench);
  Stage& stage = pair.stage;
  for (uint32_t k = 0; k < 40; ++k) {
    const uint64_t bytes = k % 5 == 4 ? bench.caps().fragment_bytes : 8 + k * 13;
    const Label label{0, 1, k % 2, k};
    const bool send_by_view = k % 4 < 2, receive_by_view = k % 3 == 0, receive_first = k % 7 < 3;
    std::vector<uint8_t> source = pair.bytes_of(label, bytes), target(bytes);
    Posted *sent = nullptr, *received = nullptr;
    const auto begin_receive = [&] {
      if (!receive_by_view) received = stage[1].post(stage[1].receive(0, label.lane, target.data(), bytes));
      require(receive_by_view || received, "T-20", "a RECV is refused");
    };
    if (receive_first) begin_receive(), stage.progress();
    if (send_by_view)
      pair.write(label, bytes, "V-7");
    else
      stage.until([&] { return (sent = stage[0].post(stage[0].send(1, label.lane, source.data(), bytes))) != nullptr; },
                  "V-7", "a SEND is refused after messages by view");
    if (!receive_first) stage.progress(), begin_receive();
    const std::string what = fmt::format("message {} of {} bytes, sent by {} and received by {}", k, bytes,
                                         send_by_view ? "commit" : "post", receive_by_view ? "try_receive" : "post");
    if (receive_by_view) {
      const uint8_t* shown = nullptr;
      uint64_t length = 0;
      stage.until([&] { return (shown = pair.receiver.try_receive(label.lane, &length)) != nullptr; }, "V-7",
                  what + ", does not arrive");
      pair.check(shown, length, label, bytes, "V-7");
      pair.receiver.release(label.lane);
    } else {
      stage.until([&] { return received->done; }, "V-7", what + ", does not arrive");
      require(received->status == TUTTI_OK, "V-7", "{}: the RECV ended with {}", what, status_text(received->status));
      const std::string difference = first_difference(source.data(), target.data(), bytes);
      require(difference.empty(), "V-7", "{}: {}", what, difference);
    }
    if (sent) stage.until([&] { return sent->done; }, "V-7", what + ": its SEND does not complete");
  }
}

struct SharedFile {
  uint64_t bytes;
  int fd;
  uint8_t* data;
  explicit SharedFile(uint64_t n) : bytes(n), fd(memfd_create("contract", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw CannotRun{"memfd_create failed"};
    data = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  ~SharedFile() {
    munmap(data, bytes);
    ::close(fd);
  }
};

void by_reference(Bench& bench) {
  Pair pair(bench);
  const tutti_view* v = pair.table;
  if (!TUTTI_HAS(tutti_view, v, send_region)) throw NotOffered{"its view has no send_region"};
  const tutti_transport* t = bench.transport();
  Stage& stage = pair.stage;
  const uint64_t most = bench.caps().fragment_bytes;
  SharedFile file(most + 8192);
  tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, file.data, file.bytes, file.fd, 0, 0};
  tutti_region* region = nullptr;
  tutti_status status =
      call("register_memory", true, [&] { return t->register_memory(stage[0].domain, &memory, &region); });
  require(status == TUTTI_OK, "T-35", "register_memory of a memfd's memory returned {}: {}", status_text(status),
          last_error());
  uint64_t last_released = 0;
  uint32_t k = 0;
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{1000}, most, uint64_t{1}, uint64_t{4097}})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{77}, file.bytes - bytes}) {
      if (offset + bytes > file.bytes) continue;
      const Label label{0, 1, 1, k++};
      std::memcpy(file.data + offset, pair.bytes_of(label, bytes).data(), bytes);
      uint64_t ticket = UINT64_MAX;
      stage.until(
          [&] {
            status = plain_call("send_region", false,
                                [&] { return v->send_region(pair.sender.link, 1, region, offset, bytes, &ticket); });
            require(status == TUTTI_OK || status == TUTTI_AGAIN, "V-8",
                    "send_region of {} bytes at {} of a region returned {}", bytes, offset, status_text(status));
            return status == TUTTI_OK;
          },
          "V-8", "send_region goes on returning TUTTI_AGAIN though the receiver has released everything");
      const auto released = [&] {
        return plain_call("released", false, [&] { return v->released(pair.sender.link, 1); });
      };
      pair.see(label, bytes, "V-8");
      stage.progress();
      const uint64_t early = released();
      require(early <= ticket, "V-8",
              "released() is {}, more than the ticket {}, before the receiver has released the message", early, ticket);
      require(early >= last_released, "V-8", "released() went back from {} to {}", last_released, early);
      pair.receiver.release(1);
      stage.until(
          [&] { return (last_released = released()) > ticket; }, "V-8",
          fmt::format("the receiver released the message and released() does not exceed its ticket {}", ticket));
    }
  // A posted RECV takes such a message, too.
  const Label label{0, 1, 1, k};
  std::vector<uint8_t> target(500), source = pair.bytes_of(label, 500);
  std::memcpy(file.data, source.data(), 500);
  Posted* receive = stage[1].post(stage[1].receive(0, 1, target.data(), 500));
  uint64_t ticket = 0;
  stage.until(
      [&] {
        return plain_call("send_region", false,
                          [&] { return v->send_region(pair.sender.link, 1, region, 0, 500, &ticket); }) == TUTTI_OK;
      },
      "V-8", "send_region goes on returning TUTTI_AGAIN");
  stage.until([&] { return receive->done; }, "V-7", "a message by send_region does not meet a posted RECV");
  require(target == source, "V-7", "a message by send_region met a posted RECV and arrived wrong");
  call("deregister_memory", true, [&] { return t->deregister_memory(stage[0].domain, region); });
}

// A message that the receiver sees by try_receive_into, with room for so many bytes.
void see_into(Pair& pair, const Label& label, uint64_t bytes, uint64_t room_bytes) {
  const View& receiver = pair.receiver;
  std::vector<uint8_t> room(room_bytes + 64, 0xee);
  const uint8_t* shown = nullptr;
  uint64_t length = 0;
  pair.stage.until(
      [&] {
        length = room_bytes;
        shown = static_cast<const uint8_t*>(plain_call("try_receive_into", false, [&] {
          return receiver.table->try_receive_into(receiver.link, label.lane, room.data(), &length);
        }));
        return shown != nullptr;
      },
      "V-10", fmt::format("message {} of {} bytes was sent and try_receive_into goes on giving NULL", label.k, bytes));
  pair.check(shown, length, label, bytes, "V-10");
  const auto first_free = room.begin() + static_cast<ptrdiff_t>(shown == room.data() ? bytes : 0);
  require(std::all_of(first_free, room.end(), [](uint8_t byte) { return byte == 0xee; }), "V-10",
          "try_receive_into was given room for {} bytes, {} a message of {} bytes and wrote {}", room_bytes,
          shown == room.data() ? "put there" : "showed elsewhere", bytes,
          shown == room.data() ? "beyond its end" : "into the room");
  uint64_t again = 0;
  require(receiver.try_receive(label.lane, &again) == shown && again == bytes, "V-10",
          "after try_receive_into try_receive shows another message or place");
  receiver.release(label.lane);
}

// Committed messages, and where the transport has them those out of the memory of the process.
void seen_into(Bench& bench) {
  Pair pair(bench);
  const tutti_view* v = pair.table;
  if (!TUTTI_HAS(tutti_view, v, try_receive_into)) throw NotOffered{"its view has no try_receive_into"};
  const tutti_transport* t = bench.transport();
  const uint64_t most = bench.caps().fragment_bytes;
  tutti_region* all = nullptr;
  if (TUTTI_HAS(tutti_view, v, send_region)) {
    const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, nullptr, UINT64_MAX, -1, 0, 0};
    const tutti_status status =
        call("register_memory", true, [&] { return t->register_memory(pair.stage[0].domain, &memory, &all); });
    require(status == TUTTI_OK || status == TUTTI_NOT_SUPPORTED, "T-35",
            "register_memory of all memory of the process returned {}: {}", status_text(status), last_error());
    if (status != TUTTI_OK) all = nullptr;
  }
  uint32_t k = 0;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{40}, uint64_t{1000}, most})
    for (const uint64_t room : {bytes, bytes - 1, bytes + 9}) {
      const Label label{0, 1, 1, k++};
      const std::vector<uint8_t> data = pair.bytes_of(label, bytes);
      uint64_t ticket = 0;
      tutti_status status = TUTTI_NOT_SUPPORTED;
      if (all && k % 2)
        pair.stage.until(
            [&] {
              status = plain_call("send_region", false, [&] {
                return v->send_region(pair.sender.link, 1, all, reinterpret_cast<uint64_t>(data.data()), bytes,
                                      &ticket);
              });
              return status != TUTTI_AGAIN;
            },
            "V-8", "send_region goes on returning TUTTI_AGAIN though the receiver has released everything");
      require(status == TUTTI_OK || status == TUTTI_NOT_SUPPORTED, "V-8",
              "send_region of {} bytes of the process's memory returned {}", bytes, status_text(status));
      if (status != TUTTI_OK) pair.write(label, bytes);
      see_into(pair, label, bytes, room);
      if (status == TUTTI_OK)
        pair.stage.until([&] { return v->released(pair.sender.link, 1) > ticket; }, "V-8",
                         "the receiver released the message and released() does not exceed its ticket");
    }
  if (all) call("deregister_memory", true, [&] { return t->deregister_memory(pair.stage[0].domain, all); });
}

// Marks by view meet marks by post, in every mixture; each lane has its own.
void marked_views(Bench& bench) {
  if (!(bench.caps().flags & TUTTI_TRANSPORT_MARKS)) throw NotOffered{"its messages carry no marks"};
  Pair pair(bench);
  Stage& stage = pair.stage;
  const View &sender = pair.sender, &receiver = pair.receiver;
  const auto set = [&](uint32_t lane, uint32_t mark) {
    plain_call("set_mark", false, [&] { sender.table->set_mark(sender.link, lane, mark); });
  };
  const auto shown = [&](uint32_t lane) {
    return plain_call("get_mark", false, [&] { return receiver.table->get_mark(receiver.link, lane); });
  };
  uint32_t k = 0;
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{0}, uint64_t{48}, uint64_t{1000}, bench.caps().fragment_bytes}) {
    const uint32_t mark = 0x8000'0001u + k, next = 7 + k, other = k ? 5 : 0;
    const auto expect = [&](const Label& label, uint32_t expected) {
      pair.see(label, bytes, "V-11");
      require(shown(label.lane) == expected, "V-11",
              "a message of {} bytes on lane {} was committed with the mark {:#x}, and get_mark returns {:#x}", bytes,
              label.lane, expected, shown(label.lane));
      receiver.release(label.lane);
    };
    set(0, mark);
    pair.write({0, 1, 0, k}, bytes, "V-11");
    set(0, next);  // of later messages
    expect({0, 1, 0, k}, mark);
    pair.write({0, 1, 0, k + 1}, bytes, "V-11");
    expect({0, 1, 0, k + 1}, next);
    pair.write({0, 1, 1, k}, bytes, "V-11");
    expect({0, 1, 1, k}, other);
    set(1, 5);
    // A committed message and a posted RECV; a posted SEND and try_receive.
    std::vector<uint8_t> source(bytes), target(bytes);
    tutti_transfer in = stage[1].receive(0, 0, target.data(), bytes), out = stage[0].send(1, 0, source.data(), bytes);
    in.mark = 6;
    Posted* received = stage[1].post(in);
    pair.write({0, 1, 0, k + 2}, bytes, "V-11");
    stage.until([&] { return received->done; }, "V-11",
                "a committed message with another mark than its RECV: it does not "
                "complete");
    require(received->status == TUTTI_MISMATCH && received->reported_mark == next, "T-42",
            "a message committed with the mark {:#x} met a RECV with 0x6, which completed with {} and the mark {:#x}",
            next, status_text(received->status), received->reported_mark);
    out.mark = 9;
    Posted* sent = nullptr;
    uint64_t length = 0;
    stage.until([&] { return (sent = stage[0].post(out)) != nullptr; }, "V-7",
                "a SEND is refused after messages by view");
    stage.until([&] { return receiver.try_receive(0, &length) != nullptr; }, "V-7", "a posted message does not arrive");
    require(shown(0) == 9, "V-11", "a message was posted with the mark 0x9, and get_mark returns {:#x}", shown(0));
    receiver.release(0);
    stage.until([&] { return sent->done; }, "V-7", "a SEND does not complete");
    k += 3;
  }
}

void views_after_failure(Bench& bench) {
  for (const bool give_up : {true, false}) {
    if (give_up && !bench.has_fail_peer()) continue;
    Pair pair(bench);
    for (auto& rank : pair.stage.ranks) rank->failures_expected = true;
    pair.write({0, 1, 0, 0}, 100);
    if (give_up)
      pair.stage[0].fail_peer(1);
    else
      pair.stage[0].abort();
    pair.stage.settle();
    require(!pair.sender.try_reserve(0, 8), "V-9", "after {} try_reserve gives room", give_up ? "fail_peer" : "abort");
    if (TUTTI_HAS(tutti_view, pair.table, released)) {
      const uint64_t released =
          plain_call("released", false, [&] { return pair.table->released(pair.sender.link, 0); });
      require(released == UINT64_MAX, "V-9", "after {} released() is {} instead of UINT64_MAX",
              give_up ? "fail_peer" : "abort", released);
    }
    uint64_t length;
    pair.sender.try_receive(0, &length);
    pair.stage.settle();
  }
}

}  // namespace

std::vector<ContractCase> view_cases() {
  return {
      {"view-show-and-release",
       "try_receive and release, all sizes",
       {"V-1", "V-2", "V-5", "V-6"},
       5,
       show_and_release},
      {"view-empty", "messages of no bytes by view", {"V-3", "V-1", "V-6", "V-7", "V-5"}, 3, empty_views},
      {"view-reserve", "try_reserve and commit, all sizes", {"V-4", "V-5", "V-1"}, 6, reservations},
      {"view-stays", "what is shown stays while more is sent", {"V-2", "V-1", "V-6", "V-5"}, 8, shown_bytes_stay},
      {"view-credit", "as many messages as there is room for", {"V-6", "V-1", "V-5"}, 20, credit},
      {"view-and-post", "views meet posts", {"V-7", "V-6", "T-20"}, 10, views_meet_posts},
      {"view-by-reference", "send_region and released", {"V-8", "V-7", "V-1", "T-35"}, 8, by_reference},
      {"view-into", "try_receive_into", {"V-10", "V-8", "V-1", "V-6", "T-35"}, 6, seen_into},
      {"view-marks", "set_mark and get_mark", {"V-11", "V-6", "V-7", "T-42"}, 16, marked_views},
      {"view-after-failure", "views of a link that has ended", {"V-9", "V-6"}, 10, views_after_failure},
  };
}

}  // namespace tutti::conformance::contract
