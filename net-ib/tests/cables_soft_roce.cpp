// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netpacket/packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "ib_ranks.hpp"

namespace tutti_test {

bool cables_are_here() { return std::getenv("RDMA_VM") != nullptr; }
bool cables_are_modelled() { return false; }
uint64_t packets(int interface) {
  uint64_t n = 0;
  std::ifstream("/sys/class/net/v" + std::to_string(interface) + "/statistics/tx_packets") >> n;
  return n;
}
void cable(int rail, const std::string& state) {
  ASSERT_EQ(std::system(("/run/cable " + std::to_string(rail) + " " + state).c_str()), 0);
}
void lose_everything(bool on) {
  ASSERT_EQ(std::system(on ? "tc qdisc add dev v0 root netem loss 100%" : "tc qdisc del dev v0 root"), 0);
}
std::function<int()> watch_traffic_class() {
  struct Watch {
    int fd = ::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, htons(ETH_P_IP));
    ~Watch() { close(fd); }
  };
  const auto watch = std::make_shared<Watch>();
  sockaddr_ll end{};
  end.sll_family = AF_PACKET;
  end.sll_protocol = htons(ETH_P_IP);
  end.sll_ifindex = static_cast<int>(if_nametoindex("v1"));
  EXPECT_EQ(bind(watch->fd, reinterpret_cast<sockaddr*>(&end), sizeof end), 0);
  return [watch] {
    int found = -1;
    iphdr header{};
    while (recv(watch->fd, &header, sizeof header, 0) >= static_cast<ssize_t>(sizeof header))
      if (header.protocol == IPPROTO_UDP && header.saddr == inet_addr("10.1.0.1")) found = header.tos;
    return found;
  };
}
void renew_cables(bool dma_buf) {
  if (dma_buf)
    unsetenv("WITHOUT_DMA_BUF");
  else
    setenv("WITHOUT_DMA_BUF", "1", 1);
}

}  // namespace tutti_test
