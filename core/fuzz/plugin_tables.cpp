// SPDX-License-Identifier: Apache-2.0
//
// The tables that a plugin hands over, of any size and with anything in them: refused with a reason, or fit for use.
// Each lies in memory of just the size that it claims.
#include <cstddef>
#include <memory>
#include <vector>

#include "fuzz_input.hpp"
#include "registry/plugin_check.hpp"

using namespace tutti::core;

namespace {

// Bytes of which `Table` is the beginning, and the names that it points to.
template <typename Table>
class Claimed {
 public:
  explicit Claimed(FuzzInput& input) {
    uint32_t size = input.flag() ? sizeof(Table) : input.take<uint16_t>() % (2 * sizeof(Table));
    if (size < sizeof(uint32_t)) size = sizeof(uint32_t);
    memory_ = std::make_unique<uint64_t[]>((size + 7) / 8);
    std::memcpy(memory_.get(), &size, sizeof size);
    // Pointers are null or valid: no check can tell more.
    for (size_t at = 8; at + 8 <= size; at += 8)
      word(at) = input.byte() % 16 ? reinterpret_cast<uint64_t>(&function) : 0;
    size_ = size;
  }
  const Table* get() const { return reinterpret_cast<const Table*>(memory_.get()); }
  template <typename Field>
  void set(size_t offset, Field value) {
    if (offset + sizeof value <= size_)
      std::memcpy(reinterpret_cast<char*>(memory_.get()) + offset, &value, sizeof value);
  }
  void set_text(size_t offset, FuzzInput& input) {
    if (input.byte() % 16 == 0) return set<const char*>(offset, nullptr);
    names_.push_back(std::make_unique<std::string>(input.text()));
    set(offset, names_.back()->c_str());
  }

 private:
  static void function() {}
  uint64_t& word(size_t offset) { return memory_[offset / 8]; }
  std::unique_ptr<uint64_t[]> memory_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<std::string>> names_;
};

void check_plugin_entry(FuzzInput& input) {
  Claimed<tutti_plugin_entry_table> entry(input);
  Claimed<tutti_plugin_info> info(input);
  for (const size_t text :
       {offsetof(tutti_plugin_info, id), offsetof(tutti_plugin_info, version), offsetof(tutti_plugin_info, vendor),
        offsetof(tutti_plugin_info, license), offsetof(tutti_plugin_info, summary)})
    info.set_text(text, input);
  entry.set(offsetof(tutti_plugin_entry_table, abi_major), uint32_t{input.byte() % 4u});
  entry.set(offsetof(tutti_plugin_entry_table, info), input.byte() % 16 ? info.get() : nullptr);
  if (!check_entry(entry.get()).empty()) return;
  const tutti_plugin_entry_table& good = *entry.get();
  FUZZ_CHECK(good.struct_size >= tutti_mandatory<tutti_plugin_entry_table>::bytes &&
             good.abi_major == TUTTI_ABI_MAJOR && good.init && good.get_interface);
  FUZZ_CHECK(good.info->id && *good.info->id && good.info->version && good.info->license);
}

// The table of a draft has its stamp behind its size, that of a stable interface 0.
template <typename Table>
Claimed<Table> stamped(FuzzInput& input, uint32_t stamp = 0) {
  Claimed<Table> table(input);
  table.set(sizeof(uint32_t), input.byte() % 16 ? stamp : input.take<uint32_t>());
  return table;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  switch (input.byte() % 4) {
    case 0:
      check_plugin_entry(input);
      break;
    case 1: {
      auto table = stamped<tutti_transport>(input);
      table.set_text(offsetof(tutti_transport, name), input);
      if (!check_interface(table.get()).empty()) break;
      const tutti_transport& good = *table.get();
      FUZZ_CHECK(good.struct_size >= tutti_mandatory<tutti_transport>::bytes && good.reserved == 0 &&
                 *good.name);
      FUZZ_CHECK(good.query && good.post && good.progress && good.abort && good.get_interface);
      break;
    }
    case 2: {
      auto table = stamped<tutti_algorithm>(input);
      table.set_text(offsetof(tutti_algorithm, name), input);
      if (!check_interface(table.get()).empty()) break;
      const tutti_algorithm& good = *table.get();
      FUZZ_CHECK(good.struct_size >= tutti_mandatory<tutti_algorithm>::bytes && good.supports && good.schedule &&
                 *good.name);
      break;
    }
    default: {
      const auto view = stamped<tutti_view>(input);
      const auto wait = stamped<tutti_wait_fd>(input);
      tutti_transport transport{};
      transport.name = "fuzz";
      const bool with_view = input.byte() % 4, with_wait = input.byte() % 4;
      const auto rails = stamped<tutti_rails>(input);
      const bool with_rails = input.byte() % 4;
      const auto mapped = stamped<tutti_mapped>(input, TUTTI_MAPPED_STAMP);
      const bool with_mapped = input.byte() % 4;
      if (!check_optional(transport, with_view ? view.get() : nullptr, with_wait ? wait.get() : nullptr,
                          with_rails ? rails.get() : nullptr, with_mapped ? mapped.get() : nullptr)
               .empty())
        break;
      FUZZ_CHECK(!with_view || (view.get()->try_receive && view.get()->commit));
      FUZZ_CHECK(!with_wait || (wait.get()->get_fd && wait.get()->disarm));
      FUZZ_CHECK(!with_rails || rails.get()->of_host);
      FUZZ_CHECK(!with_mapped || (mapped.get()->share && mapped.get()->decline));
    }
  }
  return 0;
}
