// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <tutti/base/system_text.hpp>

#include "base/make_failure.hpp"
#include "bootstrap/authentication.hpp"
#include "meeting.hpp"
#include "unique_id.hpp"

namespace tutti::core {
namespace {

// The file's text. Throws Discouraged when it is not there, or not to be trusted.
std::string read_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status = {};
  if (!file && out_of_resources(errno))
    throw make_failure(TUTTI_NO_RESOURCES, "bootstrap: {}: {}", path, system_text(errno));
  if (!file && errno == ENOENT) throw Discouraged{path + " is not there yet"};
  if (!file || ::fstat(file.get(), &status) != 0) throw Discouraged{path + ": " + system_text(errno)};
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    throw Discouraged{fmt::format("{} is not a file of user {}, so it is not trusted", path, ::geteuid())};
  std::string text(kMaxUniqueId + 1, '\0');
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n < 0) throw Discouraged{path + ": " + system_text(errno)};
  text.resize(static_cast<size_t>(n));
  return text;
}

// Rank 0's note in the folder, while this object lives.
class Note {
 public:
  Note(const std::string& folder, std::string text) : path_(folder + "/" + kFolderFile), text_(std::move(text)) {
    const std::string draft = path_ + "." + to_hex(random_bytes(8));
    const auto failed = [&](const char* what) {
      const int error = errno;
      ::unlink(draft.c_str());
      return make_failure(TUTTI_SYSTEM, "rank 0: bootstrap: {} {}: {}", what, draft, system_text(error));
    };
    const FileDescriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) throw failed("cannot create");
    if (::write(file.get(), text_.data(), text_.size()) != static_cast<ssize_t>(text_.size()) ||
        ::fsync(file.get()) != 0)
      throw failed("cannot write");
    if (::rename(draft.c_str(), path_.c_str()) != 0) throw failed("cannot rename");
  }
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;
  ~Note() {
    try {
      if (read_file(path_) == text_) ::unlink(path_.c_str());
    } catch (...) {  // it is not this rank's any more
    }
  }

 private:
  std::string path_, text_;
};

MeetingPlace read_note(const std::string& path, const std::string& job) {
  const std::string text = read_file(path);
  try {
    const MeetingPlace place = parse_id(text);
    return {place.addresses, path, place.secret, job, MeetingPlace::Trust::stale};
  } catch (const Failure& failure) {
    throw Discouraged{path + ": " + failure.text};
  }
}

}  // namespace

std::unique_ptr<Bootstrap> meet_in_folder(const Rendezvous& rendezvous, const Environment& environment,
                                          Deadline& deadline) {
  if (rendezvous.nranks == 1) return meet_nobody(environment.secret);
  const std::string folder = rendezvous.where.substr(5);
  const auto rank = static_cast<uint32_t>(rendezvous.rank);
  struct stat status = {};
  if (folder.empty() || ::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    throw make_failure(TUTTI_NOT_FOUND,
                       "rank {}: bootstrap: file:{} is not an existing folder: create one that "
                       "all ranks share",
                       rank, folder);
  const std::string path = folder + "/" + kFolderFile;
  if (rank != 0)
    return join_hub(
        rendezvous, path, [&] { return read_note(path, environment.job); }, deadline);
  auto [place, listener] = open_meeting_place();
  const Note note(folder, id_text(place));
  return open_hub(rendezvous, {{}, path, place.secret, environment.job, MeetingPlace::Trust::stale},
                  std::move(listener), deadline);
}

}  // namespace tutti::core
