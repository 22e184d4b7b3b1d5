// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "stage.hpp"
#include "test_host.hpp"

namespace tutti::conformance::contract {

// Communicators of two ranks, whose endpoints at a rank have one domain, and where `shares` one family.
class SharedDomain {
 public:
  SharedDomain(Bench& bench, size_t communicators, bool shares) : transport_(bench.transport()) {
    bench.caps();
    tutti_domain_config of{};
    of.struct_size = sizeof of;
    for (auto& domain : domains_)
      call("open_domain", true, [&] { return transport_->open_domain(transport_->self, &of, &domain); });
    for (uint64_t c = 0; c < communicators; ++c) {
      stages.push_back(std::make_unique<Stage>(bench, StageOptions{.nranks = 0}));
      for (uint32_t r = 0; r < 2; ++r) {
        RankOptions options;
        options.rank = r;
        options.communicator = bench.seed * communicators + c + 77;
        options.domain = domains_[r];
        options.mail = &stages.back()->mail;
        if (shares) options.family = (bench.seed << 2 | r << 1 | 1);
        stages.back()->ranks.push_back(std::make_unique<Rank>(bench, options));
      }
    }
  }
  ~SharedDomain() {
    stages.clear();
    for (tutti_domain* domain : domains_) plain_call("close_domain", true, [&] { transport_->close_domain(domain); });
  }
  SharedDomain(const SharedDomain&) = delete;
  SharedDomain& operator=(const SharedDomain&) = delete;

  std::vector<std::unique_ptr<Stage>> stages;

 private:
  const tutti_transport* transport_;
  tutti_domain* domains_[2] = {};
};

}  // namespace tutti::conformance::contract
