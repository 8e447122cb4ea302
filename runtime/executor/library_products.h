// Matrix products by the library of a GPU's vendor: what a bound launch asks for, and what a device's graphs share of
// it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fork.h"
#include "runtime/executor/binding.h"
#include "runtime/ze/product.h"

namespace zefuse::executor {

// The product of these values, where it has at least `work` multiplications and the library can describe it: batches
// one stride apart, a bias for each column.
std::optional<ze_extension::ProductDesc> libraryProduct(const Binding& binding, const plan::MatmulT& matmul,
                                                        int64_t work);

// The products of a device that was asked for them, each made once. Thread-safe.
class LibraryProducts {
public:
  // Null: the library is missing or has no code for it; so it stays. An error: the device failed.
  Result<std::shared_ptr<const ze::Product>> get(const ze::Context& context, const ze_extension::ProductDesc& desc);

private:
  struct Known {
    ze_extension::ProductDesc desc;
    std::shared_ptr<const ze::Product> product;
  };
  ForkMutex mutex_;
  std::vector<Known> known_;
};

}  // namespace zefuse::executor
