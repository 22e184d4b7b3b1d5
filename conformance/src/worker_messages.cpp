// SPDX-License-Identifier: Apache-2.0
#include "worker_messages.hpp"

namespace tutti::conformance {

using Json = nlohmann::json;

Json to_json(const Outcome& outcome) {
  return {{"verdict", verdict_key(outcome.verdict)}, {"message", outcome.message}, {"clause", outcome.clause}};
}

Json to_json(const Attestation& attestation) {
  Json traffic = Json::array();
  for (const Traffic& t : attestation.traffic)
    traffic.push_back({t.transport, t.rank, t.peer, t.sent_bytes, t.received_bytes});
  Json rails = Json::array();
  for (const RailTraffic& r : attestation.rails)
    rails.push_back({r.transport, r.rail, r.rank, r.sent_bytes, r.received_bytes});
  return {{"algorithm", attestation.algorithm},
          {"device", attestation.device},
          {"plan_hash", attestation.plan_hash},
          {"traffic", traffic},
          {"rails", rails},
          {"plugins", attestation.plugins}};
}

Outcome outcome_from(const Json& json) {
  return {verdict_from_key(json.at("verdict").get<std::string>()), json.at("message").get<std::string>(),
          json.at("clause").get<std::string>()};
}

Attestation attestation_from(const Json& json) {
  Attestation attestation;
  attestation.algorithm = json.at("algorithm").get<std::string>();
  attestation.device = json.at("device").get<std::string>();
  attestation.plan_hash = json.at("plan_hash").get<uint64_t>();
  attestation.plugins = json.at("plugins").get<std::vector<std::string>>();
  for (const Json& t : json.at("traffic"))
    attestation.traffic.push_back({t.at(0).get<std::string>(), t.at(1).get<uint32_t>(), t.at(2).get<uint32_t>(),
                                   t.at(3).get<uint64_t>(), t.at(4).get<uint64_t>()});
  for (const Json& r : json.at("rails"))
    attestation.rails.push_back({r.at(0).get<std::string>(), r.at(1).get<std::string>(), r.at(2).get<uint32_t>(),
                                 r.at(3).get<uint64_t>(), r.at(4).get<uint64_t>()});
  return attestation;
}

}  // namespace tutti::conformance
