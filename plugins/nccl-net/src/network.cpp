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
#include <tutti/sdk/nccl_net_calls.hpp>
#include <tutti/sdk/words.hpp>
#include <utility>

#include "wire.hpp"

namespace tutti::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBlocked = std::chrono::seconds(1);
constexpr uint64_t kMaxInt = 0x7fff'ffff;
constexpr uint64_t kLeastMessage = sizeof(Frame) + kControlBytes;

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

class Hosted final : public Network {
  struct ContextOf final : Context {
    explicit ContextOf(const Calls& of) : calls(of) {}
    ~ContextOf() override {
      if (is_open) calls.finalize(state);
    }
    const Calls& calls;
    void* state = nullptr;
    bool is_open = false;
    CommConfig config{-1};
  };

 public:
  Hosted(std::unique_ptr<Calls> calls, std::string says)
      : Network(calls->version(), std::move(says)), calls_(std::move(calls)) {
    if (const char* missing = calls_->missing())
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: its table has no {}", this->says(), missing);
  }

  bool can_flush() const override { return calls_->has_flush(); }

  std::unique_ptr<Context> open(uint64_t communicator, int traffic_class) override {
    auto context = std::make_unique<ContextOf>(*calls_);
    context->config.traffic_class = traffic_class;
    const auto init = [&] {
      return calls_->init(&context->state, communicator, &context->config, write_log, ignore_event);
    };
    if (version() >= 11) {
      check(init(), "init");
    } else {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(is_initialized_, true)) init_result_ = init();
      check(init_result_, "init");
    }
    context->is_open = true;
    return context;
  }

  int devices() override {
    int n = 0;
    check(calls_->devices(&n), "devices");
    if (n < 1) throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: it has no adapter on this host ({})", says(), n);
    return n;
  }

  Adapter adapter(int device) override {
    Description p{};
    check(calls_->describe(device, &p), "getProperties");
    Adapter a;
    a.name = p.name ? p.name : "";
    a.pci_path = p.pci_path ? p.pci_path : "";
    a.pointers = p.pointers;
    a.speed_mbps = p.speed > 0 ? static_cast<uint64_t>(p.speed) : 0;
    a.latency_ns = p.latency > 0 ? static_cast<uint64_t>(static_cast<double>(p.latency) * 1000) : 0;
    a.max_receives = p.max_receives > 0 ? static_cast<uint32_t>(p.max_receives) : 1;
    a.max_message = uint64_t{1} << 30;
    if (p.max_message) a.max_message = std::min<uint64_t>(p.max_message, a.max_message);
    if (a.max_message < kLeastMessage)
      throw sdk::error(TUTTI_NOT_SUPPORTED,
                       "{}: adapter {} (\"{}\") has messages of at most {} bytes (maxP2pBytes), expected {} or more",
                       says(), device, a.name, a.max_message, kLeastMessage);
    if (!(p.pointers & kHostPointer))
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: adapter {} (\"{}\") accepts no host memory: ptrSupport is {}", says(),
                       device, a.name, p.pointers);
    if (p.pointers & kDmaBuf && !calls_->has_dma_buf())
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: adapter {} (\"{}\") claims dma-bufs, but there is no regMrDmaBuf",
                       says(), device, a.name);
    return a;
  }

  int fuse(const std::vector<int>& devices) override {
    if (!calls_->can_fuse(devices.size()))
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: it cannot join {} adapters to a virtual one (makeVDevice)", says(),
                       devices.size());
    int device = -1;
    check(calls_->fuse(devices, &device), "makeVDevice");
    return device;
  }

  Listener listen(Context& context, int device) override {
    Listener made;
    // Behind the handle lie bytes that must stay.
    std::array<char, 2 * kHandleBytes> room{};
    constexpr char kCanary = '\x5a';
    std::fill(room.begin() + kHandleBytes, room.end(), kCanary);
    const auto begin = Clock::now();
    check(calls_->listen(static_cast<ContextOf&>(context).state, device, room.data(), &made.listener), "listen");
    check_time(begin, "listen");
    if (!made.listener) throw sdk::error(TUTTI_SYSTEM, "{}: listen succeeded without a listenComm", says());
    made.handle.assign(room.data(), kHandleBytes);
    if (std::any_of(room.begin() + kHandleBytes, room.end(), [](char c) { return c != kCanary; })) {
      calls_->close_listen(made.listener);
      throw sdk::error(TUTTI_SYSTEM, "{}: listen wrote more than the {} bytes that a handle may have", says(),
                       kHandleBytes);
    }
    return made;
  }

  void* connect(Context& context, int device, int traffic_class, char* handle) override {
    void* comm = nullptr;
    CommConfig config{traffic_class};
    const auto begin = Clock::now();
    check(calls_->connect(static_cast<ContextOf&>(context).state, device, &config, handle, &comm), "connect");
    check_time(begin, "connect");
    return comm;
  }

  void* accept(void* listener) override {
    void* comm = nullptr;
    const auto begin = Clock::now();
    check(calls_->accept(listener, &comm), "accept");
    check_time(begin, "accept");
    return comm;
  }

  void* register_memory(void* comm, void* data, uint64_t bytes, Pointer type) override {
    if (version() < 8 && bytes > kMaxInt)
      throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: registers at most 2 GiB at once, {} bytes were asked for", says(),
                       bytes);
    void* memory = nullptr;
    check(calls_->register_memory(comm, data, bytes, type, &memory), "regMr");
    return memory;
  }
  void* register_dma_buf(void* comm, void* data, uint64_t bytes, uint64_t offset, int fd) override {
    void* memory = nullptr;
    check(calls_->register_dma_buf(comm, data, bytes, kCudaPointer, offset, fd, &memory), "regMrDmaBuf");
    return memory;
  }

  void* send(void* comm, const void* data, uint64_t bytes, int tag, void* memory) override {
    void* request = nullptr;
    check(calls_->send(comm, const_cast<void*>(data), bytes, tag, memory, &request), "isend");
    return request;
  }

  void* receive(void* comm, std::vector<Piece>& group) override {
    constexpr size_t kMost = Calls::kMostInGroup;
    std::array<void*, kMost> data{}, memory{};
    std::array<size_t, kMost> bytes{};
    std::array<int, kMost> tags{};
    const size_t n = std::min(group.size(), kMost);
    for (size_t i = 0; i < n; ++i) {
      data[i] = group[i].data;
      memory[i] = group[i].memory;
      bytes[i] = group[i].bytes;
      tags[i] = group[i].tag;
    }
    void* request = nullptr;
    check(calls_->receive(comm, static_cast<int>(n), data.data(), bytes.data(), tags.data(), memory.data(), &request),
          "irecv");
    return request;
  }

  void* flush(void* comm, void* data, uint64_t bytes, void* memory) override {
    void* request = nullptr;
    int size = static_cast<int>(bytes);
    check(calls_->flush(comm, 1, &data, &size, &memory, &request), "iflush");
    return request;
  }

  bool test(void* request, int* bytes, const char* function) override {
    int done = 0;
    check(calls_->test(request, &done, bytes), function);
    return done != 0;
  }

  void deregister_memory(void* comm, void* memory) noexcept override { calls_->deregister_memory(comm, memory); }
  void close_send(void* comm) noexcept override { calls_->close_send(comm); }
  void close_receive(void* comm) noexcept override { calls_->close_receive(comm); }
  void close_listen(void* listener) noexcept override { calls_->close_listen(listener); }

 private:
  const std::unique_ptr<Calls> calls_;
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
    const auto symbol = [this](int v) { return dlsym(handle_, fmt::format("ncclNetPlugin_v{}", v).c_str()); };
    std::unique_ptr<Calls> calls = find_calls(version, symbol);
    if (!calls) {
      const std::string exported = exported_tables(symbol);
      throw sdk::error(TUTTI_NOT_SUPPORTED, "TUTTI_NCCL_NET: {} exports no ncclNetPlugin_v{}{}{}", file_,
                       version ? std::to_string(version) : fmt::format("{} to ncclNetPlugin_v{}", kOldest, kNewest),
                       exported.empty() ? ": it is no network plugin of NCCL" : "; it exports ", exported);
    }
    const int found = calls->version();
    return std::make_unique<Hosted>(std::move(calls), fmt::format("{} (version {})", file_, found));
  }

 private:
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

void Network::Patience::wait(const Network& network, const char* function, uint64_t bytes) {
  constexpr uint32_t kTestsBetweenLooks = 1024;
  if (++tests_ % kTestsBetweenLooks != 0 || is_over_) return;
  const auto now = Clock::now();
  if (tests_ == kTestsBetweenLooks) since_ = now;
  if (now - since_ < limit) return;
  is_over_ = true;
  sdk::log(TUTTI_LOG_WARN,
           fmt::format("{}: {} of {} bytes has not reported it done for {:.0f} s, in {} calls: it must, after finitely "
                       "many calls at both ends. Or the peer has not called the library for as long",
                       network.says(), function, bytes, std::chrono::duration<double>(now - since_).count(), tests_));
}

void Network::miss_sizes() {
  if (!misses_sizes_.exchange(true))
    sdk::log(TUTTI_LOG_WARN, fmt::format("{}: test reports no size of an irecv, though it must report what was sent: "
                                         "messages are taken to have arrived whole",
                                         says_));
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
