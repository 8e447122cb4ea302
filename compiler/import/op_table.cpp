#include "compiler/import/op_table.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace zefuse {

void OpTable::add(llvm::StringRef target, Emitter emitter) {
  [[maybe_unused]] bool inserted = emitters_.try_emplace(target, std::move(emitter)).second;
  assert(inserted && "operator registered twice");
}

const Emitter* OpTable::find(llvm::StringRef target) const {
  auto found = emitters_.find(target);
  return found == emitters_.end() ? nullptr : &found->second;
}

bool OpTable::refuses(llvm::StringRef op, llvm::function_ref<Type()> element) {
  auto set = [](StringRef listed) {
    SmallVector<StringRef> names;
    listed.split(names, ' ');
    llvm::StringSet<> made;
    made.insert(names.begin(), names.end());
    return made;
  };
  static const llvm::StringSet<> bools =
      set("abs addcmul arange ceil clamp cumprod cumsum floor max_pool2d_with_indices "
          "max_pool3d_with_indices relu round threshold topk trunc");
  static const llvm::StringSet<> integers =
      set("_prelu_kernel adaptive_max_pool2d adaptive_max_pool2d_backward "
          "adaptive_max_pool3d frac gelu hardshrink hardsigmoid hardswish im2col lerp "
          "log_sigmoid log_sigmoid_forward max_pool2d_with_indices_backward "
          "max_pool3d_with_indices_backward mish silu softplus");
  if (!op.consume_front("aten::"))
    return false;
  return integers.contains(op) ? isa<IntegerType>(element()) : bools.contains(op) && element().isInteger(1);
}

llvm::StringRef OpTable::tensorsOfItsType(llvm::StringRef op) {
  return llvm::StringSwitch<llvm::StringRef>(op)
      .Cases({"aten::index_add", "aten::index_copy"}, "source")
      .Case("aten::index_put", "values")
      .Cases({"aten::native_layer_norm", "aten::native_group_norm"}, "weight bias")
      .Cases({"aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional",
              "aten::_native_batch_norm_legit_no_training"},
             "weight bias running_mean running_var")
      .Default("");
}

llvm::StringRef OpTable::numbersOfItsType(llvm::StringRef op) {
  return llvm::StringSwitch<llvm::StringRef>(op)
      .Cases({"aten::full", "aten::full_like", "aten::new_full"}, "fill_value")
      .Case("aten::scalar_tensor", "s")
      .Cases({"aten::addcdiv", "aten::addcmul", "aten::constant_pad_nd", "aten::fill", "aten::index_fill",
              "aten::masked_fill", "aten::scatter"},
             "value")
      .Case("aten::threshold", "threshold value")
      .Cases({"aten::add", "aten::index_add", "aten::rsub", "aten::sub"}, "alpha")
      .Cases({"aten::addmm", "aten::baddbmm"}, "alpha beta")
      .Case("aten::clamp", "min max")
      .Case("aten::clamp_min", "min")
      .Case("aten::clamp_max", "max")
      .Case("aten::hardtanh", "min_val max_val")
      .Cases({"aten::hardshrink", "aten::softshrink"}, "lambd")
      .Case("aten::elu", "alpha scale input_scale")
      .Case("aten::leaky_relu", "negative_slope")
      .Case("aten::lerp", "weight")
      .Case("aten::softplus", "beta threshold")
      .Case("aten::pow", "exponent")
      .Case("aten::arange", "start end step")
      .Default("");
}

std::vector<std::string> OpTable::targets() const {
  std::vector<std::string> result;
  for (const auto& entry : emitters_)
    result.push_back(entry.getKey().str());
  std::sort(result.begin(), result.end());
  return result;
}

const OpTable& opTable() {
  static const OpTable table = [] {
    OpTable made;
    registerPointwise(made);
    registerActivations(made);
    registerGradients(made);
    registerReductions(made);
    registerNormalization(made);
    registerViews(made);
    registerIndexing(made);
    registerScans(made);
    registerSpecial(made);
    registerDivisors(made);
    registerSorts(made);
    registerScatter(made);
    registerWindows(made);
    registerMatmul(made);
    registerConvolution(made);
    registerAttention(made);
    registerGroupedMatmul(made);
    registerRecurrence(made);
    registerCreation(made);
    registerRandom(made);
    registerConversion(made);
    return made;
  }();
  return table;
}

}  // namespace zefuse
