// SPDX-License-Identifier: Apache-2.0
//
// TLS under the frames: right, foreign, expired and absent certificates.
#include <openssl/ssl.h>

#include "bare_peer.hpp"
#include "certificates.hpp"
#include "tcp_ranks.hpp"

namespace tutti_test {
namespace {

class Tls : public testing::Test {
 protected:
  ~Tls() override { host().settings.clear(); }

  void use(const PemFiles& files, const std::string& authority) {
    host().settings["TUTTI_TLS_CERTIFICATE"] = files.certificate;
    host().settings["TUTTI_TLS_KEY"] = files.key;
    host().settings["TUTTI_TLS_CA"] = authority;
  }
  // Two ranks that each were opened with the settings of then.
  void expect_refusal(Rank& a, Rank& b, const std::string& words) {
    tutti_status sa, sb;
    settle(a, b, sa, sb);
    EXPECT_EQ(sa, TUTTI_MISMATCH) << a.error;
    EXPECT_EQ(sb, TUTTI_MISMATCH) << b.error;
    EXPECT_NE((a.error + b.error).find(words), std::string::npos) << a.error << "\n" << b.error;
  }
  std::string why_not_opened() {
    const Rank rank(0);
    EXPECT_EQ(rank.open_status, TUTTI_INVALID_ARGUMENT);
    return Host::error;
  }

  Authority authority_{"authority"}, other_{"other_authority"};
};

TEST_F(Tls, RightCertificatesCarryEverything) {
  for (const char* sockets : {"1", "2"}) {
    host().settings["TUTTI_TCP_SOCKETS"] = sockets;
    use(authority_.issue("zero"), authority_.file());
    Rank a(0);
    use(authority_.issue("one"), authority_.file());
    Rank b(1);
    ASSERT_EQ(a.open_status, TUTTI_OK) << Host::error;
    join(a, b);
    uint64_t cookie = 0;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'000}, size_t{256 << 10}})
      for (uint32_t lane = 0; lane < 4; ++lane) {
        const auto there = pattern(bytes, lane), back = pattern(bytes, lane + 100);
        std::vector<unsigned char> got_there(bytes), got_back(bytes);
        a.ended.clear(), b.ended.clear();
        ++cookie;
        ASSERT_EQ(b.receive(0, lane, got_there.data(), bytes, cookie), TUTTI_OK);
        ASSERT_EQ(a.receive(1, lane, got_back.data(), bytes, cookie), TUTTI_OK);
        ASSERT_EQ(a.send(1, lane, there.data(), bytes, cookie + 1000), TUTTI_OK);
        ASSERT_EQ(b.send(0, lane, back.data(), bytes, cookie + 1000), TUTTI_OK);
        ASSERT_TRUE(drive({&a, &b}, [&] { return a.ended.size() == 2 && b.ended.size() == 2; }));
        EXPECT_TRUE(got_there == there && got_back == back) << bytes << " bytes on lane " << lane;
      }
    b.close();
    a.ended.clear();
    ASSERT_EQ(a.receive(1, 0, &cookie, 8, 1), TUTTI_OK) << a.error;
    ASSERT_TRUE(drive({&a}, [&] { return a.has(1, TUTTI_PEER_FAILED) && a.failures.contains(1); }));
  }
}

// Messages pile up behind a receiver that does not look, in both directions: blocked records are taken up again.
TEST_F(Tls, WritesThatBlockGoOn) {
  host().settings["TUTTI_TCP_BUFFER_BYTES"] = "8192";
  use(authority_.issue("zero"), authority_.file());
  Rank a(0), b(1);
  join(a, b);
  constexpr size_t bytes = 256 << 10, messages = 8;
  const auto data = pattern(bytes, 5);
  std::vector<std::vector<unsigned char>> got(messages, std::vector<unsigned char>(bytes));
  for (size_t i = 0; i < messages; ++i) {
    ASSERT_EQ(b.receive(0, i % 4, got[i].data(), bytes, i), TUTTI_OK);
    ASSERT_EQ(a.send(1, i % 4, data.data(), bytes, i), TUTTI_OK);
    for (int k = 0; k < 20; ++k) a.progress();
  }
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.ended.size() == messages && b.ended.size() == messages; }));
  for (const auto& one : got) EXPECT_TRUE(one == data);
}

TEST_F(Tls, AForeignCertificateIsRefusedByBoth) {
  use(authority_.issue("zero"), authority_.file());
  Rank a(0);
  use(other_.issue("one"), authority_.file());
  Rank b(1);
  expect_refusal(a, b, "its certificate is refused (TUTTI_TLS_CA): unable to get local issuer certificate");
}

TEST_F(Tls, ARankWithoutTlsIsRefused) {
  use(authority_.issue("zero"), authority_.file());
  Rank a(0);
  host().settings.clear();
  Rank b(1);
  expect_refusal(a, b, "TLS (TUTTI_TLS_CERTIFICATE) is 1 on rank 0 and 0 on rank 1");
  EXPECT_NE(b.error.find("TLS (TUTTI_TLS_CERTIFICATE) is 0 on rank 1 and 1 on rank 0"), std::string::npos) << b.error;
}

// This rank would not even try; a peer that does is refused, and is told why.
TEST_F(Tls, AnExpiredCertificateIsRefused) {
  use(authority_.issue("late", -7200, -3600), authority_.file());
  EXPECT_NE(why_not_opened().find("late.pem: the certificate has expired"), std::string::npos) << Host::error;
  use(authority_.issue("early", 3600, 7200), authority_.file());
  EXPECT_NE(why_not_opened().find("not valid yet"), std::string::npos) << Host::error;

  use(authority_.issue("zero"), authority_.file());
  Rank rank(0);
  ASSERT_EQ(rank.connect(1), TUTTI_AGAIN);
  const PemFiles late = authority_.issue("late", -7200, -3600);
  const std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context(SSL_CTX_new(TLS_method()));
  ASSERT_EQ(SSL_CTX_use_certificate_file(context.get(), late.certificate.c_str(), SSL_FILETYPE_PEM), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), late.key.c_str(), SSL_FILETYPE_PEM), 1);
  const std::unique_ptr<SSL, FreeBy<SSL_free>> ssl(SSL_new(context.get()));
  const BarePeer peer(mailed_to(1));
  SSL_set_fd(ssl.get(), peer.descriptor());
  ASSERT_TRUE(drive({&rank}, [&] { return SSL_connect(ssl.get()) == 1; }));
  char byte;
  int kind = SSL_ERROR_WANT_READ;
  ASSERT_TRUE(drive({&rank}, [&] {
    const int n = SSL_read(ssl.get(), &byte, 1);
    return n > 0 || (kind = SSL_get_error(ssl.get(), n)) != SSL_ERROR_WANT_READ;
  }));
  EXPECT_EQ(kind, SSL_ERROR_SSL);
  EXPECT_TRUE(host().logged("its certificate is refused (TUTTI_TLS_CA): certificate has expired"));
}

// A peer without a certificate gets no further than TLS, even with the right token.
TEST_F(Tls, NoCertificateIsRefused) {
  use(authority_.issue("zero"), authority_.file());
  Rank rank(0);
  ASSERT_EQ(rank.connect(1), TUTTI_AGAIN);
  const std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context(SSL_CTX_new(TLS_method()));
  const std::unique_ptr<SSL, FreeBy<SSL_free>> ssl(SSL_new(context.get()));
  BarePeer peer(mailed_to(1));
  SSL_set_fd(ssl.get(), peer.descriptor());
  ASSERT_TRUE(drive({&rank}, [&] { return SSL_connect(ssl.get()) == 1; }));
  EXPECT_TRUE(peer.is_hung_up_on(rank) || host().logged("no TLS with it"));
  ASSERT_TRUE(drive({&rank}, [&] { return host().logged("no TLS with it"); }));
}

TEST_F(Tls, HalfASetIsAnError) {
  use(authority_.issue("zero"), authority_.file());
  host().settings.erase("TUTTI_TLS_KEY");
  EXPECT_NE(why_not_opened().find("TUTTI_TLS_KEY is not"), std::string::npos) << Host::error;
  use({"/nowhere.pem", "/nowhere.key"}, authority_.file());
  EXPECT_NE(why_not_opened().find("TUTTI_TLS_CERTIFICATE=/nowhere.pem"), std::string::npos) << Host::error;
  const PemFiles zero = authority_.issue("zero"), one = authority_.issue("one");
  use({zero.certificate, one.key}, authority_.file());
  EXPECT_NE(why_not_opened().find("TUTTI_TLS_KEY=" + one.key), std::string::npos) << Host::error;
  use(zero, "/nowhere.pem");
  EXPECT_NE(why_not_opened().find("TUTTI_TLS_CA=/nowhere.pem"), std::string::npos) << Host::error;
}

}  // namespace
}  // namespace tutti_test
