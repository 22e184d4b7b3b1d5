// SPDX-License-Identifier: Apache-2.0
//
// The binary interface of NCCL's network plugins, versions 6 to 12: the layouts of the data symbols ncclNetPlugin_v6 to
// ncclNetPlugin_v12. Facts from NCCL's public documentation; the names are ours. A plugin exports one or several.
//   6   the oldest that is hosted: grouped receives
//   7   device offload, which is never asked for here
//   8   registers memory of more than 2 GiB; regIsGlobal
//   9   messages of more than 2 GiB, virtual devices, forced flushes
//   10  a traffic class for each connection; a profiler's callback
//   11  init and finalize for each communicator, with a context, which has the traffic class
//   12  virtual devices of up to 8 adapters; rail and plane of an adapter
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::nccl {

inline constexpr int kOldest = 6, kNewest = 12;

enum class Result : int {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6
};
// Bits of Properties::pointers and the type of registered memory.
enum Pointer : int { kHostPointer = 1, kCudaPointer = 2, kDmaBuf = 4 };
// Levels of the logger.
enum LogLevel : int { kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogAbort = 4, kLogTrace = 5 };

inline constexpr size_t kHandleBytes = 128;  // what listen may write for connect
// Requests that a comm must bear at a time.
constexpr int max_requests(int version) { return version < 8 ? 8 : 32; }

using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line, const char* format, ...);
using ProfilerCallback = Result (*)(void** event, int type, void* handle, int64_t plugin, void* data);

struct CommConfig {
  int traffic_class;  // -1: none
};

template <int version>
struct VirtualDevice {
  int n;
  int devices[version < 12 ? 4 : 8];
};

template <int version>
struct Properties;
template <>
struct Properties<6> {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int speed;  // Mbit/s
  int port;
  float latency;  // us
  int max_comms;
  int max_receives;  // of a group
};
template <>
struct Properties<7> : Properties<6> {
  int device_type;
  int device_version;
};
template <>
struct Properties<8> {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int registers_globally;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};
template <>
struct Properties<9> {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int registers_globally;
  int forces_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<9> made_of;
  size_t max_message;
  size_t max_collective;
};
template <>
struct Properties<10> : Properties<9> {};
template <>
struct Properties<11> : Properties<9> {
  int max_multi_request;
};
template <>
struct Properties<12> {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int registers_globally;
  int forces_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<12> made_of;
  size_t max_message;
  size_t max_collective;
  int max_multi_request;
  int16_t rail;
  int16_t plane;
};

// The types of the functions that changed.
template <int version>
struct Signatures {
  using Bytes = std::conditional_t<(version < 9), int, size_t>;  // of a message
  using RegisteredBytes = std::conditional_t<(version < 8), int, size_t>;
  using Init = std::conditional_t<
      (version < 10), Result (*)(Logger),
      std::conditional_t<(version < 11), Result (*)(Logger, ProfilerCallback),
                         Result (*)(void** context, uint64_t communicator, CommConfig*, Logger, ProfilerCallback)>>;
  using Listen = std::conditional_t<(version < 11), Result (*)(int device, void* handle, void** listener),
                                    Result (*)(void* context, int device, void* handle, void** listener)>;
  using Connect = std::conditional_t<
      (version < 7), Result (*)(int device, void* handle, void** comm),
      std::conditional_t<
          (version < 10), Result (*)(int device, void* handle, void** comm, void** offload),
          std::conditional_t<(version < 11),
                             Result (*)(int device, CommConfig*, void* handle, void** comm, void** offload),
                             Result (*)(void* context, int device, void* handle, void** comm, void** offload)>>>;
  using Accept = std::conditional_t<(version < 7), Result (*)(void* listener, void** comm),
                                    Result (*)(void* listener, void** comm, void** offload)>;
  using Send = std::conditional_t<
      (version < 10), Result (*)(void* comm, void* data, Bytes bytes, int tag, void* memory, void** request),
      Result (*)(void* comm, void* data, Bytes bytes, int tag, void* memory, void* profiled, void** request)>;
  using Receive = std::conditional_t<(version < 10),
                                     Result (*)(void* comm, int n, void** data, Bytes* bytes, int* tags, void** memory,
                                                void** request),
                                     Result (*)(void* comm, int n, void** data, Bytes* bytes, int* tags, void** memory,
                                                void** profiled, void** request)>;
};

// The functions that every version has, in their order. A function returns kSuccess with a NULL comm or request where
// it has to be called again. None may block.
template <int version>
struct CommonTable {
  using Types = Signatures<version>;
  const char* name;
  typename Types::Init init;
  Result (*devices)(int* n);
  Result (*get_properties)(int device, Properties<version>* properties);
  typename Types::Listen listen;
  typename Types::Connect connect;
  typename Types::Accept accept;
  Result (*register_memory)(void* comm, void* data, typename Types::RegisteredBytes bytes, int type, void** memory);
  Result (*register_dma_buf)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd, void** memory);
  Result (*deregister_memory)(void* comm, void* memory);
  typename Types::Send send;
  typename Types::Receive receive;
  Result (*flush)(void* comm, int n, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* comm);
  Result (*close_receive)(void* comm);
  Result (*close_listen)(void* listener);
};
// Those that came later.
template <int version>
struct LaterTable;
template <>
struct LaterTable<6> {};
template <>
struct LaterTable<7> {
  Result (*get_device_memory)(void* comm, void* memory, void** device_memory);
  Result (*receive_consumed)(void* comm, int n, void* request);
};
template <>
struct LaterTable<8> : LaterTable<7> {};
template <>
struct LaterTable<9> : LaterTable<7> {
  Result (*make_virtual_device)(int* device, VirtualDevice<9>* made_of);
};
template <>
struct LaterTable<10> : LaterTable<9> {};
template <>
struct LaterTable<11> : LaterTable<9> {
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};
template <>
struct LaterTable<12> : LaterTable<7> {
  Result (*make_virtual_device)(int* device, VirtualDevice<12>* made_of);
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};
template <int version>
struct Table : CommonTable<version>, LaterTable<version> {};

static_assert(sizeof(Table<6>) == 17 * 8 && sizeof(Table<8>) == 19 * 8 && sizeof(Table<10>) == 20 * 8);
static_assert(sizeof(Table<11>) == 22 * 8 && sizeof(Table<12>) == 22 * 8);
static_assert(sizeof(Properties<6>) == 48 && sizeof(Properties<7>) == 56 && sizeof(Properties<8>) == 64);
static_assert(sizeof(Properties<9>) == 104 && sizeof(Properties<11>) == 112 && sizeof(Properties<12>) == 128);

}  // namespace tutti::nccl
