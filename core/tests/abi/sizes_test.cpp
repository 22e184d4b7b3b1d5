// SPDX-License-Identifier: Apache-2.0
//
// Every sized struct of the ABI is given to the code that receives it: cut at its last mandatory field, as long as
// today, longer, and too short. The list of structs is the layout lock's: a new one without a row here fails.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <tutti/sized.hpp>
#include <vector>

#include "../harness/test_device.hpp"
#include "registry/host.hpp"
#include "registry/plugin_check.hpp"

namespace tutti::core {
namespace {

struct Answer {
  bool accepted;
  std::string text;
};

struct Row {
  std::string name;
  uint32_t mandatory, bytes;
  bool asks;  // a tail that is not zero asks for something; else it is more than the receiver needs
  std::vector<std::byte> whole;
  std::function<Answer(void*)> give;
};

template <typename Struct>
Row row(const Struct& whole, bool asks, std::function<Answer(Struct*)> give) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&whole);
  return {tutti_mandatory<Struct>::name,
          tutti_mandatory<Struct>::bytes,
          sizeof whole,
          asks,
          {bytes, bytes + sizeof whole},
          [give](void* given) { return give(static_cast<Struct*>(given)); }};
}

Answer judged(const std::string& reason) { return {reason.empty(), reason}; }
Answer of_plugin(tutti_status status) { return {status == TUTTI_OK, take_plugin_error()}; }

const tutti_transport* transport(const char* name) {
  std::string error;
  const tutti_transport* found = find_transport(name, &error);
  EXPECT_NE(found, nullptr) << error;
  return found;
}

template <typename Table>
const Table& optional_of(const tutti_transport* t, const char* id) {
  return *static_cast<const Table*>(t->get_interface(t->self, id));
}

// The log: it is written where nobody can hand a text back.
Answer logged(const std::function<tutti_status()>& call) {
  testing::internal::CaptureStderr();
  const tutti_status status = call();
  const std::string text = testing::internal::GetCapturedStderr();
  return {status == TUTTI_OK && text.find("struct_size") == std::string::npos, text};
}

tutti_comm* one_rank() {
  static tutti_comm* comm = nullptr;
  tutti_comm_config config{sizeof config};
  config.rendezvous = "local:sizes";
  config.nranks = 1;
  if (!comm) tutti_comm_create(&config, &comm);
  EXPECT_NE(comm, nullptr);
  return comm;
}
Answer of_comm(tutti_status status) { return {status == TUTTI_OK, tutti_comm_error(one_rank())}; }

const tutti_plugin_entry_table* entry_of(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
}

void add_plugin_structs(std::vector<Row>& rows) {
  const tutti_plugin_entry_table* entry = entry_of(TUTTI_SECOND_DEVICE);
  rows.push_back(row<tutti_plugin_entry_table>(*entry, true, [](auto* e) { return judged(check_entry(e)); }));
  rows.push_back(row<tutti_plugin_info>(*entry->info, true, [entry](auto* info) {
    tutti_plugin_entry_table other = *entry;
    other.info = info;
    return judged(check_entry(&other));
  }));
  rows.push_back(row<tutti_host>(*host_table(), false, [entry](auto* host) {
    const Answer answer = of_plugin(entry->init(host));
    entry->init(host_table());
    return answer;
  }));
  rows.push_back(row<tutti_log_record>(
      {sizeof(tutti_log_record), TUTTI_LOG_ERROR, "test", "a line"}, true,
      [](auto* r) { return logged([&] { return host_table()->log(nullptr, r), tutti_status{TUTTI_OK}; }); }));
}

tutti_status no_wrap(void*, const tutti_transport*, const tutti_transport**) { return TUTTI_NOT_SUPPORTED; }

void add_tables(std::vector<Row>& rows) {
  rows.push_back(row<tutti_wrapper>({sizeof(tutti_wrapper), TUTTI_WRAPPER_STAMP, nullptr, "nothing", no_wrap}, true,
                                    [](auto* w) { return judged(check_interface(w)); }));
  const tutti_transport *shm = transport("shm"), *tcp = transport("tcp");
  std::string error;
  const DeviceTables device = test::device();
  rows.push_back(row<tutti_transport>(*shm, true, [](auto* t) { return judged(check_interface(t)); }));
  rows.push_back(
      row<tutti_algorithm>(*find_algorithm("ring", &error), true, [](auto* a) { return judged(check_interface(a)); }));
  rows.push_back(row<tutti_device>(*device.memory, true, [](auto* d) { return judged(check_interface(d)); }));
  rows.push_back(row<tutti_executor>(*device.executor, true, [](auto* e) { return judged(check_interface(e)); }));
  rows.push_back(row<tutti_view>(optional_of<tutti_view>(shm, TUTTI_VIEW_ID), true, [shm](auto* view) {
    return judged(check_optional(*shm, view, nullptr, nullptr, nullptr));
  }));
  rows.push_back(row<tutti_wait_fd>(optional_of<tutti_wait_fd>(shm, TUTTI_WAIT_FD_ID), true, [shm](auto* wait) {
    return judged(check_optional(*shm, nullptr, wait, nullptr, nullptr));
  }));
  rows.push_back(row<tutti_rails>(optional_of<tutti_rails>(tcp, TUTTI_RAILS_ID), true, [shm](auto* rails) {
    return judged(check_optional(*shm, nullptr, nullptr, rails, nullptr));
  }));
}

// Two ranks of cuda-ipc in this process, connected.
struct MappedRank {
  std::deque<std::string> mail;  // pair messages to this rank
  MappedRank* peer = nullptr;
  tutti_domain* domain = nullptr;
  tutti_endpoint* endpoint = nullptr;
  tutti_link* link = nullptr;
  tutti_pair_messages pair{sizeof pair, 0, this, [](void* self, uint32_t, const void* data, uint64_t bytes) {
                             static_cast<MappedRank*>(self)->peer->mail.emplace_back(static_cast<const char*>(data),
                                                                                     bytes);
                             return tutti_status{TUTTI_OK};
                           }};

  void advance(const tutti_transport* t, uint32_t other) {
    for (; !mail.empty(); mail.pop_front())
      EXPECT_EQ(t->receive_pair(endpoint, other, mail.front().data(), mail.front().size()), TUTTI_OK);
    tutti_completion none[4];
    uint32_t n = 0;
    EXPECT_EQ(t->progress(endpoint, none, 4, &n), TUTTI_OK);
    EXPECT_GE(t->connect(endpoint, other, &link), 0) << take_plugin_error();
  }
};

// A link between them, for all tests.
tutti_link* mapped_link(const tutti_transport* t) {
  static MappedRank* ranks = nullptr;
  if (ranks) return ranks[0].link;
  ranks = new MappedRank[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks[rank].peer = &ranks[1 - rank];
    const tutti_domain_config of{sizeof of};
    EXPECT_EQ(t->open_domain(t->self, &of, &ranks[rank].domain), TUTTI_OK);
    const tutti_endpoint_config config{sizeof config, rank, 2, 1, "sizes", 7, &ranks[rank].pair};
    EXPECT_EQ(t->open_endpoint(ranks[rank].domain, &config, &ranks[rank].endpoint), TUTTI_OK);
  }
  for (int turn = 0; turn < 100'000 && !(ranks[0].link && ranks[1].link); ++turn)
    for (uint32_t rank = 0; rank < 2; ++rank) ranks[rank].advance(t, 1 - rank);
  EXPECT_NE(ranks[0].link, nullptr);
  return ranks[0].link;
}

void add_mapped(std::vector<Row>& rows) {
  const tutti_transport* ipc = transport("cuda-ipc");
  static const tutti_mapped& mapped = optional_of<tutti_mapped>(ipc, TUTTI_MAPPED_ID);
  rows.push_back(row<tutti_mapped>(
      mapped, true, [ipc](auto* table) { return judged(check_optional(*ipc, nullptr, nullptr, nullptr, table)); }));
  static const tutti_mapped_device device{sizeof device, TUTTI_MEMORY_SIMULATED, 0, 0};
  rows.push_back(row<tutti_mapped_device>(device, true, [ipc](auto* given) {
    tutti_mapping* mapping = nullptr;
    tutti_mapped_place place{sizeof place};
    const tutti_status status = mapped.open_mapping(mapped_link(ipc), UINT64_MAX, given, &mapping, &place);
    return Answer{status == TUTTI_AGAIN, take_plugin_error()};  // nothing is shared as this tag
  }));
  static uint64_t tag = 0;
  const tutti_share_config config{sizeof config, 0, 0, nullptr, 4096, &device};
  rows.push_back(row<tutti_share_config>(config, true, [ipc](auto* given) {
    tutti_share* share = nullptr;
    tutti_mapped_place place{sizeof place};
    if (given->struct_size >= tutti_mandatory<tutti_share_config>::bytes) given->tag = ++tag;
    return of_plugin(mapped.share(mapped_link(ipc), given, &share, &place));
  }));
  rows.push_back(row<tutti_mapped_place>({sizeof(tutti_mapped_place)}, false, [ipc, config](auto* place) {
    tutti_share* share = nullptr;
    tutti_share_config numbered = config;
    numbered.tag = ++tag;
    return of_plugin(mapped.share(mapped_link(ipc), &numbered, &share, place));
  }));
}

// The structs that plugins are given, and those that they fill.
void add_arguments(std::vector<Row>& rows) {
  const tutti_transport *shm = transport("shm"), *tcp = transport("tcp");
  const DeviceTables device = test::device();
  rows.push_back(row<tutti_executor_caps>({sizeof(tutti_executor_caps)}, false, [device](auto* caps) {
    return of_plugin(device.executor->query(device.executor->self, 0, caps));
  }));
  rows.push_back(row<tutti_device_caps>({sizeof(tutti_device_caps)}, false, [device](auto* caps) {
    return of_plugin(device.memory->query(device.memory->self, caps));
  }));
  rows.push_back(row<tutti_device_facts>({sizeof(tutti_device_facts)}, false, [device](auto* facts) {
    return of_plugin(device.memory->describe(device.memory->self, 0, facts));
  }));
  rows.push_back(row<tutti_pointer>({sizeof(tutti_pointer)}, false, [device](auto* pointer) {
    return of_plugin(device.memory->classify(device.memory->self, &device, pointer));
  }));
  rows.push_back(row<tutti_domain_config>({sizeof(tutti_domain_config)}, true, [shm](auto* config) {
    tutti_domain* opened = nullptr;
    const Answer answer = of_plugin(shm->open_domain(shm->self, config, &opened));
    if (opened) shm->close_domain(opened);
    return answer;
  }));
  const tutti_domain_config of{sizeof of};
  static tutti_domain* domain = nullptr;  // for all tests
  if (!domain) {
    EXPECT_EQ(shm->open_domain(shm->self, &of, &domain), TUTTI_OK);
  }
  rows.push_back(row<tutti_transport_caps>({sizeof(tutti_transport_caps)}, false,
                                           [shm](auto* caps) { return of_plugin(shm->query(domain, caps)); }));
  alignas(4096) static char memory[4096];
  rows.push_back(row<tutti_memory>({sizeof(tutti_memory), TUTTI_MEMORY_HOST, memory, sizeof memory, -1, 0, 0}, true,
                                   [shm](auto* m) {
                                     tutti_region* region = nullptr;
                                     const Answer answer = of_plugin(shm->register_memory(domain, m, &region));
                                     if (region) shm->deregister_memory(domain, region);
                                     return answer;
                                   }));
  static const tutti_pair_messages no_peers{sizeof no_peers, 0, nullptr, [](void*, uint32_t, const void*, uint64_t) {
                                              return tutti_status{TUTTI_PEER_FAILED};
                                            }};
  static const tutti_endpoint_config alone{sizeof alone, 0, 1, 1, "sizes", 7, &no_peers};
  const auto open_with = [shm](const tutti_endpoint_config* config) {
    tutti_endpoint* endpoint = nullptr;
    const Answer answer = of_plugin(shm->open_endpoint(domain, config, &endpoint));
    if (endpoint) shm->close_endpoint(endpoint);
    return answer;
  };
  rows.push_back(row<tutti_endpoint_config>(alone, true, open_with));
  rows.push_back(row<tutti_pair_messages>(no_peers, false, [open_with](auto* pair) {
    tutti_endpoint_config config = alone;
    config.pair = pair;
    return open_with(&config);
  }));
  rows.push_back(row<tutti_rail_sink>({sizeof(tutti_rail_sink), 0, nullptr, [](void*, const tutti_rail*) {}}, false,
                                      [tcp](auto* sink) {
                                        const auto& rails = optional_of<tutti_rails>(tcp, TUTTI_RAILS_ID);
                                        return of_plugin(rails.of_host(tcp->self, sink));
                                      }));
  rows.push_back(row<tutti_rail>({sizeof(tutti_rail)}, true, [](auto* rail) { return judged(check_rail(rail)); }));
}

void add_schedules(std::vector<Row>& rows) {
  static const uint32_t hosts[2] = {};
  const tutti_query query{sizeof query, TUTTI_ALL_REDUCE, 2, 0, 0, 4, 0, hosts};
  const tutti_schedule_sink sink{
      sizeof sink,
      0,
      nullptr,
      [](void*, const tutti_cut*, uint32_t) { return tutti_status{TUTTI_OK}; },
      [](void*, const tutti_extent*, uint32_t, uint32_t) { return tutti_status{TUTTI_OK}; },
      [](void*, uint64_t) { return tutti_status{TUTTI_OK}; },
      [](void*, uint32_t, const tutti_step*, const tutti_span*) { return tutti_status{TUTTI_OK}; }};
  std::string error;
  const tutti_algorithm* ring = find_algorithm("ring", &error);
  static const uint32_t processes[2] = {0, 1};
  const tutti_topology topology{
      sizeof topology, 2,
      nullptr,         hosts,
      processes,       [](void*, uint32_t, uint32_t, tutti_link_figures*) { return tutti_status{TUTTI_OK}; }};
  rows.push_back(row<tutti_topology>(topology, false, [ring, query](auto* t) {
    tutti_query asked = query;
    asked.topology = t;
    return of_plugin(ring->supports(ring->self, &asked));
  }));
  rows.push_back(row<tutti_query>(query, true, [ring](auto* q) { return of_plugin(ring->supports(ring->self, q)); }));
  rows.push_back(row<tutti_schedule_sink>(
      sink, false, [ring, query](auto* s) { return of_plugin(ring->schedule(ring->self, &query, s)); }));
}

tutti_status no_gather(void*, const void* mine, uint64_t bytes, void* all) {
  std::memcpy(all, mine, bytes);
  return TUTTI_OK;
}

void add_drafts(std::vector<Row>& rows) {
  std::string error;
  const tutti_meeting* meeting = find_meeting("toy", &error);  // others need a launcher
  if (!meeting) throw std::runtime_error(error);
  const tutti_selector* selector = list_selectors().front();
  const tutti_collective* collective = list_collectives().front();
  const tutti_rma* rma = list_rmas().front();
  rows.push_back(row<tutti_meeting>(*meeting, true, [](auto* m) { return judged(check_interface(m)); }));
  rows.push_back(row<tutti_selector>(*selector, true, [](auto* s) { return judged(check_interface(s)); }));
  rows.push_back(row<tutti_collective>(*collective, true, [](auto* c) { return judged(check_interface(c)); }));
  rows.push_back(row<tutti_rma>(*rma, true, [](auto* r) { return judged(check_interface(r)); }));
  rows.push_back(row<tutti_meeting_config>(
      {sizeof(tutti_meeting_config), 0, 1, 0, "sizes", "sizes", 1}, true, [meeting](auto* config) {
        tutti_room* room = nullptr;
        uint32_t rank = 0, nranks = 0;
        const Answer answer = of_plugin(meeting->open(meeting->self, config, &room, &rank, &nranks));
        if (room) meeting->close(room);
        return answer;
      }));
  static const tutti_candidate candidate{"one", nullptr, 1, 1, 0, {}};
  static const uint32_t hosts[1] = {};
  rows.push_back(row<tutti_selection>(
      {sizeof(tutti_selection), TUTTI_BARRIER, 1, 0, 0, 1, hosts, &candidate, 1}, true, [selector](auto* selection) {
        uint64_t index = 7;
        const Answer answer = of_plugin(selector->choose(selector->self, selection, &index));
        EXPECT_EQ(index, answer.accepted ? 0u : 7u);
        return answer;
      }));
  const tutti_native_config config{sizeof config, 0, 1, 0, "sizes", 7, hosts, nullptr, no_gather};
  rows.push_back(row<tutti_native_config>(config, true, [collective](auto* c) {
    tutti_native_group* group = nullptr;
    const Answer answer = of_plugin(collective->create(collective->self, c, &group));
    if (group) collective->destroy(group);
    return answer;
  }));
  static tutti_native_group* group = nullptr;
  if (!group) collective->create(collective->self, &config, &group);
  EXPECT_NE(group, nullptr);
  rows.push_back(row<tutti_native_call>({sizeof(tutti_native_call), TUTTI_BARRIER}, true, [collective](auto* call) {
    uint64_t predicted = 0;
    return of_plugin(collective->supports(group, call, &predicted));
  }));
  rows.push_back(row<tutti_space_config>({sizeof(tutti_space_config), 0, 1, 0, 7}, true, [rma](auto* c) {
    tutti_space* space = nullptr;
    const Answer answer = of_plugin(rma->open(rma->self, c, &space));
    if (space) rma->close(space);
    return answer;
  }));
}

void add_calls(std::vector<Row>& rows) {
  tutti_comm_config config{sizeof config};
  config.rendezvous = "local:sizes of a configuration";
  config.nranks = 1;
  rows.push_back(row<tutti_comm_config>(config, true, [](auto* c) {
    return logged([&] {
      tutti_comm* comm = nullptr;
      const tutti_status status = tutti_comm_create(c, &comm);
      return comm ? tutti_comm_destroy(comm) : status;
    });
  }));
  rows.push_back(row<tutti_options>({sizeof(tutti_options)}, true,
                                    [](auto* o) { return of_comm(tutti_barrier(one_rank(), o, nullptr)); }));
  EXPECT_EQ(tutti_barrier(one_rank(), nullptr, nullptr), TUTTI_OK);
  rows.push_back(row<tutti_plan_facts>({sizeof(tutti_plan_facts)}, false, [](auto* facts) {
    return of_comm(tutti_comm_plan(one_rank(), TUTTI_BARRIER, facts));
  }));
  rows.push_back(row<tutti_host_facts>({sizeof(tutti_host_facts)}, false,
                                       [](auto* facts) { return of_comm(tutti_comm_host(one_rank(), 0, facts)); }));
  rows.push_back(row<tutti_split>({sizeof(tutti_split)}, true, [](auto* how) {
    tutti_comm* part = nullptr;
    const Answer answer = of_comm(tutti_comm_split(one_rank(), how, &part));
    if (part) {
      EXPECT_EQ(tutti_comm_destroy(part), TUTTI_OK);
    }
    return answer;
  }));
  const auto keep_left = [](void*, const void*, uint64_t, uint32_t, void*) -> tutti_status { return TUTTI_OK; };
  rows.push_back(row<tutti_op_config>({sizeof(tutti_op_config), 0, "left", keep_left}, true, [](auto* given) {
    uint32_t op = 0;
    return of_comm(tutti_op_create(one_rank(), given, &op));
  }));
  rows.push_back(row<tutti_envelope>({sizeof(tutti_envelope), TUTTI_ANY_PEER}, true, [](auto* envelope) {
    const tutti_status status = tutti_probe(one_rank(), envelope, 0);
    return of_comm(status == TUTTI_AGAIN ? TUTTI_OK : status);
  }));
  rows.push_back(row<tutti_window_options>({sizeof(tutti_window_options)}, true, [](auto* o) {
    static char data[64];
    tutti_window* window = nullptr;
    const Answer answer = of_comm(tutti_comm_register(one_rank(), data, sizeof data, o, &window));
    if (window) {
      EXPECT_EQ(tutti_comm_deregister(one_rank(), window, nullptr), TUTTI_OK);
    }
    return answer;
  }));
  rows.push_back(row<tutti_window_facts>({sizeof(tutti_window_facts)}, false, [](auto* facts) {
    static char memory[64];
    static tutti_window* const window = [] {
      tutti_window* made = nullptr;
      EXPECT_EQ(tutti_comm_register(one_rank(), memory, sizeof memory, nullptr, &made), TUTTI_OK);
      return made;
    }();
    return of_comm(tutti_comm_window(one_rank(), window, facts));
  }));
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  add_plugin_structs(rows);
  add_tables(rows);
  add_arguments(rows);
  add_schedules(rows);
  add_drafts(rows);
  add_mapped(rows);
  add_calls(rows);
  return rows;
}

// {struct: its least size} of the lock.
std::map<std::string, uint32_t> locked() {
  std::ifstream lock(TUTTI_LAYOUT_LOCK);
  std::map<std::string, uint32_t> sizes;
  for (std::string line; std::getline(lock, line);) {
    std::istringstream words(line);
    std::string name, word;
    uint32_t bytes = 0;
    if (words >> name >> word && word == "mandatory" && words >> bytes) sizes[name] = bytes;
  }
  return sizes;
}

constexpr uint32_t more = 16;

Answer give(const Row& row, uint32_t size, unsigned char last_byte = 0) {
  std::vector<uint64_t> memory((row.bytes + more) / 8);
  auto* bytes = reinterpret_cast<unsigned char*>(memory.data());
  std::memcpy(bytes, row.whole.data(), std::min<size_t>(size, row.bytes));
  std::memcpy(bytes, &size, sizeof size);
  bytes[row.bytes + more - 1] = last_byte;
  // Nobody may read behind the end.
  const uint32_t end = std::max<uint32_t>(size, sizeof size);
  if (end < row.bytes) std::memset(bytes + end, 0xee, row.bytes - end);
  const Answer answer = row.give(bytes);
  EXPECT_EQ(bytes[row.bytes + more - 1], last_byte) << row.name << ": written behind what is known";
  return answer;
}

TEST(Sizes, EverySizedStructHasARow) {
  std::map<std::string, uint32_t> rows;
  for (const Row& row : all_rows()) rows[row.name] = row.mandatory;
  EXPECT_EQ(rows, locked()) << "a struct that the lock has needs a row here, with what receives it";
}

TEST(Sizes, WhatEndsAfterTheLastMandatoryFieldIsAccepted) {
  for (const Row& row : all_rows())
    for (const uint32_t size : {row.mandatory, row.bytes}) {
      const Answer answer = give(row, size);
      EXPECT_TRUE(answer.accepted) << row.name << " of " << size << " bytes: " << answer.text;
    }
}

TEST(Sizes, ALongerOneIsAcceptedWhenItsTailIsZero) {
  for (const Row& row : all_rows()) {
    const Answer answer = give(row, row.bytes + more);
    EXPECT_TRUE(answer.accepted) << row.name << ": " << answer.text;
  }
}

TEST(Sizes, ALongerOneThatAsksForMoreIsRefused) {
  for (const Row& row : all_rows()) {
    const Answer answer = give(row, row.bytes + more, 1);
    EXPECT_EQ(answer.accepted, !row.asks) << row.name << ": " << answer.text;
    if (!row.asks) continue;
    const std::string size = row.name + ".struct_size is " + std::to_string(row.bytes + more);
    for (const std::string& words :
         {size, "behind the " + std::to_string(row.bytes) + " bytes", std::string("use a newer version here")})
      EXPECT_NE(answer.text.find(words), std::string::npos) << row.name << ": " << answer.text;
  }
}

TEST(Sizes, AShorterOneIsRefused) {
  for (const Row& row : all_rows())
    for (const uint32_t size : {uint32_t{0}, row.mandatory - 8, row.mandatory - 1}) {
      const Answer answer = give(row, size);
      EXPECT_FALSE(answer.accepted) << row.name << " of " << size << " bytes";
      for (const std::string& words :
           {row.name + ".struct_size is " + std::to_string(size) + ",",
            "expected at least " + std::to_string(row.mandatory), std::string("set struct_size to its sizeof")})
        EXPECT_NE(answer.text.find(words), std::string::npos) << row.name << ": " << answer.text;
    }
}

// Functions that the core does without may be NULL, in pairs where one is of no use without the other.
TEST(OptionalFunctions, MayBeMissing) {
  tutti_transport shm = *transport("shm");
  EXPECT_EQ(check_interface(&shm), "");
  shm.fail_peer = nullptr;
  EXPECT_EQ(check_interface(&shm), "");
  shm.query = nullptr;
  EXPECT_EQ(check_interface(&shm), "transport shm: the mandatory function query is NULL");
  const tutti_executor whole = *test::device().executor;
  const auto without = [&](auto... functions) {
    tutti_executor executor = whole;
    ((executor.*functions = nullptr), ...);
    return check_interface(&executor);
  };
  EXPECT_EQ(without(&tutti_executor::create_stream, &tutti_executor::destroy_stream, &tutti_executor::enqueue_fused,
                    &tutti_executor::query),
            "");
  const std::string streams = "executor: create_stream and destroy_stream come both or not at all";
  EXPECT_EQ(without(&tutti_executor::create_stream), streams);
  EXPECT_EQ(without(&tutti_executor::destroy_stream), streams);
  EXPECT_EQ(without(&tutti_executor::query), "executor: enqueue_fused and query come both or not at all");
  EXPECT_EQ(without(&tutti_executor::enqueue), "executor: the mandatory function enqueue is NULL");
}

// A size that nobody set is not believed.
TEST(Sizes, AnImpossibleOneIsRefused) {
  for (const Row& row : all_rows()) {
    const Answer answer = give(row, 0xeeeeeeee);
    EXPECT_FALSE(answer.accepted) << row.name;
  }
}

}  // namespace
}  // namespace tutti::core
