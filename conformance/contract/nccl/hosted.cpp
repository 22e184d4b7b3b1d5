// SPDX-License-Identifier: Apache-2.0
#include "hosted.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::conformance::contract {
namespace {

using nccl::Result;

thread_local std::string last_warning;  // of the plugin, in this call: the reason behind a result

__attribute__((format(printf, 5, 6))) void take_log(int level, unsigned long, const char*, int, const char* format,
                                                    ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (level == nccl::kLogWarn) last_warning = text;
  if (std::getenv("TUTTI_CONFORM_VERBOSE")) std::fprintf(stderr, "%s\n", text);
}
Result ignore_event(void**, int, void*, int64_t, void*) { return Result::kSuccess; }

// Where an error of a case is on its way the plugin's objects stay as they are.
bool is_failing() { return std::uncaught_exceptions() > 0; }

// TUTTI_NCCL_NET_VERSION as nccl-net reads it; 0: the newest.
int wanted_version() {
  const char* const setting = std::getenv("TUTTI_NCCL_NET_VERSION");
  const std::string_view text = setting ? setting : "";
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  const bool is_version = version == 0 || (version >= nccl::kOldest && version <= nccl::kNewest);
  require(text.empty() || (is_number && is_version), "nccl.table",
          "TUTTI_NCCL_NET_VERSION is \"{}\", expected a version of {} to {}, or 0 for the newest", text, nccl::kOldest,
          nccl::kNewest);
  return version;
}

// The loaded file's newest table, or that of TUTTI_NCCL_NET_VERSION, as nccl-net takes it.
std::unique_ptr<nccl::Calls> load(const std::string& path, std::string& file) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    broken("nccl.table", "{} cannot be loaded: {}", path, why ? why : "no reason is known");
  }
  const auto symbol = [&](int version) { return dlsym(library, fmt::format("ncclNetPlugin_v{}", version).c_str()); };
  const int wanted = wanted_version();
  auto calls = nccl::find_calls(wanted, symbol);
  const std::string exported = nccl::exported_tables(symbol);
  require(calls != nullptr, "nccl.table", "{} exports no ncclNetPlugin_v{} to ncclNetPlugin_v{}; it exports {}", path,
          wanted ? wanted : nccl::kOldest, wanted ? wanted : nccl::kNewest,
          exported.empty() ? "none of any version" : exported);
  Dl_info found{};
  dladdr(symbol(calls->version()), &found);
  file = found.dli_fname ? found.dli_fname : path;
  const char* const missing = calls->missing();
  require(!missing, "nccl.table", "ncclNetPlugin_v{} of {} has no {}", calls->version(), path, missing ? missing : "");
  return calls;
}

}  // namespace

Hosted::Hosted(Bench& bench) : bench_(bench) {
  if (bench.outcome_descriptor >= 0)
    watch_for_blocking(bench.outcome_descriptor, bench.patience + 2, bench.never_blocks);
  calls_ = load(bench.path, file_);
  static nccl::CommConfig config{-1};
  call("init", "nccl.init",
       [&] { return calls_->init(&context_, 0x7475747469, &config, take_log, ignore_event); });
  is_open_ = true;
  call("devices", "nccl.init", [&] { return calls_->devices(&devices_); });
  require(devices_ > 0, "nccl.init", "init succeeded, but devices reports {} adapters: init must fail then", devices_);
}
void Hosted::close() {
  is_open_ = false;
  call("finalize", "nccl.context", [&] { return calls_->finalize(context_); });
}
Hosted::~Hosted() {
  if (is_open_ && !is_failing()) calls_->finalize(context_);
}

nccl::Description Hosted::describe(int device) const {
  nccl::Description of{};
  call("getProperties", "nccl.properties", [&] { return calls_->describe(device, &of); });
  return of;
}

size_t Hosted::most_bytes() const {
  const size_t limit = describe(0).max_message;
  return limit ? limit : size_t{1} << 30;
}

int Hosted::most_receives() const { return std::clamp(describe(0).max_receives, 1, nccl::Calls::kMostInGroup); }

Result Hosted::attempt(const char* function, const std::function<Result()>& body) const {
  last_warning.clear();
  in_call(function);
  const Result result = body();
  in_call(nullptr);
  return result;
}

void Hosted::call(const char* function, const char* clause, const std::function<Result()>& body) const {
  const Result result = attempt(function, body);
  require(result == Result::kSuccess, clause, "{} returned {}, expected 0 (ncclSuccess){}{}", function,
          static_cast<int>(result), last_warning.empty() ? "" : ": ", last_warning);
}

void Hosted::until(const std::function<bool()>& holds, const char* clause,
                   const std::function<std::string()>& text) const {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t least_rounds = 20'000;  // a machine that is busy with others has not been waited for yet
  const auto begin = Clock::now();
  for (uint64_t rounds = 0; !holds(); ++rounds) {
    if (rounds % 256 != 255) continue;
    std::this_thread::yield();
    const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
    if (waited < bench_.patience || (rounds < least_rounds && waited < 10 * bench_.patience)) continue;
    broken(clause, "{} (waited {:.0f} s, {} rounds of calls)", text(), waited, rounds);
  }
}

Listening::Listening(const Hosted& of, int at) : hosted(of), device(at) {
  constexpr char kCanary = '\x5a';
  std::vector<char> room(2 * nccl::kHandleBytes, kCanary);
  hosted.call("listen", "nccl.listen",
              [&] { return hosted.calls().listen(hosted.context(), device, room.data(), &listener); });
  require(listener != nullptr, "nccl.listen", "listen returned ncclSuccess without a listenComm");
  const auto end = std::find_if(room.rbegin(), room.rend(), [](char c) { return c != kCanary; });
  const auto used = static_cast<size_t>(room.rend() - end);
  require(used <= nccl::kHandleBytes, "nccl.handle", "listen wrote {} bytes of its handle, which has {}", used,
          nccl::kHandleBytes);
  handle.assign(room.begin(), room.begin() + nccl::kHandleBytes);
}
void Listening::close() {
  hosted.call("closeListen", "nccl.close",
              [&] { return hosted.calls().close_listen(std::exchange(listener, nullptr)); });
}
Listening::~Listening() {
  if (listener && !is_failing()) hosted.calls().close_listen(listener);
}

void* try_connect(Listening& to) {
  void* comm = nullptr;
  static nccl::CommConfig config{-1};
  to.hosted.call("connect", "nccl.connect", [&] {
    return to.hosted.calls().connect(to.hosted.context(), to.device, &config, to.handle.data(), &comm);
  });
  return comm;
}
void* try_accept(Listening& at) {
  void* comm = nullptr;
  at.hosted.call("accept", "nccl.connect", [&] { return at.hosted.calls().accept(at.listener, &comm); });
  return comm;
}

void connect_both(Listening& listening, void*& sender, void*& receiver) {
  listening.hosted.until(
      [&] {
        if (!sender) sender = try_connect(listening);
        if (!receiver) receiver = try_accept(listening);
        return sender && receiver;
      },
      "nccl.connect",
      [&] { return fmt::format("{} returns no comm, again and again", sender ? "accept" : "connect"); });
}

Connection::Connection(const Hosted& of, int device) : hosted(of) {
  Listening listening(hosted, device);
  connect_both(listening, sender, receiver);
  listening.close();
}
void Connection::close() {
  hosted.call("closeSend", "nccl.close", [&] { return hosted.calls().close_send(std::exchange(sender, nullptr)); });
  hosted.call("closeRecv", "nccl.close",
              [&] { return hosted.calls().close_receive(std::exchange(receiver, nullptr)); });
}
Connection::~Connection() {
  if (is_failing()) return;
  if (sender) hosted.calls().close_send(sender);
  if (receiver) hosted.calls().close_receive(receiver);
}

Registered::Registered(const Hosted& hosted, void* comm, size_t bytes, int type)
    : hosted_(hosted), comm_(comm), bytes_(bytes + 2 * kAround, kFresh) {
  hosted.call("regMr", "nccl.registration",
              [&] { return hosted.calls().register_memory(comm, data(), bytes, type, &handle_); });
  require(std::all_of(bytes_.begin(), bytes_.end(), [](uint8_t b) { return b == kFresh; }), "nccl.registration",
          "regMr of {} bytes has changed them", bytes);
}
void Registered::deregister() {
  hosted_.call("deregMr", "nccl.registration",
               [&] { return hosted_.calls().deregister_memory(comm_, std::exchange(handle_, nullptr)); });
}
Registered::~Registered() {
  if (handle_ && !is_failing()) hosted_.calls().deregister_memory(comm_, handle_);
}

void Registered::fill(uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint8_t& byte : std::span(data(), size())) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<uint8_t>(state >> 56);
    if (byte == kFresh) byte = 0;
  }
}

void Registered::require_received(Registered& sent, size_t bytes) {
  const auto [got, expected] = std::mismatch(data(), data() + bytes, sent.data());
  if (got != data() + bytes) {
    const bool is_missing = *got == kFresh;
    broken(is_missing ? "nccl.done" : "nccl.data", "an irecv of {} bytes is done, and byte {} of {} {}", bytes,
           got - data(), bytes,
           is_missing ? "has not come" : fmt::format("is {:#04x}, expected {:#04x}", *got, *expected));
  }
  require_kept_around();
}

void Registered::require_kept_around() const {
  const auto is_fresh = [](uint8_t b) { return b == kFresh; };
  require(std::all_of(bytes_.begin(), bytes_.begin() + kAround, is_fresh) &&
              std::all_of(bytes_.end() - kAround, bytes_.end(), is_fresh),
          "nccl.data", "an irecv with room for {} bytes has written outside of its memory",
          bytes_.size() - 2 * kAround);
}

bool Traffic::posted(void* comm, void* request, Transfer& transfer, const char* function) {
  require(request != static_cast<void*>(&transfer), "nccl.null-request",
          "{} returned ncclSuccess and did not set the request: set it to NULL where nothing was started", function);
  if (!request) return false;
  for (const auto& [other, requests] : pending_)
    require(std::ranges::find(requests, request) == requests.end(), "nccl.request-identity",
            "{} returned the request {}, which is still pending", function, request);
  pending_[comm].push_back(request);
  transfer = {};
  transfer.comm = comm;
  transfer.request = request;
  transfer.sizes.fill(Transfer::kUnset);
  return true;
}

bool Traffic::try_send(void* comm, const Part& part, Transfer& transfer) {
  void* request = &transfer;  // no request of the plugin's
  const size_t bytes = std::min(part.bytes, part.memory->size() - part.at);
  hosted_.call("isend", "nccl.null-request", [&] {
    return hosted_.calls().send(comm, part.memory->data() + part.at, bytes, part.tag, part.memory->handle(), &request);
  });
  return posted(comm, request, transfer, "isend");
}

bool Traffic::try_receive(void* comm, const std::vector<Part>& group, Transfer& transfer) {
  void* request = &transfer;
  std::vector<void*> data, handles;
  std::vector<size_t> bytes;
  std::vector<int> tags;
  for (const Part& part : group) {
    data.push_back(part.memory->data() + part.at);
    handles.push_back(part.memory->handle());
    bytes.push_back(std::min(part.bytes, part.memory->size() - part.at));
    tags.push_back(part.tag);
  }
  hosted_.call("irecv", "nccl.null-request", [&] {
    return hosted_.calls().receive(comm, static_cast<int>(group.size()), data.data(), bytes.data(), tags.data(),
                                   handles.data(), &request);
  });
  return posted(comm, request, transfer, "irecv");
}

void Traffic::receive(void* comm, const std::vector<Part>& group, Transfer& transfer) {
  hosted_.until([&] { return try_receive(comm, group, transfer); }, "nccl.null-request",
                [] { return std::string("irecv gives a NULL request, again and again"); });
}

bool Traffic::test(Transfer& transfer) {
  if (transfer.done) return true;
  std::deque<void*>& pending = pending_[transfer.comm];
  if (tests_oldest_ && transfer.comm && pending.front() != transfer.request) return false;
  int done = 0;
  hosted_.call("test", "nccl.completion",
               [&] { return hosted_.calls().test(transfer.request, &done, transfer.sizes.data()); });
  if (!done) return false;
  std::erase(pending, transfer.request);
  return transfer.done = true;
}

void Traffic::finish(const std::vector<Transfer*>& transfers, const char* clause) {
  const auto missing = [&] {
    size_t n = 0;
    for (Transfer* transfer : transfers) n += !test(*transfer);
    return n;
  };
  hosted_.until([&] { return missing() == 0; }, clause, [&] {
    return fmt::format("{} of {} requests are not done, again and again", missing(), transfers.size());
  });
}

void Traffic::send(void* comm, const Part& part, Transfer& transfer, const std::vector<Transfer*>& polled) {
  const auto poll = [&] {
    for (Transfer* other : polled) test(*other);
  };
  hosted_.until([&] { return poll(), try_send(comm, part, transfer); }, "nccl.null-request",
                [] { return std::string("isend gives a NULL request, again and again"); });
  hosted_.until([&] { return poll(), test(transfer); }, "nccl.completion",
                [] { return std::string("an isend is not done, again and again"); });
}

}  // namespace tutti::conformance::contract
