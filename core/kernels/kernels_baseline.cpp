// SPDX-License-Identifier: Apache-2.0
#define TUTTI_KERNELS kernels_baseline
#include "kernels/kernel_loops.hpp"
