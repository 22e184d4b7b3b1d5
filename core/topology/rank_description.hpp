// SPDX-License-Identifier: Apache-2.0
//
// A rank's description of itself, which all ranks gather. The fields have the names that topology files and errors use;
// nothing that another rank says is trusted, so a reader refuses an impossible value.
#pragma once

#include <tutti/plugin/transport.h>

#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/wire.hpp"

namespace tutti::core {

// A rank's offer of one transport.
struct TransportOffer {
  std::string name;
  std::string version;  // of its plugin
  uint32_t reach = 0;
  std::string fabric;  // its id, with TUTTI_REACH_FABRIC
  uint64_t fragment_bytes = 0;
  uint64_t latency_ns = 0;
  uint64_t bandwidth = 0;
  std::vector<std::string> rails = {};  // the names of those that it uses
  uint32_t maps = 0;                    // 1: ranks map each other's device memory over it (mapped/1)

  static void fields(auto& side, auto& offer) {
    side(Field("name", offer.name), Field("version", offer.version),
         Field("reach", offer.reach, TUTTI_REACH_PROCESS, TUTTI_REACH_NETWORK), Field("fabric", offer.fabric),
         Field("fragment", offer.fragment_bytes, 64, UINT64_MAX), Field("latency", offer.latency_ns),
         Field("maps", offer.maps, 0, 1), Field("bandwidth", offer.bandwidth), Field("rails", offer.rails));
  }
};

// A transport that cannot serve on a rank, though it is loaded there; or that has been refused to a pair of ranks which
// both offer it.
struct TransportLeftOut {
  std::string name, why;

  static void fields(auto& side, auto& out) { side(Field("name", out.name), Field("why", out.why)); }
};

constexpr int32_t most_numa = 65535;

// The device that a rank's communicator is bound to.
struct DeviceDescription {
  std::string kind;  // "cuda"; "": none, and nothing else is said
  uint32_t index = 0;
  std::string id;     // of the hardware, the same in every process of the host; "": not known
  std::string pci;    // "": not known
  int32_t numa = -1;  // -1: not known
  // Commands that read another device's memory, and copies to the host's; 0: not known.
  uint64_t link_latency_ns = 0, link_bandwidth = 0, copy_bandwidth = 0;

  static void fields(auto& side, auto& device) {
    side(Field("kind", device.kind));
    if (device.kind.empty()) return;
    side(Field("index", device.index), Field("id", device.id), Field("pci", device.pci),
         Field("numa", device.numa, -1, most_numa), Field("latency", device.link_latency_ns),
         Field("bandwidth", device.link_bandwidth), Field("copies", device.copy_bandwidth));
  }
};

using Processors = std::bitset<1024>;  // by the system's numbers
// In hexadecimal digits, processor 0 in the last one.
std::string digits_of(const Processors& processors);

struct RankDescription {
  std::string host;    // key
  uint32_t place = 0;  // equal for ranks of a host that reach each other's memory
  std::string apart;   // why it is of another place than the first rank of its host; "": it is not
  uint64_t process = 0;
  uint64_t instance = 0;  // a random number of the process: process ids are not unique across containers
  uint32_t cores = 1;     // that the process may use
  // These cores. None: not known, and all ranks of the host share the cores.
  Processors processors;
  int32_t numa = -1;  // the node that has them all
  DeviceDescription device;
  std::vector<TransportOffer> transports;
  std::vector<TransportLeftOut> left_out;

  const TransportOffer* offer(const std::string& name) const;

  static void fields(auto& side, auto& rank) {
    std::string digits = digits_of(rank.processors);
    side(Field("host", rank.host), Field("place", rank.place), Field("apart", rank.apart),
         Field("process", rank.process), Field("instance", rank.instance), Field("cores", rank.cores, 1, 1 << 20),
         Field("processors", digits), Field("numa", rank.numa, -1, most_numa), Field("device", rank.device),
         Field("transports", rank.transports), Field("left out", rank.left_out));
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(rank)>>)
      rank.complete(digits, [&](const auto&... words) { side.refuse(words...); });
  }

 private:
  using Refuse = std::function<void(const char* name, const std::string& expected, const std::string& got)>;
  // Takes the processors, and refuses fields that do not go together.
  void complete(const std::string& digits, const Refuse& refuse);
};

}  // namespace tutti::core
