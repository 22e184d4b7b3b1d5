// SPDX-License-Identifier: Apache-2.0
#include "question.hpp"

#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <tutti/topology.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "texts/texts.hpp"

namespace info {
namespace {

// Calls function(text, &bytes) with a buffer that is large enough.
template <typename Function>
std::string text_of(const tutti::Communicator& comm, Function&& function) {
  std::string text(4096, '\0');
  for (;;) {
    uint64_t bytes = text.size();
    const tutti_status status = function(text.data(), &bytes);
    if (bytes > text.size()) {
      text.resize(bytes);
      continue;
    }
    if (status < 0) throw tutti::Error(status, tutti_comm_error(comm.handle()));
    text.resize(bytes > 0 ? bytes - 1 : 0);
    return text;
  }
}

// The `count` argument for a total of `bytes` bytes, as tutti-perf and nccl-tests count.
uint64_t count_of(const Explain& explain, uint32_t nranks) {
  constexpr uint32_t root = 0;
  const uint32_t blocks = std::max({tutti::block_count(explain.collective, nranks, root, root, TUTTI_BUFFER_IN),
                                    tutti::block_count(explain.collective, nranks, root, root, TUTTI_BUFFER_OUT)});
  return blocks == 0 ? 0 : explain.bytes / tutti::dtype_bytes(explain.dtype) / blocks;
}

std::string topology_text(const tutti::Communicator& comm) {
  return text_of(comm, [&](char* text, uint64_t* bytes) { return tutti_comm_topology(comm.handle(), text, bytes); });
}

// Collective. Connects all pairs. The transports that any of them was refused.
std::vector<std::string> refusals(const tutti::Communicator& comm) {
  const std::vector<uint8_t> out(comm.nranks());
  std::vector<uint8_t> in(comm.nranks());
  comm.all_to_all<uint8_t>(out, in);
  std::string mine;
  for (const std::string& line : texts::refusals(topology_text(comm))) mine += line + "\n";
  const uint64_t own_size = mine.size();
  uint64_t size = 0;
  comm.all_reduce<uint64_t>({&own_size, 1}, {&size, 1}, tutti::Op::max);
  mine.resize(size, '\n');
  std::string all(size * comm.nranks(), '\n');
  comm.all_gather<char>(mine, all);
  std::vector<std::string> lines;
  texts::add_refusals(lines, texts::refusals(all));
  return lines;
}

// Collective.
std::string topology_of(const tutti::Communicator& comm) {
  std::string text = topology_text(comm);
  try {
    for (const std::string& line : refusals(comm)) text += line + "\n";
  } catch (const tutti::Error& e) {
    text += std::string("  not all pairs of ranks connect: ") + e.what() + "\n";
  }
  return text;
}

Answer ask(const tutti::Communicator& comm, const Options& options) {
  Answer answer;
  answer.speaks = comm.rank() == 0;
  answer.nranks = comm.nranks();
  if (options.topology) answer.topology = topology_of(comm);
  if (!options.save.empty() || !options.svg.empty())
    answer.file = text_of(
        comm, [&](char* text, uint64_t* bytes) { return tutti_comm_topology_file(comm.handle(), text, bytes); });
  if (options.explain)
    answer.explanation = text_of(comm, [&](char* text, uint64_t* bytes) {
      return tutti_comm_explain(comm.handle(), options.explain->collective, count_of(*options.explain, comm.nranks()),
                                options.explain->dtype, text, bytes);
    });
  return answer;
}

// Of ranks that need not be there.
Answer ask_file(const Options& options) {
  const auto content = texts::content_of(options.file);
  if (!content || content->empty())
    throw std::runtime_error("cannot read the topology file \"" + options.file +
                             "\": " + (content ? "it is empty" : std::strerror(errno)));
  try {
    const tutti::TopologyFile file(*content);
    Answer answer;
    answer.speaks = true;
    answer.nranks = file.nranks();
    answer.file = *content;
    if (options.topology) answer.topology = file.text();
    if (options.explain)
      answer.explanation =
          file.explain(options.explain->collective, count_of(*options.explain, file.nranks()), options.explain->dtype);
    return answer;
  } catch (const std::exception& wrong) {
    throw std::runtime_error(options.file + ": " + wrong.what());
  }
}

Answer ask_threads(const Options& options, uint32_t nranks) {
  const std::string rendezvous = "local:tutti-info-" + std::to_string(getpid());
  std::vector<Answer> answers(nranks);
  std::vector<std::exception_ptr> errors(nranks);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        answers[rank] = ask(tutti::Communicator(rendezvous, rank, nranks), options);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return answers.front();
}

}  // namespace

Answer ask_ranks(const Options& options) {
  if (!options.file.empty()) return ask_file(options);
  if (options.nranks != 0) return ask_threads(options, options.nranks);
  {
    const tutti::Communicator launched;
    if (launched.nranks() > 1 || !options.explain) return ask(launched, options);
  }
  // One rank alone has no choice to explain.
  const uint32_t processors = std::max(2u, std::thread::hardware_concurrency());
  Answer answer = ask_threads(options, processors);
  answer.assumed = true;
  return answer;
}

}  // namespace info
