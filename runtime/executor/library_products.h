// Matrix products by the library of a GPU's vendor: what a bound launch asks for; and what a device's graphs share of
// what they asked such libraries for.
#pragma once

#include <memory>
#include <mutex>

#include <optional>
#include <string>
#include <vector>

#include "common/base/fork.h"
#include "runtime/executor/binding.h"
#include "runtime/ze/convolution.h"
#include "runtime/ze/product.h"

namespace zefuse::executor {

// What libraries compute; nothing: they do not.
std::optional<ze_extension::ElementType> libraryType(plan::DType dtype);

// The product of these values, where it has at least `work` multiplications and the library can describe it: batches
// one stride apart, a bias for each column.
std::optional<ze_extension::ProductDesc> libraryProduct(const Binding& binding, const plan::MatmulT& matmul,
                                                        int64_t work);

// The products (or convolutions) of a device that was asked for them, each made once. Thread-safe.
template <typename Made, typename Desc> class LibraryCalls {
public:
  // Null: the library is missing or has no code for it; so it stays. An error: the device failed.
  Result<std::shared_ptr<const Made>> get(const ze::Context& context, const Desc& desc) {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_)
      if (known.desc == desc)
        return known.made;
    auto fresh = Made::create(context, desc);
    if (!fresh.ok() && fresh.status().code() != Code::unsupported)
      return fresh.status();
    std::shared_ptr<const Made> made;
    if (fresh.ok())
      made = std::make_shared<const Made>(std::move(*fresh));
    known_.push_back({desc, made});
    return made;
  }

private:
  struct Known {
    Desc desc;
    std::shared_ptr<const Made> made;
  };
  ForkMutex mutex_;
  std::vector<Known> known_;
};
using LibraryProducts = LibraryCalls<ze::Product, ze_extension::ProductDesc>;
using LibraryConvolutions = LibraryCalls<ze::Convolution, ze_extension::ConvolutionDesc>;

}  // namespace zefuse::executor
