// SPDX-License-Identifier: Apache-2.0
//
// The calls of the CUDA driver that the runtime does not offer. They are looked up when first used, so that the plugin
// can be loaded where there is no driver.
#pragma once

#include <cuda.h>

namespace tutti::cuda {

struct Driver {
  CUresult (*init)(unsigned);
  CUresult (*current_context)(CUcontext*);
  CUresult (*context_device)(CUdevice*);
  CUresult (*push_context)(CUcontext);
  CUresult (*pop_context)(CUcontext*);
  CUresult (*retain_primary_context)(CUcontext*, CUdevice);
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode*);
  CUresult (*event_query)(CUevent);
  CUresult (*stream_context)(CUstream, CUcontext*);
  CUresult (*stream_id)(CUstream, unsigned long long*);  // nullptr: the driver is older than CUDA 12.0
  CUresult (*mem_get_address_range)(CUdeviceptr*, size_t*, CUdeviceptr);
  CUresult (*pointer_get_attributes)(unsigned, CUpointer_attribute*, void**, CUdeviceptr);
  CUresult (*primary_context_state)(CUdevice, unsigned*, int*);
  CUresult (*device_get_uuid)(CUuuid*, CUdevice);
  CUresult (*device_get_pci_bus_id)(char*, int, CUdevice);
  CUresult (*stream_batch_mem_op)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  CUresult (*mem_retain_allocation_handle)(CUmemGenericAllocationHandle*, void*);
  CUresult (*mem_release)(CUmemGenericAllocationHandle);
  CUresult (*mem_export)(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
  CUresult (*mem_import)(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType);
  CUresult (*mem_address_reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*mem_address_free)(CUdeviceptr, size_t);
  CUresult (*mem_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*mem_unmap)(CUdeviceptr, size_t);
  CUresult (*mem_set_access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  CUresult (*device_get_attribute)(int*, CUdevice_attribute, CUdevice);
  CUresult (*mem_get_handle_for_range)(void*, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
  CUresult (*get_error_string)(CUresult, const char**);
  CUresult (*get_error_name)(CUresult, const char**);
};

// Throws sdk::Error (TUTTI_NOT_SUPPORTED) where the driver is missing or too old.
const Driver& driver();

// Does the program end, so that the driver has shut down while other threads still run? Its streams, events and memory
// have ended with it.
bool driver_is_gone();

}  // namespace tutti::cuda
