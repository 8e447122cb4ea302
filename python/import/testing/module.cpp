// zefuse_import_test: the importer alone, for tests/python/import.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "compiler/import/errors.h"
#include "compiler/import/importer.h"
#include "compiler/import/op_table.h"
#include "lowering/dialect/Zefuse.h"
#include "python/import/fx_reader.h"

namespace py = pybind11;

namespace {

mlir::MLIRContext& context() {
  static auto* made = [] {
    mlir::DialectRegistry registry;
    zefuse::registerDialects(registry);
    auto* context = new mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *made;
}

struct Imported {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<py::object> constants;
};

Imported importModule(py::object graph_module, std::vector<unsigned> parameters) {
  zefuse::FxGraph read = zefuse::readGraph(context(), graph_module);
  return {zefuse::importGraph(context(), read.graph, zefuse::ImportOptions{std::move(parameters)}),
          std::move(read.constants)};
}

std::string textOf(mlir::ModuleOp module, bool locations) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  mlir::OpPrintingFlags flags;
  flags.enableDebugInfo(locations);
  module->print(stream, flags);
  return text;
}

}  // namespace

PYBIND11_MODULE(zefuse_import_test, module) {
  py::register_exception<zefuse::ImportError>(module, "ImportError", PyExc_RuntimeError);
  module.def(
      "import_to_text",
      [](py::object graph_module, std::vector<unsigned> parameters, bool locations) {
        return textOf(*importModule(graph_module, std::move(parameters)).module, locations);
      },
      py::arg("graph_module"), py::arg("parameters") = std::vector<unsigned>{}, py::arg("locations") = false);
  module.def("constants", [](py::object graph_module) { return importModule(graph_module, {}).constants; });
  module.def("read_only", [](py::object graph_module) { zefuse::readGraph(context(), graph_module); });
  module.def("targets", [] { return zefuse::opTable().targets(); });
}
