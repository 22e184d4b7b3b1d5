// SPDX-License-Identifier: Apache-2.0
//
// The cost of the transport over bare sockets. Two processes on one host exchange messages, both ways at once: first
// over raw non-blocking sockets, busily polled; then through the transport's C functions; in turns, so that both see
// the same machine. Prints the best of the rounds of each and their ratio. A message larger than a fragment is cut,
// four fragments in flight.
//
//   tcp_exchange [rounds]
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_tcp;

namespace {

constexpr uint32_t kInFlight = 4;
constexpr uint32_t kLanes = 4;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

void write_all(int fd, const void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd, static_cast<const char*>(data) + done, bytes - done);
    if (n <= 0) die("write");
    done += static_cast<size_t>(n);
  }
}

void read_all(int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::read(fd, static_cast<char*>(data) + done, bytes - done);
    if (n <= 0) die("read");
    done += static_cast<size_t>(n);
  }
}

int raw_socket(int rank, int side) {
  if (rank == 0) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) || listen(listener, 1) ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size))
      die("listen");
    write_all(side, &address, sizeof address);
    const int s = accept(listener, nullptr, nullptr);
    ::close(listener);
    return s;
  }
  sockaddr_in address{};
  read_all(side, &address, sizeof address);
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address)) die("connect");
  return s;
}

class Raw {
 public:
  Raw(int rank, int side) : socket_(raw_socket(rank, side)) {
    const int one = 1, buffer = 4 << 20;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  void exchange(const char* out, char* in, size_t bytes) {
    constexpr size_t kPiece = 256 << 10;
    for (size_t sent = 0, received = 0; sent < bytes || received < bytes;) {
      if (sent < bytes) {
        const ssize_t n = send(socket_, out + sent, std::min(bytes - sent, kPiece), MSG_NOSIGNAL);
        if (n > 0) sent += static_cast<size_t>(n);
      }
      if (received < bytes) {
        const ssize_t n = recv(socket_, in + received, std::min(bytes - received, kPiece), 0);
        if (n > 0) received += static_cast<size_t>(n);
      }
    }
  }

 private:
  int socket_;
};

tutti_host host{};

class Transport {
 public:
  Transport(int rank, int side) : side_(side) {
    host.struct_size = sizeof host;
    host.log = [](void*, const tutti_log_record* r) { std::fprintf(stderr, "%s\n", r->text); };
    host.set_error = [](void*, tutti_status, const char* text) { std::fprintf(stderr, "%s\n", text); };
    host.get_config = [](void*, const char* key) -> const char* { return std::getenv(key); };
    tutti_plugin_entry_net_tcp.init(&host);
    table_ = static_cast<const tutti_transport*>(tutti_plugin_entry_net_tcp.get_interface(TUTTI_TRANSPORT_ID, 0));
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    tutti_domain* domain = nullptr;
    tutti_domain_config domain_config{};
    domain_config.struct_size = sizeof domain_config;
    if (table_->open_domain(table_->self, &domain_config, &domain) || table_->query(domain, &caps)) std::_Exit(1);
    fragment_ = caps.fragment_bytes;
    inline_ = caps.inline_bytes;
    // Pair messages travel over `side`, one datagram each.
    pair_.struct_size = sizeof pair_;
    pair_.self = this;
    pair_.send = [](void* self, uint32_t, const void* data, uint64_t bytes) -> tutti_status {
      if (::send(static_cast<Transport*>(self)->side_, data, bytes, 0) != static_cast<ssize_t>(bytes)) die("send");
      return TUTTI_OK;
    };
    tutti_endpoint_config config{};
    config.struct_size = sizeof config;
    config.rank = static_cast<uint32_t>(rank);
    config.nranks = 2;
    config.lanes = kLanes;
    config.pair = &pair_;
    config.address = "127.0.0.1";
    if (table_->open_endpoint(domain, &config, &endpoint_)) std::_Exit(1);
    const auto peer = static_cast<uint32_t>(1 - rank);
    tutti_status status;
    while ((status = table_->connect(endpoint_, peer, &link_)) == TUTTI_AGAIN) {
      char message[TUTTI_PAIR_BYTES];
      const ssize_t n = ::recv(side_, message, sizeof message, MSG_DONTWAIT);
      if (n > 0 && table_->receive_pair(endpoint_, peer, message, static_cast<uint64_t>(n))) std::_Exit(1);
      progress();
    }
    if (status) std::_Exit(1);
  }

  void exchange(const char* out, char* in, size_t bytes) {
    const size_t pieces = (bytes + fragment_ - 1) / fragment_;
    size_t posted_receives = 0, posted_sends = 0;
    done_ = 0;
    size_t expected = pieces;
    while (done_ < expected || posted_sends < pieces) {
      const size_t end = std::min(pieces, (done_ + 1) / 2 + kInFlight);
      while (posted_receives < end && post(piece(TUTTI_TRANSFER_RECV, in, posted_receives, bytes))) ++posted_receives;
      while (posted_sends < end) {
        const tutti_transfer t = piece(TUTTI_TRANSFER_SEND, const_cast<char*>(out), posted_sends, bytes);
        if (!post(t)) break;
        ++posted_sends;
        expected += !(t.flags & TUTTI_TRANSFER_INLINE);
      }
      progress();
    }
  }

 private:
  bool post(const tutti_transfer& t) const {
    const tutti_status status = table_->post(endpoint_, &t);
    if (status < 0) std::_Exit(1);
    return status == TUTTI_OK;
  }
  tutti_transfer piece(uint16_t kind, char* data, size_t index, size_t bytes) const {
    tutti_transfer t{};
    t.link = link_;
    t.lane = static_cast<uint32_t>(index % kLanes);
    t.kind = kind;
    t.data = data + index * fragment_;
    t.bytes = std::min(fragment_, bytes - index * fragment_);
    if (kind == TUTTI_TRANSFER_SEND && t.bytes <= inline_) t.flags = TUTTI_TRANSFER_INLINE;
    return t;
  }
  void progress() {
    tutti_completion completions[16];
    uint32_t n = 0;
    if (table_->progress(endpoint_, completions, 16, &n)) std::_Exit(1);
    for (uint32_t i = 0; i < n; ++i) {
      if (completions[i].kind != TUTTI_COMPLETION_TRANSFER || completions[i].status) std::_Exit(1);
      ++done_;
    }
  }

  const int side_;
  tutti_pair_messages pair_{};
  const tutti_transport* table_ = nullptr;
  tutti_endpoint* endpoint_ = nullptr;
  tutti_link* link_ = nullptr;
  size_t fragment_ = 0, inline_ = 0, done_ = 0;
};

template <typename Exchanger>
double microseconds(Exchanger& exchanger, std::vector<char>& out, std::vector<char>& in, size_t bytes, int iterations) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) exchanger.exchange(out.data(), in.data(), bytes);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / iterations;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: %s [rounds]\n", argv[0]);
    return 2;
  }
  int sides[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sides)) die("socketpair");
  const pid_t child = fork();
  const int rank = child ? 0 : 1;
  cpu_set_t cpu;
  CPU_ZERO(&cpu);
  CPU_SET(static_cast<size_t>(rank) % static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN)), &cpu);
  sched_setaffinity(0, sizeof cpu, &cpu);
  Raw raw(rank, sides[rank]);
  Transport transport(rank, sides[rank]);
  constexpr size_t kLargest = 32 << 20;
  std::vector<char> out(kLargest, static_cast<char>(rank + 1)), in(kLargest);
  if (rank == 0)
    std::printf("%10s %12s %12s %7s %10s %10s\n", "bytes", "raw us", "tcp us", "ratio", "raw GB/s", "tcp GB/s");
  for (const size_t bytes : {size_t{8}, size_t{256}, size_t{4} << 10, size_t{16} << 10, size_t{32} << 10,
                             size_t{128} << 10, size_t{256} << 10, size_t{1} << 20, size_t{4} << 20, kLargest}) {
    const int iterations = static_cast<int>(std::clamp<size_t>((64 << 20) / bytes, 4, 5000));
    double best_raw = 1e30, best_tcp = 1e30;
    for (int i = 0; i < rounds; ++i) {
      best_raw = std::min(best_raw, microseconds(raw, out, in, bytes, iterations));
      std::fill_n(in.begin(), bytes, 0);
      best_tcp = std::min(best_tcp, microseconds(transport, out, in, bytes, iterations));
      if (std::any_of(in.begin(), in.begin() + static_cast<long>(bytes), [&](char c) { return c != 2 - rank; })) {
        std::fprintf(stderr, "rank %d received wrong bytes\n", rank);
        return 1;
      }
    }
    if (rank == 0)
      std::printf("%10zu %12.2f %12.2f %7.2f %10.2f %10.2f\n", bytes, best_raw, best_tcp, best_tcp / best_raw,
                  static_cast<double>(bytes) / best_raw / 1e3, static_cast<double>(bytes) / best_tcp / 1e3);
    std::fflush(stdout);
  }
  int status = 0;
  if (child) waitpid(child, &status, 0);
  return status ? 1 : 0;
}
