#include "models/sequence_model.h"

#include <algorithm>

namespace hognose::models {

core::Result<Workspace> SequenceModel::NewWorkspace(const core::Exec& exec, size_t max_rows,
                                                    bool exact) const {
  return backbone.NewWorkspace(exec, max_rows, exact, std::max(inputs(), width()));
}

void SequenceModel::Forward(Workspace& ws, core::Mat<const float> x, nn::State& state,
                            core::Mat<float> y) const {
  HOGNOSE_DCHECK(x.rows > 0 && x.rows <= ws.h.rows && y.rows == x.rows);
  const Part part = {x.rows, &state};
  const core::Mat<float> h = ws.h.Rows(0, x.rows), u = ws.u.Rows(0, x.rows);
  encoder.Forward(ws.ctx, nn::Group::kEmbedding, x, h);
  backbone.Forward(ws, x.rows, {&part, 1});
  backbone.Norm(ws.ctx, h, backbone.norm_f, u);
  head.Forward(ws.ctx, nn::Group::kHead, u, y);
}

}  // namespace hognose::models
