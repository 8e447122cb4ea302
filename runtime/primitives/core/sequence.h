// What prepared library calls have in common: oneDNN primitives in order, copies in and out of scratch, packed weights.
#pragma once

#include <atomic>
#include <dnnl.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/primitives/core/primitive.h"

namespace zefuse::primitives {

// What a primitive's argument or a copy's end may be. Post-op operand i is `firstOperand + i`.
enum Slot : int { slotA, slotB, slotBias, slotOut, slotAlpha, slotScratchpad, slotWeights, firstOperand };

// A copy into scratch (operands) or out of it (out).
struct Staging {
  int slot;
  TensorDesc outside, inside;
  size_t offset;      // in scratch, bytes
  size_t origin = 0;  // bytes from the slot's address to outside's element of index 0 (its strides may be negative)
  std::optional<TensorDesc> zeroed;  // what of scratch is zero before, around the copy
  size_t inner = 0;                  // bytes from `offset` to inside's element of index 0
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

// What oneDNN has no primitive for: runs in front of the sequence's primitives. Immutable and thread-safe.
class OwnStep {
public:
  virtual ~OwnStep() = default;
  // b as the step wants it.
  virtual void pack(const void* b, void* packed) const = 0;
  // `addresses` by slot, copies made. `scratch` is the call's.
  virtual void run(std::span<void* const> addresses, std::byte* scratch) const = 0;
};

// Filled while a call is prepared, then immutable.
class Sequence {
public:
  explicit Sequence(std::string what) : text(std::move(what)) {}
  Sequence(const Sequence&) = delete;
  ~Sequence();

  // Reserves scratch for a copy of an operand, or of out, unless it lies as `inside` already.
  void stageOperand(int slot, const TensorDesc& outside, const TensorDesc& inside, const char* name, size_t origin = 0);
  // As stageOperand, into the middle of `padded`: zeros around it, `begin` of them before each of the dimensions.
  void stagePadded(int slot, const TensorDesc& outside, const TensorDesc& padded, const std::vector<int64_t>& begin,
                   const char* name);
  void stageOut(const TensorDesc& outside, const TensorDesc& inside);
  // Room in scratch for a primitive's result: the offset.
  size_t reserve(size_t bytes);
  // How b, in `b_layout` after a copy if b differs from b_dense, becomes packed_layout. May throw dnnl::error.
  void preparePacking(const TensorDesc& b, const TensorDesc& dense, size_t origin = 0);
  // How `own` packs b.
  void prepareOwnPacking(const TensorDesc& b, size_t bytes);
  // Places oneDNN's own scratchpad. Last.
  void placeScratchpad();

  Status packB(const void* b, void* packed) const;
  bool packsLike(const Sequence& other) const;
  Status run(const Primitive::Arguments& call) const;

  std::string text;                      // the descriptor, for messages
  std::string implementation;            // Primitive::implementation
  size_t post_ops = 0;                   // of the descriptor
  float alpha = 1;                       // slotAlpha
  bool empty = false;                    // no elements in out
  bool one_thread = false;               // too little work for a team: prepared and run without one
  std::optional<TensorDesc> zero_first;  // out begins as zeros
  std::shared_ptr<const OwnStep> own;
  bool own_takes_given = false;  // b as it is, too: slotWeights is nullptr then
  std::vector<PrimitiveStep> steps;
  std::shared_ptr<const OwnStep> own_tail;  // behind the steps
  std::optional<size_t> weights_offset;     // slotWeights in scratch; without: what packB made
  dnnl::memory::desc b_layout, packed_layout;
  size_t packed_bytes = 0, scratch_bytes = 0;

private:
  // oneDNN's memory objects of one call: handles without storage. One is kept spare between calls,
  // so that calls one after the other allocate nothing; concurrent calls make their own.
  struct Handles {
    std::vector<std::vector<dnnl::memory>> memories;  // per step, per binding
    std::vector<std::vector<dnnl_exec_arg_t>> arguments;
    std::vector<void*> addresses;  // by slot
  };
  std::unique_ptr<Handles> makeHandles() const;

  std::vector<Staging> stagings_;
  std::optional<Staging> out_staging_;
  TensorDesc b_, b_dense_;  // b before packing, and what packing begins with
  size_t b_origin_ = 0;     // as Staging::origin
  std::optional<dnnl::reorder> pack_;
  size_t scratchpad_offset_ = 0;
  mutable std::atomic<Handles*> spare_{nullptr};
};

// A library call's interface carried out by a sequence.
template <typename Call> class Prepared : public Call {
public:
  size_t packedBytes() const override { return sequence_.packed_bytes; }
  Status packB(const void* b, void* packed) const override { return sequence_.packB(b, packed); }
  bool packsLike(const Primitive& other) const override {
    const auto* that = dynamic_cast<const Prepared*>(&other);
    return that && sequence_.packsLike(that->sequence_);
  }
  bool takesGivenB() const override { return sequence_.own_takes_given; }
  size_t scratchBytes() const override { return sequence_.scratch_bytes; }
  Status run(const Primitive::Arguments& arguments) const override { return sequence_.run(arguments); }
  const std::string& implementation() const override { return sequence_.implementation; }

protected:
  explicit Prepared(std::string what) : sequence_(std::move(what)) {}
  Sequence sequence_;
};

size_t bytesOf(const TensorDesc& desc);   // of dense storage
bool hasCodes(const TensorDesc& tensor);  // of 8 bits, which quantization made
// Row-major, of another element type.
TensorDesc dense(const TensorDesc& desc, plan::DType dtype);
// Whether distinct indices have distinct elements, as oneDNN wants it.
bool distinct(const TensorDesc& desc);

// Post-ops that are no binary operation, with eager's values for NaN and infinities.
struct Eltwise {
  dnnl::algorithm kind;
  float alpha, beta;
};
std::vector<Eltwise> eltwise(plan::PostOpKind kind);

// By oneDNN's names: "ref:any" works element by element.
inline bool isReference(const std::string& name) { return name.rfind("ref", 0) == 0; }
// "x64:gemm:jit": patches are copied for a product, whose post-ops are applied element by element.
inline bool isByProduct(const std::string& name) { return name.find("gemm") != std::string::npos; }

// As many of out's post-ops, from `first` on, as primitives of their own, in place on out. False with a reason in
// `why`.
struct TailOp {
  plan::PostOpKind kind;
  int slot = -1;  // of the operand of add and mul; -1: none
  TensorDesc operand;
};
bool appendTail(Sequence& sequence, const std::vector<TailOp>& tail, size_t first, const TensorDesc& out,
                std::string& why);
// Adds the first `count` to `post_ops`, and their operands to `bindings`.
void appendPostOps(const std::vector<TailOp>& tail, size_t count, dnnl::post_ops& post_ops,
                   std::vector<Binding>& bindings);

}  // namespace zefuse::primitives
