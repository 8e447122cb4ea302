#include "tests/unit/lowering/attention_case.h"
#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {
namespace {

// A tensor of these sizes: numbers, or symbols of two.
struct Tensor {
  std::vector<std::string> sizes;
  std::string element;

  std::string type() const {
    std::string shape, named;
    bool symbolic = false;
    for (const std::string& size : sizes) {
      symbolic |= size[0] == 's';
      shape += (size[0] == 's' ? "?" : size) + "x";
      named += (named.empty() ? "" : ", ") + size;
    }
    return "tensor<" + shape + element + (symbolic ? ", affine_map<()[s0, s1] -> (" + named + ")>" : "") + ">";
  }
  std::string dims() const {
    std::string dims;
    for (size_t i = 0; i < sizes.size(); ++i)
      dims += (i ? ", d" : "d") + std::to_string(i);
    return "(" + dims + ")";
  }
  std::string identity() const { return dims() + " -> " + dims(); }
  std::string layout() const {
    std::string offset;
    for (size_t i = 0; i < sizes.size(); ++i)
      offset = i ? "(" + offset + ") * " + sizes[i] + " + d" + std::to_string(i) : "d0";
    return dims() + "[s0, s1] -> (" + offset + ")";
  }
};

class AttentionText {
public:
  explicit AttentionText(const AttentionCase& c) : c_(c) {}

  std::string module() {
    text_.name = "attention";
    const std::string rows = c_.symbolic ? "s0" : std::to_string(c_.rows),
                      keys = c_.symbolic ? "s1" : std::to_string(c_.keys), heads = std::to_string(c_.heads),
                      key_heads = std::to_string(c_.key_heads), depth = std::to_string(c_.depth),
                      columns = std::to_string(c_.columns);
    const Tensor q{{heads, rows, depth}, c_.element}, k{{key_heads, keys, depth}, c_.element},
        v{{key_heads, keys, columns}, c_.element}, mask{{rows, keys}, c_.mask}, result{{heads, rows, columns}, "f32"},
        sums{{heads, rows}, "f32"};
    if (c_.symbolic) {
      text_.line("%s0 = zefuse.size affine_map<()[s0, s1] -> (s0)>");
      text_.line("%s1 = zefuse.size affine_map<()[s0, s1] -> (s1)>");
    }
    input("%q", q);
    input("%k", k);
    input("%v", v);
    std::string operands = computed("%q", q, "%w = arith.constant 0.5 : f32\n%y = arith.mulf %x, %w : f32") + ", " +
                           computed("%k", k, "%y = arith.negf %x : f32") + ", %v",
                types = q.type() + ", " + k.type() + ", " + v.type(), results = result.type();
    if (!c_.mask.empty()) {
      input("%m", mask);
      operands += " mask " + computed("%m", mask, "%y = arith.addf %x, %x : f32");
      types += ", " + mask.type();
    }
    if (c_.log_sums)
      results = "(" + results + ", " + sums.type() + ")";
    text_.line((c_.log_sums ? "%r, %l" : "%r") + std::string(" = zefuse.attention ") + operands +
               " {scale = " + std::to_string(c_.scale) + " : f32, causal = " + (c_.causal ? "true" : "false") +
               "} : (" + types + ") -> " + results);
    if (c_.around) {
      input("%a", result);
      empty("%r", result);
      text_.generic("%rn", "ppp", {{"%r", result.type(), result.identity()}, {"%a", result.type(), result.identity()}},
                    {"%re", result.type(), result.identity()},
                    "%x = math.absf %0 : f32\n%y = arith.addf %x, %1 : f32\nyield %y : f32");
    }
    text_.output({c_.around ? "%rn" : "%r", result.type(), result.layout()});
    if (c_.log_sums)
      text_.output({computed("%l", sums, "%y = arith.negf %x : f32"), sums.type(), sums.layout()});
    return text_.module();
  }

private:
  void input(const std::string& name, const Tensor& tensor) { text_.input({name, tensor.type(), tensor.layout()}); }

  void empty(const std::string& name, const Tensor& tensor) {
    std::string sizes;
    for (const std::string& size : tensor.sizes)
      if (size[0] == 's')
        sizes += (sizes.empty() ? "%" : ", %") + size;
    text_.empty(name + "e", tensor.type(), sizes);
  }

  // What `body` makes %y of %x, in f32; of booleans their opposite.
  std::string computed(const std::string& name, const Tensor& tensor, const std::string& body) {
    if (!c_.around)
      return name;
    const std::string& element = tensor.element;
    std::string whole = element == "f32" ? body + "\nyield %y : f32"
                                         : "%x = arith.extf %0 : " + element + " to f32\n" + body +
                                               "\n%z = arith.truncf %y : f32 to " + element + "\nyield %z : " + element;
    if (element == "f32")
      for (size_t at; (at = whole.find("%x")) != std::string::npos;)
        whole.replace(at, 2, "%0");
    if (element == "i1")
      whole = "%t = arith.constant true\n%y = arith.xori %0, %t : i1\nyield %y : i1";
    empty(name, tensor);
    text_.generic(name + "n", std::string(tensor.sizes.size(), 'p'), {{name, tensor.type(), tensor.identity()}},
                  {name + "e", tensor.type(), tensor.identity()}, whole);
    return name + "n";
  }

  const AttentionCase& c_;
  KernelText text_;
};

}  // namespace

std::string moduleOf(const AttentionCase& attention) { return AttentionText(attention).module(); }

}  // namespace zefuse::test
