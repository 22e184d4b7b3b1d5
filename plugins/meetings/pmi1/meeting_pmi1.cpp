// SPDX-License-Identifier: Apache-2.0
//
// meeting/1 over the wire protocol of PMI-1: the launcher (mpiexec of MPICH, called Hydra; srun --mpi=pmi2) holds the
// other end of the socket PMI_FD, and answers lines. A gather is a put of this rank's bytes, a barrier, and a get of
// each rank's.
//
//   to the launcher                                  from it
//   cmd=init pmi_version=1 pmi_subversion=1          cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//   cmd=get_maxes                                    cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//   cmd=get_my_kvsname                               cmd=my_kvsname kvsname=NAME
//   cmd=put kvsname=NAME key=KEY value=VALUE         cmd=put_result rc=0 msg=success
//   cmd=barrier_in                                   cmd=barrier_out rc=0
//   cmd=get kvsname=NAME key=KEY                     cmd=get_result rc=0 msg=success value=VALUE
//   cmd=finalize                                     cmd=finalize_ack
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <tutti/plugin/meeting.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <tutti/sdk/plugin.hpp>

#include "../room_table.hpp"

namespace {

using tutti::sdk::Error;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMostRanks = 1u << 20, kMostLine = 1u << 16;
constexpr uint64_t kMostValue = 512;  // Slurm takes 1,024 bytes for a whole line, whatever it says
// In front of a rank's bytes.
constexpr char kGoesOn = 'g', kGivesUp = 'a';

uint64_t number_of(const char* name, uint64_t most) {
  const char* text = std::getenv(name);
  if (!text)
    throw Error(TUTTI_NOT_FOUND, std::string("there is no PMI-1 launcher: ") + name +
                                     " is not set. Start the program by MPICH's mpiexec or by srun --mpi=pmi2");
  if (const auto number = tutti::sdk::whole_number(text, 0, most)) return *number;
  throw Error(TUTTI_INVALID_ARGUMENT,
              std::string(name) + "=\"" + text + "\" is not a whole number from 0 to " + std::to_string(most));
}

std::string hexadecimal(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string bytes_of(const std::string& text, const std::string& what) {
  const auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return unsigned(c - '0');
    if (c >= 'a' && c <= 'f') return unsigned(c - 'a') + 10;
    throw Error(TUTTI_MISMATCH, what + " is not hexadecimal, as this plugin writes it");
  };
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes += char(digit(text[i]) << 4 | digit(text[i + 1]));
  return bytes;
}

// The launcher's end of the socket, as lines.
class Launcher {
 public:
  Launcher() : socket_(int(number_of("PMI_FD", 1 << 20))) {}

  // An answer, which begins with cmd=`expected` and says rc=0 where it has a return code.
  std::string ask(const std::string& line, const std::string& expected, Clock::time_point deadline) {
    waits_ = true;
    write(line + "\n");
    const std::string answer = read(deadline, line);
    waits_ = false;
    const std::string code = value(answer, "rc").value_or("0");
    if (value(answer, "cmd") != expected || code != "0")
      throw Error(TUTTI_SYSTEM, "the launcher answered \"" + line.substr(0, 80) + "\" with \"" + answer.substr(0, 200) +
                                    "\", expected cmd=" + expected + " and rc=0");
    return answer;
  }
  std::string ask(const std::string& line, const std::string& expected, Clock::time_point deadline, const char* key) {
    const std::string answer = ask(line, expected, deadline);
    if (auto found = value(answer, key)) return *found;
    throw Error(TUTTI_SYSTEM, "the launcher's answer \"" + answer.substr(0, 200) + "\" has no " + key);
  }

  // A question has no answer yet, which might be taken for that to the next one.
  bool waits() const { return waits_; }

  static std::optional<std::string> value(const std::string& line, const std::string& key) {
    const std::string wanted = " " + key + "=";
    const size_t at = (" " + line).find(wanted);
    if (at == std::string::npos) return std::nullopt;
    const size_t begin = at + wanted.size() - 1;
    return line.substr(begin, line.find(' ', begin) - begin);
  }

 private:
  void write(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        throw tutti::sdk::system_error("writing to the launcher (PMI_FD=" + std::to_string(socket_) + ")", errno);
      done += size_t(n);
    }
  }

  std::string read(Clock::time_point deadline, const std::string& asked) {
    size_t end = 0;
    while ((end = received_.find('\n')) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd ready{socket_, POLLIN, 0};
      const int came = left > 0 ? ::poll(&ready, 1, int(std::min<long long>(left, 1000))) : 0;
      if (came < 0 && errno != EINTR) throw tutti::sdk::system_error("waiting for the launcher", errno);
      if (came <= 0 && left <= 0)
        throw Error(TUTTI_TIMEOUT, "the launcher has not answered \"" + asked.substr(0, 80) +
                                       "\" by the deadline. Has a rank ended, or not made its communicator?");
      if (came <= 0) continue;
      char buffer[4096];
      const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        throw tutti::sdk::system_error("reading from the launcher (PMI_FD=" + std::to_string(socket_) + ")", errno);
      if (n == 0) throw Error(TUTTI_PEER_FAILED, "the launcher has closed the socket PMI_FD");
      received_.append(buffer, size_t(n));
      if (received_.size() > kMostLine) throw Error(TUTTI_SYSTEM, "the launcher writes a line that does not end");
    }
    const std::string line = received_.substr(0, end);
    received_.erase(0, end + 1);
    return line;
  }

  const int socket_;
  std::string received_;
  bool waits_ = false;
};

// This process's session with the launcher, once in its life: a second cmd=init, or a line after cmd=finalize, is an
// error for it. Rank and size are the launcher's.
struct Session {
  Launcher launcher;
  std::string name;  // of the key-value space
  uint64_t longest_value = 0;
  uint64_t rounds = 0;

  explicit Session(Clock::time_point deadline) {
    launcher.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    const std::string maxes = launcher.ask("cmd=get_maxes", "maxes", deadline);
    const auto most = tutti::sdk::whole_number(Launcher::value(maxes, "vallen_max").value_or(""), 64, 1 << 30);
    if (!most) throw Error(TUTTI_SYSTEM, "the launcher's answer \"" + maxes + "\" has no usable vallen_max");
    longest_value = std::min<uint64_t>(*most - 1, kMostValue);
    name = launcher.ask("cmd=get_my_kvsname", "my_kvsname", deadline, "kvsname");
  }
};

// Ends with the process, since a launcher takes one that ends without cmd=finalize for one that has failed.
std::unique_ptr<Session> session;
pid_t owner = 0;

void end_session() noexcept {
  if (!session || owner != ::getpid()) return;
  try {
    session->launcher.ask("cmd=finalize", "finalize_ack", Clock::now() + std::chrono::seconds(5));
  } catch (const std::exception&) {  // the launcher is gone
  }
}

class Room {
 public:
  static constexpr const char* protocol = "PMI-1";
  explicit Room(const tutti_meeting_config& config)
      : timeout_(config.timeout_ns),
        rank_(uint32_t(number_of("PMI_RANK", kMostRanks - 1))),
        nranks_(uint32_t(number_of("PMI_SIZE", kMostRanks))) {
    if (config.place[0] != '\0')
      throw Error(TUTTI_INVALID_ARGUMENT, "the place \"" + std::string(config.place) +
                                              "\" was given, expected none: all ranks of the launcher meet");
    if (rank_ >= nranks_ || (config.nranks != 0 && (config.nranks != nranks_ || config.rank != rank_)))
      throw Error(TUTTI_MISMATCH,
                  "PMI_RANK and PMI_SIZE say that this is rank " + std::to_string(rank_) + " of " +
                      std::to_string(nranks_) + ", expected " +
                      (config.nranks ? "rank " + std::to_string(config.rank) + " of " + std::to_string(config.nranks)
                                     : "a rank below the number of ranks"));
    if (session && session->launcher.waits())
      throw Error(
          TUTTI_INVALID_USAGE,
          "an earlier meeting of this process was given up before the launcher had answered it, so that no further "
          "one is possible: end the process");
    if (session) return;
    session = std::make_unique<Session>(Clock::now() + timeout_);
    owner = ::getpid();
    std::atexit(end_session);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  // A rank that gives up before the first gather takes part in it all the same, so that the others need not wait for
  // it. Afterwards the others may have left, and nobody would come to a barrier.
  ~Room() {
    if (!aborted_ || gathers_ != 0 || session->launcher.waits()) return;
    try {
      put(std::string(1, kGivesUp), Clock::now() + timeout_);
    } catch (const std::exception& problem) {
      tutti::sdk::log(TUTTI_LOG_WARN,
                      std::string("the other ranks cannot be told that this one gives up: ") + problem.what());
    }
  }

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }
  // [any]
  void abort() { aborted_ = true; }

  void all_gather(const void* mine, uint64_t bytes, void* all) {
    if (aborted_) throw Error(TUTTI_ABORTED, "this rank has given the meeting up");
    const auto deadline = Clock::now() + timeout_;
    ++gathers_;
    const std::string round = put(kGoesOn + std::string(static_cast<const char*>(mine), bytes), deadline);
    for (uint32_t r = 0; r < nranks_; ++r) get(r, round, static_cast<char*>(all) + r * bytes, bytes, deadline);
  }

 private:
  static std::string key(const std::string& round, uint32_t rank, uint64_t part) {
    return "tutti-" + round + "-" + std::to_string(rank) + "-" + std::to_string(part);
  }

  // Puts the bytes, in as many parts as the launcher's limit asks for, and awaits the others. The first part begins
  // with how many bytes there are, and how many digits follow; zeros at the end are left out.
  std::string put(const std::string& bytes, Clock::time_point deadline) {
    const std::string round = std::to_string(session->rounds++);
    const std::string digits = hexadecimal(bytes.substr(0, bytes.find_last_not_of('\0') + 1));
    const std::string text = std::to_string(bytes.size()) + "-" + std::to_string(digits.size()) + "-" + digits;
    const uint64_t most = session->longest_value;
    for (uint64_t at = 0, part = 0; at < text.size(); at += most, ++part)
      session->launcher.ask(
          "cmd=put kvsname=" + session->name + " key=" + key(round, rank_, part) + " value=" + text.substr(at, most),
          "put_result", deadline);
    session->launcher.ask("cmd=barrier_in", "barrier_out", deadline);
    return round;
  }

  std::string value(const std::string& key, Clock::time_point deadline) {
    return session->launcher.ask("cmd=get kvsname=" + session->name + " key=" + key, "get_result", deadline, "value");
  }

  void get(uint32_t rank, const std::string& round, char* to, uint64_t bytes, Clock::time_point deadline) {
    const std::string what = "what rank " + std::to_string(rank) + " has put";
    std::string text = value(key(round, rank, 0), deadline);
    const size_t first = text.find('-'), second = first == std::string::npos ? first : text.find('-', first + 1);
    const auto number = [&](size_t begin, size_t end) {
      const auto found = tutti::sdk::whole_number(text.substr(begin, end - begin), 1, uint64_t{1} << 40);
      if (!found)
        throw Error(TUTTI_MISMATCH, what + " is \"" + text.substr(0, 80) + "\", not as this plugin writes it");
      return *found;
    };
    const uint64_t size = number(0, first), digits = second == std::string::npos ? 0 : number(first + 1, second);
    const bool gives_up = text.substr(second + 1) == hexadecimal(std::string(1, kGivesUp));
    if (gives_up) throw Error(TUTTI_ABORTED, "rank " + std::to_string(rank) + " has given the meeting up");
    if (size != bytes + 1 || digits > 2 * size)
      throw Error(TUTTI_MISMATCH,
                  what + " has " + std::to_string(size - 1) + " bytes, expected " + std::to_string(bytes));
    text.erase(0, second + 1);
    for (uint64_t part = 1; text.size() < digits; ++part) text += value(key(round, rank, part), deadline);
    std::string found = bytes_of(text, what);
    found.resize(size);
    std::memcpy(to, found.data() + 1, bytes);
  }

  const std::chrono::nanoseconds timeout_;
  const uint32_t rank_, nranks_;
  uint64_t gathers_ = 0;
  std::atomic<bool> aborted_ = false;
};

constexpr tutti_meeting meeting =
    tutti::meetings::RoomTable<Room>::of("pmi1", "the ranks of MPICH's mpiexec (Hydra), or of srun --mpi=pmi2");

}  // namespace

TUTTI_PLUGIN(meeting_pmi1, "meeting-pmi1", "0.1.0", "Tutti", "Apache-2.0", "ranks meet by a launcher that speaks PMI-1",
             {TUTTI_MEETING_ID, &meeting});
