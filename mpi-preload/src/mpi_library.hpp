// SPDX-License-Identifier: Apache-2.0
//
// The MPI library of the program. The preload is not linked with any: it finds the one that the program has loaded,
// whether the program was linked with it or Python has loaded it late and privately.
#pragma once

// This library exports MPI's own functions.
#pragma GCC visibility push(default)
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#pragma GCC visibility pop

#include <atomic>
#include <string>

namespace tutti::mpi {

#if defined(OPEN_MPI)
inline constexpr const char* built_for = "Open MPI 4 and 5";
#else
inline constexpr const char* built_for = "MPICH 4 and 5 and Intel MPI";
#endif

// A symbol of the program's MPI library. Ends the process, naming the symbol, if the library has none.
void* mpi_symbol(const char* name);
// The same; nullptr if there is none.
void* find_mpi_symbol(const char* name);
// A variable, which may lie in the program: the linker copies variables of libraries that a program names.
void* mpi_variable(const char* name);
// Ends the process with a message if the program's MPI library has another ABI than this file was built for.
void require_matching_library();

// One of the library's functions, looked up when it is first called. F is the type of the function.
template <typename F>
class Entry;
template <typename Result, typename... Arguments>
class Entry<Result(Arguments...)> {
 public:
  explicit constexpr Entry(const char* name) : name_(name) {}
  Result operator()(Arguments... arguments) {
    auto* function = function_.load(std::memory_order_relaxed);
    if (!function) {
      function = reinterpret_cast<Result (*)(Arguments...)>(mpi_symbol(name_));
      function_.store(function, std::memory_order_relaxed);
    }
    return function(arguments...);
  }

 private:
  const char* name_;
  std::atomic<Result (*)(Arguments...)> function_{nullptr};
};

}  // namespace tutti::mpi

#if defined(OPEN_MPI)
// Open MPI's handles are addresses of the library's variables: they are looked up as functions are.
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) (static_cast<type>(::tutti::mpi::mpi_variable(#global)))
#endif
