// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL that is loaded, behind one set of functions for all versions of its interface.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tutti/sdk/nccl_net.hpp>

namespace tutti::nccl {

// An adapter's description of itself; fields that its version has not are zero.
struct Adapter {
  std::string name, pci_path;
  int pointers = 0;  // Pointer
  uint64_t speed_mbps = 0;
  uint64_t latency_ns = 0;
  uint32_t max_receives = 1;  // of a group
  uint64_t max_message = 0;
};

// The context of one communicator. Before version 11 there is one in a process, without a state.
class Context {
 public:
  virtual ~Context() = default;
};

// Functions that may fail throw sdk::Error, which names the plugin, the function and the clause. [any thread], except
// that calls for one comm or listener are not made at the same time.
class Network {
 public:
  virtual ~Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The network that `named` means: a file, where it has a slash or ends in ".so", or NAME of libnccl-net-NAME.so on
  // the loader's path. `version` 0: the newest that it exports. Loaded once in a process, and never unloaded.
  static Network& load(const std::string& named, int version);
  // The NAME of a file or name.
  static std::string short_name(const std::string& named);

  int version() const { return version_; }
  const std::string& says() const { return says_; }  // "libnccl-net-x.so (version 8)", to begin a text
  virtual bool can_flush() const = 0;

  // `traffic_class` -1: none.
  virtual std::unique_ptr<Context> open(uint64_t communicator, int traffic_class) = 0;
  virtual int devices() = 0;
  virtual Adapter adapter(int device) = 0;
  // Joins adapters to a virtual one, and returns its number.
  virtual int fuse(const std::vector<int>& devices) = 0;

  struct Listener {
    void* listener = nullptr;
    std::string handle;  // kHandleBytes
  };
  virtual Listener listen(Context& context, int device) = 0;
  // nullptr: call again. `handle` is where the plugin may keep its state in between.
  virtual void* connect(Context& context, int device, int traffic_class, char* handle) = 0;
  virtual void* accept(void* listener) = 0;
  virtual void* register_memory(void* comm, void* data, uint64_t bytes, Pointer type) = 0;
  virtual void* register_dma_buf(void* comm, void* data, uint64_t bytes, uint64_t offset, int fd) = 0;
  // nullptr: no room now.
  virtual void* send(void* comm, const void* data, uint64_t bytes, int tag, void* memory) = 0;
  struct Piece {
    void* data;
    uint64_t bytes;
    int tag;
    void* memory;
  };
  virtual void* receive(void* comm, std::vector<Piece>& group) = 0;
  virtual void* flush(void* comm, void* data, uint64_t bytes, void* memory) = 0;
  // True: the request is over. `bytes` has room for the group's sizes.
  virtual bool test(void* request, int* bytes, const char* function) = 0;
  // Names a request that has an irecv at the other end and is not done for a long time, in the log.
  class Patience {
   public:
    static inline std::chrono::nanoseconds limit = std::chrono::seconds(10);
    // test has reported it not done.
    void wait(const Network& network, const char* function, uint64_t bytes);
    void end() { tests_ = 0; }

   private:
    uint32_t tests_ = 0;  // of the oldest request
    bool is_over_ = false;
    std::chrono::steady_clock::time_point since_{};
  };
  // test left the sizes of an irecv as they were: logged, the first time.
  void miss_sizes();
  // Do not throw.
  virtual void deregister_memory(void* comm, void* memory) noexcept = 0;
  virtual void close_send(void* comm) noexcept = 0;
  virtual void close_receive(void* comm) noexcept = 0;
  virtual void close_listen(void* listener) noexcept = 0;

 protected:
  Network(int version, std::string says) : version_(version), says_(std::move(says)) {}
  // Throws where the function has failed.
  void check(Result result, const char* function) const;
  // A call that must not block and did gets logged.
  void check_time(std::chrono::steady_clock::time_point begin, const char* function) const;

 private:
  const int version_;
  const std::string says_;
  std::atomic<bool> misses_sizes_ = false;
};

}  // namespace tutti::nccl
