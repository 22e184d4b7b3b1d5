// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL: loading, description, connections, registration, closing.
#include "contract/contract_case.hpp"
#include "contract/usage.hpp"
#include "hosted.hpp"

namespace tutti::conformance::contract {
namespace {

void loads(Bench& bench) {
  const Hosted hosted(bench);
  bench.remark = fmt::format("{}\t{}\t{}", hosted.calls().name(), hosted.calls().version(), hosted.file());
}

void describes_its_adapters(Bench& bench) {
  const Hosted hosted(bench);
  constexpr int known = nccl::kHostPointer | nccl::kCudaPointer | nccl::kDmaBuf;
  for (int device = 0; device < hosted.devices(); ++device) {
    const nccl::Description p = hosted.describe(device), again = hosted.describe(device);
    const auto holds = [&](bool it, const char* field, const auto& value, const char* expected) {
      require(it, "nccl.properties", "adapter {}: {} is {}, expected {}", device, field, value, expected);
    };
    holds(p.name && *p.name, "name", p.name ? "empty" : "NULL", "a text");
    holds(p.pointers & nccl::kHostPointer, "ptrSupport", p.pointers, "NCCL_PTR_HOST (1) and more");
    holds(!(p.pointers & ~known), "ptrSupport", p.pointers, "the bits 1, 2 and 4 only");
    holds(!(p.pointers & nccl::kDmaBuf) || hosted.calls().has_dma_buf(), "ptrSupport", p.pointers,
          "no NCCL_PTR_DMABUF (4), since regMrDmaBuf is NULL");
    holds(p.max_comms > 0, "maxComms", p.max_comms, "at least 1");
    holds(p.max_receives > 0, "maxRecvs", p.max_receives, "at least 1");
    holds(p.max_message > 0 || hosted.calls().version() < 9, "maxP2pBytes", p.max_message, "at least 1");
    require(p.pointers == again.pointers && p.speed == again.speed && p.max_receives == again.max_receives &&
                std::string(p.name) == again.name,
            "nccl.properties", "adapter {} is not described alike in two calls", device);
  }
}

void listens(Bench& bench) {
  const Hosted hosted(bench);
  for (int device = 0; device < hosted.devices(); ++device) {
    Listening one(hosted, device), other(hosted, device);
    one.close();
    other.close();
  }
}

// Each end calls alone at first, which neither may wait for the other in nor take for an error.
void connects_and_accepts(Bench& bench) {
  const Hosted hosted(bench);
  constexpr int alone = 20;
  for (const bool connects_first : {true, false}) {
    Listening listening(hosted);
    void *sender = nullptr, *receiver = nullptr;
    for (int i = 0; i < alone; ++i)
      if (connects_first && !sender)
        sender = try_connect(listening);
      else if (!connects_first && !receiver)
        receiver = try_accept(listening);
    require(!receiver, "nccl.connect", "accept returned a comm before connect was called");
    connect_both(listening, sender, receiver);
    hosted.call("closeSend", "nccl.close", [&] { return hosted.calls().close_send(sender); });
    hosted.call("closeRecv", "nccl.close", [&] { return hosted.calls().close_receive(receiver); });
    listening.close();
  }
  for (int device = 0; device < hosted.devices(); ++device) Connection(hosted, device).close();
}

void registers(Bench& bench) {
  const Hosted hosted(bench);
  Connection connection(hosted);
  Traffic traffic(hosted);
  for (const size_t size : {size_t{1}, size_t{4097}, size_t{1} << 20}) {
    const size_t bytes = std::min(size, hosted.most_bytes());
    Registered from(hosted, connection.sender, bytes), to(hosted, connection.receiver, bytes);
    Registered unused(hosted, connection.receiver, bytes);
    unused.deregister();
    from.fill(bytes);
    Transfer received, sent;
    traffic.receive(connection.receiver, {{&to, 0}}, received);
    traffic.send(connection.sender, {&from, 0}, sent, {&received});
    traffic.finish({&received});
    to.require_received(from, bytes);
    from.deregister();
    to.deregister();
  }
}

void closes(Bench& bench) {
  const Hosted hosted(bench);
  require_no_growth("nccl.close", "connecting, sending a message and closing", 30, 60, [&](uint32_t lives) {
    for (uint32_t life = 0; life < lives; ++life) {
      Connection connection(hosted);
      Traffic traffic(hosted);
      Registered from(hosted, connection.sender, 256), to(hosted, connection.receiver, 256);
      Transfer received, sent;
      traffic.receive(connection.receiver, {{&to, 0}}, received);
      traffic.send(connection.sender, {&from, 0}, sent, {&received});
      traffic.finish({&received});
      from.deregister();
      to.deregister();
      connection.close();
    }
  });
}

}  // namespace

std::vector<ContractCase> nccl_setup_cases() {
  return {
      {"loads", "the table, init and the adapters", {"nccl.table", "nccl.init"}, 1, loads},
      {"properties", "each adapter's properties", {"nccl.properties"}, 1, describes_its_adapters},
      {"listens", "two listenComms of each adapter", {"nccl.listen", "nccl.handle", "nccl.close"}, 1, listens},
      {"connects",
       "connect and accept, each called alone at first",
       {"nccl.connect", "nccl.never-blocks", "nccl.close"},
       2,
       connects_and_accepts},
      {"registers",
       "three sizes, and memory that is not used",
       {"nccl.registration", "nccl.done", "nccl.data"},
       4,
       registers},
      {"closes", "90 connections, one after the other", {"nccl.close"}, 30, closes},
  };
}

}  // namespace tutti::conformance::contract
