#include "tests/unit/lowering/convolution_text.h"

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
      return "affine_map<(d0, d1, d2, d3, d4) -> (d0 * " + std::to_string(n * c * h * w) + " + " + offset + ")>";
    return "affine_map<(d0, d1, d2, d3) -> (" + offset + ")>";
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
  std::string types = first.type() + ", " + second.type(),
              parameters = "%a: " + first.type() + ", %b: " + second.type();
  std::string maps = first.layout(channels_last) + ", " + second.layout(channels_last);
  std::string call = "zefuse.convolution \"" + kind + "\" %a, %b";
  if (with_bias) {
    std::string bias = "tensor<" + std::to_string(outputs) + "x" + element + ">";
    types += ", " + bias + ", " + third.type();
    parameters += ", %bias: " + bias + ", %o: " + third.type();
    maps += ", affine_map<(d0) -> (d0)>, " + third.layout(channels_last);
    call += " bias %bias operands(%o)";
  }
  maps += ", " + third.layout(channels_last);
  return "func.func @graph(" + parameters + ") attributes {layouts = [" + maps + "]} {\n  %r = " + call +
         " {stride = " + list(stride) + ", padding = " + list(padding) + ", dilation = " + list(dilation) +
         ", groups = " + std::to_string(groups) + " : i64" +
         (slices > 1 ? ", slices = " + std::to_string(slices) + " : i64" : "") +
         (with_bias ? ", post_ops = [\"relu\", \"add\"]" : "") + "} : (" + types + ") -> " + third.type() +
         "\n  return\n}\n";
}

}  // namespace zefuse::test
