#pragma once

#include <stdexcept>

namespace zefuse {

// Thrown inside an emitter only: this form of the operator has no lowering. The importer turns it into zefuse.aten with
// this reason, so it never leaves the importer.
class NotLowered : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

}  // namespace zefuse
