// SPDX-License-Identifier: Apache-2.0
#include "engine/cbor.hpp"

namespace tutti::core {
namespace {

using Json = nlohmann::json;
constexpr int most_levels = 8;

// Lets everything pass but depth.
class Levels : public Json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool key(std::string&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  bool too_deep = false;

 private:
  bool enter() {
    too_deep = ++levels_ > most_levels;
    return !too_deep;
  }
  bool leave() {
    --levels_;
    return true;
  }
  int levels_ = 0;
};

}  // namespace

Json read_cbor(const std::string& bytes) {
  Levels levels;
  Json::sax_parse(bytes.begin(), bytes.end(), &levels, Json::input_format_t::cbor);
  if (levels.too_deep) throw Json::other_error::create(501, "nested too deeply", static_cast<const Json*>(nullptr));
  return Json::from_cbor(bytes);
}

}  // namespace tutti::core
