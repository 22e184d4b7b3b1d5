// SPDX-License-Identifier: Apache-2.0
//
// rails/1: what a transport tells of the host's network, and what each part of it has carried.
#include <tutti/plugin/rails.h>

#include <set>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

// A reported rail, copied during the report.
struct Told {
  std::string facts;  // all but the bytes, to compare
  std::string name;
  bool chosen = false;
  uint64_t sent = 0, received = 0;
};

std::string text_of(const char* function, const std::string& rail, const char* field, const char* text,
                    bool may_be_empty = false) {
  require(text != nullptr && (may_be_empty || *text), "R-1", "{}: the {} of rail \"{}\" is {}", function, field, rail,
          text ? "empty" : "NULL");
  return text;
}

Told copy_of(const char* function, const tutti_rail* r) {
  require_size(r, "R-1", function);
  Told told;
  told.name = text_of(function, "?", "name", r->name);
  told.facts = told.name;
  for (const auto& [field, text] : {std::pair{"medium", r->medium}, {"state", r->state}, {"why", r->why}})
    told.facts += "\n" + text_of(function, told.name, field, text);
  require(r->chosen <= 1, "R-1", "{}: chosen of rail \"{}\" is {}, expected 0 or 1", function, told.name, r->chosen);
  require(r->numa >= -1, "R-1", "{}: numa of rail \"{}\" is {}, expected a node or -1", function, told.name, r->numa);
  require(r->addresses || !r->n_addresses, "R-1", "{}: rail \"{}\" has {} addresses at NULL", function, told.name,
          r->n_addresses);
  for (uint64_t i = 0; i < r->n_addresses; ++i) {
    const tutti_rail_address& a = r->addresses[i];
    require(a.usable <= 1, "R-1", "{}: usable of address {} of rail \"{}\" is {}, expected 0 or 1", function, i,
            told.name, a.usable);
    told.facts += "\n" + text_of(function, told.name, "address", a.text) + " " +
                  text_of(function, told.name, "address's interface", a.interface, true) + " " +
                  text_of(function, told.name, "address's kind", a.kind) + (a.usable ? " usable" : "");
  }
  told.facts += fmt::format("\n{} {} {} {}", r->chosen, r->bandwidth, r->numa, r->mtu);
  told.chosen = r->chosen != 0;
  told.sent = r->sent_bytes;
  told.received = r->received_bytes;
  return told;
}

// Collects what a function tells. A fault is thrown after the call, not through the plugin.
struct Ear {
  const char* function;
  std::vector<Told> rails = {};
  std::exception_ptr wrong = {};
  tutti_rail_sink sink{sizeof sink, 0, this, hear};
  explicit Ear(const char* name) : function(name) {}
  static void hear(void* self, const tutti_rail* rail) {
    auto& ear = *static_cast<Ear*>(self);
    try {
      ear.rails.push_back(copy_of(ear.function, rail));
    } catch (...) {
      if (!ear.wrong) ear.wrong = std::current_exception();
    }
  }
};

std::vector<Told> judged(Ear& ear, tutti_status status) {
  if (ear.wrong) std::rethrow_exception(ear.wrong);
  require(status == TUTTI_OK, "R-1", "{} returned {}: {}", ear.function, status_text(status), last_error());
  std::set<std::string> names;
  for (const Told& rail : ear.rails)
    require(names.insert(rail.name).second, "R-1", "{} told two rails of the name \"{}\"", ear.function, rail.name);
  return ear.rails;
}

std::vector<Told> of_host(Bench& bench) {
  Ear ear("of_host");
  const tutti_rails* table = bench.rails();
  const tutti_status status = call("of_host", true, [&] { return table->of_host(bench.transport()->self, &ear.sink); });
  if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("of_host says: {}", last_error())};
  return judged(ear, status);
}

std::vector<Told> of_endpoint(Bench& bench, Rank& rank) {
  Ear ear("of_endpoint");
  const tutti_rails* table = bench.rails();
  return judged(ear, call("of_endpoint", false, [&] { return table->of_endpoint(rank.endpoint, &ear.sink); }));
}

void rails_of_host(Bench& bench) {
  bench.rails();
  const std::vector<Told> first = of_host(bench);
  for (int again = 0; again < 3; ++again) {
    const std::vector<Told> more = of_host(bench);
    require(more.size() == first.size(), "R-1", "of_host told {} rails and then {}", first.size(), more.size());
    for (size_t i = 0; i < first.size(); ++i)
      require(more[i].facts == first[i].facts, "R-1", "of_host told of rail {}:\n  {}\nand then:\n  {}", i,
              first[i].facts, more[i].facts);
  }
  Stage stage(bench, {.connect = false});  // it opens: so something is chosen
  require(std::any_of(first.begin(), first.end(), [](const Told& r) { return r.chosen; }), "R-1",
          "an endpoint opens, but of_host calls none of its {} rails chosen", first.size());
}

void rails_of_endpoint(Bench& bench) {
  if (!bench.rails()->of_endpoint) throw NotOffered{"its rails/1 has no of_endpoint"};
  std::set<std::string> chosen;
  for (const Told& rail : of_host(bench))
    if (rail.chosen) chosen.insert(rail.name);
  Stage stage(bench);
  const auto carried = [&](Rank& rank) {
    std::pair<uint64_t, uint64_t> bytes;
    const std::vector<Told> rails = of_endpoint(bench, rank);
    require(!rails.empty(), "R-2", "of_endpoint told no rail of a connected endpoint");
    for (const Told& rail : rails) {
      require(rail.chosen && chosen.contains(rail.name), "R-2",
              "of_endpoint told the rail \"{}\"{}, which of_host does not call chosen", rail.name,
              rail.chosen ? "" : " as not chosen");
      bytes.first += rail.sent, bytes.second += rail.received;
    }
    return bytes;
  };
  // Rank 0 sends more than rank 1: the directions are told apart.
  std::pair<uint64_t, uint64_t> before[] = {carried(stage[0]), carried(stage[1])};
  uint64_t messages = 0, bytes[2] = {0, 0};
  const uint64_t fragment = bench.caps().fragment_bytes;
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{5000}, fragment, uint64_t{77'777} % fragment})
    for (const auto& [from, times] : {std::pair{0u, 4u}, {1u, 1u}})
      for (uint32_t k = 0; k < times; ++k) {
        Message m(stage, {from, 1 - from, k % 3, static_cast<uint32_t>(messages++)}, size);
        stage.until(
            [&] {
              if (!m.receive_posted()) m.post_receive();
              if (!m.send_posted()) m.post_send();
              return m.sent() && m.received();
            },
            "T-21", "a message of the sum does not arrive");
        bytes[from] += size;
      }
  stage.settle();
  // The transport's own frames (announcements, acknowledgements) may be counted, within limits.
  constexpr uint64_t most_besides = 4096;
  for (const uint32_t rank : {0u, 1u}) {
    const auto now = carried(stage[rank]);
    const auto judge_sum = [&](const char* what, uint64_t is, uint64_t was, uint64_t own) {
      require(is >= was && is - was >= own && is - was <= own + own / 16 + most_besides * messages, "R-3",
              "rank {} {} {} bytes of messages, and its rails say {}: over all rails they must add up", rank, what, own,
              is >= was ? fmt::format("{}", is - was) : fmt::format("{} less than before", was - is));
    };
    judge_sum("sent", now.first, before[rank].first, bytes[rank]);
    judge_sum("received", now.second, before[rank].second, bytes[1 - rank]);
  }
}

}  // namespace

std::vector<ContractCase> rails_cases() {
  return {
      {"rails-of-host", "of_host tells each rail, the same each time", {"R-1", "T-3"}, 5, rails_of_host},
      {"rails-of-endpoint",
       "of_endpoint tells the chosen rails, and their bytes add up",
       {"R-1", "R-2", "R-3", "T-13", "T-15", "T-17", "T-21"},
       25,
       rails_of_endpoint},
  };
}

}  // namespace tutti::conformance::contract
