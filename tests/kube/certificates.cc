#include "kube/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "elasticdl/common/check.h"

namespace elasticdl::kube::test {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free_all)>;

std::string Contents(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string ToPem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free_all);
  ELASTICDL_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return Contents(bio.get());
}

std::string ToPem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free_all);
  ELASTICDL_CHECK(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0,
                                           nullptr, nullptr) == 1);
  return Contents(bio.get());
}

Bio Reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
             &BIO_free_all);
}

void AddExtension(X509* certificate, X509* issuer, int id,
                  const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  ELASTICDL_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Valid for a day around now.
Certificate NewCertificate(EVP_PKEY* key, const std::string& name) {
  Certificate certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  int64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), 7);
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86400);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

Key NewKey() {
  Key key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  ELASTICDL_CHECK(key != nullptr);
  return key;
}

}  // namespace

KeyPair MakeAuthority(const std::string& name) {
  const Key key = NewKey();
  const Certificate certificate = NewCertificate(key.get(), name);
  X509_set_issuer_name(certificate.get(),
                       X509_get_subject_name(certificate.get()));
  AddExtension(certificate.get(), certificate.get(), NID_basic_constraints,
               "critical,CA:TRUE");
  ELASTICDL_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  return {ToPem(certificate.get()), ToPem(key.get())};
}

KeyPair MakeCertificate(const KeyPair& authority, const std::string& name,
                        const std::string& alternatives) {
  const Bio cert_reader = Reader(authority.cert_pem);
  const Certificate issuer(
      PEM_read_bio_X509(cert_reader.get(), nullptr, nullptr, nullptr),
      &X509_free);
  const Bio key_reader = Reader(authority.key_pem);
  const Key issuer_key(
      PEM_read_bio_PrivateKey(key_reader.get(), nullptr, nullptr, nullptr),
      &EVP_PKEY_free);
  const Key key = NewKey();
  const Certificate certificate = NewCertificate(key.get(), name);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  if (!alternatives.empty()) {
    AddExtension(certificate.get(), issuer.get(), NID_subject_alt_name,
                 alternatives);
  }
  ELASTICDL_CHECK(X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) >
                  0);
  return {ToPem(certificate.get()), ToPem(key.get())};
}

}  // namespace elasticdl::kube::test
