// Changes of dtype. Layout and memory format have no meaning on values: the results' strides are applied at the graph's
// end.
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

Values emitConvert(Op& op) { return {op.build.convert(op.tensor("self"), op.element())}; }

}  // namespace

void registerConversion(OpTable& table) {
  for (StringRef target : {"_to_copy.default", "to.dtype", "to.dtype_layout", "type_as.default"})
    table.add(("aten." + target).str(), emitConvert);
  table.add("prims.convert_element_type.default",
            [](Op& op) -> Values { return {op.build.convert(op.tensor("a"), op.element())}; });
}

}  // namespace zefuse
