// What the dialect's attributes on other operations may say (docs/ir.md): functions, their arguments, upstream's loops.
// Those that stages 1 to 3 set are all here; another name is an error, since a misspelt one would be ignored.
#include "lowering/dialect/Zefuse.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace zefuse {
namespace {

using Diagnose = llvm::function_ref<InFlightDiagnostic()>;

LogicalResult verifyStrings(Attribute value, Diagnose diagnose) {
  auto list = dyn_cast<ArrayAttr>(value);
  if (!list || !llvm::all_of(list, [](Attribute entry) { return isa<StringAttr>(entry); }))
    return diagnose() << "wants an array of strings";
  return success();
}

/// `key` of an entry, where it is there: a number from 0 to count - 1.
LogicalResult verifyNumber(DictionaryAttr entry, StringRef key, int64_t count, Diagnose diagnose) {
  Attribute value = entry.get(key);
  auto number = dyn_cast_or_null<IntegerAttr>(value);
  if (value && (!number || number.getInt() < 0 || number.getInt() >= count))
    return diagnose() << "has no " << key << " " << value;
  return success();
}

LogicalResult verifyMap(DictionaryAttr entry, StringRef key, int64_t results, Diagnose diagnose) {
  auto map = entry.getAs<AffineMapAttr>(key);
  if (!map || map.getValue().getNumDims() != 0 || int64_t(map.getValue().getNumResults()) != results)
    return diagnose() << "wants " << key << " of " << results << " results and no dimensions in " << entry;
  return success();
}

LogicalResult verifyOutput(DictionaryAttr entry, FunctionOpInterface function, Diagnose diagnose) {
  if (entry.get("size"))
    return verifyMap(entry, "size", 1, diagnose);
  auto result = entry.getAs<IntegerAttr>("result");
  if (!result)
    return diagnose() << "has neither result nor size in " << entry;
  if (failed(verifyNumber(entry, "result", function.getNumResults(), diagnose)))
    return failure();
  auto type = dyn_cast<RankedTensorType>(function.getResultTypes()[result.getInt()]);
  if (type && failed(verifyMap(entry, "strides", type.getRank(), diagnose)))
    return failure();
  for (StringRef argument : {"argument", "written"})
    if (failed(verifyNumber(entry, argument, function.getNumArguments(), diagnose)))
      return failure();
  return success();
}

LogicalResult verifyInput(DictionaryAttr entry, FunctionOpInterface function, Diagnose diagnose) {
  if (!entry.get("arg") && !entry.get("symbol"))
    return diagnose() << "has neither arg nor symbol in " << entry;
  return verifyNumber(entry, "arg", function.getNumArguments(), diagnose);
}

/// Entries are dictionaries or, where `units` may stand, unit.
LogicalResult verifyEntries(Attribute value, bool units, Diagnose diagnose,
                            llvm::function_ref<LogicalResult(DictionaryAttr)> verify) {
  auto list = dyn_cast<ArrayAttr>(value);
  if (!list)
    return diagnose() << "wants an array";
  for (Attribute entry : list) {
    if (units && isa<UnitAttr>(entry))
      continue;
    auto fields = dyn_cast<DictionaryAttr>(entry);
    if (!fields)
      return diagnose() << "wants a dictionary instead of " << entry;
    if (failed(verify(fields)))
      return failure();
  }
  return success();
}

LogicalResult verifyRefusal(DictionaryAttr entry, Diagnose diagnose) {
  for (StringRef kernel : {"first", "second"})
    if (!entry.getAs<IntegerAttr>(kernel))
      return diagnose() << "wants a group as " << kernel << " in " << entry;
  if (!entry.getAs<StringAttr>("reason"))
    return diagnose() << "wants a reason in " << entry;
  return success();
}

LogicalResult verifySizeCheck(DictionaryAttr entry, Diagnose diagnose) {
  for (StringRef text : {"error", "message", "source"})
    if (!entry.getAs<StringAttr>(text))
      return diagnose() << "wants " << text << " in " << entry;
  auto numbers = entry.getAs<AffineMapAttr>("numbers");
  if (failed(verifyMap(entry, "least", 1, diagnose)))
    return failure();
  return numbers ? verifyMap(entry, "numbers", numbers.getValue().getNumResults(), diagnose)
                 : LogicalResult(diagnose() << "wants numbers in " << entry);
}

LogicalResult verifyPositive(Attribute value, Diagnose diagnose) {
  auto number = dyn_cast<IntegerAttr>(value);
  if (!number || number.getInt() < 1)
    return diagnose() << "wants a number of 1 or more";
  return success();
}

/// Of functions: of the graph at stages 1 and 2, of a kernel at stage 3.
LogicalResult verifyOfFunction(FunctionOpInterface function, StringRef name, Attribute value, Diagnose diagnose) {
  if (name == "symbols")
    return verifyStrings(value, diagnose);
  if (name == "symbol_sources")
    return isa<ArrayAttr>(value) ? success() : LogicalResult(diagnose() << "wants an array");
  if (name == "inputs")
    return verifyEntries(value, true, diagnose,
                         [&](DictionaryAttr entry) { return verifyInput(entry, function, diagnose); });
  if (name == "outputs")
    return verifyEntries(value, true, diagnose,
                         [&](DictionaryAttr entry) { return verifyOutput(entry, function, diagnose); });
  if (name == "size_checks")
    return verifyEntries(value, false, diagnose,
                         [&](DictionaryAttr entry) { return verifySizeCheck(entry, diagnose); });
  if (name == "not_joined")
    return verifyEntries(value, false, diagnose, [&](DictionaryAttr entry) { return verifyRefusal(entry, diagnose); });
  if (name == "refused")
    return verifyEntries(value, false, diagnose, [&](DictionaryAttr entry) -> LogicalResult {
      if (!entry.getAs<IntegerAttr>("group") || !entry.getAs<StringAttr>("reason"))
        return diagnose() << "wants group and reason in " << entry;
      return success();
    });
  return verifyPositive(value, diagnose);  // group_size, subgroup_size
}

}  // namespace

bool isMeasuredKernel(Operation* op) {
  auto measured = op->getAttrOfType<StringAttr>(implementation_attribute);
  return measured && measured.getValue() == "kernel";
}

bool isActivation(StringRef name) {
  return llvm::is_contained({"relu", "relu6", "gelu_erf", "gelu_tanh", "silu", "hardswish", "tanh", "sigmoid"}, name);
}

LogicalResult ZefuseDialect::verifyOperationAttribute(Operation* op, NamedAttribute attribute) {
  StringRef name = attribute.getName().strref();
  name.consume_front("zefuse.");
  Attribute value = attribute.getValue();
  auto diagnose = [&] { return op->emitOpError() << "'zefuse." << name << "' "; };
  if (llvm::is_contained({"symbols", "symbol_sources", "inputs", "outputs", "size_checks", "not_joined", "refused",
                          "group_size", "subgroup_size"},
                         name)) {
    auto function = dyn_cast<FunctionOpInterface>(op);
    if (!function)
      return diagnose() << "is a function's";
    return verifyOfFunction(function, name, value, diagnose);
  }
  if (name == "activation") {
    auto text = dyn_cast<StringAttr>(value);
    if (!isa<linalg::GenericOp>(op) || !text || !isActivation(text.getValue()))
      return diagnose() << "names one of a library's activations, of a linalg.generic";
    return success();
  }
  if (name == "in_kernel") {  // analysis/product_form.h
    auto limits = dyn_cast<DenseI64ArrayAttr>(value);
    if (!isa<MatmulOp, ConvolutionOp, AttentionOp>(op) || !limits || limits.size() != 2 || limits[0] < 0 ||
        limits[0] > 1 || limits[1] < 0)
      return diagnose()
             << "is [0 or 1, number of operations], of a zefuse.matmul, zefuse.convolution or zefuse.attention";
    return success();
  }
  if (name == "library") {  // analysis/product_form.h
    if (!isa<MatmulOp, ConvolutionOp>(op) || !isa<IntegerAttr>(value))
      return diagnose() << "is a number of multiplications, of a zefuse.matmul or zefuse.convolution";
    return success();
  }
  if (name == "output")
    return isa<IntegerAttr>(value) ? success() : LogicalResult(diagnose() << "wants a number");
  if (name == "views") {  // of what ATen makes: the operand in whose memory the results lie
    auto operand = dyn_cast<IntegerAttr>(value);
    if (!isa<AtenOp>(op) || !operand || operand.getInt() < 0 || operand.getInt() >= op->getNumOperands())
      return diagnose() << "is a number of an operand, of a zefuse.aten";
    return success();
  }
  if (name == "late" || name == "only_on_host" || name == "few_results" || name == "with_slices" ||
      name == "kept_copy" || name == "kept_weights" || name == "tf32_products" || name == "tf32_convolutions")
    return isa<UnitAttr>(value) ? success() : LogicalResult(diagnose() << "has no value");
  if (name == "note" || name == "note_of_refusal" || name == "left_out")  // for explain; they change no code
    return isa<StringAttr>(value) ? success() : LogicalResult(diagnose() << "wants a string");
  if (name == "implementation") {  // Zefuse.h
    if (!isa<MatmulOp, ConvolutionOp>(op) || !isa<StringAttr>(value))
      return diagnose() << "is a name, of a zefuse.matmul or zefuse.convolution";
    return success();
  }
  if (name == "operators" ||
      name == "transferred_layouts")  // compiler/import/implementations.h, compiler/kernel_transfer.h
    return isa<ArrayAttr>(value) ? success() : LogicalResult(diagnose() << "wants an array");
  return diagnose() << "is no attribute of the dialect";
}

LogicalResult ZefuseDialect::verifyRegionArgAttribute(Operation* op, unsigned, unsigned argument,
                                                      NamedAttribute attribute) {
  StringRef name = attribute.getName().strref();
  name.consume_front("zefuse.");
  Attribute value = attribute.getValue();
  auto diagnose = [&] { return op->emitOpError() << "'zefuse." << name << "' of argument " << argument << " "; };
  if (name == "name")
    return isa<StringAttr>(value) ? success() : LogicalResult(diagnose() << "wants a string");
  if (name == "kind") {
    auto kind = dyn_cast<StringAttr>(value);
    if (!kind || !llvm::is_contained({"user", "parameter", "constant"}, kind.getValue()))
      return diagnose() << "is \"user\", \"parameter\" or \"constant\"";
    return success();
  }
  if (name != "strides")
    return diagnose() << "is no attribute of the dialect";
  auto map = dyn_cast<AffineMapAttr>(value);
  auto type = dyn_cast<RankedTensorType>(cast<FunctionOpInterface>(op).getArgumentTypes()[argument]);
  if (!map || map.getValue().getNumDims() != 0 || (type && int64_t(map.getValue().getNumResults()) != type.getRank()))
    return diagnose() << "wants a map without dimensions and a result per dimension of the tensor";
  return success();
}

}  // namespace zefuse
