// SPDX-License-Identifier: Apache-2.0
//
// The calls of the CUDA driver that the runtime does not offer. They are looked up when first used, so that the plugin
// can be loaded where there is no driver.
#pragma once

#include <cuda.h>

namespace tutti::cuda {

struct Driver {
  CUresult (*pointer_get_attributes)(unsigned, CUpointer_attribute*, void**, CUdeviceptr);
  CUresult (*primary_context_state)(CUdevice, unsigned*, int*);
  CUresult (*stream_batch_mem_op)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  CUresult (*get_error_string)(CUresult, const char**);
  CUresult (*get_error_name)(CUresult, const char**);
};

// Throws sdk::Error (TUTTI_NOT_SUPPORTED) where the driver is missing or too old.
const Driver& driver();

}  // namespace tutti::cuda
