// SPDX-License-Identifier: Apache-2.0
//
// The symbol that the mutant exports-more exports besides its entry.
#include <tutti/plugin/types.h>

extern "C" TUTTI_EXPORT int tutti_mutants_helper();
extern "C" TUTTI_EXPORT int tutti_mutants_helper() { return 1; }
