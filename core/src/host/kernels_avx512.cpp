// SPDX-License-Identifier: Apache-2.0
#define TUTTI_KERNELS kernels_avx512
#include "host/kernel_loops.hpp"
