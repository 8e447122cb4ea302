// The checks behind loadProgram. Fills the derived tables of Program on the way.
#pragma once

#include "common/plan/program.h"

namespace zefuse::plan {

class PlanCheck {
public:
  explicit PlanCheck(Program& program) : program_(program), plan_(program.plan) {}
  Status run();

private:
  Status exprs();
  Status symbols();
  Status inputs();
  Status buffers();
  Status values();
  Status modules();
  Status producers();
  Status steps();
  Status sizeChecks();
  Status outputs();
  Status writtenInputs();

  Status launch(size_t step, const plan::LaunchT& launch);
  Status matmul(size_t step, const plan::MatmulT& matmul);
  Status convolution(size_t step, const plan::ConvolutionT& convolution);
  Status attention(size_t step, const plan::AttentionT& attention);
  Status attentionGradient(size_t step, const plan::AttentionGradientT& gradient);
  Status recurrence(size_t step, const plan::RecurrenceT& recurrence);
  Status groupedMatmul(size_t step, const plan::GroupedMatmulT& product);
  Status postOps(size_t step, const std::vector<std::unique_ptr<plan::PostOpT>>& post_ops, uint32_t out);
  Status atenCall(size_t step, const plan::AtenCallT& call);
  Status argument(size_t step, const plan::ArgumentT& argument, int depth);
  Status copy(size_t step, const plan::CopyT& copy);

  Status expr(uint32_t index, const std::string& where) const;
  Status shape(const std::vector<uint32_t>& sizes, const std::vector<uint32_t>& strides,
               const std::string& where) const;
  Status reads(size_t step, int64_t value, const char* role) const;
  Status writes(size_t step, int64_t value, const char* role) const;
  Status touches(size_t step, int64_t value, const char* role, bool writes) const;
  size_t rank(uint32_t value) const { return plan_.values[value]->sizes.size(); }

  Program& program_;
  const plan::PlanT& plan_;
  struct LastTouch {
    size_t step = SIZE_MAX, at = 0;
  };
  mutable std::vector<LastTouch>
      last_touch_;  // by buffer: the step that touched it last, and where among that step's touches
};

}  // namespace zefuse::plan
