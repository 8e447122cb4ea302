// A derivative of attention on a matrix engine of fragments (MatrixForm::fragments).
#pragma once

#include <optional>

#include "common/toolchain/target_description.h"
#include "lowering/schedule/products/attention_gradient_call.h"
#include "lowering/schedule/products/call_kernel.h"

namespace zefuse {

// Each sub-group has 16 rows of the queries or of the keys; `passing` rows of the other pass by in a step.
struct FragmentGradientTile {
  const MatrixOperation* engine;
  bool of_keys;
  int64_t subgroups, passing;
  int64_t depth, columns;  // of a head, in whole squares of 16
  bool keep_own;           // the own rows' operands stay in registers, else they are loaded at each step

  int64_t rows() const { return subgroups * 16; }
};

// None: the engine multiplies no such elements, or heads are too large for registers or local memory.
std::optional<FragmentGradientTile> chooseFragmentGradient(const AttentionGradientCall& call,
                                                           const TargetDescription& target);

// Whether all three derivatives are one launch: of few groups of each kind neither fills the device, and one's would
// wait for the other's last.
bool joinsFragmentGradients(const AttentionGradientCall& call, const TargetDescription& target);

void scheduleFragmentGradient(const AttentionGradientCall& call, CallKernel& kernel, const TargetDescription& target);

}  // namespace zefuse
