// SPDX-License-Identifier: Apache-2.0
//
// The plugin "chaos": the transport of another plugin, disturbed.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "endpoint.hpp"

namespace tutti::chaos {
namespace {

constexpr const char* over_key = "TUTTI_CHAOS_OVER";
constexpr const char* script_key = "TUTTI_CHAOS";
constexpr const char* seed_key = "TUTTI_CHAOS_SEED";
constexpr const char* summary = "another plugin's transport with faults put in, for tests";

// The settings.
struct Plan {
  uint64_t seed = 0;
  Script script;
};

uint64_t seed_setting() {
  if (sdk::config(seed_key)) return sdk::config_number(seed_key, 0, 0, UINT64_MAX);
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

Plan read_plan() {
  Plan plan{seed_setting(), {}};
  const std::string text = sdk::config(script_key).value_or("");
  if (text == "random") {
    plan.script = random_script(plan.seed);
  } else if (const std::string_view file = "file:"; text.starts_with(file)) {
    const std::string path = text.substr(file.size());
    std::ifstream stream(path);
    const std::string content(std::istreambuf_iterator<char>(stream), {});
    if (content.empty())
      throw sdk::Error(TUTTI_NOT_FOUND, std::string(script_key) + "=\"" + text + "\": " + path +
                                            " cannot be read, or is empty; expected a file with a script");
    plan.script = parse(content, path);
  } else {
    plan.script = parse(text, script_key);
  }
  return plan;
}

class Chaos final : public Interposer {
 public:
  Chaos() : Interposer("chaos", summary) {}

  std::string wrapped() override {
    const auto over = sdk::config(over_key);
    if (!over)
      throw sdk::Error(TUTTI_NOT_SUPPORTED, std::string(over_key) +
                                                " is not set: it names the plugin whose transport chaos disturbs, as "
                                                "shm or tcp");
    if (over->empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, std::string(over_key) + " is empty: expected a plugin");
    return *over;
  }
  tutti_status query(Domain& domain, tutti_transport_caps* caps) override {
    wrapped();  // unset: chaos does not take part, whatever else is set
    settle_plan();
    const tutti_status status = Interposer::query(domain, caps);
    if (status != TUTTI_OK) return status;
    caps->memory_kinds &= uint64_t{1} << TUTTI_MEMORY_HOST;  // faults are made by processors
    return status;
  }
  bool shows_send_region() override {
    const std::lock_guard lock(mutex_);
    for (const Fault& f : plan_.script)
      if (!f.control && (f.kind == Kind::lose || f.kind == Kind::duplicate || f.kind == Kind::corrupt)) return false;
    return true;
  }
  tutti_status open_endpoint(Domain& domain, const tutti_endpoint_config& config, tutti_endpoint** endpoint) override {
    // The wrapped transport may serve the same communicator undisturbed as well.
    tutti_endpoint_config other = sdk::accepted(&config);
    other.communicator_id ^= 0x6368616f73;
    return Interposer::open_endpoint(domain, other, endpoint);
  }
  std::unique_ptr<Interposer::Endpoint> make_endpoint(Domain& domain, const tutti_endpoint_config& config,
                                                      tutti_endpoint* inner) override {
    const std::lock_guard lock(mutex_);
    // Every endpoint of a rank has a sequence of its own, the same in every run.
    Dice mix(plan_.seed ^ (uint64_t{config.rank} << 32) ^ opened_[config.rank]++);
    return std::make_unique<chaos::Endpoint>(domain, config, inner, Faults(plan_.script, config.rank, mix.next()));
  }
  std::unique_ptr<Interposer::Link> make_link(Interposer::Endpoint& endpoint, uint32_t peer,
                                              tutti_link* inner) override {
    return std::make_unique<chaos::Link>(endpoint, peer, inner);
  }

 private:
  // Reads the settings and says once what they came to.
  void settle_plan() {
    const std::lock_guard lock(mutex_);
    const std::string settings = sdk::config(script_key).value_or("") + "\n" + sdk::config(seed_key).value_or("");
    if (settled_ == settings) return;
    plan_ = read_plan();
    if (std::ranges::any_of(plan_.script, [](const Fault& f) { return f.kind == Kind::disconnect; }) &&
        !TUTTI_HAS(tutti_transport, inner().api, fail_peer))
      throw sdk::Error(TUTTI_NOT_SUPPORTED, std::string(script_key) + ": the fault disconnect needs fail_peer, which " +
                                                inner().api->name + " has not: leave it out");
    settled_ = settings;
    opened_.clear();
    const std::string text = text_of(plan_.script);
    sdk::log(TUTTI_LOG_WARN, "over " + wrapped() + ", " + seed_key + "=" + std::to_string(plan_.seed) +
                                 (text.empty() ? ", no faults" : ", faults: " + text));
  }

  std::mutex mutex_;
  std::optional<std::string> settled_;
  Plan plan_;
  std::map<uint32_t, uint64_t> opened_;  // endpoints, by rank
};

}  // namespace
}  // namespace tutti::chaos

TUTTI_PLUGIN(chaos, "chaos", "0.1.0", "Tutti", "Apache-2.0", tutti::chaos::summary,
             {TUTTI_TRANSPORT_ID, tutti::sdk::interposer_table<tutti::chaos::Chaos>()});
