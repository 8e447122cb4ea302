// What an operator returned, as the executor's AtenResults.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "runtime/aten/arguments.h"

namespace zefuse::aten {

// Lists are flattened in order. Tensors that share a borrowed storage are cloned, keeping their
// strides; one that is the very tensor of an argument becomes an alias, so that no two owners share
// autograd's data. unsupported for results that plans cannot hold (not dense, not on the CPU, an
// element type without a number in plan.fbs).
Result<std::vector<AtenResult>> results(std::vector<c10::IValue>& returned, const BorrowedStorages& borrowed);

}  // namespace zefuse::aten
