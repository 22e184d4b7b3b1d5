// SPDX-License-Identifier: Apache-2.0
#include "topology/rank_description.hpp"

#include <fmt/format.h>
#include <tutti/plugin/transport.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "base/failure.hpp"
#include "topology/rank_json.hpp"

namespace tutti::core {
namespace {

// The fields of what a rank tells of itself, for Writer and Reader alike.
template <typename Side, typename Offer>
void offer_fields(Side& side, Offer& offer) {
  side.text("name", offer.name);
  side.text("version", offer.version);
  side.number("reach", offer.reach, TUTTI_REACH_PROCESS, TUTTI_REACH_NETWORK);
  side.text("fabric", offer.fabric);
  side.number("fragment", offer.fragment_bytes, 64);
  side.number("latency", offer.latency_ns);
  side.number("maps", offer.maps, 0, 1);
  side.number("bandwidth", offer.bandwidth);
  side.list("rails", offer.rails);
}
template <typename Side, typename LeftOut>
void left_out_fields(Side& side, LeftOut& out) {
  side.text("name", out.name);
  side.reason("why", out.why);
}
template <typename Side, typename Device>
void device_fields(Side& side, Device& device) {
  side.text("kind", device.kind);
  side.number("index", device.index);
  side.text("id", device.id);
  side.text("pci", device.pci);
  side.node("numa", device.numa);
  side.number("latency", device.link_latency_ns);
  side.number("bandwidth", device.link_bandwidth);
  side.number("copies", device.copy_bandwidth);
}
template <typename Side, typename Rank>
void rank_fields(Side& side, Rank& rank) {
  side.text("host", rank.host);
  side.number("place", rank.place);
  side.reason("apart", rank.apart);
  side.number("process", rank.process);
  side.number("instance", rank.instance);
  side.number("cores", rank.cores, 1, 1u << 20);
  side.processors("processors", rank.processors, rank.cores);
  side.node("numa", rank.numa);
  side.device("device", rank.device);
  side.list("transports", rank.transports);
  side.list("left out", rank.left_out);
}

constexpr size_t longest_text = 256;
// Texts are printed, and a terminal would obey these.
bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }

class Writer {
 public:
  template <typename Number>
  void number(const char* key, Number value, uint64_t = 0, uint64_t = 0) {
    object[key] = value;
  }
  void node(const char* key, int32_t node) { object[key] = node + 1; }  // 0: not known
  void text(const char* key, const std::string& value) { object[key] = value; }
  // Cut to the length that a reader takes. Single bytes only, so that no character is cut in two.
  void reason(const char* key, std::string words) {
    std::ranges::replace_if(
        words, [](char c) { return is_control(c) || static_cast<unsigned char>(c) > 126; }, '?');
    object[key] = words.substr(0, longest_text);
  }
  // In hexadecimal digits, processor 0 in the last one.
  void processors(const char* key, const Processors& value, uint32_t) {
    std::string digits;
    for (size_t digit = value.size() / 4; digit-- > 0;) {
      const auto four = ((value >> (4 * digit)) & Processors(15)).to_ulong();
      if (four || !digits.empty()) digits += "0123456789abcdef"[four];
    }
    object[key] = digits;
  }
  void device(const char* key, const DeviceDescription& device) {
    Writer inner;
    if (!device.kind.empty()) device_fields(inner, device);
    object[key] = inner.object;  // null: none
  }
  void list(const char* key, const std::vector<std::string>& texts) { object[key] = texts; }
  void list(const char* key, const std::vector<TransportOffer>& offers) {
    object[key] = Json::array();
    for (const TransportOffer& offer : offers) {
      Writer inner;
      offer_fields(inner, offer);
      object[key].push_back(inner.object);
    }
  }
  void list(const char* key, const std::vector<TransportLeftOut>& all) {
    object[key] = Json::array();
    for (const TransportLeftOut& out : all) {
      Writer inner;
      left_out_fields(inner, out);
      object[key].push_back(inner.object);
    }
  }
  Json object;
};

// An impossible value is a Failure that names the rank.
class Reader {
 public:
  Reader(uint32_t rank, const Json& object) : rank_(rank), object_(object) {}

  template <typename Number>
  void number(const char* key, Number& value, uint64_t least = 0,
              uint64_t most = std::numeric_limits<Number>::max()) const {
    const Json& said = object_.at(key);
    if (!said.is_number_unsigned() || said.get<uint64_t>() < least || said.get<uint64_t>() > most)
      refuse(key, fmt::format("a whole number from {} to {}", least, most), said);
    value = static_cast<Number>(said.get<uint64_t>());
  }
  void node(const char* key, int32_t& node) const {
    constexpr uint32_t most_nodes = 1 << 16;
    uint32_t code = 0;
    number(key, code, 0, most_nodes);
    node = static_cast<int32_t>(code) - 1;
  }
  void text(const char* key, std::string& value) const { value = printable(key, object_.at(key)); }
  void reason(const char* key, std::string& words) const { text(key, words); }
  void processors(const char* key, Processors& value, uint32_t cores) const {
    const std::string digits = printable(key, object_.at(key));  // at most 256
    value.reset();
    for (const char digit : digits) {
      const size_t four = std::string_view("0123456789abcdef").find(digit);
      if (four == std::string_view::npos) refuse(key, "hexadecimal digits, a bit for each processor", digits);
      value = value << 4 | Processors(four);
    }
    if (value.any() && value.count() != cores)
      refuse(key, fmt::format("as many processors as \"cores\", {}", cores), digits);
  }
  void device(const char* key, DeviceDescription& device) const {
    if (object_.at(key).is_null()) return;
    Reader inner(rank_, object_.at(key));
    device_fields(inner, device);
    if (device.kind.empty()) refuse("kind", "a text that is not empty", "");
  }
  void list(const char* key, std::vector<std::string>& texts) const {
    for (const Json& text : array(key)) texts.push_back(printable(key, text));
  }
  void list(const char* key, std::vector<TransportOffer>& offers) const {
    for (const Json& one : array(key)) {
      Reader inner(rank_, one);
      offer_fields(inner, offers.emplace_back());
      const auto same = [&](const TransportOffer& other) { return other.name == offers.back().name; };
      if (std::ranges::count_if(offers, same) > 1) refuse(key, "transports of different names", offers.back().name);
    }
  }
  void list(const char* key, std::vector<TransportLeftOut>& all) const {
    for (const Json& one : array(key)) {
      Reader inner(rank_, one);
      left_out_fields(inner, all.emplace_back());
    }
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& expected, const Json& got) const {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} describes itself with an impossible \"{}\": expected {}, got {}", rank_, key,
                              expected, got.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80)));
  }
  const Json& array(const char* key) const {
    constexpr size_t most = 64;
    const Json& said = object_.at(key);
    if (!said.is_array() || said.size() > most) refuse(key, fmt::format("a list of at most {}", most), said);
    return said;
  }
  std::string printable(const char* key, const Json& said) const {
    const auto fits = [](const std::string& text) {
      return text.size() <= longest_text && std::ranges::none_of(text, is_control);
    };
    if (!said.is_string() || !fits(said.get<std::string>()))
      refuse(key, fmt::format("a text of at most {} bytes without control characters", longest_text), said);
    return said.get<std::string>();
  }
  const uint32_t rank_;
  const Json& object_;
};

}  // namespace

std::string encode(const RankDescription& rank) {
  Writer writer;
  rank_fields(writer, rank);
  return encode_json(writer.object);
}

RankDescription decode_rank(const std::string& bytes, uint32_t number) {
  try {
    const Json whole = decode_json(bytes);
    RankDescription rank;
    Reader reader(number, whole);
    rank_fields(reader, rank);
    return rank;
  } catch (const Json::exception& e) {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} sent no description of itself ({}): is it another version?", number, e.what()));
  }
}

}  // namespace tutti::core
