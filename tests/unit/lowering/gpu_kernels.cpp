#include "tests/unit/lowering/gpu_kernels.h"

#include "tests/unit/lowering/convolution_text.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

std::string probeKernel(size_t n, size_t m) {
  KernelText text;
  std::string full = type(n, m), bias = type(std::to_string(m));
  text.input({"%x", full, flat(m)});
  text.input({"%y", full, flat(m)});
  text.input({"%b", bias, "(d0) -> (d0)"});
  text.empty("%e", full);
  text.generic("%r", "pp", {{"%x", full, both}, {"%y", full, both}, {"%b", bias, columns}}, {"%e", full, both},
               probe_body);
  text.output({"%r", full, flat(m)});
  return text.module();
}

// x + tanh(x) in a 16-bit type.
std::string narrowKernel(const std::string& element) {
  KernelText text;
  std::string full = type("64x200", element);
  text.input({"%x", full, flat(200)});
  text.empty("%e", full);
  text.generic("%r", "pp", {{"%x", full, both}}, {"%e", full, both},
               "%w = arith.extf %0 : " + element +
                   " to f32\n %t = math.tanh %w : f32\n %s = arith.addf %w, %t : f32\n" +
                   "%r = arith.truncf %s : f32 to " + element + "\n yield %r : " + element);
  text.output({"%r", full, flat(200)});
  return text.module();
}

std::string transposeKernel() {
  KernelText text;
  text.input({"%a", type("320x240"), flat(240)});
  text.input({"%y", type("240x320"), flat(320)});
  text.line("%at = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<320x240xf32> -> tensor<240x320xf32>");
  text.empty("%e", type("240x320"));
  text.generic("%r", "pp", {{"%at", type("240x320"), both}, {"%y", type("240x320"), both}},
               {"%e", type("240x320"), both}, "%s = arith.addf %0, %1 : f32\n yield %s : f32");
  text.output({"%r", type("240x320"), flat(320)});
  return text.module();
}

std::string scanKernel(int dim) {
  KernelText text;
  std::string full = type("300x500", "i64");
  text.input({"%x", full, flat(500)});
  text.line("%r = zefuse.scan %x dim " + std::to_string(dim) + " initial 0 : i64 : (" + full + ") -> " + full +
            " {\n ^bb0(%before: i64, %element: i64):\n %sum = arith.addi %before, %element : i64\n"
            " zefuse.yield %sum : i64\n }");
  text.output({"%r", full, flat(500)});
  return text.module();
}

std::string padKernel() {
  KernelText text;
  text.input({"%x", type("64x37"), flat(37)});
  text.line("%p = zefuse.pad %x low [1, 2] value 0.0 : f32 : tensor<64x37xf32> -> tensor<66x41xf32>");
  text.empty("%e", type("66x41"));
  text.generic("%r", "pp", {{"%p", type("66x41"), both}}, {"%e", type("66x41"), both},
               "%s = math.tanh %0 : f32\n yield %s : f32");
  text.output({"%r", type("66x41"), flat(41)});
  return text.module();
}

std::string concatKernel() {
  KernelText text;
  text.input({"%x", type("64x37"), flat(37)});
  text.input({"%y", type("64x64"), flat(64)});
  text.line("%c = tensor.concat dim(1) %x, %y : (tensor<64x37xf32>, tensor<64x64xf32>) -> tensor<64x101xf32>");
  text.empty("%e", type("64x101"));
  text.generic("%r", "pp", {{"%c", type("64x101"), both}}, {"%e", type("64x101"), both},
               "%s = arith.addf %0, %0 : f32\n yield %s : f32");
  text.output({"%r", type("64x101"), flat(101)});
  return text.module();
}

std::string embeddingKernel() {
  KernelText text;
  text.input({"%table", type("1000x768"), flat(768)});
  text.input({"%ids", type("60", "i64"), "(d0) -> (d0)"});
  text.empty("%e", type("60x768"));
  text.generic("%r", "pp", {{"%ids", type("60", "i64"), rows}}, {"%e", type("60x768"), both},
               R"(%n = arith.constant 1000 : index
      %i = zefuse.checked_index %0, %n {wrap_negative = true, error = "index_error", message = "out of range"} : i64
      %j = linalg.index 1 : index
      %v = tensor.extract %table[%i, %j] : tensor<1000x768xf32>
      yield %v : f32)");
  text.output({"%r", type("60x768"), flat(768)});
  return text.module();
}

std::string sortKernel(const std::string& shape) {
  KernelText text;
  std::string values = type(shape), positions = type(shape, "i64"), columns = shape.substr(shape.find('x') + 1);
  text.input({"%x", values, flat(std::stoul(columns))});
  text.line("%v, %p = zefuse.sort %x dim 1 : (" + values + ") -> (" + values + ", " + positions + ")");
  text.output({"%v", values, flat(std::stoul(columns))});
  text.output({"%p", positions, flat(std::stoul(columns))});
  return text.module();
}

std::string softmaxKernel(size_t n, size_t m) {
  KernelText text;
  RowOps ops{text, type(n, m), type(std::to_string(n))};
  text.input({"%x", ops.full, flat(m)});
  text.output({ops.softmax("%x"), ops.full, flat(m)});
  return text.module();
}

std::string normKernel(size_t n, size_t m) {
  KernelText text;
  RowOps ops{text, type(n, m), type(std::to_string(n))};
  std::string vector = type(std::to_string(m));
  text.input({"%x", ops.full, flat(m)});
  text.input({"%w", vector, "(d0) -> (d0)"});
  text.input({"%b", vector, "(d0) -> (d0)"});
  text.output({ops.softmax(ops.layerNorm("%x", "%w", "%b", vector, m)), ops.full, flat(m)});
  return text.module();
}

std::string columnSums(size_t n, size_t m, const std::string& element = "f32") {
  KernelText text;
  std::string full = type(std::to_string(n) + "x" + std::to_string(m), element), out_type = type(std::to_string(m));
  text.input({"%x", full, flat(m)});
  text.fill("%i", out_type, "0.0");
  const std::string wide = element == "f32" ? "%0" : "%w";
  text.generic("%r", "rp", {{"%x", full, both}}, {"%i", out_type, columns},
               (element == "f32" ? "" : "%w = arith.extf %0 : " + element + " to f32\n ") + "%s = arith.addf " + wide +
                   ", %o : f32\n yield %s : f32");
  text.output({"%r", out_type, "(d0) -> (d0)"});
  return text.module();
}

std::string fullSum(size_t n, size_t m) {
  KernelText text;
  text.input({"%x", type(n, m), flat(m)});
  text.fill("%i", "tensor<f32>", "0.0");
  text.generic("%r", "rr", {{"%x", type(n, m), both}}, {"%i", "tensor<f32>", "(d0, d1) -> ()"},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.output({"%r", "tensor<f32>", "() -> (0)"});
  return text.module();
}

std::string anyOfRows() {
  KernelText text;
  text.input({"%x", type("50x300", "i1"), flat(300)});
  text.fill("%i", type("50", "i1"), "0");
  text.generic("%r", "pr", {{"%x", type("50x300", "i1"), both}}, {"%i", type("50", "i1"), rows},
               "%s = arith.ori %0, %o : i1\n yield %s : i1");
  text.output({"%r", type("50", "i1"), "(d0) -> (d0)"});
  return text.module();
}

std::string symbolicSoftmax() {
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  std::string row = "tensor<?xf32, affine_map<()[s0, s1] -> (s0)>>";
  KernelText text;
  text.input({"%x", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  text.line("%n = zefuse.size affine_map<()[s0, s1] -> (s0)>");
  text.line("%m = zefuse.size affine_map<()[s0, s1] -> (s1)>");
  text.fill("%i0", row, "0xFF800000", "%n");
  text.generic("%mx", "pr", {{"%x", full, both}}, {"%i0", row, rows},
               "%s = arith.maximumf %0, %o : f32\n yield %s : f32");
  text.empty("%e", full, "%n, %m");
  text.generic("%ex", "pp", {{"%x", full, both}, {"%mx", row, rows}}, {"%e", full, both},
               "%d = arith.subf %0, %1 : f32\n %r = math.exp %d : f32\n yield %r : f32");
  text.fill("%i1", row, "0.0", "%n");
  text.generic("%t", "pr", {{"%ex", full, both}}, {"%i1", row, rows}, "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.generic("%r", "pp", {{"%ex", full, both}, {"%t", row, rows}}, {"%e", full, both},
               "%d = arith.divf %0, %1 : f32\n yield %d : f32");
  text.output({"%r", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  return text.module();
}

std::string symbolicPointwise() {
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  KernelText text;
  text.input({"%x", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  text.input({"%b", "tensor<?xf32, affine_map<()[s0, s1] -> (s1)>>", "(d0)[s0, s1] -> (d0)"});
  text.line("%n = zefuse.size affine_map<()[s0, s1] -> (s0)>");
  text.line("%m = zefuse.size affine_map<()[s0, s1] -> (s1)>");
  text.empty("%e", full, "%n, %m");
  text.generic("%r", "pp", {{"%x", full, both}, {"%b", "tensor<?xf32, affine_map<()[s0, s1] -> (s1)>>", columns}},
               {"%e", full, both}, "%s = arith.addf %0, %1 : f32\n %t = math.tanh %s : f32\n yield %t : f32");
  text.output({"%r", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  return text.module();
}

// gelu(x @ w^T + b) + r
std::string linearKernel(int m, int n, int k, const std::string& element) {
  auto shape = [&](int a, int b) { return type(std::to_string(a) + "x" + std::to_string(b), element); };
  const std::string result = shape(m, n), bias = type(std::to_string(n), element);
  KernelText text;
  text.input({"%a", shape(m, k), flat(k)});
  text.input({"%b", shape(k, n), "(d0, d1) -> (d1 * " + std::to_string(k) + " + d0)"});
  text.input({"%c", bias, "(d0) -> (d0)"});
  text.input({"%r", result, flat(n)});
  text.line("%p = zefuse.matmul %a, %b bias %c : (" + shape(m, k) + ", " + shape(k, n) + ", " + bias + ") -> " +
            result);
  const bool wide = element == "f32";
  auto widened = [&](const std::string& name, const std::string& value) {
    return wide ? "%" + name + " = arith.addf " + value + ", %zero : f32\n"
                : "%" + name + " = arith.extf " + value + " : " + element + " to f32\n";
  };
  text.empty("%e", result);
  text.generic("%y", "pp", {{"%p", result, both}, {"%r", result, both}}, {"%e", result, both},
               "%zero = arith.constant 0.0 : f32\n" + widened("x", "%0") + widened("z", "%1") +
                   "%half = arith.constant 0.5 : f32\n%one = arith.constant 1.0 : f32\n"
                   "%k = arith.constant 0.70710678118654752 : f32\n"
                   "%s = arith.mulf %x, %k : f32\n%t = math.erf %s : f32\n%u = arith.addf %t, %one : f32\n"
                   "%v = arith.mulf %x, %half : f32\n%g = arith.mulf %u, %v : f32\n%w = arith.addf %g, %z : f32\n" +
                   (wide ? std::string("yield %w : f32")
                         : "%n = arith.truncf %w : f32 to " + element + "\nyield %n : " + element));
  text.output({"%y", result, flat(n)});
  return text.module();
}

// A product of 64 x 48 and a depth of 16384, whose depth is cut into slices of 256 (chooseSplits); and their sum.
std::string slicesKernel(const std::string& element) {
  MatmulText text(type("64x64x256", element), type("64x256x48", element), type("64x64x48"));
  text.layouts[0] = "(d0, d1, d2) -> (d1 * 16384 + d0 * 256 + d2)";
  return text.module();
}

std::string sumOfSlices() {
  KernelText text;
  text.input({"%x", type("64x64x48"), "(d0, d1, d2) -> (d0 * 3072 + d1 * 48 + d2)"});
  text.fill("%i", type(64, 48), "0.0");
  text.generic("%r", "rpp", {{"%x", type("64x64x48"), "(d0, d1, d2) -> (d0, d1, d2)"}},
               {"%i", type(64, 48), "(d0, d1, d2) -> (d1, d2)"}, "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.output({"%r", type(64, 48), flat(48)});
  return text.module();
}

// The second step of 16 sums over rows, in one launch: gradients of biases.
std::string batchOfSums() {
  const std::string slices = type(32, 768), sums = type("768");
  std::string parameters, names, types, results, layouts, out;
  for (int set = 0; set < 16; ++set) {
    const std::string comma = set ? ", " : "", name = "%x" + std::to_string(set);
    parameters += comma + name + ": " + slices;
    names += comma + name;
    types += comma + slices;
    results += comma + sums;
    layouts += comma + "#slices";
    out += ", #sums";
  }
  return "#slices = affine_map<(d0, d1) -> (d0 * 768 + d1)>\n#sums = affine_map<(d0) -> (d0)>\n"
         "func.func @graph(" +
         parameters + ") {\n  %r:16 = zefuse.kernel \"sums\"(" + names + ") attributes {batch = 16 : i64, layouts = [" +
         layouts + out + "]} : (" + types + ") -> (" + results + ") {" +
         R"(
  ^bb0(%x: tensor<32x768xf32>):
    %zero = arith.constant 0.0 : f32
    %t = tensor.empty() : tensor<768xf32>
    %f = linalg.fill ins(%zero : f32) outs(%t : tensor<768xf32>) -> tensor<768xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>],
                         iterator_types = ["reduction", "parallel"]}
        ins(%x : tensor<32x768xf32>) outs(%f : tensor<768xf32>) {
    ^bb0(%0: f32, %o: f32):
      %1 = arith.addf %0, %o : f32
      linalg.yield %1 : f32
    } -> tensor<768xf32>
    zefuse.yield %y : tensor<768xf32>
  }
  return
})";
}

std::string productKernel(const std::string& a, const std::string& b, const std::string& c) {
  return MatmulText(a, b, c).module();
}

}  // namespace

std::vector<NamedKernel> kernelFamilies() {
  ConvolutionText convolution{.images = 1,
                              .inputs = 64,
                              .outputs = 64,
                              .size = {56, 56},
                              .kernel = {3, 3},
                              .padding = {1, 1},
                              .with_bias = true};
  ConvolutionText last = convolution, gradient = convolution, by_weight = convolution;
  last.channels_last = true;
  gradient.with_bias = by_weight.with_bias = false;
  gradient.kind = "transposed";
  by_weight.kind = "weights";
  ConvolutionText last_bf16 = last, f16 = convolution, by_weight_f16 = by_weight, by_input_bf16 = gradient;
  last_bf16.element = by_input_bf16.element = "bf16";
  f16.element = by_weight_f16.element = "f16";
  // Few tiles: as the importer cuts them (chooseSplits).
  ConvolutionText slices{.images = 1,
                         .inputs = 512,
                         .outputs = 512,
                         .size = {7, 7},
                         .kernel = {3, 3},
                         .padding = {1, 1},
                         .channels_last = true,
                         .slices = 4};
  ConvolutionText slices_f16 = slices, slices_by_weight = by_weight;
  slices_f16.element = "f16";
  slices_by_weight.slices = 8;
  auto f16_of = [](int m, int n) { return type(std::to_string(m) + "x" + std::to_string(n), "f16"); };
  return {
      {"pointwise", probeKernel(64, 200)},
      {"pointwise_large", probeKernel(4096, 1024)},
      {"pointwise_bf16", narrowKernel("bf16")},
      {"pointwise_f16", narrowKernel("f16")},
      {"pointwise_symbolic", symbolicPointwise()},
      {"transpose", transposeKernel()},
      {"concat", concatKernel()},
      {"pad", padKernel()},
      {"scan", scanKernel(0)},
      {"scan_rows", scanKernel(1)},
      {"embedding", embeddingKernel()},
      {"sort", sortKernel("64x2048")},
      {"sort_long", sortKernel("8x100000")},
      {"softmax_8", softmaxKernel(5000, 8)},
      {"softmax_128", softmaxKernel(5000, 128)},
      {"softmax_1024", softmaxKernel(5000, 1024)},
      {"softmax_2000", softmaxKernel(100, 2000)},
      {"softmax_65536", softmaxKernel(512, 65536)},
      {"softmax_symbolic", symbolicSoftmax()},
      {"norm_softmax_768", normKernel(4096, 768)},
      {"norm_softmax_8192", normKernel(4096, 8192)},
      {"column_sums", columnSums(4096, 768)},
      {"column_sums_wide", columnSums(100, 400000)},
      {"column_sums_bf16", columnSums(4096, 8192, "bf16")},
      {"full_sum", fullSum(300, 500)},
      {"sums_batch", batchOfSums()},
      {"any_of_rows", anyOfRows()},
      {"matmul_512", productKernel(type(512, 512), type(512, 512), type(512, 512))},
      {"matmul_4096", productKernel(type(4096, 4096), type(4096, 4096), type(4096, 4096))},
      {"matmul_odd", productKernel(type(67, 45), type(45, 99), type(67, 99))},
      {"matmul_one_row", productKernel(type(1, 768), type(768, 3072), type(1, 3072))},
      {"linear_gelu_add", linearKernel(512, 768, 3072, "f32")},
      {"convolution", convolution.module()},
      {"convolution_last", last.module()},
      {"convolution_by_input", gradient.module()},
      {"convolution_by_weight", by_weight.module()},
      {"linear_bf16", linearKernel(512, 768, 3072, "bf16")},
      {"linear_f16", linearKernel(512, 768, 3072, "f16")},
      {"matmul_4096_f16", productKernel(f16_of(4096, 4096), f16_of(4096, 4096), f16_of(4096, 4096))},
      {"matmul_odd_f16", productKernel(f16_of(67, 45), f16_of(45, 99), f16_of(67, 99))},
      {"matmul_slices", slicesKernel("f32")},
      {"matmul_slices_f16", slicesKernel("f16")},
      {"sum_of_slices", sumOfSlices()},
      {"matmul_one_row_f16", productKernel(f16_of(1, 768), f16_of(768, 3072), f16_of(1, 3072))},
      {"convolution_f16", f16.module()},
      {"convolution_last_bf16", last_bf16.module()},
      {"convolution_by_input_bf16", by_input_bf16.module()},
      {"convolution_by_weight_f16", by_weight_f16.module()},
      {"convolution_slices", slices.module()},
      {"convolution_slices_f16", slices_f16.module()},
      {"convolution_slices_by_weight", slices_by_weight.module()},
  };
}

}  // namespace zefuse::test
