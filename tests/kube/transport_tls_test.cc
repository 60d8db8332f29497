// TLS of the transport: whom it trusts and how it shows who it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "elasticdl/kube/cluster_config.h"
#include "kube/certificates.h"
#include "kube/test_server.h"

namespace elasticdl::kube {
namespace {

using test::KeyPair;
using test::MakeAuthority;
using test::MakeCertificate;
using test::TestServer;

constexpr absl::Duration kPatience = absl::Seconds(20);

class TransportTlsTest : public ::testing::Test {
 protected:
  static absl::StatusOr<Response> Get(const ClusterConfig& config) {
    auto transport = MakeTransport(config);
    EXPECT_TRUE(transport.ok()) << transport.status();
    Request request;
    request.path = {"x"};
    return (*transport)->Call(request, kPatience, nullptr);
  }
  static void Yes(const httplib::Request& request,
                  httplib::Response& response) {
    response.set_content(request.get_header_value("Host"), "text/plain");
  }

  const KeyPair authority_ = MakeAuthority("cluster");
  const KeyPair other_authority_ = MakeAuthority("somebody else");
};

TEST_F(TransportTlsTest, ClustersAuthorityIsTrustedAndNoOther) {
  TestServer server({MakeCertificate(authority_, "server", "IP:127.0.0.1"), ""},
                    Yes);
  ClusterConfig config;
  config.server = server.url();
  config.ca_pem = authority_.cert_pem;
  EXPECT_TRUE(Get(config).ok()) << Get(config).status();
  config.ca_pem = other_authority_.cert_pem;
  EXPECT_EQ(Get(config).status().code(), absl::StatusCode::kFailedPrecondition);
  // The system's authorities do not know it.
  config.ca_pem = "";
  EXPECT_EQ(Get(config).status().code(), absl::StatusCode::kFailedPrecondition);
  config.insecure_skip_tls_verify = true;
  EXPECT_TRUE(Get(config).ok());
}

TEST_F(TransportTlsTest, NameMustFitUnlessAnotherOneIsGiven) {
  TestServer server(
      {MakeCertificate(authority_, "server", "DNS:kubernetes.example"), ""},
      Yes);
  ClusterConfig config;
  config.server = server.url();
  config.ca_pem = authority_.cert_pem;
  EXPECT_EQ(Get(config).status().code(), absl::StatusCode::kFailedPrecondition);
  config.tls_server_name = "kubernetes.example";
  const auto response = Get(config);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, server.url().substr(8));
  config.tls_server_name = "other.example";
  EXPECT_EQ(Get(config).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TransportTlsTest, ClientCertificate) {
  TestServer server({MakeCertificate(authority_, "server", "IP:127.0.0.1"),
                     authority_.cert_pem},
                    Yes);
  ClusterConfig config;
  config.server = server.url();
  config.ca_pem = authority_.cert_pem;
  EXPECT_EQ(Get(config).status().code(), absl::StatusCode::kUnavailable);
  const KeyPair me = MakeCertificate(authority_, "me", "");
  config.client_cert_pem = me.cert_pem;
  config.client_key_pem = me.key_pem;
  EXPECT_TRUE(Get(config).ok()) << Get(config).status();
  // A key that does not belong to it.
  config.client_key_pem = MakeCertificate(authority_, "you", "").key_pem;
  EXPECT_EQ(Get(config).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TransportTlsTest, ConnectionsAreReused) {
  TestServer server({MakeCertificate(authority_, "server", "IP:127.0.0.1"), ""},
                    Yes);
  ClusterConfig config;
  config.server = server.url();
  config.ca_pem = authority_.cert_pem;
  auto transport = MakeTransport(config);
  ASSERT_TRUE(transport.ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE((*transport)->Call(Request(), kPatience, nullptr).ok());
  }
  for (const int port : server.connections()) {
    EXPECT_EQ(port, server.connections()[0]);
  }
}

}  // namespace
}  // namespace elasticdl::kube
