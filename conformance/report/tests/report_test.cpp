// SPDX-License-Identifier: Apache-2.0
//
// Reports: what is written is what was found, what was changed is noticed, and what does not conform is told.
#include "report/report.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "machine.hpp"
#include "report/document.hpp"
#include "report/judgement.hpp"
#include "report/submission.hpp"
#include "report/text_file.hpp"
#include "report/waivers.hpp"
#include "sample_run.hpp"

namespace tutti::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* day = "2026-11-20";
const std::vector<Subject> subjects{{"transport", "shm"}, {"transport", "tcp"}, {"algorithm", "ring"}};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string why(const Run& run, const std::string& on = day, const std::vector<Subject>& about = subjects) {
  std::vector<std::string> reasons = judge_submission(run, on).reasons;
  for (const Subject& subject : about)
    for (const std::string& reason : reasons_against(subject, run, on)) reasons.push_back(reason);
  std::string text;
  for (const std::string& reason : reasons) text += reason + "\n";
  return text;
}

Result& first(Run& run, const std::string& part) {
  for (Result& r : run.results)
    if (has(r.id, part)) return r;
  throw std::runtime_error("the sample has no " + part);
}

// The text of what `call` throws.
template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

class Submission : public ::testing::Test {
 protected:
  Submission() {
    char name[] = "/tmp/tutti-report-XXXXXX";
    folder_ = ::mkdtemp(name);
    begin_submission(folder_);
    write_submission(bad_run(), folder_);
  }
  ~Submission() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ + "/" + name; }
  // Changes a file of the submission, and if `signs`, the digests with it.
  void change(const char* name, const std::string& from, const std::string& to, bool signs) const {
    std::string text = read_text_file(path(name));
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text_file(path(name), text.replace(at, from.size(), to));
    if (signs) sign();
  }
  void sign() const {
    std::string sums;
    for (const char* name : {"report.json", "report.xml", "report.html"})
      sums += sha256_of_file(path(name)) + "  " + name + "\n";
    write_text_file(path("SHA256SUMS"), sums);
  }
  std::string refused() const {
    return refusal([&] { read_submission(folder_); });
  }

  std::string folder_;
};

TEST_F(Submission, GivesTheRunBack) {
  const auto run = read_submission(folder_);
  EXPECT_EQ(run.results.size(), bad_run().results.size());
  EXPECT_EQ(json_text(run), read_text_file(path("report.json")));
  EXPECT_EQ(html_text(run), read_text_file(path("report.html")));
  EXPECT_EQ(junit_text(run), read_text_file(path("report.xml")));
}

TEST_F(Submission, NoticesWhatWasAltered) {
  change("report.json", "\"crash\"", "\"pass\"", false);
  EXPECT_TRUE(has(refused(), "report.json was altered: its SHA-256 is ")) << refused();
  sign();
  EXPECT_TRUE(has(refused(), "counts.")) << "the counts no longer fit: " << refused();
}

TEST_F(Submission, NoticesAPageThatTellsSomethingElse) {
  change("report.html", "NOT conforming", "conforming", true);
  EXPECT_TRUE(has(refused(), "report.html is not what report.json gives")) << refused();
}

TEST_F(Submission, NoticesWhatIsMissing) {
  for (const char* name : {"report.xml", "report.html", "SHA256SUMS", "report.json"}) {
    const std::string text = read_text_file(path(name));
    std::filesystem::remove(path(name));
    EXPECT_TRUE(has(refused(), name)) << name << ": " << refused();
    write_text_file(path(name), text);
  }
  EXPECT_TRUE(has(refusal([&] { read_submission(folder_ + "/nowhere"); }), "is no folder"));
}

TEST_F(Submission, SaysWhereADocumentIsWrong) {
  const std::string good = read_text_file(path("report.json"));
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"tutti.conformance-report/1", "tutti.conformance-report/2", "expected \"tutti.conformance-report/1\", got"},
      {"\"verdict\":\"fail\"", "\"verdict\":\"perfect\"", "].verdict: expected a verdict"},
      {"\"must_pass\":true", "\"must_pass\":1", "results[0].must_pass: expected true or false, got 1"},
      {"\"seconds\":0.011", "\"seconds\":\"0\"", "results[0].seconds: expected a number"},
      {"\"kernel\"", "\"kernel\": 1, \"kernel2\"", "manifest.machine.kernel: expected a text, got 1"},
      {"\"manifest\"", "\"Manifest\"", "the document: \"manifest\" is missing"},
      {"\"expires\": \"2027-03-31\"", "\"expires\": \"2027-02-30\"", "is no day"},
      {"{", "[", "parse error"},
      {"\"plan_hash\":\"0x", "\"plan_hash\":\"", "plan_hash: expected a hexadecimal number"},
  };
  for (const auto& [from, to, words] : cases) {
    write_text_file(path("report.json"), good);
    change("report.json", from, to, true);
    EXPECT_TRUE(has(refused(), words)) << to << ": " << refused();
  }
  write_text_file(path("report.json"), "");
  sign();
  EXPECT_TRUE(has(refused(), "parse error")) << refused();
}

TEST(Report, IsNotWrittenHalf) {
  const auto run = good_run();
  for (const auto& write : {write_json, write_junit, write_html}) {
    EXPECT_TRUE(has(refusal([&] { write(run, "/dev/full"); }), "/dev/full: cannot be written: No space left"));
    EXPECT_TRUE(has(refusal([&] { write(run, "/no/such/folder/file"); }), "No such file or directory"));
  }
  EXPECT_TRUE(
      has(refusal([] { require_writable("--json", "/no/such/file"); }), "--json /no/such/file: cannot be written"));
  EXPECT_TRUE(has(refusal([] { begin_submission("/dev/null/report"); }), "--report /dev/null/report: cannot be made"));
}

TEST(Report, PageHoldsTextThatLooksLikeMarkup) {
  const std::string page = html_text(bad_run());
  EXPECT_FALSE(has(page, "</script><b>"));
  for (const char* outside : {"src=", "href=\"http", "@import", "url("}) EXPECT_FALSE(has(page, outside)) << outside;
}

TEST(Judgement, AGoodRunConforms) { EXPECT_EQ(why(good_run()), ""); }

TEST(Judgement, ABadRunDoesNotAndSaysWhy) {
  const std::string told = why(bad_run());
  for (const char* words :
       {"4 failed: matrix/", "1 crashed: matrix/scatter/tree", "1 must-pass not run: matrix/gather/tree",
        "the waiver of matrix/scatter/tree/* expired on 2026-06-30"})
    EXPECT_TRUE(has(told, words)) << words << "\n" << told;
  EXPECT_FALSE(has(told, "did not end in time")) << "the timeout is waived\n" << told;
  EXPECT_TRUE(has(why(bad_run(), "2027-04-01"), "1 did not end in time")) << "the waiver has expired";
  EXPECT_FALSE(has(why(bad_run(), "2027-03-31"), "did not end in time")) << "it holds on its last day";
}

TEST(Judgement, NotSupportedIsNoPass) {
  auto run = good_run();
  first(run, "all_reduce/ring/tcp/float32").outcome = Outcome::not_supported("it says so");
  EXPECT_TRUE(has(why(run), "1 must-pass not supported: matrix/all_reduce/ring/tcp/float32")) << why(run);
  for (Result& r : run.results) r.outcome = Outcome::not_supported("it says so");
  EXPECT_TRUE(has(why(run), "no case passed"));
  run.results.clear();
  EXPECT_TRUE(has(why(run), "no case was run"));
}

TEST(Judgement, MustPassListsAreMet) {
  auto run = good_run();
  std::erase_if(run.results, [](const Result& r) { return has(r.id, "/tcp/"); });
  EXPECT_TRUE(has(why(run), "on the must-pass list of transport tcp have no case in this run of level quick"))
      << why(run);
  EXPECT_FALSE(has(why(run), "transport shm have no case")) << why(run);
  EXPECT_TRUE(reasons_against({"transport", "shm"}, run, day).empty()) << "what tcp lacks is not shm's";
  EXPECT_TRUE(has(why(run, day, {{"transport", "smoke"}}), "no plugin of the manifest has the transport smoke"));
}

TEST(Judgement, AnAlgorithmThatWasOnlyRunDoesNotConform) {
  auto run = good_run();
  first(run, "proof/all_reduce/ring").outcome = Outcome::not_run("no time");
  EXPECT_TRUE(has(why(run), "ring all_reduce was run, but its schedules are not proved")) << why(run);
  EXPECT_FALSE(has(why(run), "ring all_gather was run, but")) << why(run);
}

TEST(Judgement, CasesPickedByHandProveNothing) {
  auto run = good_run();
  run.manifest.cases = {"matrix/*"};
  EXPECT_TRUE(judge(run, day).reasons.empty());
  EXPECT_FALSE(judge(run, day).conforming());
  EXPECT_TRUE(has(judge(run, day).title(), "picked by hand"));
  EXPECT_TRUE(has(why(run), "its cases are picked by hand"));
}

TEST(Judgement, AShareProvesNothingByItself) {
  auto run = good_run();
  run.manifest.share = "2/8";
  const auto back = from_document(to_document(run));
  EXPECT_EQ(back.manifest.share, "2/8");
  EXPECT_TRUE(has(judge(back, day).title(), "the share 2/8 of all")) << judge(back, day).title();
  EXPECT_TRUE(has(why(back), "its cases are the share 2/8 of all"));
}

TEST(Judgement, ManifestIsComplete) {
  auto run = good_run();
  run.manifest.plugins[1].sha256 = "";
  run.manifest.library_sha256 = "12";
  run.manifest.machine.erase(run.manifest.machine.begin());
  for (const char* words : {"lacks the SHA-256 of the plugin net-tcp", "the library's SHA-256", "the machine's kernel"})
    EXPECT_TRUE(has(why(run), words)) << why(run);
}

TEST(Judgement, BytesWentWhereTheCaseSays) {
  auto run = good_run();
  first(run, "all_reduce/ring/tcp/").attestation.traffic[0].transport = "shm";
  EXPECT_TRUE(has(why(run), "passed, but rank 0 moved 8 bytes with rank 1 over shm")) << why(run);
}

// The faults that a transport must bear are put in by another one over it, which the core then counts.
TEST(Judgement, FaultsArePutInByChaos) {
  auto run = good_run();
  Result disturbed = first(run, "all_reduce/ring/tcp/");
  disturbed.id = "chaos/allowed/tcp/all/n2";
  disturbed.kind = "chaos";
  disturbed.attestation.traffic[0].transport = "chaos";
  run.results.push_back(disturbed);
  EXPECT_EQ(why(run), "");
  run.results.back().attestation.traffic[0].transport = "shm";
  EXPECT_TRUE(has(why(run), "passed, but rank 0 moved 8 bytes with rank 1 over shm")) << why(run);
}

TEST(Judgement, WorkWasDoneOnTheDeviceThatTheCaseSays) {
  auto run = good_run();
  Result& one = first(run, "all_reduce/ring/tcp/");
  one.axes.emplace_back("device", "mine");
  EXPECT_TRUE(has(why(run), "passed, but its attestation says device \"\"")) << why(run);
  one.attestation.device = "mine";
  EXPECT_EQ(why(run), "");
  one.axes.back().second = "host";
  EXPECT_TRUE(has(why(run), "passed, but its attestation says device \"mine\"")) << why(run);
  one.axes.back().second = "mine";
  EXPECT_TRUE(has(why(run, day, {{"device", "mine"}}), "no plugin of the manifest has the device mine"));
  run.manifest.plugins[0].devices = {"mine"};
  const std::string told = why(run, day, {{"device", "mine"}});
  EXPECT_TRUE(has(told, "on the must-pass list of device mine have no case in this run")) << told;
  EXPECT_FALSE(has(told, "no plugin of the manifest")) << told;
  run.manifest.devices = {"mine"};
  auto back = from_document(to_document(run));
  EXPECT_EQ(back.manifest.devices, run.manifest.devices);
  EXPECT_EQ(back.manifest.plugins[0].devices, run.manifest.plugins[0].devices);
  EXPECT_EQ(first(back, "all_reduce/ring/tcp/").attestation.device, "mine");
}

TEST(Waivers, HaveAReasonALinkAndADay) {
  for (const char* day_text : {"2027-02-29", "2027-13-01", "2027-1-1", "tomorrow", "2027-01-01 ", ""})
    EXPECT_FALSE(is_day(day_text)) << day_text;
  EXPECT_TRUE(is_day("2028-02-29"));
  const Json good{{"cases", "*"}, {"reason", "r"}, {"link", "l"}, {"expires", "2027-01-01"}};
  EXPECT_EQ(waivers_from(Json::array({good})).size(), 1u);
  for (const char* name : {"cases", "reason", "link", "expires"}) {
    Json lacking = good;
    lacking.erase(name);
    EXPECT_TRUE(has(refusal([&] { waivers_from(Json::array({good, lacking})); }), std::string("waiver 2: \"") + name));
  }
  EXPECT_TRUE(has(refusal([] { read_waivers("/dev/null"); }), "/dev/null: "));
  EXPECT_TRUE(has(refusal([] { read_waivers("/no/such/file"); }), "cannot be read: No such file"));
}

}  // namespace
}  // namespace tutti::conformance
