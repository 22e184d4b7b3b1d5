// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"

#include <torch/csrc/api/include/torch/version.h>
#include <tutti/tutti.h>

#ifdef TUTTI_TORCH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace tutti::torch {
namespace {

void check(const char* name, const at::Tensor& tensor, at::ScalarType type, const at::Device& device) {
  TORCH_CHECK(tensor.defined(), name, ": an undefined tensor");
  TORCH_CHECK(tensor.layout() == at::kStrided, name, ": the tensor's layout is ", tensor.layout(),
              ", expected a dense one: call to_dense()");
#ifdef TUTTI_TORCH_CUDA
  const bool served = tensor.is_cpu() || tensor.is_cuda();
#else
  const bool served = tensor.is_cpu();
#endif
  TORCH_CHECK(served, name, ": the tensor is on ", tensor.device(),
              ", expected the cpu: this build of tutti.torch was made for a torch without CUDA; call cpu()");
  TORCH_CHECK(tensor.scalar_type() == type && tensor.device() == device, name,
              ": tensors differ: ", tensor.scalar_type(), " on ", tensor.device(), ", expected ", type, " on ", device,
              " as the first one");
}

bool one_after_another(const std::vector<at::Tensor>& tensors) {
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const char* const data = static_cast<const char*>(tensor.data_ptr());
    if (!tensor.is_contiguous() || (next && data != next)) return false;
    next = data + tensor.nbytes();
  }
  return true;
}

uint32_t known_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return TUTTI_UINT8;
    case at::kChar:
      return TUTTI_INT8;
    case at::kShort:
      return TUTTI_INT16;
    case at::kInt:
      return TUTTI_INT32;
    case at::kLong:
      return TUTTI_INT64;
    case at::kHalf:
      return TUTTI_FLOAT16;
    case at::kBFloat16:
      return TUTTI_BFLOAT16;
    case at::kFloat:
      return TUTTI_FLOAT32;
    case at::kDouble:
      return TUTTI_FLOAT64;
    case at::kBool:
      return TUTTI_BOOL;
    case at::kComplexFloat:
      return TUTTI_COMPLEX64;
    case at::kComplexDouble:
      return TUTTI_COMPLEX128;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    case at::kFloat8_e4m3fn:
      return TUTTI_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
      return TUTTI_FLOAT8_E5M2;
    case at::kUInt16:
      return TUTTI_UINT16;
    case at::kUInt32:
      return TUTTI_UINT32;
    case at::kUInt64:
      return TUTTI_UINT64;
#endif
    default:
      return 0;
  }
}

}  // namespace

Buffer::Buffer(const char* name, const std::vector<at::Tensor>& tensors, Use use) : name_(name), tensors_(tensors) {
  TORCH_CHECK(!tensors.empty(), name, ": no tensors, expected at least one");
  TORCH_CHECK(tensors.front().defined(), name, ": an undefined tensor");
  type_ = tensors.front().scalar_type();
  for (const at::Tensor& tensor : tensors) {
    check(name, tensor, type_, tensors.front().device());
    elements_ += static_cast<uint64_t>(tensor.numel());
  }
  // Some calls are told by a buffer's address that they are on the device, and no elements have none.
  if (!elements_ && tensors.front().is_cuda()) {
    flat_ = at::empty({1}, tensors.front().options().memory_format(c10::nullopt));
    return;
  }
  if (one_after_another(tensors)) return;
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  flat_ = at::empty({static_cast<int64_t>(elements_)}, tensors.front().options().memory_format(c10::nullopt));
  if (use == Use::write) return;
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    flat_.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    at += tensor.numel();
  }
}

void* Buffer::data() const {
  if (flat_.defined()) return flat_.data_ptr();
  for (const at::Tensor& tensor : tensors_)
    if (tensor.numel() != 0) return tensor.data_ptr();
  return nullptr;
}

void Buffer::give_back() const {
  if (!flat_.defined()) return;
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    tensor.copy_(flat_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

uint32_t Buffer::dtype(bool moved) const {
  const uint32_t type = known_type(type_);
  TORCH_CHECK(type != 0 || moved, name_, ": ", type_, " cannot be reduced: convert it first");
  return type ? type : uint32_t{TUTTI_UINT8};
}

uint64_t Buffer::scale() const { return known_type(type_) ? 1 : c10::elementSize(type_); }

void* Buffer::stream() const {
#ifdef TUTTI_TORCH_CUDA
  if (tensors_.front().is_cuda()) return c10::cuda::getCurrentCUDAStream(tensors_.front().device().index()).stream();
#endif
  return nullptr;
}

}  // namespace tutti::torch
