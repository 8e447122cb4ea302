// One matmul as the oneDNN primitives, copies and layouts that carry it out.
#pragma once

#include <atomic>
#include <dnnl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/onednn/matmul.h"

namespace zefuse::onednn {

// What a primitive's argument or a copy's end may be. Post-op operand i is `firstOperand + i`.
enum Slot : int { slotA, slotB, slotBias, slotOut, slotAlpha, slotScratchpad, firstOperand };

// A copy into scratch (operands) or out of it (out).
struct Staging {
  int slot;
  TensorDesc outside, inside;
  size_t offset;  // in scratch, bytes
};

struct Binding {
  int argument;  // DNNL_ARG_...
  int slot;
  dnnl::memory::desc layout;
};

struct PrimitiveStep {
  dnnl::primitive primitive;
  std::vector<Binding> bindings;
};

// Built by build(); then immutable.
class PreparedMatmul final : public Matmul {
public:
  // `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);
  ~PreparedMatmul() override;

  size_t packedBytes() const override { return packed_bytes_; }
  Status packB(const void* b, void* packed) const override;
  bool packsLike(const Matmul& other) const override;
  size_t scratchBytes() const override { return scratch_bytes_; }
  Status run(const Arguments& arguments) const override;
  const std::string& implementation() const override { return implementation_; }

private:
  // oneDNN's memory objects of one call: handles without storage. One is kept spare between calls,
  // so that calls one after the other allocate nothing; concurrent calls make their own.
  struct Handles {
    std::vector<std::vector<dnnl::memory>> memories;  // per step, per binding
    std::vector<std::vector<dnnl_exec_arg_t>> arguments;
    std::vector<void*> addresses;  // by slot
  };
  std::unique_ptr<Handles> makeHandles() const;

  struct Plan;
  explicit PreparedMatmul(const MatmulDesc& desc);
  Plan makePlan(bool widen, bool copy) const;
  std::optional<Plan> search(std::string& why);
  // Both append to steps_; false with a reason in `why` and steps_ empty.
  bool addProduct(const Plan& plan, std::string& why);
  bool addTail(const Plan& plan, std::string& why);

  MatmulDesc desc_;
  std::string text_;  // desc_ for messages
  std::vector<Staging> stagings_;
  std::optional<Staging> out_staging_;
  bool empty_ = false;       // no elements in out
  bool zero_first_ = false;  // K = 0: the product is zeros and only the tail runs
  std::vector<PrimitiveStep> steps_;
  size_t scratchpad_offset_ = 0, scratch_bytes_ = 0;
  TensorDesc b_dense_;  // what b is before packing, if it needs a copy first
  bool b_copied_ = false;
  std::optional<dnnl::reorder> pack_;
  dnnl::memory::desc b_layout_, packed_layout_;
  size_t packed_bytes_ = 0;
  std::string implementation_;
  mutable std::atomic<Handles*> spare_{nullptr};
};

}  // namespace zefuse::onednn
