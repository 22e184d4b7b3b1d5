// SPDX-License-Identifier: Apache-2.0
//
// meeting_test PLUGIN.so [alone WORD...]: run by a launcher with three ranks, each of which checks the plugin's
// meeting/1 in the same order; the first thing that does not hold ends the job. alone: without a launcher, where open
// refuses with a text that has the words.
#include <dlfcn.h>
#include <tutti/plugin/meeting.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace {

const tutti_meeting* meeting = nullptr;
std::string error;  // the plugin's last one
uint32_t rank = 0;

const tutti_host host{sizeof(tutti_host),
                      TUTTI_ABI_MAJOR,
                      TUTTI_ABI_MINOR,
                      0,
                      nullptr,
                      [](void*, const tutti_log_record* record) { std::fprintf(stderr, "%s\n", record->text); },
                      [](void*, const char* key) -> const char* { return std::getenv(key); },
                      [](void*, tutti_status, const char* text) { error = text; },
                      [](void*, const char*, const char*) -> const void* { return nullptr; },
                      [](void*, const char*) -> uint32_t { return UINT32_MAX; }};

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "rank %u: does not hold: %s; the plugin's last words: %s\n", rank, what.c_str(), error.c_str());
  std::_Exit(1);
}

void expect_error(tutti_status status, tutti_status expected, const std::string& word) {
  expect(status == expected, "status " + std::to_string(expected) + ", not " + std::to_string(status));
  expect(error.find(word) != std::string::npos, "\"" + word + "\" is in the text");
}

void load(const char* file) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) error = ::dlerror();
  expect(library, "the plugin can be loaded");
  const auto* entry = static_cast<const tutti_plugin_entry_table*>(::dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
  expect(entry && entry->init(&host) == TUTTI_OK, "the plugin starts");
  meeting = static_cast<const tutti_meeting*>(entry->get_interface(TUTTI_MEETING_ID, 0));
  expect(meeting && meeting->reserved == 0, "it has meeting/1");
}

tutti_meeting_config configuration(const char* place = "") {
  return {sizeof(tutti_meeting_config), 0, 0, 0, place, "test", 20'000'000'000};
}

struct Opened {
  tutti_room* room = nullptr;
  uint32_t rank = 0, nranks = 0;
  tutti_status status;
  explicit Opened(const tutti_meeting_config& config) {
    status = meeting->open(meeting->self, &config, &room, &rank, &nranks);
  }
  ~Opened() {
    if (status == TUTTI_OK) meeting->close(room);
  }
};

void gathers() {
  for (int again = 0; again < 3; ++again) {
    Opened opened(configuration());
    expect(opened.status == TUTTI_OK && opened.nranks == 3 && opened.rank < 3, "three ranks meet");
    rank = opened.rank;
    for (const size_t bytes : {size_t{1}, size_t{8}, size_t{1024}, size_t{5000}}) {
      // Zeros at the end, at the begin, and everywhere: they may be left out on the way.
      std::vector<unsigned char> mine(bytes), all(3 * bytes);
      for (size_t i = 0; i < bytes; ++i)
        mine[i] = i < bytes / 4 || i > bytes / 2 ? 0 : static_cast<unsigned char>(i + rank);
      if (bytes == 5000)
        for (size_t i = 0; i < bytes; ++i) mine[i] = static_cast<unsigned char>(i * 7 + rank);
      expect(meeting->all_gather(opened.room, mine.data(), bytes, all.data()) == TUTTI_OK, "a gather");
      expect(std::memcmp(all.data() + rank * bytes, mine.data(), bytes) == 0, "it has this rank's bytes");
      if (bytes == 5000)
        for (size_t i = 0; i < 3 * bytes; ++i)
          expect(all[i] == static_cast<unsigned char>(i % bytes * 7 + i / bytes), "it has all ranks' bytes");
    }
  }
}

void refusals() {
  expect_error(Opened(configuration("somewhere")).status, TUTTI_INVALID_ARGUMENT, "the place \"somewhere\"");
  tutti_meeting_config wrong = configuration();
  wrong.rank = (rank + 1) % 3;
  wrong.nranks = 3;
  expect_error(Opened(wrong).status, TUTTI_MISMATCH, "expected rank " + std::to_string(wrong.rank) + " of 3");
  wrong.rank = rank;
  wrong.nranks = 4;
  expect_error(Opened(wrong).status, TUTTI_MISMATCH, "of 4");
  Opened first(configuration());
  expect(first.status == TUTTI_OK, "a meeting after refused ones");
  expect_error(Opened(configuration()).status, TUTTI_INVALID_USAGE, "another communicator of this process");
  // Different sizes.
  std::vector<char> mine(16, 'x'), all(48);
  expect_error(meeting->all_gather(first.room, mine.data(), rank == 0 ? 8 : 16, all.data()), TUTTI_MISMATCH, "bytes");
}

void failures() {
  {
    Opened given_up(configuration());
    char mine = 'x', all[3];
    if (rank == 1)
      meeting->abort(given_up.room);
    else
      expect_error(meeting->all_gather(given_up.room, &mine, 1, all), TUTTI_ABORTED, "rank 1 has given the meeting up");
  }
  {
    Opened again(configuration());
    char mine = 'x', all[3];
    expect(meeting->all_gather(again.room, &mine, 1, all) == TUTTI_OK, "a gather after an abort");
  }
  tutti_meeting_config hasty = configuration();
  hasty.timeout_ns = 500'000'000;
  Opened opened(hasty);
  char mine = 'x', all[3];
  if (rank == 2)
    ::sleep(2);  // longer than the others wait
  else
    expect(meeting->all_gather(opened.room, &mine, 1, all) == TUTTI_TIMEOUT, "a deadline that passes");
}

}  // namespace

int main(int argc, char** argv) {
  expect(argc > 1, "arguments: PLUGIN.so [alone WORD...]");
  load(argv[1]);
  if (argc > 2) {
    for (int i = 3; i < argc; ++i) expect_error(Opened(configuration()).status, TUTTI_NOT_FOUND, argv[i]);
    return argc > 3 ? 0 : 1;
  }
  gathers();
  refusals();
  failures();
  if (rank == 0) std::printf("3 ranks: all cases hold\n");
  return 0;
}
