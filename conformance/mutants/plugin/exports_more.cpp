// SPDX-License-Identifier: Apache-2.0
//
// What the mutant exports-more shows besides its entry symbol.
#include <tutti/plugin/types.h>

extern "C" TUTTI_EXPORT int tutti_mutants_helper();
extern "C" TUTTI_EXPORT int tutti_mutants_helper() { return 1; }
