// SPDX-License-Identifier: Apache-2.0
#include "communicator.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "loaded_mpi.hpp"
#include "pending.hpp"

// The meeting of <tutti/mpi.h> calls the library's own functions, not those that this file's library puts before them.
#define MPI_Allgather tutti::mpi::pmpi::Allgather
#define MPI_Allreduce tutti::mpi::pmpi::Allreduce
#define MPI_Bcast tutti::mpi::pmpi::Bcast
#define MPI_Comm_dup tutti::mpi::pmpi::Comm_dup
#define MPI_Comm_free tutti::mpi::pmpi::Comm_free
#define MPI_Comm_rank tutti::mpi::pmpi::Comm_rank
#define MPI_Comm_set_errhandler tutti::mpi::pmpi::Comm_set_errhandler
#define MPI_Comm_size tutti::mpi::pmpi::Comm_size
#define MPI_Comm_test_inter tutti::mpi::pmpi::Comm_test_inter
#define MPI_Finalized tutti::mpi::pmpi::Finalized
#define MPI_Initialized tutti::mpi::pmpi::Initialized
#include <tutti/mpi.h>
#undef MPI_Allgather
#undef MPI_Allreduce
#undef MPI_Bcast
#undef MPI_Comm_dup
#undef MPI_Comm_free
#undef MPI_Comm_rank
#undef MPI_Comm_set_errhandler
#undef MPI_Comm_size
#undef MPI_Comm_test_inter
#undef MPI_Finalized
#undef MPI_Initialized

namespace tutti::mpi {
namespace {

std::atomic<uint64_t> generation;  // changes when a communicator is freed: its handle may be another's next
std::mutex living_mutex;
std::vector<Communicator*> living;  // in the order in which they were made

int forget(MPI_Comm, int, void* attribute, void*) {
  auto* communicator = static_cast<Communicator*>(attribute);
  generation.fetch_add(1);
  {
    const std::lock_guard lock(living_mutex);
    std::erase(living, communicator);
  }
  delete communicator;
  return MPI_SUCCESS;
}

int do_not_copy(MPI_Comm, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

int keyval() {
  static const int made = [] {
    int key = MPI_KEYVAL_INVALID;
    pmpi::Comm_create_keyval(do_not_copy, forget, &key, nullptr);
    return key;
  }();
  return made;
}

// Tutti waits for ranks that may wait for messages of this one.
class MpiGoesOn {
 public:
  MpiGoesOn() { tutti_set_interrupt(advance, nullptr); }
  ~MpiGoesOn() { tutti_set_interrupt(nullptr, nullptr); }
  MpiGoesOn(const MpiGoesOn&) = delete;
  MpiGoesOn& operator=(const MpiGoesOn&) = delete;

 private:
  static int32_t advance(void*) {
    advance_mpi();
    return 0;
  }
};

// MPI: invec is the left operand, inoutvec the right one and the result. Tutti: inout is the left one and the result.
tutti_status apply(void* inout, const void* in, uint64_t count, uint32_t, void* context) {
  auto& op = *static_cast<Operator*>(context);
  auto* left = static_cast<std::byte*>(inout);
  auto* right = static_cast<const std::byte*>(in);
  const uint64_t most = std::max<uint64_t>(1, (uint64_t{1} << 16) / op.size);
  if (!op.commutes) op.swapped.resize(std::min(most, count) * op.size);
  for (uint64_t done = 0; done < count; done += most) {
    const uint64_t n = std::min(most, count - done), bytes = n * op.size;
    int code;
    if (op.commutes) {
      code = pmpi::Reduce_local(right, left, static_cast<int>(n), op.type, op.op);
    } else {
      std::memcpy(op.swapped.data(), right, bytes);
      code = pmpi::Reduce_local(left, op.swapped.data(), static_cast<int>(n), op.type, op.op);
      std::memcpy(left, op.swapped.data(), bytes);
    }
    if (code != MPI_SUCCESS) {
      tutti_op_set_error("MPI_Reduce_local failed");
      return TUTTI_INVALID_ARGUMENT;
    }
    left += bytes;
    right += bytes;
  }
  return TUTTI_OK;
}

}  // namespace

Communicator::Communicator(MPI_Comm mpi) : mpi_(mpi) {
  int inter = 0;
  pmpi::Comm_rank(mpi, &rank_);
  pmpi::Comm_size(mpi, &size_);
  pmpi::Comm_test_inter(mpi, &inter);
  is_inter_ = inter != 0;
}

Communicator::~Communicator() {
  if (!tutti_) return;
  complete_pending(this);
  const MpiGoesOn meanwhile;
  tutti_comm_destroy(tutti_);
}

tutti_status Communicator::split(uint32_t color, int key, tutti_comm** part) const {
  tutti_split how{};
  how.struct_size = sizeof how;
  how.color = color;
  how.key = key;
  const MpiGoesOn meanwhile;
  return tutti_comm_split(tutti_, &how, part);
}

tutti_status Communicator::open(std::string& error) {
  if (tutti_) return TUTTI_OK;
  char text[2048] = "", name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  pmpi::Comm_get_name(mpi_, name, &length);
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = length ? name : "MPI communicator";
  config.error = text;
  config.error_bytes = sizeof text;
  config.device = "none";
  const tutti_status status = tutti_comm_create_from_mpi(mpi_, &config, &tutti_);
  if (status != TUTTI_OK) error = text;
  return status;
}

Operator* Communicator::take_operator(MPI_Op op, bool commutes, MPI_Datatype type, uint64_t size) {
  auto free = std::find_if(operators_.begin(), operators_.end(),
                           [&](const auto& one) { return !one->is_taken && one->commutes == commutes; });
  if (free == operators_.end()) {
    auto made = std::make_unique<Operator>();
    made->commutes = commutes;
    tutti_op_config config{};
    config.struct_size = sizeof config;
    config.flags = commutes ? 0u : uint32_t{TUTTI_OP_NOT_COMMUTATIVE};
    config.name = "MPI operator";
    config.function = apply;
    config.context = made.get();
    if (tutti_op_create(tutti_, &config, &made->number) != TUTTI_OK) return nullptr;
    free = operators_.insert(operators_.end(), std::move(made));
  }
  Operator& taken = **free;
  taken.is_taken = true;
  taken.op = op;
  taken.type = type;
  taken.size = size;
  return &taken;
}

Communicator& communicator_of(MPI_Comm mpi) {
  struct Last {
    MPI_Comm mpi;
    Communicator* communicator;
    uint64_t generation;
  };
  static thread_local Last last{MPI_COMM_NULL, nullptr, 0};
  const uint64_t now = generation.load();
  if (last.communicator && last.mpi == mpi && last.generation == now) return *last.communicator;
  void* attribute = nullptr;
  int found = 0;
  pmpi::Comm_get_attr(mpi, keyval(), &attribute, &found);
  if (!found) {
    auto made = std::make_unique<Communicator>(mpi);
    pmpi::Comm_set_attr(mpi, keyval(), made.get());
    attribute = made.get();
    const std::lock_guard lock(living_mutex);
    living.push_back(made.release());
  }
  last = {mpi, static_cast<Communicator*>(attribute), now};
  return *last.communicator;
}

void destroy_communicators() {
  for (;;) {
    MPI_Comm next;
    {
      const std::lock_guard lock(living_mutex);
      if (living.empty()) return;
      next = living.front()->mpi();
    }
    if (pmpi::Comm_delete_attr(next, keyval()) != MPI_SUCCESS) return;
  }
}

int raise(MPI_Comm comm, Function function, const char* text) {
  say(std::string(name_of(function)) + ": " + text);
  pmpi::Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

}  // namespace tutti::mpi
