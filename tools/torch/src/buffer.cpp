// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::torch {
namespace {

void check(const char* name, const at::Tensor& tensor, at::ScalarType type, const at::Device& device) {
  TORCH_CHECK(tensor.defined(), name, ": an undefined tensor");
  TORCH_CHECK(tensor.layout() == at::kStrided, name, ": the tensor's layout is ", tensor.layout(),
              ", expected a dense one: call to_dense()");
  TORCH_CHECK(tensor.is_cpu() || (tensor.is_cuda() && at::hasCUDA()), name, ": the tensor is on ", tensor.device(),
              ", expected the cpu", at::hasCUDA() ? " or cuda" : ": this torch finds no CUDA device", "; call cpu()");
  TORCH_CHECK(tensor.scalar_type() == type && tensor.device() == device, name,
              ": tensors differ: ", tensor.scalar_type(), " on ", tensor.device(), ", expected ", type, " on ", device,
              " as the first one");
}

// A view that is marked as conjugated or negated has other values than its bytes say.
bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

bool one_after_another(at::TensorList tensors) {
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const char* const data = static_cast<const char*>(tensor.data_ptr());
    if (!is_plain(tensor) || (next && data != next)) return false;
    next = data + tensor.nbytes();
  }
  return true;
}

// torch has no negative strides: the first element lies lowest.
Place place_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
  return {begin, begin + static_cast<uintptr_t>(last + 1) * tensor.element_size()};
}

struct Placed : Place {
  const at::Tensor* tensor;
};

using Steps = std::vector<std::pair<int64_t, int64_t>>;  // strides and sizes, the smallest first
Steps steps_of(const at::Tensor& tensor) {
  Steps steps;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) > 1) steps.emplace_back(tensor.stride(d), tensor.size(d));
  std::sort(steps.begin(), steps.end());
  return steps;
}

// No two of its indices mean the same element, as in what is cut out of a larger tensor or transposed. False: perhaps.
bool surely_apart(const at::Tensor& tensor) {
  const Steps steps = steps_of(tensor);
  int64_t reached = 1;  // elements, from the first to the last one of the inner dimensions
  for (const auto& [stride, size] : steps) {
    if (stride < reached) return false;
    reached += (size - 1) * stride;
  }
  return true;
}

// Do two tensors of one shape, each surely apart, share an element? Theirs are the same sums of strides, `distance` elements from
// each other. From the largest stride on: what the smaller ones reach is less than one step, so two steps are possible.
bool meet_at(int64_t distance, const Steps& steps, size_t left) {
  if (left == 0) return distance == 0;
  const auto& [stride, size] = steps[left - 1];
  const int64_t below = distance / stride - (distance % stride < 0);
  for (const int64_t step : {below, below + 1})
    if (step < size && -step < size && meet_at(distance - step * stride, steps, left - 1)) return true;
  return false;
}

// Marks the tensor's elements in units of so many bytes from `begin` on. False: one was marked already.
bool mark(const Placed& place, uintptr_t begin, uintptr_t unit, std::vector<bool>& marked) {
  const at::Tensor& tensor = *place.tensor;
  const auto size = static_cast<uintptr_t>(tensor.element_size());
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()), 0);
  uintptr_t at = place.begin - begin;
  for (int64_t n = tensor.numel(); n > 0; --n) {
    for (uintptr_t part = at / unit; part < (at + size) / unit; ++part) {
      if (marked[part]) return false;
      marked[part] = true;
    }
    for (auto d = index.size(); d-- > 0;) {
      const auto stride = static_cast<uintptr_t>(tensor.stride(static_cast<int64_t>(d))) * size;
      at += stride;
      if (++index[d] < tensor.size(static_cast<int64_t>(d))) break;
      at -= stride * static_cast<uintptr_t>(index[d]);
      index[d] = 0;
    }
  }
  return true;
}

// The first of the places, which interleave and are ordered, that shares elements with one before it or itself; nullptr: none does.
const Placed* shared(const Placed* first, const Placed* end) {
  const auto unit = static_cast<uintptr_t>(first->tensor->element_size());
  bool aligned = true, alike = surely_apart(*first->tensor);
  uintptr_t last = 0;
  for (const Placed* place = first; place != end; ++place) {
    aligned = aligned && (place->begin - first->begin) % unit == 0;
    alike = alike && place->tensor->sizes() == first->tensor->sizes() && place->tensor->strides() == first->tensor->strides();
    last = std::max(last, place->end);
  }
  if (aligned && alike) {  // as the columns of a matrix
    const Steps steps = steps_of(*first->tensor);
    for (const Placed* place = first; place != end; ++place)
      for (const Placed* other = first; other != place; ++other)
        if (meet_at(static_cast<int64_t>((place->begin - other->begin) / unit), steps, steps.size())) return place;
    return nullptr;
  }
  std::vector<bool> marked((last - first->begin) / (aligned ? unit : 1));
  for (const Placed* place = first; place != end; ++place)
    if (!mark(*place, first->begin, aligned ? unit : 1, marked)) return place;
  return nullptr;
}

// Each element that a call writes has memory of its own. Tensors whose places interleave, as columns of a matrix do, are
// looked at element by element; all others by their first and last ones.
void check_apart(const char* name, at::TensorList tensors) {
  if (tensors.size() == 1 && tensors.front().is_non_overlapping_and_dense()) return;
  std::vector<Placed> places;
  for (const at::Tensor& tensor : tensors)
    if (tensor.numel() > 0) places.push_back({place_of(tensor), &tensor});
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t first = 0, next = 1; first < places.size(); first = next++) {
    uintptr_t end = places[first].end;
    for (; next < places.size() && places[next].begin < end; ++next) end = std::max(end, places[next].end);
    if (next - first == 1 && surely_apart(*places[first].tensor)) continue;
    if (const Placed* place = shared(&places[first], places.data() + next))
      TORCH_CHECK(false, name, ": tensor ", place->tensor - tensors.data(), " of those that are written shares elements ",
                  surely_apart(*place->tensor) ? "with another one" : "with itself, as after expand()",
                  ", expected memory of its own for each element: call clone()");
  }
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
    default:
      return 0;
  }
}

}  // namespace

Place place_without_gaps(const at::Tensor& tensor) { return is_plain(tensor) ? place_of(tensor) : Place{}; }

void check_list(const char* name, at::TensorList tensors, bool written) {
  TORCH_CHECK(!tensors.empty(), name, ": no tensors, expected at least one");
  TORCH_CHECK(tensors.front().defined(), name, ": an undefined tensor");
  for (const at::Tensor& tensor : tensors)
    check(name, tensor, tensors.front().scalar_type(), tensors.front().device());
  if (written) check_apart(name, tensors);
}

Buffer::Buffer(const char* name, at::TensorList tensors, Use use, Form form)
    : name_(name), use_(use), form_(form), tensors_(tensors.begin(), tensors.end()) {
  check_list(name, tensors, use != Use::read);
  type_ = tensors.front().scalar_type();
  for (const at::Tensor& tensor : tensors) elements_ += static_cast<uint64_t>(tensor.numel());
  // Some calls are told by a buffer's address that they are on the device, and no elements have none.
  if (!elements_ && tensors.front().is_cuda()) {
    const Unseen unseen;
    flat_ = at::empty({1}, tensors.front().options().memory_format(std::nullopt));
    return;
  }
  if (one_after_another(tensors)) return;
  if (form == Form::blocks && find_displacements()) return;
  copy();
}

void Buffer::copy() {
  const Unseen unseen;
  flat_ = at::empty({static_cast<int64_t>(elements_)}, tensors_.front().options().memory_format(std::nullopt));
  if (use_ != Use::write) copy_parts(false);
}

// From the tensors, or back to them.
void Buffer::copy_parts(bool back) const {
  constexpr size_t small =
      64 << 10;  // torch's copies cost about a microsecond, and of larger tensors they use all threads
  const Unseen unseen;
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    if (const size_t bytes = tensor.nbytes(); bytes <= small && tensor.is_cpu() && is_plain(tensor)) {
      char* const part = static_cast<char*>(flat_.data_ptr()) + at * tensor.element_size();
      if (bytes > 0) std::memcpy(back ? tensor.data_ptr() : part, back ? part : tensor.data_ptr(), bytes);
    } else {
      const at::Tensor part = flat_.narrow(0, at, tensor.numel()).view(tensor.sizes());
      (back ? tensor : part).copy_(back ? part : tensor);
    }
    at += tensor.numel();
  }
}

void Buffer::keep_apart_from(const Written& written, size_t number, Place own) {
  for (size_t n = 0; n < tensors_.size() && !flat_.defined(); ++n) {
    const Place mine = place_of(tensors_[n]);
    const bool in_place = n == number && own.begin < own.end && mine.begin <= own.begin && own.end <= mine.end;
    const bool apart = in_place ? !written.meets(mine.begin, own.begin) && !written.meets(own.end, mine.end)
                                : !written.meets(mine.begin, mine.end);
    if (apart) continue;
    displacements_.clear();
    copy();
  }
}

bool in_blocks(const at::Tensor& block, size_t calls) {
  constexpr size_t few = 256;  // each call's plan is sought among those of the others
  const uint64_t least_bytes = calls > 1 && calls <= few ? 8 << 10 : 64 << 10;
  return block.defined() && block.layout() == at::kStrided && block.is_cpu() && block.nbytes() >= least_bytes;
}

Written::Written(const std::vector<const Buffer*>& outs) {
  for (const Buffer* out : outs)
    for (const at::Tensor& tensor : out->tensors_)
      if (!out->flat_.defined() && tensor.numel() != 0) places_.push_back(place_of(tensor));
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t n = 1; n < places_.size(); ++n) places_[n].end = std::max(places_[n].end, places_[n - 1].end);
}

bool Written::meets(uintptr_t begin, uintptr_t end) const {
  const auto later = std::lower_bound(places_.begin(), places_.end(), end,
                                      [](const Place& place, uintptr_t at) { return place.begin < at; });
  return begin < end && later != places_.begin() && std::prev(later)->end > begin;
}

// False: the tensors cannot be used where they lie.
bool Buffer::find_displacements() {
  const auto size = static_cast<size_t>(tensors_.front().element_size());
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.is_cpu() || !is_plain(tensor)) return false;
    char* const data = static_cast<char*>(tensor.data_ptr());
    if (tensor.numel() != 0 && (!lowest_ || data < lowest_)) lowest_ = data;
  }
  std::vector<uint64_t> displacements;
  for (const at::Tensor& tensor : tensors_) {
    const auto distance =
        tensor.numel() == 0 ? 0 : static_cast<uint64_t>(static_cast<char*>(tensor.data_ptr()) - lowest_);
    if (distance % size != 0) return false;
    displacements.push_back(distance / size * scale());
  }
  displacements_ = std::move(displacements);
  return true;
}

void* Buffer::data() const {
  if (!displacements_.empty()) return lowest_;
  if (flat_.defined()) return flat_.data_ptr();
  for (const at::Tensor& tensor : tensors_)
    if (tensor.numel() != 0) return tensor.data_ptr();
  return nullptr;
}

void Buffer::give_back() const {
  if (flat_.defined() && use_ != Use::read) copy_parts(true);
}

uint32_t Buffer::dtype(bool moved) const {
  const uint32_t type = known_type(type_);
  TORCH_CHECK(type != 0 || moved, name_, ": ", type_, " cannot be reduced: convert it first");
  return type ? type : uint32_t{TUTTI_UINT8};
}

uint64_t Buffer::scale() const { return known_type(type_) ? 1 : c10::elementSize(type_); }

void* Buffer::stream() const {
  const at::Device device = tensors_.front().device();
  return device.is_cuda() ? c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle() : nullptr;
}

}  // namespace tutti::torch
