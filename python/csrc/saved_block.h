// What a forward graph saves for its backward, as one tensor. Nobody but the backward reads it, and a tensor costs the
// host some microseconds on its way: memory of torch's allocator, a Python object, autograd's record of it, all twice.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "python/csrc/tensors.h"

namespace zefuse::python {

struct SavedBlock {
  struct Entry {
    size_t number;  // of the forward graph's outputs
    size_t place;   // bytes from the block's beginning to the first element
    plan::DType dtype;
    std::vector<int64_t> sizes, strides;  // elements
  };
  std::vector<Entry> entries;       // by number
  std::vector<int64_t> of_buffers;  // by the plan's output buffer: its place; -1: not in the block
  size_t bytes = 0;

  // Of the outputs `candidates`, in ascending order: those of fixed sizes whose memory no other output shares. Null:
  // there are fewer than two. What is large stays alone, so that no block is hard to find room for.
  static std::shared_ptr<SavedBlock> of(const plan::Plan& plan, std::span<const size_t> candidates);

  std::vector<size_t> numbers() const;
  // An entry of `block` (`bytes` bytes, as OutputStorage makes it).
  at::Tensor tensor(const Entry& entry, const at::Tensor& block) const;
  TensorRef ref(const Entry& entry, const at::Tensor& block, const TorchPlace& place) const;
  std::vector<at::Tensor> tensors(const at::Tensor& block) const;  // of all entries
};

// Where a backward graph has them among its arguments.
struct TakenBlock {
  // `arguments`: by entry, ascending: the number that it would have as an argument of its own.
  TakenBlock(std::shared_ptr<SavedBlock> saved, std::span<const size_t> arguments);

  // Where argument `number` is in the list that comes, or -1 - its entry.
  int64_t place(size_t number) const {
    return number < places_.size() ? places_[number] : int64_t(number - block->entries.size() + 1);
  }
  size_t more() const { return block->entries.size() - 1; }  // arguments than the list has

  std::shared_ptr<SavedBlock> block;
  size_t argument;  // the block's number in the list

private:
  std::vector<int64_t> places_;
};

}  // namespace zefuse::python
