// Which matrix products and convolutions the libraries of a GPU's vendor may compute (docs/gpu.md).
#pragma once

#include <optional>

#include "common/toolchain/target_description.h"
#include "lowering/dialect/Zefuse.h"

namespace zefuse {

// On a graph: the library may round operands of f32 to TF32.
inline constexpr llvm::StringLiteral tf32_products = "zefuse.tf32_products";
inline constexpr llvm::StringLiteral tf32_convolutions = "zefuse.tf32_convolutions";
// Whether it does with this one's.
bool inTf32(MatmulOp op);
bool inTf32(ConvolutionOp op);

// Of those for which it is there when they run (TargetDescription::product_library). Their kernels are made all the
// same.
enum class LibraryProducts { never, large, always };
std::optional<LibraryProducts> libraryProductsNamed(llvm::StringRef name);  // "never", "auto", "always"
// From how many multiplications the library takes this one, by what sizes and types are known; nothing: it does not.
std::optional<int64_t> libraryWork(MatmulOp op, const TargetDescription& target, LibraryProducts which);
// The library of the same vendor for convolutions; empty: there is none.
llvm::StringRef convolutionLibrary(const TargetDescription& target);
// Likewise, where that library takes this one. `kept_weights`: what is made of its weight is kept from call to call.
std::optional<int64_t> libraryWork(ConvolutionOp op, const TargetDescription& target, LibraryProducts which,
                                   bool kept_weights = false);

}  // namespace zefuse
