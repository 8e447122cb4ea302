#include "runtime/primitives/core/engine.h"

#include <dnnl_debug.h>
#include <new>

#include "common/plan/plan_generated.h"

namespace zefuse::primitives {

const dnnl::engine& engine() {
  static const auto* instance = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

dnnl::memory::data_type dataType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::bf16: return dnnl::memory::data_type::bf16;
  case plan::DType::f16: return dnnl::memory::data_type::f16;
  case plan::DType::u8: return dnnl::memory::data_type::u8;
  case plan::DType::i8: return dnnl::memory::data_type::s8;
  default: return dnnl::memory::data_type::f32;
  }
}

dnnl::memory::desc memoryDesc(const TensorDesc& desc) {
  return dnnl::memory::desc(desc.sizes, dataType(desc.dtype), desc.strides);
}

Status currentError(const std::string& what) {
  try {
    throw;
  } catch (const dnnl::error& error) {
    Code code = error.status == dnnl_unimplemented   ? Code::unsupported
                : error.status == dnnl_out_of_memory ? Code::out_of_memory
                                                     : Code::device;
    return Status(code, what + ": oneDNN: " + error.what() + " (" + dnnl_status2str(error.status) + ")");
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, what + ": out of memory");
  } catch (const std::exception& error) {
    return Status(Code::internal, what + ": " + error.what());
  } catch (...) {
    return Status(Code::internal, what + ": an exception that is no std::exception");
  }
}

}  // namespace zefuse::primitives
