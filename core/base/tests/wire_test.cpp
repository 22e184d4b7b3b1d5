// SPDX-License-Identifier: Apache-2.0
#include "base/wire.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace tutti::core {
namespace {

struct Inner {
  std::string name;
  std::vector<uint64_t> numbers;

  static void fields(auto& wire, auto& inner) { wire(inner.name, inner.numbers); }
};
struct Word {
  uint32_t count = 1;
  int32_t node = -1;
  bool flag = false;
  std::string text;
  std::vector<std::string> names;
  std::vector<Inner> inners;
  std::string_view rest;

  static void fields(auto& wire, auto& word) {
    wire(Field("count", word.count, 1, 8), Field("node", word.node, -1, 7), word.flag, Field("text", word.text, 0, 5),
         Field("names", word.names, 0, 2), Field("inners", word.inners), word.rest);
  }
};

std::string answer(const std::string& bytes) {
  try {
    decode<Word>(bytes, "rank 3's word");
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, TUTTI_MISMATCH);
    return failure.text;
  }
  return "taken";
}
std::string answer(const std::function<void(Word&)>& change) {
  Word word;
  change(word);
  return answer(encode(word));
}

TEST(Wire, ThereAndBack) {
  const Word before{8, 7, true, "\"\xc3\xa4", {"a", ""}, {{"one", {1, UINT64_MAX}}, {"", {}}}, "rest\0"};
  const std::string bytes = encode(before);
  const auto after = decode<Word>(bytes, "a word");
  EXPECT_EQ(encode(after), bytes);
  EXPECT_EQ(after.count, 8u);
  EXPECT_EQ(after.node, 7);
  EXPECT_TRUE(after.flag);
  EXPECT_EQ(after.text, before.text);
  EXPECT_EQ(after.names, before.names);
  ASSERT_EQ(after.inners.size(), 2u);
  EXPECT_EQ(after.inners[0].numbers, before.inners[0].numbers);
  EXPECT_EQ(after.rest, before.rest);
}

struct Message {
  std::string text, bytes;

  static void fields(auto& wire, auto& message) { wire(message.text, RawBytes(message.bytes)); }
};

// Texts of another rank end in errors and logs, and so on terminals.
TEST(Wire, TextsOfOthersHaveNoControlCharactersAndAnEnd) {
  const std::string bytes("a\n\0\x1b[31m\xc2\x9b", 10);
  const auto after = decode<Message>(encode(Message{bytes, bytes}), "a message");
  EXPECT_EQ(after.text, "a???[31m??");
  EXPECT_EQ(after.bytes, bytes);
  const std::string flood(longest_message + 1, 'x');
  const auto cut = decode<Message>(encode(Message{flood, flood}), "a message");
  EXPECT_EQ(cut.text.size(), longest_message);
  EXPECT_EQ(cut.bytes, flood);
}

TEST(Wire, NumbersAreLittleEndianAndTextsFollowTheirLength) {
  EXPECT_EQ(WireWriter()(0x01020304u, uint64_t{5}, std::string("ab")).take(),
            std::string("\4\3\2\1\5\0\0\0\0\0\0\0\2\0\0\0ab", 18));
}

TEST(Wire, FieldsBeyondTheirLimitsAreRefused) {
  EXPECT_EQ(answer([](Word&) {}), "taken");
  const std::string who = "rank 3's word has an impossible ";
  EXPECT_EQ(answer([](Word& word) { word.count = 0; }), who + "\"count\": expected a whole number from 1 to 8, got 0");
  EXPECT_EQ(answer([](Word& word) { word.count = 9; }), who + "\"count\": expected a whole number from 1 to 8, got 9");
  EXPECT_EQ(answer([](Word& word) { word.node = -2; }), who + "\"node\": expected a whole number from -1 to 7, got -2");
  EXPECT_EQ(answer([](Word& word) { word.text = "abcdef"; }),
            who + "\"text\": expected a text of at most 5 bytes without control characters, got \"abcdef\"");
  EXPECT_EQ(answer([](Word& word) { word.text = "\x7f\x1b"; }),
            who + "\"text\": expected a text of at most 5 bytes without control characters, got \"??\"");
  EXPECT_EQ(answer([](Word& word) { word.names.resize(3); }), who + "\"names\": expected a list of at most 2, got 3");
  EXPECT_EQ(answer([](Word& word) { word.names = {std::string(longest_text + 1, 'x')}; }),
            who + "\"names\": expected a text of at most 256 bytes without control characters, got \"" +
                std::string(80, 'x') + "\"");
  EXPECT_EQ(answer([](Word& word) { word.inners.resize(65); }),
            who + "\"inners\": expected a list of at most 64, got 65");
}

TEST(Wire, BytesThatNobodyWritesAreRefused) {
  const std::string bytes = encode(Word());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_NE(answer(bytes.substr(0, n)).find("bytes announced"), std::string::npos) << n << " bytes";
  EXPECT_EQ(answer("abc"), "rank 3's word: 4 bytes announced, 3 left: do all ranks run the same version of Tutti?");
  try {
    decode<Inner>(encode(Inner()) + "x", "rank 3's word");
    FAIL() << "taken";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.text, "rank 3's word: 1 bytes too many: do all ranks run the same version of Tutti?");
  }
}

TEST(Wire, APrintableTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable("a\nb\x7f", 8), "a?b?");
  EXPECT_EQ(printable("a\xc3\xa4z", 4), "a\xc3\xa4z");
  EXPECT_EQ(printable("a\xc3\xa4z", 3), "a\xc3\xa4");
  EXPECT_EQ(printable("a\xc3\xa4z", 2), "a");
  EXPECT_EQ(printable("\x80\x80", 1), "") << "no character begins";
  EXPECT_EQ(printable("\xc2\x9b[\xc2\xa0\xc2?"), "??[\xc2\xa0\xc2?") << "U+009B begins escape sequences";
}

}  // namespace
}  // namespace tutti::core
