// SPDX-License-Identifier: Apache-2.0
#define TUTTI_KERNELS kernels_avx512
#include "kernels/kernel_loops.hpp"
