// Whether Python objects are what they were, asked often: what a precompiled call does instead of looking at everything
// that its tracing had read (python/zefuse/precompile/facts.py).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

namespace zefuse::python {

// Remembers, of each object: a dictionary's version, a class' version, an object's class, dictionary and its version, a
// list's items, a cell's content, a function's code, defaults and closure, a tensor's dtype, sizes, strides, offset and
// flags. Numbers of tensors do not count. Dictionaries and classes have versions in CPython 3.11 and 3.12 only: in
// others nothing is ever unchanged. With the GIL held.
class Watch {
public:
  // (kind, object): "dict", "type", "instance", "list", "cell", "function", "tensor". The objects, and what they hold
  // now, must be kept alive by the caller (who can take part in garbage collection); only their addresses are kept
  // here.
  explicit Watch(const pybind11::list& items);
  bool unchanged() const;

private:
  struct Dict {
    PyObject* dict;
    uint64_t version;
  };
  struct Type {
    PyTypeObject* type;
    unsigned version;
  };
  struct Instance {
    PyObject* object;
    PyTypeObject* type;
    Dict dict;
  };
  struct List {
    PyObject* list;
    std::vector<PyObject*> items;
  };
  struct Function {
    PyObject* function;
    PyObject *code, *defaults, *kwdefaults, *closure;
  };
  struct TensorState {
    PyObject* object;
    const at::TensorImpl* impl;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    at::ScalarType dtype;
    c10::DeviceType device;
    unsigned flags;
  };
  static unsigned flagsOf(const at::Tensor& tensor);

  bool usable_ = true;
  std::vector<Dict> dicts_;
  std::vector<Type> types_;
  std::vector<Instance> instances_;
  std::vector<List> lists_;
  std::vector<std::pair<PyObject*, PyObject*>> cells_;
  std::vector<Function> functions_;
  std::vector<TensorState> tensors_;
};

}  // namespace zefuse::python
