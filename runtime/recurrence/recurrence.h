// Recurrent layers, one direction of one layer at a time: all steps of a sequence in one call, forward and derivative.
// See plan.fbs, table Recurrence, for its meaning.
//
// The products with the input are not here: over all steps they are one matrix product, which the plan has as such.
// What is left is sequential: at each step a product with the hidden state, and the cell's formula.
#pragma once

#include <memory>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/primitive.h"

namespace zefuse::recurrence {

struct Level;
struct Sequence;

struct RecurrenceDesc {
  plan::RecurrentCell cell{};
  bool gradient = false;
  bool reverse = false;                          // steps from the last to the first
  bool packed = false;                           // packed sequences; the last operand says how many rows each step has
  std::vector<primitives::TensorDesc> operands;  // f32; the weights f32 or bf16; rows of packed sequences i64
  std::vector<primitives::TensorDesc> results;   // f32; sizes are empty for one that nobody asks for
  // Of the cell lstm_layer the input, its weights and the output are all f32 or all bf16, of its derivative the
  // gradients of the output and of the gates; of bf16 activations are f16.
  bool projected = false;  // an LSTM with a projection, the operand behind the others
  bool operator==(const RecurrenceDesc&) const = default;
};

// Immutable and thread-safe. run(): b is the packed weight, `operands` all operands in order (the weight's
// place is not read), `results` all results in order, nullptr for those nobody asks for.
// A weight of bf16 is multiplied in tiles where the processor has them, with a hidden state, or a derivative's
// gradients of the products, rounded to bf16 at each step; elsewhere, and for derivatives with a projection, it is
// widened. A hidden unit is computed by one thread and summed in one order, so the bits do not depend on the number of
// threads. A projection is packed at each run. Of packed sequences run() gives invalid_argument when the numbers of
// rows grow or do not add up.
class Recurrence : public primitives::Primitive {
public:
  // invalid_argument when sizes do not fit together, or rows are not contiguous; unsupported for other dtypes.
  static Result<std::shared_ptr<const Recurrence>> get(const RecurrenceDesc& desc);

  explicit Recurrence(RecurrenceDesc desc);

  size_t packedBytes() const override;
  Status packB(const void* weight, void* packed) const override;
  bool packsLike(const Primitive& other) const override;
  size_t scratchBytes() const override;
  Status run(const Arguments& arguments) const override;
  const std::string& implementation() const override { return implementation_; }

private:
  // Scratch memory, in floats behind where steps of packed sequences begin; each part in whole lines of a cache.
  struct Scratch {
    int64_t hidden, cell, unprojected, projection, rounded, rounded_cells, input, output, activations, gradient, sums,
        end;
  };
  Scratch scratch() const;
  // With the products of its input; `ofLayer`: that or its derivative.
  bool isLayer() const { return ofLayer() && !desc_.gradient; }
  bool ofLayer() const { return desc_.cell == plan::RecurrentCell::lstm_layer; }
  bool narrowLayer() const;
  bool widensLayer() const;
  plan::RecurrentCell cellOfSteps() const { return ofLayer() ? plan::RecurrentCell::lstm : desc_.cell; }
  int64_t rowsOfSum() const;
  int64_t spreadSize() const;
  bool copiesInput() const;
  int64_t multipliedDepth() const;
  size_t packedBytesOf(int64_t depth) const;
  void packMatrix(int64_t depth, const void* weight, void* packed) const;
  Sequence sequence(const Arguments& arguments) const;
  Status preparePacked(Sequence& s, const Arguments& arguments) const;
  void prepareStates(Sequence& s, const Arguments& arguments, float* memory) const;
  void prepareTiles(Sequence& s, const Arguments& arguments, float* memory) const;
  void prepareInput(Sequence& s, const Arguments& arguments, float* memory) const;
  void prepareSplits(Sequence& s, __bf16* memory) const;
  void prepareActivations(Sequence& s, float* memory) const;
  void prepareGradient(Sequence& s, float* memory) const;
  void roundResults(const Sequence& s, const Arguments& arguments) const;
  void sumBias(const Sequence& s, const Arguments& arguments) const;
  void runShared(const Sequence& s) const;
  Status readRows(const int64_t* rows, int64_t* places) const;
  void packProjection(const void* projection, float* packed) const;

  RecurrenceDesc desc_;
  int64_t steps_, batch_, hidden_;
  int64_t outputs_;  // units of the hidden state
  int64_t inputs_;   // numbers of a layer's input
  int64_t total_;    // rows of all steps
  const Level& level_;
  std::string implementation_;
};

// "lstm f32[64,8,1024] ... -> f32[64,8,256]"
std::string toString(const RecurrenceDesc& desc);

}  // namespace zefuse::recurrence
