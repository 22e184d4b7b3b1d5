// SPDX-License-Identifier: Apache-2.0
//
// fuzz_NAME FOLDER [MUTATIONS]: runs a fuzz target, without libFuzzer, on each file of its corpus and on seeded
// mutations of it (default 2000 in all). A finding ends the program; it first says which file and mutation. fuzz_NAME
// FILE runs one.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kLongest = 4096;
std::string current;

void run(const std::string& name, const Bytes& input) {
  current = "fuzz finding in " + name + "\n";
  // Its own memory of just this size, so that sanitizers see a read behind the end.
  const Bytes exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void tell(int signal) {
  [[maybe_unused]] const auto written = ::write(2, current.data(), current.size());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Bytes mutate(const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Bytes made = corpus[below(corpus.size())];
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    if (made.empty()) made.push_back(0);
    const size_t at = below(made.size());
    switch (below(5)) {
      case 0:
        made[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        made[at] = static_cast<uint8_t>(random());
        break;
      case 2: {  // lengths and counts at their limits
        const uint64_t values[] = {0, 0xff, 0xffff, 0x7fffffff, 0xffffffff, UINT64_MAX};
        const uint64_t value = values[below(6)];
        for (size_t i = 0; i < 8 && at + i < made.size(); ++i) made[at + i] = static_cast<uint8_t>(value >> (8 * i));
        break;
      }
      case 3:
        made.resize(at);
        break;
      default: {  // the end of another one
        const Bytes& other = corpus[below(corpus.size())];
        if (!other.empty())
          made.insert(made.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())), other.end());
      }
    }
    if (made.size() > kLongest) made.resize(kLongest);
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc < 2 || !fs::exists(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER|FILE [MUTATIONS]\n", argv[0]);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGILL, SIGTRAP, SIGFPE, SIGSEGV, SIGBUS}) std::signal(signal, tell);
  if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
  const uint64_t mutations = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2000;
  std::vector<fs::path> files;
  if (fs::is_directory(argv[1]))
    for (const auto& entry : fs::directory_iterator(argv[1])) files.push_back(entry.path());
  else
    files.emplace_back(argv[1]);
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    run(file.string(), corpus.back());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: the corpus %s is empty\n", argv[0], argv[1]);
    return 1;
  }
  run("the empty input", {});
  constexpr uint64_t seed = 20240229;
  std::mt19937_64 random(seed);
  const bool one = files.size() == 1 && !fs::is_directory(argv[1]);
  for (uint64_t i = 0; i < mutations && !one; ++i)
    run("mutation " + std::to_string(i) + " of the corpus (seed " + std::to_string(seed) + ")", mutate(corpus, random));
  std::printf("%zu files and %llu mutations without a finding\n", corpus.size(),
              static_cast<unsigned long long>(one ? 0 : mutations));
  return 0;
}
