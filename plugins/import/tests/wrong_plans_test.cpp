// SPDX-License-Identifier: Apache-2.0
//
// Samples with one edit each: refused, with the place and the reason.
#include <gtest/gtest.h>

#include "imported.hpp"

namespace tutti::test {
namespace {

struct Edit {
  const char* name;
  const char* sample;
  const char* from;   // its first occurrence ...
  const char* to;     // ... becomes this
  const char* error;  // what the error says, from the line on
};

const Edit edits[] = {
    {"no_xml", "all_gather.xml", "</gpu>", "</gp>", "10: is not XML: mismatched tag"},
    {"document_type", "all_gather.xml", "<algo", "<!DOCTYPE algo [<!ENTITY a \"aaaa\">]><algo",
     "2: has a document type"},
    {"unknown_element", "all_gather.xml", "<tb id=\"0\"", "<block id=\"0\"",
     "4: <block> stands where <tb> is expected"},
    {"unknown_attribute", "all_gather.xml",
     "coll=", "color=\"red\" coll=", "2: <algo> has the unknown attribute \"color\""},
    {"unknown_collective", "all_gather.xml", "\"allgather\"", "\"custom\"",
     "2: <algo> coll=\"custom\": Tutti has no such collective"},
    {"chunks_that_do_not_divide", "all_gather.xml", "nchunksperloop=\"3\"", "nchunksperloop=\"4\"",
     "2: <algo> nchunksperloop=\"4\" is not a multiple of 3"},
    {"too_many_ranks", "all_gather.xml", "ngpus=\"3\"", "ngpus=\"2000\"",
     "2: <algo> ngpus=\"2000\": expected a whole number from 1 to 1024"},
    {"no_number", "all_gather.xml", "ngpus=\"3\"", "ngpus=\"3x\"",
     "2: <algo> ngpus=\"3x\": expected a whole number from 1 to 1024"},
    {"rank_twice", "all_gather.xml", "gpu id=\"2\"", "gpu id=\"1\"",
     "19: <gpu> id=\"1\" comes twice, first in line 11"},
    {"unknown_protocol", "all_gather.xml", "\"Simple\"", "\"Fast\"",
     "2: <algo> proto=\"Fast\": expected Simple, LL or LL128"},
    {"serves_no_call", "all_gather.xml", "inplace=\"0\"", "inplace=\"0\" outofplace=\"0\"", "2: <algo> serves no call"},
    {"no_offset", "all_gather.xml", " srcoff=\"0\"", "", "5: <step> has no attribute \"srcoff\""},
    {"unknown_type", "all_gather.xml", "\"cpy\"", "\"copy\"", "5: gpu 0, tb 0, step 0: type=\"copy\" is not known"},
    {"unknown_buffer", "all_gather.xml", "srcbuf=\"i\"", "srcbuf=\"x\"",
     "5: gpu 0, tb 0, step 0: srcbuf=\"x\": expected i, o or s"},
    {"out_of_range", "all_gather.xml", "dstoff=\"2\"", "dstoff=\"3\"",
     "7: gpu 0, tb 0, step 2: its dst reaches o[3], but gpu 0 has 3 chunks there (o_chunks)"},
    {"chunks_beyond_the_buffer", "all_gather.xml", "o_chunks=\"3\"", "o_chunks=\"4\"",
     "3: <gpu> o_chunks=\"4\", but the buffer has 3 chunks in this collective"},
    {"no_chunks", "all_gather.xml", "cnt=\"1\"", "cnt=\"0\"", "5: <step> cnt=\"0\": expected a whole number from 1"},
    {"steps_out_of_order", "all_gather.xml", "<step s=\"1\"", "<step s=\"2\"",
     "6: <step> s=\"2\": steps are numbered 0, 1 ... in their order, and this one is 1"},
    {"own_peer", "all_gather.xml", "send=\"1\"", "send=\"0\"", "4: <tb> send=\"0\": a gpu cannot be its own peer"},
    {"no_peer", "all_gather.xml", "send=\"1\"", "send=\"-1\"",
     "6: gpu 0, tb 0, step 1: sends, but its thread block has no peer to send to"},
    {"wrong_place", "all_gather.xml", "dstoff=\"2\"", "dstoff=\"1\"",
     "3: gpu 0: o[2] holds nothing at the end, and should hold chunk 0 of gpu 2's input"},
    {"never_sent", "all_gather.xml", "type=\"s\"", "type=\"nop\"",
     "16: gpu 1, tb 0, step 3: receives from gpu 0 on channel 0 what gpu 0 never sends"},
    {"never_received", "all_gather.xml", "type=\"r\"", "type=\"nop\"",
     "23: gpu 2, tb 0, step 2: sends to gpu 0 on channel 0 what gpu 0 never receives"},
    {"reduces_while_moving", "all_gather.xml", "type=\"rcs\" srcbuf=\"i\" srcoff=\"-1\"",
     "type=\"rrcs\" srcbuf=\"i\" srcoff=\"0\"", "7: gpu 0, tb 0, step 2: reduces, but the collective moves data only"},
    {"read_before_written", "reduce.xml", "depid=\"1\" deps=\"0\"", "depid=\"-1\" deps=\"-1\"",
     "7: gpu 0, tb 0, step 1: reads s[0], which nothing has written"},
    {"untold_dependency", "reduce.xml", "hasdep=\"1\"", "hasdep=\"0\"",
     "7: gpu 0, tb 0, step 1: waits for step 0 of tb 1, which has hasdep=\"0\""},
    {"dependency_on_no_thread_block", "reduce.xml", "depid=\"1\"", "depid=\"9\"",
     "7: gpu 0, tb 0, step 1: waits for tb 9, but gpu 0 has 4 thread blocks"},
    {"dependency_on_no_step", "reduce.xml", "depid=\"1\" deps=\"0\"", "depid=\"1\" deps=\"7\"",
     "7: gpu 0, tb 0, step 1: waits for step 7 of tb 1, which has 1 steps"},
    {"dependency_on_itself", "reduce.xml", "depid=\"1\"", "depid=\"0\"",
     "7: gpu 0, tb 0, step 1: waits for a step of its own thread block"},
    {"reduced_twice", "reduce.xml", "srcbuf=\"s\" srcoff=\"1\"", "srcbuf=\"s\" srcoff=\"0\"",
     "8: gpu 0, tb 0, step 2: adds gpu 1's contribution to chunk 0 twice"},
    {"contribution_missing", "reduce.xml", "type=\"re\" srcbuf=\"s\" srcoff=\"2\"",
     "type=\"nop\" srcbuf=\"s\" srcoff=\"2\"",
     "8: gpu 0: o[0] holds chunk 0 of 3 gpus' inputs at the end, and should hold chunk 0 of all 4 gpus' inputs: gpu "
     "3's is missing"},
    {"other_chunks_reduced", "all_reduce.xml", "type=\"rrc\" srcbuf=\"i\" srcoff=\"0\"",
     "type=\"rrc\" srcbuf=\"i\" srcoff=\"1\"",
     "8: gpu 0, tb 0, step 1: reduces chunk 1 of gpu 0's input with chunk 0 of gpu 1's input"},
    {"race", "all_reduce.xml", "depid=\"0\" deps=\"1\"", "depid=\"-1\" deps=\"-1\"",
     "14: gpu 0, tb 1, step 1: accesses i[0], which gpu 0, tb 0, step 1 (line 8) writes, and nothing says which"},
    {"ring_of_waits", "all_reduce.xml", "dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\"",
     "dstoff=\"0\" cnt=\"1\" depid=\"1\" deps=\"1\"",
     "8: gpu 0, tb 0, step 1: waits for ever: it is one of a ring of steps"},
    {"channel_twice", "all_reduce.xml", "<tb id=\"1\" send=\"2\" recv=\"2\"", "<tb id=\"1\" send=\"1\" recv=\"2\"",
     "12: <tb> sends to gpu 1 on channel 0, as another thread block of gpu 0 does"},
    {"thread_blocks_out_of_order", "all_reduce.xml", "<tb id=\"1\"", "<tb id=\"2\"",
     "12: <tb> id=\"2\": thread blocks are numbered 0, 1 ... in their order, and this one is 1"},
    {"unknown_channel", "all_reduce.xml", "chan=\"0\"", "chan=\"3\"",
     "6: <tb> chan=\"3\", but <algo> says nchannels=\"1\""},
    {"other_counts", "all_to_all.xml", "srcoff=\"2\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"2\"",
     "srcoff=\"2\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"1\"",
     "receives 2 chunks, but gpu 0 sends 1 (line 9: gpu 0, tb 1, step 0)"},
    {"overlap", "all_to_all.xml", "srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"2\"",
     "srcoff=\"0\" dstbuf=\"i\" dstoff=\"1\" cnt=\"2\"",
     "6: gpu 0, tb 0, step 0: its destination i[1] overlaps its source i[0]"},
    {"json_unknown_key", "all_gather.json", "\"inplace\": false", "\"inplace\": false, \"color\": 1",
     "5: \"color\" is not known here"},
    {"json_key_twice", "all_gather.json", "\"collective\"", "\"name\": \"x\", \"collective\"",
     "3: \"name\" comes twice, first in line 2"},
    {"json_unknown_collective", "all_gather.json", "\"allgather\"", "\"custom\"",
     "3: \"custom\": Tutti has no such collective"},
    {"json_unknown_protocol", "all_gather.json", "\"Simple\"", "\"Fast\"", "4: \"Fast\": expected Simple or LL"},
    {"json_no_flag", "all_gather.json", "\"inplace\": false", "\"inplace\": 0", "5: \"inplace\" is not true or false"},
    {"json_no_gpus", "all_gather.json", "\"gpus\": [", "\"gpus\": [], \"more\": [",
     "7: has 0 gpus, expected 1 to 1024"},
    {"json_ranks_out_of_order", "all_gather.json", "\"id\": 0", "\"id\": 1",
     "9: gpus are in the order of their ids, and this one is 0"},
    {"json_blocks_of_two_sizes", "all_gather.json", "\"input_chunks\": 1", "\"input_chunks\": 2",
     "8: has 2 input_chunks and 3 output_chunks, which are not"},
    {"json_chunks_that_do_not_divide", "all_gather.json", "\"output_chunks\": 3", "\"output_chunks\": 4",
     "9: \"output_chunks\": 4 is not a multiple of the 3 blocks"},
    {"json_unknown_operation", "all_gather.json", "\"put\"", "\"push\"",
     "14: gpu 0, tb 0, step 0: \"push\" is no operation that Tutti knows"},
    {"json_switch_operation", "all_gather.json", "\"put\"", "\"gstore\"",
     "14: gpu 0, tb 0, step 0: \"gstore\" reduces or copies in the switch (multimem)"},
    {"json_switch_channel", "all_gather.json", "\"channel_type\": \"memory\"", "\"channel_type\": \"switch\"",
     "18: a channel of type \"switch\" reduces and copies in the switch (multimem)"},
    {"json_thread_block_group", "all_gather.json", "\"channel_ids\": [0, 1],",
     "\"tbg_info\": {\"tb_id\": 2, \"tbg_size\": 2},", "17: \"tb_id\" is not a whole number from 0 to 1"},
    {"json_half_of_a_group", "all_gather.json", "\"channel_ids\": [0, 1],",
     "\"tbg_info\": {\"tb_id\": 1, \"tbg_size\": 2},", "gpu 1: o[0] holds nothing at the end"},
    {"json_no_remote_buffer", "all_gather.json", "\"buffer_id\": 1", "\"buffer_id\": 5",
     "16: gpu 0, tb 0, step 0: \"put\" names remote buffer 5, and its thread block has 2"},
    {"json_out_of_range", "all_gather.json", "\"buffer_id\": 0, \"index\": 0", "\"buffer_id\": 0, \"index\": 3",
     "16: gpu 0, tb 0, step 0: \"put\" reaches o[3] of gpu 1, which has 3 chunks there"},
    {"json_input_out_of_range", "all_gather.json", "\"size\": 1", "\"size\": 2",
     "15: gpu 0, tb 0, step 0: \"put\" reaches i[1] of gpu 0, which has 1 chunks there"},
    {"json_put_at_home", "all_gather.json", "\"buffer_id\": 0", "\"type\": \"o\"",
     "14: gpu 0, tb 0, step 0: \"put\" has as destination memory of the gpu itself, expected a remote buffer"},
    {"json_no_channel", "all_gather.json", "\"signal\", \"channel_ids\": [0, 1]", "\"signal\", \"channel_ids\": [0, 7]",
     "19: gpu 0, tb 0, step 1: \"signal\" names channel 7, and its thread block has 2 of that type"},
    {"json_own_buffer", "all_gather.json", "\"rank\": 1", "\"rank\": 0", "31: a remote buffer of the gpu itself"},
    {"json_no_signal", "all_gather.json",
     "{\"name\": \"signal\", \"channel_ids\": [0, 1], \"channel_type\": \"memory\"}", "{\"name\": \"nop\"}",
     "51: gpu 1, tb 0, step 3: waits for a signal that gpu 0 never gives"},
    {"json_no_wait", "all_gather.json", "{\"name\": \"wait\", \"channel_ids\": [0, 1], \"channel_type\": \"memory\"}",
     "{\"name\": \"nop\"}", "47: gpu 1, tb 0, step 1: signals gpu 0, which never waits for it"},
    {"json_race", "reduce_scatter.json", "\"buffer_id\": 0, \"index\": 0", "\"buffer_id\": 0, \"index\": 2",
     "accesses s[2], which gpu 0, tb 0, step 0 (line 14) writes, and nothing says which of them comes first"},
    {"json_no_packets", "reduce_scatter.json", "\"ppkt\"", "\"put\"", "reads packets in s[0], which nobody writes"},
    {"json_other_operator", "reduce_scatter.json", "\"sum\"", "\"max\"",
     "22: gpu 0, tb 0, step 2: \"repkt\" names another reduce_op than \"sum\""},
    {"json_barriers_of_two_sizes", "all_to_all.json", "\"num_threadblocks\": 3", "\"num_threadblocks\": 2",
     "21: gpu 0, tb 0, step 3: meets 2 thread blocks at barrier 0, and gpu 0, tb 2, step 1 (line "},
    {"json_wrong_block", "all_to_all.json", "\"type\": \"o\", \"index\": 1", "\"type\": \"o\", \"index\": 2",
     "accesses o[2], which gpu 0, tb 0, step 2 (line 16) writes"},
};

class WrongPlans : public testing::TestWithParam<Edit> {};

TEST_P(WrongPlans, AreRefusedWithTheirPlace) {
  const Edit& edit = GetParam();
  std::string text = content(std::string(SAMPLES) + "/" + edit.sample);
  const size_t at = text.find(edit.from);
  ASSERT_NE(at, text.npos) << "the sample has no " << edit.from;
  text.replace(at, std::string(edit.from).size(), edit.to);
  const std::string file = write_plan(edit.sample, text);
  EXPECT_TRUE(import(file).empty());
  const bool has_line = edit.error[0] >= '0' && edit.error[0] <= '9';
  EXPECT_NE(import_error.find(has_line ? file + ":" + edit.error : edit.error), std::string::npos) << import_error;
  EXPECT_EQ(import_error.find(file), 0u) << import_error;
  EXPECT_EQ(import_warning, import_error + "; no plan is imported");
}

TEST(WrongFiles, AreRefused) {
  const std::string sample = std::string(SAMPLES) + "/all_gather.xml", text = content(sample);
  EXPECT_TRUE(import("/nowhere/plan.xml").empty());
  EXPECT_NE(import_error.find("/nowhere/plan.xml"), std::string::npos) << import_error;
  EXPECT_TRUE(import(sample + ":" + write_plan("again.xml", text)).empty());
  EXPECT_NE(import_error.find("its name, sample-all-gather, is that of the plan in " + sample), std::string::npos)
      << import_error;
  for (size_t length = 0; length < text.size(); length += 97) {
    const std::string cut = write_plan("cut.xml", text.substr(0, length));
    EXPECT_TRUE(import(cut).empty()) << length;
    EXPECT_NE(import_error.find("is not XML"), std::string::npos) << import_error;
  }
  const std::string large = write_plan("large.xml", text);
  std::filesystem::resize_file(large, (uint64_t{64} << 20) + 1);
  EXPECT_TRUE(import(large).empty());
  EXPECT_NE(import_error.find("has 67108865 bytes, and a plan at most 67108864"), std::string::npos) << import_error;
  EXPECT_TRUE(import("").empty());
  EXPECT_EQ(import_error, "");
}

TEST(WrongFiles, JsonThatEndsEarlyOrIsDeep) {
  const std::string text = content(std::string(SAMPLES) + "/all_gather.json");
  for (size_t length = 1; length < text.size(); length += 97) {
    const std::string cut = write_plan("cut.json", text.substr(0, length));
    EXPECT_TRUE(import(cut).empty()) << length;
    EXPECT_NE(import_error.find("is not JSON"), std::string::npos) << import_error;
  }
  const std::string deep = write_plan("deep.json", "{\n\"name\":\n" + std::string(100'000, '['));
  EXPECT_TRUE(import(deep).empty());
  EXPECT_NE(import_error.find("deep.json:3: is nested deeper than 16 levels"), std::string::npos) << import_error;
}

// Without any signal the data may come after the call has ended.
TEST(WrongFiles, JsonThatWaitsForNothing) {
  std::string text = content(std::string(SAMPLES) + "/all_gather.json");
  for (const char* name : {"\"signal\"", "\"wait\""})
    for (size_t at; (at = text.find(name)) != text.npos;) text.replace(at, std::string(name).size(), "\"nop\"");
  EXPECT_TRUE(import(write_plan("deaf.json", text)).empty());
  EXPECT_NE(import_error.find("gpu 1, tb 0, step 0: writes o[1] of gpu 0, and no step of gpu 0 waits for that"),
            std::string::npos)
      << import_error;
}

// Each file has a digest of its own, by which ranks refuse each other.
TEST(WrongFiles, HaveOtherDigests) {
  const std::string sample = std::string(SAMPLES) + "/all_gather.xml";
  const auto one = import(sample), again = import(sample);
  const auto other = import(write_plan("other.xml", content(sample) + "\n"));
  ASSERT_EQ(one.size() + again.size() + other.size(), 3u) << import_error;
  EXPECT_NE(one[0]->digest, 0u);
  EXPECT_EQ(one[0]->digest, again[0]->digest);
  EXPECT_NE(one[0]->digest, other[0]->digest);
}

INSTANTIATE_TEST_SUITE_P(Edits, WrongPlans, testing::ValuesIn(edits), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::test
