// SPDX-License-Identifier: Apache-2.0
//
// XML by expat, as far as plans need it: elements with attributes and the lines that they stand in. Text, comments and
// processing instructions are skipped. A document type is refused, so that no entity can be declared and grow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::plans {

// The beginning of an element.
class Element {
 public:
  Element(const std::string& file, uint64_t line, std::string name, const char** attributes);

  const std::string& name() const { return name_; }
  uint32_t line() const { return line_; }
  // Each throws an Error with the place where the attribute is absent or wrong.
  std::string text(const char* attribute);
  // A whole number, which may be negative.
  int64_t number(const char* attribute, int64_t low, int64_t high);
  int64_t number(const char* attribute, int64_t low, int64_t high, int64_t without);
  // All attributes that nothing has asked for are errors.
  void no_others() const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const std::string* find(std::string_view attribute);

  struct Attribute {
    std::string name, value;
    bool used;
  };
  const std::string& file_;
  uint32_t line_;
  std::string name_;
  std::vector<Attribute> attributes_;
};

struct ElementHandlers {
  std::function<void(Element& element, uint32_t depth)> begin;  // depth 0: the document's element
  std::function<void(uint32_t depth)> end;
};

// Throws an Error for what is no XML, and what a handler throws.
void read_xml(const std::string& file, std::string_view text, const ElementHandlers& handlers);

}  // namespace tutti::plans
