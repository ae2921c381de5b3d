#include "models/language_model.h"

namespace hognose::models {

void LanguageModel::Embed(nn::Context& ctx, std::span<const int32_t> ids,
                          core::Mat<float> h) const {
  const nn::Timed timed(ctx.profile, nn::Group::kEmbedding);
  for (size_t l = 0; l < ids.size(); ++l) {
    codecs::DecodeRow(embedding, static_cast<size_t>(ids[l]), {h.Row(l), width()});
  }
}

void LanguageModel::Forward(Workspace& ws, std::span<const int32_t> ids,
                            std::span<const Part> parts) const {
  HOGNOSE_DCHECK(!ids.empty() && ids.size() <= ws.h.rows);
  Embed(ws.ctx, ids, ws.h);
  backbone.Forward(ws, ids.size(), parts);
}

void LanguageModel::Logits(Workspace& ws, size_t begin, core::Mat<float> out) const {
  const core::Mat<float> u = ws.u.Rows(0, out.rows);
  backbone.Norm(ws.ctx, ws.h.Rows(begin, out.rows), backbone.norm_f, u);
  head.Forward(ws.ctx, nn::Group::kHead, u, out);
}

}  // namespace hognose::models
