// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/plugin/transport.h>

// The configuration of one of two ranks' endpoints with one lane.
inline tutti_endpoint_config config_of(uint32_t rank, const tutti_pair_messages* pair = nullptr) {
  tutti_endpoint_config config{};
  config.struct_size = sizeof config;
  config.rank = rank;
  config.nranks = 2;
  config.lanes = 1;
  config.pair = pair;
  return config;
}
