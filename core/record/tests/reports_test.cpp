// SPDX-License-Identifier: Apache-2.0
//
// The rows of a communicator's report.
#include "record/reports.hpp"

#include <gtest/gtest.h>

#include <array>

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

}  // namespace
}  // namespace tutti::core
