// SPDX-License-Identifier: Apache-2.0
#include <tutti/sdk/plugin.hpp>

#include "algorithms.hpp"

using namespace tutti::algorithms;

TUTTI_PLUGIN(algorithms, "algorithms", "0.1.0", "Tutti", "Apache-2.0",
             "the classic algorithms, for any number of ranks", {TUTTI_ALGORITHM_ID, &ring},
             {TUTTI_ALGORITHM_ID, &direct}, {TUTTI_ALGORITHM_ID, &tree}, {TUTTI_ALGORITHM_ID, &doubling},
             {TUTTI_ALGORITHM_ID, &halving}, {TUTTI_ALGORITHM_ID, &bruck}, {TUTTI_ALGORITHM_ID, &hierarchical},
             {TUTTI_ALGORITHM_ID, &three_level}, {TUTTI_ALGORITHM_ID, &leaders}, {TUTTI_ALGORITHM_ID, &double_tree},
             {TUTTI_ALGORITHM_ID, &pairwise}, {TUTTI_ALGORITHM_ID, &chain}, {TUTTI_ALGORITHM_ID, &hillis_steele},
             {TUTTI_ALGORITHM_ID, &exclusive_doubling}, {TUTTI_ALGORITHM_ID, &pat}, {TUTTI_ALGORITHM_ID, &neighbour},
             {TUTTI_ALGORITHM_ID, &swing}, {TUTTI_ALGORITHM_ID, &canonical_direct},
             {TUTTI_ALGORITHM_ID, &canonical_doubling}, {TUTTI_ALGORITHM_ID, &canonical_halving},
             {TUTTI_ALGORITHM_ID, &flat});
