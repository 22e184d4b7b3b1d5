// SPDX-License-Identifier: Apache-2.0
//
// The rows of a communicator's report.
#include "record/reports.hpp"

#include <gtest/gtest.h>

#include <array>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

constexpr const char *send = "send", *cuda = "cuda", *shm = "shm", *tcp = "tcp";

uint32_t row_of(Reports& reports, const char* call, const char* device, std::vector<const char*> carriers) {
  return reports.transfer_row(call, device, carriers);
}

TEST(Reports, TransfersHaveARowForEachCallAndWhatCarriesThem) {
  Reports reports(std::make_shared<FlightRecorder>(FlightRecorder::Meeting{}));
  const std::array rows{row_of(reports, send, nullptr, {shm}),      row_of(reports, "receive", nullptr, {shm}),
                        row_of(reports, send, nullptr, {tcp, shm}), row_of(reports, send, cuda, {}),
                        row_of(reports, send, cuda, {tcp, shm}),    row_of(reports, send, nullptr, {})};
  EXPECT_EQ(row_of(reports, send, nullptr, {shm, tcp}), rows[2]) << "in whatever order they come";
  EXPECT_EQ(reports.row(send, "", "shm+tcp"), rows[2]) << "the rows of texts are the same";
  for (const uint32_t row : rows) reports.count(row, 1, 0);
  std::vector<std::string> texts;
  for (const tutti_service& service : reports.services())
    texts.push_back(std::string(service.collective) + " " + service.transports);
  EXPECT_EQ(texts, (std::vector<std::string>{"send shm", "receive shm", "send shm+tcp", "send cuda",
                                             "send cuda+shm+tcp", "send "}));
}

// A row that is known is found without a look at any text.
TEST(Reports, RowsOfTransfersAreFoundByAddress) {
  Reports reports(std::make_shared<FlightRecorder>(FlightRecorder::Meeting{}));
  char call[] = "send", device[] = "cuda", carrier[] = "shm";
  const uint32_t row = row_of(reports, call, device, {carrier});
  for (char* text : {call, device, carrier}) text[0] = '?';
  EXPECT_EQ(row_of(reports, call, device, {carrier}), row);
  EXPECT_NE(row_of(reports, send, cuda, {carrier}), row);
}

// A call whose links turn out to be others does not take the place of a later one.
TEST(Reports, TheLastCallStaysThatWhichWasMadeLast) {
  Reports reports(std::make_shared<FlightRecorder>(FlightRecorder::Meeting{}));
  const auto transports = [&] { return std::string(reports.plan_facts(TUTTI_ALL_REDUCE).transports); };
  const uint32_t ring = reports.row("all_reduce", "ring", shm), tree = reports.row("all_reduce", "tree", shm);
  const uint32_t other = reports.row("all_reduce", "ring", tcp);
  reports.move(TUTTI_ALL_REDUCE, 0, 0, other);
  EXPECT_THROW(transports(), Failure) << "there was no call";
  reports.set_service(TUTTI_ALL_REDUCE, ring, 1, 11);
  reports.move(TUTTI_ALL_REDUCE, 11, ring, other);
  EXPECT_EQ(transports(), tcp);
  reports.set_service(TUTTI_ALL_REDUCE, ring, 1, 11);
  reports.set_service(TUTTI_ALL_REDUCE, tree, 2, 12);
  reports.move(TUTTI_ALL_REDUCE, 11, ring, other);
  EXPECT_EQ(transports(), shm);
  EXPECT_EQ(reports.plan_facts(TUTTI_ALL_REDUCE).schedule_hash, 12u);
}

}  // namespace
}  // namespace tutti::core
