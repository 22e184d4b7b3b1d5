// SPDX-License-Identifier: Apache-2.0
//
// The parts of an endpoint that transports write alike: its place in a communicator, in words; arguments that can never
// be taken. Needs fmt (words.hpp).
#pragma once

#include <tutti/sdk/endpoint.hpp>
#include <tutti/sdk/words.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

class EndpointBase {
 public:
  EndpointBase(const EndpointBase&) = delete;
  EndpointBase& operator=(const EndpointBase&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }
  uint32_t lanes() const { return lanes_; }
  // "rank 3: net-tcp: text [communicator]"
  template <typename... Args>
  std::string says(fmt::format_string<const Args&...> format, const Args&... args) const {
    return fmt::format("rank {}: {}: {}{}", rank_, transport_, fmt::format(format, args...), name_);
  }
  template <typename... Args>
  Error error(tutti_status status, fmt::format_string<const Args&...> format, const Args&... args) const {
    return Error(status, says(format, args...));
  }
  template <typename... Args>
  void log(uint32_t level, fmt::format_string<const Args&...> format, const Args&... args) const {
    sdk::log(level, says(format, args...));
  }
  void log_mismatch(uint32_t peer, uint32_t lane, uint64_t bytes, uint32_t mark, uint64_t expected_bytes,
                    uint32_t expected_mark) const {
    log(TUTTI_LOG_ERROR,
        "a message of {} bytes from rank {} on lane {} met a receive of {} bytes{}: the two ranks run different "
        "operations",
        bytes, peer, lane, expected_bytes,
        mark == expected_mark ? "" : fmt::format(" (marks {:08x} and {:08x})", mark, expected_mark));
  }

 protected:
  // `transport` as texts name it: "net-tcp". Throws Error for a place that cannot be.
  EndpointBase(const char* transport, const tutti_endpoint_config& config, uint32_t max_lanes)
      : rank_(config.rank),
        nranks_(config.nranks),
        lanes_(config.lanes),
        transport_(transport),
        name_(config.name && *config.name ? fmt::format(" [{}]", config.name) : "") {
    if (rank_ >= nranks_ || lanes_ == 0 || lanes_ > max_lanes || config.traffic_class > 255)
      throw error(TUTTI_INVALID_ARGUMENT,
                  "open_endpoint with rank {} of {}, {} lanes (1 to {}) and traffic class {} (0 to 255)", rank_,
                  nranks_, lanes_, max_lanes, config.traffic_class);
  }
  ~EndpointBase() = default;

  void check_peer(uint32_t peer) const {
    if (peer >= nranks_ || peer == rank_)
      throw error(TUTTI_INVALID_ARGUMENT, "rank {} is not a peer of rank {} of {}", peer, rank_, nranks_);
  }
  // Throws Error where the transfer can never be taken, whatever becomes of its link.
  void check_shape(const tutti_transfer& t, uint64_t fragment_bytes, uint64_t inline_bytes) const {
    const bool send = t.kind == TUTTI_TRANSFER_SEND;
    if (!t.link || (!send && t.kind != TUTTI_TRANSFER_RECV) || t.lane >= lanes_ || (!t.data && t.bytes)) [[unlikely]]
      throw refusal(t, TUTTI_INVALID_ARGUMENT, "no link, no such kind or lane, or no memory");
    if (t.flags & ~TUTTI_TRANSFER_INLINE) [[unlikely]]
      throw refusal(t, TUTTI_NOT_SUPPORTED, "an unknown flag");
    if (t.bytes > fragment_bytes) [[unlikely]]
      throw refusal(t, TUTTI_INVALID_ARGUMENT, fmt::format("larger than fragment_bytes, {}", fragment_bytes));
    if ((t.flags & TUTTI_TRANSFER_INLINE) && (!send || t.bytes > inline_bytes)) [[unlikely]]
      throw refusal(t, TUTTI_INVALID_ARGUMENT,
                    fmt::format("INLINE is for sends of at most inline_bytes, {}", inline_bytes));
  }
  Error refusal(const tutti_transfer& t, tutti_status status, std::string_view why) const {
    return error(status, "{}: {}", describe(t, lanes_), why);
  }

 private:
  const uint32_t rank_, nranks_, lanes_;
  const char* const transport_;
  const std::string name_;
};

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
