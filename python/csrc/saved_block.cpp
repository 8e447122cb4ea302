#include "python/csrc/saved_block.h"

#include <algorithm>
#include <optional>

#include <c10/core/TensorOptions.h>

#include "common/plan/dtype.h"
#include "common/plan/plan_generated.h"

namespace zefuse::python {
namespace {

constexpr size_t alignment = 512;                // as torch's allocator on CUDA rounds, and more than kernels want
constexpr size_t most_bytes = size_t(16) << 20;  // of a buffer in a block: who reads more does not mind the host's time

std::optional<int64_t> constant(const plan::Plan& plan, uint32_t index) {
  const auto* expr = plan.exprs()->Get(index);
  return expr->op() == plan::ExprOp::constant ? std::optional(expr->value()) : std::nullopt;
}

bool constants(const plan::Plan& plan, const flatbuffers::Vector<uint32_t>* exprs, std::vector<int64_t>& into) {
  if (exprs)
    for (uint32_t index : *exprs) {
      const auto number = constant(plan, index);
      if (!number)
        return false;
      into.push_back(*number);
    }
  return true;
}

struct Fixed {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  size_t end = 0;  // bytes from the buffer's beginning, as far as elements reach
};

std::optional<Fixed> fixed(const plan::Plan& plan, const plan::Value& value) {
  Fixed found;
  const auto offset = constant(plan, value.offset());
  if (!offset || !constants(plan, value.sizes(), found.sizes) || !constants(plan, value.strides(), found.strides))
    return std::nullopt;
  found.offset = *offset;
  int64_t last = *offset;
  for (size_t i = 0; i < found.sizes.size(); ++i) {
    if (found.sizes[i] <= 0 || found.strides[i] < 0)
      return std::nullopt;  // nothing to save, or nothing that plans have
    last += (found.sizes[i] - 1) * found.strides[i];
  }
  found.end = size_t(last + 1) * plan::elementSize(value.dtype());
  return found;
}

}  // namespace

std::shared_ptr<SavedBlock> SavedBlock::of(const plan::Plan& plan, std::span<const size_t> candidates) {
  if (!plan.outputs() || !plan.values() || !plan.buffers())
    return nullptr;
  const size_t buffers = plan.buffers()->size();
  std::vector<uint8_t> chosen(buffers, 0);
  auto output = [&](size_t number) -> const plan::Value* {
    const auto* found = plan.outputs()->Get(static_cast<flatbuffers::uoffset_t>(number));
    return found->kind() == plan::OutputKind::tensor ? plan.values()->Get(found->value()) : nullptr;
  };
  for (size_t number : candidates)
    if (const plan::Value* value = number < plan.outputs()->size() ? output(number) : nullptr)
      chosen[value->buffer()] = plan.buffers()->Get(value->buffer())->storage() == plan::Storage::output;
  for (size_t number = 0; number < plan.outputs()->size(); ++number)
    if (const plan::Value* value = output(number); value && !std::ranges::binary_search(candidates, number))
      chosen[value->buffer()] = 0;  // somebody else sees it
  std::vector<size_t> ends(buffers, 0);
  for (const plan::Value* value : *plan.values()) {
    const uint32_t buffer = value->buffer();
    if (!chosen[buffer])
      continue;
    const auto shape = fixed(plan, *value);
    if (!shape || shape->end > most_bytes)
      chosen[buffer] = 0;
    else
      ends[buffer] = std::max(ends[buffer], shape->end);
  }
  auto block = std::make_shared<SavedBlock>();
  std::vector<size_t> begins(buffers, 0);
  for (uint32_t buffer = 0; buffer < buffers; ++buffer) {
    const auto* described = plan.buffers()->Get(buffer);
    if (described->storage() != plan::Storage::output)
      continue;
    if (block->of_buffers.size() <= described->index())
      block->of_buffers.resize(described->index() + 1, -1);
    if (!chosen[buffer])
      continue;
    begins[buffer] = block->bytes;
    block->of_buffers[described->index()] = int64_t(block->bytes);
    block->bytes += (ends[buffer] + alignment - 1) / alignment * alignment;
  }
  for (size_t number : candidates) {
    const plan::Value* value = number < plan.outputs()->size() ? output(number) : nullptr;
    if (!value || !chosen[value->buffer()])
      continue;
    auto shape = fixed(plan, *value);
    const size_t place = begins[value->buffer()] + size_t(shape->offset) * plan::elementSize(value->dtype());
    block->entries.push_back({number, place, value->dtype(), std::move(shape->sizes), std::move(shape->strides)});
  }
  return block->entries.size() < 2 ? nullptr : block;
}

std::vector<size_t> SavedBlock::numbers() const {
  std::vector<size_t> numbers;
  for (const Entry& entry : entries)
    numbers.push_back(entry.number);
  return numbers;
}

at::Tensor SavedBlock::tensor(const Entry& entry, const at::Tensor& block) const {
  const at::ScalarType dtype = torchDtype(entry.dtype);
  const c10::DispatchKey key = c10::computeDispatchKey(dtype, c10::Layout::Strided, block.device());
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(block.storage()), c10::DispatchKeySet(key),
                                                             c10::scalarTypeToTypeMeta(dtype));
  const size_t first = size_t(block.storage_offset()) + entry.place;
  made.unsafeGetTensorImpl()->set_sizes_and_strides(entry.sizes, entry.strides,
                                                    int64_t(first / plan::elementSize(entry.dtype)));
  return made;
}

TensorRef SavedBlock::ref(const Entry& entry, const at::Tensor& block, const TorchPlace& place) const {
  TensorRef ref;
  ref.data = static_cast<std::byte*>(block.data_ptr()) + entry.place;
  ref.dtype = entry.dtype;
  ref.sizes = entry.sizes;
  ref.strides = entry.strides;
  ref.place = place && block.device() == *place ? Place::device : Place::host;
  return ref;
}

std::vector<at::Tensor> SavedBlock::tensors(const at::Tensor& block) const {
  std::vector<at::Tensor> made;
  for (const Entry& entry : entries)
    made.push_back(tensor(entry, block));
  return made;
}

TakenBlock::TakenBlock(std::shared_ptr<SavedBlock> saved, std::span<const size_t> arguments)
    : block(std::move(saved)), argument(arguments.front()), places_(arguments.back() + 1) {
  size_t entry = 0, next = 0;  // of the list
  for (size_t number = 0; number < places_.size(); ++number)
    if (number != arguments[entry]) {
      places_[number] = int64_t(next++);
    } else {
      places_[number] = -1 - int64_t(entry);
      next += entry++ == 0;  // where the first would be, the block is
    }
}

}  // namespace zefuse::python
