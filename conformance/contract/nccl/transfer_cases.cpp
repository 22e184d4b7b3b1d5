// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL: messages between two comms of this process.
#include <algorithm>
#include <memory>
#include <utility>

#include "contract/contract_case.hpp"
#include "hosted.hpp"

namespace tutti::conformance::contract {
namespace {

void require_size(const Transfer& transfer, const char* function, size_t bytes, size_t at = 0,
                  const char* clause = "nccl.size") {
  require(transfer.sizes[at] != Transfer::kUnset, clause, "test of an {} reported no size {}, expected {}", function,
          at, bytes);
  require(transfer.sizes[at] == static_cast<int>(bytes), clause,
          "test of an {} reported {} bytes as size {}, expected {}, which were sent", function, transfer.sizes[at], at,
          bytes);
}

void sends_before_it_receives(Bench& bench) {
  const Hosted hosted(bench);
  Stretch s(hosted, 256);
  Transfer sent, received;
  const auto try_both = [&] {
    if (!sent.request) s.traffic.try_send(s.connection.sender, {&s.from, 0}, sent);
    return sent.request != nullptr;
  };
  for (int i = 0; i < 20 && !try_both();) ++i;  // NULL is as good as a request
  s.traffic.receive(s.connection.receiver, {{&s.to, 0}}, received);
  hosted.until(
      [&] {
        s.traffic.test(received);
        return try_both();
      },
      "nccl.null-request", [] { return std::string("isend gives a NULL request though the irecv was posted"); });
  s.traffic.finish({&sent, &received});
  s.to.require_received(s.from, 256);
}

void reports_sizes(Bench& bench) {
  const Hosted hosted(bench);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{4095}, size_t{65536}, (size_t{1} << 20) + 3}) {
    const size_t bytes = std::min(size, hosted.most_bytes());
    Stretch s(hosted, std::max(bytes, size_t{1}));
    Registered room(hosted, s.connection.receiver, bytes + 1000);
    Transfer sent, received;
    s.traffic.receive(s.connection.receiver, {{&room, 0}}, received);
    require(!s.traffic.test(received), "nccl.done", "an irecv is done before its message was sent");
    s.traffic.send(s.connection.sender, {&s.from, 0, 0, bytes}, sent, {&received});
    s.traffic.finish({&received});
    room.require_received(s.from, bytes);
    require_size(received, "irecv", bytes);
    require_size(sent, "isend", bytes);
  }
}

// The memory of an isend is overwritten, and that of an irecv is read, as soon as test says that they are done.
void is_done_when_it_is(Bench& bench) {
  const Hosted hosted(bench);
  const size_t bytes = std::min(size_t{4} << 20, hosted.most_bytes());
  Stretch s(hosted, bytes);
  Registered copy(hosted, s.connection.sender, bytes);
  for (int round = 0; round < 3; ++round) {
    Transfer sent, received;
    s.from.fill(static_cast<uint64_t>(round));
    copy.fill(static_cast<uint64_t>(round));
    std::fill(s.to.data(), s.to.data() + bytes, Registered::kFresh);
    s.traffic.receive(s.connection.receiver, {{&s.to, 0}}, received);
    hosted.until([&] { return s.traffic.test(received), s.traffic.try_send(s.connection.sender, {&s.from, 0}, sent); },
                 "nccl.null-request", [] { return std::string("isend gives a NULL request, again and again"); });
    bool is_overwritten = false;
    hosted.until(
        [&] {
          if (s.traffic.test(sent) && !std::exchange(is_overwritten, true))
            std::fill(s.from.data(), s.from.data() + bytes, Registered::kFresh);
          return s.traffic.test(received) && sent.done;
        },
        "nccl.completion", [] { return std::string("a long isend or irecv is not done"); });
    s.to.require_received(copy, bytes);
  }
}

void receives_groups(Bench& bench) {
  const Hosted hosted(bench);
  const int n = std::min(hosted.most_receives(), 8);
  if (n < 2) throw NotOffered{"its maxRecvs is 1"};
  Connection connection(hosted);
  Traffic traffic(hosted);
  constexpr size_t room = 4096;
  std::vector<std::unique_ptr<Registered>> from, to;
  std::vector<Traffic::Part> group;
  for (int i = 0; i < n; ++i) {
    from.push_back(std::make_unique<Registered>(hosted, connection.sender, 1000 + 16 * static_cast<size_t>(i)));
    to.push_back(std::make_unique<Registered>(hosted, connection.receiver, room));
    from.back()->fill(static_cast<uint64_t>(i) + 7);
    group.push_back({to.back().get(), 100 + i});
  }
  Transfer received;
  traffic.receive(connection.receiver, group, received);
  std::vector<Transfer> sent(static_cast<size_t>(n));
  for (int i = n - 1; i >= 0; --i) {  // in another order than the receives
    const auto k = static_cast<size_t>(i);
    require(!received.done, "nccl.group", "a grouped irecv of {} is done before {} of its messages were sent", n,
            i + 1);
    traffic.send(connection.sender, {from[k].get(), 100 + i}, sent[k], {&received});
  }
  traffic.finish({&received});
  for (size_t i = 0; i < from.size(); ++i) {
    for (size_t other = 0; other < from.size(); ++other)
      require(other == i || !std::equal(from[other]->data(), from[other]->data() + 1000, to[i]->data()), "nccl.tags",
              "the irecv of tag {} has the message of tag {}", 100 + i, 100 + other);
    to[i]->require_received(*from[i], from[i]->size());
    require_size(received, "grouped irecv", from[i]->size(), i, "nccl.group");
  }
}

void keeps_the_order(Bench& bench) {
  const Hosted hosted(bench);
  const int n = std::min(hosted.most_requests(), 8);
  constexpr size_t bytes = 512;
  Stretch s(hosted, bytes * static_cast<size_t>(n));
  std::vector<Transfer> sent(static_cast<size_t>(n)), received(static_cast<size_t>(n));
  std::vector<Transfer*> all;
  for (size_t i = 0; i < sent.size(); ++i)
    s.traffic.receive(s.connection.receiver, {{&s.to, 0, i * bytes, bytes}}, received[i]), all.push_back(&received[i]);
  for (size_t i = 0; i < sent.size(); ++i)
    s.traffic.send(s.connection.sender, {&s.from, 0, i * bytes, bytes}, sent[i], all);
  s.traffic.finish(all);
  for (size_t i = 0; i < sent.size(); ++i)
    for (size_t other = 0; other < sent.size(); ++other)
      require(other == i || !std::equal(s.from.data() + other * bytes, s.from.data() + (other + 1) * bytes,
                                        s.to.data() + i * bytes),
              "nccl.order", "irecv {} has the message of isend {}", i, other);
  s.to.require_received(s.from, s.from.size());
}

// As many requests as a comm must take, none of which is tested before all are posted.
void takes_all_requests(Bench& bench) {
  const Hosted hosted(bench);
  const auto groups = static_cast<size_t>(hosted.most_requests()), n = static_cast<size_t>(hosted.most_receives());
  constexpr size_t bytes = 64;
  Stretch s(hosted, bytes * groups * n);
  std::vector<Transfer> sent(groups * n), received(groups);
  std::vector<Transfer*> receives, all;
  for (size_t g = 0; g < groups; ++g) {
    std::vector<Traffic::Part> group;
    for (size_t i = 0; i < n; ++i) group.push_back({&s.to, static_cast<int>(i), (g * n + i) * bytes, bytes});
    hosted.until([&] { return s.traffic.try_receive(s.connection.receiver, group, received[g]); }, "nccl.requests",
                 [&] { return fmt::format("irecv gives a NULL request, {} of {} are pending", g, groups); });
    receives.push_back(&received[g]);
  }
  all = receives;
  for (size_t i = 0; i < sent.size(); ++i) {
    hosted.until(
        [&] {
          for (Transfer* one : receives) s.traffic.test(*one);
          return s.traffic.try_send(s.connection.sender, {&s.from, static_cast<int>(i % n), i * bytes, bytes}, sent[i]);
        },
        "nccl.requests", [&] {
          return fmt::format("isend gives a NULL request, {} of {} ({} times maxRecvs {}) are pending", i, sent.size(),
                             groups, n);
        });
    all.push_back(&sent[i]);
  }
  s.traffic.finish(all);
  s.to.require_received(s.from, s.from.size());
}

// NCCL flushes memory of a device only. Here it is the host's, called a device's, which a plugin may refuse.
void flushes(Bench& bench) {
  const Hosted hosted(bench);
  if (!hosted.calls().has_flush()) throw NotOffered{"it has no iflush"};
  if (!(hosted.describe(0).pointers & nccl::kCudaPointer))
    throw NotOffered{"its ptrSupport lacks NCCL_PTR_CUDA, so NCCL never calls iflush"};
  std::unique_ptr<Stretch> s;
  try {
    s = std::make_unique<Stretch>(hosted, 4096, nccl::kCudaPointer);
  } catch (const Broken& b) {
    if (b.clause() != "nccl.registration") throw;
    throw NotOffered{"it refuses the host's memory as a device's, which this machine has none of"};
  }
  Transfer sent, received, flushed;
  s->traffic.receive(s->connection.receiver, {{&s->to, 0}}, received);
  s->traffic.send(s->connection.sender, {&s->from, 0}, sent, {&received});
  s->traffic.finish({&received});
  void *data = s->to.data(), *handle = s->to.handle();
  int bytes = 4096;
  hosted.call("iflush", "nccl.flush", [&] {
    return hosted.calls().flush(s->connection.receiver, 1, &data, &bytes, &handle, &flushed.request);
  });
  if (flushed.request) s->traffic.finish({&flushed}, "nccl.flush");
  require(std::equal(s->from.data(), s->from.data() + 4096, s->to.data()), "nccl.flush",
          "the bytes of an irecv are not in memory though its iflush is done");
}

void comms_are_independent(Bench& bench) {
  const Hosted hosted(bench);
  Stretch waits(hosted, 1024), goes_on(hosted, 1024);
  Transfer late, sent_late;
  waits.traffic.receive(waits.connection.receiver, {{&waits.to, 0}}, late);
  for (int round = 0; round < 3; ++round) {
    Transfer sent, received;
    goes_on.traffic.receive(goes_on.connection.receiver, {{&goes_on.to, 0}}, received);
    waits.traffic.test(late);
    hosted.until([&] { return goes_on.traffic.try_send(goes_on.connection.sender, {&goes_on.from, 0}, sent); },
                 "nccl.comms", [] { return std::string("isend gives a NULL request while another comm waits"); });
    goes_on.traffic.finish({&sent, &received}, "nccl.comms");
  }
  waits.traffic.send(waits.connection.sender, {&waits.from, 0}, sent_late, {&late});
  waits.traffic.finish({&late});
  waits.to.require_received(waits.from, 1024);
}

}  // namespace

std::vector<ContractCase> nccl_transfer_cases() {
  return {
      {"sends-first",
       "an isend before its irecv",
       {"nccl.null-request", "nccl.completion", "nccl.done", "nccl.data"},
       2,
       sends_before_it_receives},
      {"sizes",
       "six sizes into larger memory",
       {"nccl.size", "nccl.completion", "nccl.done", "nccl.data"},
       5,
       reports_sizes},
      {"groups",
       "a grouped irecv, whose messages are sent in reverse",
       {"nccl.group", "nccl.tags", "nccl.done", "nccl.data"},
       5,
       receives_groups},
      {"order", "eight messages of one tag", {"nccl.order", "nccl.done", "nccl.data", "nccl.request-identity"}, 5,
       keeps_the_order},
      {"flush", "iflush after an irecv", {"nccl.flush"}, 5, flushes},
      {"comms", "a comm waits while another one goes on", {"nccl.comms", "nccl.done", "nccl.data"}, 5,
       comms_are_independent},
      {"requests",
       "all requests of both comms at once",
       {"nccl.requests", "nccl.request-identity", "nccl.completion", "nccl.done", "nccl.data"},
       10,
       takes_all_requests},
      {"done",
       "memory is used as soon as its request is done",
       {"nccl.done", "nccl.completion", "nccl.data"},
       15,
       is_done_when_it_is},
  };
}

}  // namespace tutti::conformance::contract
