// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/authentication.hpp"

#include <gtest/gtest.h>

namespace tutti::core {

TEST(Authentication, ProofsDependOnEverything) {
  const std::string a(kNonceBytes, 'a'), b(kNonceBytes, 'b');
  const std::string proof = hub_proof("secret", a, b);
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(equal_proof(proof, hub_proof("secret", a, b)));
  EXPECT_FALSE(equal_proof(proof, spoke_proof("secret", a, b))) << "an answer must not serve in the other direction";
  EXPECT_FALSE(equal_proof(proof, hub_proof("Secret", a, b)));
  EXPECT_FALSE(equal_proof(proof, hub_proof("", a, b)));
  EXPECT_FALSE(equal_proof(proof, hub_proof("secret", b, a)));
  EXPECT_FALSE(equal_proof(proof, proof.substr(1)));
}

TEST(Authentication, Prefix) {
  std::string prefix = meeting_prefix();
  ASSERT_EQ(prefix.size(), kPrefixBytes);
  EXPECT_EQ(prefix_problem(prefix), "");
  prefix[8] = 9;
  EXPECT_NE(prefix_problem(prefix).find("version 9"), std::string::npos) << prefix_problem(prefix);
  EXPECT_NE(prefix_problem("GET / HTTP/1").find("does not speak"), std::string::npos);
}

TEST(Authentication, Hex) {
  EXPECT_EQ(to_hex(std::string("\x00\xff\x1a", 3)), "00ff1a");
  EXPECT_EQ(from_hex("00fF1A"), std::string("\x00\xff\x1a", 3));
  EXPECT_EQ(from_hex("0"), std::nullopt);
  EXPECT_EQ(from_hex("0g"), std::nullopt);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

}  // namespace tutti::core
