// The steps of recurrent layers (python/zefuse/decompositions/recurrent.py): one operation each, with its derivative.
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

Emitter steps(StringRef cell, ArrayRef<StringRef> operands, bool gradient, bool packed, bool projected) {
  return [cell = cell.str(), names = std::vector<std::string>(operands.begin(), operands.end()), gradient, packed,
          projected](Op& op) {
    SmallVector<Value> values;
    for (const std::string& name : names) {
      values.push_back(op.tensor(name));
      Type element = elementOf(values.back());
      const bool narrow = name == "weight" || name == "projection" || name == "input" ||
                          (cell == "lstm_layer" && name == "grad_output");
      const bool half = cell == "lstm_layer" && name == "activations";
      if (!element.isF32() && !(narrow && element.isBF16()) && !(half && element.isF16()))
        op.refuse("argument " + name + " is not f32");
    }
    if (packed) {
      if (gradient)
        values.push_back(op.tensor("grad_last_hidden"));
      values.push_back(op.tensor("batch_sizes"));
      if (!elementOf(values.back()).isInteger(64))
        op.refuse("argument batch_sizes is not int64");
    }
    SmallVector<RankedTensorType> results;
    for (unsigned i = 0; i < op.numResults(); ++i)
      results.push_back(op.resultType(i));
    std::string kind = cell.empty() ? op.text("nonlinearity").str() : cell;
    return Values(op.build.recurrence(kind, values, gradient, op.boolean("reverse"), packed, projected, results));
  };
}

}  // namespace

void registerRecurrence(OpTable& table) {
  auto add = [&](StringRef name, StringRef cell, ArrayRef<StringRef> operands, ArrayRef<StringRef> of_gradient,
                 bool projected = false) {
    for (bool packed : {false, true}) {
      const std::string whole = ("zefuse." + name + (packed ? "_packed_steps" : "_steps")).str();
      table.add(whole + ".default", steps(cell, operands, false, packed, projected));
      table.add(whole + "_backward.default", steps(cell, of_gradient, /*gradient=*/true, packed, projected));
    }
  };
  add("lstm", "lstm", {"gates", "weight", "bias", "hidden", "cell"},
      {"grad_output", "grad_last_cell", "weight", "cell", "cells", "activations"});
  add("lstm_projected", "lstm", {"gates", "weight", "bias", "hidden", "cell", "projection"},
      {"grad_output", "grad_last_cell", "weight", "cell", "cells", "activations", "projection"}, /*projected=*/true);
  table.add("zefuse.lstm_layer.default",
            steps("lstm_layer", {"input", "weight", "bias", "hidden", "cell"}, false, false, false));
  table.add("zefuse.lstm_layer_backward.default",
            steps("lstm_layer",
                  {"grad_output", "grad_last_cell", "weight", "cell", "cells", "activations", "grad_last_hidden"},
                  /*gradient=*/true, false, false));
  add("gru", "gru", {"gates", "weight", "bias", "hidden"},
      {"grad_output", "weight", "hidden", "output", "activations"});
  add("rnn", "", {"gates", "weight", "bias", "hidden"}, {"grad_output", "weight", "output"});
}

}  // namespace zefuse
