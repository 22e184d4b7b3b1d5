// SPDX-License-Identifier: Apache-2.0
#include "engine/topology.hpp"

#include <fmt/format.h>
#include <tutti/plugin/transport.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bootstrap/failure.hpp"
#include "engine/cbor.hpp"

namespace tutti::core {

using Json = nlohmann::json;

const TransportOffer* RankDescription::offer(const std::string& name) const {
  const auto found = std::find_if(transports.begin(), transports.end(), [&](const auto& t) { return t.name == name; });
  return found == transports.end() ? nullptr : &*found;
}

Topology::Topology(std::vector<RankDescription> ranks) : ranks_(std::move(ranks)) {
  std::map<std::string, uint32_t> numbers;
  for (const RankDescription& rank : ranks_) {
    const auto [host, fresh] = numbers.try_emplace(rank.host, hosts_);
    if (fresh) {
      ++hosts_;
      ranks_on_host_.push_back(0);
    }
    host_of_rank_.push_back(host->second);
    ++ranks_on_host_[host->second];
  }
}

bool Topology::same_process(uint32_t a, uint32_t b) const {
  return host_of_rank_[a] == host_of_rank_[b] && ranks_[a].process == ranks_[b].process &&
         ranks_[a].instance == ranks_[b].instance;
}

bool Topology::reaches(uint32_t reach, uint32_t a, uint32_t b) const {
  if (reach == TUTTI_REACH_NETWORK) return true;
  if (host_of_rank_[a] != host_of_rank_[b]) return false;
  return reach == TUTTI_REACH_HOST || same_process(a, b);
}

const TransportOffer* Topology::transport_of(uint32_t a, uint32_t b, std::string* why) const {
  const uint32_t low = std::min(a, b), high = std::max(a, b);
  const TransportOffer* best = nullptr;
  std::string reasons;
  for (const TransportOffer& offer : ranks_[low].transports) {
    if (!ranks_[high].offer(offer.name)) {
      if (why) reasons += fmt::format("; {} is not offered by rank {}", offer.name, high);
    } else if (!reaches(offer.reach, low, high)) {
      if (why)
        reasons += fmt::format("; {} reaches only ranks of one {}", offer.name,
                               offer.reach == TUTTI_REACH_PROCESS ? "process" : "host");
    } else if (!best || offer.latency_ns < best->latency_ns ||
               (offer.latency_ns == best->latency_ns && offer.name < best->name)) {
      best = &offer;
    }
  }
  if (!best && why)
    *why = fmt::format("no transport connects rank {} (host {}) with rank {} (host {}){}", low, host_of_rank_[low],
                       high, host_of_rank_[high], reasons.empty() ? "; none is offered" : reasons);
  return best;
}

uint64_t Topology::fragment_of(uint32_t a, uint32_t b) const {
  const TransportOffer* offer = transport_of(a, b);
  if (!offer) return 4096;
  const uint64_t both =
      std::min(ranks_[a].offer(offer->name)->fragment_bytes, ranks_[b].offer(offer->name)->fragment_bytes);
  return both / 64 * 64;
}

uint64_t Topology::smallest_fragment() const {
  uint64_t smallest = UINT64_MAX;
  for (const RankDescription& rank : ranks_)
    for (const TransportOffer& offer : rank.transports) smallest = std::min(smallest, offer.fragment_bytes);
  return smallest == UINT64_MAX ? 65536 : smallest;
}

LinkCost Topology::cost(uint32_t a, uint32_t b) const {
  const TransportOffer* offer = transport_of(a, b);
  if (!offer) return {1e-3, 1e-6};
  // A rank that must be given a core before it can answer answers after a switch of processes at the earliest.
  constexpr double process_switch = 1e-6;
  const bool crowded = ranks_on_host_of(a) > ranks_[a].cores || ranks_on_host_of(b) > ranks_[b].cores;
  const double latency = static_cast<double>(offer->latency_ns) * 1e-9;
  return {crowded ? std::max(latency, process_switch) : latency,
          1.0 / static_cast<double>(std::max<uint64_t>(offer->bandwidth, 1))};
}

double Topology::processors_per_rank() const {
  double least = 1;
  for (uint32_t r = 0; r < nranks(); ++r)
    least = std::min(least, double(ranks_[r].cores) / double(ranks_on_host_of(r)));
  return least;
}

std::string Topology::text() const {
  std::string text = fmt::format("{} ranks on {} host{}\n", nranks(), hosts_, hosts_ == 1 ? "" : "s");
  for (uint32_t r = 0; r < nranks(); ++r) {
    std::string names;
    for (const auto& t : ranks_[r].transports) names += (names.empty() ? "" : ", ") + t.name;
    text += fmt::format("  rank {}: host {} ({}), process {}, {} cores, transports: {}\n", r, host_of_rank_[r],
                        ranks_[r].host, ranks_[r].process, ranks_[r].cores, names.empty() ? "none" : names);
  }
  constexpr uint32_t readable = 16;
  if (nranks() > readable) return text + fmt::format("  (the table of pairs is shown up to {} ranks)\n", readable);
  for (uint32_t a = 0; a < nranks(); ++a)
    for (uint32_t b = a + 1; b < nranks(); ++b) {
      const TransportOffer* offer = transport_of(a, b);
      text +=
          fmt::format("  {} - {}: {}\n", a, b,
                      offer ? fmt::format("{} ({} ns, {:.1f} GB/s, cut at {} bytes)", offer->name, offer->latency_ns,
                                          static_cast<double>(offer->bandwidth) * 1e-9, fragment_of(a, b))
                            : "unreachable");
    }
  return text;
}

std::string encode(const RankDescription& rank) {
  Json transports = Json::array();
  for (const TransportOffer& t : rank.transports)
    transports.push_back({{"name", t.name},
                          {"version", t.version},
                          {"address", Json::binary({t.address.begin(), t.address.end()})},
                          {"reach", t.reach},
                          {"fragment", t.fragment_bytes},
                          {"latency", t.latency_ns},
                          {"bandwidth", t.bandwidth}});
  const Json whole{{"host", rank.host},
                   {"process", rank.process},
                   {"instance", rank.instance},
                   {"cores", rank.cores},
                   {"transports", transports}};
  const std::vector<uint8_t> bytes = Json::to_cbor(whole);
  return {bytes.begin(), bytes.end()};
}

namespace {

// What no rank would say of itself is a Failure that names the rank.
class Description {
 public:
  explicit Description(uint32_t rank) : rank_(rank) {}

  uint64_t number(const Json& object, const char* key, uint64_t least, uint64_t most) const {
    const Json& value = object.at(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < least || value.get<uint64_t>() > most) refuse(key);
    return value.get<uint64_t>();
  }
  std::string text(const Json& object, const char* key) const {
    constexpr size_t longest = 256;
    std::string text = object.at(key).get<std::string>();
    // It is printed: control characters would be obeyed by a terminal.
    if (text.size() > longest ||
        std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; }))
      refuse(key);
    return text;
  }
  [[noreturn]] void refuse(const char* key) const {
    throw Failure(TUTTI_MISMATCH, fmt::format("rank {} describes itself with an impossible \"{}\"", rank_, key));
  }

 private:
  uint32_t rank_;
};

}  // namespace

RankDescription decode_rank(const std::string& bytes, uint32_t number) {
  constexpr uint64_t longest_address = 4096;
  constexpr size_t most_transports = 64;
  const Description of(number);
  try {
    const Json whole = read_cbor(bytes);
    RankDescription rank;
    rank.host = of.text(whole, "host");
    rank.process = of.number(whole, "process", 0, UINT64_MAX);
    rank.instance = of.number(whole, "instance", 0, UINT64_MAX);
    rank.cores = static_cast<uint32_t>(of.number(whole, "cores", 1, 1u << 20));
    const Json& transports = whole.at("transports");
    if (!transports.is_array() || transports.size() > most_transports) of.refuse("transports");
    for (const Json& t : transports) {
      TransportOffer offer;
      offer.name = of.text(t, "name");
      offer.version = of.text(t, "version");
      const auto& address = t.at("address").get_binary();
      if (address.size() > longest_address) of.refuse("address");
      offer.address.assign(address.begin(), address.end());
      offer.reach = static_cast<uint32_t>(of.number(t, "reach", TUTTI_REACH_PROCESS, TUTTI_REACH_NETWORK));
      offer.fragment_bytes = of.number(t, "fragment", 64, UINT64_MAX);
      offer.latency_ns = of.number(t, "latency", 0, UINT64_MAX);
      offer.bandwidth = of.number(t, "bandwidth", 0, UINT64_MAX);
      if (rank.offer(offer.name)) of.refuse("transports");
      rank.transports.push_back(std::move(offer));
    }
    return rank;
  } catch (const Json::exception& e) {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} sent no description of itself ({}): is it another version?", number, e.what()));
  }
}

}  // namespace tutti::core
