// SPDX-License-Identifier: Apache-2.0
#include "record/call_site.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

namespace tutti::core {
namespace {

struct GivenSite {
  bool there = false;
  CallSite::Text text{};
};
thread_local GivenSite given;

CallSite::Text text_of(std::string_view from) {
  constexpr std::string_view cut = "...";
  CallSite::Text text{};
  const size_t room = text.size() - 1;
  if (from.size() > room) {
    std::ranges::copy(cut, text.begin());
    from.remove_prefix(from.size() - (room - cut.size()));
    std::ranges::copy(from, text.begin() + cut.size());
  } else {
    std::ranges::copy(from, text.begin());
  }
  std::replace_if(
      text.begin(), text.begin() + std::min(from.size() + cut.size(), room), [](char c) { return c > 0 && c < ' '; },
      '?');
  return text;
}

// The file that an address belongs to; nullptr: none.
const void* image_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) ? info.dli_fbase : nullptr;
}

// The functions of tutti.hpp, and lambdas in them, are compiled into the program and call the library for it.
bool is_wrapper(std::string_view symbol) {
  constexpr std::string_view beginnings[] = {"_ZN5tutti", "_ZNK5tutti", "_ZZN5tutti", "_ZZNK5tutti"};
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return symbol.starts_with(beginning); });
}

// "step(int)" without its arguments.
std::string name_of(const char* symbol) {
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr),
                                                        std::free);
  if (!readable) return symbol;
  const std::string name = readable.get();
  return name.find("(anonymous") == std::string::npos && name.find("operator") == std::string::npos
             ? name.substr(0, name.find('('))
             : name;
}

struct Search {
  const void* library;
  Dl_info info{};
  uintptr_t address = 0;  // 0: not found
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* of) {
  Search& search = *static_cast<Search*>(of);
  const uintptr_t address = _Unwind_GetIP(context);
  Dl_info info{};
  // The call is before the address, which may be the next function's where the call does not return.
  if (address == 0 || !dladdr(reinterpret_cast<void*>(address - 1), &info)) return _URC_END_OF_STACK;
  if (info.dli_fbase == search.library || (info.dli_sname && is_wrapper(info.dli_sname))) return _URC_NO_REASON;
  search.info = info;
  search.address = address;
  return _URC_END_OF_STACK;
}

std::string site_of_stack() {
  static const void* const library = image_of(reinterpret_cast<const void*>(&text_of));
  static const void* const program = image_of(reinterpret_cast<const void*>(getauxval(AT_ENTRY)));
  if (library == program) return {};
  Search search{library};
  _Unwind_Backtrace(visit, &search);
  if (!search.address) return {};
  const Dl_info& info = search.info;
  const auto offset = [&](const void* from) { return search.address - reinterpret_cast<uintptr_t>(from); };
  if (info.dli_sname) return fmt::format("{}+{:#x}", name_of(info.dli_sname), offset(info.dli_saddr));
  const std::string_view path = info.dli_fname ? info.dli_fname : "";
  return fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1), offset(info.dli_fbase));
}

}  // namespace

void CallSite::give(const char* text) noexcept {
  given.there = text != nullptr;
  if (text) given.text = text_of(text);
}

bool CallSite::is_given() noexcept { return given.there; }

CallSite::Text CallSite::find() noexcept try {
  return given.there ? given.text : text_of(site_of_stack());
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace tutti::core
