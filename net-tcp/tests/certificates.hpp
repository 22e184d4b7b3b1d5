// SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests, made when they are needed, as PEM files in a folder of this process, which goes with it.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace tutti_test {

template <auto free>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreeBy<X509_free>>;

struct PemFiles {
  std::string certificate, key;
};

inline const std::string& pem_folder() {
  struct Folder {
    Folder() { EXPECT_NE(mkdtemp(path.data()), nullptr) << path; }
    ~Folder() {
      std::error_code ignored;
      if (getpid() == owner) std::filesystem::remove_all(path, ignored);
    }
    std::string path = testing::TempDir() + "tutti-certificates-XXXXXX";
    pid_t owner = getpid();
  };
  static const Folder folder;
  return folder.path;
}

// An authority that signs itself.
class Authority {
 public:
  explicit Authority(const std::string& name)
      : name_(name), key_(EVP_EC_gen("P-256")), certificate_(make(name, key_.get(), -3600, 86400, nullptr)) {
    write(file(), [&](FILE* out) { return PEM_write_X509(out, certificate_.get()); });
  }
  std::string file() const { return pem_folder() + "/" + name_ + ".pem"; }
  // A certificate that is valid between two moments, in seconds from now.
  PemFiles issue(const std::string& name, long from = -60, long until = 3600) {
    const Key key(EVP_EC_gen("P-256"));
    const Certificate certificate = make(name, key.get(), from, until, certificate_.get());
    const PemFiles files{pem_folder() + "/" + name + ".pem", pem_folder() + "/" + name + ".key"};
    write(files.certificate, [&](FILE* out) { return PEM_write_X509(out, certificate.get()); });
    write(files.key,
          [&](FILE* out) { return PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
    return files;
  }

 private:
  Certificate make(const std::string& name, EVP_PKEY* key, long from, long until, X509* issuer) {
    Certificate made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), from);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), until);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(made.get(), X509_get_subject_name(issuer ? issuer : made.get()));
    X509_set_pubkey(made.get(), key);
    if (!issuer) {
      const std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>> may_sign(
          X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"));
      X509_add_ext(made.get(), may_sign.get(), -1);
    }
    EXPECT_GT(X509_sign(made.get(), key_.get(), EVP_sha256()), 0);
    return made;
  }
  template <typename Body>
  static void write(const std::string& path, Body body) {
    const std::unique_ptr<FILE, FreeBy<std::fclose>> out(std::fopen(path.c_str(), "w"));
    EXPECT_TRUE(out && body(out.get()) == 1) << path;
  }
  std::string name_;
  long serial_ = 0;
  Key key_;
  Certificate certificate_;
};

}  // namespace tutti_test
