// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <tutti/registry.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "suites.hpp"
#include "worker_messages.hpp"

namespace tutti::conformance {
namespace {

using Json = nlohmann::json;

class Lines {
 public:
  // The next line of the orders; false at their end.
  bool next(std::string* line) {
    for (;;) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        *line = text_.substr(0, end);
        text_.erase(0, end + 1);
        return true;
      }
      char part[4096];
      const ssize_t n = read(worker_orders, part, sizeof part);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      text_.append(part, static_cast<size_t>(n));
    }
  }

 private:
  std::string text_;
};

void answer(const Json& message) {
  const std::string text = message.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(worker_answers, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(70);  // nobody listens any more
    at += static_cast<size_t>(n);
  }
}

// The worker's identity, received once at its start.
struct Self {
  uint32_t rank = 0, nranks = 1;
  std::string folder;
  double patience = 1;
};

Self introduce(const Json& order) {
  for (const std::string& path : order.at("plugins").get<std::vector<std::string>>()) {
    std::string error;
    if (load_plugin(path, &error) < 0) throw std::runtime_error(error);
  }
  return {order.at("rank").get<uint32_t>(), order.at("nranks").get<uint32_t>(), order.at("folder").get<std::string>(),
          order.at("patience").get<double>()};
}

Outcome run_one(const Case& one, const Place& place) {
  try {
    return one.run(place);
  } catch (const std::exception& e) {
    return Outcome::fail(e.what());
  }
}

}  // namespace

int run_worker() {
  Lines orders;
  std::string line;
  if (!orders.next(&line)) return 0;
  const Self self = introduce(Json::parse(line));
  std::shared_ptr<void> shared;
  while (orders.next(&line)) {
    const Json order = Json::parse(line);
    const auto id = order.at("case").get<std::string>();
    auto found = find_case(id);
    if (!found) throw std::runtime_error("worker: there is no case " + id);
    Attestation attestation;
    const Place place{self.rank,   self.nranks,  order.at("seed").get<uint64_t>(), self.folder, shared,
                      attestation, self.patience};
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = run_one(*found, place);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    answer(Json{{"case", id},
                {"outcome", to_json(outcome)},
                {"seconds", seconds.count()},
                {"attestation", to_json(attestation)}});
  }
  shared.reset();
  return 0;
}

}  // namespace tutti::conformance
