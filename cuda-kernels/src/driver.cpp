// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <string>

#include "cuda_error.hpp"

namespace tutti::cuda {
namespace {

using sdk::Error;

template <typename Function>
void look_up(const char* name, unsigned version, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
#else  // gives the newest version, whose signature is that of every function here
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || !address)
    throw Error(TUTTI_NOT_SUPPORTED,
                std::string("the CUDA driver has no ") + name + " of CUDA " + std::to_string(version / 1000) + "." +
                    std::to_string(version % 1000 / 10) +
                    ": a newer driver is needed (cudaGetDriverEntryPointByVersion: " + cudaGetErrorString(error) + ")");
  function = reinterpret_cast<Function>(address);
}

// Looks up a function that an older driver may lack: nullptr then.
template <typename Function>
void look_for(const char* name, unsigned version, Function& function) {
  try {
    look_up(name, version, function);
  } catch (const Error&) {
    function = nullptr;
    cudaGetLastError();
  }
}

Driver load() {
  Driver d{};
  look_up("cuGetErrorString", 6000, d.get_error_string);
  look_up("cuGetErrorName", 6000, d.get_error_name);
  look_up("cuInit", 2000, d.init);
  look_up("cuCtxGetCurrent", 4000, d.current_context);
  look_up("cuCtxGetDevice", 2000, d.context_device);
  look_up("cuCtxPushCurrent", 4000, d.push_context);
  look_up("cuCtxPopCurrent", 4000, d.pop_context);
  look_up("cuDevicePrimaryCtxRetain", 7000, d.retain_primary_context);
  look_up("cuThreadExchangeStreamCaptureMode", 10010, d.exchange_capture_mode);
  look_up("cuEventQuery", 2000, d.event_query);
  look_up("cuStreamGetCtx", 9020, d.stream_context);
  look_for("cuStreamGetId", 12000, d.stream_id);
  look_up("cuMemGetAddressRange", 3020, d.mem_get_address_range);
  look_up("cuPointerGetAttributes", 7000, d.pointer_get_attributes);
  look_up("cuDevicePrimaryCtxGetState", 7000, d.primary_context_state);
  look_up("cuDeviceGetUuid", 11040, d.device_get_uuid);  // that of a part, where a GPU is partitioned (MIG)
  look_up("cuDeviceGetPCIBusId", 4010, d.device_get_pci_bus_id);
  look_up("cuStreamBatchMemOp", 11070, d.stream_batch_mem_op);
  look_up("cuMemRetainAllocationHandle", 11000, d.mem_retain_allocation_handle);
  look_up("cuMemRelease", 10020, d.mem_release);
  look_up("cuMemExportToShareableHandle", 10020, d.mem_export);
  look_up("cuMemImportFromShareableHandle", 10020, d.mem_import);
  look_up("cuMemAddressReserve", 10020, d.mem_address_reserve);
  look_up("cuMemAddressFree", 10020, d.mem_address_free);
  look_up("cuMemMap", 10020, d.mem_map);
  look_up("cuMemUnmap", 10020, d.mem_unmap);
  look_up("cuMemSetAccess", 10020, d.mem_set_access);
  look_up("cuDeviceGetAttribute", 2000, d.device_get_attribute);
  look_up("cuMemGetHandleForAddressRange", 11070, d.mem_get_handle_for_range);
  if (const CUresult error = d.init(0); error != CUDA_SUCCESS) {
    const char *name = "an unknown error", *text = "";
    d.get_error_name(error, &name);
    d.get_error_string(error, &text);
    throw Error(TUTTI_NOT_SUPPORTED, std::string("cuInit: ") + name + ": " + text);
  }
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

void fail(const std::string& call, cudaError_t error) {
  cudaGetLastError();  // it must not be found again by whoever asks next
  const bool absent = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
                      error == cudaErrorStubLibrary || error == cudaErrorSystemDriverMismatch;
  const tutti_status status = absent                               ? TUTTI_NOT_SUPPORTED
                              : error == cudaErrorMemoryAllocation ? TUTTI_NO_RESOURCES
                                                                   : TUTTI_SYSTEM;
  throw Error(status, call + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

void fail(const std::string& call, CUresult error) {
  const char *name = "an unknown error", *text = "";
  driver().get_error_name(error, &name);
  driver().get_error_string(error, &text);
  throw Error(error == CUDA_ERROR_OUT_OF_MEMORY ? TUTTI_NO_RESOURCES : TUTTI_SYSTEM, call + ": " + name + ": " + text);
}

bool driver_is_gone() {
  CUcontext context = nullptr;
  return driver().current_context(&context) == CUDA_ERROR_DEINITIALIZED;
}

}  // namespace tutti::cuda
