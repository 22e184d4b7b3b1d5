// SPDX-License-Identifier: Apache-2.0
//
// Collectives that MPI's library carries out, always: they are counted. CMakeLists.txt has their list and makes the
// functions.
#pragma once

#include "passed_on.hpp"

namespace tutti::mpi {

class Counted {
 public:
  // `communicator`: its place among the arguments.
  Counted(const char* name, int communicator);
  template <typename... Words>
  Word operator()(Words... words) const {
    const Word all[] = {words...};
    count_call(all[communicator_]);
    return function_(words...);
  }

 private:
  void count_call(Word communicator) const;

  int communicator_;
  int counted_as_;  // a Function
  PassedOn function_;
};

}  // namespace tutti::mpi
