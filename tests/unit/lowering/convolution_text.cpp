#include "tests/unit/lowering/convolution_text.h"

#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {

namespace {

std::string list(const int (&values)[2]) {
  return "array<i64: " + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ">";
}

struct Shape {
  int n, c, h, w;
  std::string element;
  int slices = 1;
  std::string type() const {
    return "tensor<" + (slices > 1 ? std::to_string(slices) + "x" : "") + std::to_string(n) + "x" + std::to_string(c) +
           "x" + std::to_string(h) + "x" + std::to_string(w) + "x" + element + ">";
  }
  std::string layout(bool channels_last) const {
    const int first = slices > 1;
    auto part = [&](int dim, int stride) { return "d" + std::to_string(dim + first) + " * " + std::to_string(stride); };
    std::string offset = channels_last
                             ? part(0, c * h * w) + " + " + part(1, 1) + " + " + part(2, w * c) + " + " + part(3, c)
                             : part(0, c * h * w) + " + " + part(1, h * w) + " + " + part(2, w) + " + " + part(3, 1);
    if (slices > 1)
      return "(d0, d1, d2, d3, d4) -> (d0 * " + std::to_string(n * c * h * w) + " + " + offset + ")";
    return "(d0, d1, d2, d3) -> (" + offset + ")";
  }
};

}  // namespace

std::string ConvolutionText::module() const {
  Shape image{images, inputs, size[0], size[1], element},
      weight{outputs, inputs / groups, kernel[0], kernel[1], element},
      result{images, outputs, resultSize(0), resultSize(1), element};
  Shape first = image, second = weight, third = result;
  if (kind == "transposed")
    first = result, third = image;
  else if (kind == "weights")
    second = result, third = weight;
  if (slices > 1) {
    third.slices = slices;
    third.element = "f32";
  }
  KernelText text;
  text.name = "convolution";
  text.input({"%a", first.type(), first.layout(channels_last)});
  text.input({"%b", second.type(), second.layout(channels_last)});
  const std::string bias = "tensor<" + std::to_string(outputs) + "x" + element + ">";
  if (with_bias)
    text.input({"%bias", bias, "(d0) -> (d0)"});
  text.line("%r = zefuse.convolution \"" + kind + "\" %a, %b" + std::string(with_bias ? " bias %bias" : "") +
            " {stride = " + list(stride) + ", padding = " + list(padding) + ", dilation = " + list(dilation) +
            ", groups = " + std::to_string(groups) + " : i64" +
            (slices > 1 ? ", slices = " + std::to_string(slices) + " : i64" : "") + "} : (" + first.type() + ", " +
            second.type() + (with_bias ? ", " + bias : "") + ") -> " + third.type());
  if (!with_bias) {
    text.output({"%r", third.type(), third.layout(channels_last)});
    return text.module();
  }
  const std::string map = "(d0, d1, d2, d3) -> (d0, d1, d2, d3)";
  text.input({"%residual", third.type(), third.layout(channels_last)});
  text.empty("%e", third.type());
  const bool wide = element == "f32";
  const std::string extend =
      "%x = arith.extf %0 : " + element + " to f32\n%y = arith.extf %1 : " + element + " to f32\n";
  text.generic(
      "%s", "pppp", {{"%r", third.type(), map}, {"%residual", third.type(), map}}, {"%e", third.type(), map},
      (wide ? "" : extend) + "%zero = arith.constant 0.0 : f32\n%positive = arith.maximumf " + (wide ? "%0" : "%x") +
          ", %zero : f32\n%sum = arith.addf %positive, " + (wide ? "%1" : "%y") + " : f32\n" +
          (wide ? "yield %sum : f32" : "%t = arith.truncf %sum : f32 to " + element + "\nyield %t : " + element));
  text.output({"%s", third.type(), third.layout(channels_last)});
  return text.module();
}

}  // namespace zefuse::test
