#include "python/csrc/bound_call.h"

#include <torch/csrc/autograd/python_variable.h>

#include "python/csrc/errors.h"
#include "runtime/aten/lazy_values.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

// The same memory, sizes and version counter, whatever becomes of the tensor.
at::Tensor kept(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

// False where one of them is no plain tensor.
bool read(const CompiledGraph& graph, const py::list& given, size_t first, Arguments& into) {
  for (size_t i = 0; i < given.size(); ++i) {
    PyObject* object = PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_Check(object) || aten::isLazy(THPVariable_Unpack(object)))
      return false;
    into.tensors[first + i] = kept(THPVariable_Unpack(object));
    graph.readTensor(first + i, int64_t(first + i), into);
  }
  return true;
}

}  // namespace

std::unique_ptr<BoundCall> BoundCall::bind(CompiledGraph& graph, const py::list& before, size_t open,
                                           const py::list& after) {
  if (!graph.asTheyCome() || graph.place())
    return nullptr;
  const size_t first = before.size(), last = first + open + after.size();
  Arguments bound(last + graph.constants().size());
  if (!read(graph, before, 0, bound) || !read(graph, after, first + open, bound))
    return nullptr;
  for (size_t i = 0; i < graph.constants().size(); ++i) {
    bound.tensors[last + i] = graph.constants()[i];
    graph.readTensor(last + i, int64_t(last + i), bound);
  }
  return std::unique_ptr<BoundCall>(new BoundCall(graph, std::move(bound), first, open));
}

py::tuple BoundCall::call(const py::list& arguments) {
  if (arguments.size() != open_)
    raise(Status(Code::invalid_argument, "a bound call takes " + std::to_string(open_) + " arguments, and got " +
                                             std::to_string(arguments.size())));
  if (in_use_) {  // by another thread
    Arguments own = bound_;
    for (size_t i = 0; i < bound_.tensors.size(); ++i)
      if (own.inputs[i].is_tensor)
        own.inputs[i].tensor.owner = &own.tensors[i];
    return BoundCall(graph_, std::move(own), first_, open_).call(arguments);
  }
  struct InUse {
    BoundCall& call;
    explicit InUse(BoundCall& of) : call(of) { call.in_use_ = true; }
    ~InUse() {
      for (size_t i = 0; i < call.open_; ++i)
        call.bound_.tensors[call.first_ + i].reset();
      call.bound_.computed.clear();
      call.in_use_ = false;
    }
  } in_use(*this);
  for (size_t i = 0; i < open_; ++i) {
    bound_.inputs[first_ + i] = {};
    graph_.read(PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i)), first_ + i, int64_t(first_ + i), bound_);
  }
  return graph_.run(bound_);
}

}  // namespace zefuse::python
