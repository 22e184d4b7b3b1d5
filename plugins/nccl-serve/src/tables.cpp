// SPDX-License-Identifier: Apache-2.0
//
// The data symbols that NCCL looks for: the tables of versions 6 to 12, made of one set of functions.
#include <tutti/plugin/types.h>

#include <algorithm>
#include <iterator>

#include "comm.hpp"
#include "log.hpp"
#include "rendezvous.hpp"
#include "served.hpp"
#include "settings.hpp"

namespace tutti::nccl::serve {
namespace {

constexpr size_t kMostMessage = size_t{1} << 30;  // test reports sizes as int

// A communicator's, from version 11 on; before, NULL stands for the last init.
struct Context {
  Served& served;
  int traffic_class;
};

Served& opened() {
  Served* const served = Served::current();
  if (!served) throw sdk::error(TUTTI_INVALID_USAGE, "init has not been called, or has failed");
  return *served;
}

void open(void** context, const CommConfig* config, Logger logger) {
  use_logger(logger);
  Served& served = Served::find(Settings::read());
  if (context) *context = new Context{served, config ? config->traffic_class : -1};
  const auto& caps = served.caps();
  say(kLogInfo, fmt::format("tutti: serves transport {}: messages of at most {} bytes, {} MB/s, {} ns", served.name(),
                            caps.fragment_bytes, caps.bandwidth / 1'000'000, caps.latency_ns));
}

void check_device(int device) {
  if (device != 0) throw sdk::error(TUTTI_INVALID_ARGUMENT, "there is adapter 0 only, not {}", device);
}

template <int V>
void describe(int device, Properties<V>& p) {
  check_device(device);
  Served& served = opened();
  const tutti_transport_caps& caps = served.caps();
  p = {};
  p.name = const_cast<char*>(served.name().c_str());
  p.guid = std::hash<std::string>()(served.name());
  p.pointers = served.pointers();
  p.speed = static_cast<int>(std::clamp<uint64_t>(caps.bandwidth / 125'000, 1, 0x7fff'ffff));
  p.latency = static_cast<float>(caps.latency_ns) / 1000;
  p.max_comms = 1 << 16;
  p.max_receives = kMostInGroup;
  if constexpr (V >= 8) p.registers_globally = 1;
  if constexpr (V >= 9) {
    p.made_of.n = 1;
    p.made_of.devices[0] = device;
    p.max_message = p.max_collective = kMostMessage;
  }
  if constexpr (V >= 11) p.max_multi_request = 1;
  if constexpr (V >= 12) p.rail = p.plane = -1;
}

void listen(Served& served, int device, int traffic_class, void* handle, void** listener) {
  *listener = nullptr;
  check_device(device);
  auto made = std::make_unique<Listener>(served, traffic_class);
  made->write_handle(handle);
  *listener = made.release();
}
void dial(Served& served, int device, int traffic_class, void* handle, void** comm) {
  *comm = nullptr;
  check_device(device);
  // As Comm: what connect returns is what the other functions take.
  *comm = static_cast<Comm*>(connect(served, handle, traffic_class).release());
}
Result accept(void* listener, void** comm) {
  return guarded("accept", [&] {
    *comm = nullptr;
    *comm = static_cast<Comm*>(static_cast<Listener*>(listener)->accept().release());
  });
}

Comm& comm_of(void* comm) { return *static_cast<Comm*>(comm); }

Result register_memory(void* comm, void* data, size_t bytes, int type, void** memory) {
  return guarded("regMr", [&] {
    *memory = nullptr;
    *memory = comm_of(comm).served().register_memory(data, bytes, type, -1, 0);
  });
}
Result register_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd, void** memory) {
  return guarded("regMrDmaBuf", [&] {
    *memory = nullptr;
    if (fd < 0) throw sdk::error(TUTTI_INVALID_ARGUMENT, "{} is no descriptor of a dma-buf", fd);
    *memory = comm_of(comm).served().register_memory(data, bytes, type, fd, offset);
  });
}
Result deregister_memory(void* comm, void* memory) {
  return guarded("deregMr", [&] { comm_of(comm).served().deregister_memory(static_cast<Memory*>(memory)); });
}

template <typename Bytes>
uint64_t checked(Bytes bytes) {
  if constexpr (std::is_signed_v<Bytes>)
    if (bytes < 0) throw sdk::error(TUTTI_INVALID_ARGUMENT, "{} bytes", bytes);
  if (static_cast<uint64_t>(bytes) > kMostMessage)
    throw sdk::error(TUTTI_INVALID_USAGE, "{} bytes: a message has at most {}", bytes, kMostMessage);
  return static_cast<uint64_t>(bytes);
}

template <typename Bytes>
Result send(void* comm, void* data, Bytes bytes, int tag, void* memory, void** request) {
  return guarded("isend", [&] {
    *request = nullptr;
    auto& sender = static_cast<SendComm&>(comm_of(comm));
    *request = sender.send(data, checked(bytes), tag, static_cast<Memory*>(memory));
  });
}

template <typename Bytes>
std::vector<ReceiveComm::Part> parts_of(int n, void** data, const Bytes* bytes, const int* tags, void** memory) {
  std::vector<ReceiveComm::Part> parts;
  for (int i = 0; i < n; ++i)
    parts.push_back({data[i], checked(bytes[i]), tags ? tags[i] : 0, static_cast<Memory*>(memory[i])});
  return parts;
}
template <typename Bytes>
Result receive(void* comm, int n, void** data, const Bytes* bytes, int* tags, void** memory, void** request) {
  return guarded("irecv", [&] {
    *request = nullptr;
    auto& receiver = static_cast<ReceiveComm&>(comm_of(comm));
    *request = receiver.receive(parts_of(n, data, bytes, tags, memory));
  });
}
Result flush(void* comm, int n, void** data, int* bytes, void** memory, void** request) {
  return guarded("iflush", [&] {
    *request = nullptr;
    auto& receiver = static_cast<ReceiveComm&>(comm_of(comm));
    *request = receiver.flush(parts_of(n, data, bytes, nullptr, memory));
  });
}
Result test(void* handle, int* done, int* sizes) {
  return guarded("test", [&] {
    *done = 0;
    auto& request = *static_cast<Request*>(handle);
    if (!request.comm) throw sdk::error(TUTTI_INVALID_USAGE, "the request is over already");
    *done = request.comm->test(request, sizes);
  });
}
Result close_comm(void* comm) {
  return guarded("close", [&] { delete static_cast<Comm*>(comm); });
}
Result close_listen(void* listener) {
  return guarded("closeListen", [&] { delete static_cast<Listener*>(listener); });
}

// There is nothing to join.
template <typename Fused>
Result make_virtual_device(int* device, Fused* made_of) {
  return guarded("makeVDevice", [&] {
    if (made_of->n != 1 || made_of->devices[0] != 0)
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{} adapters cannot be joined: there is adapter 0 only", made_of->n);
    *device = 0;
  });
}

// ---- The functions that differ by version

template <int V>
void set_up_functions(Table<V>& t) {
  if constexpr (V >= 11) {
    t.init = [](void** context, uint64_t, CommConfig* config, Logger logger, ProfilerCallback) {
      return guarded("init", [&] { open(context, config, logger); });
    };
    t.finalize = [](void* context) { return guarded("finalize", [&] { delete static_cast<Context*>(context); }); };
    t.set_attributes = [](void*, void*) { return Result::kSuccess; };  // hints, of which no use is made
    t.listen = [](void* context, int device, void* handle, void** listener) {
      return guarded("listen", [&] {
        auto& c = *static_cast<Context*>(context);
        listen(c.served, device, c.traffic_class, handle, listener);
      });
    };
    t.connect = [](void* context, int device, void* handle, void** comm, void**) {
      return guarded("connect", [&] {
        auto& c = *static_cast<Context*>(context);
        dial(c.served, device, c.traffic_class, handle, comm);
      });
    };
    return;
  } else {
    if constexpr (V == 10)
      t.init = [](Logger logger, ProfilerCallback) {
        return guarded("init", [&] { open(nullptr, nullptr, logger); });
      };
    else
      t.init = [](Logger logger) { return guarded("init", [&] { open(nullptr, nullptr, logger); }); };
    t.listen = [](int device, void* handle, void** listener) {
      return guarded("listen", [&] { listen(opened(), device, -1, handle, listener); });
    };
    if constexpr (V == 10)
      t.connect = [](int device, CommConfig* config, void* handle, void** comm, void**) {
        return guarded("connect",
                       [&] { dial(opened(), device, config ? config->traffic_class : -1, handle, comm); });
      };
    else if constexpr (V >= 7)
      t.connect = [](int device, void* handle, void** comm, void**) {
        return guarded("connect", [&] { dial(opened(), device, -1, handle, comm); });
      };
    else
      t.connect = [](int device, void* handle, void** comm) {
        return guarded("connect", [&] { dial(opened(), device, -1, handle, comm); });
      };
  }
}

template <int V>
void set_transfer_functions(Table<V>& t) {
  using Bytes = typename Signatures<V>::Bytes;
  if constexpr (V >= 10) {
    t.send = [](void* comm, void* data, Bytes bytes, int tag, void* memory, void*, void** request) {
      return send(comm, data, bytes, tag, memory, request);
    };
    t.receive = [](void* comm, int n, void** data, Bytes* bytes, int* tags, void** memory, void**, void** request) {
      return receive(comm, n, data, bytes, tags, memory, request);
    };
  } else {
    t.send = send<Bytes>;
    t.receive = [](void* comm, int n, void** data, Bytes* bytes, int* tags, void** memory, void** request) {
      return receive(comm, n, data, bytes, tags, memory, request);
    };
  }
  t.register_memory = [](void* comm, void* data, typename Signatures<V>::RegisteredBytes bytes, int type,
                         void** memory) {
    return register_memory(comm, data, static_cast<size_t>(bytes), type, memory);
  };
}

template <int V>
Table<V> make_table() {
  Table<V> t{};
  t.name = "tutti";
  set_up_functions(t);
  set_transfer_functions(t);
  t.devices = [](int* n) {
    return guarded("devices", [&] {
      opened();
      *n = 1;
    });
  };
  t.get_properties = [](int device, Properties<V>* properties) {
    return guarded("getProperties", [&] { describe<V>(device, *properties); });
  };
  if constexpr (V >= 7)
    t.accept = [](void* listener, void** comm, void**) { return accept(listener, comm); };
  else
    t.accept = accept;
  t.register_dma_buf = register_dma_buf;
  t.deregister_memory = deregister_memory;
  t.flush = flush;
  t.test = test;
  t.close_send = t.close_receive = close_comm;
  t.close_listen = close_listen;
  if constexpr (V >= 12)
    t.make_virtual_device = make_virtual_device<VirtualDevice<12>>;
  else if constexpr (V >= 9)
    t.make_virtual_device = make_virtual_device<VirtualDevice<9>>;
  return t;
}

}  // namespace
}  // namespace tutti::nccl::serve

using tutti::nccl::Table;
using tutti::nccl::serve::make_table;
extern "C" {
TUTTI_EXPORT Table<6> ncclNetPlugin_v6 = make_table<6>();
TUTTI_EXPORT Table<7> ncclNetPlugin_v7 = make_table<7>();
TUTTI_EXPORT Table<8> ncclNetPlugin_v8 = make_table<8>();
TUTTI_EXPORT Table<9> ncclNetPlugin_v9 = make_table<9>();
TUTTI_EXPORT Table<10> ncclNetPlugin_v10 = make_table<10>();
TUTTI_EXPORT Table<11> ncclNetPlugin_v11 = make_table<11>();
TUTTI_EXPORT Table<12> ncclNetPlugin_v12 = make_table<12>();
}
