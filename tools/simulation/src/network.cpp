// SPDX-License-Identifier: Apache-2.0
//
// The built-in networks. A message's latency is counted where it leaves: at the card or at the link inside a host, and
// at each level or link that it passes on its way up or across.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "simulation/simulation.hpp"

namespace tutti::simulation {

uint8_t Network::add_class(std::string name, double latency, double per_byte, uint64_t links) {
  if (classes_.size() >= 255 || links > UINT32_MAX - this->links())
    throw std::invalid_argument(fmt::format("a network of more links than {}", UINT32_MAX));
  classes_.push_back({std::move(name), latency, per_byte, this->links(), uint32_t(links)});
  return uint8_t(classes_.size() - 1);
}

void Network::pass(Route* route, uint8_t link_class, uint64_t link) const {
  const LinkClass& of = classes_[link_class];
  route->link[route->hops] = of.first + uint32_t(link);
  route->link_class[route->hops++] = link_class;
  route->latency += of.latency;
  route->per_byte = std::max(route->per_byte, of.per_byte);
}

namespace {

class BuiltIn : public Network {
 public:
  explicit BuiltIn(const Fabric& fabric) : fabric_(fabric), hosts_(fabric.hosts()) {
    const uint64_t cards = uint64_t{hosts_} * fabric.nics;
    out_ = add_class("nic out", fabric.nic.latency, 1 / fabric.nic.bandwidth, cards);
    in_ = add_class("nic in", 0, 1 / fabric.nic.bandwidth, cards);
    if (fabric.ranks_per_host > 1) {
      inside_out_ = add_class("inside out", fabric.inside.latency, 1 / fabric.inside.bandwidth, fabric.nranks);
      inside_in_ = add_class("inside in", 0, 1 / fabric.inside.bandwidth, fabric.nranks);
    }
  }

  void route(uint32_t from, uint32_t to, Route* route) const final {
    route->hops = 0;
    route->latency = route->per_byte = 0;
    const uint32_t a = fabric_.host_of(from), b = fabric_.host_of(to);
    if (a == b) {
      pass(route, inside_out_, from);
      return pass(route, inside_in_, to);
    }
    pass(route, out_, card(a, from));
    cross(a, b, route);
    pass(route, in_, card(b, to));
  }

  std::string link_name(uint32_t link) const final {
    uint8_t of = 0;
    while (link - classes()[of].first >= classes()[of].links) ++of;
    const uint32_t number = link - classes()[of].first;
    if (of == out_ || of == in_)
      return fabric_.nics == 1 ? fmt::format("host {}", number)
                               : fmt::format("host {}, card {}", number / fabric_.nics, number % fabric_.nics);
    if (fabric_.ranks_per_host > 1 && (of == inside_out_ || of == inside_in_)) return fmt::format("rank {}", number);
    return name_across(of, number);
  }

 protected:
  // The links between the cards of two hosts.
  virtual void cross(uint32_t, uint32_t, Route*) const {}
  virtual std::string name_across(uint8_t, uint32_t number) const { return std::to_string(number); }

  const Fabric fabric_;
  const uint32_t hosts_;

 private:
  uint64_t card(uint32_t host, uint32_t rank) const {
    const uint64_t place = fabric_.place_on_host(rank);
    return uint64_t{host} * fabric_.nics + place * fabric_.nics / fabric_.ranks_per_host;
  }
  uint8_t out_ = 0, in_ = 0, inside_out_ = 0, inside_in_ = 0;
};

// Each switch has one link up and one down, as wide as all of its cables together: routing spreads messages evenly.
class FatTree : public BuiltIn {
 public:
  explicit FatTree(const Fabric& fabric) : BuiltIn(fabric) {
    double below = fabric.nic.bandwidth * fabric.nics;  // of one that the switch joins
    uint64_t under = 1;                                 // hosts
    for (size_t level = 0; level < fabric.levels.size(); ++level) {
      const Fabric::Level& of = fabric.levels[level];
      under_.push_back(under *= of.down);
      if (level + 1 == fabric.levels.size()) break;
      below = below * of.down / of.oversubscription;
      const uint64_t switches = (hosts_ + under - 1) / under;
      up_.push_back(add_class(fmt::format("level {} up", level + 1), of.latency, 1 / below, switches));
      down_.push_back(add_class(fmt::format("level {} down", level + 1), 0, 1 / below, switches));
    }
  }

 protected:
  void cross(uint32_t a, uint32_t b, Route* route) const final {
    size_t top = 0;
    for (; top < up_.size() && a / under_[top] != b / under_[top]; ++top) pass(route, up_[top], a / under_[top]);
    while (top-- > 0) pass(route, down_[top], b / under_[top]);
  }
  std::string name_across(uint8_t, uint32_t number) const final { return fmt::format("switch {}", number); }

 private:
  std::vector<uint64_t> under_;
  std::vector<uint8_t> up_, down_;
};

class Dragonfly : public BuiltIn {
 public:
  explicit Dragonfly(const Fabric& fabric) : BuiltIn(fabric), routers_(fabric.routers_per_group) {
    const uint64_t per_group = uint64_t{fabric.hosts_per_router} * routers_;
    groups_ = uint32_t((hosts_ + per_group - 1) / per_group);
    local_ =
        add_class("local", fabric.local.latency, 1 / fabric.local.bandwidth, uint64_t{groups_} * routers_ * routers_);
    global_ = add_class("global", fabric.global.latency, 1 / (fabric.global.bandwidth * fabric.links_per_pair),
                        uint64_t{groups_} * groups_);
  }

 protected:
  void cross(uint32_t a, uint32_t b, Route* route) const final {
    const uint32_t from = a / fabric_.hosts_per_router, to = b / fabric_.hosts_per_router;
    const uint32_t leaves = from / routers_, enters = to / routers_;
    if (leaves == enters) return hop(leaves, from % routers_, to % routers_, route);
    hop(leaves, from % routers_, gate(leaves, enters), route);
    pass(route, global_, uint64_t{leaves} * groups_ + enters);
    hop(enters, gate(enters, leaves), to % routers_, route);
  }
  std::string name_across(uint8_t of, uint32_t number) const final {
    if (of == global_) return fmt::format("group {} to {}", number / groups_, number % groups_);
    return fmt::format("group {}, router {} to {}", number / routers_ / routers_, number / routers_ % routers_,
                       number % routers_);
  }

 private:
  // The router of a group that has the links to another.
  uint32_t gate(uint32_t group, uint32_t other) const { return (other > group ? other - 1 : other) % routers_; }
  void hop(uint32_t group, uint32_t from, uint32_t to, Route* route) const {
    if (from != to) pass(route, local_, (uint64_t{group} * routers_ + from) * routers_ + to);
  }
  uint32_t routers_, groups_ = 1;
  uint8_t local_ = 0, global_ = 0;
};

}  // namespace

std::unique_ptr<Network> make_network(const Fabric& fabric) {
  switch (fabric.kind) {
    case Fabric::Kind::fat_tree:
      return std::make_unique<FatTree>(fabric);
    case Fabric::Kind::dragonfly:
      return std::make_unique<Dragonfly>(fabric);
    default:
      return std::make_unique<BuiltIn>(fabric);
  }
}

}  // namespace tutti::simulation
