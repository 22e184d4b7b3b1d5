// SPDX-License-Identifier: Apache-2.0
#define TUTTI_KERNELS kernels_avx2
#include "kernels/kernel_loops.hpp"
