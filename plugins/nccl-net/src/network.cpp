// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <tutti/sdk/words.hpp>
#include <utility>

namespace tutti::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBlocked = std::chrono::seconds(1);
constexpr uint64_t kMaxInt = 0x7fff'ffff;

thread_local std::string last_warning;  // of a plugin, on this thread: the reason behind a result

__attribute__((format(printf, 5, 6))) void write_log(int level, unsigned long, const char* file, int line,
                                                     const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (level == kLogWarn) last_warning = text.data();
  uint32_t to = TUTTI_LOG_DEBUG;
  if (level == kLogVersion || level == kLogInfo) to = TUTTI_LOG_INFO;
  if (level == kLogWarn) to = TUTTI_LOG_WARN;
  sdk::log(to, fmt::format("{} ({}:{})", text.data(), file ? file : "?", line));
}
// No profiler listens.
Result ignore_event(void**, int, void*, int64_t, void*) { return Result::kSuccess; }

const char* words(Result result) {
  switch (result) {
    case Result::kCudaError:
      return "ncclUnhandledCudaError";
    case Result::kSystemError:
      return "ncclSystemError";
    case Result::kInternalError:
      return "ncclInternalError";
    case Result::kInvalidArgument:
      return "ncclInvalidArgument";
    case Result::kInvalidUsage:
      return "ncclInvalidUsage";
    case Result::kRemoteError:
      return "ncclRemoteError";
    default:
      return "no result of NCCL";
  }
}

template <int V>
class NetworkOf final : public Network {
  using Types = Signatures<V>;

  struct ContextOf final : Context {
    explicit ContextOf(const Table<V>& given) : table(given) {}
    ~ContextOf() override {
      if constexpr (V >= 11)
        if (is_open && table.finalize) table.finalize(state);
    }
    const Table<V>& table;
    void* state = nullptr;
    bool is_open = false;
    CommConfig config{-1};
  };

 public:
  NetworkOf(const Table<V>& table, std::string says) : Network(V, std::move(says)), table_(table) {
    const std::array<std::pair<const char*, bool>, 15> needed{{{"init", table.init},
                                                               {"devices", table.devices},
                                                               {"getProperties", table.get_properties},
                                                               {"listen", table.listen},
                                                               {"connect", table.connect},
                                                               {"accept", table.accept},
                                                               {"regMr", table.register_memory},
                                                               {"deregMr", table.deregister_memory},
                                                               {"isend", table.send},
                                                               {"irecv", table.receive},
                                                               {"test", table.test},
                                                               {"closeSend", table.close_send},
                                                               {"closeRecv", table.close_receive},
                                                               {"closeListen", table.close_listen},
                                                               {"name", table.name}}};
    for (const auto& [name, there] : needed)
      if (!there) throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: its table has no {}", this->says(), name);
  }

  bool can_flush() const override { return table_.flush != nullptr; }

  std::unique_ptr<Context> open(uint64_t communicator, int traffic_class) override {
    auto context = std::make_unique<ContextOf>(table_);
    context->config.traffic_class = traffic_class;
    if constexpr (V >= 11) {
      check(table_.init(&context->state, communicator, &context->config, write_log, ignore_event), "init");
    } else {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(is_initialized_, true)) {
        if constexpr (V == 10)
          init_result_ = table_.init(write_log, ignore_event);
        else
          init_result_ = table_.init(write_log);
      }
      check(init_result_, "init");
    }
    context->is_open = true;
    return context;
  }

  int devices() override {
    int n = 0;
    check(table_.devices(&n), "devices");
    if (n < 1) throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: it has no adapter on this host ({})", says(), n);
    return n;
  }

  Adapter adapter(int device) override {
    Properties<V> p{};
    check(table_.get_properties(device, &p), "getProperties");
    Adapter a;
    a.name = p.name ? p.name : "";
    a.pci_path = p.pci_path ? p.pci_path : "";
    a.pointers = p.pointers;
    a.speed_mbps = p.speed > 0 ? static_cast<uint64_t>(p.speed) : 0;
    a.latency_ns = p.latency > 0 ? static_cast<uint64_t>(static_cast<double>(p.latency) * 1000) : 0;
    a.max_receives = p.max_receives > 0 ? static_cast<uint32_t>(p.max_receives) : 1;
    a.max_message = uint64_t{1} << 30;
    if constexpr (V >= 9) {
      if (p.max_message) a.max_message = std::min<uint64_t>(p.max_message, a.max_message);
    }
    if (!(p.pointers & kHostPointer))
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: adapter {} (\"{}\") accepts no host memory: ptrSupport is {}", says(),
                       device, a.name, p.pointers);
    if (p.pointers & kDmaBuf && !table_.register_dma_buf)
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: adapter {} (\"{}\") claims dma-bufs, but there is no regMrDmaBuf",
                       says(), device, a.name);
    return a;
  }

  int fuse(const std::vector<int>& devices) override {
    if constexpr (V >= 9) {
      using Made = std::conditional_t<(V < 12), VirtualDevice<9>, VirtualDevice<12>>;
      Made made{};
      if (devices.size() <= std::size(made.devices) && table_.make_virtual_device) {
        made.n = static_cast<int>(devices.size());
        std::ranges::copy(devices, made.devices);
        int device = -1;
        check(table_.make_virtual_device(&device, &made), "makeVDevice");
        return device;
      }
    }
    throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: it cannot join {} adapters to a virtual one (makeVDevice)", says(),
                     devices.size());
  }

  Listener listen(Context& context, int device) override {
    Listener made;
    // Behind the handle lie bytes that must stay.
    std::array<char, 2 * kHandleBytes> room{};
    constexpr char kCanary = '\x5a';
    std::fill(room.begin() + kHandleBytes, room.end(), kCanary);
    const auto begin = Clock::now();
    if constexpr (V >= 11)
      check(table_.listen(static_cast<ContextOf&>(context).state, device, room.data(), &made.listener), "listen");
    else
      check(table_.listen(device, room.data(), &made.listener), "listen");
    check_time(begin, "listen");
    if (!made.listener) throw sdk::error(TUTTI_SYSTEM, "{}: listen succeeded without a listenComm", says());
    made.handle.assign(room.data(), kHandleBytes);
    if (std::any_of(room.begin() + kHandleBytes, room.end(), [](char c) { return c != kCanary; })) {
      table_.close_listen(made.listener);
      throw sdk::error(TUTTI_SYSTEM, "{}: listen wrote more than the {} bytes that a handle may have", says(),
                       kHandleBytes);
    }
    return made;
  }

  void* connect(Context& context, int device, int traffic_class, char* handle) override {
    void *comm = nullptr, *offload = nullptr;
    const auto begin = Clock::now();
    Result result;
    if constexpr (V >= 11) {
      result = table_.connect(static_cast<ContextOf&>(context).state, device, handle, &comm, &offload);
    } else if constexpr (V == 10) {
      CommConfig config{traffic_class};
      result = table_.connect(device, &config, handle, &comm, &offload);
    } else if constexpr (V >= 7) {
      result = table_.connect(device, handle, &comm, &offload);
    } else {
      result = table_.connect(device, handle, &comm);
    }
    check(result, "connect");
    check_time(begin, "connect");
    return comm;
  }

  void* accept(void* listener) override {
    void *comm = nullptr, *offload = nullptr;
    const auto begin = Clock::now();
    if constexpr (V >= 7)
      check(table_.accept(listener, &comm, &offload), "accept");
    else
      check(table_.accept(listener, &comm), "accept");
    check_time(begin, "accept");
    return comm;
  }

  void* register_memory(void* comm, void* data, uint64_t bytes, Pointer type) override {
    if (V < 8 && bytes > kMaxInt)
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: registers at most 2 GiB at once, {} bytes were asked for", says(),
                       bytes);
    void* memory = nullptr;
    check(table_.register_memory(comm, data, static_cast<typename Types::RegisteredBytes>(bytes), type, &memory),
          "regMr");
    return memory;
  }
  void* register_dma_buf(void* comm, void* data, uint64_t bytes, uint64_t offset, int fd) override {
    void* memory = nullptr;
    check(table_.register_dma_buf(comm, data, bytes, kCudaPointer, offset, fd, &memory), "regMrDmaBuf");
    return memory;
  }

  void* send(void* comm, const void* data, uint64_t bytes, int tag, void* memory) override {
    void* request = nullptr;
    const auto size = static_cast<typename Types::Bytes>(bytes);
    if constexpr (V >= 10)
      check(table_.send(comm, const_cast<void*>(data), size, tag, memory, nullptr, &request), "isend");
    else
      check(table_.send(comm, const_cast<void*>(data), size, tag, memory, &request), "isend");
    return request;
  }

  void* receive(void* comm, std::vector<Piece>& group) override {
    constexpr size_t kMost = 32;
    std::array<void*, kMost> data{}, memory{}, profiled{};
    std::array<typename Types::Bytes, kMost> bytes{};
    std::array<int, kMost> tags{};
    const size_t n = std::min(group.size(), kMost);
    for (size_t i = 0; i < n; ++i) {
      data[i] = group[i].data;
      memory[i] = group[i].memory;
      bytes[i] = static_cast<typename Types::Bytes>(group[i].bytes);
      tags[i] = group[i].tag;
    }
    void* request = nullptr;
    const int count = static_cast<int>(n);
    if constexpr (V >= 10)
      check(
          table_.receive(comm, count, data.data(), bytes.data(), tags.data(), memory.data(), profiled.data(), &request),
          "irecv");
    else
      check(table_.receive(comm, count, data.data(), bytes.data(), tags.data(), memory.data(), &request), "irecv");
    return request;
  }

  void* flush(void* comm, void* data, uint64_t bytes, void* memory) override {
    void* request = nullptr;
    int size = static_cast<int>(bytes);
    check(table_.flush(comm, 1, &data, &size, &memory, &request), "iflush");
    return request;
  }

  bool test(void* request, int* bytes, const char* function) override {
    int done = 0;
    check(table_.test(request, &done, bytes), function);
    return done != 0;
  }

  void deregister_memory(void* comm, void* memory) noexcept override { table_.deregister_memory(comm, memory); }
  void close_send(void* comm) noexcept override { table_.close_send(comm); }
  void close_receive(void* comm) noexcept override { table_.close_receive(comm); }
  void close_listen(void* listener) noexcept override { table_.close_listen(listener); }

 private:
  const Table<V>& table_;
  std::mutex mutex_;
  bool is_initialized_ = false;
  Result init_result_ = Result::kSuccess;
};

// The loaded file and its newest table.
class Library {
 public:
  explicit Library(std::string file) : file_(std::move(file)), handle_(dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) {
      const char* why = dlerror();
      throw sdk::error(TUTTI_NOT_SUPPORTED,
                       "TUTTI_NCCL_NET: {} cannot be loaded: {}. Name a file, or NAME of a libnccl-net-NAME.so in "
                       "LD_LIBRARY_PATH",
                       file_, why ? why : "no reason is known");
    }
  }
  // Never unloads it: threads of the plugin may run.
  std::unique_ptr<Network> network(int version) const {
    std::unique_ptr<Network> made;
    const bool any = version == 0;
    if (!take<12, 11, 10, 9, 8, 7, 6>(version, made))
      throw sdk::error(TUTTI_NOT_SUPPORTED, "TUTTI_NCCL_NET: {} exports no ncclNetPlugin_v{}{}{}", file_,
                       any ? fmt::format("{} to ncclNetPlugin_v{}", kOldest, kNewest) : std::to_string(version),
                       exported().empty() ? ": it is no network plugin of NCCL" : "; it exports ", exported());
    return made;
  }

 private:
  // Takes the first of the versions that is wanted (0: any) and there.
  template <int... versions>
  bool take(int wanted, std::unique_ptr<Network>& made) const {
    return ((wanted == 0 || wanted == versions ? take_one<versions>(made) : false) || ...);
  }
  template <int version>
  bool take_one(std::unique_ptr<Network>& made) const {
    const void* table = symbol(version);
    if (!table) return false;
    made = std::make_unique<NetworkOf<version>>(*static_cast<const Table<version>*>(table),
                                                fmt::format("{} (version {})", file_, version));
    return true;
  }
  const void* symbol(int version) const { return dlsym(handle_, fmt::format("ncclNetPlugin_v{}", version).c_str()); }
  // The versions that it has, of all that ever were and the next ones.
  std::string exported() const {
    std::string text;
    for (int version = 1; version < 32; ++version)
      if (symbol(version)) text += fmt::format("{}ncclNetPlugin_v{}", text.empty() ? "" : ", ", version);
    return text;
  }

  const std::string file_;
  void* const handle_;
};

bool is_file(const std::string& named) { return named.find('/') != named.npos || named.ends_with(".so"); }

}  // namespace

void Network::check(Result result, const char* function) const {
  if (result == Result::kSuccess) [[likely]]
    return;
  const std::string reason = std::exchange(last_warning, "");
  throw sdk::error(result == Result::kRemoteError ? TUTTI_PEER_FAILED : TUTTI_SYSTEM, "{}: {} failed with {} ({}){}{}",
                   says_, function, words(result), static_cast<int>(result), reason.empty() ? "" : ": ", reason);
}

void Network::check_time(Clock::time_point begin, const char* function) const {
  const auto took = Clock::now() - begin;
  if (took > kBlocked)
    sdk::log(TUTTI_LOG_WARN, fmt::format("{}: {} took {:.1f} s: it must not block, but return at once and be called "
                                         "again",
                                         says_, function, std::chrono::duration<double>(took).count()));
}

std::string Network::short_name(const std::string& named) {
  if (!is_file(named)) return named;
  std::string name = named.substr(named.rfind('/') + 1);
  if (name.ends_with(".so")) name.resize(name.size() - 3);
  for (const char* prefix : {"libnccl-net-", "lib"})
    if (name.starts_with(prefix)) return name.substr(std::strlen(prefix));
  return name;
}

Network& Network::load(const std::string& named, int version) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::pair<std::string, int>, std::unique_ptr<Network>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Network>& network = (*loaded)[{named, version}];
  if (!network) network = Library(is_file(named) ? named : "libnccl-net-" + named + ".so").network(version);
  return *network;
}

}  // namespace tutti::nccl
