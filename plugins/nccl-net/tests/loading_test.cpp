// SPDX-License-Identifier: Apache-2.0
//
// Plugins that cannot be hosted, and settings that cannot be.
#include "nccl_ranks.hpp"

namespace tutti_test {
namespace {

// The error of opening a domain.
std::string refusal(tutti_status expected) {
  tutti_transport_caps caps{};
  EXPECT_EQ(query(&caps), expected) << Host::error;
  return Host::error;
}
TEST(NcclLoading, OffersNothingUnlessANetworkIsNamed) {
  host().settings.clear();
  EXPECT_EQ(plugin_under_test().get_interface(TUTTI_TRANSPORT_ID, 0), nullptr);
  host().settings["TUTTI_NCCL_NET"] = "";
  EXPECT_EQ(plugin_under_test().get_interface(TUTTI_TRANSPORT_ID, 0), nullptr);
}

TEST(NcclLoading, TheTransportHasTheNetworksName) {
  use_network(SAMPLE_8);
  EXPECT_STREQ(table().name, "nccl:sample8");
  use_network("ofi");
  EXPECT_STREQ(table().name, "nccl:ofi");
}

TEST(NcclLoading, AFileThatIsNotThereIsNamedWithTheReason) {
  use_network("nowhere");
  const std::string text = refusal(TUTTI_NOT_SUPPORTED);
  EXPECT_TRUE(says(text, "libnccl-net-nowhere.so") && says(text, "No such file") && says(text, "LD_LIBRARY_PATH"))
      << text;
}

TEST(NcclLoading, AnotherLibraryIsNoNetworkPlugin) {
  use_network(NO_NETWORK);
  EXPECT_TRUE(says(refusal(TUTTI_NOT_SUPPORTED), "it is no network plugin of NCCL")) << Host::error;
}

TEST(NcclLoading, AVersionThatItHasNotNamesThoseThatItHas) {
  use_network(SAMPLE_8, {{"TUTTI_NCCL_NET_VERSION", "11"}});
  EXPECT_TRUE(says(refusal(TUTTI_NOT_SUPPORTED), "no ncclNetPlugin_v11; it exports ncclNetPlugin_v8")) << Host::error;
  use_network(SAMPLE_8, {{"TUTTI_NCCL_NET_VERSION", "5"}});
  EXPECT_TRUE(says(refusal(TUTTI_INVALID_ARGUMENT), "versions 6 to 12 can be hosted")) << Host::error;
}

TEST(NcclLoading, AnAdapterIsNamedByItsNumber) {
  use_network(SAMPLE_8, {{"TUTTI_NCCL_NET_DEVICE", "1"}});
  EXPECT_EQ(caps().bandwidth, 1'250'000'000u);
  use_network(SAMPLE_8, {{"TUTTI_NCCL_NET_DEVICE", "7"}});
  EXPECT_TRUE(says(refusal(TUTTI_INVALID_ARGUMENT), "adapters 0 to 1")) << Host::error;
}

TEST(NcclLoading, AdaptersAreJoinedWhereThePluginCan) {
  use_network(SAMPLE_11, {{"TUTTI_NCCL_NET_FUSE", "0,1"}});
  EXPECT_EQ(caps().bandwidth, 2'500'000'000u);
  use_network(SAMPLE_8, {{"TUTTI_NCCL_NET_FUSE", "0,1"}});
  EXPECT_TRUE(says(refusal(TUTTI_NOT_SUPPORTED), "makeVDevice")) << Host::error;
  use_network(SAMPLE_11, {{"TUTTI_NCCL_NET_FUSE", "0,x"}});
  EXPECT_TRUE(says(refusal(TUTTI_INVALID_ARGUMENT), "not a list of adapters")) << Host::error;
  use_network(SAMPLE_11, {{"TUTTI_NCCL_NET_FUSE", "0,1"}, {"TUTTI_NCCL_NET_DEVICE", "1"}});
  EXPECT_TRUE(says(refusal(TUTTI_INVALID_ARGUMENT), "set one")) << Host::error;
}

TEST(NcclLoading, AnAdapterThatDoesNotServeIsRefusedByWhatItLacks) {
  use_fault("no-adapter");
  EXPECT_TRUE(says(refusal(TUTTI_NOT_SUPPORTED), "it has no adapter")) << Host::error;
  use_fault("no-host-memory");
  EXPECT_TRUE(says(refusal(TUTTI_NOT_SUPPORTED), "accepts no host memory: ptrSupport is 2")) << Host::error;
  use_fault("dma-buf");
  EXPECT_TRUE(says(refusal(TUTTI_NOT_SUPPORTED), "there is no regMrDmaBuf")) << Host::error;
}

}  // namespace
}  // namespace tutti_test
