// SPDX-License-Identifier: Apache-2.0
#include "fuzz/trial.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "fuzz/settings.hpp"
#include "runner.hpp"
#include "worker_messages.hpp"

namespace tutti::conformance::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

// After the first finding the other processes are given a moment, since what they say may tell more.
constexpr int moment_ms = 200;
constexpr const char* case_id = "fuzz/program";

std::string program_file(const std::string& folder) { return folder + "/program"; }

std::vector<std::string> environment_of(const Program& program, uint32_t p, const std::string& folder, double timeout) {
  std::vector<std::string> all = program.settings;
  const std::vector<uint32_t> ranks = program.ranks_of(p);
  set(all, fmt::format("TUTTI_HOST_ID=h{}", program.host[ranks.front()]));
  set(all, fmt::format("TUTTI_RANK={}", ranks.front()));
  set(all, fmt::format("TUTTI_WORLD_SIZE={}", program.ranks));
  set(all, fmt::format("TUTTI_RENDEZVOUS=file:{}/environment", folder));
  if (!is_set(all, "TUTTI_TIMEOUT")) set(all, fmt::format("TUTTI_TIMEOUT={}", timeout));
  if (!is_set(all, "TUTTI_LOG")) set(all, "TUTTI_LOG=error");
  return worker_environment(all);
}

std::string first_word(const std::string& text) {
  const std::string word = text.substr(0, text.find(':'));
  return word.find(' ') == std::string::npos ? word : "error";
}

}  // namespace

Trial::Trial(const Program& program, const TrialOptions& options) : program_(program), options_(options) {
  std::ofstream(program_file(folder_.path())) << to_text(program_);
  for (const Event& e : program_.events)
    if (e.kind == Kind::make) std::filesystem::create_directory(fmt::format("{}/meet-{}", folder_.path(), e.comm));
  std::filesystem::create_directory(folder_.path() + "/environment");
  whereabouts_ = std::make_unique<Whereabouts>(folder_.path(), program_);
  const double sleeps = static_cast<double>(sleeping_ms(program_)) * 1e-3;
  const double timeout = options_.timeout * options_.patience + sleeps;
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe").string();
  for (uint32_t p = 0; p < program_.processes(); ++p) {
    Member& member = members_.emplace_back();
    member.process = std::make_unique<Process>(executable, environment_of(program_, p, folder_.path(), timeout));
    member.process->order(Json{
        {"rank", p},
        {"nranks", program_.processes()},
        {"folder", folder_.path()},
        {"plugins", options_.plugins},
        {"patience",
         options_.patience}}.dump());
    member.process->order(Json{{"case", case_id}, {"seed", program_.seed}}.dump());
    member.process->end_orders();
  }
  // Beyond sleeps and one timeout: processes begin, communicators are made and destroyed.
  const double most = timeout + sleeps + options_.timeout * options_.patience;
  patience_ = std::chrono::milliseconds(static_cast<int64_t>(most * 1000));
  deadline_ = Clock::now() + patience_;
}

// The time is up when no thread has gone on for so long: a slow machine alone makes no hang.
void Trial::watch() {
  uint64_t seen = whereabouts_->calls();
  for (uint32_t r = 0; r < program_.ranks; ++r)
    for (uint32_t s = 0; s < program_.strands; ++s) seen = seen * 31 + whereabouts_->of(r, s);
  if (seen != last_seen_) deadline_ = Clock::now() + patience_;
  last_seen_ = seen;
}

std::vector<int> Trial::descriptors() const {
  std::vector<int> all;
  for (const Member& member : members_)
    if (!member.over) all.push_back(member.process->answers());
  return all;
}

std::optional<Verdict> Trial::poll() {
  bool all_over = true;
  for (uint32_t p = 0; p < members_.size(); ++p) {
    listen(p);
    all_over = all_over && members_[p].over;
  }
  const uint64_t calls = whereabouts_->calls();
  if (!kind_.empty()) {
    const auto until = Clock::now() + std::chrono::milliseconds(moment_ms);
    while (Clock::now() < until)
      for (uint32_t p = 0; p < members_.size(); ++p) {
        listen(p);
        members_[p].process->wait(5);
      }
    return Verdict{kind_, text_ + standing(), calls};
  }
  if (all_over) return Verdict{"", "", calls};
  watch();
  if (Clock::now() > deadline_) return Verdict{"hang", "hang: it does not end" + standing(), calls};
  return std::nullopt;
}

// Takes in what process `p` says, and its end.
void Trial::listen(uint32_t p) {
  Member& member = members_[p];
  if (member.over) return;
  const bool open = member.process->read_answers();
  while (const auto answer = member.process->next_answer()) {
    member.answered = true;
    const Outcome outcome = outcome_from(Json::parse(*answer).at("outcome"));
    if (!is_bad(outcome.verdict)) continue;
    text_ += (text_.empty() ? "" : "\n") + outcome.message;
    if (kind_.empty()) kind_ = first_word(outcome.message);
    member.over = true;  // what it still does is of no interest
    return;
  }
  if (open) return;
  if (!member.process->wait(10'000)) {
    text_ += fmt::format("hang: the process of rank {} does not exit after its end", program_.ranks_of(p).front());
    kind_ = "hang";
  }
  take_end(p);
}

void Trial::take_end(uint32_t p) {
  Member& member = members_[p];
  member.over = true;
  const uint32_t rank = program_.ranks_of(p).front();
  const std::string words = member.process->output_tail();
  const auto find = [&](const char* kind, const std::string& text) {
    if (kind_.empty()) kind_ = kind;
    text_ += fmt::format("{}{}: {}{}{}", text_.empty() ? "" : "\n", kind, text, words.empty() ? "" : "\n  ", words);
  };
  if (!may_die(p) && !member.process->ended_well())
    find("crash", fmt::format("the process of rank {} {}", rank, member.process->how()));
  else if (!may_die(p) && !member.answered)
    find("crash", fmt::format("the process of rank {} ended without a word", rank));
  else if (const int left = member.process->kill_group(); left > 0)
    find("leak", fmt::format("the process of rank {} left {} processes behind", rank, left));
}

bool Trial::may_die(uint32_t p) const {
  const Fault fault = fault_of(program_);
  return fault.event && fault.kills() && program_.process[fault.rank()] == p;
}

// The position of each thread that has not ended.
std::string Trial::standing() const {
  std::string text;
  for (uint32_t r = 0; r < program_.ranks; ++r)
    for (uint32_t s = 0; s < program_.strands; ++s) {
      const uint32_t at = whereabouts_->of(r, s);
      if (at == Whereabouts::done) continue;
      std::string where =
          at == Whereabouts::ending ? "waits for its requests and destroys its communicators" : "has not begun";
      for (const Event& e : program_.events)
        if (e.id == at) where = fmt::format("is at \"{}\"", to_text(e));
      text += fmt::format("\n  rank {}, strand {} {}", r, s, where);
    }
  return text;
}

Verdict try_program(const Program& program, const TrialOptions& options) {
  Trial trial(program, options);
  for (;;) {
    if (const auto verdict = trial.poll()) return *verdict;
    std::vector<pollfd> all;
    for (const int descriptor : trial.descriptors()) all.push_back({descriptor, POLLIN, 0});
    ::poll(all.data(), all.size(), 50);
  }
}

Suite fuzz_suite() {
  const auto find = [](const std::string& id) -> std::optional<Case> {
    if (id != case_id) return std::nullopt;
    Case one;
    one.id = id;
    one.run = [](const Place& place) {
      std::ostringstream text;
      text << std::ifstream(program_file(place.folder)).rdbuf();
      return play(from_text(text.str()), place);
    };
    return one;
  };
  return {"fuzz", "a program of the command fuzz", [](const Selection&, std::vector<Case>&) {}, find};
}

}  // namespace tutti::conformance::fuzz
