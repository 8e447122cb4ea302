// The steps of recurrent layers (python/zefuse/recurrent.py): one operation each, with its derivative.
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

Emitter steps(StringRef cell, ArrayRef<StringRef> operands, bool gradient) {
  return [cell = cell.str(), names = std::vector<std::string>(operands.begin(), operands.end()), gradient](Op& op) {
    SmallVector<Value> values;
    for (const std::string& name : names) {
      values.push_back(op.tensor(name));
      Type element = elementOf(values.back());
      if (!element.isF32() && !(name == "weight" && element.isBF16()))
        op.refuse("argument " + name + " is not f32");
    }
    SmallVector<RankedTensorType> results;
    for (unsigned i = 0; i < op.numResults(); ++i)
      results.push_back(op.resultType(i));
    std::string kind = cell.empty() ? op.text("nonlinearity").str() : cell;
    return Values(op.build.recurrence(kind, values, gradient, op.boolean("reverse"), results));
  };
}

}  // namespace

void registerRecurrence(OpTable& table) {
  table.add("zefuse.lstm_steps.default", steps("lstm", {"gates", "weight", "bias", "hidden", "cell"}, false));
  table.add(
      "zefuse.lstm_steps_backward.default",
      steps("lstm", {"grad_output", "grad_last_cell", "weight", "cell", "cells", "activations"}, /*gradient=*/true));
  table.add("zefuse.gru_steps.default", steps("gru", {"gates", "weight", "bias", "hidden"}, false));
  table.add("zefuse.gru_steps_backward.default",
            steps("gru", {"grad_output", "weight", "hidden", "output", "activations"}, true));
  table.add("zefuse.rnn_steps.default", steps("", {"gates", "weight", "bias", "hidden"}, false));
  table.add("zefuse.rnn_steps_backward.default", steps("", {"grad_output", "weight", "output"}, true));
}

}  // namespace zefuse
