#include "python/csrc/watch.h"

#include <torch/csrc/autograd/python_variable.h>

#include "python/csrc/errors.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
constexpr bool have_versions = true;

// Every change of a dictionary gives it a number that none had before (PEP 509).
uint64_t versionOf(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

// Every change of a class or one of its bases takes its number away, and the next look-up gives it a new one. Zero: it
// has none.
unsigned versionOf(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}
#else
constexpr bool have_versions = false;
uint64_t versionOf(PyObject*) { return 0; }
unsigned versionOf(PyTypeObject*) { return 0; }
#endif

PyObject* dictOf(PyObject* object) {
  PyObject** place = _PyObject_GetDictPtr(object);
  return place ? *place : nullptr;
}

}  // namespace

unsigned Watch::flagsOf(const at::Tensor& tensor) {
  return unsigned(tensor.requires_grad()) | unsigned(tensor.is_leaf()) << 1 | unsigned(tensor.is_inference()) << 2 |
         unsigned(tensor.is_conj()) << 3 | unsigned(tensor.is_neg()) << 4 | unsigned(tensor.is_view()) << 5 |
         unsigned(tensor.layout() == at::kStrided) << 6;
}

Watch::Watch(const py::list& items) : usable_(have_versions) {
  for (py::handle item : items) {
    const auto pair = py::cast<py::tuple>(item);
    const auto kind = py::cast<std::string>(pair[0]);
    PyObject* object = pair[1].ptr();
    if (kind == "dict" && PyDict_Check(object)) {
      dicts_.push_back({object, versionOf(object)});
    } else if (kind == "type" && PyType_Check(object)) {
      auto* type = reinterpret_cast<PyTypeObject*>(object);
      static PyObject* any = PyUnicode_InternFromString("__zefuse_watch__");
      (void)_PyType_Lookup(type, any);  // so that it has a version
      types_.push_back({type, versionOf(type)});
      usable_ &= types_.back().version != 0;
    } else if (kind == "instance") {
      PyObject* dict = dictOf(object);
      instances_.push_back({object, Py_TYPE(object), {dict, dict ? versionOf(dict) : 0}});
    } else if (kind == "list" && PyList_Check(object)) {
      lists_.push_back({object, {}});
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
        lists_.back().items.push_back(PyList_GET_ITEM(object, i));
    } else if (kind == "cell" && PyCell_Check(object)) {
      cells_.emplace_back(object, PyCell_GET(object));
    } else if (kind == "function" && PyFunction_Check(object)) {
      functions_.push_back({object, PyFunction_GET_CODE(object), PyFunction_GET_DEFAULTS(object),
                            PyFunction_GET_KW_DEFAULTS(object), PyFunction_GET_CLOSURE(object)});
    } else if (kind == "tensor" && THPVariable_Check(object)) {
      const at::Tensor& tensor = THPVariable_Unpack(object);
      tensors_.push_back({object, tensor.unsafeGetTensorImpl(), tensor.sizes().vec(), tensor.strides().vec(),
                          tensor.storage_offset(), tensor.scalar_type(), tensor.device().type(), flagsOf(tensor)});
      PyObject* dict = dictOf(object);
      instances_.push_back({object, Py_TYPE(object), {dict, dict ? versionOf(dict) : 0}});
    } else {
      raise("internal", "Watch: no " + kind + " is an object of type " + Py_TYPE(object)->tp_name);
    }
  }
}

bool Watch::unchanged() const {
  if (!usable_)
    return false;
  for (const Dict& known : dicts_)
    if (versionOf(known.dict) != known.version)
      return false;
  for (const Type& known : types_)
    if (versionOf(known.type) != known.version)
      return false;
  for (const Instance& known : instances_) {
    PyObject* dict = dictOf(known.object);
    if (Py_TYPE(known.object) != known.type || dict != known.dict.dict ||
        (dict && versionOf(dict) != known.dict.version))
      return false;
  }
  for (const List& known : lists_) {
    if (size_t(PyList_GET_SIZE(known.list)) != known.items.size())
      return false;
    for (size_t i = 0; i < known.items.size(); ++i)
      if (PyList_GET_ITEM(known.list, Py_ssize_t(i)) != known.items[i])
        return false;
  }
  for (const auto& [cell, content] : cells_)
    if (PyCell_GET(cell) != content)
      return false;
  for (const Function& known : functions_)
    if (PyFunction_GET_CODE(known.function) != known.code ||
        PyFunction_GET_DEFAULTS(known.function) != known.defaults ||
        PyFunction_GET_KW_DEFAULTS(known.function) != known.kwdefaults ||
        PyFunction_GET_CLOSURE(known.function) != known.closure)
      return false;
  for (const TensorState& known : tensors_) {
    const at::Tensor& tensor = THPVariable_Unpack(known.object);
    if (tensor.unsafeGetTensorImpl() != known.impl || tensor.scalar_type() != known.dtype ||
        tensor.device().type() != known.device || flagsOf(tensor) != known.flags ||
        tensor.sizes() != at::IntArrayRef(known.sizes) || tensor.strides() != at::IntArrayRef(known.strides) ||
        tensor.storage_offset() != known.offset)
      return false;
  }
  return true;
}

}  // namespace zefuse::python
