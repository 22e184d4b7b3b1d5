// SPDX-License-Identifier: Apache-2.0
#include "xml.hpp"

#include <expat.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <memory>

#include "plan.hpp"

namespace tutti::plans {
namespace {

constexpr size_t most_attributes = 32;
// One document on its way through expat, whose calls no exception may leave.
class Document {
 public:
  Document(const std::string& file, const ElementHandlers& handlers) : file_(file), handlers_(handlers) {
    if (!parser_) throw sdk::Error(TUTTI_NO_RESOURCES, "out of memory");
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(
        parser_.get(),
        [](void* self, const char* name, const char** attributes) {
          static_cast<Document*>(self)->guarded([&](Document& d) { d.begin(name, attributes); });
        },
        [](void* self, const char*) {
          static_cast<Document*>(self)->guarded([](Document& d) { d.handlers_.end(--d.depth_); });
        });
    XML_SetStartDoctypeDeclHandler(parser_.get(), [](void* self, const char*, const char*, const char*, int) {
      static_cast<Document*>(self)->guarded([](Document& d) {
        throw wrong(d.file_, d.line(), "has a document type (<!DOCTYPE), which a plan may not have: remove it");
      });
    });
  }

  void read(std::string_view text) {
    const XML_Status status = XML_Parse(parser_.get(), text.data(), static_cast<int>(text.size()), 1);
    if (failure_) std::rethrow_exception(failure_);
    if (status != XML_STATUS_OK)
      throw wrong(file_, line(), "is not XML: {}", XML_ErrorString(XML_GetErrorCode(parser_.get())));
  }

 private:
  struct Free {
    void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
  };

  uint64_t line() const { return XML_GetCurrentLineNumber(parser_.get()); }

  void begin(const char* name, const char** attributes) {
    Element element(file_, line(), name, attributes);
    handlers_.begin(element, depth_++);
  }
  template <typename Body>
  void guarded(Body&& body) noexcept {
    if (failure_) return;  // expat may still report what it has read
    try {
      body(*this);
    } catch (...) {
      failure_ = std::current_exception();
      XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  const std::string& file_;
  const ElementHandlers& handlers_;
  std::unique_ptr<XML_ParserStruct, Free> parser_{XML_ParserCreate(nullptr)};
  std::exception_ptr failure_;
  uint32_t depth_ = 0;
};

}  // namespace

Element::Element(const std::string& file, uint64_t line, std::string name, const char** attributes)
    : file_(file), line_(static_cast<uint32_t>(line)), name_(std::move(name)) {
  for (; *attributes; attributes += 2) {
    if (attributes_.size() == most_attributes) refuse(fmt::format("has more than {} attributes", most_attributes));
    attributes_.push_back({attributes[0], attributes[1], false});
  }
}

void Element::refuse(const std::string& why) const { throw wrong(file_, line_, "<{}> {}", shown(name_), why); }

const std::string* Element::find(std::string_view attribute) {
  const auto found = std::ranges::find(attributes_, attribute, &Attribute::name);
  if (found == attributes_.end()) return nullptr;
  found->used = true;
  return &found->value;
}

std::string Element::text(const char* attribute) {
  if (const std::string* value = find(attribute)) return *value;
  refuse(fmt::format("has no attribute \"{}\"", attribute));
}

int64_t Element::number(const char* attribute, int64_t low, int64_t high) {
  const std::string value = text(attribute);
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || rest != end || number < low || number > high)
    refuse(fmt::format("{}=\"{}\": expected a whole number from {} to {}", attribute, shown(value), low, high));
  return number;
}

int64_t Element::number(const char* attribute, int64_t low, int64_t high, int64_t without) {
  return find(attribute) ? number(attribute, low, high) : without;
}

void Element::no_others() const {
  for (const Attribute& attribute : attributes_)
    if (!attribute.used) refuse(fmt::format("has the unknown attribute \"{}\"", shown(attribute.name)));
}

void read_xml(const std::string& file, std::string_view text, const ElementHandlers& handlers) {
  Document(file, handlers).read(text);
}

}  // namespace tutti::plans
