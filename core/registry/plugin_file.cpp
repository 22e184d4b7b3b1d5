// SPDX-License-Identifier: Apache-2.0
#include "registry/plugin_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/base/system_text.hpp>

#include "base/failure.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Section = ElfW(Shdr);

constexpr const char* owners_setting = "TUTTI_PLUGIN_OWNERS";

template <typename Number>
bool among(const std::vector<Number>& numbers, Number number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

std::string folder_of(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Does this bit of a mode let others than the owner write the file, or replace what lies in the folder?
bool lets_write(const struct stat& status, mode_t bit) {
  return (status.st_mode & bit) && !(S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX));
}

void add_listed_users(std::vector<uid_t>& users) {
  const char* setting = host_config(owners_setting);
  const std::string_view text = setting ? setting : "";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    uid_t user = 0;
    const auto [stopped, code] = std::from_chars(text.data() + begin, text.data() + end, user);
    if (code != std::errc() || stopped != text.data() + end)
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("{}=\"{}\": expected numbers of users, separated by commas", owners_setting, text));
    users.push_back(user);
    begin = end + 1;
  }
}

// Why `path`, a plugin's file or the folder of one, is not to be trusted; "" when it is.
std::string distrust_one(const std::string& path, const Writers& trusted) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return fmt::format("{} cannot be examined: {}", path, system_text(errno));
  const char* kind = S_ISDIR(status.st_mode) ? "its folder" : "its file";
  const std::string mode = fmt::format("{:04o}", status.st_mode & 07777);
  if (!among(trusted.users, status.st_uid))
    return fmt::format(
        "{} {} belongs to user {}, but this process runs as user {} and loads only what belongs to that user, to root "
        "or "
        "to the owner of Tutti's library: make one of them the owner (chown), or, if you trust user {}, set {}={}",
        kind, path, status.st_uid, ::geteuid(), status.st_uid, owners_setting, status.st_uid);
  if (lets_write(status, S_IWOTH) && !trusted.everybody)
    return fmt::format("{} {} has mode {}, so that every user could have put code there: chmod o-w '{}'", kind, path,
                       mode, path);
  if (lets_write(status, S_IWGRP) && !among(trusted.groups, status.st_gid))
    return fmt::format("{} {} has mode {}, so that every member of group {} could have put code there: chmod g-w '{}'",
                       kind, path, mode, status.st_gid, path);
  return {};
}

// A file of which each read is checked against its size.
class Image {
 public:
  Image(int fd, uint64_t bytes) : fd_(fd), bytes_(bytes) {}
  uint64_t bytes() const { return bytes_; }
  // False: [at, at + sizeof value) is not all in the file.
  template <typename Value>
  bool read(uint64_t at, Value& value) const {
    if (sizeof value > bytes_ || at > bytes_ - sizeof value) return false;
    return ::pread(fd_, &value, sizeof value, static_cast<off_t>(at)) == static_cast<ssize_t>(sizeof value);
  }

 private:
  int fd_;
  uint64_t bytes_;
};

// The end of `count` entries of `size` bytes from `begin`; the largest number when the sum overflows.
uint64_t end_of(uint64_t begin, uint64_t count, uint64_t size) {
  uint64_t bytes = 0, end = 0;
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(begin, bytes, &end))
    return std::numeric_limits<uint64_t>::max();
  return end;
}

// The ELF header of the code that runs here, which is mapped with it. This process can load files of the same form.
const Header* own_header() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&own_header), &info) || !info.dli_fbase) return nullptr;
  return static_cast<const Header*>(info.dli_fbase);
}

std::string cut_off(uint64_t has, uint64_t needs) {
  return fmt::format(
      "it is cut off or damaged: it has {} bytes, and its ELF headers describe {}; install it again (was the disk "
      "full?)",
      has, needs);
}

std::string wrong_form(const Header& header) {
  const Header* own = own_header();
  if (!own) return {};  // dlopen then judges
  if (header.e_ident[EI_CLASS] != own->e_ident[EI_CLASS] || header.e_ident[EI_DATA] != own->e_ident[EI_DATA] ||
      header.e_machine != own->e_machine)
    return fmt::format(
        "it is for another machine: its ELF class, byte order and machine are {}, {} and {}; this process needs {}, {} "
        "and {}",
        header.e_ident[EI_CLASS], header.e_ident[EI_DATA], header.e_machine, own->e_ident[EI_CLASS],
        own->e_ident[EI_DATA], own->e_machine);
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Segment) || header.e_phnum == 0)
    return fmt::format(
        "it is not a shared library: expected ELF type {} with program headers of {} bytes, got type {} with {} of {} "
        "bytes",
        ET_DYN, sizeof(Segment), header.e_type, header.e_phnum, header.e_phentsize);
  return {};
}

// The end of the section headers. A count that does not fit the header is in the first of them.
uint64_t end_of_sections(const Image& image, const Header& header) {
  if (header.e_shoff == 0) return 0;
  uint64_t count = std::max<uint64_t>(1, header.e_shnum);
  Section first{};
  if (header.e_shnum == 0 && image.read(header.e_shoff, first)) count = std::max<uint64_t>(1, first.sh_size);
  return end_of(header.e_shoff, count, header.e_shentsize);
}

std::string defect_of(const Image& image) {
  unsigned char magic[SELFMAG] = {};
  if (!image.read(0, magic) || std::memcmp(magic, ELFMAG, SELFMAG) != 0)
    return fmt::format("it is not a shared library: its {} bytes do not begin as an ELF file does", image.bytes());
  Header header{};
  if (!image.read(0, header)) return cut_off(image.bytes(), sizeof header);
  if (std::string reason = wrong_form(header); !reason.empty()) return reason;
  const uint64_t headers_end = end_of(header.e_phoff, header.e_phnum, sizeof(Segment));
  uint64_t needs = std::max(headers_end, end_of_sections(image, header));
  if (headers_end > image.bytes()) return cut_off(image.bytes(), needs);
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!image.read(header.e_phoff + i * sizeof segment, segment)) return "it cannot be read";
    if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz)
      return fmt::format("it is damaged: segment {} has {} bytes in the file and {} in memory; install it again", i,
                         segment.p_filesz, segment.p_memsz);
    if (segment.p_type != PT_NULL && segment.p_filesz > 0)
      needs = std::max(needs, end_of(segment.p_offset, 1, segment.p_filesz));
  }
  return needs > image.bytes() ? cut_off(image.bytes(), needs) : "";
}

}  // namespace

Writers writers_of(const std::string& file) {
  Writers writers;
  for (const std::string& path : {file, folder_of(file)}) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) continue;
    writers.users.push_back(status.st_uid);
    if (lets_write(status, S_IWGRP)) writers.groups.push_back(status.st_gid);
    writers.everybody |= lets_write(status, S_IWOTH);
  }
  return writers;
}

Writers trusted_writers(const std::string& library) {
  Writers trusted = writers_of(library);
  trusted.users.insert(trusted.users.end(), {0, ::geteuid()});
  add_listed_users(trusted.users);
  trusted.groups.insert(trusted.groups.end(), trusted.users.begin(), trusted.users.end());
  return trusted;
}

std::string distrust(const std::string& file, const Writers& trusted) {
  std::string reason = distrust_one(file, trusted);
  return reason.empty() ? distrust_one(folder_of(file), trusted) : reason;
}

std::string defect(const std::string& file) {
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return fmt::format("it cannot be read: {}", system_text(errno));
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  return defect_of(Image(fd.get(), static_cast<uint64_t>(status.st_size)));
}

}  // namespace tutti::core
