// Derivatives of activations and norms, whole as autograd asks for them: taken apart by torch, a step of a transformer
// has half as many nodes again, each of which Python traces, cuts and reads (docs/training.md).
#include <cmath>

#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"

using namespace mlir;

namespace zefuse {
namespace {
// The derivative by a function's argument: of the output's gradient, and the function's argument or result.
using Formula = std::function<Scalar(Scalar grad, Scalar x)>;

// `given`: the name of the function's argument or result. `make` reads the other arguments once.
void addGradient(OpTable& table, StringRef target, std::string grad, std::string given,
                 std::function<Formula(Op&)> make) {
  table.add(("aten." + target).str(), [=](Op& op) -> Values {
    TensorOrNumber of_output = op.operand(grad), x = op.operand(given);
    if (!isa<FloatType>(elementOf(x.tensor)) || !isa<FloatType>(elementOf(of_output.tensor)))
      op.refuse("of " + fx::dtypeName(elementOf(x.tensor)) + " is not lowered");
    Formula formula = make(op);
    return {elementwise(op, {of_output, x}, promote({of_output, x}, op.build.b.getContext()),
                        [&](Body&, ArrayRef<Scalar> in) { return formula(in[0], in[1]); })};
  });
}

Formula geluGradient(Op& op) {
  StringRef approximate = op.text("approximate");
  if (approximate == "none")
    return [](Scalar grad, Scalar x) {
      Scalar cumulative = 0.5 * (1.0 + erf(x * M_SQRT1_2));
      Scalar density = (M_2_SQRTPI * M_SQRT1_2 * 0.5) * exp(x * x * -0.5);
      return grad * (cumulative + x * density);
    };
  if (approximate == "tanh")
    return [](Scalar grad, Scalar x) {
      const double beta = M_SQRT2 * M_2_SQRTPI * 0.5, kappa = 0.044715;
      Scalar square = x * x;
      Scalar tangent = tanh(beta * (x + kappa * (square * x)));
      Scalar left = 0.5 * (1.0 + tangent);
      Scalar right = 0.5 * x * (1.0 - tangent * tangent) * (beta * (1.0 + 3 * kappa * square));
      return grad * (left + right);
    };
  op.refuse("argument approximate='" + approximate + "' is not lowered");
}

Formula eluGradient(Op& op) {
  double alpha = op.real("alpha"), scale = op.real("scale"), input_scale = op.real("input_scale");
  if (op.boolean("is_result"))
    return
        [=](Scalar grad, Scalar y) { return select(y <= 0, grad * input_scale * (y + alpha * scale), grad * scale); };
  return [=](Scalar grad, Scalar x) {
    return select(x <= 0, grad * (input_scale * alpha * scale) * exp(x * input_scale), grad * scale);
  };
}

// With x' = (x - mean) rstd, g the output's gradient and h = weight g, over rows of N elements:
//   input: rstd / N (N h - sum(h) - x' sum(h x')),  weight: sum over rows of g x',  bias: sum over rows of g.
// (Ba, Kiros and Hinton, Layer Normalization, 2016, section 3.)
Values emitLayerNormBackward(Op& op) {
  TensorBuilder& build = op.build;
  Value input = op.tensor("input"), weight = op.optionalTensor("weight");
  const int64_t rank = rankOf(input), outer = rank - int64_t(op.sizes("normalized_shape").size());
  SmallVector<int64_t> row = llvm::to_vector(llvm::seq<int64_t>(outer, rank));
  SmallVector<int64_t> rows = llvm::to_vector(llvm::seq<int64_t>(0, outer));
  Type compute = fx::computeType(elementOf(input));
  Value g = build.convert(op.tensor("grad_out"), compute), x = build.convert(input, compute);
  Value mean = build.convert(op.tensor("mean"), compute), rstd = build.convert(op.tensor("rstd"), compute);
  Value normal =
      mapSame(build, {x, mean, rstd}, typeOf(x), [](ArrayRef<Scalar> in) { return (in[0] - in[1]) * in[2]; });
  Values results(3);
  if (op.used(0)) {
    Value h = g;
    if (weight)
      h = mapSame(build, {g, weight}, typeOf(g), [&](ArrayRef<Scalar> in) { return in[0] * in[1].to(compute); });
    Value products = mapSame(build, {h, normal}, typeOf(g), [](ArrayRef<Scalar> in) { return in[0] * in[1]; });
    Value sum = keepDims(build, build.reduce(h, row, ReductionKind::add), row);
    Value product_sum = keepDims(build, build.reduce(products, row, ReductionKind::add), row);
    AffineExpr count = countOf(build, x, row);
    Type element = op.element();
    results[0] = build.loop({h, normal, rstd, sum, product_sum}, op.resultType(), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar n = body.size(count).to(compute);
      return (in[2] / n * (in[0] * n - in[3] - in[1] * in[4])).to(element);
    });
  }
  if (op.used(1)) {
    Value products = mapSame(build, {g, normal}, typeOf(g), [](ArrayRef<Scalar> in) { return in[0] * in[1]; });
    results[1] = build.convert(build.reduce(products, rows, ReductionKind::add), op.element(1));
  }
  if (op.used(2))
    results[2] = build.convert(build.reduce(g, rows, ReductionKind::add), op.element(2));
  return results;
}

}  // namespace

void registerGradients(OpTable& table) {
  table.add("aten.native_layer_norm_backward.default", emitLayerNormBackward);
  addGradient(table, "gelu_backward.default", "grad_output", "self", geluGradient);
  addGradient(table, "elu_backward.default", "grad_output", "self_or_result", eluGradient);
  addGradient(table, "silu_backward.default", "grad_output", "self", [](Op&) -> Formula {
    return [](Scalar grad, Scalar x) {
      Scalar share = sigmoid(x);
      return grad * share * (1.0 + x * (1.0 - share));
    };
  });
  addGradient(table, "sigmoid_backward.default", "grad_output", "output",
              [](Op&) -> Formula { return [](Scalar grad, Scalar y) { return grad * (y * (1.0 - y)); }; });
  addGradient(table, "tanh_backward.default", "grad_output", "output",
              [](Op&) -> Formula { return [](Scalar grad, Scalar y) { return grad * (1.0 - y * y); }; });
  addGradient(table, "threshold_backward.default", "grad_output", "self", [](Op& op) -> Formula {  // relu's
    double limit = op.real("threshold");
    return [=](Scalar grad, Scalar x) { return select(x <= limit, grad.constant(0), grad); };
  });
  addGradient(table, "leaky_relu_backward.default", "grad_output", "self", [](Op& op) -> Formula {
    double slope = op.real("negative_slope");
    return [=](Scalar grad, Scalar x) { return select(x > 0, grad, grad * slope); };
  });
  addGradient(table, "hardtanh_backward.default", "grad_output", "self", [](Op& op) -> Formula {
    double low = op.real("min_val"), high = op.real("max_val");
    return [=](Scalar grad, Scalar x) { return select((x <= low) | (x >= high), grad.constant(0), grad); };
  });
  addGradient(table, "hardswish_backward.default", "grad_output", "self", [](Op&) -> Formula {
    return [](Scalar grad, Scalar x) {
      return select(x <= -3.0, grad.constant(0), select(x < 3.0, grad * (x / 3.0 + 0.5), grad));
    };
  });
  addGradient(table, "hardsigmoid_backward.default", "grad_output", "self", [](Op&) -> Formula {
    return [](Scalar grad, Scalar x) { return select((x > -3.0) & (x < 3.0), grad * (1.0 / 6.0), grad.constant(0)); };
  });
}

}  // namespace zefuse
