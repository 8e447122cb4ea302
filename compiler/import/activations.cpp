// Activation functions, with the formulas of torch's CPU kernels.
#include <cmath>

#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {
using Formula = std::function<Scalar(Body&, Scalar)>;

// One tensor in, one out; `make` reads the other arguments once, before the loop is built.
void addActivation(OpTable& table, StringRef target, std::function<Formula(Op&)> make) {
  table.add(target, [make](Op& op) -> Values {
    TensorOrNumber self = op.operand("self");
    Formula formula = make(op);
    return {elementwise(op, {self}, floatType(elementOf(self.tensor)),
                        [&](Body& body, ArrayRef<Scalar> in) { return formula(body, in[0]); })};
  });
}

Scalar softplus(Scalar x, double beta, double threshold) {
  return select(x * beta > threshold, x, log1p(exp(x * beta)) / beta);
}

Scalar clampZeroSix(Scalar x) { return atMost(atLeast(x, 0), 6); }

}  // namespace

void registerActivations(OpTable& table) {
  addActivation(table, "aten.gelu.default", [](Op& op) -> Formula {
    StringRef approximate = op.text("approximate");
    if (approximate == "none")
      return [](Body&, Scalar x) { return x * 0.5 * (1.0 + erf(x * M_SQRT1_2)); };
    if (approximate == "tanh")
      return [](Body&, Scalar x) {
        Scalar inner = (M_SQRT2 * M_2_SQRTPI * 0.5) * (x + 0.044715 * (x * x * x));
        return 0.5 * x * (1.0 + tanh(inner));
      };
    op.refuse("argument approximate='" + approximate + "' is not lowered");
  });
  addActivation(table, "aten.silu.default",
                [](Op&) -> Formula { return [](Body&, Scalar x) { return x / (1.0 + exp(-x)); }; });
  addActivation(table, "aten.sigmoid.default",
                [](Op&) -> Formula { return [](Body&, Scalar x) { return sigmoid(x); }; });
  addActivation(table, "aten.tanh.default", [](Op&) -> Formula { return [](Body&, Scalar x) { return tanh(x); }; });
  addActivation(table, "aten.mish.default",
                [](Op&) -> Formula { return [](Body&, Scalar x) { return x * tanh(log1p(exp(x))); }; });
  addActivation(table, "aten.log_sigmoid.default", [](Op&) -> Formula {
    return [](Body&, Scalar x) { return minimum(x, x.constant(0)) - log1p(exp(-abs(x))); };
  });
  addActivation(table, "aten.relu6.default",
                [](Op&) -> Formula { return [](Body&, Scalar x) { return clampZeroSix(x); }; });
  addActivation(table, "aten.hardtanh.default", [](Op& op) -> Formula {
    double low = op.real("min_val"), high = op.real("max_val");
    return [=](Body&, Scalar x) { return atMost(atLeast(x, low), high); };
  });
  addActivation(table, "aten.hardswish.default",
                [](Op&) -> Formula { return [](Body&, Scalar x) { return x * clampZeroSix(x + 3.0) / 6.0; }; });
  addActivation(table, "aten.hardsigmoid.default",
                [](Op&) -> Formula { return [](Body&, Scalar x) { return clampZeroSix(x + 3.0) / 6.0; }; });
  addActivation(table, "aten.leaky_relu.default", [](Op& op) -> Formula {
    double slope = op.real("negative_slope");
    return [=](Body&, Scalar x) { return select(x > 0, x, x * slope); };
  });
  addActivation(table, "aten.elu.default", [](Op& op) -> Formula {
    double alpha = op.real("alpha"), scale = op.real("scale"), input_scale = op.real("input_scale");
    return [=](Body&, Scalar x) { return select(x <= 0, expm1(x * input_scale) * (alpha * scale), x * scale); };
  });
  addActivation(table, "aten.softplus.default", [](Op& op) -> Formula {
    double beta = op.real("beta"), threshold = op.real("threshold");
    return [=](Body&, Scalar x) { return softplus(x, beta, threshold); };
  });
  addActivation(table, "aten.softshrink.default", [](Op& op) -> Formula {
    double lambda = op.real("lambd");
    return [=](Body&, Scalar x) { return select(x > lambda, x - lambda, select(x < -lambda, x + lambda, x * 0.0)); };
  });
  addActivation(table, "aten.hardshrink.default", [](Op& op) -> Formula {
    double lambda = op.real("lambd");
    Type type = elementOf(op.tensor("self"));
    return [=](Body& body, Scalar x) {
      Scalar limit = body.constant(type, lambda).to(x.type());  // of f16 and bf16 rounded, as in eager
      return select((x >= -limit) & (x <= limit), x.constant(0), x);
    };
  });
  addActivation(table, "aten.threshold.default", [](Op& op) -> Formula {
    double limit = op.real("threshold"), value = op.real("value");
    return [=](Body&, Scalar x) { return select(x <= limit, x.constant(value), x); };
  });
  table.add("aten.prelu.default", [](Op& op) -> Values {
    TensorOrNumber self = op.operand("self"), weight = op.operand("weight");
    if (rankOf(self.tensor) > 1 && rankOf(weight.tensor) == 1) {  // one slope per channel, dimension 1
      Exprs sizes(rankOf(self.tensor) - 1, op.build.constant(1));
      sizes[0] = shapeOf(typeOf(weight.tensor))[0];
      weight.tensor = op.build.reshape(weight.tensor, sizes);
    }
    return {elementwise(op, {self, weight}, elementOf(self.tensor),
                        [](Body&, ArrayRef<Scalar> in) { return select(in[0] > 0, in[0], in[0] * in[1]); })};
  });
}

}  // namespace zefuse
