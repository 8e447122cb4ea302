#include "runtime/aten/results.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>

#include "runtime/aten/dtype.h"
#include "runtime/aten/lazy_values.h"

namespace zefuse::aten {

namespace {

// A copy in storage of its own, as the span of memory the tensor covers (copy_ refuses tensors that
// overlap themselves, as expanded ones do), unless most of that is gaps.
at::Tensor cloneKeepingStrides(const at::Tensor& tensor) {
  if (tensor.numel() == 0)
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  if (extent <= 2 * tensor.numel() || at::has_internal_overlap(tensor) != at::MemOverlap::No)
    std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), size_t(extent) * tensor.element_size());
  else
    copy.copy_(tensor);
  return copy;
}

Status addTensor(std::vector<AtenResult>& results, at::Tensor tensor, const BorrowedStorages& borrowed) {
  AtenResult result;
  result.is_tensor = true;
  if (!tensor.defined()) {
    results.push_back(std::move(result));
    return Status();
  }
  auto dtype = planDType(tensor.scalar_type());
  if (tensor.layout() != c10::kStrided || !tensor.device().is_cpu() || !tensor.has_storage())
    return Status(Code::unsupported, "returned a tensor that is not dense on the CPU (" + tensor.toString() + ")");
  if (!dtype)
    return Status(Code::unsupported, std::string("returned a tensor of ") + c10::toString(tensor.scalar_type()) +
                                         ", which plans do not hold");
  if (isLazy(tensor))
    tensor = materialize(tensor);
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (std::find(borrowed.begin(), borrowed.end(), storage) != borrowed.end())
    tensor = cloneKeepingStrides(tensor);
  else if (tensor.use_count() > 1)
    tensor = at::alias(tensor);
  result.dtype = *dtype;
  result.data = tensor.mutable_data_ptr();
  result.sizes = tensor.sizes().vec();
  result.strides = tensor.strides().vec();
  result.owner = new at::Tensor(std::move(tensor));
  results.push_back(std::move(result));
  return Status();
}

Status add(std::vector<AtenResult>& results, c10::IValue value, const BorrowedStorages& borrowed) {
  if (value.isTensor())
    return addTensor(results, std::move(value).toTensor(), borrowed);
  if (value.isNone())
    return addTensor(results, at::Tensor(), borrowed);
  if (value.isInt() || value.isBool()) {
    AtenResult result;
    result.integer = value.isInt() ? value.toInt() : value.toBool();
    results.push_back(std::move(result));
    return Status();
  }
  if (value.isList()) {
    auto list = std::move(value).toList();
    for (size_t i = 0; i < list.size(); ++i)
      ZEFUSE_RETURN_IF_ERROR(add(results, list.extract(i), borrowed));
    return Status();
  }
  return Status(Code::unsupported, "returned a " + value.tagKind() + ", which plans do not hold");
}

}  // namespace

Result<std::vector<AtenResult>> results(std::vector<c10::IValue>& returned, const BorrowedStorages& borrowed) {
  std::vector<AtenResult> results;
  results.reserve(returned.size());
  auto release = [&] {
    for (AtenResult& result : results)
      delete static_cast<at::Tensor*>(result.owner);
  };
  try {
    for (c10::IValue& value : returned)
      if (Status status = add(results, std::move(value), borrowed); !status.ok()) {
        release();
        return status;
      }
  } catch (...) {
    release();
    throw;
  }
  return results;
}

}  // namespace zefuse::aten
