// SPDX-License-Identifier: Apache-2.0
//
// docs/contract.md, from the table of clauses.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "clauses.hpp"
#include "command.hpp"
#include "contract_case.hpp"

namespace tutti::conformance {
namespace {

struct Section {
  char letter;  // of its clauses
  const char* title;
  const char* text;
};

constexpr Section sections[] = {
    {'E', "Entry and host (`entry.h`)",
     "For every plugin. The headers tag functions with threads: `[any]` any thread at any time, `[control]` serialised "
     "by "
     "the core, `[progress]` the one thread that has the endpoint at that moment."},
    {'T', "transport/1",
     "A SEND and a RECV are *matched* when they are the k-th of their lane at both ends. A transfer is *pending* from "
     "its "
     "acceptance until its completion has been reported."},
    {'V', "view/1",
     "Optional. On one lane and direction a caller uses either view or posts at a time: it does not reserve while a "
     "posted "
     "SEND is incomplete, and does not call try_receive while a posted RECV is."},
    {'W', "wait_fd/1", "Optional. Without it the core sleeps for short intervals."},
    {'R', "rails/1", "Optional, for networks with several ports. It serves people and reports and decides nothing."},
    {'M', "mapped/1",
     "Optional, for transports within a host. The suite uses a device that it finds beside the transport."},
    {'A', "algorithm/1",
     "A-10 to A-18 are proved by the verifier (`tutti-plan verify`): for 1 to 64 ranks, for all roots to 17 ranks, on "
     "many placements, with 1 to 8 lanes, and for some numbers of ranks to 300."},
    {'G', "meeting/1",
     "The ranks are threads of one process. A meeting that accepts none of the suite's places is not tested."},
    {'P', "rma/1", "Two ranks of one process, driven by one thread."},
    {'D', "device/1",
     "The suite accesses a device's memory by commands of its streams, never by its address. The following clauses are "
     "about optional functions: D-10 to D-12 about mapping memory between processes of a host, D-13 about network "
     "adapters, and D-14, X-14 and X-16 about small work as one launch."},
    {'X', "executor/1", "Streams of work on a device."},
    {'n', "NCCL's network plugins (`--nccl-net`)",
     "For libraries that were made for NCCL, which `tutti-conform --nccl-net FILE` loads. The functions are those of "
     "the plugin's own table. Both ends of a connection are in one process and polled by one thread. A plugin hosted by "
     "`nccl-net` is judged as a transport as well."}};

// Appends `text` in lines of at most 120 columns; lines after the first are indented by `indent` spaces.
void wrap(std::string& page, std::string_view text, size_t indent) {
  size_t column = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (column != 0 && column + 1 + word.size() > 120) {
      page += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column != 0) {
      page += ' ';
      ++column;
    }
    page += word;
    column += word.size();
  }
  page += '\n';
}

// The cases that check a clause, as a list of their names.
std::string cases_of(const Clause& clause) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const auto subject : contract::all_subjects) {
    const auto checks = [&](const std::vector<const char*>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](std::string_view id) { return id == clause.id; });
    };
    if (checks(contract::common_clauses(subject)))
      add(fmt::format("every case of a {}",
                      subject == contract::Subject::nccl ? "network plugin" : contract::subject_name(subject)));
    else
      for (const auto& one : contract::contract_cases(subject))
        if (checks(one.clauses)) add(fmt::format("`{}`", one.name));
  }
  return names;
}

}  // namespace

std::string contract_page() {
  std::string page =
      "# The contract of plugins\n\n"
      "After this page you know every promise that a plugin makes, and which case of the suite checks it.\n\n";
  wrap(
      page,
      "Clauses are numbered, and a number is never reused for another promise. The conformance suite (`tutti-conform`) "
      "checks them: each clause names its cases, and for each clause there is a deliberately broken plugin that the "
      "suite "
      "must catch by that clause. `tutti-conform contract` writes this page; a test compares the two.",
      0);
  for (const Section& section : sections) {
    page += fmt::format("\n## {}\n\n", section.title);
    wrap(page, section.text, 0);
    page += '\n';
    for (const Clause& clause : clauses())
      if (clause.id[0] == section.letter)
        wrap(page, fmt::format("- **{}** {} *Cases:* {}.", clause.id, clause.text, cases_of(clause)), 2);
  }
  return page;
}

Action add_contract_command(CLI::App& app, Session&) {
  app.add_subcommand("contract", "prints the contract of plugins, docs/contract.md");
  return [] {
    fmt::print("{}", contract_page());
    return 0;
  };
}

}  // namespace tutti::conformance
